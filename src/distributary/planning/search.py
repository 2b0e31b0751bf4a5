"""The search that knows every term: one annealing at the level of pairs.

Each pair of a receiver and a flow that it wants has a place: a session, or unicast. A sweep draws a
new place for every part of a flow (the receivers that get it from one place) and, where a flow may
have several places, for every single receiver, by the exact price of each place. Every few sweeps
it draws a new group for every session. What a term forbids is not done; what it bounds in total
(rate sent, unicast, moves) costs a fee while it is nearly used up, so that only what is worth most
remains. A start that breaks limits is repaired first: what is over a limit has a price, which grows
as long as the limit is broken.

As in `best`, the budget is converted into an amount of work by the speed of a reference machine
with two cores, on which two chains run in parallel. So the same seed and budget give the same plan
on any machine and with any number of threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Event

import numpy as np

from distributary.model import FloatArray, IntArray
from distributary.planning._pair_prices import (
    make_room,
)
from distributary.planning._pair_state import (
    COST,
    KINDS,
    MOVED,
    RATE_SENT,
    Bounds,
    PairArrays,
)
from distributary.planning._pair_sweeps import (
    MANY_PAIRS,
    Best,
    cool,
)
from distributary.planning.best import Allowance
from distributary.planning.progress import Progress, Step, silent
from distributary.planning.term_problem import Places, TermProblem

__all__ = ["LEAST_BUDGET_S", "Found", "search_with_terms", "settle_places"]

HOTTEST, WARM, COLDEST = 0.4, 0.05, 0.008  # temperatures, in units of the mean cost of a thing
SWEEPS_PER_ROUND = 20
SWEEPS_PER_REGROUP = 5
LONGEST_ROUND_S = 1.0  # between looks at the clock; longer sweeps are looked at one by one
FEWEST_PASSES, SWEEPS_PER_PASS = 2, 40  # of the descent that ends a chain
SHORTEST_CHAIN, SWEEPS_PER_THING, LONGEST_CHAIN = 200, 16, 4000
FEWEST_SWEEPS = 1600  # of small problems, whatever the budget
SMALL_SWEEP_S = 5e-5
LEAST_BUDGET_S = 2.0  # by the clock, which is not to end the search of a small problem
SWEEPS_TO_REPLAN = 400  # a bound on moves leaves little to search for
SWEEPS_TO_COMPLETE = 20  # if only what is new may go anywhere
ROUNDS_TO_REPAIR = 15
MOST_DESCENTS = 60  # passes; rounding could make more of them cycle
SAME_BEST_TO_STOP = 6  # stop when this many chains end at the same best cost
EXCHANGE = 0.25  # share of things that may push another out of a full group, in each sweep
LEAST_FEE, FIRST_FEE, DEAREST_FEE = 1e-9, 0.1, 10.0  # in units of the mean cost of what a fee is on
_NEAR = 600_000  # receivers x columns whose state fits into a core's cache
_LANES = 2  # chains side by side, as the reference machine has cores
_LONG_SWEEP_S = 1e-4  # shorter sweeps are not worth a thread


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """The best places found, what they cost, and by how much they break which kind of limit."""

    places: Places
    cost: float
    over: FloatArray = field(default_factory=lambda: np.zeros(KINDS))
    cut_short: bool = False

    @property
    def is_feasible(self) -> bool:
        """Whether no limit is broken."""
        return not self.over.any()

    @property
    def value(self) -> tuple[float, float]:
        """What is over the limits, then the cost."""
        return float(self.over.sum()), self.cost


def search_with_terms(
    problem: TermProblem,
    starts: Sequence[Places],
    rng: np.random.Generator,
    allowance: Allowance,
    progress: Progress = silent,
    *,
    insist: bool = True,
) -> Found:
    """Anneal chain after chain from the starts while the budget lasts; return the best found.

    If every start is within the limits, the result is never worse than the best of them. Unless it
    is to `insist`, it gives up if the first chains do not meet the limits of a small problem.
    """
    deadline = time.monotonic() + allowance.patience * max(allowance.budget_s, LEAST_BUDGET_S)
    search = _Search(problem, starts, allowance.budget_s, deadline, progress, insist)
    n_threads = min(_LANES, allowance.threads or _LANES)
    if n_threads == 1 or search.sweep_s < _LONG_SWEEP_S:
        return search.run(rng, None)
    with ThreadPoolExecutor(n_threads) as pool:
        try:
            return search.run(rng, pool)
        except BaseException:
            search.stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def settle_places(problem: TermProblem, places: Places) -> Places:
    """Put everything that is new where it costs least, without moving anything else."""
    moved = float(problem.begin(places).table.sums[MOVED])
    chain = _Chain(problem, places, 0, max_moves=moved)
    chain.descend()
    return chain.found.places


class _Search:
    """Chains of annealing: the best places found, and what is left of the budget."""

    def __init__(
        self,
        problem: TermProblem,
        starts: Sequence[Places],
        budget_s: float,
        deadline: float,
        progress: Progress,
        insist: bool,
    ) -> None:
        self._insist = insist
        self._problem, self._deadline, self._progress = problem, deadline, progress
        self._starts = list(starts)
        self.stop = Event()
        self.sweep_s = _sweep_seconds(problem)
        sweeps = int(min(budget_s, 1e9) / self.sweep_s)
        if self.sweep_s < SMALL_SWEEP_S:
            sweeps = max(sweeps, FEWEST_SWEEPS)
        is_small = self.sweep_s < SMALL_SWEEP_S
        self._few_moves = not is_small and problem.bounds.moves < len(problem) / 2
        if self._few_moves:
            sweeps = min(sweeps, SWEEPS_TO_REPLAN if problem.bounds.moves else SWEEPS_TO_COMPLETE)
        self._sweeps = self._left = max(1, sweeps)
        self._round = SWEEPS_PER_ROUND if self.sweep_s * SWEEPS_PER_ROUND < LONGEST_ROUND_S else 1
        self._best: Found | None = None
        self._ties = self._chains = 0

    def run(self, rng: np.random.Generator, pool: ThreadPoolExecutor | None) -> Found:
        """Anneal until the budget ends or the same best cost comes again and again."""
        run_all = map if pool is None else pool.map
        while self._best is None or self._is_worth_more():
            chain = min(
                self._left,
                max(SHORTEST_CHAIN, min(SWEEPS_PER_THING * len(self._problem), LONGEST_CHAIN)),
            )
            lanes = range(self._chains, self._chains + _LANES)
            begins = [self._begin(nth) for nth in lanes]
            heats = [self._hottest(nth) for nth in lanes]
            tells = [self._tell, *[silent] * (_LANES - 1)]
            for found in run_all(
                self._anneal, begins, heats, [chain] * _LANES, rng.spawn(_LANES), tells
            ):
                self._offer(found)
            self._left -= chain
        assert self._best is not None
        over_time = time.monotonic() > self._deadline
        return Found(self._best.places, self._best.cost, self._best.over, over_time)

    def _is_worth_more(self) -> bool:
        is_small = self.sweep_s < SMALL_SWEEP_S
        if is_small and not self._insist and self._best and not self._best.is_feasible:
            return False
        return (
            self._left > 0 and self._ties < SAME_BEST_TO_STOP and time.monotonic() <= self._deadline
        )

    def _begin(self, nth: int) -> Places:
        """The first chains begin at the starts in turn, later ones at the best."""
        if self._best is None or nth < len(self._starts):
            return self._starts[nth % len(self._starts)]
        return self._best.places

    def _hottest(self, nth: int) -> float:
        """The first lane improves what it begins with; the others look further away."""
        if self._few_moves:
            return (0.0, WARM)[nth % _LANES]
        if nth < _LANES and self._problem.bounds.copies:
            return WARM  # copies would scatter, and take long to gather again
        return (WARM, HOTTEST)[nth % _LANES] if nth < 2 * _LANES else (0.15, 1.0)[nth % _LANES]

    def _offer(self, found: Found) -> None:
        self._chains += 1
        if self._best is None or found.value < self._best.value:
            self._best, self._ties = found, 0
        self._ties += found.value == self._best.value and found.is_feasible

    def _tell(self, step: Step) -> None:
        least = float("inf") if self._best is None else self._best.cost
        self._progress(Step(step.stage, step.done, step.total, min(least, step.best or least)))

    def _anneal(
        self, begin: Places, hottest: float, sweeps: int, rng: np.random.Generator, tell: Progress
    ) -> Found:
        """Repair, cool down over so many sweeps, and descend."""
        chain = _Chain(self._problem, begin, int(rng.integers(2**63)))
        done = self._sweeps - self._left
        if chain.is_broken:
            for nth in range(0, ROUNDS_TO_REPAIR * SWEEPS_PER_ROUND, self._round):
                cooled = (nth + np.arange(self._round, dtype=np.float64)) % SWEEPS_PER_ROUND
                chain.sweep(0.1 * chain.unit * 0.7**cooled)
                tell(Step("repairing", done, self._sweeps))
                if not chain.is_broken or self.stop.is_set() or self._is_late():
                    break
            else:
                hottest = HOTTEST
        cooled = np.arange(sweeps) / max(1, sweeps - 1)
        coldest = min(COLDEST, hottest)
        temperature = chain.unit * hottest * (coldest / max(hottest, COLDEST)) ** cooled
        for first in range(0, sweeps, self._round):
            chain.sweep(temperature[first : first + self._round])
            tell(Step("annealing", done + first, self._sweeps, chain.least))
            if self.stop.is_set() or self._is_late():
                break
        few = max(FEWEST_PASSES, sweeps // SWEEPS_PER_PASS)
        chain.descend(MOST_DESCENTS if self._round > 1 else few, self._is_late)
        tell(Step("annealing", done + sweeps, self._sweeps, chain.least))
        return chain.found

    def _is_late(self) -> bool:
        return time.monotonic() > self._deadline


class _Chain:
    """One chain: its state, its fees, and the best places that it has seen."""

    def __init__(
        self, problem: TermProblem, begin: Places, seed: int, max_moves: float | None = None
    ) -> None:
        self._problem, self._max_moves, self._swept = problem, max_moves, 0
        self._state: PairArrays = problem.begin(begin, max_moves)
        table, wants = self._state.table, problem.wants
        largest = int(np.diff(wants.offsets).max())
        self._room = make_room(problem.n_sessions, problem.n_groups, largest, seed)
        self._best = Best(table.place.copy(), table.group.copy(), np.full(3, np.inf))
        cost = max(float(table.sums[COST]), 1e-300)
        self.unit = cost / len(problem)
        per_rate = cost / max(float(table.sums[RATE_SENT]), 1e-300)
        per_pair = cost / len(wants.members)
        means = np.array([per_rate, per_pair, per_rate, self.unit])
        self._fees = np.where(_bounded(problem.bounds), FIRST_FEE, 0.0) * means
        self._fees[3] *= 10
        self._most = DEAREST_FEE * means
        # What saves nothing is not sent again, nor by unicast.
        self._least_fees = LEAST_FEE * means * (1, 1, 0, 0)
        mean_rate = float(wants.rate.mean())
        self._room_left = np.array([mean_rate, 1.0, mean_rate, 1.0])
        self._weight = np.full(KINDS, cost / problem.n_groups)
        self._exchange = EXCHANGE if problem.bounds.any_limit else 0.0
        self._note_best()

    @property
    def is_broken(self) -> bool:
        """Whether the current places break a limit."""
        return bool(self._state.table.broken.any())

    @property
    def least(self) -> float:
        """The cost of the best places."""
        return float(self._best.value[1])

    @property
    def found(self) -> Found:
        """The best places seen, counted anew."""
        places = Places(self._best.place, self._best.group)
        table = self._problem.begin(places).table
        over = np.where(table.broken > 0, np.maximum(table.over, 1e-12), 0.0)
        return Found(places, float(table.sums[COST]), over)

    def sweep(self, temperatures: FloatArray) -> int:
        """Sweep at each temperature; return how many moved in the last sweep."""
        regroups = SWEEPS_PER_REGROUP
        if len(temperatures) < SWEEPS_PER_REGROUP:
            regroups = int(self._swept % SWEEPS_PER_REGROUP == 0)
        self._swept += len(temperatures)
        return self._cool(temperatures, self._fees, regroups)

    def descend(
        self, passes: int = MOST_DESCENTS, is_late: Callable[[], bool] = lambda: False
    ) -> None:
        """Make moves from the best places while one of them lowers the cost, and time is left."""
        places = Places(self._best.place.copy(), self._best.group.copy())
        self._state = self._problem.begin(places, self._max_moves)
        for nth in range(min(passes, MOST_DESCENTS)):
            if nth >= FEWEST_PASSES and is_late():
                return
            if not self._cool(np.zeros(1), self._least_fees.copy(), 1):
                return

    def _cool(self, temperatures: FloatArray, fees: FloatArray, regroups: int) -> int:
        return int(
            cool(
                temperatures,
                fees,
                self._most,
                self._room_left,
                self._weight,
                self._exchange,
                regroups,
                self._state,
                self._room,
                self._best,
            )
        )

    def _note_best(self) -> None:
        self._cool(np.zeros(0), self._fees, 0)


def _bounded(bounds: Bounds) -> IntArray:
    """Which totals are bounded, in the order of the fees."""
    caps = np.array([bounds.sent, bounds.links, bounds.extra, bounds.moves])
    return np.asarray(caps < np.inf)


def _sweep_seconds(problem: TermProblem) -> float:
    """The time that one core of the reference machine needs for a sweep."""
    wants, bounds = problem.wants, problem.bounds
    things, pairs, columns = len(problem), len(wants.members), problem.n_sessions + problem.n_groups
    is_near = len(wants.weight) * columns < _NEAR
    per_pair = 60 + 0.05 * columns if is_near else 100 + 0.33 * columns
    if bounds.any_limit:
        per_pair = 1.5 * per_pair + (5 * problem.n_groups if len(bounds.capped) else 0)
    if bounds.copies or bounds.unicast_receivers:
        per_pair += 400 + 1.3 * columns if pairs > MANY_PAIRS else 1800 + columns
    return 1e-5 + 1e-9 * (things * (1700 + 3 * columns) + pairs * per_pair)
