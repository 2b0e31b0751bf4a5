"""Our own planner: annealing on the exact two-level cost.

From groups-first, every flow is redrawn over all sessions in proportion to exp(-price/T), and every
session over all groups, while the temperature T falls; a descent ends it. Unlike the published
algorithms it moves on both levels at once and looks at alpha and beta at every step.

The budget is turned into work by the speed of a plain machine, not by the clock: the same seed and
budget give the same plan on any machine and any number of threads. The clock only stops a run that
is slower than that by far, and such a run says so.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from distributary.cost import FilteringPrices
from distributary.planning.hierarchy import Maps, groups_first
from distributary.planning.progress import Progress, Step, silent
from distributary.planning.things import Things
from distributary.planning.two_level import TwoLevel

__all__ = ["Annealed", "anneal", "best", "sweeps_within"]

HOTTEST, COLDEST = 1.0, 0.01  # temperatures, in units of the mean cost of a flow
SWEEPS_PER_REGROUP = 5
LONGEST_CHAIN = 8_000  # sweeps; what is left of the budget goes into another chain
SHORTEST_CHAIN = 200
SAME_BEST_TO_STOP = 4  # chains that end at the same best cost: nothing more to expect
CHAINS_IN_VAIN = 10  # without a better plan, and half of all chains: nothing more to expect
SESSIONS_PER_FLOW = 16  # of a block, whose flows are drawn side by side: few meet in a session
SHORT_BLOCK_S = 0.0006  # to draw; below this, threads cost more than they bring
_FEWEST_PASSES, _SWEEPS_PER_PASS = 4, 8  # of the descent that ends a chain
_PLENTY = 200  # sweeps; with fewer, annealing starts cooler
_NEAR = 2**21  # bytes of state that a core has at hand; beyond, reading it takes longer
PATIENCE = 1.5  # budgets after which the clock stops a run


@dataclass(frozen=True, slots=True, eq=False)
class Annealed:
    """The best maps met, and whether the clock had to end the run."""

    maps: Maps
    cut_short: bool = False


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
) -> Annealed:
    """Anneal chain after chain while the budget lasts; never worse than its start."""
    deadline = time.monotonic() + PATIENCE * budget_s
    found = start or groups_first(things, n_sessions, n_groups, rng, prices)
    least = TwoLevel(things, found, prices).work
    left = sweeps_within(budget_s, things, n_sessions, n_groups)
    total, met, chains, last_better = left, 0, 0, 0
    chain = min(left, max(SHORTEST_CHAIN, min(LONGEST_CHAIN, len(things))))
    cut_short = False
    share = min(1.0, _block(n_sessions) / len(things))
    block_s = share * _sweep_seconds(things, n_sessions + n_groups)
    with _pool(block_s, threads) as (pool, n_threads):
        while left > 0 and not cut_short and met < SAME_BEST_TO_STOP:
            if chains - last_better >= max(CHAINS_IN_VAIN, chains // 2):
                break
            begin = groups_first(things, n_sessions, n_groups, rng, prices) if chains else found
            state = TwoLevel(things, begin, prices)
            chains += 1
            coolest, lowest = begin, state.work
            for done, work in anneal(state, min(chain, left), rng, pool, n_threads):
                if work < lowest:
                    coolest, lowest = state.maps, work
                progress(Step("annealing", total - left + done, total, min(least, lowest)))
                if time.monotonic() > deadline:
                    cut_short = True
                    break
            if lowest < state.work:
                state = TwoLevel(things, coolest, prices)
            state.descend(passes=max(_FEWEST_PASSES, chain // _SWEEPS_PER_PASS))
            if state.work < least:
                found, least, met, last_better = state.maps, state.work, 0, chains
            met += state.work == least
            left -= chain
    return Annealed(found, cut_short)


def anneal(
    state: TwoLevel,
    sweeps: int,
    rng: np.random.Generator,
    pool: ThreadPoolExecutor | None = None,
    threads: int = 1,
) -> Iterator[tuple[int, float]]:
    """Cool the state down over so many sweeps; yields after each one how many and the cost."""
    n_flows = len(state.things)
    unit = state.work / n_flows
    block = _block(state.n_sessions)
    hottest = HOTTEST * min(1.0, sweeps / _PLENTY) ** 0.5
    for sweep in range(sweeps):
        cooled = sweep / max(1, sweeps - 1)
        temperature = unit * hottest * (COLDEST / hottest) ** cooled
        order, chance = rng.permutation(n_flows), rng.random(n_flows)
        state.sweep(order, chance, temperature, block, pool, threads)
        if sweep % SWEEPS_PER_REGROUP == 0:
            state.regroup(rng.random(state.n_sessions), temperature)
        yield sweep + 1, state.work


def _block(n_sessions: int) -> int:
    return max(1, n_sessions // SESSIONS_PER_FLOW)


def sweeps_within(budget_s: float, things: Things, n_sessions: int, n_groups: int) -> int:
    """How many sweeps a plain machine (one core of a few years ago) does in the budget."""
    return max(1, int(min(budget_s, 1e9) / _sweep_seconds(things, n_sessions + n_groups)))


def _sweep_seconds(things: Things, columns: int) -> float:
    per_byte = 0.12 if things.n_receivers * columns < _NEAR else 0.3
    return 5e-5 + 1e-9 * (
        len(things) * (250 + 3.0 * columns) + len(things.members) * per_byte * columns
    )


def _cores() -> int:
    """The cores this process may use, where the system can say; else all there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def _pool(block_s: float, threads: int | None) -> Iterator[tuple[ThreadPoolExecutor | None, int]]:
    """Threads to draw with, unless there is too little to draw or only one core."""
    n_threads = threads or _cores()
    if n_threads == 1 or block_s < SHORT_BLOCK_S:
        yield None, 1
        return
    with ThreadPoolExecutor(n_threads) as pool:
        yield pool, n_threads
