from __future__ import annotations

from collections.abc import Callable
from itertools import count, pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributary.cost import ChannelPrices, channel_cost
from distributary.model import Demand, plan_problems
from distributary.planning import Request, Step, plan
from distributary.planning import _reference as reference
from distributary.planning import optimal as module
from distributary.planning.optimal import Optimum, optimal, optimal_shared
from distributary.workloads import TwoClass, two_class
from tests import oracles
from tests.strategies import demands, dense_demands, rate_values, whole_rate_values

PLENTY = 600.0
RATES = rate_values() | whole_rate_values()
HARD = demands(rates=RATES) | dense_demands(max_receivers=6, rates=RATES)
HARD_TO_SHARE = dense_demands(max_receivers=5, max_flows=4, rates=RATES)
EXACT = pytest.mark.parametrize("algorithm", ["optimal", "optimal-shared"])


def least_single(demand: Demand, groups: int) -> float:
    return oracles.cheapest_single(
        oracles.wanted_flows(demand.interest), demand.rate.tolist(), groups
    )


def least_shared(demand: Demand, groups: int) -> float:
    return oracles.cheapest_shared(
        oracles.wanted_flows(demand.interest), demand.rate.tolist(), groups
    )


@settings(max_examples=20)
@given(
    demand=dense_demands(max_receivers=4, max_flows=4, rates=whole_rate_values()),
    groups=st.integers(1, 3),
)
def test_the_plain_twins_of_the_searches_agree_with_the_oracles(
    demand: Demand, groups: int
) -> None:
    receivers = [set(demand.interest.receivers_of(k).tolist()) for k in range(len(demand.rate))]
    rate, n_receivers = demand.rate.tolist(), len(demand.interest.receivers)
    assert reference.cheapest_partition(receivers, rate, groups) == least_single(demand, groups)
    assert reference.cheapest_sharing(receivers, rate, groups, n_receivers) == least_shared(
        demand, groups
    )


def large_demand(flows: int = 30, receivers: int = 30, seed: int = 1) -> Demand:
    params = TwoClass(flows=flows, receivers=receivers)
    return Demand.of(*two_class(params, np.random.default_rng(seed)))


def price_of(optimum: Optimum, demand: Demand) -> float:
    """What the groups found cost, with every receiver on its cheapest cover."""
    groups = range(optimum.in_group.shape[1])
    carried = [float(demand.rate[optimum.in_group[:, g]].sum()) for g in groups]
    return sum(carried) + sum(
        oracles.cheapest_cover_price(
            [np.flatnonzero(optimum.in_group[flow]).tolist() for flow in wants], carried
        )
        for wants in oracles.wanted_flows(demand.interest)
    )


@given(demand=HARD, groups=st.integers(1, 3))
def test_no_map_of_flows_to_groups_is_cheaper_than_the_optimum(demand: Demand, groups: int) -> None:
    optimum = optimal(demand, groups, PLENTY)
    assert optimum.cost == pytest.approx(least_single(demand, groups), rel=1e-9)
    assert optimum.cost == pytest.approx(price_of(optimum, demand), rel=1e-9)
    assert optimum.proven
    assert optimum.lower_bound == optimum.cost
    assert optimum.in_group.sum(axis=1).tolist() == [1] * len(demand.rate)


@settings(max_examples=30)
@given(demand=HARD_TO_SHARE, groups=st.integers(1, 3))
def test_no_shared_map_is_cheaper_than_the_shared_optimum(demand: Demand, groups: int) -> None:
    optimum = optimal_shared(demand, groups, PLENTY)
    assert optimum.cost == pytest.approx(least_shared(demand, groups), rel=1e-9)
    assert optimum.cost == pytest.approx(price_of(optimum, demand), rel=1e-9)
    assert optimum.proven
    assert optimum.lower_bound == optimum.cost
    assert optimum.in_group.any(axis=1).all()


def check_bounds(
    solve: Callable[..., Optimum], least: float, demand: Demand, groups: int, looks: int
) -> None:
    """Look at the clock so many times: cost and bound must be on their sides of the least."""
    with pytest.MonkeyPatch.context() as patch:
        stop_after(patch, looks)
        optimum = solve(demand, groups, looks)
    assert optimum.lower_bound <= least * (1 + 1e-12)
    assert optimum.cost >= least * (1 - 1e-12)
    assert optimum.cost == pytest.approx(price_of(optimum, demand), rel=1e-9)
    if optimum.proven:
        assert optimum.cost == pytest.approx(least, rel=1e-9)


@given(
    demand=HARD,
    groups=st.integers(1, 3),
    looks=st.integers(0, 60),
)
def test_a_search_cut_short_bounds_the_optimum_from_both_sides(
    demand: Demand, groups: int, looks: int
) -> None:
    check_bounds(optimal, least_single(demand, groups), demand, groups, looks)


@settings(max_examples=30)
@given(
    demand=HARD_TO_SHARE,
    groups=st.integers(1, 3),
    looks=st.integers(0, 120),
)
def test_a_shared_search_cut_short_bounds_the_optimum_from_both_sides(
    demand: Demand, groups: int, looks: int
) -> None:
    check_bounds(optimal_shared, least_shared(demand, groups), demand, groups, looks)


@pytest.mark.parametrize(
    ("solve", "least_cost", "flows", "groups"),
    [(optimal, least_single, 7, 3), (optimal_shared, least_shared, 6, 2)],
    ids=["optimal", "optimal-shared"],
)
def test_the_bounds_close_in_on_the_optimum_as_the_budget_grows(
    solve: Callable[..., Optimum], least_cost: Callable[..., float], flows: int, groups: int
) -> None:
    improved = False
    for seed in range(6):
        params = TwoClass(flows=flows, receivers=7, fast_share=0.5, want_unpopular=0.4)
        demand = Demand.of(*two_class(params, np.random.default_rng(seed)))
        least = least_cost(demand, groups)
        found = []
        for looks in [*range(0, 40, 3), *range(40, 4000, 360)]:
            with pytest.MonkeyPatch.context() as patch:
                stop_after(patch, looks)
                found.append(solve(demand, groups, looks))
        for optimum in found:
            assert optimum.lower_bound <= least <= optimum.cost
        for before, after in pairwise(found):
            assert after.cost <= before.cost
            assert after.lower_bound >= before.lower_bound
        assert found[-1].cost == least
        improved |= found[0].cost > least
    assert improved  # or else there was nothing to find


def stop_after(patch: pytest.MonkeyPatch, looks: int) -> None:
    """One node between two looks at a clock that shows one second more each time."""
    ticks = count()
    patch.setattr(module, "time", SimpleNamespace(monotonic=lambda: float(next(ticks))))
    patch.setattr(module, "_WORK_PER_STEP", 0)


@given(demand=HARD, groups=st.integers(1, 3))
def test_looking_at_the_clock_more_often_changes_nothing(demand: Demand, groups: int) -> None:
    whole = optimal(demand, groups, PLENTY), optimal_shared(demand, groups, PLENTY)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_WORK_PER_STEP", 0)  # one node a step
        parts = optimal(demand, groups, PLENTY), optimal_shared(demand, groups, PLENTY)
    for one, other in zip(whole, parts, strict=True):
        assert one.in_group.tolist() == other.in_group.tolist()
        assert (one.cost, one.lower_bound) == (other.cost, other.lower_bound)


@given(demand=HARD, groups=st.integers(1, 3))
def test_a_proof_reports_a_cost_that_never_rises(demand: Demand, groups: int) -> None:
    steps: list[Step] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_WORK_PER_STEP", 0)  # one node a step
        optimum = optimal_shared(demand, groups, PLENTY, steps.append)
    proving = [step for step in steps if step.stage == "proving"]
    best = [step.best for step in proving if step.best is not None]
    assert best == sorted(best, reverse=True)
    assert best[-1] >= optimum.cost * (1 - 1e-12)
    assert all(step.total is None or 0 <= step.done <= step.total for step in proving)


@EXACT
@pytest.mark.parametrize("groups", [5, 8, 17])
def test_a_budget_too_small_for_a_proof_still_gives_a_plan_and_a_bound(
    algorithm: str, groups: int
) -> None:
    demand = large_demand()
    solution = plan(demand, Request(groups=groups, algorithm=algorithm, budget_s=0.01))
    cost = channel_cost(solution.plan, demand, ChannelPrices())
    assert plan_problems(solution.plan, demand.interest) == ()
    assert solution.plan.n_groups <= groups
    assert not solution.proven
    assert solution.channel_lower_bound is not None
    assert cost.lower_bound <= solution.channel_lower_bound < cost.cost


def test_the_search_for_shared_flows_is_for_few_groups() -> None:
    with pytest.raises(ValueError, match="at most 6 groups, not 7"):
        optimal_shared(large_demand(), 7, PLENTY)


@EXACT
@pytest.mark.parametrize("flows", [3, 6, 8, 12])
def test_with_a_group_for_every_flow_the_lower_bound_is_reached_and_proven(
    algorithm: str, flows: int
) -> None:
    for seed in range(10):
        interest = large_demand(flows, 7, seed).interest
        demand = Demand(interest, np.random.default_rng(seed).random(flows) + 0.01)
        solution = plan(demand, Request(groups=flows, algorithm=algorithm))
        cost = channel_cost(solution.plan, demand, ChannelPrices())
        assert cost.cost == pytest.approx(cost.lower_bound, rel=1e-12)
        assert solution.proven


@EXACT
def test_a_budget_without_end_is_a_budget(algorithm: str) -> None:
    demand = large_demand(4, 4)
    request = Request(groups=2, algorithm=algorithm, budget_s=float("inf"))
    assert plan(demand, request).proven


@pytest.mark.parametrize("groups", [2, 3])
@settings(max_examples=10)
@given(demand=dense_demands(max_receivers=6, max_flows=7, rates=RATES))
def test_no_map_of_more_flows_is_cheaper_than_the_optimum(groups: int, demand: Demand) -> None:
    assert optimal(demand, groups, PLENTY).cost == pytest.approx(
        least_single(demand, groups), rel=1e-9
    )
    if groups == 2:
        assert optimal_shared(demand, groups, PLENTY).cost == pytest.approx(
            least_shared(demand, groups), rel=1e-9
        )
