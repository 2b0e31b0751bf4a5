"""Costs from five sums are those from all pairs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.cost import FilteringPrices, Totals, evaluate, objective_cost
from distributary.model import Demand
from distributary.planning import Request, plan
from tests.strategies import dense_demands

PRICES = st.sampled_from([FilteringPrices(), FilteringPrices(0.1, 1.9), FilteringPrices(3, 0)])


@given(dense_demands(max_flows=6), st.integers(1, 4), PRICES)
def test_five_sums_are_enough_for_both_costs(
    demand: Demand, groups: int, prices: FilteringPrices
) -> None:
    found = plan(demand, Request(groups, 6, algorithm="groups-first")).plan
    whole = evaluate(found, demand, prices)
    loads = whole.loads
    totals = Totals(
        receivers=len(demand.interest.receivers),
        received=float(loads.received.sum()),
        accepted=float(loads.accepted.sum()),
        wanted=float(loads.wanted.sum()),
        sent=float(demand.rate.sum()),
    )
    filtering, channel = totals.filtering(prices), totals.channel()
    assert filtering.work == pytest.approx(whole.filtering.work)
    assert filtering.work == pytest.approx(prices.work(totals.received, totals.accepted))
    assert filtering.wanted_work == pytest.approx(whole.filtering.wanted_work)
    assert filtering.flooding_work == pytest.approx(whole.filtering.flooding_work)
    assert channel.cost == pytest.approx(whole.channel.cost)
    assert channel.lower_bound == pytest.approx(whole.channel.lower_bound)
    assert channel.flooding == pytest.approx(whole.channel.flooding)
    assert objective_cost(found, demand, "filtering", prices) == whole.filtering.work
    assert objective_cost(found, demand, "channel", prices) == whole.channel.cost
