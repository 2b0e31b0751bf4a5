"""The `best` planner: annealing on the exact two-level cost.

The search starts from groups-first. Each sweep draws a new session for every flow with a
probability proportional to exp(-price/T); every few sweeps it does the same for the group of every
session. The temperature T falls, and a descent ends the search. Unlike the published algorithms it
moves flows and sessions at the same time and uses alpha and beta at every step.

Flows with the same receivers are moved as one: splitting them never pays, because the cost is
linear in the rate that each session carries. If the budget allows only a few sweeps over the whole
problem, the groups are dealt into classes, anew in each round, and each class is annealed
separately: n classes make a draw n times cheaper, and threads can work on them in parallel. If it
allows many sweeps, two chains run in parallel and the better result is kept.

The budget is converted into an amount of work by the speed of a reference machine with two cores,
not by the clock. So the same seed and budget give the same plan on any machine and with any number
of threads. The clock only ends a run that takes more than `PATIENCE` times its budget; the result
then says `cut_short`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from threading import Event
from typing import Any

import numpy as np

from distributary.cost import FilteringPrices
from distributary.model import FloatArray
from distributary.planning.classes import Part, cut_parts, deal, join_parts
from distributary.planning.hierarchy import Maps, TwoLevelProblem, groups_first
from distributary.planning.progress import Progress, Step, silent
from distributary.planning.two_level import TwoLevel

__all__ = ["Allowance", "Annealed", "Effort", "anneal", "anneal_part", "best", "effort"]

HOTTEST, COLDEST = 0.4, 0.008  # temperatures, in units of the mean cost of a flow
SWEEPS_PER_ROUND = 5
ROUNDS_PER_REGROUP = 4
MANY_SWEEPS = 400  # with fewer over the whole problem, groups are annealed in classes
GROUPS_PER_CLASS = 12  # at least
SWEEPS_PER_FLOW = 16  # of the longest chain; the rest of the budget goes into further chains
SHORTEST_CHAIN = 200
SAME_BEST_TO_STOP = 4  # stop when this many chains end at the same best cost
CHAINS_IN_VAIN = 10  # stop when this many, and half of all chains, found nothing better
PATIENCE = 2.5  # the clock stops a run after this many times its budget
_FEWEST_PASSES, _SWEEPS_PER_PASS = 2, 40  # of the descent that ends a chain
_PLENTY = 200  # sweeps; with fewer, annealing starts cooler
_CORES = 2  # of the reference machine
_NEAR = 600_000  # receivers x columns whose state fits into a core's cache
_LONG_CHAIN_S = 0.01  # shorter chains are not worth a thread

Mapped = Callable[..., Iterator[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class Annealed:
    """The best maps found, and whether the clock ended the run."""

    maps: Maps
    cut_short: bool = False


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a search may use. The clock ends it after `patience` times the budget."""

    budget_s: float
    patience: float = PATIENCE
    threads: int | None = None  # all cores without it


@dataclass(frozen=True, slots=True)
class Effort:
    """The work that a budget pays for: `sweeps` for each of the chains that run in parallel."""

    sweeps: int
    chain: int  # sweeps of one chain
    classes: int
    threads: bool  # whether there is enough work for more than one


def effort(budget_s: float, problem: TwoLevelProblem) -> Effort:
    """Convert a budget into the work that the reference machine (two cores) does in that time."""
    budget_s = min(budget_s, 1e9)
    things, n_groups = problem.things, problem.n_groups
    classes = 1
    sweeps = int(budget_s / _sweep_seconds(problem, classes))
    while sweeps < MANY_SWEEPS and n_groups // (2 * classes) >= GROUPS_PER_CLASS:
        classes *= 2
        sweeps = int(_CORES * budget_s / _sweep_seconds(problem, classes))
    sweeps = max(1, sweeps)
    chain = min(sweeps, max(SHORTEST_CHAIN, SWEEPS_PER_FLOW * len(things)))
    threads = chain * _sweep_seconds(problem, classes) > _LONG_CHAIN_S
    return Effort(sweeps, chain, classes, threads)


def best(
    problem: TwoLevelProblem,
    rng: np.random.Generator,
    allowance: Allowance,
    progress: Progress = silent,
    start: Maps | None = None,
) -> Annealed:
    """Anneal chain after chain while the budget lasts; the result is never worse than the start."""
    deadline = time.monotonic() + allowance.patience * allowance.budget_s
    chains = _Chains(
        problem, start or groups_first(problem, rng), allowance.budget_s, deadline, progress
    )
    return chains.run(rng, allowance.threads)


class _Chains:
    """A search by chains: the best maps found, and what is left of the budget."""

    def __init__(
        self,
        problem: TwoLevelProblem,
        start: Maps,
        budget_s: float,
        deadline: float,
        progress: Progress,
    ) -> None:
        self._problem, self._progress, self._deadline = problem, progress, deadline
        self._found, self._least = start, problem.price(start)
        things, self._kind = problem.things.kinds()
        self._kinds = replace(problem, things=things)
        self._effort = effort(budget_s, self._kinds)
        self._left = self._effort.sweeps
        self._ties = self._chains = self._last_better = 0
        self._stop = Event()

    def run(self, rng: np.random.Generator, threads: int | None) -> Annealed:
        """Anneal chain after chain until the budget ends or more of them would be in vain."""
        with _crew(self._effort, threads, self._stop) as run_all:
            in_classes = self._effort.classes > 1
            run_parts, run_chains = (run_all, map) if in_classes else (map, run_all)
            anneal_chain = partial(self._anneal_chain, run_parts)
            side_by_side = 1 if in_classes else _CORES
            while self._is_worth_more():
                begins = [None if self._chains else self._found, *[None] * (side_by_side - 1)]
                listeners = [self._tell_best, *[silent] * (side_by_side - 1)]
                chains = run_chains(anneal_chain, begins, rng.spawn(side_by_side), listeners)
                for maps, work in chains:
                    self._offer(maps, work)
                self._left -= self._effort.chain
        return Annealed(self._found, cut_short=time.monotonic() > self._deadline)

    def _is_worth_more(self) -> bool:
        in_vain = self._chains - self._last_better
        return (
            self._left > 0
            and self._ties < SAME_BEST_TO_STOP
            and time.monotonic() <= self._deadline
            and in_vain < max(CHAINS_IN_VAIN, self._chains // 2)
        )

    def _anneal_chain(
        self, run_parts: Mapped, begin: Maps | None, rng: np.random.Generator, tell: Progress
    ) -> tuple[Maps, float]:
        """Anneal from a start, given or new, and descend; return maps of kinds and their cost."""
        begin = begin or groups_first(self._problem, rng)
        coolest, lowest = begin.of_heaviest(self._problem.things, self._kind), float("inf")
        allowed = self._effort
        sweeps = min(allowed.chain, self._left)
        cooling = anneal(self._kinds, coolest, sweeps, rng, allowed.classes, run_parts)
        for done, work, maps in cooling:
            if work < lowest:
                coolest, lowest = maps, work
            tell(Step("annealing", allowed.sweeps - self._left + done, allowed.sweeps, lowest))
            if self._stop.is_set():
                return coolest, lowest
            if time.monotonic() > self._deadline:
                break
        state = _start_from(self._kinds, coolest)
        state.descend(passes=max(_FEWEST_PASSES, sweeps // _SWEEPS_PER_PASS))
        return state.maps, state.work

    def _offer(self, maps: Maps, work: float) -> None:
        """Keep maps of kinds if they are better than the best."""
        self._chains += 1
        if work < self._least:
            self._found, self._least = Maps(maps.session[self._kind], maps.group), work
            self._ties, self._last_better = 0, self._chains
        self._ties += work == self._least

    def _tell_best(self, step: Step) -> None:
        self._progress(replace(step, best=min(self._least, step.best or self._least)))


def anneal(
    problem: TwoLevelProblem,
    maps: Maps,
    sweeps: int,
    rng: np.random.Generator,
    classes: int = 1,
    run_all: Mapped = map,
) -> Iterator[tuple[int, float, Maps]]:
    """Cool the maps down over `sweeps`; yield sweeps done, cost and maps after each round."""
    unit = problem.price(maps) / len(problem.things)
    hottest = HOTTEST * min(1.0, sweeps / _PLENTY) ** 0.5
    cooled = np.arange(sweeps) / max(1, sweeps - 1)
    heat = unit * hottest * (COLDEST / hottest) ** cooled
    whole = _start_from(problem, maps) if classes == 1 else None
    for first in range(0, sweeps, SWEEPS_PER_ROUND):
        now = heat[first : first + SWEEPS_PER_ROUND]
        regroups = first // SWEEPS_PER_ROUND % ROUNDS_PER_REGROUP == 0
        if whole is not None:
            _cool(whole, now, regroups, rng)
            yield first + len(now), whole.work, whole.maps
            continue
        parts = cut_parts(problem.things, maps, deal(problem.n_groups, classes, rng))
        n = len(parts)
        common = [now] * n, [regroups] * n, [problem.prices] * n
        done = list(run_all(anneal_part, parts, rng.spawn(n), *common))
        maps = join_parts(maps, parts, [inner for inner, _ in done])
        yield first + len(now), sum(work for _, work in done), maps


def _start_from(problem: TwoLevelProblem, maps: Maps) -> TwoLevel:
    return TwoLevel(problem.things, maps, problem.prices, problem.n_groups)


def anneal_part(
    part: Part,
    rng: np.random.Generator,
    heat: FloatArray,
    regroups: bool,
    prices: FilteringPrices,
) -> tuple[Maps, float]:
    """Sweep one class at each of the temperatures; return its maps and their cost."""
    state = TwoLevel(part.things, part.maps, prices, len(part.groups))
    _cool(state, heat, regroups, rng)
    return state.maps, state.work


def _cool(state: TwoLevel, heat: FloatArray, regroups: bool, rng: np.random.Generator) -> None:
    n_flows = len(state.things)
    for temperature in heat:
        state.sweep(rng.permutation(n_flows), rng.random(n_flows), temperature)
    if regroups:
        state.regroup(rng.random(state.n_sessions), heat[-1])


def _sweep_seconds(problem: TwoLevelProblem, classes: int) -> float:
    """The time that one core of the reference machine needs for a sweep in that many classes."""
    things = problem.things
    columns = (problem.n_sessions + problem.n_groups) / classes
    is_near = things.n_receivers * columns < _NEAR
    per_pair = 10 + 0.05 * columns if is_near else 45 + 0.33 * columns
    return 5e-5 + 1e-9 * (len(things) * (170 + 1.5 * columns) + len(things.members) * per_pair)


def _cores() -> int:
    """The number of cores that this process may use, or all cores if the system cannot tell."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def _crew(allowed: Effort, threads: int | None, stop: Event) -> Iterator[Mapped]:
    """Yield the function that maps chains or parts in parallel, or `map` if threads would not help.

    An exception sets `stop`, so that running chains end soon, and drops those that wait.
    """
    n_threads = threads or _cores()
    if n_threads == 1 or not allowed.threads:
        yield map
        return
    with ThreadPoolExecutor(n_threads) as pool:
        try:
            yield pool.map
        except BaseException:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
