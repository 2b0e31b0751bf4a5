from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.cost import evaluate, filtering_cost, plan_loads
from distributary.cost.prices import FilteringPrices
from distributary.model import Demand, Interest
from tests import oracles
from tests.cost.cases import apart
from tests.strategies import any_plans, demands


@given(data=st.data(), demand=demands())
def test_loads_are_the_sums_they_are_said_to_be(data: st.DataObject, demand: Demand) -> None:
    plan = data.draw(any_plans(demand.interest))
    loads = plan_loads(plan, demand)
    it, rate = oracles.plain(plan), oracles.exact_rates(demand)
    sessions, receivers = range(plan.n_sessions), range(len(plan.receivers))
    flows = range(len(rate))
    session_rate = [sum(rate[f] for f, s in it.placed if s == session) for session in sessions]
    group_rate = [sum(it.copies(flow, g) * rate[flow] for flow in flows) for g in it.groups]

    assert loads.session_flows.tolist() == [sum(s == x for _, s in it.placed) for x in sessions]
    assert loads.session_subscribers.tolist() == [
        sum(s == x for _, s in it.subscribed) for x in sessions
    ]
    assert loads.group_flows.tolist() == [
        sum(it.copies(flow, g) for flow in flows) for g in it.groups
    ]
    assert loads.group_sessions.tolist() == [it.group_of.count(g) for g in it.groups]
    assert loads.group_members.tolist() == [
        sum(it.joins(receiver, g) for receiver in receivers) for g in it.groups
    ]
    assert loads.receiver_groups.tolist() == [
        sum(it.joins(receiver, g) for g in it.groups) for receiver in receivers
    ]
    assert loads.receiver_sessions.tolist() == [
        sum(r == receiver for r, _ in it.subscribed) for receiver in receivers
    ]
    for load, expected in (
        (loads.session_rate, session_rate),
        (loads.group_rate, group_rate),
        (
            loads.received,
            [sum(group_rate[g] for g in it.groups if it.joins(r, g)) for r in receivers],
        ),
        (
            loads.accepted,
            [sum(session_rate[s] for s in sessions if (r, s) in it.subscribed) for r in receivers],
        ),
        (loads.wanted, [sum(rate[f] for f in w) for w in oracles.wanted_flows(demand.interest)]),
    ):
        assert load.tolist() == pytest.approx([float(x) for x in expected], rel=1e-12, abs=0)


@given(demand=demands())
def test_a_plan_for_others_is_not_priced(demand: Demand) -> None:
    plan = apart(demand)
    pairs = [(r, f + "'") for r in demand.interest.receivers for f in demand.interest.flows]
    others = Demand(Interest.from_pairs(pairs), demand.rate)
    for price in (plan_loads, evaluate, lambda p, d: filtering_cost(p, d, FilteringPrices())):
        with pytest.raises(ValueError, match="must name the same receivers and flows"):
            price(plan, others)
