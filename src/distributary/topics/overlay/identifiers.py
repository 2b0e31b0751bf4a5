"""Identifiers on a ring: 64-bit integers, read as 4-bit digits.

Pastry uses 128 bits. 64 bits make collisions unlikely even among 1e9 peers and fit NumPy's
integers.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple

__all__ = [
    "BITS",
    "DIGITS",
    "DIGIT_BITS",
    "RADIX",
    "RING",
    "Peer",
    "count_shared_digits",
    "digit",
    "distance",
    "identifier",
    "make_peer",
]

BITS = 64
DIGIT_BITS = 4
DIGITS = BITS // DIGIT_BITS
RADIX = 1 << DIGIT_BITS
RING = 1 << BITS


class Peer(NamedTuple):
    """A peer as others know it: its identifier on the ring, and the name to send to."""

    identifier: int
    name: str


def identifier(name: str) -> int:
    """The identifier of a peer or a group: a hash of its name."""
    return int.from_bytes(blake2b(name.encode(), digest_size=BITS // 8).digest(), "big")


def make_peer(name: str) -> Peer:
    """The peer with that name, at the identifier given by its hash."""
    return Peer(identifier(name), name)


def count_shared_digits(one: int, other: int) -> int:
    """The number of leading digits that both share."""
    return (BITS - (one ^ other).bit_length()) // DIGIT_BITS


def digit(of: int, row: int) -> int:
    """The digit that follows the first `row` digits."""
    return (of >> (BITS - DIGIT_BITS * (row + 1))) & (RADIX - 1)


def distance(key: int, of: int) -> tuple[int, int]:
    """The distance around the ring; ties are broken by the smaller identifier."""
    clockwise = (key - of) % RING
    return min(clockwise, RING - clockwise), of
