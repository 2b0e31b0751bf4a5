"""What a receiver says of latencies, in the namespace."""

from __future__ import annotations

import asyncio
import json
import time
from collections import defaultdict
from contextlib import AsyncExitStack
from dataclasses import replace

from distributary.delivery import LatencyStatistics
from distributary.delivery.udp import (
    Publisher,
    Receiver,
    ReceiverStatistics,
    serve_metrics,
    snapshot_document,
)
from distributary.delivery.udp.datagrams import has_mmsg
from tests.delivery.machines import simple_plan
from tests.delivery.udp.scenarios import LOOPBACK, QUICK, Tape, publish_all, read_page

MESSAGES = 2_000


async def measure(
    ahead: int, plain: bool
) -> tuple[ReceiverStatistics, LatencyStatistics, float, str]:
    """Deliver messages of a publisher whose clock is `ahead` ns, once the receiver knows it.

    Returns the statistics, the latencies, the seconds that it took, and the page of Prometheus.
    """
    plan, network = simple_plan([0, 0], [0]), replace(LOOPBACK, plain=plain)
    sent: dict[str, list[bytes]] = defaultdict(list)
    async with AsyncExitStack() as stack:
        receiver = Receiver(None, plan.flows, name="r", network=network)
        await stack.enter_async_context(receiver)
        publisher = Publisher(
            plan, network, params=QUICK, wall_clock=lambda: time.time_ns() + ahead
        )
        await stack.enter_async_context(publisher)
        while not knows_clock(receiver.statistics.latencies):
            await asyncio.sleep(0.01)
        began = time.time_ns()
        tape = Tape(receiver)
        await publish_all(publisher, plan.flows, MESSAGES, sent)
        await tape.record(MESSAGES)
        took = (time.time_ns() - began) / 1e9
        tape.holds(sent, plan.flows)
        with serve_metrics(lambda: receiver.statistics, 0) as port:
            page = await asyncio.to_thread(read_page, f"http://127.0.0.1:{port}/metrics")
        statistics = receiver.statistics
    (found,) = statistics.latencies
    return statistics, found, took, page


def knows_clock(latencies: tuple[LatencyStatistics, ...]) -> bool:
    return any(found.clock_offset_seconds is not None for found in latencies)


async def latency_on_one_host(plain: bool) -> None:
    """Packets arrive after they are sent, and before they are all there."""
    statistics, found, took, page = await measure(0, plain)
    stamped = 0 if plain or not has_mmsg() else statistics.machine.packets
    assert statistics.kernel_stamps == stamped, statistics
    assert found.packets + found.repairs >= MESSAGES / QUICK.messages_per_packet
    assert found.negative == found.absurd == found.unsaid == found.uncorrected == 0
    assert not found.corrected
    assert found.median_seconds is not None
    assert found.p99_seconds is not None
    assert found.largest_seconds is not None
    assert 0 < found.median_seconds <= found.p99_seconds <= found.largest_seconds <= took
    document = json.loads(json.dumps(snapshot_document(statistics)))
    assert document["latencies"][0]["publisher"] == "publisher"
    assert document["latencies"][0]["median_seconds"] == found.median_seconds
    for name, value in (("packets_total", found.packets), ("median_seconds", found.median_seconds)):
        line = f'distributary_receiver_latency_{name}{{publisher="publisher"}} '
        assert float(page.partition("\n" + line)[2].partition("\n")[0]) == value, page


async def a_publisher_whose_clock_is_off(seconds: int) -> None:
    """The receiver finds the offset, and corrects latencies by it."""
    _, found, took, _ = await measure(seconds * 10**9, False)
    assert found.corrected
    assert found.clock_offset_seconds is not None
    assert found.clock_uncertainty_seconds is not None
    assert found.median_seconds is not None
    assert abs(found.clock_offset_seconds - seconds) <= found.clock_uncertainty_seconds
    assert found.absurd == found.unsaid == 0
    assert found.packets + found.repairs + found.negative >= MESSAGES / QUICK.messages_per_packet
    assert found.median_seconds <= took + found.clock_uncertainty_seconds
