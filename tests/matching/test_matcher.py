"""The matcher, at every moment of any history, against filters evaluated one by one."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from distributary.errors import InputError
from distributary.matching import event_schema, event_table, parse_filter
from distributary.matching import matcher as module
from distributary.matching.bitmap import Buckets
from distributary.matching.links import LinkMatcher
from distributary.matching.matcher import Matcher
from distributary.matching.trits import as_mask
from distributary.model import Filter
from tests.examples import up_to
from tests.matching.schemas import (
    EVENTS,
    SCHEMA,
    SMALL,
    SMALL_WORLD,
    arrow_events,
    conditions,
    small_tests,
)

SOME = EVENTS[::5]
TABLE = arrow_events(SOME)
KEYS = [SCHEMA.keys(event) for event in SOME]
FEW_BUCKETS = Buckets(2, 3)


@pytest.fixture(autouse=True)
def compiles_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a handful of filters makes several bitmaps."""
    monkeypatch.setattr(module, "_MOST_NEWEST", 2)


def pairs(filters: dict[int, Filter]) -> list[tuple[int, int]]:
    return [
        (row, number)
        for row, keys in enumerate(KEYS)
        for number, each in filters.items()
        if each.matches(keys)
    ]


def found(matcher: Matcher, threads: int = 1) -> list[tuple[int, int]]:
    rows, numbers = matcher.match_table(TABLE, threads=threads)
    assert rows.dtype == numbers.dtype == np.int64
    return list(zip(rows.tolist(), numbers.tolist(), strict=True))


@settings(max_examples=100, deadline=None)
@given(st.lists(conditions(), max_size=10), st.integers(0, 10))
def test_every_matching_filter_is_found_and_nothing_else(texts: list[str], given_at: int) -> None:
    filters = [parse_filter(text, SCHEMA) for text in texts]
    matcher = Matcher(SCHEMA, filters[:given_at], buckets=FEW_BUCKETS)
    for each in filters[given_at:]:
        matcher.add(each)
    expected = pairs(dict(enumerate(filters)))
    assert found(matcher) == expected
    assert found(matcher, threads=2) == expected
    counts = np.bincount([row for row, _ in expected], minlength=len(KEYS))
    assert matcher.count_table(TABLE).tolist() == counts.tolist()
    assert matcher.count_table(TABLE, threads=3).tolist() == counts.tolist()
    for row in range(0, len(KEYS), 17):
        here = [number for at, number in expected if at == row]
        assert matcher.match(SOME[row]).tolist() == here


FLOATS = st.floats(allow_nan=False, allow_infinity=False)
WHOLE = st.integers(-(2**63), 2**63 - 1)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_float_filter_may_span_zero(threads: int) -> None:
    table = pa.table({"temp": [-20.5, 0.0, 25.5, None, -10.0, 30.0]})
    schema = event_schema(table.schema)
    matcher = Matcher(schema, [parse_filter("temp BETWEEN -10 AND 30", schema)])
    assert matcher.match_table(table, threads=threads)[0].tolist() == [1, 2, 4, 5]
    assert matcher.count_table(table, threads=threads).tolist() == [0, 1, 1, 0, 1, 1]


@up_to(200)
@given(
    st.lists(st.tuples(FLOATS, FLOATS), min_size=1, max_size=4),
    st.lists(st.none() | st.floats(), min_size=1, max_size=8),
)
@example([(-2.0, 2.0)], [0.0])
@example([(-1.7976931348623157e308, 1.7976931348623157e308)], [float("inf"), 5e-324])
def test_a_range_of_floats_may_reach_from_end_to_end(
    ranges: list[tuple[float, float]], values: list[float | None]
) -> None:
    table = pa.table({"x": pa.array(values, pa.float64())})
    check_ranges([f"x BETWEEN {low!r} AND {high!r}" for low, high in ranges], table)


@up_to(200)
@given(
    st.lists(st.tuples(WHOLE, WHOLE | st.integers(-9, 9)), min_size=1, max_size=4),
    st.lists(st.none() | WHOLE, min_size=1, max_size=8),
)
@example([(2**63 - 3, 2**63 - 2)], [2**63 - 1, 2**63 - 2, -(2**63)])
@example([(-(2**63) + 1, -(2**63) + 2)], [2**63 - 1, -(2**63) + 1, -(2**63)])
def test_a_range_of_whole_numbers_may_reach_from_end_to_end(
    ranges: list[tuple[int, int]], values: list[int | None]
) -> None:
    table = pa.table({"x": pa.array(values, pa.int64())})
    check_ranges([f"x BETWEEN {low} AND {high}" for low, high in ranges], table)


def check_ranges(texts: list[str], table: pa.Table) -> None:
    """Tables, single events and the filters themselves find the same, of receivers and links."""
    schema = event_schema(table.schema)
    filters = [parse_filter(text, schema) for text in texts]
    matcher, links = Matcher(schema, filters), LinkMatcher(schema, len(filters))
    for link, each in enumerate(filters):
        links.add(each, link)
    rows, numbers = matcher.match_table(table)
    words = links.links_table(event_table(table, schema), (1 << len(filters)) - 1)
    for row, event in enumerate(table.to_pylist()):
        keys = schema.keys(event)
        expected = [number for number, each in enumerate(filters) if each.matches(keys)]
        assert numbers[rows == row].tolist() == expected
        assert matcher.match(event).tolist() == expected
        assert as_mask(words[row]) == sum(1 << number for number in expected)


OPERATIONS = st.lists(
    st.one_of(
        conditions(small_tests()),
        st.integers(0, 30),
        st.sampled_from(["fold", "begin", "compile", "finish", "table"]),
    ),
    max_size=40,
)


@up_to(150)
@given(OPERATIONS)
def test_answers_are_right_at_every_moment(operations: list[str | int]) -> None:
    """Filters come and go and are folded in any order; a fold may have changes in its middle."""
    matcher, there = Matcher(SMALL, buckets=FEW_BUCKETS), {}
    folding = None
    for operation in operations:
        if isinstance(operation, int):
            if there:
                number = sorted(there)[operation % len(there)]
                matcher.remove(number)
                del there[number]
        elif operation == "fold":
            matcher.fold()
            folding = None
            assert len(matcher.bitmaps) == 1
        elif operation == "begin":
            folding = matcher.begin_fold()
        elif operation == "compile":
            if folding is not None:
                folding.compile()
        elif operation == "finish":
            if folding is not None:
                folding.compile()
                matcher.finish_fold(folding)
                folding = None
        elif operation == "table":
            table = pa.Table.from_pylist([{"a": 1, "b": "x"}], pa.schema({"a": "i8", "b": "str"}))
            count = sum(each.matches((1, "x", None)) for each in there.values())
            assert matcher.count_table(table).tolist() == [count]
        else:
            condition = parse_filter(operation, SMALL)
            number = matcher.add(condition)
            assert number not in there
            there[number] = condition
        assert len(matcher) == len(there)
        assert matcher.numbers.tolist() == list(there)
        for keys in SMALL_WORLD[::5]:
            matching = [number for number, each in there.items() if each.matches(keys)]
            assert matcher.match_keys(keys).tolist() == matching


@settings(max_examples=30, deadline=None)
@given(st.lists(conditions(), min_size=2, max_size=8, unique=True), st.randoms())
def test_the_order_of_coming_does_not_matter(texts: list[str], rng: random.Random) -> None:
    filters = [parse_filter(text, SCHEMA) for text in texts]
    order = rng.sample(range(len(texts)), len(texts))
    one = Matcher(SCHEMA, filters)
    other = Matcher(SCHEMA)
    for at in order:
        other.add(filters[at])
    assert found(one) == sorted((row, order[number]) for row, number in found(other))


def test_a_fold_may_be_compiled_in_another_thread() -> None:
    filters = [parse_filter(f"qty = {n % 5} OR price > {n}", SCHEMA) for n in range(40)]
    matcher = Matcher(SCHEMA, filters[:30])
    there = dict(enumerate(filters))
    folding = matcher.begin_fold()
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(folding.compile)
        for each in filters[30:]:
            matcher.add(each)
        for number in (0, 7, 29, 33):
            matcher.remove(number)
            del there[number]
        assert found(matcher) == pairs(there)
        done.result()
    matcher.finish_fold(folding)
    assert found(matcher) == pairs(there)


def test_only_the_latest_fold_can_be_finished_and_only_once_compiled() -> None:
    matcher = Matcher(SMALL, [parse_filter("a = 1", SMALL)])
    early, late = matcher.begin_fold(), matcher.begin_fold()
    early.compile()
    with pytest.raises(ValueError, match="another fold"):
        matcher.finish_fold(early)
    with pytest.raises(ValueError, match="not been compiled"):
        matcher.finish_fold(late)
    late.compile()
    matcher.finish_fold(late)
    with pytest.raises(ValueError, match="finished"):
        matcher.finish_fold(late)
    assert matcher.match({"a": 1}).tolist() == [0]


def test_there_are_never_many_bitmaps() -> None:
    matcher = Matcher(SMALL)
    for n in range(400):
        matcher.add(parse_filter(f"a = {n % 3}", SMALL))
        assert len(matcher.bitmaps) <= 1 + np.log2(n + 1)
    assert matcher.match({"a": 2}).tolist() == list(range(2, 400, 3))
    assert matcher.bytes_used > 0


def test_what_is_large_is_brought_together_by_a_fold_alone() -> None:
    filters = [parse_filter(f"qty >= {number % 4}", SCHEMA) for number in range(20)]
    matcher = Matcher(SCHEMA, in_passing=6)
    for each in filters:
        matcher.add(each)
    assert max(len(bitmap) for bitmap in matcher.bitmaps) <= 6
    assert found(matcher) == pairs(dict(enumerate(filters)))
    matcher.fold()
    assert [len(bitmap) for bitmap in matcher.bitmaps] == [20]
    assert found(matcher) == pairs(dict(enumerate(filters)))


def test_no_filter_every_filter_and_no_event() -> None:
    matcher = Matcher(SMALL)
    event = pa.table({"a": [1]})
    assert len(matcher) == 0
    assert matcher.match({"a": 1}).tolist() == []
    assert matcher.count_table(event).tolist() == [0]
    matcher.fold()
    assert matcher.match({"a": 1}).tolist() == []
    matcher.add(parse_filter("TRUE", SMALL))
    matcher.add(parse_filter("FALSE", SMALL))
    for _ in range(2):
        assert matcher.match({}).tolist() == [0]
        assert matcher.count_table(event).tolist() == [1]
        rows, numbers = matcher.match_table(event.slice(1))
        assert len(rows) == len(numbers) == len(matcher.count_table(event.slice(1))) == 0
        matcher.fold()


def test_numbers_are_never_used_again() -> None:
    matcher = Matcher(SMALL, [parse_filter("a = 1", SMALL)])
    matcher.remove(0)
    assert matcher.add(parse_filter("a = 2", SMALL)) == 1
    for unknown in (0, 2, -1):
        with pytest.raises(KeyError):
            matcher.remove(unknown)


def test_what_is_refused() -> None:
    matcher = Matcher(SMALL)
    strange = parse_filter("qty = 1", SCHEMA)
    with pytest.raises(ValueError, match="different schemas"):
        matcher.add(strange)
    with pytest.raises(ValueError, match="different schemas"):
        Matcher(SMALL, [strange])
    with pytest.raises(ValueError, match="at least 1, not 0"):
        matcher.count_table(pa.table({"a": [1]}), threads=0)
    with pytest.raises(InputError, match="not in its domain"):
        matcher.match({"a": 7})
