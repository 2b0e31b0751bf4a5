from __future__ import annotations

from itertools import islice, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.cost import FilteringPrices, filtering_cost
from distributary.model import Demand, Interest, Plan
from distributary.planning import make_plan, place_single
from distributary.planning.request import Request
from distributary.workloads import FloorScene, ShiftingFloor, shifting_floor


def draw(params: ShiftingFloor, seed: int, scenes: int) -> list[FloorScene]:
    return list(islice(shifting_floor(params, np.random.default_rng(seed)), scenes))


@st.composite
def floors(draw: st.DrawFn) -> ShiftingFloor:
    """Small ones, down to one of everything."""
    themes, size = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    symbols = draw(st.integers((themes + 1) * size, 4 * themes * size + size))
    return ShiftingFloor(
        symbols=symbols,
        desks=draw(st.integers(1, 6)),
        exchanges=draw(st.integers(1, symbols)),
        watched_by_desk=draw(st.integers(1, symbols)),
        themes=themes,
        symbols_by_theme=size,
        themes_by_desk=draw(st.integers(1, themes)),
        leaves=draw(st.sampled_from([0.0, 0.5, 0.99])),
    )


@given(params=floors(), seed=st.integers(0, 2**32))
def test_every_scene_has_desks_that_want_symbols_of_exchanges(
    params: ShiftingFloor, seed: int
) -> None:
    scenes = draw(params, seed, 6)
    for scene in scenes:
        assert len(scene.rates.flows) == params.symbols
        assert scene.rates.rate.sum() == pytest.approx(params.rate)
        assert 1 <= len(scene.wanted) <= params.desks
        most = params.watched_by_desk + params.themes_by_desk * params.symbols_by_theme
        for wanted in scene.wanted.values():
            assert params.watched_by_desk <= len(wanted) <= most
            assert wanted <= set(scene.rates.flows)
        published = [symbol for symbols in scene.exchanges.values() for symbol in symbols]
        assert sorted(published) == list(scene.rates.flows)
        assert len(scene.exchanges) == params.exchanges
        assert scene.exchanges == scenes[0].exchanges


def test_a_busy_symbol_is_one_of_a_theme_and_the_themes_have_their_share() -> None:
    params = ShiftingFloor(rate=1_000.0, busy_share=0.75)
    for scene in draw(params, 5, 10):
        ordered = np.sort(scene.rates.rate)[::-1]
        in_themes = params.themes * params.symbols_by_theme
        # Some symbols outside are more popular than some inside, but not many.
        assert ordered[:in_themes].sum() == pytest.approx(750, rel=0.1)


def test_without_a_desk_that_leaves_all_are_there_all_day() -> None:
    for scene in draw(ShiftingFloor(leaves=0.0), 3, 20):
        assert len(scene.wanted) == 8


def test_desks_leave_and_come_back() -> None:
    there = [set(scene.wanted) for scene in draw(ShiftingFloor(), 0, 40)]
    assert any(before - after for before, after in pairwise(there))
    assert any(after - before for before, after in pairwise(there))
    assert set().union(*there) == there[0]


def test_themes_last_as_long_as_they_are_to() -> None:
    params = ShiftingFloor(themes=4, theme_s=100.0)
    moments = [scene.at for scene in draw(params, 2, 401)]
    assert moments[:2] == [0.0, 25.0]
    assert all(before < after for before, after in pairwise(moments))
    # Each of four themes ends every 100 s on average.
    assert np.diff(moments).mean() == pytest.approx(25.0, rel=0.05)


def test_a_scene_differs_from_the_one_before_in_what_is_wanted_and_what_is_busy() -> None:
    for before, after in pairwise(draw(ShiftingFloor(), 1, 20)):
        assert before.wanted != after.wanted
        shifted = np.abs(before.rates.rate - after.rates.rate).sum() / 2
        assert shifted > 0.05 * after.rates.rate.sum()


@given(seed=st.integers(0, 2**32))
def test_the_same_seed_draws_the_same_scenes(seed: int) -> None:
    def describe(seed: int) -> list[object]:
        found = draw(ShiftingFloor(), seed, 4)
        return [(each.at, each.wanted, each.rates.rate.tolist()) for each in found]

    assert describe(seed) == describe(seed)
    assert describe(seed) != describe(seed + 1)


@pytest.mark.parametrize("seed", range(3))
def test_planning_anew_pays(seed: int) -> None:
    scenes = draw(ShiftingFloor(leaves=0.0), seed, 8)
    first = plan_for(scenes[0])
    stale, fresh = 0.0, 0.0
    for scene in scenes[4:]:
        demand = demand_of(scene)
        stale += excess_of(keep_places(first, demand), demand)
        fresh += excess_of(plan_for(scene), demand)
    assert stale > 2 * fresh


def demand_of(scene: FloorScene) -> Demand:
    pairs = [(desk, symbol) for desk, symbols in scene.wanted.items() for symbol in symbols]
    return Demand.of(Interest.of(pairs), scene.rates)


def plan_for(scene: FloorScene) -> Plan:
    return make_plan(demand_of(scene), Request(8, 24, budget_s=0.1)).solution.plan


def keep_places(plan: Plan, demand: Demand) -> Plan:
    """The same flows in the same sessions, and subscriptions by what is wanted now."""
    assert plan.flows == demand.interest.flows
    return place_single(demand, plan.placement_session, plan.session_group)


def excess_of(plan: Plan, demand: Demand) -> float:
    return filtering_cost(plan, demand, FilteringPrices()).excess


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"symbols": 59}, "too few for 4 themes with 12 each, and one that"),
        ({"desks": 0}, "at least one of everything"),
        ({"exchanges": 0}, "at least one of everything"),
        ({"exchanges": 121}, "cannot be on 121 exchanges"),
        ({"themes_by_desk": 5}, "more symbols or themes than there are"),
        ({"watched_by_desk": 121}, "more symbols or themes than there are"),
        ({"theme_s": 0.0}, "numbers above 0"),
        ({"rate": float("nan")}, "numbers above 0"),
        ({"busy_share": 1.0}, "between 0 and 1"),
        ({"leaves": 1.0}, "between 0 and 1"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(change: dict[str, float], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        ShiftingFloor(**change)  # type: ignore[arg-type]
