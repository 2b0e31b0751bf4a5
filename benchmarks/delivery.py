"""Delivery over multicast: filters against others, prices, plans end to end, repair.

Everything runs in a network namespace made for it: `python -m benchmarks.delivery NAME` in one is
what each section starts.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import packet_prices
from benchmarks.delivery_filters import filters
from benchmarks.delivery_headline import headline
from benchmarks.delivery_receivers import NETWORK, PAYLOAD, one_group, place, stored
from benchmarks.delivery_subscribing import subscribing
from benchmarks.measure import Section, shown_seconds
from distributary import planning
from distributary.cost import plan_loads
from distributary.delivery import SenderMachineStatistics, SenderParams
from distributary.delivery.udp import Publisher
from distributary.delivery.udp.calibration import (
    READ_INTERVAL,
    Calibration,
    CalibrationParams,
    calibrate,
)
from distributary.delivery.udp.measured import (
    MeasuredReceiver,
    MeasuredReceiverSettings,
    run_measured_receiver,
)
from distributary.model import Demand, Plan
from distributary.workloads import TradingFloor, trading_floor

SETUP = 'ip link set lo up multicast on && exec "$@"'


# --- prices --------------------------------------------------------------------------------------


def prices() -> Section:
    """alpha(h) and beta(h) as `distributary calibrate` finds them."""
    found = calibrate(NETWORK, CalibrationParams(rounds=5))
    joined = calibrate(NETWORK, CalibrationParams(factors=(1, 8, 40), rounds=3, joined=True))
    rows = [
        [
            str(price.h),
            *(f"{1e9 * value:,.1f}" for value in (price.alpha, found.alpha.at(price.h))),
            *(f"{1e9 * value:,.1f}" for value in (price.beta, found.beta.at(price.h))),
            f"{price.alpha / price.beta:.1f}" if price.beta else "-",
            f"{price.r2:.3f}",
        ]
        for price in found.prices
    ]
    return Section(
        "Delivery: calibrated prices",
        "What a receiver spends on a message at the session filter (alpha) and at the flow filter "
        "(beta), by h messages per packet, in nanoseconds of CPU; beside each the fit constant + "
        "per packet/h. R2 is that of the prices' own fit to CPU use over mixes of rates.",
        ["h", "alpha", "fit", "beta", "fit", "alpha/beta", "R2"],
        rows,
        f"alpha(h) = {1e9 * found.alpha.constant:,.1f} + {1e9 * found.alpha.per_packet:,.1f}/h "
        f"(R2 {found.alpha.r2:.3f}); beta(h) = {1e9 * found.beta.constant:,.1f} + "
        f"{1e9 * found.beta.per_packet:,.1f}/h (R2 {found.beta.r2:.3f}). The paper has them about "
        "equal at h = 8. Packets were sent one by one; joined (GSO, GRO), as in a publisher's "
        f"bursts, they cost alpha(8) = {1e9 * joined.alpha.at(8):,.1f} and beta(8) = "
        f"{1e9 * joined.beta.at(8):,.1f}.",
    )


# --- end to end ----------------------------------------------------------------------------------

FLOOR = TradingFloor(symbols=2_000, markets=4, receivers=8, share_of_market=0.03)
GROUPS, SESSIONS = 4, 24
DELIVERED, DELIVERY_RATE = 600_000, 150_000.0
REPEATS = 3


def end_to_end() -> Section:
    """CPU of receivers under three plans, measured beside what the cost model predicts."""
    priced = calibrate(NETWORK, CalibrationParams(factors=(1, 2, 4, 8), rounds=3))
    demand = Demand.of(*trading_floor(FLOOR, np.random.default_rng(0)))
    plans = _three_plans(demand)
    runs: dict[str, list[Delivered]] = {name: [] for name in plans}
    for _ in range(REPEATS):
        for name, plan in plans.items():
            runs[name].append(_run_plan(plan, demand, priced))
    rows, base = [], None
    for name, plan in plans.items():
        found = sorted(runs[name], key=lambda run: run.measured)[REPEATS // 2]
        base = found if base is None else base
        rows.append(
            [
                name,
                f"{plan.n_groups} / {plan.n_sessions}",
                f"{found.h:.1f}",
                f"{found.received / found.wanted:.2f}",
                f"{found.filtering:.2f}",
                f"{found.looking:.2f}",
                f"{found.measured:.2f}",
                f"{found.predicted / found.measured - 1:+.0%}",
                f"{found.predicted / base.predicted:.2f}",
                f"{found.measured / base.measured:.2f}",
            ]
        )
    return Section(
        "Delivery: plans end to end",
        f"Tock's floor scaled down: {len(demand.interest.flows)} flows that somebody wants, "
        f"{len(demand.interest.receivers)} receivers in processes of their own; {DELIVERED:,} "
        f"messages of {PAYLOAD} bytes at {DELIVERY_RATE:,.0f} a second. CPU seconds of all "
        "receivers together: predicted by the filtering cost with prices calibrated just before, "
        "at the h that the plan really had, and for looking every "
        f"{1e3 * READ_INTERVAL:.0f} ms, as in the calibration, at the price that it found for "
        "that; and measured, the median of "
        f"{REPEATS} runs. Every receiver got exactly what it wanted (asserted).",
        [
            "plan",
            "groups / sessions",
            "h",
            "received / wanted",
            "filtering, predicted CPU s",
            "looking, predicted",
            "measured, CPU s",
            "prediction off by",
            "predicted, of flooding",
            "measured, of flooding",
        ],
        rows,
    )


@dataclass(frozen=True)
class Delivered:
    """What came of one plan."""

    h: float
    filtering: float
    looking: float
    measured: float
    received: float
    wanted: float

    @property
    def predicted(self) -> float:
        """Both parts."""
        return self.filtering + self.looking


def _three_plans(demand: Demand) -> dict[str, Plan]:
    def planned(groups: int, sessions: int) -> Plan:
        request = planning.Request(groups=groups, sessions=sessions, algorithm="best", seed=0)
        return planning.plan(demand, request).plan

    return {
        "flooding": planned(1, 1),
        "flat": planned(GROUPS, GROUPS),
        "hierarchical": planned(GROUPS, SESSIONS),
    }


def _run_plan(plan: Plan, demand: Demand, priced: Calibration) -> Delivered:
    interest = demand.interest
    rng = np.random.default_rng(1)
    share = demand.rate / demand.rate.sum()
    drawn = rng.choice(len(interest.flows), DELIVERED, p=share)
    counts = np.bincount(drawn, minlength=len(interest.flows))
    wanted = {
        name: [interest.flows[flow] for flow in interest.flows_of(at).tolist()]
        for at, name in enumerate(interest.receivers)
    }
    with stored(plan) as folder, ExitStack() as stack:
        receivers = [
            stack.enter_context(
                run_measured_receiver(
                    MeasuredReceiverSettings(
                        folder, flows=tuple(flows), gather=READ_INTERVAL, **place(name)
                    )
                )
            )
            for name, flows in wanted.items()
        ]
        names = [plan.flows[flow] for flow in drawn.tolist()]
        h, took, before, after = asyncio.run(_publish_by(folder, names, receivers))
    for at, receiver in enumerate(after):
        expected = int(counts[interest.flows_of(at)].sum())
        assert receiver["messages"] == expected, (receiver, expected)
        assert receiver["reports"] == 0
    loads = plan_loads(plan, demand)
    scale = DELIVERED / demand.rate.sum()
    prices = priced.at(h)
    idle = float(np.median([price.idle for price in priced.prices]))  # CPU seconds a second
    received, accepted = float(loads.received.sum()), float(loads.accepted.sum())
    return Delivered(
        h,
        scale * (prices.alpha * received + prices.beta * accepted),
        len(interest.receivers) * took * idle,
        sum(a["cpu_seconds"] - b["cpu_seconds"] for a, b in zip(after, before, strict=True)),
        received,
        float(loads.wanted.sum()),
    )


async def _publish_by(
    folder: str, names: Sequence[str], receivers: Sequence[MeasuredReceiver]
) -> tuple[float, float, list[dict[str, Any]], list[dict[str, Any]]]:
    """Publish at the rate: messages per packet, seconds, and what receivers had done by then."""
    # Heartbeats of slow sessions are handled one by one, which no cost model knows of: few of them.
    params = SenderParams(packet_size=2_000, max_age=0.05, heartbeat_min=0.5)
    payload = bytes(PAYLOAD)
    async with Publisher(folder, NETWORK, params=params, stay=1.0) as publisher:
        while publisher.changing:
            await asyncio.sleep(0.05)
        before = [receiver.report() for receiver in receivers]
        began = time.monotonic()
        for at, name in enumerate(names):
            wait = began + at / DELIVERY_RATE - time.monotonic()
            if wait > 0.005:
                await asyncio.sleep(wait)
            await publisher.publish(name, payload)
        await publisher.drain()
        took = time.monotonic() - began
        await asyncio.sleep(0.5)
        after = [receiver.report() for receiver in receivers]
        machine = publisher.statistics.machine
    return machine.messages / machine.packets, took, before, after


# --- recovery ------------------------------------------------------------------------------------

LOSSES = (0.0, 0.01, 0.05, 0.1, 0.2)
RECOVERED = 100_000
PACED, PACED_RATE = 20_000, 8_000.0
AERON = {0.01: "38,000", 0.05: "9,000", 0.1: "5,000"}


def recovery() -> Section:
    """Messages per second and latency as packets are lost on purpose."""
    rows, quiet = [], 0.0
    plan = one_group(2, 4)
    for share in LOSSES:
        seconds, report, machine = _recover(plan, share, RECOVERED, None)
        _, paced, _ = _recover(plan, share, PACED, PACED_RATE)
        median, late, _ = paced["latency"]
        quiet = quiet or median
        rows.append(
            [
                f"{share:.0%}",
                f"{RECOVERED / seconds:,.0f}",
                AERON.get(share, "-"),
                f"{report['lost_on_purpose'] + report['overrun']:,}",
                f"{report['naks']:,}",
                f"{machine.repairs:,}",
                shown_seconds(median),
                shown_seconds(late),
                shown_seconds(max(median - quiet, 0.0)),
            ]
        )
    return Section(
        "Delivery: repair",
        f"{RECOVERED:,} messages of {PAYLOAD} bytes, 8 per packet, in two sessions, published as "
        "fast as one process can; the receiver, in another, loses packets of every kind on "
        "purpose, by seed, as they come out of its socket. None was lost, doubled or out of order "
        "(asserted), nor reported missing; NAKs are at most twice the packets lost (asserted). "
        f"Latency is from publishing to delivery, of {PACED:,} more at {PACED_RATE:,.0f} a second. "
        "The mark: Aeron's C driver, multicast on one host of this kind.",
        [
            "loss",
            "messages/s",
            "Aeron, messages/s",
            "packets lost",
            "NAKs",
            "repairs",
            "latency, median",
            "99 %",
            "median added",
        ],
        rows,
    )


def _recover(
    plan: Plan, share: float, messages: int, rate: float | None
) -> tuple[float, dict[str, Any], SenderMachineStatistics]:
    """Seconds until all was delivered, and what both ends say of it; checked."""
    settings = MeasuredReceiverSettings(
        "", flows=plan.flows, loss=share, seed=5, use="check", **place("r")
    )
    with (
        stored(plan) as folder,
        run_measured_receiver(replace(settings, plan=folder)) as receiver,
    ):
        work = _publish_stamped(folder, plan.flows, receiver, messages, rate)
        seconds, report, machine = asyncio.run(work)
    assert report["messages"] == messages, report
    assert report["wrong"] == report["reports"] == report["missing_messages"] == 0, report
    assert report["naks"] <= 2 * (report["lost_on_purpose"] + report["overrun"]), report
    return seconds, report, machine


async def _publish_stamped(
    folder: str, flows: Sequence[str], receiver: MeasuredReceiver, messages: int, rate: float | None
) -> tuple[float, dict[str, Any], SenderMachineStatistics]:
    params = SenderParams(packet_size=2_000, window_packets=65_536, window_bytes=256 << 20)
    rest = bytes(PAYLOAD - 8)
    async with Publisher(folder, NETWORK, params=params) as publisher:
        while publisher.changing:
            await asyncio.sleep(0.05)
        began = time.monotonic()
        for at in range(messages):
            wait = 0.0 if rate is None else began + at / rate - time.monotonic()
            if wait > 0.001:
                await asyncio.sleep(wait)
            payload = time.monotonic_ns().to_bytes(8, "little") + rest
            await publisher.publish(flows[at % len(flows)], payload)
        await publisher.drain()
        while (report := await asyncio.to_thread(receiver.report))["messages"] < messages:
            assert time.monotonic() < began + 120, report
            await asyncio.sleep(0.01)
        return time.monotonic() - began, report, publisher.statistics.machine


# --- the namespace -------------------------------------------------------------------------------

_INSIDE: dict[str, Callable[[], Section]] = {
    "delivery_filters": filters,
    "delivery_prices": prices,
    "delivery_end_to_end": end_to_end,
    "delivery_headline": headline,
    "delivery_recovery": recovery,
    "delivery_subscribing": subscribing,
    "packet_prices": packet_prices.predicted,
    "packet_delivery": packet_prices.delivered,
}


def _run_inside(name: str) -> Section:
    """Run a section in a network namespace of its own."""
    command = [sys.executable, "-m", "benchmarks.delivery", name]
    done = subprocess.run(
        ["unshare", "-rn", "sh", "-c", SETUP, "sh", *command],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
        cwd=Path(__file__).parent.parent,
    )
    return Section(**json.loads(done.stdout))


SECTIONS = {name: partial(_run_inside, name) for name in _INSIDE}


if __name__ == "__main__":
    print(json.dumps(asdict(_INSIDE[sys.argv[1]]())))
