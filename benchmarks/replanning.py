"""What re-planning a running system saves, over minutes of shifting interests.

The floor and the store are simulated, second by second in virtual time; the control plane's machine
is the real one, and so is the function by which a stream plans. All ways of planning see the same
floor: the same scenes, and the same messages in each second.
"""

from __future__ import annotations

import os
import statistics
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context

import numpy as np
from tests.control.floor import measure
from tests.control.stream import Stream
from tests.control.system import System

from benchmarks.measure import Section
from distributary.control.messages import Proposed
from distributary.control.settings import ControlSettings
from distributary.cost import evaluate
from distributary.model import Demand, Plan, Previous
from distributary.pipeline.following import follow
from distributary.planning import Request, plan
from distributary.workloads import FloorScene, ShiftingFloor, shifting_floor

FLOOR = ShiftingFloor(desks=16, exchanges=3, themes=5, symbols_by_theme=10)
GROUPS, SESSIONS = 6, 18
SEEDS = range(1)
SECONDS, SETTLED = 600, 60  # and those at the beginning that do not count
TRIGGER, WINDOW = 5, 60  # seconds, as by default
BATCH = 2  # seconds from the trigger until a stream's plan is there
EVERY = 60  # seconds between two plans of the oracle
BUDGET_S, ORACLE_BUDGET_S = 0.1, 1.0  # of each plan

Planner = Callable[["Replay", int], None]


@dataclass
class Measured:
    """What all receivers got in each second that counts, and what was decided."""

    wanted: list[int] = field(default_factory=list)
    thrown: list[int] = field(default_factory=list)
    planned: int = 0
    moves: int = 0

    @property
    def share(self) -> float:
        """Messages thrown away, for each one that was wanted."""
        return sum(self.thrown) / sum(self.wanted)

    @property
    def worst_minute(self) -> float:
        """The same, in the worst minute."""
        minutes = range(0, len(self.wanted) - 59, 60)
        return max(
            sum(self.thrown[at : at + 60]) / sum(self.wanted[at : at + 60]) for at in minutes
        )


class Replay:
    """One way of planning on the floor of a seed."""

    def __init__(self, seed: int, planner: Planner, *, max_moves: int | None) -> None:
        self.settings = ControlSettings(
            GROUPS, SESSIONS, max_moves=max_moves, rate_window=float(WINDOW), trigger=float(TRIGGER)
        )
        self.request = Request(GROUPS, SESSIONS, budget_s=BUDGET_S)
        self.max_moves = max_moves
        self.reference: float | None = None  # of the stream
        self.base: Plan | None = None  # that the stream saw last
        self.coming: Plan | None = None  # what the stream is about to propose
        self.scene: FloorScene
        self._scenes = shifting_floor(FLOOR, np.random.default_rng(seed))
        self._planner = planner
        rng = np.random.default_rng([seed, 1])
        self.system = System(self.settings, {}, rng)
        self.system.serve()

    def run(self) -> Measured:
        """Play the floor, and measure."""
        found = Measured()
        following = next(self._scenes)
        for name, flows in following.exchanges.items():
            self.system.floor.publish(name, flows, self.system.now)
        for second in range(SETTLED + SECONDS):
            if second >= following.at:
                self._play(following)
                following = next(self._scenes)
            self.system.run(1.0)
            self._planner(self, second)
            if second >= SETTLED:
                self._measure(found)
        entries = [each for each in self.system.entries("in force") if each.kind == "planned"]
        found.planned, found.moves = len(entries), sum(each.moves for each in entries)
        return found

    def _play(self, scene: FloorScene) -> None:
        self.scene = scene
        floor, now = self.system.floor, self.system.now
        floor.rates = dict(zip(scene.rates.flows, scene.rates.rate.tolist(), strict=True))
        for desk in sorted(floor.receivers.keys() - scene.wanted.keys()):
            floor.leave(desk)
        for desk, flows in sorted(scene.wanted.items()):
            known = floor.receivers.get(desk)
            if known is None or known.wants != flows:
                floor.want(desk, flows, now)

    def _measure(self, found: Measured) -> None:
        floor, plan_now = self.system.floor, self.system.plan
        counts = floor.published[max(floor.published)]
        got = [measure(plan_now, each.wants, counts) for each in floor.receivers.values()]
        found.wanted.append(sum(wanted for wanted, _, _, _ in got))
        found.thrown.append(sum(first + second for _, first, second, _ in got))

    # --- ways of planning -------------------------------------------------------------------------

    def plan_fresh(self) -> None:
        """Propose the plan that is best for the floor as it is now, whatever moves."""
        scene = self.scene
        pairs = [(desk, flow) for desk, flows in scene.wanted.items() for flow in flows]
        request = Request(GROUPS, SESSIONS, budget_s=ORACLE_BUDGET_S)
        self.propose(plan(Demand.of(pairs, scene.rates), request).plan)

    def propose(self, proposed: Plan) -> None:
        """Hand the control plane a plan."""
        self.system.serving.tell(Proposed(1, proposed, {}))

    def plan_batch(self) -> None:
        """Plan as a stream does with a batch, from what the control plane wrote for it."""
        stream = self.system.serving.stream
        assert stream.base is not None
        before, demand = stream.base, _read_demand(stream)
        if self.reference is not None and _is_for(before, demand):
            excess = evaluate(before, demand).filtering.relative_excess
            if excess <= (1 + self.settings.drift) * self.reference:
                self.coming, self.reference = None, min(self.reference, excess)
                return  # as `follow` would, at the price of two searches
        found = follow(
            demand,
            self.request,
            Previous.of(before),
            self.reference,
            self.settings.drift,
            self.max_moves,
            is_base=before is not self.base,
        )
        self.base, self.reference = before, found.reference
        self.coming = found.made.solution.plan if found.moves and found.made is not None else None


def _is_for(made: Plan, demand: Demand) -> bool:
    names = demand.interest.receivers, demand.interest.flows
    return (made.receivers, made.flows) == names


def _read_demand(stream: Stream) -> Demand:
    latest = max(second for second, _ in stream.counts)
    messages: Counter[str] = Counter()
    for (second, flow), count in stream.counts.items():
        if second > latest - WINDOW:
            messages[flow] += count
    wanted = {flow for _, flow in stream.pairs}
    return Demand.of(
        sorted(stream.pairs), {flow: max(1, messages[flow]) / WINDOW for flow in wanted}
    )


def plan_once(replay: Replay, second: int) -> None:
    """Plan at the beginning; place what comes later, and move nothing."""
    if second == SETTLED // 2:
        replay.plan_fresh()


def plan_by_stream(replay: Replay, second: int) -> None:
    """Plan as a stream does, at each trigger."""
    if second < SETTLED // 2:
        return
    if second % TRIGGER == 0:
        replay.plan_batch()
    if second % TRIGGER == BATCH and replay.coming is not None:
        replay.propose(replay.coming)


def plan_by_oracle(replay: Replay, second: int) -> None:
    """Plan anew every minute, knowing the present rates."""
    if second >= SETTLED // 2 and second % EVERY == SETTLED // 2:
        replay.plan_fresh()


ALL = FLOOR.symbols
WAYS: dict[str, tuple[Planner, int | None]] = {
    "planned once, then placed only": (plan_once, ALL),
    "as a stream plans, 2 % of the flows in a change": (plan_by_stream, None),
    "as a stream plans, any number of flows": (plan_by_stream, ALL),
    "oracle: anew every minute": (plan_by_oracle, ALL),
}


def replanning() -> Section:
    """Waste over time, without re-planning, as a stream plans, and by an oracle."""
    load = os.getloadavg()[0]
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        runs_of = {name: [pool.submit(_run, name, seed) for seed in SEEDS] for name in WAYS}
        found = {name: [run.result() for run in runs] for name, runs in runs_of.items()}
    assert all(len(run.thrown) == SECONDS for runs in found.values() for run in runs)
    never, *_, oracle = found.values()
    rows = [
        [
            name,
            ", ".join(f"{run.share:.2f}" for run in runs),
            f"{max(run.worst_minute for run in runs):.2f}",
            f"{_sum_thrown(runs) / _sum_thrown(never):.0%}",
            f"{_sum_thrown(runs) / _sum_thrown(oracle):.0%}",
            f"{_mean_by_minute([run.planned for run in runs]):.1f}",
            f"{_mean_by_minute([run.moves for run in runs]):.0f}",
        ]
        for name, runs in found.items()
    ]
    return Section(
        "Waste over time: re-planned, not re-planned, and by an oracle",
        f"A shifting floor (`workloads.shifting_floor`): {FLOOR.symbols} symbols of "
        f"{FLOOR.exchanges} exchanges, {FLOOR.desks} desks, {FLOOR.rate:g} messages/s, "
        f"{FLOOR.themes} themes of {FLOOR.symbols_by_theme} symbols that last {FLOOR.theme_s:g} s "
        f"each; {GROUPS} groups, {SESSIONS} sessions; {SECONDS} s after {SETTLED} s to begin, with "
        f"seed {', '.join(map(str, SEEDS))}. Not three live systems but a replay in virtual time: "
        "the control plane's machine is the real one, members and store are simulated, and "
        f"messages of a second are Poisson. Every {TRIGGER} s a plan is made by the function that "
        f"`pipeline stream` calls, from what the control plane wrote for it (counts of {WINDOW} s, "
        f"drift 10 %, budget {BUDGET_S:g} s); it is there {BATCH} s later. The oracle plans from "
        f"nothing every {EVERY} s, with a budget of {ORACLE_BUDGET_S:g} s, knows the present rates "
        "without delay, and may move everything. In all rows, flows that come to be wanted are "
        "placed at once. *Thrown away* is what both filters drop, for each message wanted.",
        [
            *("planned", "thrown away, by seed", "worst minute", "of never re-planned"),
            *("of the oracle", "plans/min", "moves/min"),
        ],
        rows,
        f"The oracle is no lower bound: its plans are up to {EVERY} s old, and each search starts "
        f"from nothing. Time is virtual and budgets are work, so the machine's load ({load:.0f} "
        "at the start) counts only where it makes a search take two and a half times its budget.",
    )


def _run(way: str, seed: int) -> Measured:
    planner, most = WAYS[way]
    return Replay(seed, planner, max_moves=most).run()


def _sum_thrown(runs: list[Measured]) -> int:
    return sum(sum(run.thrown) for run in runs)


def _mean_by_minute(counts: list[int]) -> float:
    return 60 * statistics.mean(counts) / (SETTLED + SECONDS)


SECTIONS = {"replanning": replanning}
