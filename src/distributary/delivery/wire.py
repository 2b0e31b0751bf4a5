"""Encoding and decoding of packets; `docs/wire.md` has their layout.

A packet is a header of 32 bytes, a body that depends on its kind, and with a key a tag of 16
bytes. All numbers are little-endian. The header has the packet's length and the number of items in
its body. A packet that does not match them exactly is malformed, and `WireError` says why.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

__all__ = [
    "CONTROL_SESSION",
    "HEADER_SIZE",
    "KIND_AT",
    "LARGEST_PACKET",
    "MESSAGE_HEADER",
    "MESSAGE_HEADER_SIZE",
    "MOST_RANGES",
    "Announcement",
    "Header",
    "Heartbeat",
    "PacketKind",
    "WireError",
    "decode_announcement",
    "decode_header",
    "decode_heartbeat",
    "decode_ranges",
    "decode_request",
    "encode_announcement",
    "encode_header",
    "encode_heartbeat",
    "encode_ranges",
    "encode_request",
]

MAGIC = 0xD157
WIRE_VERSION = 1
# magic, wire version, kind, length, count, plan version, session, incarnation, sequence
HEADER = struct.Struct("<HBBHHIIQQ")
HEADER_SIZE = HEADER.size
KIND_AT = 3  # offset of the kind, the only byte in which a repair differs from its data packet
MESSAGE_HEADER = struct.Struct("<IIQ")  # flow, length, sequence
MESSAGE_HEADER_SIZE = MESSAGE_HEADER.size
_HEARTBEAT = struct.Struct("<QQ")
_RANGE = struct.Struct("<QQ")
_ANNOUNCEMENT = struct.Struct("<IIIIIQQ")

LARGEST_PACKET = 65_507  # the longest payload of a UDP datagram
CONTROL_SESSION = 0xFFFF_FFFF  # of announcements and requests: no plan has that many sessions
MOST_RANGES = 64  # in one packet
_SEQUENCES = 1 << 63  # sequence numbers are below this, so that signed arithmetic holds them
_SESSION_ENDED = 1


class PacketKind(IntEnum):
    """The kinds of packets."""

    DATA = 1
    REPAIR = 2  # a retransmission of data
    HEARTBEAT = 3
    NAK = 4  # from a receiver: these packets of a session are missing
    CONFIRM = 5  # these repairs are queued: receivers need not ask
    PLAN = 6  # announces the plan
    REQUEST = 7  # from a receiver: asks for the plan or, with a nonce, for a reply
    REPLY = 8  # returns the nonce: the sender is alive


class WireError(ValueError):
    """The bytes are not a packet of this protocol."""


class Header(NamedTuple):
    """The header of every packet, without magic and wire version."""

    kind: int
    length: int = 0  # of the whole packet
    items: int = 0  # messages or ranges in the body
    version: int = 0  # of the plan
    session: int = CONTROL_SESSION
    incarnation: int = 0
    sequence: int = 0


class Heartbeat(NamedTuple):
    """The oldest packet that can still be repaired, and whether the session has ended."""

    first: int
    ended: bool


class Announcement(NamedTuple):
    """The current plan, the next one (version 0: none), and where plans can be read.

    Sessions of versions below `floor` can no longer be repaired. Versions between `previous`, which
    was in effect before the current one, and `current` were cancelled.
    """

    previous: int
    current: int
    upcoming: int
    floor: int
    current_fingerprint: int
    upcoming_fingerprint: int
    where: str


def encode_header(header: Header) -> bytes:
    """The 32 bytes of a header; its `length` is that of the whole packet, tag included."""
    return HEADER.pack(MAGIC, WIRE_VERSION, *header)


def decode_header(packet: bytes | memoryview, tag: int = 0) -> Header:
    """Read the header of a packet that ends in a tag of `tag` bytes, and check its length."""
    if len(packet) < HEADER_SIZE + tag:
        raise WireError(f"a packet of {len(packet)} bytes is shorter than its header")
    magic, wire, kind, *rest = HEADER.unpack_from(packet)
    header = Header(kind, *rest)
    if magic != MAGIC or wire != WIRE_VERSION or not PacketKind.DATA <= kind <= PacketKind.REPLY:
        raise WireError("the magic number, wire version or kind is unknown")
    if header.length != len(packet):
        raise WireError(f"a packet of {len(packet)} bytes whose header says {header.length}")
    if header.sequence >= _SEQUENCES or header.incarnation >= _SEQUENCES:
        raise WireError("an incarnation or sequence number is out of range")
    return header


def encode_heartbeat(first: int, ended: bool) -> bytes:
    """The body of a heartbeat; its header has the last sequence number sent."""
    return _HEARTBEAT.pack(first, _SESSION_ENDED if ended else 0)


def decode_heartbeat(body: bytes | memoryview) -> Heartbeat:
    """Read the body of a heartbeat."""
    if len(body) != _HEARTBEAT.size:
        raise WireError(f"a heartbeat of {len(body)} bytes")
    first, flags = _HEARTBEAT.unpack(body)
    if not 0 < first < _SEQUENCES or flags > _SESSION_ENDED:
        raise WireError("a heartbeat with a window or flags out of range")
    return Heartbeat(first, flags == _SESSION_ENDED)


def encode_ranges(ranges: Iterable[tuple[int, int]]) -> bytes:
    """The body of a NAK or a confirmation: first and last sequence number of each range."""
    return b"".join(_RANGE.pack(first, last) for first, last in ranges)


def decode_ranges(body: bytes | memoryview, count: int) -> list[tuple[int, int]]:
    """Read the body of a NAK or a confirmation."""
    if count > MOST_RANGES or len(body) != count * _RANGE.size:
        raise WireError(f"{count} ranges in {len(body)} bytes")
    ranges: list[tuple[int, int]] = [
        (first, last) for first, last in _RANGE.iter_unpack(body) if 0 < first <= last < _SEQUENCES
    ]
    if len(ranges) != count:
        raise WireError("a range that ends before it begins, or is out of range")
    return ranges


def encode_announcement(announced: Announcement) -> bytes:
    """The body of a plan packet."""
    where = announced.where.encode()
    fixed = _ANNOUNCEMENT.pack(
        announced.previous,
        announced.current,
        announced.upcoming,
        announced.floor,
        len(where),
        announced.current_fingerprint,
        announced.upcoming_fingerprint,
    )
    return fixed + where


def decode_announcement(body: bytes | memoryview) -> Announcement:
    """Read the body of a plan packet."""
    if len(body) < _ANNOUNCEMENT.size:
        raise WireError(f"an announcement of {len(body)} bytes")
    previous, current, following, floor, length, now, then = _ANNOUNCEMENT.unpack_from(body)
    if len(body) != _ANNOUNCEMENT.size + length:
        raise WireError("an announcement whose length does not add up")
    if (following and following <= current) or (current and current <= previous):
        raise WireError("plan versions that do not ascend")
    where = _text(body, _ANNOUNCEMENT.size)
    return Announcement(previous, current, following, floor, now, then, where)


def encode_request(name: str) -> bytes:
    """The body of a request: the receiver's name."""
    return name.encode()


def decode_request(body: bytes | memoryview) -> str:
    """Read the body of a request."""
    return _text(body, 0)


def _text(body: bytes | memoryview, at: int) -> str:
    try:
        return bytes(body[at:]).decode()
    except UnicodeDecodeError as error:
        raise WireError("text that is not UTF-8") from error
