from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from distributary.cost import ChannelPrices, channel_cost
from distributary.model import Demand, plan_problems
from distributary.planning import place_shared, place_single
from distributary.planning.subscription import cheapest_cover
from tests import oracles
from tests.strategies import demands, whole_rate_values

Options = list[frozenset[int]]


@st.composite
def covers_to_find(draw: st.DrawFn, *, max_groups: int = 8) -> tuple[Options, np.ndarray]:
    """Wanted flows with the groups that carry each, at whole-number prices."""
    n_groups = draw(st.integers(1, max_groups))
    least = min(n_groups, draw(st.integers(1, 3)))
    option = st.frozensets(st.integers(0, n_groups - 1), min_size=least, max_size=4)
    options = draw(st.lists(option, min_size=1, max_size=12))
    price = st.lists(st.integers(0, 9).map(float), min_size=n_groups, max_size=n_groups)
    return options, np.array(draw(price))


@st.composite
def shared_groups(draw: st.DrawFn, n_flows: int, *, max_groups: int = 5) -> np.ndarray:
    """Flows x groups: each flow in one group or several; some groups may stay empty."""
    n_groups = draw(st.integers(1, max_groups))
    some = st.sets(st.integers(0, n_groups - 1), min_size=1, max_size=3)
    in_group = np.zeros((n_flows, n_groups), bool)
    for row in in_group:
        row[list(draw(some))] = True
    return in_group


@given(case=covers_to_find())
def test_wanted_flows_are_covered_at_the_least_price_there_is(
    case: tuple[Options, np.ndarray],
) -> None:
    options, price = case
    cover = cheapest_cover(options, price)
    assert cover == sorted(set(cover))
    assert oracles.covers(cover, options)
    assert price[cover].sum() == oracles.cheapest_cover_price(options, price.tolist())


@given(groups=st.lists(st.integers(0, 6), min_size=1, max_size=6))
def test_without_a_choice_there_is_one_cover(groups: list[int]) -> None:
    cover = cheapest_cover([frozenset({group}) for group in groups], np.zeros(7))
    assert cover == sorted(set(groups))


def test_a_dear_group_is_worth_it_if_it_carries_several_wanted_flows() -> None:
    options = [frozenset({0, 3}), frozenset({1, 3}), frozenset({2, 3})]
    for dear, cover in ((2.5, [3]), (3.5, [0, 1, 2])):
        assert cheapest_cover(options, np.array([1, 1, 1, dear])) == cover


@given(data=st.data(), demand=demands(rates=whole_rate_values()))
def test_flows_in_several_groups_become_a_valid_plan_of_cheapest_subscriptions(
    data: st.DataObject, demand: Demand
) -> None:
    in_group = data.draw(shared_groups(len(demand.rate)))
    plan = place_shared(demand, in_group)
    assert oracles.problems(plan, demand.interest) == []
    assert plan_problems(plan, demand.interest) == ()
    price = [
        sum(rate for rate, placed in zip(demand.rate.tolist(), column, strict=True) if placed)
        for column in in_group.T.tolist()
    ]
    groups_of = [np.flatnonzero(row).tolist() for row in in_group]
    cheapest = sum(
        oracles.cheapest_cover_price([groups_of[flow] for flow in wants], price)
        for wants in oracles.wanted_flows(demand.interest)
    )
    assert channel_cost(plan, demand, ChannelPrices()).received == cheapest


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
