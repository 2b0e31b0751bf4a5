from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributary.cost import FilteringPrices, filtering_cost
from distributary.model import Demand
from distributary.planning import Annealing, Step, place_single
from distributary.planning.hierarchy import (
    Maps,
    TwoLevelProblem,
    _equal_shares,
    groups_first,
    iterative,
    scatter_and_regroup,
    sessions_first,
    sessions_in_groups,
)
from distributary.planning.things import Things
from distributary.workloads import TwoClass, two_class
from tests.strategies import demands, whole_rate_values

SOLVERS = pytest.mark.parametrize(
    "solver", [sessions_first, groups_first, iterative, scatter_and_regroup]
)
BETTER = pytest.mark.parametrize("solver", [iterative, scatter_and_regroup])
PRICES = st.builds(FilteringPrices, st.integers(0, 3), st.integers(1, 3))


@st.composite
def jobs(draw: st.DrawFn) -> tuple[Things, int, int]:
    """Flows, and no more sessions than flows, and no more groups than sessions."""
    things = Things.flows_of(draw(demands(max_receivers=6, max_flows=9)))
    sessions = draw(st.integers(1, len(things)))
    return things, sessions, draw(st.integers(1, sessions))


@SOLVERS
@settings(max_examples=20)
@given(job=jobs(), prices=PRICES, seed=st.integers(0, 99))
def test_maps_stay_within_what_was_asked(
    solver: Callable[..., Maps],
    job: tuple[Things, int, int],
    prices: FilteringPrices,
    seed: int,
) -> None:
    things, n_sessions, n_groups = job
    maps = solver(TwoLevelProblem(*job, prices), np.random.default_rng(seed))
    assert len(maps.session) == len(things)
    assert len(maps.group) <= n_sessions
    assert 0 <= maps.session.min() <= maps.session.max() < len(maps.group)
    assert 0 <= maps.group.min() <= maps.group.max() < n_groups
    assert maps.flow_group.tolist() == [maps.group[s] for s in maps.session]


@BETTER
@settings(max_examples=20)
@given(job=jobs(), prices=PRICES, seed=st.integers(0, 99))
def test_what_starts_from_gf_is_never_worse_than_gf(
    solver: Callable[..., Maps],
    job: tuple[Things, int, int],
    prices: FilteringPrices,
    seed: int,
) -> None:
    things = job[0]
    problem = TwoLevelProblem(*job, prices)
    start = groups_first(problem, np.random.default_rng(seed))
    better = solver(problem, np.random.default_rng(seed))
    assert better.work(things, prices) <= start.work(things, prices)


@BETTER
def test_the_best_maps_met_are_kept_though_later_ones_are_worse(
    solver: Callable[..., Maps],
) -> None:
    params = TwoClass(flows=60, receivers=30)
    demand = Demand.of(*two_class(params, np.random.default_rng(1)))
    things, prices = Things.flows_of(demand), FilteringPrices()
    for seed in range(5):
        steps: list[Step] = []
        problem = TwoLevelProblem(things, 20, 8, prices)
        maps = solver(problem, np.random.default_rng(seed), steps.append)
        best = [step.best for step in steps if step.best is not None]
        assert best == sorted(best, reverse=True)
        assert maps.work(things, prices) == best[-1]


@given(job=jobs(), seed=st.integers(0, 99))
def test_gf_starts_again_from_its_own_sessions_and_finds_nothing_to_do(
    job: tuple[Things, int, int], seed: int
) -> None:
    things, n_sessions, n_groups = job
    maps = groups_first(TwoLevelProblem(*job), np.random.default_rng(seed))
    again = sessions_in_groups(
        things, maps.flow_group, n_sessions, n_groups, np.random.default_rng(seed + 1), maps
    )
    assert again.session.tolist() == maps.session.tolist()
    assert again.group.tolist() == maps.group.tolist()


@given(data=st.data(), demand=demands(rates=whole_rate_values()), prices=PRICES)
def test_work_is_the_filtering_cost_of_the_plan_in_whole_rates(
    data: st.DataObject, demand: Demand, prices: FilteringPrices
) -> None:
    n_flows = len(demand.rate)
    group = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=5))
    session = data.draw(
        st.lists(st.integers(0, len(group) - 1), min_size=n_flows, max_size=n_flows)
    )
    maps = Maps(np.array(session, np.int32), np.array(group, np.int32))
    things = Things.flows_of(demand)
    whole = Demand(demand.interest, things.weight.astype(np.float64))
    cost = filtering_cost(place_single(whole, maps.session, maps.group), whole, prices)
    assert maps.work(things, prices) == pytest.approx(cost.work, rel=1e-12)


@given(data=st.data())
def test_compact_maps_are_the_same_without_gaps_in_order_of_first_use(data: st.DataObject) -> None:
    group = data.draw(st.lists(st.integers(0, 6), min_size=1, max_size=8))
    session = data.draw(st.lists(st.integers(0, len(group) - 1), min_size=1, max_size=10))
    maps = Maps(np.array(session, np.int32), np.array(group, np.int32))
    compact = maps.compact()

    def by_first_use(labels: list[int]) -> list[int]:
        order = list(dict.fromkeys(labels))
        return [order.index(label) for label in labels]

    assert compact.session.tolist() == by_first_use(session)
    assert compact.flow_group.tolist() == by_first_use([group[s] for s in session])
    assert len(compact.group) == len(set(session))


@given(
    n_sessions=st.integers(1, 60),
    flows=st.lists(st.integers(0, 20), min_size=1, max_size=8).filter(any),
)
def test_shares_are_equal_as_far_as_there_are_flows(n_sessions: int, flows: list[int]) -> None:
    share = _equal_shares(n_sessions, np.array(flows)).tolist()
    assert sum(share) == min(n_sessions, sum(flows))
    assert all(0 <= s <= f for s, f in zip(share, flows, strict=True))
    # A group that could have filled one more has at most one less than any other.
    unfilled = [s for s, f in zip(share, flows, strict=True) if s < f]
    assert all(max(share) - s <= 1 for s in unfilled)


def test_shares_split_by_hand() -> None:
    assert _equal_shares(10, np.array([9, 9, 9])).tolist() == [4, 3, 3]
    assert _equal_shares(10, np.array([1, 9, 0, 9])).tolist() == [1, 5, 0, 4]
    assert _equal_shares(2, np.array([9, 9, 9])).tolist() == [1, 1, 0]


def test_annealing_scatters_ever_less_down_to_its_last_share() -> None:
    # Tock, section 5.5: P1 = 10, P0 = 0.5, mu = 0.8.
    shares = list(Annealing().percentages())
    assert shares == pytest.approx([10 * 0.8**n for n in range(14)])
    assert shares[-1] > 0.5 > 0.8 * shares[-1]
    assert list(Annealing(8, 1, 0.5).percentages()) == [8, 4, 2, 1]


@pytest.mark.parametrize(
    ("first", "last", "factor"),
    [(10, 0, 0.5), (10, 10, 0.5), (1, 2, 0.5), (101, 1, 0.5), (10, 1, 1.0), (10, 1, 0.0)],
)
def test_annealing_must_come_to_an_end(first: float, last: float, factor: float) -> None:
    with pytest.raises(ValueError, match="0 < last < first <= 100 and 0 < factor < 1"):
        Annealing(first, last, factor)
