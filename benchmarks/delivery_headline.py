"""What a plan saves a receiver: Tock's floor at full size, receivers measured one at a time.

`python -m benchmarks.delivery_headline [SETTINGS]`, with settings as JSON, runs in the network
namespace it is started in and prints the section as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
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
    make_two_session_plan,
)
from distributary.delivery.udp.sockets import find_interface, open_own_socket
from distributary.model import Demand, IntArray, Interest, Plan
from distributary.workloads import TradingFloor, trading_floor

FLOODING, HASH, FLAT, HIERARCHICAL = "flooding", "hash", "flat `best`", "hierarchical `best`"
LATE = 1.1  # times its length, from which on a run counts as too fast for the publisher
CLOSE = 0.1  # how far from the target the load of flooding may be


@dataclass(frozen=True)
class Settings:
    """All settings of the run; the defaults are those of the recorded one."""

    symbols: int = 20_000
    receivers: int = 500
    groups: int = 50
    sessions: int = 1_000
    budget_s: float = 15.0  # of each search by `best`
    measured: int = 12  # receivers
    messages: int = 8_000_000  # under each plan
    message_bytes: int = 16
    messages_per_packet: int = 40
    packet_size: int = 1_400
    target: float = 0.6  # of a core, that flooding takes
    most_rate: float = 40e6  # messages a second
    probes: int = 8  # of the rate at which flooding takes that, two runs each
    looking_seconds: float = 2.0
    factors: tuple[int, ...] = (8, 16, 40)  # messages per packet in the calibration
    calibration_rounds: int = 3
    calibration_seconds: float = 0.5
    calibration_packets: float = 120e3  # a second
    seed: int = 0


# --- the run -------------------------------------------------------------------------------------


def headline(settings: Settings | None = None) -> Section:
    """CPU of receivers one at a time, under four plans, beside what the cost model predicts."""
    settings = Settings() if settings is None else settings
    prices = _calibrate(settings)
    demand = _draw_demand(settings)
    plans = _make_plans(demand, prices.at(settings.messages_per_packet), settings)
    receivers = _choose_receivers(demand.interest, settings)
    with open_own_socket(NETWORK, find_interface(NETWORK)) as own:
        bench = Bench(own)
        nothing, looking = _measure_looking(bench, settings)
        observed, h = _measure_plans(bench, plans, demand, receivers, prices, settings)
    return describe(settings, Results(plans, observed, h, prices, nothing, looking, bench.repeated))


def _calibrate(settings: Settings) -> Calibration:
    params = CalibrationParams(
        factors=settings.factors,
        message_bytes=settings.message_bytes,
        seconds=settings.calibration_seconds,
        packets=settings.calibration_packets,
        rounds=settings.calibration_rounds,
        gather=LOOK_EVERY,
    )
    return calibrate(NETWORK, params)


def _draw_demand(settings: Settings) -> Demand:
    floor = TradingFloor(symbols=settings.symbols, receivers=settings.receivers)
    return Demand.of(*trading_floor(floor, np.random.default_rng(settings.seed)))


def _choose_receivers(interest: Interest, settings: Settings) -> list[int]:
    rng = np.random.default_rng(settings.seed + 1)
    return sorted(rng.choice(len(interest.receivers), settings.measured, replace=False).tolist())


def _make_plans(demand: Demand, prices: FilteringPrices, settings: Settings) -> dict[str, Plan]:
    def make(algorithm: str, groups: int, sessions: int) -> Plan:
        request = planning.Request(
            groups=groups,
            sessions=sessions,
            algorithm=algorithm,
            seed=settings.seed,
            budget_s=settings.budget_s,
            prices=prices,
        )
        return planning.plan(demand, request).plan

    groups, sessions = settings.groups, settings.sessions
    return {
        FLOODING: make("hash", 1, 1),
        HASH: make("hash", groups, sessions),
        FLAT: make("best", groups, groups),
        HIERARCHICAL: make("best", groups, sessions),
    }


def _record(plan: Plan, drawn: IntArray, rate: float, settings: Settings) -> Recording:
    return record(
        plan,
        drawn,
        rate,
        messages_per_packet=settings.messages_per_packet,
        message_bytes=settings.message_bytes,
        packet_size=settings.packet_size,
    )


def _measure_looking(bench: Bench, settings: Settings) -> tuple[float, float]:
    """CPU, as shares of a core, of a receiver that joins nothing; and of one that only looks.

    That one gets a packet of a session that it does not want at each look.
    """
    plan, h = make_two_session_plan(), settings.messages_per_packet
    flows = len(plan.flows) // 2
    rate = h / LOOK_EVERY
    drawn = flows + np.arange(int(rate * settings.looking_seconds)) % flows
    with stored(plan) as folder:
        traffic = Traffic(
            plan,
            folder,
            _record(plan, drawn, rate, settings),
            np.bincount(drawn, minlength=2 * flows),
        )
        found = [
            bench.measure(traffic, "r", np.array(wanted, np.int64), 1.0).load
            for wanted in ([], [0])
        ]
    return found[0], found[1]


def _measure_plans(
    bench: Bench,
    plans: Mapping[str, Plan],
    demand: Demand,
    receivers: Sequence[int],
    prices: Calibration,
    settings: Settings,
) -> tuple[dict[str, list[Observation]], dict[str, float]]:
    """Each receiver under each plan, and the messages per packet of each plan."""
    interest = demand.interest
    rng = np.random.default_rng(settings.seed + 2)
    share = demand.rate / demand.rate.sum()
    drawn = rng.choice(len(interest.flows), settings.messages, p=share)
    counts = np.bincount(drawn, minlength=len(interest.flows))
    paid = prices.at(settings.messages_per_packet)
    rate = min(settings.target / (paid.alpha + paid.beta), settings.most_rate)
    observed, h, speed = {}, {}, 0.0
    for name, plan in plans.items():
        with stored(plan) as folder:
            traffic = Traffic(plan, folder, _record(plan, drawn, rate, settings), counts)

            flows = {at: interest.flows_of(at).astype(np.int64) for at in receivers}
            if not speed:  # the first plan is flooding, which sets the speed of all
                speed = _find_speed(
                    partial(
                        bench.try_to_measure,
                        traffic,
                        interest.receivers[receivers[0]],
                        flows[receivers[0]],
                    ),
                    settings,
                )
            _report_progress(f"measuring under {name}")
            observed[name] = [
                bench.measure(traffic, interest.receivers[at], flows[at], speed) for at in receivers
            ]
            h[name] = traffic.recording.messages_per_packet
    return observed, h


def _find_speed(run: Callable[[float], Observation | None], settings: Settings) -> float:
    """The speed at which flooding takes the target, or else the most that gets through.

    Without probes it is 1, which the calibration expects to take the target.
    """
    if not settings.probes:
        return 1.0
    speed, good, highest = 1.0, 0.0, float("inf")
    for _ in range(settings.probes):
        found = [each for each in (run(speed), run(speed)) if each and each.late <= LATE]
        loads = " and ".join(f"{each.load:.0%}" for each in found)
        _report_progress(f"flooding at {speed:.2f} times the rate: {loads or 'no'} load")
        if len(found) < 2:  # packets were lost, or sent too late
            highest = speed
            speed *= 0.8
            continue
        good = speed
        load = median(each.load for each in found)
        speed = min(speed * settings.target / load, 0.9 * highest)
        if abs(speed / good - 1) <= CLOSE:
            break
    if not good:
        raise RuntimeError(f"packets are lost even at {speed:.2f} times the rate for the target")
    return good


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
    nothing: float  # share of a core of a receiver that joins nothing
    looking: float  # and of one that only looks
    repeated: int

    def filtering(self, name: str) -> list[float]:
        """The CPU seconds of filtering that the cost model predicts for each receiver."""
        paid = self.prices.at(self.h[name])
        return [paid.work(found.received, found.accepted) for found in self.observed[name]]

    def predicted(self, name: str) -> list[float]:
        """The predicted CPU seconds of each receiver: filtering, and looking."""
        return [
            filtering + self.looking * found.seconds
            for filtering, found in zip(self.filtering(name), self.observed[name], strict=True)
        ]

    def measured(self, name: str) -> list[float]:
        """The measured CPU seconds of each receiver."""
        return [found.cpu for found in self.observed[name]]

    def beyond_looking(self, name: str) -> list[float]:
        """The measured CPU seconds of each receiver, less those for looking."""
        return [found.cpu - self.looking * found.seconds for found in self.observed[name]]

    def of_flooding(self, kind: Callable[[Results, str], list[float]], name: str) -> float:
        """The median of what receivers spend, each as a share of what it spends under flooding."""
        pairs = zip(kind(self, name), kind(self, FLOODING), strict=True)
        return median(here / there for here, there in pairs)


def describe(settings: Settings, results: Results) -> Section:
    """The section: a row for each plan, and what follows from them."""
    flooding = results.observed[FLOODING]
    rate = median(found.sent / found.seconds for found in flooding)
    load = median(found.load for found in flooding)
    plan = results.plans[FLOODING]
    return Section(
        "Delivery: what a plan saves a receiver",
        f"Tock's floor of {settings.symbols:,} symbols and {settings.receivers:,} receivers "
        f"({len(plan.flows):,} symbols are wanted), with {settings.groups} groups and "
        f"{settings.sessions:,} sessions; flat is one session for each group. `best` has "
        f"{settings.budget_s:g} s and the prices calibrated just before. {settings.measured} "
        "receivers drawn at random are measured one after another, each in a process on a core "
        f"of its own; the publisher, on another, sends all groups {settings.messages:,} messages "
        f"of {settings.message_bytes} bytes at the floor's rates, scaled to "
        f"{rate / 1e6:.2f} million messages/s in all: flooding takes {load:.0%} of a core (the "
        f"aim is {settings.target:.0%}). Its packets, of up to {settings.messages_per_packet} "
        f"messages, are packed ahead and sent one by one in bursts of {1e3 * TICK:.0f} ms; "
        f"receivers look every {1e3 * LOOK_EVERY:.0f} ms, as in the calibration. Shares are of "
        "the messages published: not joined never reach the receiver's socket, the first filter "
        "drops by session, the second by flow. CPU seconds are medians over the receivers, with "
        "least and most; looking is the measured CPU of a receiver that gets one unwanted packet "
        "at each look. Predicted is alpha(h) for each message received and beta(h) for each "
        "accepted, and looking. Every receiver got exactly the messages of its flows under every "
        f"plan, and its counts agree with the plan (asserted); {results.repeated} runs lost "
        "packets and were repeated.",
        [
            *("plan", "groups / sessions", "h"),
            *("not joined", "first filter drops", "second drops", "delivered"),
            *("CPU s, measured", "looking", "filtering, predicted", "CPU s, predicted"),
            "prediction off by",
        ],
        [_describe_plan(name, results) for name in results.plans],
        "\n\n".join(
            (_share_table(results), _receiver_table(results), " ".join(_conclude(results)))
        ),
    )


def _describe_plan(name: str, results: Results) -> list[str]:
    found, plan = results.observed[name], results.plans[name]

    def share(count: Callable[[Observation], int]) -> str:
        return f"{median(count(each) / each.sent for each in found):.1%}"

    measured, predicted = results.measured(name), results.predicted(name)
    off = median(after / before - 1 for after, before in zip(predicted, measured, strict=True))
    return [
        name,
        f"{plan.n_groups} / {plan.n_sessions:,}",
        f"{results.h[name]:.1f}",
        share(lambda each: each.sent - each.received),
        share(lambda each: each.received - each.accepted),
        share(lambda each: each.accepted - each.delivered),
        share(lambda each: each.delivered),
        f"{median(measured):.3f} ({min(measured):.3f} to {max(measured):.3f})",
        f"{median(results.looking * each.seconds for each in found):.3f}",
        f"{median(results.filtering(name)):.3f}",
        f"{median(predicted):.3f}",
        f"{off:+.0%}",
    ]


def _share_table(results: Results) -> str:
    """Each plan's CPU as a share of flooding's."""
    columns = {
        "measured": Results.measured,
        "predicted": Results.predicted,
        "less looking, measured": Results.beyond_looking,
        "less looking, predicted": Results.filtering,
    }
    rows = [
        [name, *(f"{results.of_flooding(kind, name):.2f}" for kind in columns.values())]
        for name in results.plans
    ]
    return format_table(["CPU of flooding's", *columns], rows)


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
    paid = results.prices.at(results.h[HIERARCHICAL])
    flat, both = (results.of_flooding(Results.measured, name) for name in (FLAT, HIERARCHICAL))
    expected = [results.of_flooding(Results.predicted, name) for name in (FLAT, HIERARCHICAL)]
    yield (
        f"The first level: flat `best` leaves {flat:.0%} of flooding's CPU, by the model "
        f"{expected[0]:.0%}; hash of the same size leaves "
        f"{results.of_flooding(Results.measured, HASH):.0%} ("
        f"{results.of_flooding(Results.predicted, HASH):.0%})."
    )
    yield (
        f"The second level on top {_describe_change(flat, both)}; by the model it "
        f"{_describe_change(*expected)}."
    )
    accepted = {
        name: median(found.accepted / found.delivered for found in results.observed[name])
        for name in (FLAT, HIERARCHICAL)
    }
    yield (
        f"It spares the flow filter: {accepted[FLAT]:.1f} messages pass it for each that is "
        f"delivered under flat, {accepted[HIERARCHICAL]:.1f} under hierarchical."
    )
    received = {
        name: median(found.received / found.sent for found in results.observed[name])
        for name in (FLAT, HIERARCHICAL)
    }
    per_packet = results.prices.alpha.per_packet / results.h[HIERARCHICAL]
    most = paid.beta / (paid.alpha + paid.beta)
    yield (
        f"It does not spare the session filter: receivers get {received[FLAT]:.0%} and "
        f"{received[HIERARCHICAL]:.0%} of all messages. Here alpha is {1e9 * paid.alpha:.1f} ns "
        f"({1e9 * per_packet:.1f} of them the message's part of its packet) and beta "
        f"{1e9 * paid.beta:.1f} ns at h = {results.h[HIERARCHICAL]:.1f}, so even a second level "
        f"that lets nothing unwanted pass saves at most {most:.0%} of filtering; where they are "
        "equal, as about in the paper, it is half."
    )
    thinner = 1 - results.h[HIERARCHICAL] / results.h[FLAT]
    yield (
        f"Its price: {results.plans[HIERARCHICAL].n_sessions:,} sessions instead of "
        f"{results.plans[FLAT].n_sessions:,} fill packets {thinner:.1%} less, and each is a stream "
        "to number, repair and announce."
    )
    looking = median(results.looking * found.seconds for found in results.observed[HIERARCHICAL])
    share = looking / median(results.measured(HIERARCHICAL))
    yield (
        f"No plan saves looking: {results.looking:.1%} of a core, {share:.0%} of what a receiver "
        "spends under the hierarchical plan; one that joins nothing spends "
        f"{results.nothing:.1%}."
    )
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
