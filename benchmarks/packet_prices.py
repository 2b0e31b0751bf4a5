"""Plans made for packets that are all full, and for those that sessions really fill.

The prices are those that `calibrate` finds on this machine. `python -m benchmarks.delivery NAME`
runs each section in a network namespace, on the tables in the folder that DISTRIBUTARY_DATA names.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.delivery_receivers import NETWORK, PAYLOAD, place, stored
from benchmarks.measure import Section
from distributary import Demand, PacketPrices, Request, plan
from distributary.cost import filtering_cost, plan_loads
from distributary.delivery import SenderMachineStatistics, SenderParams
from distributary.delivery.udp import Publisher
from distributary.delivery.udp.calibration import (
    Calibration,
    CalibrationParams,
    calibrate,
)
from distributary.delivery.udp.measured import (
    MeasuredReceiver,
    MeasuredReceiverSettings,
    run_measured_receiver,
)
from distributary.files import read_demand
from distributary.model import Interest, Plan

DATA = ("cran-mirror-log", "julia-registry")
RATES = (10_000.0, 100_000.0, 1_000_000.0)  # messages/s of all flows together
GROUPS, SESSIONS = 50, 500
_FLOOR = 1e-9  # messages/s of flows without a release


def predicted(seconds: float = 10.0) -> Section:
    """What each plan costs at honest prices, on real interest tables."""
    priced = _calibrate()
    prices = _packet_prices(priced)
    rows = []
    for data in DATA:
        whole = _read(data)
        for rate in RATES:
            demand = _scale(whole, rate)
            rows += _compare(f"{data}, {rate:,.0f}/s", demand, prices, seconds)
    return Section(
        "Prices of packets: what they change in a plan",
        f"Real interest tables ({' and '.join(DATA)}) with their rates scaled to the sum in the "
        f"first column, at most {GROUPS} groups and {SESSIONS} sessions, `best` with {seconds:g} "
        "s. Linear: planned as if every packet held 8 messages, as `plan --calibration` did once; "
        "by packets: planned at R / min(8, 1 + R x 1 ms) packets/s for a session of rate R, "
        "heartbeats included. Both are priced by packets: CPU seconds a second of all receivers.",
        [
            "demand",
            "planned",
            "groups / sessions",
            "messages a packet",
            "heartbeats / packets",
            "believed",
            "by packets",
            "of the linear plan's",
            "excess",
            "of the linear plan's",
        ],
        rows,
        _price_remark(priced),
    )


def _compare(name: str, demand: Demand, prices: PacketPrices, seconds: float) -> list[list[str]]:
    request = Request(GROUPS, SESSIONS, budget_s=seconds)
    plans = {
        "linear": plan(demand, request.replace(prices=prices.linear)).plan,
        "by packets": plan(demand, request.replace(prices=prices)).plan,
    }
    rows, base = [], filtering_cost(plans["linear"], demand, prices)
    for way, found in plans.items():
        cost = filtering_cost(found, demand, prices)
        believed = filtering_cost(found, demand, prices.linear if way == "linear" else prices)
        sent = _count_sent(found, demand, prices)
        rows.append(
            [
                name if way == "linear" else "",
                way,
                f"{found.n_groups} / {found.n_sessions}",
                f"{float(demand.rate.sum()) / sent.packets:.2f}",
                f"{sent.heartbeats / sent.packets:.3f}",
                f"{believed.work:.4g}",
                f"{cost.work:.4g}",
                f"{cost.work / base.work:.3f}",
                f"{cost.excess:.4g}",
                f"{cost.excess / base.excess:.3f}",
            ]
        )
    return rows


# --- delivered -----------------------------------------------------------------------------------

RECEIVERS = 8
SMALL_GROUPS, SMALL_SESSIONS = 8, 120
DELIVERED, DELIVERY_RATE = 400_000, 40_000.0
REPEATS = 3
GATHER = 0.02  # seconds from one look of a receiver at its sockets to the next
_SHORTEST_WAIT = 0.0002


@dataclass(frozen=True)
class Delivered:
    """What came of one plan: CPU of all receivers, and what the sender counted."""

    cpu: float
    took: float
    machine: SenderMachineStatistics


@dataclass(frozen=True)
class _Sent:
    """Packets and heartbeats per second of a plan."""

    packets: float
    heartbeats: float


def delivered(seconds: float = 10.0) -> Section:
    """CPU of receivers under both plans, measured beside what the prices predict."""
    priced = _calibrate()
    prices = _packet_prices(priced)
    demand = _scale(_keep_receivers(_read(DATA[0]), RECEIVERS), DELIVERY_RATE)
    request = Request(SMALL_GROUPS, SMALL_SESSIONS, budget_s=seconds)
    plans = {
        "linear": plan(demand, request.replace(prices=prices.linear)).plan,
        "by packets": plan(demand, request.replace(prices=prices)).plan,
    }
    runs: dict[str, list[Delivered]] = {way: [] for way in plans}
    for _ in range(REPEATS):
        for way, found in plans.items():
            runs[way].append(_deliver(found, demand))
    idle = float(np.median([price.idle for price in priced.prices]))
    rows, base = [], None
    for way, found in plans.items():
        run = sorted(runs[way], key=lambda one: one.cpu)[REPEATS // 2]
        base = base or run
        work = filtering_cost(found, demand, prices).work * DELIVERED / DELIVERY_RATE
        flat = filtering_cost(found, demand, prices.linear).work * DELIVERED / DELIVERY_RATE
        sent = _count_sent(found, demand, prices)
        real = run.machine
        rows.append(
            [
                way,
                f"{found.n_groups} / {found.n_sessions}",
                f"{float(demand.rate.sum()) / sent.packets:.2f}",
                f"{real.messages / real.packets:.2f}",
                f"{sent.heartbeats * run.took:,.0f}",
                f"{real.heartbeats:,}",
                f"{flat:.2f}",
                f"{work:.2f}",
                f"{RECEIVERS * run.took * idle:.2f}",
                f"{run.cpu:.2f}",
                f"{run.cpu / base.cpu:.2f}",
                " ".join(f"{one.cpu:.2f}" for one in runs[way]),
            ]
        )
    return Section(
        "Prices of packets: measured",
        f"The {RECEIVERS} receivers of {DATA[0]} that want most, in processes of their own, and "
        f"the {len(demand.interest.flows):,} flows that they want; {DELIVERED:,} messages of "
        f"{PAYLOAD} bytes at {DELIVERY_RATE:,.0f} a second, with the sender's usual settings: 8 "
        "messages a packet, 1 ms, heartbeats. At most "
        f"{SMALL_GROUPS} groups and {SMALL_SESSIONS} sessions. CPU seconds of all receivers "
        "together: filtering as predicted at full packets and by packets, looking at the sockets "
        f"every {1e3 * GATHER:.0f} ms as calibrated just before, and measured, the median "
        f"of {REPEATS} runs. Every receiver got exactly what it wanted (asserted).",
        [
            "planned",
            "groups / sessions",
            "messages a packet, predicted",
            "sent",
            "heartbeats, predicted",
            "sent",
            "filtering, predicted at full packets",
            "by packets",
            "looking, predicted",
            "measured, CPU s",
            "of the linear plan's",
            "runs",
        ],
        rows,
        _price_remark(priced),
    )


def _deliver(found: Plan, demand: Demand) -> Delivered:
    """Publish at random by rate, and check that everybody got what it wanted."""
    interest = demand.interest
    share = demand.rate / demand.rate.sum()
    drawn = np.random.default_rng(1).choice(len(share), DELIVERED, p=share)
    counts = np.bincount(drawn, minlength=len(share))
    with stored(found) as folder, ExitStack() as stack:
        receivers = [
            stack.enter_context(
                run_measured_receiver(
                    MeasuredReceiverSettings(
                        folder,
                        flows=tuple(interest.flows[flow] for flow in interest.flows_of(at)),
                        gather=GATHER,
                        **place(name),
                    )
                )
            )
            for at, name in enumerate(interest.receivers)
        ]
        names = [found.flows[flow] for flow in drawn.tolist()]
        took, before, after, machine = asyncio.run(_publish(folder, names, receivers))
    for at, receiver in enumerate(after):
        expected = int(counts[interest.flows_of(at)].sum())
        assert receiver["messages"] == expected, (receiver, expected)
        assert receiver["reports"] == 0
    cpu = sum(a["cpu_seconds"] - b["cpu_seconds"] for a, b in zip(after, before, strict=True))
    return Delivered(cpu, took, machine)


async def _publish(
    folder: str, names: Sequence[str], receivers: Sequence[MeasuredReceiver]
) -> tuple[float, list[dict[str, Any]], list[dict[str, Any]], SenderMachineStatistics]:
    payload = bytes(PAYLOAD)
    params = SenderParams(packet_size=2_000)
    async with Publisher(folder, NETWORK, params=params, stay=1.0) as publisher:
        while publisher.changing:
            await asyncio.sleep(0.05)
        start = publisher.statistics.machine
        before = [receiver.report() for receiver in receivers]
        began = time.monotonic()
        for at, name in enumerate(names):
            wait = began + at / DELIVERY_RATE - time.monotonic()
            if wait > _SHORTEST_WAIT:
                await asyncio.sleep(wait)
            await publisher.publish(name, payload)
        await publisher.drain()
        took = time.monotonic() - began
        end = publisher.statistics.machine
        await asyncio.sleep(0.2)
        after = [receiver.report() for receiver in receivers]
    counted = replace(
        end, packets=end.packets - start.packets, heartbeats=end.heartbeats - start.heartbeats
    )
    return took, before, after, counted


# --- common --------------------------------------------------------------------------------------


def _calibrate() -> Calibration:
    return calibrate(NETWORK, CalibrationParams(factors=(1, 2, 4, 8, 16), rounds=3, gather=GATHER))


def _packet_prices(found: Calibration) -> PacketPrices:
    return PacketPrices(
        found.alpha.constant, found.alpha.per_packet, found.beta.constant, found.beta.per_packet
    )


def _price_remark(found: Calibration) -> str:
    doubt = " The fit was poor: the machine was busy." if found.doubtful else ""
    return (
        f"Calibrated just before: alpha = {1e9 * found.alpha.constant:,.1f} ns a message + "
        f"{1e9 * found.alpha.per_packet:,.1f} ns a packet, beta = "
        f"{1e9 * found.beta.constant:,.1f} + {1e9 * found.beta.per_packet:,.1f}; load average "
        f"{os.getloadavg()[0]:.1f} after the run.{doubt}"
    )


def _read(data: str) -> Demand:
    folder = os.environ.get("DISTRIBUTARY_DATA")
    if not folder:
        sys.exit("set DISTRIBUTARY_DATA to a folder with the data sets, or name other benchmarks")
    tables = Path(folder) / data
    interest, rates = tables / "interest.parquet", tables / "rates.parquet"
    return read_demand(interest, rates, floor=_FLOOR, max_bad=0.01).demand  # some rates are 0


def _scale(demand: Demand, total: float) -> Demand:
    return replace(demand, rate=demand.rate * (total / demand.rate.sum()), peak=None)


def _keep_receivers(demand: Demand, n: int) -> Demand:
    """The receivers that want most, and the flows that they want."""
    interest = demand.interest
    most = np.argsort(-np.diff(interest.receiver_offsets), kind="stable")[:n]
    pairs = [
        (interest.receivers[receiver], interest.flows[flow])
        for receiver in most.tolist()
        for flow in interest.flows_of(receiver).tolist()
    ]
    rate = dict(zip(interest.flows, demand.rate.tolist(), strict=True))
    kept = Interest.from_pairs(pairs)
    return Demand(kept, np.array([rate[flow] for flow in kept.flows]))


def _count_sent(found: Plan, demand: Demand, prices: PacketPrices) -> _Sent:
    rate = plan_loads(found, demand).session_rate
    pauses = np.bincount(found.session_group, prices.pauses(rate), found.n_groups)
    return _Sent(
        float(prices.packing.packets(rate).sum()), float(prices.heartbeat_rate(pauses).sum())
    )
