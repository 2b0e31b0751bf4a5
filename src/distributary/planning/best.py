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
from threading import Event
from typing import Any

import numpy as np

from distributary.cost import FilteringPrices
from distributary.model import FloatArray
from distributary.planning.classes import Part, cut_parts, deal, join_parts
from distributary.planning.hierarchy import Maps, groups_first
from distributary.planning.progress import Progress, Step, silent
from distributary.planning.things import Things
from distributary.planning.two_level import TwoLevel

__all__ = ["Annealed", "Effort", "anneal", "anneal_part", "best", "effort"]

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
class Effort:
    """The work that a budget pays for: `sweeps` for each of the chains that run in parallel."""

    sweeps: int
    chain: int  # sweeps of one chain
    classes: int
    threads: bool  # whether there is enough work for more than one


def effort(budget_s: float, things: Things, n_sessions: int, n_groups: int) -> Effort:
    """Convert a budget into the work that the reference machine (two cores) does in that time."""
    budget_s = min(budget_s, 1e9)
    size = things, n_sessions, n_groups
    classes = 1
    sweeps = int(budget_s / _sweep_seconds(*size, classes))
    while sweeps < MANY_SWEEPS and n_groups // (2 * classes) >= GROUPS_PER_CLASS:
        classes *= 2
        sweeps = int(_CORES * budget_s / _sweep_seconds(*size, classes))
    sweeps = max(1, sweeps)
    chain = min(sweeps, max(SHORTEST_CHAIN, SWEEPS_PER_FLOW * len(things)))
    threads = chain * _sweep_seconds(*size, classes) > _LONG_CHAIN_S
    return Effort(sweeps, chain, classes, threads)


def best(
    things: Things,
    n_sessions: int,
    n_groups: int,
    rng: np.random.Generator,
    prices: FilteringPrices,
    budget_s: float,
    progress: Progress = silent,
    start: Maps | None = None,
    threads: int | None = None,
    patience: float = PATIENCE,
) -> Annealed:
    """Anneal chain after chain while the budget lasts; the result is never worse than the start.

    The clock ends the search after `patience` times the budget.
    """
    deadline = time.monotonic() + patience * budget_s
    found = start or groups_first(things, n_sessions, n_groups, rng, prices)
    least = found.work(things, prices)
    kinds, kind = things.kinds()
    allowed = effort(budget_s, kinds, n_sessions, n_groups)
    left, ties, chains, last_better = allowed.sweeps, 0, 0, 0
    stop = Event()

    def chain(begin: Maps | None, own: np.random.Generator, tell: Progress) -> tuple[Maps, float]:
        """Anneal from a start, given or new, and descend; return maps of kinds and their cost."""
        begin = begin or groups_first(things, n_sessions, n_groups, own, prices)
        coolest, lowest = begin.of_heaviest(things, kind), float("inf")
        sweeps = min(allowed.chain, left)
        cooling = anneal(kinds, coolest, n_groups, sweeps, own, prices, allowed.classes, run_parts)
        for done, work, maps in cooling:
            if work < lowest:
                coolest, lowest = maps, work
            tell(Step("annealing", allowed.sweeps - left + done, allowed.sweeps, lowest))
            if stop.is_set():
                return coolest, lowest
            if time.monotonic() > deadline:
                break
        state = TwoLevel(kinds, coolest, prices, n_groups)
        state.descend(passes=max(_FEWEST_PASSES, sweeps // _SWEEPS_PER_PASS))
        return state.maps, state.work

    def tell_best(step: Step) -> None:
        progress(replace(step, best=min(least, step.best or least)))

    with _crew(allowed, threads, stop) as run_all:
        run_parts, run_chains = (map, run_all) if allowed.classes == 1 else (run_all, map)
        side_by_side = _CORES if allowed.classes == 1 else 1
        while left > 0 and ties < SAME_BEST_TO_STOP and time.monotonic() <= deadline:
            if chains - last_better >= max(CHAINS_IN_VAIN, chains // 2):
                break
            begins = [None if chains else found, *[None] * (side_by_side - 1)]
            listeners = [tell_best, *[silent] * (side_by_side - 1)]
            for maps, work in run_chains(chain, begins, rng.spawn(side_by_side), listeners):
                chains += 1
                if work < least:
                    found, least = Maps(maps.session[kind], maps.group), work
                    ties, last_better = 0, chains
                ties += work == least
            left -= allowed.chain
    return Annealed(found, cut_short=time.monotonic() > deadline)


def anneal(
    things: Things,
    maps: Maps,
    n_groups: int,
    sweeps: int,
    rng: np.random.Generator,
    prices: FilteringPrices,
    classes: int = 1,
    run_all: Mapped = map,
) -> Iterator[tuple[int, float, Maps]]:
    """Cool the maps down over `sweeps`; yield sweeps done, cost and maps after each round."""
    unit = maps.work(things, prices) / len(things)
    hottest = HOTTEST * min(1.0, sweeps / _PLENTY) ** 0.5
    cooled = np.arange(sweeps) / max(1, sweeps - 1)
    heat = unit * hottest * (COLDEST / hottest) ** cooled
    whole = TwoLevel(things, maps, prices, n_groups) if classes == 1 else None
    for first in range(0, sweeps, SWEEPS_PER_ROUND):
        now = heat[first : first + SWEEPS_PER_ROUND]
        regroups = first // SWEEPS_PER_ROUND % ROUNDS_PER_REGROUP == 0
        if whole is not None:
            _cool(whole, now, regroups, rng)
            yield first + len(now), whole.work, whole.maps
            continue
        parts = cut_parts(things, maps, deal(n_groups, classes, rng))
        n = len(parts)
        common = [now] * n, [regroups] * n, [prices] * n
        done = list(run_all(anneal_part, parts, rng.spawn(n), *common))
        maps = join_parts(maps, parts, [inner for inner, _ in done])
        yield first + len(now), sum(work for _, work in done), maps


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


def _sweep_seconds(things: Things, n_sessions: int, n_groups: int, classes: int) -> float:
    """The time that one core of the reference machine needs for a sweep in that many classes."""
    columns = (n_sessions + n_groups) / classes
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
