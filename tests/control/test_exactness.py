"""What is placed, predicted, aligned and moved, against all of it worked out the long way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributary.control.alignment import align_places, find_moved
from distributary.control.counts import FlowCounts
from distributary.control.interest import LiveInterest, PairChanges
from distributary.control.machine import ControlMachine
from distributary.control.messages import (
    Decide,
    InterestChanged,
    PublisherReported,
    Restored,
)
from distributary.control.moving import pick_moves
from distributary.control.placement import Placement, Places
from distributary.control.prediction import predict_seconds
from distributary.control.reports import InterestRecord, PublisherReport
from distributary.control.settings import ControlSettings
from distributary.cost import FilteringPrices, evaluate
from distributary.planning import Size
from tests.control.floor import measure
from tests.control.mirror import Mirror
from tests.control.plans import make_plan, waste_of

FLOWS = tuple(f"f{at}" for at in range(6))
RECEIVERS = tuple(f"r{at}" for at in range(4))

flow_sets = st.frozensets(st.sampled_from(FLOWS))
wants_of_all = st.dictionaries(st.sampled_from(RECEIVERS), flow_sets.filter(bool), min_size=1)
weights_of_all = st.fixed_dictionaries({flow: st.integers(1, 9) for flow in FLOWS})


@st.composite
def places_of_all(draw: st.DrawFn) -> tuple[dict[str, int], list[int]]:
    """Sessions from 0 without gaps, groups as well."""
    sessions = draw(st.lists(st.integers(0, 3), min_size=len(FLOWS), max_size=len(FLOWS)))
    number = {at: n for n, at in enumerate(sorted(set(sessions)))}
    groups = draw(st.lists(st.integers(0, 2), min_size=len(number), max_size=len(number)))
    group = {at: n for n, at in enumerate(sorted(set(groups)))}
    of = {flow: number[at] for flow, at in zip(FLOWS, sessions, strict=True)}
    return of, [group[at] for at in groups]


def make_places(found: tuple[dict[str, int], list[int]]) -> Places:
    return Places(found[0], np.array(found[1], np.int32))


def make_interest(wants: Mapping[str, frozenset[str]]) -> LiveInterest:
    interest = LiveInterest()
    for name, flows in wants.items():
        interest.write(name, flows)
    return interest


def work(
    wants: Mapping[str, frozenset[str]],
    places: Mapping[str, int],
    groups: list[int],
    weights: Mapping[str, int],
) -> Fraction:
    _, first, second = waste_of(wants, places, groups, weights, Fraction(1))
    return first + 2 * second


# --- decisions ------------------------------------------------------------------------------------

acts = st.one_of(
    st.tuples(st.just("want"), st.sampled_from(RECEIVERS), flow_sets),
    st.tuples(st.just("count"), st.sampled_from(range(len(FLOWS))), st.integers(1, 50)),
    st.tuples(st.just("wait"), st.just(0), st.integers(1, 8)),
)


@given(st.lists(acts, max_size=25), st.integers(1, 3), st.integers(0, 2))
def test_each_decision_is_exact_for_what_was_heard(
    acts: list[tuple[str, str | int, frozenset[str] | int]], groups: int, more: int
) -> None:
    """`Mirror.check` has the oracle; the plan is evaluated as any other one, too."""
    given_settings = ControlSettings(groups=groups, sessions=groups + more, rate_window=6.0)
    machine = ControlMachine(given_settings, Restored(), addresses=str)
    mirror, now, number = Mirror(given_settings, None), 1_000.0, 0
    machine.start(now)
    decided = 0
    for act, who, value in acts:
        message: InterestChanged | PublisherReported
        if act == "want":
            assert isinstance(value, frozenset)
            record = InterestRecord("i", "", now, tuple(sorted(value)))
            message = InterestChanged(str(who), record)
        elif act == "count":
            assert isinstance(who, int)
            assert isinstance(value, int)
            counts = ((0, who, value),)
            report = PublisherReport("i", number, FLOWS, int(now), counts, 0, 0, 1.0, 0.0)
            message, number = PublisherReported("p", report), number + 1
        else:
            assert isinstance(value, int)
            now += value
            mirror.hear(now, "tick")
            machine.on_timer("tick", now)
            continue
        mirror.hear(now, message)
        machine.on_message("", message, now)
        for action in machine.on_timer("place", now):
            if isinstance(action, Decide):
                decided += 1
                mirror.check(action, now)
                check_cost(action, mirror, now)
    assert decided == 0 or mirror.plan is not None


def check_cost(action: Decide, mirror: Mirror, now: float) -> None:
    """The prediction is what `distributary.cost` says of the plan."""
    plan, predicted = action.plan, action.decision.predicted
    assert plan is not None
    assert predicted is not None
    interest = make_interest(mirror.wants)
    demand = interest.make_demand(mirror.weigh(set(FLOWS)), float(mirror.span(now)))
    assert demand is not None
    received = evaluate(plan, demand, FilteringPrices(1.0, 0.0)).filtering
    accepted = evaluate(plan, demand, FilteringPrices(0.0, 1.0)).filtering
    assert predicted.dropped_first + predicted.dropped_second == pytest.approx(received.excess)
    assert predicted.dropped_second == pytest.approx(accepted.excess)
    assert predicted.wanted == pytest.approx(received.wanted_work)


@given(wants_of_all, weights_of_all, places_of_all(), st.sampled_from(FLOWS), st.data())
def test_a_flow_that_comes_is_placed_where_it_costs_least(
    wants: dict[str, frozenset[str]],
    weights: dict[str, int],
    found: tuple[dict[str, int], list[int]],
    new: str,
    data: st.DataObject,
) -> None:
    """Every session there is, and a new one in every group and in a new one, is tried."""
    size = Size(3, 5)
    before = {name: flows - {new} for name, flows in wants.items()}
    before = {name: flows for name, flows in before.items() if flows}
    interest = make_interest(before)
    placement = Placement(size)
    kept = {flow: at for flow, at in found[0].items() if flow != new}
    placement.load(Places(kept, np.array(found[1], np.int32)), interest, weights)
    comers = data.draw(st.sets(st.sampled_from(RECEIVERS), min_size=1))
    gained = tuple(sorted((name, new) for name in comers))
    for name in comers:
        interest.write(name, interest.flows_of(name) | {new})
    old = placement.places
    placement.follow(PairChanges(gained, ()), weights)
    after = {
        name: before.get(name, frozenset()) | ({new} if name in comers else set())
        for name in {*before, *comers}
    }
    now = placement.places
    assert {flow: at for flow, at in now.session_of.items() if flow != new} == old.session_of
    groups = old.session_group.tolist() if old.session_of else []
    tries = [({**old.session_of, new: session}, groups) for session in range(len(groups))]
    if len(groups) < size.most_sessions:
        used = len(set(groups))
        tries += [
            ({**old.session_of, new: len(groups)}, [*groups, group])
            for group in range(min(used + 1, size.groups))
        ]
    cheapest = min(work(after, places, some, weights) for places, some in tries)
    assert work(after, now.session_of, now.session_group.tolist(), weights) == cheapest


# --- predictions ----------------------------------------------------------------------------------


@given(
    wants_of_all,
    places_of_all(),
    st.lists(st.dictionaries(st.sampled_from(FLOWS), st.integers(1, 99)), min_size=1, max_size=4),
    st.sets(st.sampled_from(FLOWS)),
)
def test_a_prediction_is_what_receivers_measure(
    wants: dict[str, frozenset[str]],
    found: tuple[dict[str, int], list[int]],
    counts: list[dict[str, int]],
    missing: set[str],
) -> None:
    """Also where the plan lacks some flows that are wanted."""
    used = {at for flow, at in found[0].items() if flow not in missing}
    if used != set(range(len(found[1]))):
        missing = set()
    places = {flow: at for flow, at in found[0].items() if flow not in missing}
    plan = make_plan(wants, places, found[1])
    predicted = predict_seconds(plan, wants, counts)
    for at, messages in enumerate(counts):
        parts = [measure(plan, flows, messages)[:3] for flows in wants.values()]
        assert tuple(predicted[at]) == tuple(map(sum, zip(*parts, strict=True)))


@given(
    st.lists(st.tuples(st.integers(0, 40), st.sampled_from(FLOWS), st.integers(1, 9))),
    st.integers(1, 12),
    st.integers(0, 20),
)
def test_counts_of_a_window_are_those_of_its_seconds(
    rows: list[tuple[int, str, int]], window: int, keep: int
) -> None:
    counts, told = FlowCounts(window, keep), Counter[tuple[int, str]]()
    now = 0
    for second, flow, messages in sorted(rows):
        now = second
        counts.add(second, flow, messages, now)
    counts.expire(now)
    inside = Counter[str]()
    for second, flow, messages in rows:
        told[second, flow] += messages
        if second >= now - window:
            inside[flow] += messages
    assert counts.weights == inside
    assert counts.take_rows() == tuple((*key, n) for key, n in sorted(told.items()))
    first = now - max(window, keep)
    for second in range(first, now + 1):
        assert counts.add_up(second, second + 1) == {
            flow: n for (at, flow), n in told.items() if at == second
        }


# --- moves ----------------------------------------------------------------------------------------


def meet(places: Places) -> set[frozenset[str]]:
    return {
        frozenset(flow for flow, at in places.session_of.items() if at == session)
        for session in places.session_of.values()
    }


def meet_in_groups(places: Places) -> set[frozenset[str]]:
    group = {flow: int(places.session_group[at]) for flow, at in places.session_of.items()}
    return {frozenset(flow for flow, at in group.items() if at == one) for one in group.values()}


@given(places_of_all(), places_of_all())
def test_alignment_changes_numbers_only(
    one: tuple[dict[str, int], list[int]], other: tuple[dict[str, int], list[int]]
) -> None:
    places, before = make_places(one), make_places(other)
    aligned = align_places(places, before, most_sessions=4)
    assert meet(aligned) == meet(places)
    assert meet_in_groups(aligned) == meet_in_groups(places)
    assert max(aligned.session_of.values()) < 4
    assert find_moved(align_places(before, before, 4), before) == []


@given(places_of_all(), st.permutations(range(4)), st.permutations(range(3)))
def test_a_plan_with_other_numbers_moves_nothing(
    found: tuple[dict[str, int], list[int]], sessions: list[int], groups: list[int]
) -> None:
    before = make_places(found)
    renumbered = np.zeros(4, np.int32)
    for session, group in enumerate(found[1]):
        renumbered[sessions[session]] = groups[group]
    places = Places({flow: sessions[at] for flow, at in found[0].items()}, renumbered)
    assert find_moved(align_places(places, before, most_sessions=4), before) == []


@settings(max_examples=200)
@given(wants_of_all, weights_of_all, places_of_all(), places_of_all(), st.integers(0, 6))
def test_picked_moves_are_few_lead_to_the_target_and_cost_nothing(
    wants: dict[str, frozenset[str]],
    weights: dict[str, int],
    one: tuple[dict[str, int], list[int]],
    other: tuple[dict[str, int], list[int]],
    most: int,
) -> None:
    before, target = make_places(one), make_places(other)
    picked, moved = pick_moves(target, before, most, make_interest(wants), weights)
    assert len(moved) <= most or picked.session_of == target.session_of
    assert set(find_moved(picked, before)) <= set(moved)
    for flow in moved:
        assert picked.session_of[flow] == target.session_of[flow]
    if len(find_moved(target, before)) > most:
        wanted = {flow for flows in wants.values() for flow in flows}
        spent = [
            work(wants, places.keep(wanted).session_of, places.session_group.tolist(), weights)
            for places in (before, picked)
        ]
        assert spent[1] <= spent[0]
