from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from distributary.cost import FilteringPrices
from distributary.planning.classes import cut_parts, deal, join_parts
from distributary.planning.hierarchy import Maps
from tests.strategies import Hierarchy, hierarchies


@given(drawn=hierarchies(), data=st.data())
def test_what_the_parts_cost_adds_up_to_the_whole(drawn: Hierarchy, data: st.DataObject) -> None:
    classes = data.draw(st.lists(st.integers(0, 2), min_size=drawn.n_groups))
    class_of_group = np.array(classes[: drawn.n_groups])
    prices = FilteringPrices(2, 3)
    parts = cut_parts(drawn.things, drawn.maps, class_of_group)
    costs = [part.maps.work(part.things, prices) for part in parts]
    assert sum(costs) == drawn.maps.work(drawn.things, prices)
    assert sorted(k for part in parts for k in part.flows) == list(range(len(drawn.weight)))
    same = join_parts(drawn.maps, parts, [part.maps for part in parts])
    assert same.session.tolist() == drawn.session
    assert same.group.tolist() == drawn.group


@given(drawn=hierarchies(), data=st.data(), seed=st.integers(0, 99))
def test_changing_one_part_changes_the_whole_by_as_much(
    drawn: Hierarchy, data: st.DataObject, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    prices = FilteringPrices(1, 2)
    parts = cut_parts(drawn.things, drawn.maps, deal(drawn.n_groups, min(2, drawn.n_groups), rng))
    at = data.draw(st.integers(0, len(parts) - 1))
    part = parts[at]
    other = Maps(
        rng.integers(len(part.sessions), size=len(part.flows)).astype(np.int32),
        rng.integers(len(part.groups), size=len(part.sessions)).astype(np.int32),
    )
    inner = [other if i == at else part.maps for i, part in enumerate(parts)]
    whole = join_parts(drawn.maps, parts, inner)
    gained = other.work(part.things, prices) - part.maps.work(part.things, prices)
    before = drawn.maps.work(drawn.things, prices)
    assert whole.work(drawn.things, prices) == before + gained


@given(n_groups=st.integers(1, 60), n_classes=st.integers(1, 9), seed=st.integers(0, 99))
def test_groups_are_dealt_evenly(n_groups: int, n_classes: int, seed: int) -> None:
    n_classes = min(n_classes, n_groups)
    dealt = deal(n_groups, n_classes, np.random.default_rng(seed))
    sizes = np.bincount(dealt, minlength=n_classes)
    assert len(dealt) == n_groups
    assert sizes.max() - sizes.min() <= 1


@given(drawn=hierarchies())
def test_kinds_are_the_flows_that_the_same_receivers_want(drawn: Hierarchy) -> None:
    kinds, kind = drawn.things.kinds()
    for k, receivers in enumerate(drawn.receivers):
        for other, others in enumerate(drawn.receivers):
            assert (kind[k] == kind[other]) == (receivers == others)
        at = slice(kinds.offsets[kind[k]], kinds.offsets[kind[k] + 1])
        assert set(kinds.members[at].tolist()) == receivers
    weight = np.zeros(len(kinds), np.int64)
    np.add.at(weight, kind, drawn.weight)
    assert kinds.weight.tolist() == weight.tolist()
