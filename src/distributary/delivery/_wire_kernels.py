"""The compiled filters of a receiver. Arrays in, arrays out; `_wire_reference.py` is plain.

The first filter, `keep_sessions`, reads plan version and session of each packet and drops packets
of sessions that the receiver does not follow. The second, `take_packets`, walks the message headers
of the packets that are left and accepts those that come in order. It stops at the first packet that
it cannot decide on (after a gap, or a heartbeat); the caller handles that packet and continues
behind it.

No length in a packet is trusted: each is checked against the packet's bounds before it is used.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from distributary.compiled import kernel
from distributary.model import IndexArray, IntArray

__all__ = [
    "CONTROL",
    "COUNTS",
    "DELIVERED",
    "DUPLICATE",
    "MALFORMED",
    "MISSED",
    "STALE",
    "UNWANTED_MESSAGES",
    "UNWANTED_PACKETS",
    "ByteArray",
    "FoundMessages",
    "StreamState",
    "SubscriptionTables",
    "keep_sessions",
    "take_packets",
]

ByteArray = NDArray[np.uint8]

# What is counted, as places in `counts`.
UNWANTED_PACKETS, UNWANTED_MESSAGES, MALFORMED, STALE, DUPLICATE, DELIVERED, MISSED = range(7)
COUNTS = 7

CONTROL = -2  # in the place of a stream: a packet of the control session
_CONTROL_SESSION = np.uint64(0xFFFF_FFFF)
_MAGIC = 0xD157 | 1 << 16  # with the version of the wire
_HEADER, _MESSAGE = 32, 16
_DATA, _REPAIR, _ANSWER = 1, 2, 8  # the first kind of packet, repairs, and the last kind
_LARGEST = np.uint64(1 << 63)


class SubscriptionTables(NamedTuple):
    """Which sessions and flows are wanted, for each plan version in use.

    The receiver numbers streams and flows itself.
    """

    versions: IntArray  # plan versions; -1 where a row is not in use
    stream_of: IndexArray  # versions x sessions: its stream, or -1
    flow_of: IndexArray  # versions x flow numbers: the flow, or -1
    flow_stream: IndexArray  # versions x flow numbers: the stream that the flow is taken from


class StreamState(NamedTuple):
    """The last packet of each stream and the next message of each flow; the kernels update them."""

    last: IntArray  # by stream: the highest sequence number known
    in_order: NDArray[np.bool_]  # by stream: nothing is missing, and messages may be delivered
    next_of: IntArray  # by flow: the next message's sequence number; 0 where any will do


class FoundMessages(NamedTuple):
    """The places of wanted messages, and the ranges of messages missing before some of them."""

    packet: IntArray
    flow: IndexArray
    sequence: IntArray
    start: IntArray
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
def keep_sessions(
    buffer: ByteArray,  # IN   packets, anywhere in it
    offsets: IntArray,  # IN   where each begins
    lengths: IntArray,  # IN   how long each is
    begin: int,  # IN   the first packet to look at
    versions: IntArray,  # IN   as in `SubscriptionTables`
    stream_of: IndexArray,  # IN
    kept: IntArray,  # OUT  packets of wanted sessions
    rows: IntArray,  # OUT  their row of `SubscriptionTables`, or -1 of the control session
    streams: IntArray,  # OUT  their stream, or CONTROL
    fate: ByteArray,  # OUT  by packet: 0, or 1 more than the place in `counts` of why it is dropped
    counts: IntArray,  # OUT  added to
) -> tuple[int, int]:
    """Run the first filter; returns how many packets pass, and their size in bytes."""
    n = size = 0
    width = np.uint64(stream_of.shape[1])
    for at in range(begin, len(offsets)):
        offset, length = offsets[at], lengths[at]
        if length < _HEADER or offset < 0 or length > len(buffer) - offset:
            counts[MALFORMED] += 1
            fate[at] = MALFORMED + 1
            continue
        session = _read_u32(buffer, offset + 12)
        if session == _CONTROL_SESSION:
            kept[n], rows[n], streams[n] = at, -1, CONTROL
            fate[at] = 0
            n += 1
            size += length
            continue
        stream = -1
        if session < width:
            version = np.int64(_read_u32(buffer, offset + 8))
            for row in range(len(versions)):
                if versions[row] == version:
                    stream = stream_of[row, session]
                    rows[n] = row
        if stream < 0:
            counts[UNWANTED_PACKETS] += 1
            fate[at] = UNWANTED_PACKETS + 1
            continue
        kept[n], streams[n] = at, stream
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
        _DATA <= kind <= _ANSWER
        and said == length + tag
        and _read_u64(buffer, offset + 16) < _LARGEST
        and _read_u64(buffer, offset + 24) < _LARGEST
    )


@kernel
def _find_messages(
    buffer: ByteArray,  # IN
    begin: int,  # IN   where the messages begin
    end: int,  # IN   where they must end
    count: int,  # IN   how many they must be
    flow_of: IndexArray,  # IN   one row of `SubscriptionTables`
    flow_stream: IndexArray,  # IN
    stream: int,  # IN   the packet's stream
    packet: int,  # IN
    found: FoundMessages,  # OUT  wanted messages, from `used` on
    used: int,  # IN
) -> int:
    """Find the wanted messages of a packet; returns the end of those found.

    Returns -1 if the messages do not fill the packet exactly.
    """
    at = begin
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
        if flow < width and flow_of[flow] >= 0 and flow_stream[flow] == stream:
            sequence = _read_u64(buffer, start - 8)
            if sequence == np.uint64(0) or sequence >= _LARGEST:
                return -1
            found.packet[used] = packet
            found.flow[used] = flow_of[flow]
            found.sequence[used] = np.int64(sequence)
            found.start[used], found.end[used] = start, at
            used += 1
    return used if at == end else -1


@kernel
def _accept_messages(
    found: FoundMessages,  # OUT
    begin: int,  # IN
    end: int,  # IN
    missed: int,  # IN   runs of missing messages so far
    next_of: IntArray,  # OUT
    counts: IntArray,  # OUT
) -> tuple[int, int]:
    """Deliver a packet's messages in order; returns the end of the new ones and of `missed`."""
    used = begin
    for at in range(begin, end):
        flow, sequence = found.flow[at], found.sequence[at]
        expected = next_of[flow]
        if sequence < expected:
            counts[DUPLICATE] += 1
            continue
        if sequence > expected and expected > 0:
            found.missed[missed, 0] = flow
            found.missed[missed, 1] = expected
            found.missed[missed, 2] = sequence - 1
            missed += 1
            counts[MISSED] += sequence - expected
        next_of[flow] = sequence + 1
        found.packet[used], found.flow[used] = found.packet[at], flow
        found.sequence[used] = sequence
        found.start[used], found.end[used] = found.start[at], found.end[at]
        used += 1
    counts[DELIVERED] += used - begin
    return used, missed


@kernel
def take_packets(
    buffer: ByteArray,  # IN
    offsets: IntArray,  # IN
    lengths: IntArray,  # IN
    kept: IntArray,  # IN   packets that passed the first filter
    rows: IntArray,  # IN   as `keep_sessions` has them
    streams: IntArray,  # IN
    span: tuple[int, int],  # IN   which of the kept ones to take
    tag: int,  # IN   bytes at the end of each packet that are its tag, checked already
    incarnation: int,  # IN   the sender's; of others nothing is taken
    flow_of: IndexArray,  # IN   as in `SubscriptionTables`
    flow_stream: IndexArray,  # IN
    state: StreamState,  # OUT
    found: FoundMessages,  # OUT  from `used` on
    used: int,  # IN
    counts: IntArray,  # OUT  added to
) -> tuple[int, int, int, int]:
    """Run the second filter up to the first packet that it cannot decide on.

    Returns that packet's place (or the end of the span), the end of the messages delivered, the end
    of that packet's own messages, which follow them, and the number of ranges in `found.missed`.
    """
    missed = 0
    for i in range(span[0], span[1]):
        at, stream = kept[i], streams[i]
        offset, length = offsets[at], lengths[at] - tag
        if not _has_header(buffer, offset, length, tag):
            counts[MALFORMED] += 1
            continue
        if stream == CONTROL:
            return i, used, used, missed
        if np.int64(_read_u64(buffer, offset + 16)) != incarnation:
            counts[STALE] += 1
            continue
        if buffer[offset + 3] > _REPAIR:
            return i, used, used, missed
        count = np.int64(_read_u32(buffer, offset + 4) >> np.uint64(16))
        sequence = np.int64(_read_u64(buffer, offset + 24))
        row = rows[i]
        end = _find_messages(
            buffer,
            offset + _HEADER,
            offset + length,
            count,
            flow_of[row],
            flow_stream[row],
            stream,
            at,
            found,
            used,
        )
        if end < 0 or sequence == 0 or count == 0:
            counts[MALFORMED] += 1
            continue
        if not state.in_order[stream] or sequence > state.last[stream] + 1:
            return i, used, end, missed
        if sequence <= state.last[stream]:
            counts[DUPLICATE] += 1
            continue
        state.last[stream] = sequence
        counts[UNWANTED_MESSAGES] += count - (end - used)
        used, missed = _accept_messages(found, used, end, missed, state.next_of, counts)
    return span[1], used, used, missed
