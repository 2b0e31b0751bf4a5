"""A plan that was made is priced, and one that misses anybody never leaves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from distributary.cost import FilteringPrices, evaluate
from distributary.errors import PlanError
from distributary.model import Demand, Interest
from distributary.planning import Request, make_plan, plan, price_solution

DEMAND = Demand(Interest.from_pairs([("a", "x"), ("b", "x"), ("b", "y")]), np.array([1.0, 2.0]))
REQUEST = Request(1, algorithm="hash", prices=FilteringPrices(2, 3))


def test_a_plan_is_priced_at_the_prices_of_its_request() -> None:
    made = make_plan(DEMAND, REQUEST)
    assert made.request == REQUEST
    assert made.solution.plan == plan(DEMAND, REQUEST).plan
    assert (
        made.evaluation.filtering == evaluate(made.solution.plan, DEMAND, REQUEST.prices).filtering
    )
    assert made.seconds > 0


def test_a_plan_that_misses_a_receiver_is_refused() -> None:
    solution = plan(DEMAND, REQUEST)
    first = solution.plan.subscription_receiver[:1], solution.plan.subscription_session[:1]
    missing = replace(solution.plan, subscription_receiver=first[0], subscription_session=first[1])
    with pytest.raises(PlanError, match="'b' misses flow"):
        price_solution(replace(solution, plan=missing), DEMAND, REQUEST)
