from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.cost import (
    ChannelPrices,
    FilteringPrices,
    OperatingPrices,
    channel_cost,
    evaluate,
    filtering_cost,
    plan_loads,
    plan_operating_cost,
)
from distributary.model import Demand, Interest, Plan, plan_problems
from tests import oracles
from tests.cost.cases import apart, flooding
from tests.strategies import any_plans, demands, whole_rate_values

FILTERING, CHANNEL = FilteringPrices(0.5, 1.5), ChannelPrices(2.0, 3.0)
OPERATING = OperatingPrices(notify=4.0)


@given(data=st.data(), demand=demands())
def test_an_evaluation_agrees_with_its_parts(data: st.DataObject, demand: Demand) -> None:
    plan = data.draw(any_plans(demand.interest))
    it = evaluate(plan, demand, FILTERING, CHANNEL, OPERATING)
    assert it.filtering == filtering_cost(plan, demand, FILTERING)
    assert it.channel == channel_cost(plan, demand, CHANNEL)
    assert it.operating == plan_operating_cost(plan, demand, OPERATING)
    assert it.problems == plan_problems(plan, demand.interest)
    assert it.valid == (not oracles.problems(plan, demand.interest))
    loads = plan_loads(plan, demand)
    for word in loads.__slots__:
        assert np.array_equal(getattr(it.loads, word), getattr(loads, word)), word
    assert (it.receivers, it.flows) == (len(plan.receivers), len(plan.flows))
    assert (it.sessions, it.groups) == (plan.n_sessions, plan.n_groups)
    assert it.duplicated_flows == plan.duplicated_flows


@given(data=st.data(), demand=demands())
def test_every_price_is_1_unless_told(data: st.DataObject, demand: Demand) -> None:
    plan = data.draw(any_plans(demand.interest))
    it = evaluate(plan, demand)
    assert it.filtering == filtering_cost(plan, demand, FilteringPrices(1, 1))
    assert it.channel == channel_cost(plan, demand, ChannelPrices(1, 1))
    assert it.operating == plan_operating_cost(plan, demand, OperatingPrices())


@given(data=st.data(), demand=demands())
def test_goodput_is_the_wanted_share_of_what_arrives(data: st.DataObject, demand: Demand) -> None:
    plan = data.draw(any_plans(demand.interest))
    it = evaluate(plan, demand)
    wanted = float(oracles.filtering(plan, demand, 1, 0).wanted)
    received = float(oracles.channel(plan, demand).received)
    sent = float(sum(oracles.exact_rates(demand)))
    assert it.unicast_copies == pytest.approx(wanted / sent, rel=1e-9)
    assert it.flooding_goodput == pytest.approx(wanted / sent / len(plan.receivers), rel=1e-9)
    assert it.goodput == pytest.approx(wanted / received if received else 0, rel=1e-9)


@given(demand=demands())
def test_goodput_is_everything_apart_and_floodings_together(demand: Demand) -> None:
    assert evaluate(apart(demand), demand).goodput == pytest.approx(1)
    together = evaluate(flooding(demand), demand)
    assert together.goodput == pytest.approx(together.flooding_goodput)


@given(data=st.data(), demand=demands(rates=whole_rate_values()))
def test_names_do_not_change_what_a_plan_costs(data: st.DataObject, demand: Demand) -> None:
    plan = data.draw(any_plans(demand.interest))
    flow_to = np.array(data.draw(st.permutations(range(len(plan.flows)))), np.int32)
    receiver_to = np.array(data.draw(st.permutations(range(len(plan.receivers)))), np.int32)
    renamed_demand, renamed_plan = rename(demand, plan, receiver_to, flow_to)
    here, there = evaluate(plan, demand), evaluate(renamed_plan, renamed_demand)
    assert there.filtering == here.filtering
    assert there.channel == here.channel
    assert there.operating == here.operating
    assert there.valid == here.valid
    assert there.goodput == here.goodput
    assert there.loads.session_rate.tolist() == here.loads.session_rate.tolist()
    assert there.loads.received[receiver_to].tolist() == here.loads.received.tolist()


def rename(
    demand: Demand, plan: Plan, receiver_to: np.ndarray, flow_to: np.ndarray
) -> tuple[Demand, Plan]:
    """The same in other words: receiver j becomes receiver_to[j], flow k becomes flow_to[k]."""
    interest = demand.interest
    rate = np.empty_like(demand.rate)
    rate[flow_to] = demand.rate
    placed = sorted(zip(flow_to[plan.placement_flow], plan.placement_session, strict=True))
    subscribed = sorted(
        zip(receiver_to[plan.subscription_receiver], plan.subscription_session, strict=True)
    )
    flow, session = np.array(placed, np.int32).reshape(-1, 2).T
    receiver, chosen = np.array(subscribed, np.int32).reshape(-1, 2).T
    return (
        Demand(
            Interest.from_codes(
                interest.receivers,
                interest.flows,
                receiver_to[interest.flow_receivers],
                flow_to[interest.pair_flows()],
            ),
            rate,
        ),
        Plan(plan.receivers, plan.flows, flow, session, plan.session_group, receiver, chosen),
    )
