"""What a plan saves a receiver: Tock's floor at full size, receivers measured one at a time.

`python -m benchmarks.delivery_headline [SETTINGS]`, with settings as JSON, runs in the network
namespace it is started in and prints the section as JSON.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.delivery_alone import LOOK_EVERY, Bench, Observation, Traffic
from benchmarks.delivery_receivers import NETWORK, stored
from benchmarks.delivery_replay import TICK, Recording, record
from benchmarks.measure import Section, format_table
from distributary import planning
from distributary.cost import FilteringPrices
from distributary.delivery.udp.calibration import (
    Calibration,
    CalibrationParams,
    calibrate,
)
from distributary.delivery.udp.sockets import find_interface, open_own_socket
from distributary.model import Demand, IntArray, Interest, Plan
from distributary.workloads import TradingFloor, trading_floor

FLOODING, HASH, FLAT = "flooding", "hash", "flat `best`"
EQUAL = "hierarchical `best`, alpha = beta"  # as in the paper
PRICED = "hierarchical `best`, alpha and beta as measured"
LATE = 1.1  # times its length, from which on a run counts as too fast for the publisher
SLOWER = 0.8  # times the speed, where packets are lost
MOST_SLOWER = 10
MOST_GROWTH = 1.5  # of the speed, from one probe to the next
CLOSE = 0.1  # how far from the target the load of flooding may be


@dataclass(frozen=True)
class Settings:
    """All settings of the run; the defaults are those of the recorded one."""

    symbols: int = 20_000
    receivers: int = 500
    groups: int = 50
    sessions: int = 1_000
    budget_s: float = 8.0  # of each search by `best`
    measured: int = 12  # receivers
    messages: int = 10_000_000  # under each plan
    message_bytes: int = 16
    messages_per_packet: int = 4
    joined: bool = True  # packets of one group and one size go through the system together
    packet_size: int = 1_400
    target: float = 0.6  # of a core, that flooding takes
    most_rate: float = 80e6  # messages a second
    probes: int = 8  # of the rate at which flooding takes that, three runs each
    factors: tuple[int, ...] = (2, 4, 8)  # messages per packet in the calibration
    calibration_rounds: int = 3
    calibration_seconds: float = 0.5
    calibration_packets: float = 1e6  # a second
    seed: int = 0


# --- the run -------------------------------------------------------------------------------------


def headline(settings: Settings | None = None) -> Section:
    """CPU of receivers one at a time, under five plans, beside what the cost model predicts."""
    settings = Settings() if settings is None else settings
    busy = os.getloadavg()[0]
    prices = _calibrate(settings)
    demand = _draw_demand(settings)
    plans = _make_plans(demand, prices.at(settings.messages_per_packet), settings)
    with open_own_socket(NETWORK, find_interface(NETWORK)) as own:
        bench = Bench(own)
        observed, h = _measure_plans(bench, plans, demand, prices, settings)
    return describe(settings, Results(plans, observed, h, prices, bench.repeated, busy))


def _calibrate(settings: Settings) -> Calibration:
    params = CalibrationParams(
        factors=settings.factors,
        message_bytes=settings.message_bytes,
        seconds=settings.calibration_seconds,
        packets=settings.calibration_packets,
        rounds=settings.calibration_rounds,
        gather=LOOK_EVERY,
        joined=settings.joined,
    )
    return calibrate(NETWORK, params)


def _draw_demand(settings: Settings) -> Demand:
    floor = TradingFloor(symbols=settings.symbols, receivers=settings.receivers)
    return Demand.of(*trading_floor(floor, np.random.default_rng(settings.seed)))


def _choose_receivers(interest: Interest, settings: Settings) -> list[int]:
    rng = np.random.default_rng(settings.seed + 1)
    return sorted(rng.choice(len(interest.receivers), settings.measured, replace=False).tolist())


def _make_plans(demand: Demand, prices: FilteringPrices, settings: Settings) -> dict[str, Plan]:
    def make(algorithm: str, groups: int, sessions: int, prices: FilteringPrices) -> Plan:
        _report_progress(f"planning {groups} groups, {sessions} sessions by {algorithm}")
        request = planning.Request(
            groups=groups,
            sessions=sessions,
            algorithm=algorithm,
            seed=settings.seed,
            budget_s=settings.budget_s,
            prices=prices,
        )
        return planning.plan(demand, request).plan

    groups, sessions, equal = settings.groups, settings.sessions, FilteringPrices()
    return {
        FLOODING: make("hash", 1, 1, equal),
        HASH: make("hash", groups, sessions, equal),
        FLAT: make("best", groups, groups, equal),  # whose prices play no part
        EQUAL: make("best", groups, sessions, equal),
        PRICED: make("best", groups, sessions, prices),
    }


def _record(plan: Plan, drawn: IntArray, rate: float, settings: Settings) -> Recording:
    return record(
        plan,
        drawn,
        rate,
        messages_per_packet=settings.messages_per_packet,
        message_bytes=settings.message_bytes,
        packet_size=settings.packet_size,
        joined=settings.joined,
    )


def _measure_plans(
    bench: Bench,
    plans: Mapping[str, Plan],
    demand: Demand,
    prices: Calibration,
    settings: Settings,
) -> tuple[dict[str, list[Observation]], dict[str, float]]:
    """Each receiver under each plan, and the messages per packet of each plan.

    Each receiver runs under all plans before the next one, so that other work of the machine, which
    comes and goes, disturbs all plans alike.
    """
    interest = demand.interest
    paid = prices.at(settings.messages_per_packet)
    rate = min(settings.target / (paid.alpha + paid.beta), settings.most_rate)
    drawn = _draw_messages(demand, settings)
    counts = np.bincount(drawn, minlength=len(interest.flows))
    observed: dict[str, list[Observation]] = {name: [] for name in plans}
    with ExitStack() as stack:
        traffic = {}
        for name, plan in plans.items():
            _report_progress(f"packing the messages by {name}")
            folder = stack.enter_context(stored(plan))
            traffic[name] = Traffic(folder, _record(plan, drawn, rate, settings), counts)
        speed = 0.0
        for at in _choose_receivers(interest, settings):
            who, flows = interest.receivers[at], interest.flows_of(at).astype(np.int64)
            if not speed:
                flooding = partial(bench.try_to_measure, traffic[FLOODING], who, flows)
                speed = _find_speed(flooding, settings)
            _report_progress(f"measuring {who}")
            found, speed = _measure_receiver(bench, traffic, who, flows, speed)
            for name in plans:
                observed[name].append(found[name])
    return observed, {name: each.recording.messages_per_packet for name, each in traffic.items()}


def _measure_receiver(
    bench: Bench, traffic: Mapping[str, Traffic], who: str, flows: IntArray, speed: float
) -> tuple[dict[str, Observation], float]:
    """A receiver under each plan, all at one speed: a lower one where packets are lost."""
    for _ in range(MOST_SLOWER):
        observed: dict[str, Observation] = {}
        for name, each in traffic.items():
            found = bench.measure(each, who, flows, speed)
            if found is None:
                break
            observed[name] = found
        else:
            return observed, speed
        speed *= SLOWER
        _report_progress(f"{who} loses packets; trying {speed:.2f} times the rate")
    raise RuntimeError(f"{who} loses packets at {speed:.2f} times the rate; quieten the machine")


def _draw_messages(demand: Demand, settings: Settings) -> IntArray:
    """The flow of each message, in proportion to the rates."""
    rng = np.random.default_rng(settings.seed + 2)
    share = demand.rate / demand.rate.sum()
    return rng.choice(len(demand.interest.flows), settings.messages, p=share)


def _find_speed(run: Callable[[float], Observation | None], settings: Settings) -> float:
    """The speed at which flooding takes the target, or else the most that gets through.

    Without probes it is 1, which the calibration expects to take the target.
    """
    speed, most = 1.0, math.inf
    for _ in range(settings.probes):
        found = [each for each in (run(speed), run(speed), run(speed)) if each]
        if len(found) < 2:
            _report_progress(f"flooding at {speed:.2f} times the rate: packets are lost")
            most = speed = SLOWER * speed
            continue
        late, load = (median(getattr(each, key) for each in found) for key in ("late", "load"))
        _report_progress(f"flooding at {speed:.2f} times the rate: {late=:.2f}, {load=:.0%}")
        if late > LATE:
            most = speed = speed / late
            continue
        better = min(speed * min(settings.target / load, MOST_GROWTH), most)
        if abs(better / speed - 1) <= CLOSE:
            break
        speed = better
    return speed


def _report_progress(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


# --- what came of it -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Results:
    """What was measured; the observations of each plan are in the order of the receivers."""

    plans: Mapping[str, Plan]
    observed: Mapping[str, Sequence[Observation]]
    h: Mapping[str, float]
    prices: Calibration
    repeated: int
    busy: float  # the machine's load before the run

    @property
    def looking(self) -> float:
        """The share of a core that looking at one socket takes, as calibrated."""
        return median(price.idle for price in self.prices.prices)

    def looking_of(self, name: str) -> list[float]:
        """The CPU seconds that each receiver spends on looking at all its sockets."""
        return [
            self.looking * _count_sockets(found.groups) * found.seconds
            for found in self.observed[name]
        ]

    def filtering(self, name: str) -> list[float]:
        """The CPU seconds of filtering that the cost model predicts for each receiver."""
        paid = self.prices.at(self.h[name])
        return [paid.work(found.received, found.accepted) for found in self.observed[name]]

    def predicted(self, name: str) -> list[float]:
        """The predicted CPU seconds of each receiver: filtering, and looking."""
        pairs = zip(self.filtering(name), self.looking_of(name), strict=True)
        return [filtering + looking for filtering, looking in pairs]

    def measured(self, name: str) -> list[float]:
        """The measured CPU seconds of each receiver."""
        return [found.cpu for found in self.observed[name]]

    def beyond_looking(self, name: str) -> list[float]:
        """The measured CPU seconds of each receiver, less those predicted for looking."""
        pairs = zip(self.measured(name), self.looking_of(name), strict=True)
        return [measured - looking for measured, looking in pairs]

    def of_flooding(self, kind: Callable[[Results, str], list[float]], name: str) -> float:
        """The median of what receivers spend, each as a share of what it spends under flooding."""
        pairs = zip(kind(self, name), kind(self, FLOODING), strict=True)
        return median(here / there for here, there in pairs)


def _count_sockets(groups: int) -> int:
    """How many sockets a receiver of so many groups looks at."""
    return math.ceil(groups / _groups_of_a_socket())


def _groups_of_a_socket() -> int:
    return int(Path("/proc/sys/net/ipv4/igmp_max_memberships").read_text())


def describe(settings: Settings, results: Results) -> Section:
    """The section: a row for each plan, and what follows from them."""
    flooding = results.observed[FLOODING]
    rates = [found.sent / found.seconds / 1e6 for found in flooding]
    load = median(found.load for found in flooding)
    late = max(found.late for each in results.observed.values() for found in each)
    plan = results.plans[FLOODING]
    paid = results.prices.at(settings.messages_per_packet)
    return Section(
        "Delivery: what a plan saves a receiver",
        f"Tock's floor of {settings.symbols:,} symbols and {settings.receivers:,} receivers "
        f"({len(plan.flows):,} symbols are wanted and published), with {settings.groups} groups "
        f"and {settings.sessions:,} sessions; flat has one session for each group, flooding one "
        f"group. `best` has {settings.budget_s:g} s. {settings.measured} receivers drawn at random "
        "are measured one after another, each in a process of its own, under all plans in turn. "
        f"One process publishes all groups: {settings.messages:,} messages of "
        f"{settings.message_bytes} bytes, {settings.messages_per_packet} a packet, at the floor's "
        f"rates, scaled to {median(rates):.1f} million messages/s in all ({min(rates):.1f} to "
        f"{max(rates):.1f}: slower where packets were lost), at which flooding takes "
        f"{load:.0%} of a core (the aim is {settings.target:.0%}; the slowest run took {late:.2f} "
        "times as long as it should). The packets are packed ahead by the sender's machine and "
        f"sent in bursts of {1e3 * TICK:.0f} ms, "
        + ("together by group (GSO, GRO)" if settings.joined else "one by one")
        + ", with no heartbeats; receivers look "
        f"every {1e3 * LOOK_EVERY:.0f} ms.",
        [
            *("plan", "groups / sessions"),
            *("messages looked at", "dropped at stage 1", "at stage 2", "delivered"),
            *("CPU s, measured", "filtering, predicted", "looking, predicted"),
            *("prediction off by", "measured, of flooding", "predicted, of flooding"),
            *("measured less looking, of flooding", "filtering predicted, of flooding"),
        ],
        [_describe_plan(name, results) for name in results.plans],
        "\n\n".join(
            (
                "Messages and CPU are medians over the receivers, CPU with least and most; shares "
                "are of all messages published. Shares of flooding are medians of each receiver's. "
                "Predicted: alpha for each message looked at and beta for each that passes stage "
                "1, calibrated just before (alpha = "
                f"{1e9 * paid.alpha:.1f} ns, beta = {1e9 * paid.beta:.1f} ns at "
                f"h = {settings.messages_per_packet}), and the calibration's constant for looking "
                f"at a socket, {results.looking:.1%} of a core; a socket has up to "
                f"{_groups_of_a_socket()} groups. Every receiver got each message of its flows "
                "once, without a gap, and dropped at stage 2 what the plan says (asserted); "
                f"{results.repeated} runs lost packets and were repeated. The machine's load was "
                f"{results.busy:.1f} before the run.",
                _receiver_table(results),
                " ".join(_conclude(results)),
            )
        ),
    )


def _describe_plan(name: str, results: Results) -> list[str]:
    found, plan = results.observed[name], results.plans[name]

    def count(number: Callable[[Observation], int]) -> str:
        share = median(number(each) / each.sent for each in found)
        return f"{median(map(number, found)):,.0f} ({share:.1%})"

    measured, predicted = results.measured(name), results.predicted(name)
    off = median(after / before - 1 for after, before in zip(predicted, measured, strict=True))
    return [
        name,
        f"{plan.n_groups} / {plan.n_sessions:,}",
        count(lambda each: each.received),
        count(lambda each: each.received - each.accepted),
        count(lambda each: each.accepted - each.delivered),
        count(lambda each: each.delivered),
        f"{median(measured):.3f} ({min(measured):.3f} to {max(measured):.3f})",
        f"{median(results.filtering(name)):.3f}",
        f"{median(results.looking_of(name)):.3f}",
        f"{off:+.0%}",
        f"{results.of_flooding(Results.measured, name):.2f}",
        f"{results.of_flooding(Results.predicted, name):.2f}",
        f"{results.of_flooding(Results.beyond_looking, name):.2f}",
        f"{results.of_flooding(Results.filtering, name):.2f}",
    ]


def _receiver_table(results: Results) -> str:
    """The CPU of each receiver, measured and predicted."""
    columns = [
        [f"{1e3 * a:,.0f} / {1e3 * b:,.0f}" for a, b in zip(measured, predicted, strict=True)]
        for measured, predicted in (
            (results.measured(name), results.predicted(name)) for name in results.plans
        )
    ]
    rows = [[str(at), *cells] for at, cells in enumerate(zip(*columns, strict=True), start=1)]
    return format_table(["receiver; CPU ms, measured / predicted", *results.plans], rows)


def _conclude(results: Results) -> Iterator[str]:
    """What the numbers say about the two levels."""
    flat, equal, priced, hashed = (
        results.of_flooding(Results.measured, name) for name in (FLAT, EQUAL, PRICED, HASH)
    )
    expected = {name: results.of_flooding(Results.predicted, name) for name in results.plans}
    yield (
        f"**What the first level buys:** flat `best` leaves {flat:.0%} of flooding's CPU (the "
        f"model says {expected[FLAT]:.0%}), a hash of the same size as the hierarchical plan "
        f"{hashed:.0%} ({expected[HASH]:.0%})."
    )
    cheaper = sum(
        after < before
        for after, before in zip(results.measured(PRICED), results.measured(FLAT), strict=True)
    )
    yield (
        f"**What the second level buys:** planned with the measured prices it "
        f"{_describe_change(flat, priced)} (the model: "
        f"{_describe_change(expected[FLAT], expected[PRICED])}), and is cheaper than flat for "
        f"{cheaper} of {len(results.observed[FLAT])} receivers; planned with alpha = beta it "
        f"{_describe_change(flat, equal)} (the model: "
        f"{_describe_change(expected[FLAT], expected[EQUAL])})."
    )
    yield from _explain_limits(results)


def _explain_limits(results: Results) -> Iterator[str]:
    """Where the second level saves, and where it cannot."""

    def per_delivered(name: str) -> float:
        return median(found.accepted / found.delivered for found in results.observed[name])

    def received(name: str) -> float:
        return median(found.received / found.sent for found in results.observed[name])

    paid = results.prices.at(results.h[PRICED])
    yield (
        f"It spares stage 2: {per_delivered(FLAT):.1f} messages pass stage 1 for each that is "
        f"delivered under flat, {per_delivered(PRICED):.1f} under hierarchical."
    )
    yield (
        f"**Where it does not help:** it does not spare stage 1, where receivers look at "
        f"{received(FLAT):.0%} and {received(PRICED):.0%} of all messages; only more groups do. "
        f"With alpha {paid.alpha / paid.beta:.1f} times beta it could save "
        f"{paid.beta / (paid.alpha + paid.beta):.0%} of filtering at most, even if nothing "
        "unwanted passed stage 1; where they are equal, as about in the paper, half."
        if paid.beta
        else "Beta is 0 as calibrated, so by the model the second level saves nothing."
    )
    looking = median(
        looking / measured
        for looking, measured in zip(
            results.looking_of(PRICED), results.measured(PRICED), strict=True
        )
    )
    yield (
        f"No plan saves looking, by the model {looking:.0%} of a receiver's CPU under the "
        "hierarchical plan at this rate; "
        f"{sum(_count_sockets(found.groups) > 1 for found in results.observed[PRICED])} of "
        f"{len(results.observed[PRICED])} receivers need a second socket for their groups."
    )
    thinner = 1 - results.h[PRICED] / results.h[FLAT]
    yield f"More sessions fill packets less: {thinner:.1%} fewer messages a packet than flat."
    if results.prices.doubtful:
        yield "The calibration's fit was poor, so the machine was busy: doubt the predictions."


def _describe_change(flat: float, both: float) -> str:
    word = "saves" if both < flat else "costs"
    return (
        f"{word} {abs(flat - both):.1%} of flooding's CPU, or {abs(1 - both / flat):.0%} of flat's"
    )


def main(arguments: Sequence[str]) -> None:
    """Run with the settings given, if any."""
    given = json.loads(arguments[0]) if arguments else {}
    if "factors" in given:
        given["factors"] = tuple(given["factors"])
    print(json.dumps(asdict(headline(Settings(**given)))))


if __name__ == "__main__":
    main(sys.argv[1:])
