"""Packets for tests of the parser: valid ones, broken ones by the million, and both filters."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import numpy as np

from distributary.delivery import _wire_kernels as kernels
from distributary.delivery import _wire_reference as reference
from distributary.delivery._latency_kernels import WIDTH as HISTOGRAM
from distributary.delivery._wire_kernels import (
    Arrivals,
    Expected,
    FoundMessages,
    KeptPackets,
    PacketBatch,
    StreamState,
    SubscriptionTables,
)

INCARNATION = 7
PUBLISHER = 0x8000_0003
STREAMS, FLOWS = 6, 12
WIDTH = 192  # bytes for each generated packet, and something between them
SENT = (0, 1, 2**59, 2**59, 2**59 + 2**42, 2**60, 2**63 - 1, 2**63, 2**64 - 1)  # times of sending

Entry = tuple[int, int, int, int, int]  # packet, flow, sequence, start and end in the packet


@dataclass
class Outcome:
    """What came of a batch; equal for the compiled filters and their plain twins."""

    delivered: list[Entry] = field(default_factory=list)
    thought: list[tuple[int, list[Entry]]] = field(default_factory=list)
    missed: list[tuple[int, int, int]] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    last: list[int] = field(default_factory=list)
    next_of: list[int] = field(default_factory=list)
    latencies: list[list[int]] = field(default_factory=list)  # what is not 0, with its place


def some_tables(rng: np.random.Generator) -> SubscriptionTables:
    """Two publishers are followed; about half of the streams and of the flows are wanted."""
    stream_of = np.full((4, STREAMS), -1, np.int32)
    flow_of = np.full((4, FLOWS), -1, np.int32)
    flow_stream = np.full((4, FLOWS), -1, np.int32)
    for row in (0, 2):
        streams = np.flatnonzero(rng.random(STREAMS) < 0.6)
        stream_of[row, streams] = row * STREAMS + streams
        flows = np.flatnonzero(rng.random(FLOWS) < 0.6)
        flow_of[row, flows] = flows
        flow_stream[row] = row * STREAMS + rng.integers(0, STREAMS, FLOWS)
    publishers = np.array([PUBLISHER, -1, PUBLISHER + 1, -1])
    incarnations = np.array([INCARNATION, 0, INCARNATION + 1, 0])
    return SubscriptionTables(publishers, incarnations, stream_of, flow_of, flow_stream)


def some_state(rng: np.random.Generator) -> StreamState:
    return StreamState(
        rng.integers(0, 4, 3 * STREAMS),
        rng.random(3 * STREAMS) < 0.8,
        rng.integers(-1, 4, FLOWS),
        rng.random(FLOWS) < 0.2,
    )


def valid_packet(rng: np.random.Generator, tables: SubscriptionTables, tag: int = 0) -> bytes:
    """A packet as a sender makes it, of a stream and of flows that are mostly wanted."""
    row = int(rng.choice([0, 2]))
    stream = int(rng.integers(0, STREAMS))
    kind = int(rng.choice([1, 1, 1, 1, 2, 3, 5]))
    body, count = b"", 0
    if kind <= 2:
        count = int(rng.integers(1, 5))
        for _ in range(count):
            size = int(rng.integers(0, 13))
            head = struct.pack("<IIQ", rng.integers(0, FLOWS + 1), size, rng.integers(1, 6))
            body += head + rng.bytes(size)
    elif kind == 3:
        stream, count = 0xFFFFFFFF, 1
        body = struct.pack("<IIQQ", rng.integers(0, STREAMS), rng.integers(0, 2), 1, 3)
    if rng.random() < 0.05:
        stream, kind = 0xFFFFFFFF, int(rng.choice([6, 8, 9]))
    length = 40 + len(body) + tag
    publisher, incarnation = int(tables.publishers[row]), int(tables.incarnations[row])
    head = struct.pack("<HBBHHII", 0xD157, 2, kind, length, count, publisher, stream)
    sent = SENT[rng.integers(len(SENT))]
    numbers = struct.pack("<QQQ", incarnation, rng.integers(1, 6), sent)
    return head + numbers + body + b"t" * tag


@dataclass
class Batch:
    """Packets in one buffer, apart from each other."""

    buffer: np.ndarray
    offsets: np.ndarray
    lengths: np.ndarray

    def packets(self) -> list[bytes]:
        places = zip(self.offsets.tolist(), self.lengths.tolist(), strict=True)
        return [self.buffer[at : at + length].tobytes() for at, length in places]


def templates(rng: np.random.Generator, tables: SubscriptionTables, n: int, tag: int = 0) -> Batch:
    """Valid packets, one to a row of WIDTH bytes; what is behind each is noise."""
    rows = rng.integers(0, 256, (n, WIDTH), dtype=np.uint8)
    lengths = np.empty(n, np.int64)
    for at in range(n):
        packet = valid_packet(rng, tables, tag)
        rows[at, : len(packet)] = np.frombuffer(packet, np.uint8)
        lengths[at] = len(packet)
    return Batch(rows.ravel(), np.arange(n) * WIDTH, lengths)


def broken(pattern: Batch, rng: np.random.Generator, n: int) -> Batch:
    """Packets drawn from a pattern, each damaged in some way or in none.

    Bytes flipped anywhere or in the fields that lengths are read from, extreme numbers in those
    fields, ends cut off or stretched (the header saying so or not), and plain noise.
    """
    chosen = rng.integers(0, len(pattern.offsets), n)
    rows = pattern.buffer.reshape(-1, WIDTH)[chosen].copy()
    lengths = pattern.lengths[chosen].copy()
    ways = rng.integers(0, 8, n)
    at = np.arange(n)
    for _ in range(3):
        hit = (ways == 1) & (rng.random(n) < 0.6)
        rows[at[hit], rng.integers(0, WIDTH, n)[hit]] ^= rng.integers(1, 256, n, np.uint8)[hit]
    fields = np.array([4, 5, 6, 7, 8, 12, 24, 32, 40, 44, 45, 46, 47, 48, 55])
    extremes = np.array([0, 1, 2, 127, 128, 254, 255], np.uint8)
    for _ in range(3):
        hit = ways == 2
        rows[at[hit], rng.choice(fields, n)[hit]] = rng.choice(extremes, n)[hit]
    cut = (ways == 3) | (ways == 4)
    lengths[cut] = rng.integers(0, WIDTH - 8, n)[cut]
    honest = ways == 4  # the header agrees with the new length
    rows[honest, 4] = lengths[honest]
    rows[honest, 5] = 0
    noise = ways == 5
    rows[noise] = rng.integers(0, 256, (int(noise.sum()), WIDTH), dtype=np.uint8)
    dressed = noise & (rng.random(n) < 0.8)  # noise under a good header
    rows[dressed, :4] = np.frombuffer(struct.pack("<HBB", 0xD157, 2, 1), np.uint8)
    rows[dressed, 4] = lengths[dressed]
    rows[dressed, 5] = 0
    rows[dressed, 7] = 0
    rows[dressed, 8:24] = pattern.buffer[8:24]
    return Batch(rows.ravel(), at * WIDTH, lengths)


def some_arrivals(packets: int) -> Arrivals:
    """Stamps about the time 2^59, and clock offsets; the same for as many packets."""
    rng = np.random.default_rng(packets)
    stamps = rng.integers(2**59, 2**59 + 2**43, packets)
    offsets = rng.integers(-(2**42), 2**42, 4)
    return Arrivals(stamps, offsets, np.zeros((4, 2, HISTOGRAM), np.int64))


def _list_latencies(arrivals: Arrivals) -> list[list[int]]:
    places = np.argwhere(arrivals.latencies)
    return [[*place, int(arrivals.latencies[tuple(place)])] for place in places.tolist()]


def _expect(tag: int, line: int | None) -> Expected:
    if line is None:
        return Expected(tag)
    return Expected(tag, kernels.FIRST_COPIES + line, kernels.COPIES + line)


def run_compiled(
    batch: Batch,
    tables: SubscriptionTables,
    state: StreamState,
    tag: int = 0,
    counts: np.ndarray | None = None,
    line: int | None = None,
) -> Outcome:
    n = len(batch.offsets)
    counts = np.zeros(kernels.COUNTS, np.int64) if counts is None else counts
    places = PacketBatch(batch.buffer, batch.offsets, batch.lengths)
    every = KeptPackets(*np.empty((3, n), np.int64), np.zeros(n, np.uint8))
    passed, _ = kernels.keep_streams((*places,), 0, (*tables,), (*every,), counts)
    kept = KeptPackets(*(column[:passed] for column in every[:3]), every.fate)
    most = int(np.maximum(batch.lengths, 0).sum()) // 16 + 1
    found = FoundMessages(
        np.empty(most, np.int32),
        *np.empty((3, most), np.int64),
        np.empty((most, 3), np.int64),
    )
    arrivals = some_arrivals(n)
    outcome, at, used = Outcome(), 0, 0
    while at < passed:
        begin = used
        expected = _expect(tag, line)
        at, used, end, missed = kernels.take_packets(
            (*places,),
            (*kept,),
            (at, used),
            (*expected,),
            (*tables,),
            (*state,),
            found,
            counts,
            (*arrivals,),
        )
        outcome.missed += [tuple(row) for row in found.missed[:missed].tolist()]
        outcome.delivered += _list_found(batch, found, begin, used)
        if at < passed:
            outcome.thought.append((int(kept.packets[at]), _list_found(batch, found, used, end)))
            at += 1
    outcome.counts = counts.tolist()
    outcome.last, outcome.next_of = state.last.tolist(), state.next_of.tolist()
    outcome.latencies = _list_latencies(arrivals)
    return outcome


def _list_found(batch: Batch, found: FoundMessages, begin: int, end: int) -> list[Entry]:
    packet = np.searchsorted(batch.offsets, found.start[begin:end], "right") - 1
    offset = batch.offsets[packet]
    columns = (packet, found.flow[begin:end], found.sequence[begin:end])
    starts, ends = found.start[begin:end] - offset, found.end[begin:end] - offset
    return list(zip(*(c.tolist() for c in (*columns, starts, ends)), strict=True))


def run_plain(
    packets: list[bytes],
    tables: SubscriptionTables,
    state: StreamState,
    tag: int = 0,
    line: int | None = None,
) -> Outcome:
    counts = np.zeros(kernels.COUNTS, np.int64)
    kept = reference.keep_streams(packets, tables, counts)
    arrivals = some_arrivals(len(packets))
    outcome = Outcome()
    while kept:
        at, delivered, waiting, missed = reference.take_packets(
            packets, kept, _expect(tag, line), tables, state, counts, arrivals
        )
        outcome.missed += missed
        outcome.delivered += [(packet, *entry) for packet, entry in delivered]
        if at == len(kept):
            break
        packet = kept[at][0]
        outcome.thought.append((packet, [(packet, *entry) for entry in waiting]))
        kept = kept[at + 1 :]
    outcome.counts = counts.tolist()
    outcome.last, outcome.next_of = state.last.tolist(), state.next_of.tolist()
    outcome.latencies = _list_latencies(arrivals)
    return outcome
