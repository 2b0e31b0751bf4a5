"""The receiver's filters in plain Python: the same functions, slow and obvious."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from distributary.delivery import _wire_kernels as kernels
from distributary.delivery._latency_reference import record_latency
from distributary.delivery._wire_kernels import (
    Arrivals,
    Expected,
    StreamState,
    SubscriptionTables,
)
from distributary.delivery.wire import (
    CONTROL_STREAM,
    HEADER_SIZE,
    JOURNAL_STREAM,
    MESSAGE_HEADER,
    Header,
    PacketKind,
    WireError,
    decode_header,
)
from distributary.model import IntArray

__all__ = ["find_messages", "keep_streams", "take_packets"]

_LARGEST = 1 << 63

Entry = tuple[
    int, int, int, int
]  # flow, sequence, and where the payload begins and ends in the packet


def keep_streams(
    packets: Sequence[bytes], tables: SubscriptionTables, counts: IntArray
) -> list[tuple[int, int, int]]:
    """(packet, row of the tables or -1, stream or CONTROL) of what passes the first filter."""
    kept = []
    for at, packet in enumerate(packets):
        if len(packet) < HEADER_SIZE:
            counts[kernels.MALFORMED] += 1
            continue
        publisher = int.from_bytes(packet[8:12], "little")
        number = int.from_bytes(packet[12:16], "little")
        known = [row for row, found in enumerate(tables.publishers.tolist()) if found == publisher]
        row = known[-1] if known else -1
        stream = -1
        if number == CONTROL_STREAM or (known and number == JOURNAL_STREAM):
            stream = kernels.CONTROL
        elif known and number < tables.stream_of.shape[1]:
            stream = int(tables.stream_of[row, number])
        if stream == -1:
            counts[kernels.UNWANTED_PACKETS] += 1
        else:
            kept.append((at, row, stream))
    return kept


def find_messages(
    packet: bytes,
    header: Header,
    tag: int,
    tables: SubscriptionTables,
    guarded: NDArray[np.bool_],
    row: int,
    stream: int,
) -> list[Entry]:
    """The wanted messages of a packet; `WireError` if they do not fill it exactly."""
    at, end = HEADER_SIZE, len(packet) - tag
    flow_of, flow_stream = tables.flow_of[row], tables.flow_stream[row]
    found: list[Entry] = []
    for _ in range(header.items):
        if end - at < MESSAGE_HEADER.size:
            raise WireError("a message header beyond the packet's end")
        number, size, sequence = MESSAGE_HEADER.unpack_from(packet, at)
        start, at = at + MESSAGE_HEADER.size, at + MESSAGE_HEADER.size + size
        if at > end:
            raise WireError("a message beyond the packet's end")
        wanted = number < len(flow_of) and flow_of[number] >= 0
        if wanted and (flow_stream[number] == stream or guarded[flow_of[number]]):
            if not 0 < sequence < _LARGEST - 1:
                raise WireError("a sequence number is out of range")
            found.append((int(flow_of[number]), sequence, start, at))
    if at != end or header.sequence == 0 or header.items == 0:
        raise WireError("messages do not fill the packet")
    return found


def take_packets(
    packets: Sequence[bytes],
    kept: Sequence[tuple[int, int, int]],
    expected: Expected,
    tables: SubscriptionTables,
    state: StreamState,
    counts: IntArray,
    arrivals: Arrivals,
) -> tuple[int, list[tuple[int, Entry]], list[Entry], list[tuple[int, int, int]]]:
    """Accept packets that arrive in order, up to the first one that it cannot decide on.

    Returns the index of that packet in `kept`, the messages delivered, each with its packet, the
    wanted messages of that packet, and the ranges of missing messages as (flow, first, last).
    """
    delivered: list[tuple[int, Entry]] = []
    missed: list[tuple[int, int, int]] = []
    for i, (at, row, stream) in enumerate(kept):
        packet = packets[at]
        try:
            header = decode_header(packet, expected.tag)
            if stream == kernels.CONTROL:
                return i, delivered, [], missed
            if header.incarnation != tables.incarnations[row]:
                counts[kernels.STALE] += 1
                continue
            if header.kind > PacketKind.REPAIR:
                return i, delivered, [], missed
            found = find_messages(packet, header, expected.tag, tables, state.guarded, row, stream)
        except WireError:
            counts[kernels.MALFORMED] += 1
            continue
        last = int(state.last[stream])
        if not state.in_order[stream] or header.sequence > last + 1:
            return i, delivered, found, missed
        if header.sequence <= last:
            counts[expected.again] += 1
            continue
        if not _may_accept(found, state):
            return i, delivered, found, missed
        state.last[stream] = header.sequence
        counts[expected.first] += 1
        if len(arrivals.stamps):
            received = int(arrivals.stamps[at] + arrivals.clock_offsets[row])
            histogram = arrivals.latencies[row, header.kind - PacketKind.DATA]
            record_latency(histogram, received, header.sent)
        counts[kernels.UNWANTED_MESSAGES] += header.items - len(found)
        for flow, sequence, start, end in found:
            awaited = int(state.next_of[flow])
            if sequence < abs(awaited):
                counts[kernels.DUPLICATE] += 1
                continue
            if sequence > awaited > 0:
                missed.append((flow, awaited, sequence - 1))
                room = kernels.MOST_COUNTED - int(counts[kernels.MISSED])
                counts[kernels.MISSED] += min(sequence - awaited, room)
            state.next_of[flow] = sequence + 1
            counts[kernels.DELIVERED] += 1
            delivered.append((at, (flow, sequence, start, end)))
    return len(kept), delivered, [], missed


def _may_accept(found: Sequence[Entry], state: StreamState) -> bool:
    """Whether all messages of guarded flows in a packet are the next ones of their flows."""
    following: dict[int, int] = {}
    for flow, sequence, _, _ in found:
        if state.guarded[flow]:
            expected = following.get(flow, int(state.next_of[flow]))
            if sequence != expected:
                return False
            following[flow] = expected + 1
    return True
