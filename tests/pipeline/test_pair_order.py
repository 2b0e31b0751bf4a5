"""Pairs that are put in their places, beside all of them sorted."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from distributary.model import IndexArray
from distributary.pipeline.pair_order import NameOrder, PairOrder, order_names

Pairs = set[tuple[int, int]]
pairs = st.sets(st.tuples(st.integers(0, 6), st.integers(0, 5)), max_size=20)


def order_of(names: list[str]) -> NameOrder:
    ascending = sorted(range(len(names)), key=names.__getitem__)
    return order_names(np.array(ascending, np.int32))


def columns_of(found: Pairs) -> tuple[IndexArray, IndexArray]:
    table = np.array(sorted(found), np.int32).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def sort_plainly(found: Pairs, receivers: list[str], flows: list[str]) -> list[int]:
    in_order = sorted(found, key=lambda pair: (flows[pair[1]], receivers[pair[0]]))
    return [receiver for receiver, _ in in_order]


@given(
    receivers=st.lists(st.text(max_size=2), min_size=7, max_size=7, unique=True),
    flows=st.lists(st.text(max_size=2), min_size=6, max_size=6, unique=True),
    known=st.tuples(st.integers(0, 7), st.integers(0, 6)),
    steps=st.lists(pairs, min_size=1, max_size=5),
)
def test_pairs_that_come_and_go_stay_in_the_order_of_names(
    receivers: list[str], flows: list[str], known: tuple[int, int], steps: list[Pairs]
) -> None:
    """The first step knows fewer names, whose order the others do not change."""
    held = {(r, f) for r, f in steps[0] if r < known[0] and f < known[1]}
    order = PairOrder(
        *columns_of(held), order_of(receivers[: known[0]]), order_of(flows[: known[1]])
    )
    assert order.receivers.tolist() == sort_plainly(held, receivers, flows)
    for wanted in steps:
        came, went = columns_of(wanted - held), columns_of(held - wanted)
        order.change(came, went, order_of(receivers), order_of(flows))
        held = wanted
        assert order.receivers.tolist() == sort_plainly(held, receivers, flows)
