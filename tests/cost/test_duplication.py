from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from distributary.cost import (
    FilteringPrices,
    evaluate,
    filtering_cost,
    least_excess_of_one_copy,
)
from distributary.model import Demand, Interest, Plan
from tests.strategies import any_plans, interests, whole_rate_values


@st.composite
def cases(draw: st.DrawFn) -> tuple[Plan, Demand]:
    interest = draw(interests())
    n = len(interest.flows)
    rate = draw(st.lists(whole_rate_values(), min_size=n, max_size=n))
    return draw(any_plans(interest)), Demand(interest, np.array(rate))


def with_one_copy(plan: Plan, demand: Demand, flow: int, session: int) -> Plan:
    """The flow in one session alone, to which all who want it subscribe."""
    placed = set(zip(plan.placement_flow.tolist(), plan.placement_session.tolist(), strict=True))
    placed = {pair for pair in placed if pair[0] != flow} | {(flow, session)}
    heard = set(
        zip(plan.subscription_receiver.tolist(), plan.subscription_session.tolist(), strict=True)
    )
    first, last = demand.interest.flow_offsets[flow : flow + 2]
    heard |= {(int(r), session) for r in demand.interest.flow_receivers[first:last]}
    placements, subscriptions = (np.array(sorted(pairs), np.int32) for pairs in (placed, heard))
    return replace(
        plan,
        placement_flow=placements[:, 0],
        placement_session=placements[:, 1],
        subscription_receiver=subscriptions[:, 0],
        subscription_session=subscriptions[:, 1],
    )


def two_copies_in_one_group() -> tuple[Plan, Demand]:
    """Flow a in both sessions of group 0; cyd, who wants it too, listens to group 1 alone."""
    interest = Interest.from_pairs(
        [("ann", "a"), ("ann", "b"), ("bob", "a"), ("bob", "c"), ("cyd", "a"), ("cyd", "d")]
    )
    placements = np.array([(0, 0), (0, 1), (1, 0), (2, 1), (3, 2)], np.int32)
    subscriptions = np.array([(0, 0), (1, 1), (2, 2)], np.int32)
    plan = Plan(
        interest.receivers,
        interest.flows,
        placements[:, 0],
        placements[:, 1],
        np.array([0, 0, 1], np.int32),
        subscriptions[:, 0],
        subscriptions[:, 1],
    )
    return plan, Demand(interest, np.array([8.0, 1.0, 2.0, 4.0]))


@example(case=two_copies_in_one_group(), prices=(1.0, 1.0))
@given(case=cases(), prices=st.sampled_from([(1.0, 1.0), (0.5, 2.0), (0.0, 1.0), (1.0, 0.0)]))
def test_the_saving_is_each_flows_cheapest_single_copy(
    case: tuple[Plan, Demand], prices: tuple[float, float]
) -> None:
    plan, demand = case
    by_price = FilteringPrices(*prices)
    before = filtering_cost(plan, demand, by_price).work
    copies = {
        flow: plan.placement_session[plan.placement_flow == flow].tolist()
        for flow in range(len(plan.flows))
    }
    least = [
        min(
            filtering_cost(with_one_copy(plan, demand, flow, s), demand, by_price).work - before
            for s in sessions
        )
        for flow, sessions in copies.items()
        if len(sessions) > 1
    ]
    assert least_excess_of_one_copy(plan, demand, by_price).tolist() == least
    evaluation = evaluate(plan, demand, by_price)
    assert evaluation.duplication_saving == sum(least)
    assert evaluation.duplicated_flows == len(least)
