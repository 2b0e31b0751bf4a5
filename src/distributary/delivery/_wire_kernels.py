"""The compiled filters of a receiver; `_wire_reference.py` has the same functions in plain Python.

The first filter, `keep_streams`, reads publisher and stream of each packet and drops packets of
streams that the receiver does not follow. The second, `take_packets`, reads the message headers of
the remaining packets and accepts packets that arrive in order. It stops at the first packet that
needs more than that (a packet after a gap, a message of a flow that moves, a heartbeat); the caller
handles that packet and continues with the next one.

No length in a packet is trusted: each is checked against the packet's bounds before it is used.

Callers pass all NamedTuples but `FoundMessages` as plain tuples, because a NamedTuple argument
costs a microsecond at each call of a compiled function.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from distributary.compiled import kernel
from distributary.delivery._latency_kernels import record_latency
from distributary.model import IndexArray, IntArray

__all__ = [
    "CONTROL",
    "COPIES",
    "COUNTS",
    "DELIVERED",
    "DUPLICATE",
    "FIRST_COPIES",
    "FIRST_ELSEWHERE",
    "MALFORMED",
    "MISSED",
    "MOST_COUNTED",
    "OVER_LIMIT",
    "STALE",
    "UNWANTED_MESSAGES",
    "UNWANTED_PACKETS",
    "Arrivals",
    "ByteArray",
    "Expected",
    "FoundMessages",
    "KeptPackets",
    "PacketBatch",
    "StreamState",
    "SubscriptionTables",
    "keep_streams",
    "take_packets",
]

ByteArray = NDArray[np.uint8]

# What is counted, as indices of `counts`.
UNWANTED_PACKETS, UNWANTED_MESSAGES, MALFORMED, STALE, DUPLICATE, DELIVERED, MISSED = range(7)
FIRST_COPIES = 7  # and 8, of line B: packets that a line brought first
FIRST_ELSEWHERE = 9  # the same of packets by unicast, or where there is one line
COPIES = 10  # and 11, of line B: packets that had arrived before
OVER_LIMIT = 12  # streams, parts and the like that were refused or dropped: there are too many
COUNTS = 13
MOST_COUNTED = (1 << 63) - 1  # forged numbers can claim that more messages are missing

CONTROL = -2  # instead of a stream's slot: a packet of no stream, or of the journal
_CONTROL_STREAM = np.uint64(0xFFFF_FFFF)
_JOURNAL = np.uint64(0)
_MAGIC = 0xD157 | 2 << 16  # with the version of the wire
_HEADER, _MESSAGE = 40, 16
_DATA, _REPAIR, _LAST = 1, 2, 12  # the first kind of packet, repairs, and the last kind
_LARGEST = np.uint64(1 << 63)


class PacketBatch(NamedTuple):
    """Packets anywhere in a buffer."""

    buffer: ByteArray
    offsets: IntArray  # where each packet begins
    lengths: IntArray  # in bytes


class SubscriptionTables(NamedTuple):
    """The followed streams and wanted flows of each publisher, by the receiver's own slots."""

    publishers: IntArray  # number of each row's publisher; -1 where a row is not in use
    incarnations: IntArray  # of each row's publisher
    stream_of: IndexArray  # row x stream number: its slot, or -1
    flow_of: IndexArray  # row x flow number: the slot of the flow, or -1
    flow_stream: IndexArray  # row x flow number: the stream that the flow is taken from


class KeptPackets(NamedTuple):
    """The packets that passed the first filter, and the fate of every packet of the batch."""

    packets: IntArray  # indices into the batch
    rows: IntArray  # of `SubscriptionTables`; -1 where the publisher is not followed
    streams: IntArray  # slots, or CONTROL
    fate: ByteArray  # by packet of the batch: 0 if kept, else 1 + the index of its count


class Expected(NamedTuple):
    """What every accepted packet has to match."""

    tag: int  # bytes at the end of each packet that are its tag, checked before
    first: int = FIRST_ELSEWHERE  # which count has the packets that are new
    again: int = DUPLICATE  # which count has those that had arrived before


class StreamState(NamedTuple):
    """The last packet of each stream and the next message of each flow; the kernels update them."""

    last: IntArray  # by stream: the highest sequence number known
    in_order: NDArray[np.bool_]  # by stream: nothing is missing, and messages may be delivered
    next_of: IntArray  # by flow: the next message's sequence number; -n accepts any from n on
    guarded: NDArray[np.bool_]  # by flow: it moves, and only its next message may be delivered


class Arrivals(NamedTuple):
    """When packets arrived, and what is recorded of that."""

    stamps: IntArray  # by packet of the batch, in ns since 1970; empty where that is not known
    clock_offsets: IntArray  # by row of `SubscriptionTables`: ns that are added to stamps
    latencies: IntArray  # by row and kind, data and repair: a histogram


class FoundMessages(NamedTuple):
    """Wanted messages, and the ranges of messages missing before some of them."""

    flow: IndexArray  # slots
    sequence: IntArray
    start: IntArray  # where the payload begins in the buffer
    end: IntArray
    missed: IntArray  # rows of flow, first, last


@kernel
def _read_u32(buffer: ByteArray, at: int) -> np.uint64:
    """The four bytes from `at` on, the lowest first."""
    i = np.uint64(at)
    return (
        np.uint64(buffer[i])
        | np.uint64(buffer[i + np.uint64(1)]) << np.uint64(8)
        | np.uint64(buffer[i + np.uint64(2)]) << np.uint64(16)
        | np.uint64(buffer[i + np.uint64(3)]) << np.uint64(24)
    )


@kernel
def _read_u64(buffer: ByteArray, at: int) -> np.uint64:
    """The eight bytes from `at` on, the lowest first."""
    return _read_u32(buffer, at) | _read_u32(buffer, at + 4) << np.uint64(32)


@kernel
def keep_streams(
    batch: tuple[ByteArray, IntArray, IntArray],  # IN   `PacketBatch`
    begin: int,  # IN   the first packet to read
    tables: tuple[
        IntArray, IntArray, IndexArray, IndexArray, IndexArray
    ],  # IN   `SubscriptionTables`
    kept: tuple[IntArray, IntArray, IntArray, ByteArray],  # OUT  `KeptPackets`
    counts: IntArray,  # OUT  added to
) -> tuple[int, int]:
    """Run the first filter; returns how many packets pass, and their size in bytes."""
    buffer, offsets, lengths = batch
    publishers, _, stream_of, _, _ = tables
    packets, rows, streams, fate = kept
    n = size = 0
    width = np.uint64(stream_of.shape[1])
    for at in range(begin, len(offsets)):
        offset, length = offsets[at], lengths[at]
        if length < _HEADER or offset < 0 or length > len(buffer) - offset:
            counts[MALFORMED] += 1
            fate[at] = MALFORMED + 1
            continue
        row, stream = -1, -1
        publisher = np.int64(_read_u32(buffer, offset + 8))
        number = _read_u32(buffer, offset + 12)
        for each in range(len(publishers)):
            if publishers[each] == publisher:
                row = each
        if number == _CONTROL_STREAM or (number == _JOURNAL and row >= 0):
            stream = CONTROL
        elif number < width and row >= 0:
            stream = stream_of[row, number]
        if stream == -1:
            counts[UNWANTED_PACKETS] += 1
            fate[at] = UNWANTED_PACKETS + 1
            continue
        packets[n], rows[n], streams[n] = at, row, stream
        fate[at] = 0
        n += 1
        size += length
    return n, size


@kernel
def _has_header(buffer: ByteArray, offset: int, length: int, tag: int) -> bool:
    """Whether a packet has a valid header. `length` is without the tag, the header's is with it."""
    if length < _HEADER or (_read_u32(buffer, offset) & np.uint64(0xFFFFFF)) != np.uint64(_MAGIC):
        return False
    kind = buffer[offset + 3]
    said = np.int64(_read_u32(buffer, offset + 4) & np.uint64(0xFFFF))
    return (
        _DATA <= kind <= _LAST
        and said == length + tag
        and _read_u64(buffer, offset + 16) < _LARGEST
        and _read_u64(buffer, offset + 24) < _LARGEST
    )


@kernel
def _find_messages(
    buffer: ByteArray,  # IN
    body: tuple[int, int],  # IN   where the messages begin, and where they must end
    count: int,  # IN   how many they must be
    flow_of: IndexArray,  # IN   one row of `SubscriptionTables`
    flow_stream: IndexArray,  # IN
    guarded: NDArray[np.bool_],  # IN   of `StreamState`
    stream: int,  # IN   the packet's stream
    found: FoundMessages,  # OUT  wanted messages, from `used` on
    used: int,  # IN
) -> int:
    """Find the wanted messages of a packet; returns the end of those found.

    Returns -1 if the messages do not fill the packet exactly.
    """
    at, end = body
    width = np.uint64(len(flow_of))
    for _ in range(count):
        if end - at < _MESSAGE:
            return -1
        flow = _read_u32(buffer, at)
        size = np.int64(_read_u32(buffer, at + 4))
        start = at + _MESSAGE
        if size > end - start:
            return -1
        at = start + size
        if (
            flow < width
            and flow_of[flow] >= 0
            and (flow_stream[flow] == stream or guarded[flow_of[flow]])
        ):
            sequence = _read_u64(buffer, start - 8)
            if sequence == np.uint64(0) or sequence >= _LARGEST - np.uint64(1):
                return -1
            found.flow[used] = flow_of[flow]
            found.sequence[used] = np.int64(sequence)
            found.start[used], found.end[used] = start, at
            used += 1
    return used if at == end else -1


@kernel
def _may_accept(
    found: FoundMessages,  # IN
    begin: int,  # IN
    end: int,  # IN
    next_of: IntArray,  # IN
    guarded: NDArray[np.bool_],  # IN
) -> bool:
    """Whether all messages of guarded flows in a packet are the next ones of their flows."""
    for at in range(begin, end):
        flow = found.flow[at]
        if guarded[flow]:
            expected = next_of[flow]
            for before in range(begin, at):
                if found.flow[before] == flow:
                    expected += 1
            if found.sequence[at] != expected:
                return False
    return True


@kernel
def _accept_messages(
    found: FoundMessages,  # OUT  messages that are duplicates are removed
    begin: int,  # IN
    end: int,  # IN
    missed: int,  # IN   ranges of missing messages so far
    next_of: IntArray,  # OUT
    counts: IntArray,  # OUT
) -> tuple[int, int]:
    """Deliver a packet's messages in order; returns the end of the new ones and of `missed`."""
    used = begin
    for at in range(begin, end):
        flow, sequence = found.flow[at], found.sequence[at]
        expected = next_of[flow]
        if sequence < abs(expected):
            counts[DUPLICATE] += 1
            continue
        if sequence > expected and expected > 0:
            found.missed[missed, 0] = flow
            found.missed[missed, 1] = expected
            found.missed[missed, 2] = sequence - 1
            missed += 1
            counts[MISSED] += min(sequence - expected, MOST_COUNTED - counts[MISSED])
        next_of[flow] = sequence + 1
        found.flow[used], found.sequence[used] = flow, sequence
        found.start[used], found.end[used] = found.start[at], found.end[at]
        used += 1
    counts[DELIVERED] += used - begin
    return used, missed


@kernel
def take_packets(
    batch: tuple[ByteArray, IntArray, IntArray],  # IN   `PacketBatch`
    kept: tuple[IntArray, IntArray, IntArray, ByteArray],  # IN   `KeptPackets`
    cursor: tuple[int, int],  # IN   the first kept packet to take, and the messages found so far
    expected: tuple[int, int, int],  # IN   `Expected`
    tables: tuple[
        IntArray, IntArray, IndexArray, IndexArray, IndexArray
    ],  # IN   `SubscriptionTables`
    state: tuple[IntArray, NDArray[np.bool_], IntArray, NDArray[np.bool_]],  # OUT  `StreamState`
    found: FoundMessages,  # OUT  from the cursor on
    counts: IntArray,  # OUT  added to
    arrivals: tuple[IntArray, IntArray, IntArray],  # OUT  `Arrivals`
) -> tuple[int, int, int, int]:
    """Run the second filter up to the first packet that it cannot decide on.

    Returns the index of that packet (or the end of `kept`), the end of the messages delivered, the
    end of that packet's own messages, which follow them, and the number of rows in `found.missed`.
    """
    buffer, offsets, lengths = batch
    packets, rows, streams, _ = kept
    _, incarnations, _, flow_of, flow_stream = tables
    tag, first, again = expected
    last, in_order, next_of, guarded = state
    stamps, clock_offsets, latencies = arrivals
    begin, used = cursor
    missed = 0
    for i in range(begin, len(packets)):
        at, stream = packets[i], streams[i]
        offset, length = offsets[at], lengths[at] - tag
        if not _has_header(buffer, offset, length, tag):
            counts[MALFORMED] += 1
            continue
        if stream == CONTROL:
            return i, used, used, missed
        row = rows[i]
        if np.int64(_read_u64(buffer, offset + 16)) != incarnations[row]:
            counts[STALE] += 1
            continue
        if buffer[offset + 3] > _REPAIR:
            return i, used, used, missed
        count = np.int64(_read_u32(buffer, offset + 4) >> np.uint64(16))
        sequence = np.int64(_read_u64(buffer, offset + 24))
        body = (offset + _HEADER, offset + length)
        end = _find_messages(
            buffer, body, count, flow_of[row], flow_stream[row], guarded, stream, found, used
        )
        if end < 0 or sequence == 0 or count == 0:
            counts[MALFORMED] += 1
            continue
        if not in_order[stream] or sequence > last[stream] + 1:
            return i, used, end, missed
        if sequence <= last[stream]:
            counts[again] += 1
            continue
        if not _may_accept(found, used, end, next_of, guarded):
            return i, used, end, missed
        last[stream] = sequence
        counts[first] += 1
        if len(stamps):
            received = stamps[at] + clock_offsets[row]
            histogram = latencies[row, buffer[offset + 3] - _DATA]
            record_latency(histogram, received, _read_u64(buffer, offset + 32))
        counts[UNWANTED_MESSAGES] += count - (end - used)
        used, missed = _accept_messages(found, used, end, missed, next_of, counts)
    return len(packets), used, used, missed
