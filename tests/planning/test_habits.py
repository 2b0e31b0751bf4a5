from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.model import Demand, Interest, plan_problems
from distributary.planning import Request, plan
from distributary.planning.habits import by_column, by_hash, by_name
from tests.strategies import demands, names

NAMES = st.lists(names(), min_size=1, max_size=20, unique=True).map(sorted)


@st.composite
def sizes(draw: st.DrawFn) -> tuple[int, int]:
    """How many sessions, and how many groups they are in."""
    groups = draw(st.integers(1, 4))
    return draw(st.integers(groups, 9)), groups


@given(flows=NAMES, size=sizes(), data=st.data())
def test_a_hash_puts_a_flow_where_it_was_whoever_else_comes_and_goes(
    flows: list[str], size: tuple[int, int], data: st.DataObject
) -> None:
    here = by_hash(flows, *size)
    others = data.draw(st.lists(names(), max_size=10))
    stayed = [flow for flow in flows if data.draw(st.booleans())]
    today = sorted({*stayed, *others})
    there = by_hash(today, *size)
    assert here.group.tolist() == there.group.tolist()
    for flow in stayed:
        assert here.session[flows.index(flow)] == there.session[today.index(flow)]


def test_a_hash_is_the_same_on_every_machine() -> None:
    # Worked out once by hand: blake2b with 8 bytes, big endian, modulo the sessions.
    assert by_hash(["IBM", "MSFT", "é"], 1000, 10).session.tolist() == [518, 410, 743]


def test_a_hash_spreads_flows_evenly() -> None:
    filled = np.bincount(by_hash([f"flow {k}" for k in range(10_000)], 10, 2).session)
    assert filled.min() > 850
    assert filled.max() < 1150


@given(flows=st.integers(1, 60), size=sizes())
def test_by_name_makes_contiguous_stretches_of_nearly_equal_size(
    flows: int, size: tuple[int, int]
) -> None:
    sessions, groups = size
    maps = by_name(flows, sessions, groups)
    for owner, parts in ((maps.session, sessions), (maps.group, groups)):
        assert owner.tolist() == sorted(owner.tolist())
        filled = np.bincount(owner, minlength=parts)
        assert filled.max() - filled.min() <= 1
    if flows >= sessions:
        assert len(set(maps.flow_group.tolist())) == groups


@given(
    labels=st.lists(st.sampled_from(["NYSE", "LSE", "XETRA", "TSE", ""]), min_size=1, max_size=20),
    size=sizes(),
    data=st.data(),
)
def test_a_label_is_never_split_over_groups_and_shares_none_if_there_are_enough(
    labels: list[str], size: tuple[int, int], data: st.DataObject
) -> None:
    rates = st.floats(min_value=1e-3, max_value=1e3)
    rate = np.array(data.draw(st.lists(rates, min_size=len(labels), max_size=len(labels))))
    sessions, groups = size
    maps = by_column(labels, rate, sessions, groups)
    group_of: dict[str, set[int]] = {}
    for label, group in zip(labels, maps.flow_group.tolist(), strict=True):
        group_of.setdefault(label, set()).add(group)
    assert all(len(found) == 1 for found in group_of.values())
    used = set().union(*group_of.values())
    assert len(used) == min(len(group_of), groups)
    assert len(maps.group) <= sessions
    assert set(maps.session.tolist()) == set(range(len(maps.group)))


def test_labels_go_to_groups_by_even_rate() -> None:
    labels = ["a", "b", "c", "c", "d"]
    maps = by_column(labels, np.array([5.0, 4.0, 1.5, 1.5, 2.0]), 2, 2)
    # Heaviest first, each to the lightest group: a | b | c with b | d with a.
    assert maps.flow_group.tolist() == [0, 1, 1, 1, 0]


@pytest.mark.parametrize("algorithm", ["hash", "by-name", "by-column"])
@given(demand=demands(), size=sizes(), data=st.data())
def test_habits_make_valid_plans(
    algorithm: str, demand: Demand, size: tuple[int, int], data: st.DataObject
) -> None:
    n = len(demand.rate)
    labels = data.draw(st.lists(names(), min_size=n, max_size=n))
    sessions, groups = size
    request = Request(
        groups=groups,
        sessions=sessions,
        algorithm=algorithm,
        labels=labels if algorithm == "by-column" else None,
    )
    found = plan(demand, request).plan
    assert plan_problems(found, demand.interest) == ()
    assert found.n_groups <= groups
    assert found.n_sessions <= sessions


@pytest.mark.parametrize("labels", [None, [], ["a"] * 99])
def test_by_column_needs_a_label_for_each_flow(labels: list[str] | None) -> None:
    request = Request(groups=2, algorithm="by-column", labels=labels)
    with pytest.raises(ValueError, match="label for each wanted flow"):
        plan(demand_of_two(), request)


def demand_of_two() -> Demand:
    return Demand(Interest.from_pairs([("r", "a"), ("r", "b")]), np.array([1.0, 2.0]))
