"""Encoding and decoding of packets; `docs/wire.md` has their layout.

A packet is a header of 40 bytes, a body that depends on its kind, and with a key a tag of 16
bytes. All numbers are little-endian. The header has the packet's length and the number of items in
its body. A packet that does not match them exactly is malformed, and `WireError` says why.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

__all__ = [
    "CONTROL_STREAM",
    "HEADER_SIZE",
    "JOURNAL_STREAM",
    "KIND_AT",
    "LARGEST_PACKET",
    "MESSAGE_HEADER",
    "MESSAGE_HEADER_SIZE",
    "MOST_BLOCKS",
    "MOST_LOOKUPS",
    "MOST_RANGES",
    "POSITION_SIZE",
    "Announcement",
    "Header",
    "PacketKind",
    "StreamPosition",
    "WireError",
    "decode_announcement",
    "decode_header",
    "decode_heartbeat",
    "decode_lookup",
    "decode_ranges",
    "decode_request",
    "encode_announcement",
    "encode_header",
    "encode_heartbeat",
    "encode_lookup",
    "encode_ranges",
    "encode_request",
]

MAGIC = 0xD157
WIRE_VERSION = 2
# magic, wire version, kind, length, items, publisher, stream, incarnation, sequence, sent
HEADER = struct.Struct("<HBBHHIIQQQ")
HEADER_SIZE = HEADER.size
KIND_AT = 3  # offset of the kind, the only byte in which a repair differs from its data packet
MESSAGE_HEADER = struct.Struct("<IIQ")  # flow, length, sequence
MESSAGE_HEADER_SIZE = MESSAGE_HEADER.size
_POSITION = struct.Struct("<IIQQ")  # stream, flags, first that can be repaired, last sent
POSITION_SIZE = _POSITION.size
_RANGE = struct.Struct("<QQ")
_BLOCK_NUMBER = struct.Struct("<I")
# current and upcoming version, blocks, lengths of the texts, fingerprints, record, first and last
_ANNOUNCEMENT = struct.Struct("<IIIHHQQQQQ")

LARGEST_PACKET = 65_507  # the longest payload of a UDP datagram
JOURNAL_STREAM = 0  # carries the directory's changes, on the control group
CONTROL_STREAM = 0xFFFF_FFFF  # in packets that belong to no stream, or to several
MOST_RANGES = 64  # in one packet
MOST_LOOKUPS = 256  # blocks in one packet
MOST_BLOCKS = 1 << 20  # of a directory
_SEQUENCES = 1 << 63  # sequence numbers are below this, so that signed arithmetic holds them
_STREAM_ENDED = 1


class PacketKind(IntEnum):
    """The kinds of packets."""

    DATA = 1
    REPAIR = 2  # a retransmission of data
    HEARTBEAT = 3  # how far idle streams of a group have come
    NAK = 4  # from a receiver: these packets of a stream are missing
    CONFIRM = 5  # these repairs are queued: receivers need not ask
    ANNOUNCEMENT = 6  # of the publisher and its plan
    REQUEST = 7  # from a receiver: asks for an announcement or, with a nonce, for a reply
    REPLY = 8  # returns the nonce: the publisher is alive
    BLOCK = 9  # a part of the directory
    LOOKUP = 10  # from a receiver: asks for blocks of the directory
    INQUIRY = 11  # from a receiver: asks what a plan means for it
    PORTION = 12  # a part of what a plan means for a receiver


class WireError(ValueError):
    """The bytes are not a packet of this protocol."""


class Header(NamedTuple):
    """The header of every packet, without magic and wire version."""

    kind: int
    length: int = 0  # of the whole packet
    items: int = 0  # in the body
    publisher: int = 0
    stream: int = CONTROL_STREAM
    incarnation: int = 0
    sequence: int = 0
    sent: int = 0  # ns since 1970 when it was first sent; 0 where that is not said


class StreamPosition(NamedTuple):
    """How far a stream has come; packets before `first` can no longer be repaired."""

    stream: int
    ended: bool  # no packet follows `last`
    first: int
    last: int


class Announcement(NamedTuple):
    """A publisher's plan versions (0: none), and the state of its directory and journal.

    Version 0 is current before the publisher sends its first message. `record` is the last one in
    the journal's packets up to `journal_last`; those before `journal_first` cannot be repaired.
    """

    current: int
    upcoming: int
    current_fingerprint: int
    upcoming_fingerprint: int
    blocks: int = 1  # of the directory, a power of two
    record: int = 0
    journal_first: int = 1
    journal_last: int = 0
    publisher: str = ""  # its name
    where: str = ""  # plans can be found, for people


def encode_header(header: Header) -> bytes:
    """The 40 bytes of a header; its `length` is that of the whole packet, tag included."""
    return HEADER.pack(MAGIC, WIRE_VERSION, *header)


def decode_header(packet: bytes | memoryview, tag: int = 0) -> Header:
    """Read the header of a packet that ends in a tag of `tag` bytes, and check its length."""
    if len(packet) < HEADER_SIZE + tag:
        raise WireError(f"a packet of {len(packet)} bytes is shorter than its header")
    magic, wire, kind, *rest = HEADER.unpack_from(packet)
    header = Header(kind, *rest)
    if magic != MAGIC or wire != WIRE_VERSION or not PacketKind.DATA <= kind <= PacketKind.PORTION:
        raise WireError("the magic number, wire version or kind is unknown")
    if header.length != len(packet):
        raise WireError(f"a packet of {len(packet)} bytes whose header says {header.length}")
    if header.sequence >= _SEQUENCES or header.incarnation >= _SEQUENCES:
        raise WireError("an incarnation or sequence number is out of range")
    return header


def encode_heartbeat(positions: Iterable[StreamPosition]) -> bytes:
    """The body of a heartbeat."""
    return b"".join(
        _POSITION.pack(found.stream, _STREAM_ENDED * found.ended, found.first, found.last)
        for found in positions
    )


def decode_heartbeat(body: bytes | memoryview, count: int) -> list[StreamPosition]:
    """Read the body of a heartbeat with the positions of that many streams."""
    if not count or len(body) != count * _POSITION.size:
        raise WireError(f"{count} positions in {len(body)} bytes")
    positions = []
    for stream, flags, first, last in _POSITION.iter_unpack(body):
        if not 0 < first <= last + 1 <= _SEQUENCES or flags > _STREAM_ENDED:
            raise WireError("a position with a window or flags out of range")
        positions.append(StreamPosition(stream, flags == _STREAM_ENDED, first, last))
    return positions


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
    """The body of an announcement."""
    name, where = announced.publisher.encode(), announced.where.encode()
    fixed = _ANNOUNCEMENT.pack(
        announced.current,
        announced.upcoming,
        announced.blocks,
        len(name),
        len(where),
        announced.current_fingerprint,
        announced.upcoming_fingerprint,
        announced.record,
        announced.journal_first,
        announced.journal_last,
    )
    return fixed + name + where


def decode_announcement(body: bytes | memoryview) -> Announcement:
    """Read the body of an announcement."""
    if len(body) < _ANNOUNCEMENT.size:
        raise WireError(f"an announcement of {len(body)} bytes")
    current, upcoming, blocks, name, where, now, then, record, first, last = (
        _ANNOUNCEMENT.unpack_from(body)
    )
    if len(body) != _ANNOUNCEMENT.size + name + where:
        raise WireError("an announcement whose length does not add up")
    if upcoming and upcoming <= current:
        raise WireError("plan versions that do not ascend")
    if not 0 < blocks <= MOST_BLOCKS or blocks & (blocks - 1) or record >= _SEQUENCES:
        raise WireError("a directory that cannot be")
    if not 0 < first <= last + 1 <= _SEQUENCES:
        raise WireError("a journal that cannot be")
    texts = bytes(body[_ANNOUNCEMENT.size :])
    return Announcement(
        current,
        upcoming,
        now,
        then,
        blocks,
        record,
        first,
        last,
        _text(texts[:name]),
        _text(texts[name:]),
    )


def encode_lookup(blocks: Iterable[int]) -> bytes:
    """The body of a lookup: numbers of blocks."""
    return b"".join(_BLOCK_NUMBER.pack(block) for block in blocks)


def decode_lookup(body: bytes | memoryview, count: int) -> list[int]:
    """Read the body of a lookup."""
    if not 0 < count <= MOST_LOOKUPS or len(body) != count * _BLOCK_NUMBER.size:
        raise WireError(f"{count} blocks in {len(body)} bytes")
    return [block for (block,) in _BLOCK_NUMBER.iter_unpack(body)]


def encode_request(name: str) -> bytes:
    """The body of a request: the receiver's name."""
    return name.encode()


def decode_request(body: bytes | memoryview) -> str:
    """Read the body of a request."""
    return _text(bytes(body))


def _text(encoded: bytes) -> str:
    try:
        return encoded.decode()
    except UnicodeDecodeError as error:
        raise WireError("text that is not UTF-8") from error
