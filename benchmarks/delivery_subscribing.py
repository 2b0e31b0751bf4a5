"""How long a running receiver waits for a flow that it subscribes to."""

from __future__ import annotations

import asyncio
import multiprocessing
import statistics
import time
from collections.abc import Sequence
from multiprocessing.synchronize import Event

import numpy as np

from benchmarks.delivery_receivers import NETWORK, PAYLOAD
from benchmarks.measure import Section, shown_seconds
from distributary.delivery.udp import Publisher, Receiver
from distributary.model import Plan

_GROUPS, _SESSIONS, _FLOWS = 8, 4, 4  # sessions of a group, flows of a session
_RATE = 25_600.0  # messages a second, of all flows together: each has one in 5 ms
_TIMES = 200


def subscribing() -> Section:
    """From `subscribe` to its return, and to the first message."""
    plan = _make_plan()
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    publisher = context.Process(target=_publish, args=(stop,), daemon=True)
    publisher.start()
    try:
        cases = {
            "in a session that is followed": [f"{flow:03}" for flow in range(1, _FLOWS)],
            "in another session, in a group that is joined": [
                f"{flow:03}" for flow in range(_FLOWS, _SESSIONS * _FLOWS)
            ],
            "in a group that is not joined": [
                f"{flow:03}" for flow in range(_SESSIONS * _FLOWS, len(plan.flows))
            ],
        }
        rows = []
        for name, flows in cases.items():
            returned, came = asyncio.run(_subscribe(plan, flows))
            rows.append([name, *_spread(returned), *_spread(came)])
    finally:
        stop.set()
        publisher.join(30)
    return Section(
        "Delivery: subscribing while running",
        f"A receiver of flow 0 subscribes to one more flow, {_TIMES} times each, unsubscribing in "
        f"between, while another process publishes {_RATE:,.0f} messages/s of {len(plan.flows)} "
        f"flows in {plan.n_sessions} sessions and {_GROUPS} groups. `subscribe` returns when "
        "nothing can be lost any more; a message of the flow comes every "
        f"{1e3 * len(plan.flows) / _RATE:,.0f} ms. No message after the return was missing "
        "(asserted).",
        [
            "the flow is",
            *("returns after, median", "99 %"),
            *("first message after, median", "99 %"),
        ],
        rows,
    )


def _spread(seconds: Sequence[float]) -> tuple[str, str]:
    late = float(np.percentile(seconds, 99))
    return shown_seconds(statistics.median(seconds)), shown_seconds(late)


def _make_plan() -> Plan:
    n_sessions = _GROUPS * _SESSIONS
    n = n_sessions * _FLOWS
    return Plan(
        ("r",),
        tuple(f"{at:03}" for at in range(n)),
        np.arange(n, dtype=np.int32),
        np.repeat(np.arange(n_sessions, dtype=np.int32), _FLOWS),
        np.repeat(np.arange(_GROUPS, dtype=np.int32), _SESSIONS),
        np.zeros(1, np.int32),
        np.zeros(1, np.int32),
    )


def _publish(stop: Event) -> None:
    asyncio.run(_publish_all(_make_plan(), stop))


async def _publish_all(plan: Plan, stop: Event) -> None:
    async with Publisher(plan, NETWORK) as publisher:
        began, sent, payload = time.monotonic(), 0, bytes(PAYLOAD)
        while not stop.is_set() and sent < 300 * _RATE:
            for flow in plan.flows:
                await publisher.publish(flow, payload)
            sent += len(plan.flows)
            await asyncio.sleep(max(0.0, began + sent / _RATE - time.monotonic()))


async def _subscribe(plan: Plan, flows: Sequence[str]) -> tuple[list[float], list[float]]:
    returned, came = [], []
    reports: list[object] = []
    async with Receiver(plan, ["000"], name="r", network=NETWORK, on_report=reports.append) as r:
        await r.receive()
        for at in range(_TIMES):
            flow = flows[at % len(flows)]
            began = time.monotonic()
            assert await r.subscribe([flow]) == ()
            returned.append(time.monotonic() - began)
            numbers: list[int] = []
            while len(numbers) < 5:
                message = await r.receive()
                if message.flow == flow:
                    if not numbers:
                        came.append(time.monotonic() - began)
                    numbers.append(message.sequence)
            assert numbers == list(range(numbers[0], numbers[0] + 5)), numbers
            r.unsubscribe([flow])
    assert {type(report).__name__ for report in reports} == {"Subscribed"}, reports
    return returned, came
