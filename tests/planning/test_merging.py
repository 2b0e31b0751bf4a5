from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.model import Demand, Interest, Rates
from distributary.planning import Step, merging
from distributary.planning import _reference as reference
from distributary.planning.merging import flow_merge, user_merge
from distributary.planning.things import whole_rates
from tests.oracles import wanted_flows
from tests.strategies import demands, dense_demands, whole_rate_values

RATES = st.sampled_from([None, whole_rate_values(), st.just(1.0)])
DEMANDS = RATES.flatmap(
    lambda rates: (
        demands(max_receivers=6, max_flows=8, rates=rates)
        | dense_demands(max_receivers=8, max_flows=10, rates=rates)
    )
)


def together(group: list[int]) -> set[frozenset[int]]:
    return {frozenset(k for k, g in enumerate(group) if g == one) for one in set(group)}


@given(demand=DEMANDS, groups=st.integers(1, 9))
def test_flow_merge_joins_the_flows_that_its_plain_twin_joins(demand: Demand, groups: int) -> None:
    interest, n_flows = demand.interest, len(demand.rate)
    n_receivers = len(interest.receivers)
    expected = reference.merge_closest(
        [set(interest.receivers_of(k).tolist()) for k in range(n_flows)],
        [1] * n_receivers,
        whole_rates(demand.rate, n_receivers).tolist(),
        0,
        max(0, n_flows - groups),
    )
    group = flow_merge(demand, groups).tolist()
    assert together(group) == set(map(frozenset, expected))
    assert len(set(group)) == min(groups, n_flows)


@given(demand=DEMANDS, groups=st.integers(1, 7))
def test_user_merge_joins_the_receivers_that_its_plain_twin_joins(
    demand: Demand, groups: int
) -> None:
    wants = wanted_flows(demand.interest)
    expected = reference.merge_closest(
        wants,
        whole_rates(demand.rate, len(wants) + 1).tolist(),
        [1] * len(wants),
        1,
        max(0, len(wants) - groups),
    )
    group = user_merge(demand, groups).tolist()
    assert together(group) == set(map(frozenset, expected))
    assert len(set(group)) == min(groups, len(wants))


@given(demand=DEMANDS, groups=st.integers(1, 3))
def test_merging_a_little_at_a_time_changes_nothing(demand: Demand, groups: int) -> None:
    flows, users = flow_merge(demand, groups), user_merge(demand, groups)
    steps: list[Step] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merging, "_MERGES_PER_STEP", 1)
        assert flow_merge(demand, groups, steps.append).tolist() == flows.tolist()
        assert user_merge(demand, groups, steps.append).tolist() == users.tolist()
    assert {step.stage for step in steps} == {"merging"}
    assert all(step.done <= step.total for step in steps if step.total is not None)
    assert steps[-1].done == steps[-1].total


def test_merging_users_may_save_what_both_groups_would_carry() -> None:
    # Two users with the same wish: apart it is sent twice, together once.
    demand = Demand.of(
        Interest.from_pairs([("a", "x"), ("b", "x"), ("c", "y")]),
        Rates.from_mapping({"x": 5.0, "y": 1.0}),
    )
    assert user_merge(demand, 2).tolist() == [0, 0, 1]


def test_of_equal_pairs_the_first_is_merged() -> None:
    pairs = [(f"r{k}", f"f{k}") for k in range(4)]
    demand = Demand.of(
        Interest.from_pairs(pairs), Rates.from_mapping({flow: 1.0 for _, flow in pairs})
    )
    assert flow_merge(demand, 3).tolist() == [0, 0, 1, 2]
    assert user_merge(demand, 3).tolist() == [0, 0, 1, 2]
