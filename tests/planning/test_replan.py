from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributary.cost import FilteringPrices, filtering_cost
from distributary.files import read_previous, write_plan
from distributary.model import Demand, Interest, Previous, plan_problems
from distributary.planning import (
    BY_UNICAST,
    Move,
    Request,
    Solution,
    UnicastLimits,
    count_moved,
    moves_between,
    place_single,
    plan,
)
from distributary.workloads import TwoClass, two_class
from tests.strategies import any_plans, dense_demands, interests, whole_rate_values

BUDGET = 0.02
PRICES = st.builds(FilteringPrices, st.integers(0, 3).map(float), st.integers(1, 3).map(float))


class Morning(NamedTuple):
    """Yesterday's plan and today's demand: flows and receivers have come and gone."""

    previous: Previous
    demand: Demand

    def plan(self, max_moves: int | None, more_sessions: int = 0, **asked: object) -> Solution:
        """Today's plan with so many moves."""
        request = Request(
            int(self.previous.session_group.max()) + 1,
            len(self.previous.session_group) + more_sessions,
            previous=self.previous,
            max_moves=max_moves,
            **{"budget_s": BUDGET, **asked},  # type: ignore[arg-type]
        )
        return plan(self.demand, request)

    def moved(self, found: Solution) -> int:
        """How many flows are not where they were."""
        return count_moved(moves_between(self.previous, found.plan, found.session_origin))

    def work(self, found: Solution, prices: FilteringPrices | None = None) -> float:
        return filtering_cost(found.plan, self.demand, prices or FilteringPrices()).work


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


@settings(max_examples=25)
@given(
    morning=mornings(),
    more_sessions=st.integers(0, 2),
    prices=PRICES,
    max_moves=st.integers(0, 8),
)
def test_no_more_flows_move_than_allowed_and_it_costs_no_more_than_settling(
    morning: Morning, more_sessions: int, prices: FilteringPrices, max_moves: int
) -> None:
    found = morning.plan(max_moves, more_sessions, prices=prices)
    settled = morning.plan(0, more_sessions, prices=prices)
    for each in (found, settled):
        assert plan_problems(each.plan, morning.demand.interest) == ()
    assert morning.moved(found) <= max_moves
    assert morning.moved(settled) == 0
    assert morning.work(found, prices) <= morning.work(settled, prices)


@settings(max_examples=25)
@given(morning=mornings(), prices=PRICES)
def test_settling_leaves_each_new_flow_in_its_cheapest_session(
    morning: Morning, prices: FilteringPrices
) -> None:
    settled = morning.plan(0, prices=prices)
    least = morning.work(settled, prices)
    found = settled.plan
    for at, flow in enumerate(found.placement_flow.tolist()):
        if morning.previous.places_of(found.flows[flow]):
            continue
        for session in range(found.n_sessions):
            moved = found.placement_session.copy()
            moved[at] = session
            if len(set(moved.tolist())) < found.n_sessions:
                continue  # another session would have to take its number
            other = place_single(morning.demand, moved, found.session_group)
            assert filtering_cost(other, morning.demand, prices).work >= least * (1 - 1e-12)


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
    costs = [morning.work(morning.plan(n)) for n in (0, 1, 2, 5, 10, 20, 40)]
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] < costs[0]


def hundreds_of_flows(seed: int) -> Morning:
    params = TwoClass(flows=400, receivers=60, fast_share=0.3, want_unpopular=0.2)
    rng = np.random.default_rng(seed)
    demand = Demand.of(*two_class(params, rng))
    homes = {name: int(rng.integers(30)) for name in demand.interest.flows if rng.random() < 0.95}
    return Morning(Previous(homes, (np.arange(30) % 10).astype(np.int32)), demand)


def test_among_hundreds_of_flows_no_more_move_than_allowed_and_every_move_pays() -> None:
    morning, prices = hundreds_of_flows(0), FilteringPrices(1.0, 2.0)
    costs = []
    for max_moves in (0, 1, 7, 30, 111, 250):
        found = morning.plan(max_moves, prices=prices, budget_s=0.5)
        assert plan_problems(found.plan, morning.demand.interest) == ()
        moved = morning.moved(found)
        assert moved <= max_moves
        if 0 < max_moves < 111:
            assert moved == max_moves, "there is still something to gain"
        costs.append(morning.work(found, prices))
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] < 0.9 * costs[0]


def test_without_a_limit_a_plan_is_improved_within_the_budget_and_never_worse() -> None:
    morning = larger_morning(3)
    found, settled = morning.plan(None), morning.plan(0)
    assert plan_problems(found.plan, morning.demand.interest) == ()
    assert morning.work(found) < morning.work(settled)


def test_flows_in_several_places_stay_there() -> None:
    interest = Interest.from_pairs([("r", "a"), ("s", "a"), ("t", "a"), ("r", "b"), ("s", "c")])
    demand = Demand(interest, np.array([1.0, 50.0, 50.0]))
    previous = Previous(
        {"b": 0, "c": 1}, np.arange(2, dtype=np.int32), {"a": frozenset({0, 1, -1})}
    )
    request = Request(
        2, previous=previous, max_moves=0, max_sent=3.0, unicast=UnicastLimits(), budget_s=BUDGET
    )
    found = plan(demand, request)
    assert moves_between(previous, found.plan, found.session_origin) == []
    assert found.plan.duplicated_flows == 1
    assert filtering_cost(found.plan, demand, FilteringPrices()).excess == 0
    alone = plan(demand, request.replace(max_sent=None, unicast=None, max_moves=0))
    assert moves_between(previous, alone.plan, alone.session_origin) == []
    assert alone.plan.duplicated_flows == alone.plan.unicast_flows == 0


def test_a_flow_that_goes_by_unicast_from_today_on_moves() -> None:
    interest = Interest.from_pairs([("r", "a"), ("s", "b")])
    previous = Previous({"a": 0, "b": 0}, np.zeros(1, np.int32))
    request = Request(1, previous=previous, max_moves=1, unicast=UnicastLimits(), budget_s=BUDGET)
    found = plan(Demand(interest, np.array([1.0, 2.0])), request)
    (move,) = moves_between(previous, found.plan, found.session_origin)
    assert (move.before, move.after) == ((0, 0), BY_UNICAST)


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
    found = plan(demand, Request(groups=2, sessions=3, previous=previous, max_moves=1))
    moves = moves_between(previous, found.plan, found.session_origin)
    assert {move.flow for move in moves} <= {"a"}


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


# --- at the same demand --------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_no_plan_costs_more_than_the_one_with_copies_and_unicast_it_starts_from(
    tmp_path: Path, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    wanted = np.argwhere(rng.random((12, 24)) < 0.4)
    interest = Interest.from_pairs([(f"r{r:02}", f"f{f:02}") for r, f in wanted])
    demand = Demand(interest, rng.integers(1, 100, len(interest.flows)).astype(float))
    request = Request(
        4, 8, unicast=UnicastLimits(2, 4), max_sent=1.5, budget_s=BUDGET, patience=math.inf
    )
    before = plan(demand, request)
    assert before.plan.duplicated_flows
    assert before.plan.unicast_flows
    write_plan(before.plan, {}, tmp_path / "plan")
    morning = Morning(read_previous(tmp_path / "plan"), demand)
    for max_moves in (0, 2, None):
        found = plan(demand, request.replace(previous=morning.previous, max_moves=max_moves))
        assert plan_problems(found.plan, demand.interest) == ()
        assert max_moves is None or morning.moved(found) <= max_moves
        assert morning.work(found) <= morning.work(before) * (1 + 1e-9), max_moves
        if max_moves == 0:
            assert morning.work(found) == pytest.approx(morning.work(before), rel=1e-9)
