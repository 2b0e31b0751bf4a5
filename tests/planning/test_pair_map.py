from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.planning import PairMap, _pair_map_kernels, _pair_map_reference, decode_pairs
from distributary.planning.pair_map import encode_pairs

BIGGEST = 2**31 - 1
numbers = st.one_of(st.integers(0, 5), st.integers(0, BIGGEST), st.just(BIGGEST))
pairs = st.lists(st.tuples(numbers, numbers), max_size=200)


def columns(listed: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    left, right = zip(*listed, strict=True) if listed else ((), ())
    return np.array(left, np.int32), np.array(right, np.int32)


@pytest.mark.parametrize("kernels", [_pair_map_kernels, _pair_map_reference])
@given(first=pairs, then=pairs)
def test_kernels_find_what_was_added(kernels, first, then):
    table = np.full(len(first) + 3, -1, np.int64)
    slots = np.empty(len(first), np.int64)
    keys = encode_pairs(*columns(first))
    assert kernels.add_keys(keys, table, slots) == len(set(first))
    assert table[slots].tolist() == keys.tolist()
    assert (table >= 0).sum() == len(set(first))
    found = np.empty(len(then), np.int64)
    asked = encode_pairs(*columns(then))
    kernels.find_keys(asked, table, found)
    for at, pair, key in zip(found, then, asked, strict=True):
        assert table[at] == key if pair in set(first) else at == -1


@given(batches=st.lists(st.lists(st.tuples(numbers, numbers, st.integers(-3, 3)), max_size=90)))
def test_a_pair_map_is_a_dictionary(batches):
    known: dict[tuple[int, int], int] = {}
    grown = PairMap(default=-7)
    for batch in batches:
        last = {(left, right): value for left, right, value in batch}
        left, right = columns(list(last))
        slots = grown.slots_of(left, right)
        grown.values[slots] = np.array(list(last.values()), np.int64)
        known.update(last)
        asked = [*known, (1, 2), (BIGGEST, 3)]
        assert grown.get(*columns(asked)).tolist() == [known.get(pair, -7) for pair in asked]
        assert len(grown) == len(known)
    slots = grown.list_slots()
    listed = zip(*decode_pairs(grown.keys[slots]), grown.values[slots], strict=True)
    assert {(left, right): value for left, right, value in listed} == known


def test_a_map_that_grows_forgets_what_has_the_default():
    grown = PairMap()
    left = np.arange(1000)
    slots = grown.slots_of(left, left)
    grown.values[slots[:10]] = 5
    grown.reserve(10_000)
    assert len(grown) == 10
    assert grown.get(left, left).tolist() == [5] * 10 + [0] * 990
