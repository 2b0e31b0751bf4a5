"""What each additional group saves: plans with several numbers of groups, side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import NamedTuple

from distributary.cost import Prices, channel_cost, filtering_cost
from distributary.errors import InfeasibleError
from distributary.model import Demand
from distributary.planning.knee import ROUNDING, Knee, find_knee
from distributary.planning.progress import Progress, Step, silent
from distributary.planning.request import Request
from distributary.planning.solve import plan

__all__ = [
    "ONE_PER_GROUP",
    "InfeasiblePoint",
    "SessionLimit",
    "SweepCurve",
    "SweepPoint",
    "SweepResult",
    "sweep",
]


@dataclass(frozen=True, slots=True, order=True)
class SessionLimit:
    """The maximum number of sessions: `number` in all, or `number` for each group."""

    number: int
    per_group: bool = False

    def __post_init__(self) -> None:
        if self.number < 1:
            raise ValueError(f"sessions must be at least 1, not {self.number}")

    def at(self, groups: int) -> int:
        """The most sessions with this many groups."""
        return self.number * groups if self.per_group else self.number

    @property
    def label(self) -> str:
        """The limit in words: '500 sessions', '10 sessions per group'."""
        sessions = "session" if self.number == 1 else "sessions"
        return f"{self.number:,} {sessions}" + (" per group" if self.per_group else "")


ONE_PER_GROUP = SessionLimit(1, per_group=True)


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """One plan: its limits, its filtering cost, and what its last groups saved.

    `groups` and `sessions` are the limits, `used_groups` and `used_sessions` what the plan uses;
    `cut_short` says that the clock ended its search. `channel_cost` is at the request's prices.

    `compared_with` is the number of groups of the previous point of the curve that is not `worse`.
    Compared with that point, each additional group saved `saved_per_group` (messages/s at their
    prices), or `saved_share_per_group` of flooding's excess. All three are None for the first
    point.

    A plan for fewer groups would also do with more groups. So a point that is `worse` than an
    earlier one says something about the solver and not about groups; its savings are negative.
    """

    groups: int
    sessions: int
    alpha: float
    beta: float
    relative_excess: float
    excess: float
    work: float
    seconds: float
    flooding_excess: float
    used_groups: int
    used_sessions: int
    cut_short: bool
    channel_cost: float = 0.0
    compared_with: int | None = None
    saved_per_group: float | None = None
    saved_share_per_group: float | None = None
    worse: bool = False


@dataclass(frozen=True, slots=True)
class SweepCurve:
    """The points of one session limit and one pair of prices, by groups, and their knee."""

    limit: SessionLimit
    prices: Prices
    points: tuple[SweepPoint, ...]
    knee: Knee | None


@dataclass(frozen=True, slots=True)
class SweepResult:
    """Every curve, by prices and then sessions, and what became of the combinations requested.

    Of `asked` combinations of groups, sessions and prices, `repeated` equal another one, `skipped`
    have fewer sessions than groups, and for those in `infeasible` no plan keeps the terms; all
    others are points. `capped` combinations had more groups or sessions than there are flows and
    were reduced to that number.
    """

    algorithm: str
    seed: int
    receivers: int
    flows: int
    curves: tuple[SweepCurve, ...]
    asked: int
    capped: int
    repeated: int
    skipped: int
    infeasible: tuple[InfeasiblePoint, ...] = ()

    @property
    def points(self) -> tuple[SweepPoint, ...]:
        """The points of all curves, one curve after the other."""
        return tuple(point for curve in self.curves for point in curve.points)


@dataclass(frozen=True, slots=True)
class InfeasiblePoint:
    """Numbers of groups and sessions with which no plan keeps the terms, and why."""

    groups: int
    sessions: int
    reason: str


class _Size(NamedTuple):
    """The limits of a plan, as fields of a request; two combinations may have the same."""

    prices: Prices
    groups: int
    sessions: int


# A requested combination: its curve, and its limits.
_Setting = tuple[SessionLimit, _Size]


def sweep(
    demand: Demand,
    request: Request,
    groups: Sequence[int],
    sessions: Sequence[SessionLimit] = (ONE_PER_GROUP,),
    prices: Sequence[Prices] | None = None,
    progress: Progress = silent,
    *,
    clock: Callable[[], float] = time.perf_counter,
) -> SweepResult:
    """Plan with every combination of groups, sessions and prices, otherwise as in the request.

    Without `prices`, those of the request are used. Combinations with fewer sessions than groups
    are skipped; if no combination remains, the result has no points. If no plan of any combination
    keeps the terms, `InfeasibleError` says why the last one does not.
    """
    prices = (request.prices,) if prices is None else prices
    flows = len(demand.rate)
    asked = list(product(prices, sorted(sessions), sorted(groups)))
    settings = list(dict.fromkeys(_setting(flows, *combination) for combination in asked))
    feasible = [(limit, size) for limit, size in settings if size.groups <= size.sessions]
    requests = {size: request.replace(**size._asdict()) for _, size in feasible}
    tried = dict(zip(requests, _plan_sizes(demand, requests, progress, clock), strict=True))
    points = {size: point for size, point in tried.items() if isinstance(point, SweepPoint)}
    refused = {size: error for size, error in tried.items() if isinstance(error, InfeasibleError)}
    if refused and not points:
        raise refused[max(refused, key=lambda size: (size.groups, size.sessions))]
    return SweepResult(
        algorithm=request.solver.name,
        seed=request.search.seed,
        receivers=len(demand.interest.receivers),
        flows=flows,
        curves=tuple(_curves([each for each in feasible if each[1] in points], points)),
        asked=len(asked),
        capped=sum(n > flows or limit.at(n) > flows for _, limit, n in asked),
        repeated=len(asked) - len(settings),
        skipped=len(settings) - len(feasible),
        infeasible=tuple(
            InfeasiblePoint(size.groups, size.sessions, str(error))
            for size, error in refused.items()
        ),
    )


def _setting(flows: int, prices: Prices, limit: SessionLimit, groups: int) -> _Setting:
    """Reduce groups and sessions to at most the number of flows."""
    groups = min(groups, flows)
    size = _Size(prices, groups, min(limit.at(groups), flows))
    return (limit if limit.per_group else SessionLimit(size.sessions)), size


def _plan_sizes(
    demand: Demand,
    requests: Mapping[_Size, Request],
    progress: Progress,
    clock: Callable[[], float],
) -> Iterator[SweepPoint | InfeasibleError]:
    for done, request in enumerate(requests.values()):
        size = f"{request.size.groups:,} groups, {request.size.sessions:,} sessions"
        progress(step := Step(size, done, len(requests)))
        try:
            yield _plan_point(demand, request, partial(_pass_on_best, progress, step), clock)
        except InfeasibleError as error:
            yield error
    progress(Step("planned", len(requests), len(requests)))


def _pass_on_best(progress: Progress, step: Step, inner: Step) -> None:
    """Report a solver's best cost without moving the sweep's own progress bar."""
    progress(replace(step, best=inner.best))


def _plan_point(
    demand: Demand, request: Request, progress: Progress, clock: Callable[[], float]
) -> SweepPoint:
    began = clock()
    solution = plan(demand, request, progress)
    seconds = clock() - began
    weights = request.weigh(demand.interest)
    cost = filtering_cost(solution.plan, demand, request.prices, weights)
    return SweepPoint(
        groups=request.size.groups,
        sessions=request.size.most_sessions,
        alpha=request.prices.alpha,
        beta=request.prices.beta,
        relative_excess=cost.relative_excess,
        excess=cost.excess,
        work=cost.work,
        seconds=seconds,
        flooding_excess=cost.flooding_excess,
        used_groups=solution.plan.n_groups,
        used_sessions=solution.plan.n_sessions,
        cut_short=solution.cut_short,
        channel_cost=channel_cost(solution.plan, demand, request.channel, weights=weights).cost,
    )


def _curves(
    settings: Sequence[_Setting], points: Mapping[_Size, SweepPoint]
) -> Iterator[SweepCurve]:
    by_curve: dict[tuple[SessionLimit, Prices], list[SweepPoint]] = {}
    for limit, size in settings:
        by_curve.setdefault((limit, size.prices), []).append(points[size])
    for (limit, prices), line in by_curve.items():
        knee = find_knee([p.groups for p in line], [p.relative_excess for p in line])
        yield SweepCurve(limit, prices, tuple(_with_savings(line)), knee)


def _with_savings(points: Sequence[SweepPoint]) -> Iterator[SweepPoint]:
    """Compare each point with the best one that has fewer groups."""
    yield (best := points[0])
    for point in points[1:]:
        share = best.relative_excess - point.relative_excess
        saved = best.excess - point.excess
        if abs(share) <= ROUNDING:
            share = saved = 0.0
        added = point.groups - best.groups
        compared = replace(
            point,
            compared_with=best.groups,
            saved_per_group=saved / added,
            saved_share_per_group=share / added,
            worse=share < 0,
        )
        yield compared
        best = best if compared.worse else compared
