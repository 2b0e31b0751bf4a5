from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.cost import FilteringPrices
from distributary.model import Demand, IndexArray, Interest, Plan, Previous, plan_problems
from distributary.planning import Move, Request, moves_between, plan
from distributary.planning.hierarchy import Maps
from distributary.planning.replan import replan, settle, start_maps
from distributary.planning.things import Things
from distributary.planning.two_level import BITS, TwoLevel
from distributary.workloads import TwoClass, two_class
from tests.strategies import any_plans, dense_demands, interests, whole_rate_values

PRICES = st.builds(FilteringPrices, st.integers(0, 3).map(float), st.integers(1, 3).map(float))


class Morning(NamedTuple):
    """Yesterday's plan and today's demand: flows and receivers have come and gone."""

    previous: Previous
    demand: Demand

    @property
    def things(self) -> Things:
        return Things.flows_of(self.demand, BITS)

    def start(self, more_sessions: int = 0) -> tuple[Maps, IndexArray]:
        n_sessions = len(self.previous.session_group) + more_sessions
        n_groups = int(self.previous.session_group.max()) + 1
        return start_maps(self.previous, self.demand.interest, n_sessions, n_groups)


@st.composite
def mornings(draw: st.DrawFn) -> Morning:
    """Flows f0 to f6 may be wanted today, f0 to f9 may have been yesterday."""
    demand = draw(dense_demands(max_receivers=5, max_flows=7, rates=whole_rate_values()))
    n_sessions = draw(st.integers(1, 5))
    n_groups = draw(st.integers(1, n_sessions))
    where = st.none() | st.integers(0, n_sessions - 1)
    homes = draw(st.lists(where, min_size=10, max_size=10))
    more = draw(st.lists(st.integers(0, n_groups - 1), min_size=5, max_size=5))
    groups = draw(st.permutations([*range(n_groups), *more[: n_sessions - n_groups]]))
    return Morning(
        Previous(
            {f"f{k}": home for k, home in enumerate(homes) if home is not None},
            np.array(groups, np.int32),
        ),
        demand,
    )


def away(maps: Maps, home: IndexArray) -> int:
    """How many of the flows known before are elsewhere now."""
    return sum(now != before for now, before in zip(maps.session, home, strict=True) if before >= 0)


@given(morning=mornings(), more_sessions=st.integers(0, 3))
def test_the_start_is_yesterdays_plan_with_new_sessions_at_its_end(
    morning: Morning, more_sessions: int
) -> None:
    start, home = morning.start(more_sessions)
    known = len(morning.previous.session_group)
    assert start.group[:known].tolist() == morning.previous.session_group.tolist()
    assert len(start.group) == known + more_sessions
    assert int(start.group.max()) == int(morning.previous.session_group.max())
    for k, name in enumerate(morning.demand.interest.flows):
        assert home[k] == morning.previous.session_of.get(name, -1)
        if home[k] >= 0:
            assert start.session[k] == home[k]


@given(morning=mornings(), more_sessions=st.integers(0, 2), prices=PRICES)
def test_settling_moves_newcomers_only_and_leaves_each_in_its_cheapest_session(
    morning: Morning, more_sessions: int, prices: FilteringPrices
) -> None:
    start, home = morning.start(more_sessions)
    maps = settle(morning.things, start, home, prices)
    assert away(maps, home) == 0
    assert maps.group.tolist() == start.group.tolist()
    gain, _ = TwoLevel(morning.things, maps, prices).gains()
    assert (gain[home < 0] == 0).all()


@given(morning=mornings(), more_sessions=st.integers(0, 2), prices=PRICES)
def test_with_no_moves_allowed_every_known_flow_stays(
    morning: Morning, more_sessions: int, prices: FilteringPrices
) -> None:
    start, home = morning.start(more_sessions)
    maps = replan(morning.things, start, home, prices, 0)
    assert away(maps, home) == 0
    assert maps.group.tolist() == start.group.tolist()


@given(
    morning=mornings(),
    more_sessions=st.integers(0, 2),
    prices=PRICES,
    max_moves=st.integers(0, 8),
)
def test_no_more_flows_move_than_allowed_and_it_costs_no_more_than_settling(
    morning: Morning, more_sessions: int, prices: FilteringPrices, max_moves: int
) -> None:
    start, home = morning.start(more_sessions)
    maps = replan(morning.things, start, home, prices, max_moves)
    assert away(maps, home) <= max_moves
    assert maps.group.tolist() == start.group.tolist()
    alone = settle(morning.things, start, home, prices)
    assert maps.work(morning.things, prices) <= alone.work(morning.things, prices)


def larger_morning(seed: int) -> Morning:
    params = TwoClass(flows=40, receivers=15, fast_share=0.5, want_unpopular=0.4)
    demand = Demand.of(*two_class(params, np.random.default_rng(seed)))
    rng = np.random.default_rng(seed)
    homes = {name: int(rng.integers(8)) for name in demand.interest.flows if rng.random() < 0.9}
    return Morning(Previous(homes, (np.arange(8) % 4).astype(np.int32)), demand)


@pytest.mark.parametrize("seed", range(4))
def test_on_these_demands_more_moves_never_cost_more(seed: int) -> None:
    # Not a law: what the toll lets go first may stand in the way of something better.
    morning = larger_morning(seed)
    start, home = morning.start()
    prices = FilteringPrices()
    costs = [
        replan(morning.things, start, home, prices, n).work(morning.things, prices)
        for n in (0, 1, 2, 5, 10, 20, 40)
    ]
    assert costs == sorted(costs, reverse=True)
    assert costs[0] == settle(morning.things, start, home, prices).work(morning.things, prices)
    assert costs[-1] < costs[0]


def hundreds_of_flows(seed: int) -> Morning:
    params = TwoClass(flows=400, receivers=60, fast_share=0.3, want_unpopular=0.2)
    rng = np.random.default_rng(seed)
    demand = Demand.of(*two_class(params, rng))
    homes = {name: int(rng.integers(30)) for name in demand.interest.flows if rng.random() < 0.95}
    return Morning(Previous(homes, (np.arange(30) % 10).astype(np.int32)), demand)


@pytest.mark.parametrize("seed", range(2))
def test_among_hundreds_of_flows_no_more_move_than_allowed_and_every_move_pays(seed: int) -> None:
    morning, prices = hundreds_of_flows(seed), FilteringPrices(1.0, 2.0)
    things, (start, home) = morning.things, morning.start()
    alone = settle(things, start, home, prices).work(things, prices)
    costs = [alone]
    for max_moves in (0, 1, 2, 7, 30, 111, 250):
        maps = replan(things, start, home, prices, max_moves)
        assert away(maps, home) <= max_moves
        assert maps.group.tolist() == start.group.tolist()
        assert set(maps.session.tolist()) >= set(home[home >= 0].tolist())
        costs.append(maps.work(things, prices))
        if 0 < max_moves < 111:
            assert away(maps, home) == max_moves, "there is still something to gain"
    assert costs[1] == alone
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] < 0.9 * alone


@pytest.mark.parametrize("max_moves", [1, 25])
def test_a_plan_of_hundreds_of_flows_lists_no_more_moves_than_allowed(max_moves: int) -> None:
    morning = hundreds_of_flows(9)
    request = Request(groups=10, sessions=30, previous=morning.previous, max_moves=max_moves)
    found = plan(morning.demand, request)
    assert plan_problems(found.plan, morning.demand.interest) == ()
    moves = moves_between(morning.previous, found.plan, found.session_origin)
    assert len([move for move in moves if move.before is not None]) == max_moves


@pytest.mark.parametrize("max_moves", [0, 1, 3, 40])
def test_a_plan_improved_is_valid_and_what_moves_is_listed(max_moves: int) -> None:
    morning = larger_morning(7)
    request = Request(groups=4, sessions=8, previous=morning.previous, max_moves=max_moves)
    found = plan(morning.demand, request).plan
    assert plan_problems(found, morning.demand.interest) == ()
    moves = moves_between(morning.previous, found)
    new = set(morning.demand.interest.flows) - set(morning.previous.session_of)
    assert {move.flow for move in moves if move.before is None} == new
    if found.session_group.tolist() == morning.previous.session_group.tolist():
        assert len(moves) - len(new) <= max_moves


def test_without_a_limit_a_plan_is_improved_within_the_budget_and_never_worse(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = SimpleNamespace(monotonic=lambda: 0.0)  # however busy the machine, nothing is cut short
    monkeypatch.setattr(sys.modules["distributary.planning.best"], "time", clock)
    morning = larger_morning(3)
    things, prices = morning.things, FilteringPrices()
    start, home = morning.start()
    request = Request(groups=4, sessions=8, previous=morning.previous, budget_s=0.02)
    found = plan(morning.demand, request).plan
    assert plan_problems(found, morning.demand.interest) == ()
    maps = Maps(found.placement_session, found.session_group)
    alone = settle(things, start, home, prices)
    assert maps.work(things, prices) < alone.work(things, prices)
    assert found == plan(morning.demand, request).plan


@given(data=st.data(), interest=interests())
def test_moves_are_exactly_what_changed(data: st.DataObject, interest: Interest) -> None:
    now = data.draw(any_plans(interest))
    places: dict[str, list[tuple[int, int]]] = {name: [] for name in interest.flows}
    for flow, session in zip(now.placement_flow, now.placement_session, strict=True):
        places[interest.flows[flow]].append((int(session), int(now.session_group[session])))
    session_group = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=4))
    some = st.dictionaries(
        st.sampled_from([*interest.flows, "gone"]), st.integers(0, len(session_group) - 1)
    )
    previous = Previous(data.draw(some), np.array(session_group, np.int32))
    expected = []
    for name in interest.flows:
        old = previous.session_of.get(name)
        before = None if old is None else (old, session_group[old])
        expected += [Move(name, before, place) for place in places[name] if place != before]
    assert moves_between(previous, now) == expected


def one_receiver_each(*flows: str) -> Demand:
    interest = Interest.from_pairs((f"r{flow}", flow) for flow in flows)
    return Demand(interest, np.ones(len(flows)))


@pytest.mark.parametrize(("groups", "sessions"), [(2, 2), (2, 3), (1, 3), (1, 1)])
def test_a_plan_larger_than_asked_for_is_refused(groups: int, sessions: int) -> None:
    previous = Previous({"a": 0, "b": 1, "c": 2}, np.array([0, 1, 2], np.int32))
    request = Request(groups=groups, sessions=sessions, previous=previous, max_moves=1)
    with pytest.raises(ValueError, match="3 sessions in 3 groups"):
        plan(one_receiver_each("a", "b", "c"), request)


@pytest.mark.parametrize("max_moves", [0, 1, None])
def test_a_day_with_fewer_flows_than_sessions_is_planned_all_the_same(
    max_moves: int | None,
) -> None:
    previous = Previous({"a": 0, "b": 1, "c": 2}, np.array([0, 1, 2], np.int32))
    demand = one_receiver_each("a", "b")
    request = Request(groups=3, previous=previous, max_moves=max_moves, budget_s=0.01)
    found = plan(demand, request).plan
    assert plan_problems(found, demand.interest) == ()
    assert moves_between(previous, found) == []


def moved_by_name(previous: Previous, found: Plan) -> set[str]:
    return {move.flow for move in moves_between(previous, found) if move.before is not None}


def test_a_session_that_loses_its_last_flow_overnight_moves_nobody_else() -> None:
    previous = Previous({"a": 0, "b": 1, "c": 2, "d": 2}, np.array([0, 1, 2], np.int32))
    demand = one_receiver_each("b", "c", "d")
    found = plan(demand, Request(groups=3, previous=previous, max_moves=0))
    assert plan_problems(found.plan, demand.interest) == ()
    assert moves_between(previous, found.plan, found.session_origin) == []


def test_a_session_that_a_move_empties_moves_nobody_else() -> None:
    # a sits in a group with c, whom nobody of its receivers wants; with b nothing is wasted.
    previous = Previous({"a": 0, "c": 1, "b": 2}, np.array([0, 0, 1], np.int32))
    interest = Interest.from_pairs([("r", "a"), ("r", "b"), ("s", "c")])
    demand = Demand(interest, np.array([1.0, 5.0, 1.0]))
    found = plan(demand, Request(groups=2, sessions=3, previous=previous, max_moves=1)).plan
    assert moved_by_name(previous, found) <= {"a"}


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"max_moves": 3}, "max_moves"),
        ({"max_moves": -1, "previous": Previous({}, np.zeros(1, np.int32))}, "max_moves"),
        ({"algorithm": "kmeans", "previous": Previous({}, np.zeros(1, np.int32))}, "only best"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(asked: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Request(groups=2, **asked)  # type: ignore[arg-type]


def test_a_flow_in_a_session_without_a_group_is_refused() -> None:
    with pytest.raises(ValueError, match="session that has no group"):
        Previous({"a": 1}, np.zeros(1, np.int32))
