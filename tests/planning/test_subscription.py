from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.cost import ChannelPrices, FilteringPrices, channel_cost, filtering_cost
from distributary.model import Demand, plan_problems
from distributary.planning import (
    Bill,
    channel_bill,
    filtering_bill,
    place,
    place_single,
    subscription,
)
from distributary.planning.subscription import cheapest_cover
from tests import oracles
from tests.strategies import Placement, demands, placements, whole_rate_values

Options = list[tuple[int, ...]]


@st.composite
def covers_to_find(draw: st.DrawFn, *, max_sessions: int = 8) -> tuple[Options, np.ndarray, Bill]:
    """Wanted flows with the sessions that carry each, at whole-number prices."""
    n_sessions = draw(st.integers(1, max_sessions))
    least = min(n_sessions, draw(st.integers(1, 3)))
    option = st.sets(st.integers(0, n_sessions - 1), min_size=least, max_size=4).map(
        lambda sessions: tuple(sorted(sessions))
    )
    options = draw(st.lists(option, min_size=1, max_size=12))
    n_groups = draw(st.integers(1, n_sessions))
    group = draw(st.lists(st.integers(0, n_groups - 1), min_size=n_sessions, max_size=n_sessions))
    price = st.integers(0, 9).map(float)
    return (
        options,
        np.array(group, np.int32),
        Bill(
            np.array(draw(st.lists(price, min_size=n_sessions, max_size=n_sessions))),
            np.array(draw(st.lists(price, min_size=n_groups, max_size=n_groups))),
        ),
    )


def price(cover: list[int], group: np.ndarray, bill: Bill) -> float:
    return oracles.cover_price(cover, group.tolist(), bill.session.tolist(), bill.group.tolist())


@given(case=covers_to_find())
def test_few_sessions_are_covered_at_the_least_price_there_is(
    case: tuple[Options, np.ndarray, Bill],
) -> None:
    options, group, bill = case
    cover = cheapest_cover(options, group, bill)
    assert cover == sorted(set(cover))
    assert oracles.covers(cover, options)
    assert price(cover, group, bill) == oracles.cheapest_cover_price(
        options, group.tolist(), bill.session.tolist(), bill.group.tolist()
    )


@given(case=covers_to_find())
def test_many_sessions_are_covered_without_a_needless_one(
    case: tuple[Options, np.ndarray, Bill],
) -> None:
    options, group, bill = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subscription, "EXACT_LIMIT", 0)
        cover = cheapest_cover(options, group, bill)
    assert oracles.covers(cover, options)
    for session in cover:
        assert not oracles.covers([s for s in cover if s != session], options)


@given(options=st.lists(st.integers(0, 6), min_size=1, max_size=6))
def test_without_a_choice_there_is_one_cover(options: list[int]) -> None:
    bill = Bill(np.zeros(7), np.zeros(1))
    cover = cheapest_cover([(s,) for s in options], np.zeros(7, np.int32), bill)
    assert cover == sorted(set(options))


def test_more_sessions_than_the_exact_limit_are_still_covered() -> None:
    n = subscription.EXACT_LIMIT + 4
    options = [(s, (s + 1) % n, (s + 5) % n) for s in range(n)]
    bill = Bill(np.arange(n) % 3 + 1.0, np.ones(n))
    cover = cheapest_cover(options, np.arange(n, dtype=np.int32), bill)
    assert oracles.covers(cover, options)
    assert len(cover) < n


def test_a_dear_session_is_worth_it_where_it_meets_several_wishes() -> None:
    options: Options = [(0, 3), (1, 3), (2, 3)]
    group = np.arange(4, dtype=np.int32)
    for dear, cover in ((2.5, [3]), (3.5, [0, 1, 2])):
        assert cheapest_cover(options, group, Bill(np.array([1, 1, 1, dear]), np.zeros(4))) == cover


def test_a_group_joined_already_costs_nothing_more() -> None:
    # Session 0 must be joined; 1 is in its group, 2 is cheaper but in another.
    options: Options = [(0,), (1, 2)]
    bill = Bill(np.array([1.0, 1.0, 0.5]), np.array([10.0, 10.0]))
    assert cheapest_cover(options, np.array([0, 0, 1], np.int32), bill) == [0, 1]


@given(data=st.data(), demand=demands(rates=whole_rate_values()), greedy=st.booleans())
def test_a_placement_with_duplicates_becomes_a_valid_plan(
    data: st.DataObject, demand: Demand, greedy: bool
) -> None:
    placed = data.draw(placements(len(demand.rate)))
    rate = np.bincount(
        placed.session, weights=demand.rate[placed.flow], minlength=len(placed.session_group)
    )
    with pytest.MonkeyPatch.context() as patch:
        if greedy:
            patch.setattr(subscription, "EXACT_LIMIT", 0)
        plan = place(demand, *placed, filtering_bill(rate, placed.session_group, FilteringPrices()))
    assert oracles.problems(plan, demand.interest) == []
    assert plan_problems(plan, demand.interest) == ()


def before_dropping(placed: Placement, demand: Demand) -> tuple[list[set[int]], list[float]]:
    """Each flow's sessions, and each session's rate."""
    sessions_of: list[set[int]] = [set() for _ in demand.rate]
    rate = [0.0] * len(placed.session_group)
    for flow, session in zip(placed.flow.tolist(), placed.session.tolist(), strict=True):
        sessions_of[flow].add(session)
        rate[session] += demand.rate[flow]
    return sessions_of, rate


@given(data=st.data(), demand=demands(rates=whole_rate_values()), alpha=st.integers(0, 3))
def test_every_receiver_gets_the_cheapest_subscriptions_by_filtering_work(
    data: st.DataObject, demand: Demand, alpha: int
) -> None:
    placed = data.draw(placements(len(demand.rate)))
    prices = FilteringPrices(alpha, 2)
    sessions_of, rate = before_dropping(placed, demand)
    group_of = placed.session_group.tolist()
    group_rate = [
        sum(r for r, g in zip(rate, group_of, strict=True) if g == group)
        for group in range(max(group_of) + 1)
    ]
    bill = filtering_bill(np.array(rate), placed.session_group, prices)
    assert bill.session.tolist() == [2 * r for r in rate]
    assert bill.group.tolist() == [alpha * r for r in group_rate]
    plan = place(demand, *placed, bill)
    cheapest = sum(
        oracles.cheapest_cover_price(
            [sorted(sessions_of[flow]) for flow in wants],
            group_of,
            [2 * r for r in rate],
            [alpha * r for r in group_rate],
        )
        for wants in oracles.wanted_flows(demand.interest)
    )
    # Sessions that nobody chose are gone, so that the groups they were in carry less.
    assert filtering_cost(plan, demand, prices).work <= cheapest
    if plan.n_sessions == len(group_of):
        assert filtering_cost(plan, demand, prices).work == cheapest


@given(data=st.data(), demand=demands(rates=whole_rate_values()))
def test_every_receiver_gets_the_cheapest_subscriptions_by_channel_cost(
    data: st.DataObject, demand: Demand
) -> None:
    placed = data.draw(placements(len(demand.rate)))
    sessions_of, rate = before_dropping(placed, demand)
    group_of = placed.session_group.tolist()
    bill = channel_bill(np.array(rate), placed.session_group)
    plan = place(demand, *placed, bill)
    cheapest = sum(
        oracles.cheapest_cover_price(
            [sorted(sessions_of[flow]) for flow in wants],
            group_of,
            [0.0] * len(rate),
            bill.group.tolist(),
        )
        for wants in oracles.wanted_flows(demand.interest)
    )
    received = channel_cost(plan, demand, ChannelPrices()).received
    assert received <= cheapest
    if plan.n_sessions == len(group_of):
        assert received == cheapest


@given(data=st.data(), demand=demands())
def test_with_each_flow_in_one_session_receivers_take_exactly_theirs(
    data: st.DataObject, demand: Demand
) -> None:
    n_flows = len(demand.rate)
    session = data.draw(st.lists(st.integers(0, 3), min_size=n_flows, max_size=n_flows))
    group = data.draw(st.lists(st.integers(0, 2), min_size=4, max_size=4))
    plan = place_single(demand, np.array(session, np.int32), np.array(group, np.int32))
    it = oracles.plain(plan)
    assert it.placed == set(enumerate(session))
    assert it.group_of == group
    assert it.subscribed == {
        (receiver, session[flow])
        for receiver, wants in enumerate(oracles.wanted_flows(demand.interest))
        for flow in wants
    }
