"""Packets that look valid by the thousand: machines stay as small as they are, and go on after."""

from __future__ import annotations

import gc
import os
import tracemalloc
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from distributary.delivery import ReceiverParams, Restarted
from tests.delivery.machines import KEY, delivered, simple_plan
from tests.delivery.storms import Exchange, ReceiverStorm, SenderStorm, find_sizes

PLAN = simple_plan([0, 0, 1, 1, 2, -1], [0, 1, 2], {"r": [5]})
WANTED = ["f0", "f2", "f4", "f5", "f9"]
PARAMS = ReceiverParams(
    streams=24, publishers=4, missing_ranges=50, held_packets=200, held_bytes=100_000
)
BATCH = 256
STEP = 0.002  # seconds that pass with each batch

# What a machine may have at most, by class and attribute; all else at most `SMALL`.
SMALL = 64
RECEIVER_LIMITS = {
    "Gaps.ranges": 51,
    "IncomingStream._held": 201,
    "IncomingStream._order": 201,
    "IncomingStream._held[][]": 1_400,  # bytes of a packet
    "IncomingFlow.held": 201,
    "IncomingFlow.held[].buffer": 1_400,
    "IncomingFlow.legs": 17,
    "Subscriptions._streams": 24,
    "Subscriptions.tables.stream_of": 4 << 20,
    "Subscriptions.tables.flow_of": 4 << 22,
    "Subscriptions.tables.flow_stream": 4 << 22,
    "IncomingJournal._held": 1_024,
    "_Parts.came": 65_536,
    "Senders._rivals": 16,
    "Latencies._histograms": 4 << 13,  # of each publisher
    "_Awaited.pieces": 1 << 16,
    "Filters._kept.packets": 1 << 12,
    "Filters._kept.rows": 1 << 12,
    "Filters._kept.streams": 1 << 12,
    "Filters._kept.fate": 1 << 12,
    "Filters.found.flow": 1 << 17,
    "Filters.found.sequence": 1 << 17,
    "Filters.found.start": 1 << 17,
    "Filters.found.end": 1 << 17,
    "Filters.found.missed": 1 << 19,
}
SENDER_LIMITS = {
    "RepairAllowances._allowances": 4_096,
    "Repairs._queue": 400,
    "RepairWindow._packets": 200,
    "RepairWindow._repaired": 200,
    "PortionAnswers._encoded": (16 << 20) // 512,
    "PortionAnswers._askers": 16_384,
}


def check_sizes(sizes: Counter[str], limits: dict[str, int]) -> None:
    above = {name: n for name, n in sizes.items() if n > limits.get(name, SMALL)}
    assert not above, above


def rage(exchange: Exchange, storm: ReceiverStorm, batches: int) -> None:
    """Let the storm pass over the receiver, while its publisher goes on."""
    for at in range(batches):
        batch = storm.draw(BATCH)
        control = bool(at % 4)
        actions = exchange.receiver.on_packets(
            batch, exchange.now, storm.sources(BATCH), control=control
        )
        exchange.perform(actions, keep=False)
        exchange.run(STEP)
        if at % 50 == 0:
            check_sizes(find_sizes(exchange.receiver), RECEIVER_LIMITS)
            exchange.publish("f1", b"of no interest")
            exchange.seen.clear()


def publish_some(exchange: Exchange) -> None:
    for number in range(1, 21):
        for flow in WANTED:
            exchange.publish(flow, f"message {number}".encode())
        exchange.run(0.2)
    exchange.run(10.0)


def settle_after(exchange: Exchange) -> None:
    """What is published after the storm, and by a publisher that is restarted."""
    served = [flow for flow in WANTED if flow != "f9"]  # which no plan has
    exchange.run(15.0)
    publish_some(exchange)
    assert exchange.find_lost(served, 1, 20) == []
    exchange.seen.clear()
    exchange.start_sender(exchange.incarnation + 1)
    exchange.run(3.0)
    restarted = Restarted("publisher", exchange.incarnation - 1, exchange.incarnation)
    assert restarted in exchange.seen
    publish_some(exchange)
    came = Counter((flow, number) for flow, number, _ in delivered(exchange.seen))
    assert came == Counter((flow, number) for flow in served for number in range(1, 21))


@pytest.mark.parametrize("far", [0.0, pytest.param(0.02, marks=pytest.mark.slow)])
def test_a_receiver_stays_small_in_a_storm_and_recovers_after(far: float) -> None:
    exchange = Exchange(PLAN, WANTED, PARAMS)
    storm = ReceiverStorm(np.random.default_rng(1), WANTED, exchange.incarnation, far)
    rage(exchange, storm, 100)
    gc.collect()
    tracemalloc.start()
    try:
        rage(exchange, storm, 50)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        rage(exchange, storm, 100)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 8 << 20, f"{grown:,} bytes"
    assert exchange.receiver.statistics.over_limit > 0
    settle_after(exchange)


def test_a_storm_without_the_key_changes_nothing() -> None:
    """Not a message is lost that is published meanwhile."""
    exchange = Exchange(PLAN, WANTED, PARAMS, KEY)
    for key in (None, b"another key of some bytes"):
        storm = ReceiverStorm(np.random.default_rng(3), WANTED, exchange.incarnation, 0.02, key)
        rage(exchange, storm, 100)
    assert exchange.receiver.statistics.unauthenticated > 10_000
    settle_after(exchange)
    assert not exchange.receiver.statistics.gaps


def rage_at_sender(exchange: Exchange, storm: SenderStorm, batches: int) -> None:
    for at in range(batches):
        for source, packet in storm.draw(BATCH):
            exchange.sender.on_message(source, packet, exchange.now)
        exchange.run(STEP)
        if at % 10 == 0:
            exchange.publish("f1", b"of no interest")
            check_sizes(find_sizes(exchange.sender), SENDER_LIMITS)


def test_a_sender_stays_small_in_a_storm_and_goes_on_after() -> None:
    exchange = Exchange(PLAN, WANTED, PARAMS)
    storm = SenderStorm(np.random.default_rng(4), PLAN, exchange.incarnation)
    rage_at_sender(exchange, storm, 200)
    assert exchange.sender.statistics.over_limit > 0
    settle_after(exchange)


@pytest.mark.slow
def test_a_receiver_stays_small_over_ten_million_packets() -> None:
    exchange = Exchange(PLAN, WANTED, PARAMS)
    storm = ReceiverStorm(np.random.default_rng(5), WANTED, exchange.incarnation, 0.0)
    rage(exchange, storm, 4_000)
    before = read_resident()
    rage(exchange, storm, 10_000_000 // BATCH - 4_000)
    grown = read_resident() - before
    assert exchange.receiver.statistics.packets >= 9_999_000
    assert grown < 32 << 20, f"{grown:,} bytes"
    settle_after(exchange)


def read_resident() -> int:
    """The bytes of memory that this process uses."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
