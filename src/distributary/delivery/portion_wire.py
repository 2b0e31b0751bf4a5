"""Encoding and decoding of portions: what a plan means for one receiver."""

from __future__ import annotations

import hashlib
import struct
from typing import NamedTuple

from distributary.delivery.wire import WireError

__all__ = [
    "MOST_PORTION_BYTES",
    "Inquiry",
    "Portion",
    "PortionPart",
    "decode_inquiry",
    "decode_portion",
    "decode_portion_part",
    "encode_inquiry",
    "encode_portion",
    "encode_portion_part",
    "portion_digest",
    "split_portion",
]

MOST_PORTION_BYTES = 1 << 26
_MOST_PARTS = 1 << 16
_INQUIRY = struct.Struct("<QI")  # fingerprint, first part; the name follows
_PORTION = struct.Struct("<QQII")  # fingerprint, digest, part, parts; a piece follows
_NUMBER = struct.Struct("<I")


class Portion(NamedTuple):
    """The flows that a plan brings to a receiver, and the groups that it means for it."""

    flows: tuple[str, ...]
    groups: frozenset[int]


class Inquiry(NamedTuple):
    """Asks for a receiver's portion of the plan with a fingerprint, from a part on."""

    fingerprint: int
    first: int
    name: str


class PortionPart(NamedTuple):
    """A piece of an encoded portion; `digest` is that of the whole."""

    fingerprint: int
    digest: int
    part: int
    parts: int
    piece: bytes


def encode_inquiry(inquiry: Inquiry) -> bytes:
    """The body of an inquiry."""
    return _INQUIRY.pack(inquiry.fingerprint, inquiry.first) + inquiry.name.encode()


def decode_inquiry(body: bytes | memoryview) -> Inquiry:
    """Read the body of an inquiry."""
    if len(body) < _INQUIRY.size:
        raise WireError(f"an inquiry of {len(body)} bytes")
    fingerprint, first = _INQUIRY.unpack_from(body)
    if first >= _MOST_PARTS:
        raise WireError("an inquiry for a part out of range")
    return Inquiry(fingerprint, first, _text(bytes(body[_INQUIRY.size :])))


def encode_portion(portion: Portion) -> bytes:
    """A whole portion as bytes."""
    groups = sorted(portion.groups)
    names = [flow.encode() for flow in portion.flows]
    head = b"".join(map(_NUMBER.pack, (len(groups), *groups)))
    return head + b"".join(_NUMBER.pack(len(name)) + name for name in names)


def decode_portion(encoded: bytes) -> Portion:
    """Read a whole portion."""
    try:
        (n_groups,) = _NUMBER.unpack_from(encoded)
        at = _NUMBER.size * (1 + n_groups)
        groups = struct.unpack_from(f"<{n_groups}I", encoded, _NUMBER.size)
        flows = []
        while at < len(encoded):
            (length,) = _NUMBER.unpack_from(encoded, at)
            at += _NUMBER.size + length
            flows.append(_text(encoded[at - length : at]))
    except struct.error as error:
        raise WireError("a portion that is cut short") from error
    if at != len(encoded):
        raise WireError("a portion that is cut short")
    return Portion(tuple(flows), frozenset(groups))


def portion_digest(encoded: bytes) -> int:
    """A hash of an encoded portion, by which a receiver knows that it has all pieces of one."""
    digest = hashlib.blake2b(encoded, digest_size=8, person=b"portion").digest()
    return int.from_bytes(digest, "little")


def split_portion(encoded: bytes, room: int) -> int:
    """In how many parts a portion is sent, if bodies have at most `room` bytes."""
    return -(-len(encoded) // (room - _PORTION.size))


def encode_portion_part(
    fingerprint: int, digest: int, part: int, encoded: bytes, room: int
) -> bytes:
    """The body of a packet with one part of an encoded portion."""
    size = room - _PORTION.size
    head = _PORTION.pack(fingerprint, digest, part, split_portion(encoded, room))
    return head + encoded[part * size : (part + 1) * size]


def decode_portion_part(body: bytes | memoryview) -> PortionPart:
    """Read the body of a packet with a part of a portion."""
    if len(body) <= _PORTION.size:
        raise WireError(f"a portion of {len(body)} bytes")
    fingerprint, digest, part, parts = _PORTION.unpack_from(body)
    if not part < parts <= _MOST_PARTS:
        raise WireError("a part of a portion that cannot be")
    return PortionPart(fingerprint, digest, part, parts, bytes(body[_PORTION.size :]))


def _text(encoded: bytes) -> str:
    try:
        return encoded.decode()
    except UnicodeDecodeError as error:
        raise WireError("text that is not UTF-8") from error
