"""Encoding and decoding of the directory: entries, blocks of entries, and the journal's records.

Flows and receivers are named by a hash, so that entries are short and names may be of any length:
whoever wants a flow knows its name. `docs/wire.md` has the layout.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from enum import IntEnum
from hashlib import blake2b
from typing import NamedTuple

from distributary.delivery.wire import WireError

__all__ = [
    "MOST_FLOWS",
    "MOST_STREAMS",
    "SMALLEST_ROOM",
    "Block",
    "CancelRecord",
    "FlowClaim",
    "FlowEntry",
    "LeaveRecord",
    "MarkRecord",
    "Place",
    "ReadyRecord",
    "Record",
    "RecordKind",
    "ReleaseRecord",
    "RouteRecord",
    "SwitchRecord",
    "block_number",
    "block_of",
    "decode_block",
    "decode_record",
    "encode_block",
    "encode_record",
    "flow_key",
    "pack_blocks",
    "receiver_key",
    "split_entry",
]

_ENTRY = struct.Struct("<16sIHHH")  # key, number, flags, places, places by the upcoming version
_CLAIM = struct.Struct("<QIQQ")  # since when, with whom the numbers began, the next number
_PLACE = struct.Struct("<II")  # stream, group
_ALONE = struct.Struct("<Q")  # who gets it, instead of a group
_BLOCK = struct.Struct("<QIHH")  # as of which record, block, part, parts
_ROUTE = struct.Struct("<I")
_READY = struct.Struct("<IIQ")  # version, flows, fingerprint
_MARK = struct.Struct("<IIQ")  # version, stream, its last packet
_VERSION = struct.Struct("<I")
_UNICAST = 0xFFFF_FFFF  # in the place of a group
_CONTINUED, _CHANGING, _CLAIMED, _RELEASED = 1, 2, 4, 8
_SEQUENCES = 1 << 63
MOST_FLOWS, MOST_STREAMS = 1 << 22, 1 << 20  # of a directory; receivers have tables by number
BLOCK_SIZE = _BLOCK.size
# One entry of one place:
SMALLEST_ROOM = _ROUTE.size + _ENTRY.size + _CLAIM.size + _PLACE.size + _ALONE.size


def flow_key(name: str) -> bytes:
    """The hash that stands for a flow's name."""
    return blake2b(name.encode(), digest_size=16, person=b"flow").digest()


def receiver_key(name: str) -> int:
    """The hash that stands for a receiver's name."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8, person=b"receiver").digest())


def block_of(key: bytes, blocks: int) -> int:
    """The block that has the entry of a flow; `blocks` is a power of two."""
    return int.from_bytes(key[:4]) & (blocks - 1)


class Place(NamedTuple):
    """A stream that carries a flow: to a group, or to the one receiver of that key."""

    stream: int
    group: int | None
    receiver: int = 0


class FlowClaim(NamedTuple):
    """Since when a publisher has a flow, and how the flow's numbers go on.

    They began with 1 in an incarnation of some publisher. `next` is the first number that this
    publisher gives or, once it has released the flow, the one behind its last.
    """

    since: int
    publisher: int
    incarnation: int
    next: int

    @property
    def numbering(self) -> tuple[int, int]:
        """With whom the flow's numbers began."""
        return self.publisher, self.incarnation


class FlowEntry(NamedTuple):
    """Where a flow travels, and where it will by the upcoming version; None: the same.

    An entry that does not fit into a packet is `continued` by further ones of the same flow. One
    without a claim is of a flow that the publisher has had since its start, with numbers from 1.
    """

    key: bytes
    number: int
    places: tuple[Place, ...]
    upcoming: tuple[Place, ...] | None = None
    continued: bool = False
    claim: FlowClaim | None = None
    released: bool = False  # the publisher had the flow, and has let it go


class Block(NamedTuple):
    """A part of a block of the directory, as it was after the journal's record `as_of`."""

    as_of: int
    block: int
    part: int
    parts: int
    entries: tuple[FlowEntry, ...]


class RecordKind(IntEnum):
    """The kinds of records in the journal."""

    ROUTE = 1
    READY = 2
    MARK = 3
    SWITCH = 4
    CANCEL = 5
    RELEASE = 6
    LEAVE = 7


class RouteRecord(NamedTuple):
    """Where a flow will travel by a version that is prepared (`entry.upcoming`)."""

    version: int
    entry: FlowEntry


class ReadyRecord(NamedTuple):
    """All routes of a version are told, so many; it takes effect after the grace time."""

    version: int
    flows: int
    fingerprint: int


class MarkRecord(NamedTuple):
    """The last packet of a stream before the switch to a version."""

    version: int
    stream: int
    last: int


class SwitchRecord(NamedTuple):
    """A version takes effect; the marks of all streams that it touches precede this record."""

    version: int


class CancelRecord(NamedTuple):
    """A version that was prepared will not take effect."""

    version: int


class ReleaseRecord(NamedTuple):
    """With the next switch the publisher lets a flow go; `entry.claim` has the number behind it."""

    version: int
    entry: FlowEntry


class LeaveRecord(NamedTuple):
    """The publisher leaves: it sends nothing more by this version, as all marks before say."""

    version: int


Record = (
    RouteRecord
    | ReadyRecord
    | MarkRecord
    | SwitchRecord
    | CancelRecord
    | ReleaseRecord
    | LeaveRecord
)


# --- entries and blocks --------------------------------------------------------------------------


def split_entry(entry: FlowEntry, room: int) -> Iterator[FlowEntry]:
    """The entry itself, or several with a part of its places each, none longer than `room`."""
    most = (room - _ENTRY.size - _CLAIM.size) // (_PLACE.size + _ALONE.size)
    if most < 1:
        raise ValueError(f"{room} bytes are too few for an entry")
    places, upcoming = list(entry.places), entry.upcoming
    later = list(upcoming or ())
    continued = entry.continued
    while True:
        now, places = places[:most], places[most:]
        then, later = later[: most - len(now)], later[most - len(now) :]
        yield FlowEntry(
            entry.key,
            entry.number,
            tuple(now),
            None if upcoming is None else tuple(then),
            continued,
            entry.claim,
            entry.released,
        )
        continued = True
        if not places and not later:
            return


def _encode_entry(entry: FlowEntry) -> bytes:
    flags = _CONTINUED * entry.continued | _CHANGING * (entry.upcoming is not None)
    flags |= _CLAIMED * (entry.claim is not None) | _RELEASED * entry.released
    upcoming = entry.upcoming or ()
    head = _ENTRY.pack(entry.key, entry.number, flags, len(entry.places), len(upcoming))
    if entry.claim is not None:
        head += _CLAIM.pack(*entry.claim)
    return head + b"".join(map(_encode_place, (*entry.places, *upcoming)))


def _encode_place(place: Place) -> bytes:
    if place.group is None:
        return _PLACE.pack(place.stream, _UNICAST) + _ALONE.pack(place.receiver)
    return _PLACE.pack(place.stream, place.group)


def _decode_entry(body: bytes | memoryview, at: int) -> tuple[FlowEntry, int]:
    """The entry at a place, and where it ends."""
    try:
        key, number, flags, n_places, n_upcoming = _ENTRY.unpack_from(body, at)
        at += _ENTRY.size
        claim = None
        if flags & _CLAIMED:
            claim = FlowClaim(*_CLAIM.unpack_from(body, at))
            at += _CLAIM.size
        places: list[Place] = []
        for _ in range(n_places + n_upcoming):
            stream, group = _PLACE.unpack_from(body, at)
            at += _PLACE.size
            if group != _UNICAST:
                places.append(Place(stream, group))
                continue
            (receiver,) = _ALONE.unpack_from(body, at)
            at += _ALONE.size
            places.append(Place(stream, None, receiver))
    except struct.error as error:
        raise WireError("an entry beyond the packet's end") from error
    if number >= MOST_FLOWS or any(not 0 < place.stream < MOST_STREAMS for place in places):
        raise WireError("an entry with a number out of range")
    if claim is not None and not (
        claim.since < _SEQUENCES and claim.incarnation < _SEQUENCES and 0 < claim.next < _SEQUENCES
    ):
        raise WireError("a claim with a number out of range")
    released = bool(flags & _RELEASED)
    if released and (claim is None or places):
        raise WireError("a released flow that travels, or of which no number is told")
    if flags >= 2 * _RELEASED or (n_upcoming and not flags & _CHANGING):
        raise WireError("an entry with unknown flags")
    upcoming = tuple(places[n_places:]) if flags & _CHANGING else None
    continued = bool(flags & _CONTINUED)
    return (
        FlowEntry(key, number, tuple(places[:n_places]), upcoming, continued, claim, released),
        at,
    )


def encode_block(block: Block) -> bytes:
    """The body of a directory packet."""
    head = _BLOCK.pack(block.as_of, block.block, block.part, block.parts)
    return head + b"".join(map(_encode_entry, block.entries))


def block_number(body: bytes | memoryview) -> int:
    """The number of the block in a directory packet, read before the rest."""
    if len(body) < _BLOCK.size:
        raise WireError(f"a block of {len(body)} bytes")
    number: int = _BLOCK.unpack_from(body)[1]
    return number


def decode_block(body: bytes | memoryview, count: int) -> Block:
    """Read the body of a directory packet with that many entries."""
    if len(body) < _BLOCK.size:
        raise WireError(f"a block of {len(body)} bytes")
    as_of, block, part, parts = _BLOCK.unpack_from(body)
    if as_of >= _SEQUENCES or part >= parts:
        raise WireError("a part of a block that cannot be")
    at, entries = _BLOCK.size, []
    for _ in range(count):
        entry, at = _decode_entry(body, at)
        entries.append(entry)
    if at != len(body):
        raise WireError("entries do not fill the block")
    return Block(as_of, block, part, parts, tuple(entries))


def pack_blocks(
    as_of: int, block: int, entries: Iterable[FlowEntry], room: int
) -> list[tuple[int, bytes]]:
    """A block as bodies of `room` bytes at most, each with the number of its entries."""
    chunks: list[list[FlowEntry]] = [[]]
    size = 0
    for whole in entries:
        for entry in split_entry(whole, room - _BLOCK.size):
            length = len(_encode_entry(entry))
            if size + length > room - _BLOCK.size:
                chunks.append([])
                size = 0
            chunks[-1].append(entry)
            size += length
    return [
        (len(chunk), encode_block(Block(as_of, block, part, len(chunks), tuple(chunk))))
        for part, chunk in enumerate(chunks)
    ]


# --- records -------------------------------------------------------------------------------------


def encode_record(record: Record) -> tuple[RecordKind, bytes]:
    """The kind of a record, and its bytes."""
    match record:
        case RouteRecord(version, entry):
            return RecordKind.ROUTE, _ROUTE.pack(version) + _encode_entry(entry)
        case ReadyRecord():
            return RecordKind.READY, _READY.pack(*record)
        case MarkRecord():
            return RecordKind.MARK, _MARK.pack(*record)
        case SwitchRecord(version):
            return RecordKind.SWITCH, _VERSION.pack(version)
        case CancelRecord(version):
            return RecordKind.CANCEL, _VERSION.pack(version)
        case ReleaseRecord(version, entry):
            return RecordKind.RELEASE, _ROUTE.pack(version) + _encode_entry(entry)
        case LeaveRecord(version):
            return RecordKind.LEAVE, _VERSION.pack(version)


def decode_record(kind: int, body: bytes | memoryview) -> Record:
    """Read a record of the journal."""
    try:
        match kind:
            case RecordKind.ROUTE:
                entry, end = _decode_entry(body, _ROUTE.size)
                if end == len(body):
                    return RouteRecord(_ROUTE.unpack_from(body)[0], entry)
            case RecordKind.READY:
                return ReadyRecord(*_READY.unpack(body))
            case RecordKind.MARK:
                mark = MarkRecord(*_MARK.unpack(body))
                if mark.last < _SEQUENCES:
                    return mark
            case RecordKind.SWITCH:
                return SwitchRecord(*_VERSION.unpack(body))
            case RecordKind.CANCEL:
                return CancelRecord(*_VERSION.unpack(body))
            case RecordKind.RELEASE:
                entry, end = _decode_entry(body, _ROUTE.size)
                if end == len(body) and entry.released:
                    return ReleaseRecord(_ROUTE.unpack_from(body)[0], entry)
            case RecordKind.LEAVE:
                return LeaveRecord(*_VERSION.unpack(body))
    except struct.error as error:
        raise WireError("a record of the wrong length") from error
    raise WireError(f"not a record: kind {kind}, {len(body)} bytes")
