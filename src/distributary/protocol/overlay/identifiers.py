"""Identifiers on a ring: whole numbers of 64 bits, read as digits of 4 bits.

Pastry takes 128 bits. Half of that tells a thousand million peers apart almost surely, and fits
NumPy's integers.
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
    "digit",
    "distance",
    "identifier",
    "peer_named",
    "shared_digits",
]

BITS = 64
DIGIT_BITS = 4
DIGITS = BITS // DIGIT_BITS
RADIX = 1 << DIGIT_BITS
RING = 1 << BITS


class Peer(NamedTuple):
    """A peer as others know it: its place on the ring, and the name to send to."""

    identifier: int
    name: str


def identifier(name: str) -> int:
    """The place of a peer or of a group on the ring: a hash of its name."""
    return int.from_bytes(blake2b(name.encode(), digest_size=BITS // 8).digest(), "big")


def peer_named(name: str) -> Peer:
    """The peer of that name, at the place that its hash gives."""
    return Peer(identifier(name), name)


def shared_digits(one: int, other: int) -> int:
    """With how many equal digits the two begin."""
    return (BITS - (one ^ other).bit_length()) // DIGIT_BITS


def digit(of: int, row: int) -> int:
    """The digit after the first `row` ones."""
    return (of >> (BITS - DIGIT_BITS * (row + 1))) & (RADIX - 1)


def distance(key: int, of: int) -> tuple[int, int]:
    """How far it is around the ring, the shorter way; of two as far the smaller one is nearer."""
    clockwise = (key - of) % RING
    return min(clockwise, RING - clockwise), of
