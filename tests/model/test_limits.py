from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.model import Limits, PacketStep

STEPS = (PacketStep(10, 1000.0), PacketStep(100, 50.0))
COUNTS = (
    "group_members",
    "receiver_groups",
    "receiver_sessions",
    "groups",
    "sessions",
    "switch_entries",
)


def test_limits_are_true_where_they_limit_anything() -> None:
    assert not Limits()
    assert all(Limits(**{name: 1}) for name in (*COUNTS, "group_rate", "receiver_rate"))
    assert Limits(group_packets=STEPS)
    assert Limits(receiver_rates={"r": 1})
    assert Limits(entries_of={"s": 1})


@pytest.mark.parametrize("name", [*COUNTS, "group_rate", "receiver_rate"])
@pytest.mark.parametrize("value", [0, -1, float("nan")])
def test_a_limit_is_above_0(name: str, value: float) -> None:
    wrong: dict[str, Any] = {name: value}
    with pytest.raises(ValueError, match=f"{name} must be .* above 0, not {value}"):
        Limits(**wrong)


def test_the_limits_of_one_receiver_one_switch_and_one_step_are_checked_too() -> None:
    with pytest.raises(ValueError, match=r"receiver 'r' must be .* not inf"):
        Limits(receiver_rates={"r": float("inf")})
    with pytest.raises(ValueError, match=r"switch 's' must be .* not 0"):
        Limits(entries_of={"s": 0})
    with pytest.raises(ValueError, match="members of a packet step"):
        PacketStep(0, 1.0)
    with pytest.raises(ValueError, match="packets of a packet step"):
        PacketStep(1, -1.0)


@pytest.mark.parametrize("members", [(10, 10), (100, 10)])
def test_packet_steps_ascend(members: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=f"{members[0]} before {members[1]}"):
        Limits(group_packets=tuple(PacketStep(n, 1.0) for n in members))


def test_receivers_without_a_cap_of_their_own_have_the_cap_of_all() -> None:
    names = ("a", "b")
    own = {"b": 2.0, "x": 1.0}
    assert Limits(receiver_rates=own).receiver_caps(names).tolist() == [np.inf, 2]
    assert Limits(receiver_rate=1.5, receiver_rates=own).receiver_caps(names).tolist() == [1.5, 2]


@given(members=st.lists(st.integers(0, 120)))
def test_a_group_has_the_packets_of_the_first_step_that_it_fits(members: list[int]) -> None:
    counts = np.array(members, np.int64)
    caps = Limits(group_packets=STEPS).packet_caps(counts).tolist()
    assert caps == [1000 if n <= 10 else 50 if n <= 100 else 0 for n in members]
    assert Limits().packet_caps(counts).tolist() == [np.inf] * len(members)


def test_the_most_members_are_the_fewer_of_both_limits() -> None:
    assert Limits().most_members is None
    assert Limits(group_members=7).most_members == 7
    assert Limits(group_packets=STEPS).most_members == 100
    assert Limits(group_packets=STEPS, group_members=7).most_members == 7
    assert Limits(group_packets=STEPS, group_members=700).most_members == 100


def test_a_switch_has_its_own_entries_or_those_of_all() -> None:
    assert Limits().switch_cap("s") is None
    assert Limits(switch_entries=5, entries_of={"t": 2}).switch_cap("s") == 5
    assert Limits(switch_entries=5, entries_of={"t": 2}).switch_cap("t") == 2
