"""Two levels of clustering: flows into sessions, sessions into groups.

Reference: Tock et al. (2005), section 4.3. Neither `sessions_first` nor `groups_first` looks at
alpha and beta; `iterative` and `scatter_and_regroup` use them to choose the best map found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count

import numpy as np

from distributary.cost import FilteringPrices
from distributary.model import IndexArray, IntArray
from distributary.planning.kmeans import kmeans, random_start
from distributary.planning.progress import Progress, Step, silent
from distributary.planning.things import Things

__all__ = [
    "Annealing",
    "Maps",
    "groups_first",
    "iterative",
    "scatter_and_regroup",
    "sessions_first",
    "sessions_in_groups",
]


@dataclass(frozen=True, slots=True, eq=False)
class Maps:
    """Flow -> session and session -> group. Sessions may be empty while a solver runs."""

    session: IndexArray
    group: IndexArray

    @property
    def flow_group(self) -> IndexArray:
        """Flow -> group."""
        return self.group[self.session]

    def compact(self) -> Maps:
        """The same maps without empty sessions and groups, numbered by first use."""
        session, used = _by_first_use(self.session)
        group, _ = _by_first_use(self.group[used])
        return Maps(session, group)

    def close_gaps(self) -> tuple[Maps, IntArray]:
        """The same maps without empty sessions and groups; the last ones move into the gaps.

        Also returns the number that each session had before.
        """
        session, before = _fill_gaps(self.session, len(self.group))
        group, _ = _fill_gaps(self.group[before], int(self.group.max()) + 1)
        return Maps(session, group), before

    def of_heaviest(self, things: Things, kind: IndexArray) -> Maps:
        """Put each kind of things where its heaviest thing is."""
        order = np.argsort(things.weight, kind="stable")
        session = np.zeros(int(kind.max()) + 1, np.int32)
        session[kind[order]] = self.session[order]
        return Maps(session, self.group)

    def work(self, things: Things, prices: FilteringPrices) -> float:
        """Cw in the whole-number rates of `things`: exact sums, priced at the end."""
        received = things.intake(self.flow_group, int(self.group.max()) + 1)
        accepted = things.intake(self.session, len(self.group))
        return prices.work(received, accepted)


@dataclass(frozen=True, slots=True, eq=False)
class TwoLevelProblem:
    """Things to put into at most so many sessions, and those into at most so many groups."""

    things: Things
    n_sessions: int
    n_groups: int
    prices: FilteringPrices = field(default_factory=FilteringPrices)

    def price(self, maps: Maps) -> float:
        """Cw of maps, in the whole-number rates of the things."""
        return maps.work(self.things, self.prices)


def sessions_first(
    problem: TwoLevelProblem,
    rng: np.random.Generator,
    progress: Progress = silent,
) -> Maps:
    """SF: cluster flows into sessions, then the sessions into groups."""
    n_sessions, n_groups = problem.n_sessions, problem.n_groups
    start = Maps(
        random_start(len(problem.things), n_sessions, rng), random_start(n_sessions, n_groups, rng)
    )
    return _sessions_then_groups(problem.things, start, n_groups, progress)


def groups_first(
    problem: TwoLevelProblem,
    rng: np.random.Generator,
    progress: Progress = silent,
) -> Maps:
    """GF: cluster flows into groups, then each group's flows into its share of the sessions."""
    things, n_groups, prices = problem.things, problem.n_groups, problem.prices
    # While a group is one session, receivers accept all that they receive.
    watch = _watch("flows into groups", lambda intake: prices.work(intake, intake), progress)
    group = kmeans(things, random_start(len(things), n_groups, rng), n_groups, watch)
    return sessions_in_groups(things, group, problem.n_sessions, n_groups, rng)


def iterative(
    problem: TwoLevelProblem,
    rng: np.random.Generator,
    progress: Progress = silent,
    iterations: int = 4,
) -> Maps:
    """IT: from GF, alternate SF and GF, each starting from the other's maps; keep the best."""
    things, n_sessions, n_groups = problem.things, problem.n_sessions, problem.n_groups
    current = groups_first(problem, rng, progress)
    best = _Best(problem, current)
    for iteration in range(iterations):
        progress(Step("alternating", iteration, iterations, best.work))
        current = _sessions_then_groups(things, current, n_groups)
        best.offer(current)
        group = kmeans(things, current.flow_group, n_groups)
        current = sessions_in_groups(things, group, n_sessions, n_groups, rng)
        best.offer(current)
    progress(Step("alternating", iterations, iterations, best.work))
    return best.maps


@dataclass(frozen=True, slots=True)
class Annealing:
    """RRA's schedule, in percent of the flows: from `first`, times `factor`, while above `last`."""

    first: float = 10.0
    last: float = 0.5
    factor: float = 0.8

    def __post_init__(self) -> None:
        if not (0 < self.last < self.first <= 100 and 0 < self.factor < 1):
            raise ValueError("annealing needs 0 < last < first <= 100 and 0 < factor < 1")

    def percentages(self) -> Iterator[float]:
        """The share of flows that each round scatters."""
        percent = self.first
        while percent >= self.last:
            yield percent
            percent *= self.factor


def scatter_and_regroup(
    problem: TwoLevelProblem,
    rng: np.random.Generator,
    progress: Progress = silent,
    schedule: Annealing | None = None,
) -> Maps:
    """RRA: from GF, scatter ever fewer flows at random and run GF again from there; keep the best.

    A flow that stays in its group starts the second step from its old session; one that changed
    groups starts in a random session of the new one.
    """
    percentages = list((schedule or Annealing()).percentages())
    things, n_sessions, n_groups = problem.things, problem.n_sessions, problem.n_groups
    current = groups_first(problem, rng, progress)
    best = _Best(problem, current)
    for round_, percent in enumerate(percentages):
        progress(Step("annealing", round_, len(percentages), best.work))
        scattered = rng.choice(
            len(things), max(1, round(percent / 100 * len(things))), replace=False
        )
        session = current.session.copy()
        session[scattered] = random_start(len(scattered), len(current.group), rng)
        start = Maps(session, current.group)
        group = kmeans(things, start.flow_group, n_groups)
        current = sessions_in_groups(things, group, n_sessions, n_groups, rng, start)
        best.offer(current)
    progress(Step("annealing", len(percentages), len(percentages), best.work))
    return best.maps


class _Best:
    """The cheapest maps offered so far."""

    def __init__(self, problem: TwoLevelProblem, maps: Maps) -> None:
        self._problem = problem
        self.maps, self.work = maps, problem.price(maps)

    def offer(self, maps: Maps) -> None:
        work = self._problem.price(maps)
        if work < self.work:
            self.maps, self.work = maps, work


def _watch(
    stage: str, cost: Callable[[int], float | None], progress: Progress
) -> Callable[[int], None]:
    """Report the intake after each k-means pass as progress."""
    passes = count(1)
    return lambda intake: progress(Step(stage, next(passes), None, cost(intake)))


def _sessions_then_groups(
    things: Things, start: Maps, n_groups: int, progress: Progress = silent
) -> Maps:
    watch = _watch("flows into sessions", lambda intake: None, progress)
    session = kmeans(things, start.session, len(start.group), watch)
    streams = things.merge(session, len(start.group))
    return Maps(session, kmeans(streams, start.group, n_groups))


def sessions_in_groups(
    things: Things,
    group: IndexArray,
    n_sessions: int,
    n_groups: int,
    rng: np.random.Generator,
    start: Maps | None = None,
) -> Maps:
    """Cluster the flows of each group separately into the group's share of the sessions.

    With `start`, a flow that is still in the group of its session begins in that session, if the
    share is large enough.
    """
    order = np.argsort(group, kind="stable")
    flows_of = np.split(order, np.cumsum(np.bincount(group, minlength=n_groups))[:-1])
    shares = _equal_shares(n_sessions, np.array([len(flows) for flows in flows_of]))
    session = np.empty(len(things), np.int32)
    first = 0
    for g, (flows, share) in enumerate(zip(flows_of, shares, strict=True)):
        if share == 0:
            continue
        begin = random_start(len(flows), share, rng)
        if start is not None:
            stayed = start.flow_group[flows] == g
            local = _within_group(start, g)[start.session[flows[stayed]]]
            begin[stayed] = np.where(local < share, local, begin[stayed])
        session[flows] = first + kmeans(things.subset(flows), begin, int(share))
        first += int(share)
    return Maps(session, np.repeat(np.arange(n_groups, dtype=np.int32), shares))


def _within_group(maps: Maps, group: int) -> IndexArray:
    """Number the sessions of one group from 0, in order; ignore the numbers of other sessions."""
    return (np.cumsum(maps.group == group) - 1).astype(np.int32)


def _equal_shares(n_sessions: int, flows: IntArray) -> IntArray:
    """The number of sessions of each group: equal for all, but at most the group's number of flows.

    The paper does not say how sessions are divided among groups; an equal split fits its figures.
    """
    total = min(n_sessions, int(flows.sum()))
    level = 0  # every group has this many sessions, or one per flow if it has fewer flows
    while np.minimum(flows, level + 1).sum() <= total and level < total:
        level += 1
    share = np.minimum(flows, level)
    more = np.flatnonzero(flows > level)[: total - int(share.sum())]
    share[more] += 1
    return share


def _fill_gaps(labels: IndexArray, n_labels: int) -> tuple[IndexArray, IntArray]:
    """Renumber labels without gaps, changing few; also return the old label of each new one."""
    used = np.bincount(labels, minlength=n_labels) > 0
    n_used = int(used.sum())
    old = np.arange(n_used)
    old[~used[:n_used]] = np.flatnonzero(used[n_used:]) + n_used
    renumbered = np.zeros(n_labels, np.int32)
    renumbered[old] = np.arange(n_used, dtype=np.int32)
    return renumbered[labels], old


def _by_first_use(labels: IndexArray) -> tuple[IndexArray, IntArray]:
    """Renumber labels by first appearance; also return the old label of each new one."""
    used, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(order), np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    return rank[inverse], used[order].astype(np.int64)
