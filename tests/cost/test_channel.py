from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.cost import ChannelPrices, channel_cost
from distributary.model import Demand, Interest, Plan, Rates
from distributary.planning import Request, plan
from tests import oracles
from tests.cost.cases import apart, flooding
from tests.strategies import any_plans, demands, near, whole_rate_values

ONE = ChannelPrices()
PRICES = st.builds(
    ChannelPrices,
    st.floats(0, 1e3, allow_subnormal=False),
    st.floats(0, 1e3, allow_subnormal=False),
)


def assert_same(cost: object, expected: oracles.Channel) -> None:
    for word, value in expected._asdict().items():
        assert getattr(cost, word) == near(float(value)), word


@given(data=st.data(), demand=demands(), prices=PRICES)
def test_any_plan_costs_what_the_formula_says(
    data: st.DataObject, demand: Demand, prices: ChannelPrices
) -> None:
    drawn = data.draw(any_plans(demand.interest))
    cost = channel_cost(drawn, demand, prices)
    expected = oracles.channel(drawn, demand, prices.received, prices.sent)
    assert_same(cost, expected)
    assert cost.cost == near(float(expected.received + expected.sent))
    assert cost.overhead == cost.cost - cost.lower_bound


@given(data=st.data(), demand=demands(), prices=PRICES)
def test_with_coefficients_each_receiver_pays_its_own_price_for_each_flow(
    data: st.DataObject, demand: Demand, prices: ChannelPrices
) -> None:
    drawn = data.draw(any_plans(demand.interest))
    shape = len(demand.interest.receivers), len(demand.interest.flows)
    one = st.floats(0, 100, allow_subnormal=False)
    size = shape[0] * shape[1]
    coefficients = np.array(data.draw(st.lists(one, min_size=size, max_size=size))).reshape(shape)
    cost = channel_cost(drawn, demand, prices, coefficients)
    expected = oracles.channel(
        drawn, demand, prices.received, prices.sent, lambda j, i: float(coefficients[j, i])
    )
    assert_same(cost, expected)


@given(data=st.data(), demand=demands(rates=whole_rate_values()))
def test_coefficients_of_1_change_nothing(data: st.DataObject, demand: Demand) -> None:
    drawn = data.draw(any_plans(demand.interest))
    ones = np.ones((len(demand.interest.receivers), len(demand.interest.flows)))
    assert channel_cost(drawn, demand, ONE, ones) == channel_cost(drawn, demand, ONE)


@given(demand=demands(rates=whole_rate_values()), sent=st.integers(0, 3))
def test_one_group_costs_what_flooding_does(demand: Demand, sent: int) -> None:
    cost = channel_cost(flooding(demand), demand, ChannelPrices(2, sent))
    assert cost.cost == cost.flooding


@given(demand=demands(rates=whole_rate_values()), sent=st.integers(0, 3))
def test_a_group_for_every_flow_costs_the_lower_bound(demand: Demand, sent: int) -> None:
    cost = channel_cost(apart(demand), demand, ChannelPrices(2, sent))
    assert cost.cost == cost.lower_bound
    assert cost.overhead == 0


@pytest.mark.parametrize("groups", [[0, 0], [0, 1]], ids=["one group", "two groups"])
def test_a_flow_that_arrives_twice_is_charged_twice(groups: list[int]) -> None:
    demand = Demand(Interest.from_pairs([("a", "x")]), np.array([5.0]))
    both = np.array([0, 1], np.int32)
    zero = np.zeros(2, np.int32)
    twice = Plan(("a",), ("x",), zero, both, np.array(groups, np.int32), zero, both)
    cost = channel_cost(twice, demand, ChannelPrices(1, 10))
    assert (cost.received, cost.sent, cost.lower_bound) == (10, 100, 55)


@pytest.mark.parametrize("shape", [(2, 1), (1, 2), (2, 2, 1)])
def test_coefficients_are_receivers_by_flows(shape: tuple[int, ...]) -> None:
    demand = Demand(Interest.from_pairs([("a", "x"), ("b", "y")]), np.ones(2))
    with pytest.raises(ValueError, match="receivers x flows"):
        channel_cost(flooding(demand), demand, ONE, np.ones(shape))


@pytest.mark.parametrize("bad", [-0.1, float("nan"), float("inf")])
def test_a_price_is_a_finite_number_of_at_least_0(bad: float) -> None:
    with pytest.raises(ValueError, match="received must be a finite number of at least 0"):
        ChannelPrices(bad, 1)
    with pytest.raises(ValueError, match="sent must be a finite number of at least 0"):
        ChannelPrices(1, bad)


# Adler, Table 1: three flows, two users, two groups.
TABLE_1 = Demand.of(
    Interest.from_pairs([("U1", "S1"), ("U1", "S2"), ("U2", "S1"), ("U2", "S3")]),
    Rates.from_mapping({"S1": 1.0, "S2": 100.0, "S3": 100.0}),
)


@pytest.mark.parametrize(
    ("algorithm", "each_receives", "received", "sent"),
    [("OCA", [101, 101], 101 + 101, 101 + 101), ("OCC", [101, 201], 101 + 201, 201)],
)
def test_adlers_example_of_what_one_group_per_flow_gives_away(
    algorithm: str, each_receives: list[int], received: int, sent: int
) -> None:
    solution = plan(TABLE_1, Request(groups=2, algorithm=algorithm))
    cost = channel_cost(solution.plan, TABLE_1, ONE)
    assert (cost.received, cost.sent) == (received, sent)
    assert solution.proven
    it, rate = oracles.plain(solution.plan), TABLE_1.rate
    took = [
        sum(
            it.copies(flow, g) * rate[flow]
            for g in it.groups
            if it.joins(j, g)
            for flow in (0, 1, 2)
        )
        for j in (0, 1)
    ]
    assert sorted(took) == each_receives
