"""Compare a plan with others: every algorithm that scales, and other numbers of groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from distributary.cost import Evaluation
from distributary.errors import InfeasibleError
from distributary.model import Constraints, Demand
from distributary.planning.make import make_plan
from distributary.planning.progress import Progress, Step, silent
from distributary.planning.request import ALGORITHMS, Request

__all__ = ["Compared", "CurvePoint", "compare_algorithms", "cost_curve"]

SECONDS_PER_POINT = 2.0  # of a curve, which only has to show the shape
# For tiny instances; on large ones they would only use up their budget.
EXACT = ("optimal", "optimal-shared")


@dataclass(frozen=True, slots=True)
class Compared:
    """One row of the comparison: a way to carry the flows, and what it costs.

    `sent_rate` is what the sender puts on the wire, in messages per second, each copy counted.
    `chosen` marks the plan that the report is about.
    """

    name: str
    sessions: int | None
    groups: int | None
    relative_excess: float
    work: float
    channel_cost: float
    sent_rate: float
    seconds: float | None = None
    chosen: bool = False

    @classmethod
    def of(
        cls,
        name: str,
        evaluation: Evaluation,
        *,
        seconds: float | None = None,
        chosen: bool = False,
    ) -> Self:
        """The row of an evaluated plan."""
        return cls(
            name=name,
            sessions=evaluation.sessions,
            groups=evaluation.groups,
            relative_excess=evaluation.filtering.relative_excess,
            work=evaluation.filtering.work,
            channel_cost=evaluation.channel.cost,
            sent_rate=float(evaluation.loads.session_rate.sum()) + evaluation.loads.unicast_rate,
            seconds=seconds,
            chosen=chosen,
        )


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The relative excess (Cx/Cf) of a plan with this many groups and sessions."""

    groups: int
    sessions: int
    relative_excess: float


def compare_algorithms(
    demand: Demand, request: Request, progress: Progress = silent
) -> list[Compared]:
    """Plan with every other algorithm that scales, with the same demand, sizes and seed.

    The terms that only `best` supports are left out.
    """
    left_out = {
        *EXACT,
        request.solver.name,
        *(["by-column"] if request.search.labels is None else []),
    }
    others = [a for a in ALGORITHMS.values() if a.name not in left_out]
    plain = request.replace(
        constraints=Constraints(), unicast=None, max_sent=None, previous=None, max_moves=None
    )
    rows = []
    for done, algorithm in enumerate(others):
        progress(Step(f"comparing {algorithm.name}", done, len(others)))
        made = make_plan(demand, plain.replace(algorithm=algorithm.name))
        rows.append(Compared.of(algorithm.label, made.evaluation, seconds=made.seconds))
    progress(Step("comparing", len(others), len(others)))
    return rows


def cost_curve(
    demand: Demand, request: Request, groups: Sequence[int], progress: Progress = silent
) -> list[CurvePoint]:
    """The relative excess with other numbers of groups.

    Each number is tried with one session per group, and with the request's sessions per group. A
    number with which no plan keeps the terms has no point.
    """
    per_group = max(1, request.size.most_sessions // request.size.groups)
    sizes = [
        (n_groups, n_groups * ratio)
        for ratio in sorted({1, per_group})
        for n_groups in sorted({*groups, request.size.groups})
        if n_groups * ratio <= len(demand.rate)
    ]
    points = []
    for done, (n_groups, n_sessions) in enumerate(sizes):
        progress(Step(f"trying {n_groups} groups", done, len(sizes)))
        point = request.replace(
            groups=n_groups,
            sessions=n_sessions,
            budget_s=min(request.search.budget_s, SECONDS_PER_POINT),
        )
        try:
            excess = make_plan(demand, point).evaluation.filtering.relative_excess
        except InfeasibleError:
            continue
        points.append(CurvePoint(n_groups, n_sessions, excess))
    progress(Step("trying groups", len(sizes), len(sizes)))
    return points
