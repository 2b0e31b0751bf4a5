"""Make a plan and price it, as every command that plans does."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from distributary.cost import Evaluation, FilteringPrices, evaluate
from distributary.errors import PlanError
from distributary.model import Demand
from distributary.planning.bounds import WORK_PER_S, Bound, lower_bound
from distributary.planning.progress import Progress, silent
from distributary.planning.request import Request, Size
from distributary.planning.solve import Solution, plan

__all__ = ["MadePlan", "bound_plan", "make_plan", "price_solution"]

BOUND_SHARE, MOST_BOUND_S = 0.05, 1.0  # of the budget, and at most, for a bound of the cost


@dataclass(frozen=True, slots=True, eq=False)
class MadePlan:
    """A valid plan, its request, its evaluation, and the duration of the search.

    `bound` is a lower bound of the cost of any plan that the request allows, where `bound_plan`
    computed it.
    """

    request: Request
    solution: Solution
    evaluation: Evaluation
    seconds: float = 0.0
    bound: Bound | None = None

    @property
    def cost(self) -> float:
        """What the plan costs by the objective of the request."""
        by_filtering = self.request.search.objective == "filtering"
        return self.evaluation.filtering.work if by_filtering else self.evaluation.channel.cost

    @property
    def gap(self) -> float | None:
        """By what share of the optimum the plan is above it, at most; None without a bound."""
        return None if self.bound is None else self.bound.gap(self.cost)


def make_plan(demand: Demand, request: Request, progress: Progress = silent) -> MadePlan:
    """Plan, and evaluate the plan at the prices of the request."""
    began = time.perf_counter()
    solution = plan(demand, request, progress)
    return price_solution(solution, demand, request, time.perf_counter() - began)


def price_solution(
    solution: Solution, demand: Demand, request: Request, seconds: float = 0.0
) -> MadePlan:
    """Evaluate a solution at the prices of the request; an invalid plan raises `PlanError`."""
    evaluation = evaluate(
        solution.plan,
        demand,
        request.prices,
        request.channel,
        weights=request.weigh(demand.interest),
    )
    if evaluation.problems:
        raise PlanError(evaluation.problems, path="the plan just made")
    return MadePlan(request, solution, evaluation, seconds)


def bound_plan(made: MadePlan, demand: Demand) -> MadePlan:
    """Add a lower bound of the cost of any plan that the request allows.

    This takes a small share of the budget, counted in work, so that the bound repeats anywhere.
    """
    request = made.request
    terms, budget_s = request.terms, request.search.budget_s
    shared = terms.unicast is not None or terms.max_sent is not None or request.solver.duplicates
    weights = request.weigh(demand.interest)
    work = int(WORK_PER_S * min(MOST_BOUND_S, BOUND_SHARE * budget_s))
    if request.search.objective == "filtering":
        prices, received, sent = request.prices, 1.0, 0.0
    else:  # what is received may cost nothing, which no prices say
        prices, received = FilteringPrices(1.0, 0.0), request.channel.received
        sent = request.channel.sent * float(demand.rate.sum())
    bound = lower_bound(
        demand, _limit_size(request), prices, weights=weights, shared=shared, work=work
    )
    return replace(made, bound=Bound(received * bound.value + sent, bound.how))


def _limit_size(request: Request) -> Size:
    """The most groups and sessions that size and limits allow."""
    limits, size = request.terms.constraints.limits, request.size
    sessions = min(size.most_sessions, limits.sessions or size.most_sessions)
    return Size(min(size.groups, sessions, limits.groups or size.groups), sessions)
