"""The publisher's directory beside the plainest reading of what a change may touch."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.delivery.directory import Directory, StreamPlace
from distributary.delivery.wire import JOURNAL_STREAM
from distributary.model import Plan

from ..strategies import names
from .plans import random_plan

Wanted = Mapping[str, list[str]]


@st.composite
def wishes(draw: st.DrawFn) -> Wanted:
    flows = draw(st.lists(names(), min_size=1, max_size=8, unique=True))
    some = st.lists(st.sampled_from(flows), min_size=1, max_size=5, unique=True)
    return draw(st.dictionaries(names(), some, min_size=1, max_size=4))


@st.composite
def histories(draw: st.DrawFn) -> list[Plan]:
    """Plans one after another, of the same interest or of another."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    wanted = draw(wishes())
    plans = []
    for _ in range(draw(st.integers(1, 5))):
        if draw(st.booleans()):
            wanted = draw(wishes())
        plans.append(random_plan(wanted, rng))
    return plans


def places_by_plan(plan: Plan) -> dict[str, set[tuple[object, ...]]]:
    """Where each flow travels, by the plan itself: sessions as the set of their flows."""
    content: dict[int, set[str]] = {}
    for flow, session in zip(plan.placement_flow, plan.placement_session, strict=True):
        content.setdefault(int(session), set()).add(plan.flows[flow])
    found: dict[str, set[tuple[object, ...]]] = {flow: set() for flow in plan.flows}
    for session, flows in content.items():
        for flow in flows:
            found[flow].add((int(plan.session_group[session]), frozenset(flows)))
    for receiver, number in zip(plan.unicast_receiver, plan.unicast_flow, strict=True):
        found[plan.flows[number]].add((plan.receivers[receiver],))
    return found


def content_of(directory: Directory) -> dict[int, set[str]]:
    content: dict[int, set[str]] = {}
    for number in directory.carried():
        for stream in directory.streams_of(number):
            content.setdefault(stream, set()).add(directory.flows[number])
    return content


def places_by_directory(directory: Directory) -> dict[str, set[tuple[object, ...]]]:
    content = content_of(directory)
    found: dict[str, set[tuple[object, ...]]] = {}
    for number in directory.carried():
        places = found.setdefault(directory.flows[number], set())
        for stream in directory.streams_of(number):
            place = directory.places[stream]
            if place.group is None:
                places.add((place.receiver,))
            else:
                places.add((place.group, frozenset(content[stream])))
    return found


@given(histories())
def test_a_directory_carries_what_its_plan_carries(plans: list[Plan]) -> None:
    directory = Directory()
    for number, plan in enumerate(plans, 1):
        assert directory.prepare(plan).version == number
        directory.switch()
        assert directory.version == number
        carried = {flow: places for flow, places in places_by_plan(plan).items() if places}
        assert places_by_directory(directory) == carried
        assert set(directory.places) == set(content_of(directory))


@given(histories())
def test_numbers_keep_their_meaning_and_only_moved_flows_change(plans: list[Plan]) -> None:
    directory = Directory()
    numbers: dict[str, int] = {}
    places: dict[int, StreamPlace] = {}
    for plan in plans:
        before = {number: directory.streams_of(number) for number in range(len(directory.flows))}
        change = directory.prepare(plan)
        assert {number: directory.streams_of(number) for number in before} == before
        directory.switch()
        for flow in plan.flows:
            number = directory.number_of(flow)
            assert number is not None
            assert numbers.setdefault(flow, number) == number
        for stream, place in directory.places.items():
            assert stream != JOURNAL_STREAM
            assert places.setdefault(stream, place) == place
        after = {number: directory.streams_of(number) for number in range(len(directory.flows))}
        changed = {number for number in after if after[number] != before.get(number, ())}
        assert set(change.moved) == changed
        assert all(change.moved[number] == after[number] for number in changed)
        assert set(change.begun) <= set(directory.places)
        assert not set(change.ended) & set(directory.places)


@given(histories())
def test_sessions_that_both_plans_have_keep_their_streams(plans: list[Plan]) -> None:
    directory = Directory()
    for plan in plans:
        before = content_of(directory)
        groups = dict(directory.places)
        directory.prepare(plan)
        directory.switch()
        after = content_of(directory)
        old = by_content(before, groups)
        new = by_content(after, directory.places)
        for content, streams in old.items():
            kept = len(streams & new.get(content, set()))
            assert kept == min(len(streams), len(new.get(content, set())))


def by_content(
    content: dict[int, set[str]], places: Mapping[int, StreamPlace]
) -> dict[tuple[StreamPlace, frozenset[str]], set[int]]:
    found: dict[tuple[StreamPlace, frozenset[str]], set[int]] = {}
    for stream, flows in content.items():
        if places[stream].group is not None:
            found.setdefault((places[stream], frozenset(flows)), set()).add(stream)
    return found


@given(histories())
def test_the_same_plan_again_changes_nothing(plans: list[Plan]) -> None:
    directory = Directory()
    for plan in plans:
        directory.prepare(plan)
        directory.switch()
    again = directory.prepare(plans[-1])
    assert (again.moved, again.begun, again.ended) == ({}, (), ())


@given(histories())
def test_a_change_that_is_replaced_leaves_nothing(plans: list[Plan]) -> None:
    plain, replaced = Directory(), Directory()
    for plan in plans:
        plain.prepare(plan)
        plain.switch()
        replaced.prepare(plans[0])
        replaced.prepare(plans[-1])
        replaced.cancel()
        replaced.prepare(plan)
        replaced.switch()
        assert places_by_directory(replaced) == places_by_directory(plain)
        assert set(replaced.places) == set(content_of(replaced))


def test_a_session_goes_on_as_the_stream_with_most_flows_in_common() -> None:
    directory = Directory()
    directory.prepare(plan_of([("abc", 0), ("def", 0), ("gh", 1)]))
    directory.switch()
    abc, other, gh = (directory.streams_of(directory.flows.index(flow))[0] for flow in "adg")
    change = directory.prepare(plan_of([("def" + "a", 0), ("bc", 0), ("h", 1), ("g", 0)]))
    moved = {directory.flows[number] for number in change.moved}
    assert moved == {"a", "g"}
    directory.switch()
    streams = {flow: directory.streams_of(directory.flows.index(flow)) for flow in "abcdefgh"}
    assert (streams["a"], streams["b"], streams["h"]) == ((other,), (abc,), (gh,))
    assert streams["g"] == change.begun


def test_switching_without_a_change_is_refused() -> None:
    with pytest.raises(ValueError, match="no change is prepared"):
        Directory().switch()


def plan_of(sessions: list[tuple[str, int]]) -> Plan:
    """A plan of one receiver with these flows, one letter each, in these groups."""
    flows = tuple(sorted({flow for content, _ in sessions for flow in content}))
    pairs = sorted(
        (flows.index(flow), session)
        for session, (content, _) in enumerate(sessions)
        for flow in content
    )
    return Plan(
        ("ann",),
        flows,
        np.array([flow for flow, _ in pairs], np.int32),
        np.array([session for _, session in pairs], np.int32),
        np.array([group for _, group in sessions], np.int32),
        np.zeros(len(sessions), np.int32),
        np.arange(len(sessions), dtype=np.int32),
    )
