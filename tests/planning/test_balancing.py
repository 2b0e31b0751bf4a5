from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from distributary.planning.balancing import balance, scatter

SEEDS = st.integers(0, 1000)


@given(flows=st.integers(1, 40), groups=st.integers(1, 9), seed=SEEDS)
def test_balanced_size_fills_groups_evenly(flows: int, groups: int, seed: int) -> None:
    group = balance(np.ones(flows), groups, np.random.default_rng(seed))
    sizes = np.bincount(group, minlength=groups)
    assert len(sizes) == groups
    assert sizes.max() - sizes.min() <= 1


@given(
    rate=st.lists(st.integers(1, 1000), min_size=1, max_size=40),
    groups=st.integers(1, 9),
    seed=SEEDS,
)
def test_balanced_rates_differ_by_no_more_than_one_flow(
    rate: list[int], groups: int, seed: int
) -> None:
    group = balance(np.array(rate, np.float64), groups, np.random.default_rng(seed))
    carried = np.bincount(group, weights=rate, minlength=groups)
    assert len(carried) == groups
    # The fullest group was among the least full when it got its last flow.
    assert carried.max() - carried.min() <= max(rate)


def test_balancing_goes_through_the_flows_in_random_order() -> None:
    seen = {tuple(balance(np.ones(6), 3, np.random.default_rng(seed))) for seed in range(50)}
    assert len(seen) > 20


@given(flows=st.integers(1, 40), groups=st.integers(1, 9), seed=SEEDS)
def test_scattered_flows_are_in_range(flows: int, groups: int, seed: int) -> None:
    group = scatter(flows, groups, np.random.default_rng(seed))
    assert len(group) == flows
    assert set(group.tolist()) <= set(range(groups))


def test_scattered_flows_use_every_group() -> None:
    group = scatter(10_000, 5, np.random.default_rng(1))
    shares = np.bincount(group) / 10_000
    assert len(shares) == 5
    assert abs(shares - 0.2).max() < 0.02
