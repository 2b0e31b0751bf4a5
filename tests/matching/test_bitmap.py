"""The bitmap against its plain twin, and against filters evaluated one by one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from distributary.matching import _bitmap_kernels, _bitmap_reference, parse_filter
from distributary.matching import bitmap as bitmap_module
from distributary.matching.bitmap import Bitmap, Buckets
from distributary.model import Attribute, AttributeKind, Box, Filter, Schema, Values
from tests.examples import up_to
from tests.matching.schemas import EVENTS, SCHEMA, SMALL, SMALL_WORLD, conditions, small_tests

KEYS = [SCHEMA.keys(event) for event in EVENTS[::7]]

BUCKETS = st.builds(Buckets, st.integers(1, 4), st.sampled_from([1, 2, 3, 4096]))
Ranges = tuple[tuple[int, int], ...]


@st.composite
def ranges(draw: st.DrawFn, n_codes: int) -> Ranges:
    """Ranges of codes in order, apart or touching."""
    ends = draw(st.lists(st.integers(0, n_codes), min_size=2, max_size=6, unique=True).map(sorted))
    found = tuple(zip(ends[::2], ends[1::2], strict=False))
    return ((0, 1), (1, n_codes)) if draw(st.booleans()) and n_codes > 1 else found


def in_arrays(tests: Sequence[Ranges]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    flat = np.array([each for test in tests for each in test], np.int32).reshape(-1, 2)
    offsets = np.cumsum([0, *map(len, tests)])
    return offsets, np.ascontiguousarray(flat[:, 0]), np.ascontiguousarray(flat[:, 1])


@up_to(200)
@given(st.data(), st.lists(st.integers(1, 4), min_size=1, max_size=6))
def test_tests_touch_the_buckets_that_they_should(data: st.DataObject, sizes: list[int]) -> None:
    bucket_of = [bucket for bucket, size in enumerate(sizes) for _ in range(size)]
    tests = data.draw(st.lists(ranges(len(bucket_of)), max_size=5))
    offsets, first, last, exact = _bitmap_kernels.group_ranges(
        *in_arrays(tests), np.array(bucket_of, np.int32)
    )
    for test, (buckets, is_exact) in enumerate(_bitmap_reference.group_ranges(tests, bucket_of)):
        here = range(offsets[test], offsets[test + 1])
        listed = [bucket for at in here for bucket in range(first[at], last[at])]
        assert listed == sorted(buckets)
        assert exact[test] == is_exact
        assert all(last[at] < first[at + 1] for at in here[:-1])


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=3),
    st.integers(0, 700),
    st.integers(1, 4),
    st.integers(0, 2**32),
)
@example([5, 5, 5, 5], 10_000, 1, 0)  # several groups of blocks, and many rows
def test_bits_and_their_summaries_say_which_boxes_pass(
    buckets: list[int], n_boxes: int, width: int, seed: int
) -> None:
    """Small blocks, so that there are several of them, and several words in each."""
    rng = np.random.default_rng(seed)
    columns = np.cumsum([0, *buckets])
    tests, chosen = [], np.empty((len(buckets), n_boxes), np.int32)
    for a, n in enumerate(buckets):
        chosen[a] = rng.integers(len(tests), len(tests) + 3, n_boxes)
        if seed % 2:  # whole blocks alike
            chosen[a].sort()
        for _ in range(3):
            ends = sorted(columns[a] + rng.choice(n + 1, rng.integers(1, n + 1) // 2 * 2, False))
            tests.append(tuple(zip(ends[::2], ends[1::2], strict=True)))
    expected = _bitmap_reference.lay_out(chosen.tolist(), tests, columns.tolist())
    groups, summaries, row_of, rows = _bitmap_kernels.lay_out(
        chosen, _bitmap_kernels.Ranges(*in_arrays(tests)), columns, width
    )
    boxes = (1 << n_boxes) - 1
    for column, bits in enumerate(expected):
        found = 0
        for block in range(len(row_of)):
            row = rows[row_of[block, column]].tolist()
            for word, value in enumerate(row):
                found |= value << 64 * (block * width + word)
            held = bits >> 64 * width * block & (1 << 64 * width) - 1
            words = [held >> 64 * word & (2**64 - 1) for word in range(width)]
            summary = sum(1 << word for word, value in enumerate(words) if value)
            assert summaries[block, column] == summary
            assert int(groups[block // 64, column]) >> block % 64 & 1 == bool(summary)
        assert found & boxes == bits


def some_filters(n: int, rng: np.random.Generator) -> list[Filter]:
    """Many filters over few values: equal boxes, and filters with several of them."""
    schema = Schema(tuple(Attribute(name, AttributeKind.INTEGER) for name in "abcd"))

    def box() -> Box:
        tests = []
        for at in range(4):
            if rng.random() < 0.7:
                low, size = rng.integers(0, 8), rng.integers(1, 4)
                pieces = [(int(low), int(low + size)), (20, 20 + int(rng.integers(0, 3)))]
                tests.append(
                    (at, Values.of(pieces, AttributeKind.INTEGER, null=bool(rng.random() < 0.2)))
                )
        return Box(tuple(tests))

    return [Filter.of([box() for _ in range(rng.integers(0, 3))], schema) for _ in range(n)]


@pytest.mark.parametrize("n", [0, 1, 65, 500, 5000])
@pytest.mark.parametrize("most", [2, 128])
@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("block_words", [1, 64])
def test_the_kernels_find_what_their_plain_twins_find(
    n: int, most: int, several: bool, block_words: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small blocks, too, so that there are several groups of them."""
    monkeypatch.setattr(bitmap_module, "_BLOCK_WORDS", block_words)
    rng = np.random.default_rng([n, most])
    filters = some_filters(n, rng)
    if not several:
        filters = [Filter(each.schema, each.boxes[:1]) for each in filters]
    schema = Schema(tuple(Attribute(name, AttributeKind.INTEGER) for name in "abcd"))
    bitmap = Bitmap.of(range(n), filters, schema, buckets=Buckets(most, most))
    for number in rng.permutation(n)[: n // 3].tolist():
        bitmap.remove(number)
    drawn = rng.integers(-1, 24, (3 if n == 5000 else 20, 4)).tolist()
    keys = [tuple(None if value < 0 else value for value in event) for event in drawn]
    codes = np.array([bitmap.axes.code(each) for each in keys], np.int32)
    tables, owners = bitmap._tables, bitmap._owners

    offsets, found = _bitmap_kernels.list_owners(tables, owners, codes)
    listed = [part.tolist() for part in np.split(found, offsets[1:-1])]
    assert listed == _bitmap_reference.list_owners(tables, owners, codes.tolist())
    assert listed == [
        [at for at in range(n) if at in bitmap and filters[at].matches(each)] for each in keys
    ]
    assert _bitmap_kernels.count_boxes(tables, codes).tolist() == _bitmap_reference.count_boxes(
        tables, codes.tolist()
    )
    if not several:
        counts = _bitmap_kernels.count_owners(tables, owners, codes).tolist()
        assert counts == _bitmap_reference.count_owners(tables, owners, codes.tolist())
    assert bitmap.count_codes(codes).tolist() == [len(part) for part in listed]


@up_to(150)
@given(st.lists(conditions(), max_size=8), BUCKETS)
def test_a_bitmap_finds_what_matches_and_nothing_else(texts: list[str], buckets: Buckets) -> None:
    filters = [parse_filter(text, SCHEMA) for text in texts]
    bitmap = Bitmap.of(range(len(filters)), filters, SCHEMA, buckets=buckets)
    for keys in KEYS:
        matching = [number for number, each in enumerate(filters) if each.matches(keys)]
        assert bitmap.match_keys(keys).tolist() == matching


@settings(max_examples=60, deadline=None)
@given(st.lists(conditions(small_tests()), max_size=20), st.data(), BUCKETS)
def test_removed_filters_are_gone_and_others_stay(
    texts: list[str], data: st.DataObject, buckets: Buckets
) -> None:
    filters = [parse_filter(text, SMALL) for text in texts]
    numbers = [3 * at + 1 for at in range(len(filters))]
    bitmap = Bitmap.of(numbers, filters, SMALL, buckets=buckets)
    left = dict(zip(numbers, filters, strict=True))
    for number in data.draw(st.lists(st.sampled_from(numbers), unique=True)) if numbers else ():
        bitmap.remove(number)
        del left[number]
        with pytest.raises(KeyError):
            bitmap.remove(number)
    assert len(bitmap) == len(left)
    codes = np.array([bitmap.axes.code(keys) for keys in SMALL_WORLD])
    counts = bitmap.count_codes(codes)
    for keys, count in zip(SMALL_WORLD, counts, strict=True):
        matching = [number for number, each in left.items() if each.matches(keys)]
        assert bitmap.match_keys(keys).tolist() == matching
        assert count == len(matching)


def test_equal_boxes_are_kept_once_and_counted_for_each_filter() -> None:
    filters = [parse_filter("a = 1 AND c", SMALL)] * 1000 + [parse_filter("a = 2", SMALL)]
    bitmap = Bitmap.of(range(1001), filters, SMALL)
    assert len(bitmap._owners.count) == 2
    codes = bitmap.axes.code(SMALL.keys({"a": 1, "c": True})).reshape(1, -1)
    assert bitmap.count_codes(codes).tolist() == [1000]
    bitmap.remove(7)
    assert bitmap.count_codes(codes).tolist() == [999]


def test_a_bucket_at_least() -> None:
    with pytest.raises(ValueError, match="at least one bucket"):
        Buckets(0)
