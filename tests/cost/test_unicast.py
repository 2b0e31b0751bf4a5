from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

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
    least_added_excess,
    plan_loads,
    plan_operating_cost,
)
from distributary.model import Demand, Interest, Plan, plan_problems
from tests import oracles
from tests.strategies import any_plans, demands, whole_rate_values


@st.composite
def cases(draw: st.DrawFn) -> tuple[Plan, Demand]:
    """Any plan, with any pairs sent by unicast: wanted or not, in a session too or not."""
    demand = draw(demands(rates=whole_rate_values()))
    plan = draw(any_plans(demand.interest))
    pair = st.tuples(st.integers(0, len(plan.receivers) - 1), st.integers(0, len(plan.flows) - 1))
    return with_pairs(plan, draw(st.sets(pair))), demand


def with_pairs(plan: Plan, pairs: set[tuple[int, int]]) -> Plan:
    receiver, flow = np.array(sorted(pairs), np.int32).reshape(-1, 2).T
    return replace(plan, unicast_receiver=receiver, unicast_flow=flow)


def links(plan: Plan) -> set[tuple[int, int]]:
    return set(zip(plan.unicast_receiver.tolist(), plan.unicast_flow.tolist(), strict=True))


def in_session(plan: Plan, flow: int, session: int) -> Plan:
    """One flow sent by unicast put into a session instead, its receivers subscribed to that."""
    it = oracles.plain(plan)
    audience = {r for r, f in links(plan) if f == flow}
    placed = np.array(sorted(it.placed | {(flow, session)}), np.int32).T
    subscribed = np.array(sorted(it.subscribed | {(r, session) for r in audience}), np.int32).T
    rest = {(r, f) for r, f in links(plan) if f != flow}
    return with_pairs(
        replace(
            plan,
            placement_flow=placed[0],
            placement_session=placed[1],
            subscription_receiver=subscribed[0],
            subscription_session=subscribed[1],
        ),
        rest,
    )


@given(case=cases(), prices=st.sampled_from([(1.0, 1.0), (0.5, 2.0), (0.0, 1.0), (1.0, 0.0)]))
def test_unicast_adds_what_is_sent_and_received_and_nothing_else(
    case: tuple[Plan, Demand], prices: tuple[float, float]
) -> None:
    plan, demand = case
    alone = with_pairs(plan, set())
    rate = oracles.exact_rates(demand)
    sent = sum((rate[flow] for _, flow in links(plan)), Fraction(0))
    there = filtering_cost(plan, demand, FilteringPrices(*prices))
    oracle = oracles.filtering(plan, demand, *prices)
    assert there.session_cost == float(oracle.session_cost + Fraction(prices[0]) * sent)
    assert there.flow_cost == float(oracle.flow_cost + Fraction(prices[1]) * sent)
    assert there.wanted_work == float(oracle.wanted)
    channel = channel_cost(plan, demand, ChannelPrices(2.0, 3.0))
    alike = channel_cost(alone, demand, ChannelPrices(2.0, 3.0))
    assert channel.received == alike.received + 2 * float(sent)
    assert channel.sent == alike.sent + 3 * float(sent)
    assert (channel.lower_bound, channel.flooding) == (alike.lower_bound, alike.flooding)
    loads, before = plan_loads(plan, demand), plan_loads(alone, demand)
    for receiver in range(len(plan.receivers)):
        own = float(sum(rate[flow] for r, flow in links(plan) if r == receiver))
        assert loads.received[receiver] == before.received[receiver] + own
        assert loads.accepted[receiver] == before.accepted[receiver] + own
    assert loads.session_rate.tolist() == before.session_rate.tolist()
    assert loads.unicast_rate == float(sent)
    assert loads.unicast_links == len(links(plan))
    in_session = set(plan.placement_flow.tolist())
    once = sum(rate[flow] for flow in {flow for _, flow in links(plan)} - in_session)
    assert loads.unicast_extra_rate == float(sent - once)


@given(case=cases(), data=st.data())
def test_coefficients_scale_what_a_link_brings_and_not_what_is_sent(
    case: tuple[Plan, Demand], data: st.DataObject
) -> None:
    plan, demand = case
    shape = len(plan.receivers), len(plan.flows)
    values = st.lists(st.integers(0, 5), min_size=shape[0] * shape[1], max_size=shape[0] * shape[1])
    coefficients = np.array(data.draw(values), np.float64).reshape(shape)
    there = channel_cost(plan, demand, ChannelPrices(), coefficients)
    alone = channel_cost(with_pairs(plan, set()), demand, ChannelPrices(), coefficients)
    paid = sum(coefficients[pair] * demand.rate[pair[1]] for pair in links(plan))
    assert there.received == alone.received + paid
    assert there.sent == alone.sent + sum(demand.rate[flow] for _, flow in links(plan))


@given(case=cases())
def test_a_flow_sent_by_unicast_has_its_subscribers_on_its_own_channel(
    case: tuple[Plan, Demand],
) -> None:
    plan, demand = case
    there = plan_operating_cost(plan, demand, OperatingPrices())
    alone = plan_operating_cost(with_pairs(plan, set()), demand, OperatingPrices())
    assert there.maintenance == alone.maintenance + len(links(plan))
    sent = sum(demand.rate[flow] for _, flow in links(plan))
    assert there.dissemination == pytest.approx(alone.dissemination + sent)
    assert there.unclustered == alone.unclustered


@given(case=cases(), prices=st.sampled_from([(1.0, 1.0), (0.5, 2.0), (0.0, 1.0), (1.0, 0.0)]))
def test_the_saving_is_each_flows_cheapest_way_back_into_a_session(
    case: tuple[Plan, Demand], prices: tuple[float, float]
) -> None:
    plan, demand = case
    by_price = FilteringPrices(*prices)
    before = filtering_cost(plan, demand, by_price).work
    least = [
        min(
            filtering_cost(in_session(plan, flow, session), demand, by_price).work - before
            for session in range(plan.n_sessions)
        )
        for flow in sorted({flow for _, flow in links(plan)})
    ]
    assert least_added_excess(plan, demand, by_price).tolist() == least
    evaluation = evaluate(plan, demand, by_price)
    assert evaluation.unicast_saving == sum(least)
    assert evaluation.unicast_flows == len(least)
    assert evaluation.unicast_links == len(links(plan))


@given(case=cases())
def test_problems_name_what_unicast_misses_and_what_nobody_asked_for(
    case: tuple[Plan, Demand],
) -> None:
    plan, demand = case
    interest = demand.interest
    problems = plan_problems(plan, interest)
    wanted = {(r, f) for r, flows in enumerate(oracles.wanted_flows(interest)) for f in flows}
    it = oracles.plain(plan)
    missed = {
        (r, f)
        for r, f in wanted - links(plan)
        if not any(flow == f and (r, s) in it.subscribed for flow, s in it.placed)
    }
    unwanted = sorted(links(plan) - wanted)
    assert any("not served" in p for p in problems) == bool(missed)
    assert not missed or f"{len(missed):,} wanted pairs" in problems[0]
    assert any("not wanted" in p for p in problems) == bool(unwanted)
    if unwanted:
        receiver, flow = unwanted[0]
        assert problems[-1] == (
            f"{len(unwanted)} pairs sent by unicast are not wanted, the first: flow "
            f"{interest.flows[flow]!r} to receiver {interest.receivers[receiver]!r}"
        )


INTEREST = Interest.from_pairs([("a", "x"), ("a", "y"), ("b", "y"), ("c", "z")])


def hand_plan(**unicast: np.ndarray) -> Plan:
    """x and y in a session for a and b; what z gets is the case's to say."""
    return Plan(
        INTEREST.receivers,
        INTEREST.flows,
        np.array([0, 1], np.int32),
        np.array([0, 0], np.int32),
        np.array([0], np.int32),
        np.array([0, 1], np.int32),
        np.array([0, 0], np.int32),
        **unicast,
    )


def test_a_plan_worked_out_by_hand() -> None:
    plan = hand_plan(unicast_receiver=np.array([2], np.int32), unicast_flow=np.array([2], np.int32))
    it = evaluate(plan, Demand(INTEREST, np.array([1.0, 2.0, 4.0])))
    assert it.valid
    assert it.filtering.excess == 2 * 1  # b throws x away, twice
    assert it.channel.sent == 1 + 2 + 4
    # z in the session: c takes x and y, a and b take z; each is looked at twice.
    assert it.unicast_saving == 2 * (3 + 4 + 4)
    assert (it.unicast_flows, it.unicast_links) == (1, 1)


def test_an_outlier_of_a_flow_that_travels_in_a_session_worked_out_by_hand() -> None:
    interest = Interest.from_pairs([("a", "x"), ("a", "y"), ("b", "x"), ("b", "y"), ("c", "y")])
    none, one = np.zeros(2, np.int32), np.ones(1, np.int32)
    both = np.arange(2, dtype=np.int32)
    plan = Plan(interest.receivers, interest.flows, both, none, none[:1], both, none, one + 1, one)
    it = evaluate(plan, Demand(interest, np.array([8.0, 2.0])))
    assert it.valid
    assert it.filtering.excess == 0
    assert it.channel.sent == 8 + 2 + 2
    assert (it.unicast_flows, it.unicast_links) == (1, 1)
    assert it.loads.unicast_extra_rate == 2
    assert it.loads.received.tolist() == [10, 10, 2]
    assert it.unicast_saving == 2 * 8  # c would throw x away, twice


@pytest.mark.parametrize(
    ("receiver", "flow", "words"),
    [
        ([0], [], "1 against 0"),
        ([3], [0], "out of range"),
        ([0], [-1], "out of range"),
        ([1, 0], [0, 0], "ascending"),
        ([1, 1], [0, 0], "ascending"),
    ],
)
def test_unicast_pairs_are_checked(receiver: list[int], flow: list[int], words: str) -> None:
    pairs = {"unicast_receiver": np.array(receiver, np.int32)}
    with pytest.raises(ValueError, match=words):
        hand_plan(**pairs, unicast_flow=np.array(flow, np.int32))


def test_plans_that_differ_in_unicast_are_not_equal() -> None:
    one = np.array([2], np.int32)
    assert hand_plan() != hand_plan(unicast_receiver=one, unicast_flow=one)
    assert hand_plan(unicast_receiver=one, unicast_flow=one) == hand_plan(
        unicast_receiver=one.copy(), unicast_flow=one.copy()
    )
