"""Our own planner: annealing on the exact two-level cost.

From groups-first, every flow is redrawn over sessions in proportion to exp(-price/T), and now and
then every session over groups, while the temperature T falls; a descent ends it. Unlike the
published algorithms it moves on both levels at once and looks at alpha and beta at every step.

Flows that the same receivers want travel as one: cutting them apart never pays, since the cost is
linear in how much of their rate is where. Where the budget allows only few sweeps over the whole,
the groups are dealt into classes, anew each round, and each class is annealed by itself: a draw
then costs as much less as there are classes, and threads work side by side. Where it allows many,
two chains run side by side and the better one is kept.

The budget is turned into work by the speed of a plain machine with two cores, not by the clock: the
same seed and budget give the same plan on any machine and any number of threads. The clock ends
only a run that takes `PATIENCE` times its budget, and such a run says so.
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
from distributary.planning.classes import Part, cut, deal, join_parts
from distributary.planning.hierarchy import Maps, groups_first
from distributary.planning.progress import Progress, Step, silent
from distributary.planning.things import Things
from distributary.planning.two_level import TwoLevel

__all__ = ["Annealed", "Effort", "anneal", "anneal_part", "best", "effort"]

HOTTEST, COLDEST = 0.4, 0.008  # temperatures, in units of the mean cost of a flow
SWEEPS_PER_ROUND = 5
ROUNDS_PER_REGROUP = 4
MANY_SWEEPS = 400  # with fewer over the whole, it is annealed in classes
GROUPS_PER_CLASS = 12  # at least
SWEEPS_PER_FLOW = 16  # of the longest chain; what is left of the budget goes into others
SHORTEST_CHAIN = 200
SAME_BEST_TO_STOP = 4  # chains that end at the same best cost: nothing more to expect
CHAINS_IN_VAIN = 10  # without a better plan, and half of all chains: nothing more to expect
PATIENCE = 2.5  # budgets after which the clock stops a run
_FEWEST_PASSES, _SWEEPS_PER_PASS = 2, 40  # of the descent that ends a chain
_PLENTY = 200  # sweeps; with fewer, annealing starts cooler
_CORES = 2  # of the plain machine
_NEAR = 600_000  # receivers x columns whose state a core has at hand
_LONG_CHAIN_S = 0.01  # shorter ones are not worth a thread

Mapped = Callable[..., Iterator[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class Annealed:
    """The best maps met, and whether the clock had to end the run."""

    maps: Maps
    cut_short: bool = False


@dataclass(frozen=True, slots=True)
class Effort:
    """What a budget buys: so many sweeps for each of the chains that run side by side."""

    sweeps: int
    chain: int  # sweeps of one chain
    classes: int
    threads: bool  # whether there is enough to do for more than one


def effort(budget_s: float, things: Things, n_sessions: int, n_groups: int) -> Effort:
    """What a plain machine (two cores of a few years ago) can do in the budget."""
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
    """Anneal chain after chain while the budget lasts; never worse than its start.

    The clock ends it after `patience` times the budget.
    """
    deadline = time.monotonic() + patience * budget_s
    found = start or groups_first(things, n_sessions, n_groups, rng, prices)
    least = found.work(things, prices)
    kinds, kind = things.kinds()
    allowed = effort(budget_s, kinds, n_sessions, n_groups)
    left, met, chains, last_better = allowed.sweeps, 0, 0, 0
    stop = Event()

    def chain(begin: Maps | None, own: np.random.Generator, told: Progress) -> tuple[Maps, float]:
        """Anneal from a start of one's own and descend; the maps of the kinds and their cost."""
        begin = begin or groups_first(things, n_sessions, n_groups, own, prices)
        coolest, lowest = begin.of_heaviest(things, kind), float("inf")
        sweeps = min(allowed.chain, left)
        cooling = anneal(kinds, coolest, n_groups, sweeps, own, prices, allowed.classes, run_parts)
        for done, work, maps in cooling:
            if work < lowest:
                coolest, lowest = maps, work
            told(Step("annealing", allowed.sweeps - left + done, allowed.sweeps, lowest))
            if stop.is_set():
                return coolest, lowest
            if time.monotonic() > deadline:
                break
        state = TwoLevel(kinds, coolest, prices, n_groups)
        state.descend(passes=max(_FEWEST_PASSES, sweeps // _SWEEPS_PER_PASS))
        return state.maps, state.work

    def told(step: Step) -> None:
        progress(replace(step, best=min(least, step.best or least)))

    with _crew(allowed, threads, stop) as run_all:
        run_parts, run_chains = (map, run_all) if allowed.classes == 1 else (run_all, map)
        side_by_side = _CORES if allowed.classes == 1 else 1
        while left > 0 and met < SAME_BEST_TO_STOP and time.monotonic() <= deadline:
            if chains - last_better >= max(CHAINS_IN_VAIN, chains // 2):
                break
            begins = [None if chains else found, *[None] * (side_by_side - 1)]
            heard = [told, *[silent] * (side_by_side - 1)]
            for maps, work in run_chains(chain, begins, rng.spawn(side_by_side), heard):
                chains += 1
                if work < least:
                    found, least = Maps(maps.session[kind], maps.group), work
                    met, last_better = 0, chains
                met += work == least
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
    """Cool the maps down over so many sweeps; yields after each round how many, cost and maps."""
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
        parts = cut(things, maps, deal(n_groups, classes, rng))
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
    """A sweep over one class at each of the temperatures; its maps and what they cost."""
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
    """How long one core takes for a sweep in so many classes."""
    columns = (n_sessions + n_groups) / classes
    is_near = things.n_receivers * columns < _NEAR
    per_pair = 10 + 0.05 * columns if is_near else 45 + 0.33 * columns
    return 5e-5 + 1e-9 * (len(things) * (170 + 1.5 * columns) + len(things.members) * per_pair)


def _cores() -> int:
    """The cores this process may use, where the system can say; else all there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def _crew(allowed: Effort, threads: int | None, stop: Event) -> Iterator[Mapped]:
    """What runs chains or parts side by side, if there is enough to do and more than one core.

    An exception sets `stop`, so that chains under way end soon, and drops those that wait.
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
