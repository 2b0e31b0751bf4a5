from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.model import Interest, Plan, plan_problems
from tests import oracles
from tests.strategies import any_plans, interests

INTEREST = Interest.from_pairs([("a", "x"), ("a", "y"), ("b", "y"), ("c", "z")])


def codes(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int32)


# x and y together, z by itself; y also beside z, where nobody listens for it.
PLAN = Plan(
    receivers=("a", "b", "c"),
    flows=("x", "y", "z"),
    placement_flow=codes(0, 1, 1, 2),
    placement_session=codes(0, 0, 1, 1),
    session_group=codes(0, 1),
    subscription_receiver=codes(0, 1, 2),
    subscription_session=codes(0, 0, 1),
)


@given(data=st.data(), interest=interests())
def test_problems_are_those_that_brute_force_finds(data: st.DataObject, interest: Interest) -> None:
    plan = data.draw(any_plans(interest))
    assert list(plan_problems(plan, interest)) == oracles.problems(plan, interest)


@given(data=st.data(), interest=interests())
def test_a_plan_that_carries_everything_to_everybody_misses_nothing(
    data: st.DataObject, interest: Interest
) -> None:
    plan = data.draw(any_plans(interest))
    sessions = plan.n_sessions
    flows, receivers = len(interest.flows), len(interest.receivers)
    everywhere = replace(
        plan,
        placement_flow=np.repeat(np.arange(flows, dtype=np.int32), sessions),
        placement_session=np.tile(np.arange(sessions, dtype=np.int32), flows),
        subscription_receiver=np.repeat(np.arange(receivers, dtype=np.int32), sessions),
        subscription_session=np.tile(np.arange(sessions, dtype=np.int32), receivers),
        session_group=np.unique(plan.session_group, return_inverse=True)[1].astype(np.int32),
    )
    assert plan_problems(everywhere, interest) == ()
    assert everywhere.duplicated_flows == (flows if sessions > 1 else 0)


def test_a_valid_plan_has_no_problems() -> None:
    assert plan_problems(PLAN, INTEREST) == ()


def test_a_receiver_that_misses_a_flow_is_named() -> None:
    deaf = replace(PLAN, subscription_receiver=codes(0, 2), subscription_session=codes(0, 1))
    assert plan_problems(deaf, INTEREST) == (
        "1 wanted pairs are not served, the first: receiver 'b' misses flow 'y'",
    )


def test_empty_sessions_unheard_sessions_and_empty_groups_are_all_told() -> None:
    plan = replace(PLAN, session_group=codes(0, 2, 2, 4))
    assert plan_problems(plan, INTEREST) == (
        "session 2 carries no flow (and 1 more)",
        "session 2 has no subscriber (and 1 more)",
        "group 1 holds no session (and 1 more)",
    )


def test_a_plan_for_others_is_not_judged() -> None:
    for other in (
        Interest.from_pairs([("a", "x"), ("a", "y"), ("b", "y"), ("d", "z")]),
        Interest.from_pairs([("a", "x"), ("a", "y"), ("b", "y"), ("c", "w")]),
    ):
        with pytest.raises(ValueError, match="must name the same receivers and flows"):
            plan_problems(PLAN, other)


@given(data=st.data(), interest=interests())
def test_counts_and_joins_follow_from_the_pairs(data: st.DataObject, interest: Interest) -> None:
    plan = data.draw(any_plans(interest))
    it = oracles.plain(plan)
    joins = [
        (receiver, group)
        for receiver in range(len(interest.receivers))
        for group in it.groups
        if it.joins(receiver, group)
    ]
    assert list(zip(*(side.tolist() for side in plan.group_joins()), strict=True)) == joins
    assert plan.n_sessions == len(it.group_of)
    assert plan.n_groups == max(it.group_of) + 1
    assert plan.duplicated_flows == sum(
        sum(f == flow for f, _ in it.placed) > 1 for flow in range(len(interest.flows))
    )


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"placement_flow": codes(0, 1, 1)}, "placements: 3 against 4"),
        ({"placement_flow": codes(0, 1, 1, 3)}, "a placement index is out of range"),
        ({"placement_flow": codes(-1, 1, 1, 2)}, "a placement index is out of range"),
        ({"placement_session": codes(0, 0, 1, 2)}, "a placement index is out of range"),
        ({"placement_session": codes(-1, 0, 1, 1)}, "a placement index is out of range"),
        ({"placement_flow": codes(0, 2, 1, 1)}, "placements must be in ascending order"),
        ({"placement_session": codes(0, 1, 1, 1)}, "without repeats"),
        ({"subscription_session": codes(0, 1)}, "subscriptions: 3 against 2"),
        ({"subscription_receiver": codes(0, 1, 3)}, "a subscription index is out of range"),
        ({"subscription_session": codes(0, 2, 1)}, "a subscription index is out of range"),
        ({"subscription_receiver": codes(1, 0, 2)}, "subscriptions must be in ascending order"),
        ({"session_group": codes(0, -1)}, "groups are numbered from 0"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(change: dict[str, np.ndarray], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        replace(PLAN, **change)


def test_a_plan_without_sessions_is_refused() -> None:
    none = codes()
    with pytest.raises(ValueError, match="at least one session"):
        Plan(("a",), ("x",), none, none, none, none, none)


@pytest.mark.parametrize(
    "change",
    [
        {"receivers": ("a", "b", "d")},
        {"flows": ("w", "x", "y")},
        {"placement_flow": codes(0, 0, 1, 2), "placement_session": codes(0, 1, 0, 1)},
        {"placement_session": codes(0, 0, 1, 0)},
        {"session_group": codes(1, 0)},
        {"subscription_receiver": codes(0, 0, 2), "subscription_session": codes(0, 1, 1)},
        {"subscription_session": codes(0, 1, 1)},
    ],
)
def test_plans_that_differ_anywhere_are_not_equal(change: dict[str, object]) -> None:
    assert replace(PLAN) == PLAN
    assert replace(PLAN, **change) != PLAN  # type: ignore[arg-type]


def test_its_repr_says_how_large_it_is() -> None:
    assert repr(PLAN) == "Plan(3 flows, 2 sessions, 2 groups)"
    assert PLAN != "a plan"


@given(data=st.data(), interest=interests())
def test_a_plan_says_where_a_flow_is_and_what_a_receiver_joins(
    data: st.DataObject, interest: Interest
) -> None:
    plan = data.draw(any_plans(interest))
    for at, flow in enumerate(plan.flows):
        sessions = plan.placement_session[plan.placement_flow == at]
        assert plan.groups_of(flow) == tuple(sorted(set(plan.session_group[sessions].tolist())))
        if len(plan.groups_of(flow)) > 1:
            with pytest.raises(ValueError, match="groups_of"):
                plan.group_of(flow)
        else:
            assert plan.group_of(flow) == next(iter(plan.groups_of(flow)), None)
    for at, receiver in enumerate(plan.receivers):
        sessions = plan.subscription_session[plan.subscription_receiver == at]
        joined = tuple(sorted(set(plan.session_group[sessions].tolist())))
        assert plan.groups_for(receiver) == joined


def test_names_that_a_plan_does_not_know_are_refused() -> None:
    with pytest.raises(ValueError, match="no flow 'zz'"):
        PLAN.group_of("zz")
    with pytest.raises(ValueError, match="no receiver '0'"):
        PLAN.groups_for("0")
