"""Flows by unicast, to all or some of their receivers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributary.cost import ChannelPrices, FilteringPrices, channel_cost, evaluate, filtering_cost
from distributary.model import Demand, Interest, Plan, plan_problems
from distributary.planning import ALGORITHMS, Request, UnicastLimits
from distributary.planning import plan as solve
from tests.strategies import demands, dense_demands, whole_rate_values

BUDGET = 0.01


@st.composite
def limits(draw: st.DrawFn) -> UnicastLimits:
    return UnicastLimits(
        draw(st.integers(1, 3)),
        draw(st.none() | st.integers(0, 6)),
        draw(st.none() | st.integers(0, 12).map(float)),
    )


def small_demands() -> st.SearchStrategy[Demand]:
    return demands(rates=whole_rate_values()) | dense_demands(rates=whole_rate_values())


def assert_within(plan: Plan, demand: Demand, limits: UnicastLimits) -> None:
    """Valid, and no more unicast than allowed."""
    assert plan_problems(plan, demand.interest) == ()
    inside = set(plan.placement_flow.tolist())
    links = np.bincount(plan.unicast_flow, minlength=len(plan.flows))
    assert links.max() <= limits.max_receivers
    assert limits.max_links is None or links.sum() <= limits.max_links
    extra = sum(
        demand.rate[flow] * (links[flow] if flow in inside else links[flow] - 1)
        for flow in range(len(links))
        if links[flow]
    )
    assert limits.max_rate is None or extra <= limits.max_rate
    assert len(plan.placement_flow) >= 1


@settings(max_examples=40)
@given(data=st.data(), demand=small_demands(), limits=limits())
def test_a_plan_with_unicast_keeps_to_the_limits_and_is_no_worse(
    data: st.DataObject, demand: Demand, limits: UnicastLimits
) -> None:
    request = Request(
        groups=data.draw(st.integers(1, 2)),
        sessions=data.draw(st.none() | st.integers(2, 4)),
        objective=data.draw(st.sampled_from(["filtering", "channel"])),
        prices=FilteringPrices(0.5, 2),
        budget_s=BUDGET,
    )
    without = solve(demand, request).plan
    found = solve(demand, request.replace(unicast=limits))
    assert_within(found.plan, demand, limits)
    assert found.plan.n_groups <= request.size.groups
    assert found.plan.n_sessions <= request.size.most_sessions

    def price(plan: Plan) -> float:
        if request.search.objective == "filtering":
            return filtering_cost(plan, demand, request.prices).work
        return channel_cost(plan, demand, ChannelPrices()).cost

    assert price(found.plan) <= price(without) * (1 + 1e-9)


def test_an_outlier_of_a_flow_in_a_session_gets_it_by_unicast() -> None:
    """Tock, section 5.3: r wants of the session only its smallest flow."""
    others = [(receiver, flow) for receiver in "abcd" for flow in ("large", "small")]
    interest = Interest.from_pairs([*others, ("r", "small")])
    demand = Demand(interest, np.array([100.0, 1.0]))
    found = solve(demand, Request(1, unicast=UnicastLimits(), budget_s=BUDGET)).plan
    at = zip(found.unicast_receiver.tolist(), found.unicast_flow.tolist(), strict=True)
    assert [(found.receivers[j], found.flows[k]) for j, k in at] == [("r", "small")]
    assert len(found.placement_flow) == 2
    assert evaluate(found, demand).filtering.excess == 0


def test_a_receiver_of_unicast_flows_only_subscribes_to_nothing() -> None:
    interest = Interest.from_pairs([("a", "x"), ("b", "y"), ("c", "y")])
    demand = Demand(interest, np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    plan = solve(demand, Request(groups=1, unicast=UnicastLimits(), budget_s=BUDGET)).plan
    assert plan.subscription_receiver.tolist() == [1, 2]
    assert (plan.unicast_receiver.tolist(), plan.unicast_flow.tolist()) == ([0], [0])
    assert evaluate(plan, demand).valid


@settings(max_examples=15)
@given(demand=small_demands())
def test_one_flow_stays_in_a_session(demand: Demand) -> None:
    request = Request(groups=1, unicast=UnicastLimits(9), budget_s=BUDGET)
    plan = solve(demand, request).plan
    assert len(plan.placement_flow) >= 1
    assert plan_problems(plan, demand.interest) == ()


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_receivers": 0},
        {"max_links": -1},
        {"max_rate": -1.0},
        {"max_rate": float("nan")},
        {"max_rate": float("inf")},
    ],
)
def test_limits_are_checked(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="at least"):
        UnicastLimits(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("algorithm", sorted(set(ALGORITHMS) - {"best"}))
def test_only_best_sends_by_unicast(algorithm: str) -> None:
    with pytest.raises(ValueError, match="only best supports unicast"):
        Request(groups=1, unicast=UnicastLimits(), algorithm=algorithm)
