"""Flows in several sessions, so that each receiver can take them from the cheapest one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributary.cost import FilteringPrices, filtering_cost, plan_loads
from distributary.model import Demand, Interest, plan_problems
from distributary.planning import Request, plan
from distributary.planning.hierarchy import Maps
from distributary.planning.homes import give_homes
from distributary.planning.merging import user_merge
from distributary.planning.things import Things
from distributary.planning.two_level import BITS
from distributary.workloads import TwoClass, two_class
from tests.strategies import demands, dense_demands, whole_rate_values

BUDGET = 0.01
whole_prices = st.builds(FilteringPrices, st.integers(0, 3), st.integers(1, 3))
some_demands = demands(rates=whole_rate_values()) | dense_demands(rates=whole_rate_values())
sizes = st.tuples(st.integers(1, 3), st.integers(0, 3)).map(lambda gs: (gs[0], sum(gs)))


@settings(max_examples=40)
@given(some_demands, sizes, whole_prices, st.just(1.0) | st.floats(1, 4), st.integers(0, 9))
def test_the_plan_is_valid_within_its_limits_and_no_worse_than_without_copies(
    demand: Demand, size: tuple[int, int], prices: FilteringPrices, max_sent: float, seed: int
) -> None:
    request = Request(*size, prices=prices, seed=seed, budget_s=BUDGET)
    single = plan(demand, request).plan
    found = plan(demand, request.replace(max_sent=max_sent)).plan
    assert plan_problems(found, demand.interest) == ()
    assert found.n_groups <= size[0]
    assert found.n_sessions <= size[1]
    sent = float(plan_loads(found, demand).session_rate.sum())
    assert sent <= max_sent * demand.rate.sum() * (1 + 1e-9)
    if max_sent == 1:
        assert found.duplicated_flows == 0
    work = filtering_cost(found, demand, prices).work
    assert work <= filtering_cost(single, demand, prices).work * (1 + 1e-9)


# Tock et al., Table 1: U1 wants flows 1 and 2, U2 wants 1 and 3; there are two groups.
TABLE_1 = Demand(
    Interest.from_pairs([("U1", "1"), ("U1", "2"), ("U2", "1"), ("U2", "3")]),
    np.array([1.0, 100.0, 100.0]),
)


def test_with_a_second_copy_of_flow_1_nothing_is_wasted() -> None:
    found = plan(TABLE_1, Request(2, max_sent=1.01, budget_s=BUDGET)).plan
    assert filtering_cost(found, TABLE_1, FilteringPrices()).excess == 0
    assert found.duplicated_flows == 1
    assert plan_loads(found, TABLE_1).group_rate.tolist() == [101, 101]


def test_a_copy_that_the_limit_does_not_hold_is_not_made() -> None:
    found = plan(TABLE_1, Request(2, max_sent=1.004, budget_s=BUDGET)).plan
    assert found.duplicated_flows == 0
    assert filtering_cost(found, TABLE_1, FilteringPrices()).excess == 200


@pytest.mark.parametrize("max_sent", [0.99, float("nan"), float("inf")])
def test_a_limit_below_sending_all_once_is_refused(max_sent: float) -> None:
    with pytest.raises(ValueError, match="max_sent"):
        Request(2, max_sent=max_sent)


@pytest.mark.parametrize("max_sent", [1.0, 1.7, 4.0])
def test_homes_serve_every_pair_within_the_rate_that_may_be_sent(max_sent: float) -> None:
    rng = np.random.default_rng(5)
    demand = Demand.of(*two_class(TwoClass(flows=60, receivers=20, want_unpopular=0.3), rng))
    things, groups, sessions = Things.flows_of(demand, BITS), 4, 9
    maps = Maps(
        rng.integers(sessions, size=60).astype(np.int32), (np.arange(9) % 4).astype(np.int32)
    )
    clusters = user_merge(demand, groups)
    source, group = give_homes(things, maps, FilteringPrices(), max_sent, clusters, rng)
    assert len(source) == demand.interest.pairs
    assert (source >= 0).all()
    assert source.max() < len(group) <= sessions
    assert group.max() < groups
    flow = demand.interest.pair_flows()
    copies = {(int(k), int(s)) for k, s in zip(flow, source, strict=True)}
    sent = sum(int(things.weight[k]) for k, _ in copies)
    assert sent <= max_sent * int(things.weight.sum())


def test_more_homes_than_groups_are_refused() -> None:
    things = Things.flows_of(TABLE_1, BITS)
    maps = Maps(np.zeros(3, np.int32), np.zeros(1, np.int32))
    clusters, rng = np.arange(2, dtype=np.int32), np.random.default_rng(0)
    with pytest.raises(ValueError, match="2 homes for 1 groups"):
        give_homes(things, maps, FilteringPrices(), 2.0, clusters, rng)
