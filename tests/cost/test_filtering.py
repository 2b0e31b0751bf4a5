from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from distributary.cost import FilteringPrices, filtering_cost
from distributary.model import Demand, Interest
from tests import oracles
from tests.cost.cases import apart, flooding
from tests.strategies import any_plans, demands, rate_values, whole_rate_values

PRICES = st.builds(
    FilteringPrices,
    st.floats(0, 1e3, allow_subnormal=False),
    st.floats(1e-3, 1e3, allow_subnormal=False),
)
WHOLE_PRICES = st.builds(FilteringPrices, st.integers(0, 5), st.integers(1, 5))


@given(data=st.data(), demand=demands(), prices=PRICES)
def test_any_plan_costs_what_the_formulas_say(
    data: st.DataObject, demand: Demand, prices: FilteringPrices
) -> None:
    plan = data.draw(any_plans(demand.interest))
    cost = filtering_cost(plan, demand, prices)
    expected = oracles.filtering(plan, demand, prices.alpha, prices.beta)
    assert cost.session_cost == pytest.approx(float(expected.session_cost), rel=1e-9, abs=0)
    assert cost.flow_cost == pytest.approx(float(expected.flow_cost), rel=1e-9, abs=0)
    assert cost.work == pytest.approx(
        float(expected.session_cost + expected.flow_cost), rel=1e-9, abs=0
    )
    assert cost.wanted_work == pytest.approx(float(expected.wanted), rel=1e-9, abs=0)
    # A difference can be no more exact than what it is taken of.
    assert cost.flooding_excess == pytest.approx(
        float(expected.flooded - expected.wanted), abs=1e-12 * float(expected.flooded)
    )
    assert cost.excess == pytest.approx(
        float(expected.session_cost + expected.flow_cost - expected.wanted),
        abs=1e-12 * float(expected.session_cost + expected.flow_cost + expected.wanted),
    )


@given(data=st.data(), demand=demands(rates=whole_rate_values()), prices=WHOLE_PRICES)
def test_whole_numbers_are_priced_exactly(
    data: st.DataObject, demand: Demand, prices: FilteringPrices
) -> None:
    plan = data.draw(any_plans(demand.interest))
    cost = filtering_cost(plan, demand, prices)
    expected = oracles.filtering(plan, demand, prices.alpha, prices.beta)
    work = expected.session_cost + expected.flow_cost
    assert cost.work == work
    assert cost.excess == work - expected.wanted
    assert cost.flooding_excess == expected.flooded - expected.wanted
    if expected.flooded == expected.wanted:
        assert cost.relative_excess == 0
    else:
        ratio = (work - expected.wanted) / (expected.flooded - expected.wanted)
        assert cost.relative_excess == pytest.approx(float(ratio), rel=1e-12, abs=0)


@given(demand=demands(rates=whole_rate_values()), prices=WHOLE_PRICES)
def test_one_group_of_one_session_is_flooding(demand: Demand, prices: FilteringPrices) -> None:
    cost = filtering_cost(flooding(demand), demand, prices)
    assert cost.excess == cost.flooding_excess
    wasteful = demand.interest.density < 1
    assert cost.relative_excess == (1 if wasteful else 0)


@given(demand=demands(rates=whole_rate_values()), prices=WHOLE_PRICES)
def test_a_group_for_every_flow_wastes_nothing(demand: Demand, prices: FilteringPrices) -> None:
    cost = filtering_cost(apart(demand), demand, prices)
    assert cost.work == cost.wanted_work
    assert cost.excess == cost.relative_excess == 0


@given(
    receivers=st.integers(1, 6),
    rate=st.lists(rate_values(), min_size=1, max_size=6),
    prices=PRICES,
)
@example(receivers=2, rate=[0.1, 0.2, 0.3], prices=FilteringPrices())
def test_nothing_is_wasted_where_everybody_wants_everything(
    receivers: int, rate: list[float], prices: FilteringPrices
) -> None:
    pairs = [(str(r), str(f)) for r in range(receivers) for f in range(len(rate))]
    demand = Demand(Interest.from_pairs(pairs), np.array(rate))
    for plan in (flooding(demand), apart(demand)):
        assert filtering_cost(plan, demand, prices).relative_excess == 0


def test_prices_fall_as_packets_hold_more_messages() -> None:
    # Eq. 2 and 4: alpha0 + alpha1 / h and beta0 + beta1 / h.
    coefficients = {"alpha0": 0.25, "alpha1": 6.0, "beta0": 0.5, "beta1": 4.0}
    assert FilteringPrices.for_packets(1, **coefficients) == FilteringPrices(6.25, 4.5)
    assert FilteringPrices.for_packets(8, **coefficients) == FilteringPrices(1.0, 1.0)
    assert FilteringPrices.for_packets(2.5, **coefficients) == FilteringPrices(2.65, 2.1)


@pytest.mark.parametrize("messages", [0, 0.99, -1, float("nan")])
def test_a_packet_holds_at_least_one_message(messages: float) -> None:
    with pytest.raises(ValueError, match="at least 1 message"):
        FilteringPrices.for_packets(messages, alpha0=1, alpha1=1, beta0=1, beta1=1)


@pytest.mark.parametrize("bad", [-0.1, float("nan"), float("inf"), 1.1e12, 1e308, 10**308])
def test_a_price_is_a_number_from_0_to_a_million_millions(bad: float) -> None:
    with pytest.raises(ValueError, match=r"alpha must be a number from 0 to 1e[+]12"):
        FilteringPrices(bad, 1)
    with pytest.raises(ValueError, match=r"beta must be a number from 0 to 1e[+]12"):
        FilteringPrices(1, bad)


def test_something_must_cost_something() -> None:
    assert FilteringPrices(0, 1).alpha == 0
    assert FilteringPrices(1, 0).beta == 0
    with pytest.raises(ValueError, match="cannot both be 0"):
        FilteringPrices(0, 0)
