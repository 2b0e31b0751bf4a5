"""Make a plan and price it, as every command that plans does."""

from __future__ import annotations

import time
from dataclasses import dataclass

from distributary.cost import Evaluation, evaluate
from distributary.errors import PlanError
from distributary.model import Demand
from distributary.planning.progress import Progress, silent
from distributary.planning.request import Request
from distributary.planning.solve import Solution, plan

__all__ = ["MadePlan", "make_plan", "price_solution"]


@dataclass(frozen=True, slots=True, eq=False)
class MadePlan:
    """A valid plan, its request, its evaluation, and the duration of the search."""

    request: Request
    solution: Solution
    evaluation: Evaluation
    seconds: float = 0.0


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
