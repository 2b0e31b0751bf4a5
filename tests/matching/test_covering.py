"""The index of covers against comparing each filter with all, for filters of every kind."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from distributary.matching import _covering_kernels, _covering_reference, bounds, parse_filter
from distributary.matching._covering_reference import PlainCoverIndex
from distributary.matching.covering import CoverIndex
from distributary.model import Attribute, AttributeKind, Box, Filter, Key, Schema, Values
from distributary.model.event import after
from tests.examples import up_to
from tests.matching.schemas import SCHEMA, SMALL, conditions, small_tests

NOTHING = Filter(SCHEMA, ())
EVERYTHING = Filter(SCHEMA, (Box(()),))

# Texts that are equal in what the index keeps of them, or differ in their last byte only.
TEXTS = ["", "\0", "a", "a\0", "abcdefg", "abcdefg\0", "abcdefgh", "abcdefgi", "abcdefghij"]
TEXTS += ["abcdef", "abcdefé", "\ud800", "\U0010ffff", "workflow-01", "workflow-02"]
NUMBERS = [-(2**63), -(2**63) + 1, -(2**63) + 2, -1, 0, 1, 2, 3, 2**63 - 1]


def ends(kind: AttributeKind) -> tuple[Key, Key, Key]:
    """The first two keys of an axis, and the last."""
    assert kind.end is not None
    return kind.least, kind.least + 1, kind.end - 1


@st.composite
def nasty_values(draw: st.DrawFn, kind: AttributeKind) -> Values:
    """Ranges and points with ends that are hard to tell apart, and perhaps the missing value."""
    keys = {
        AttributeKind.TEXT: TEXTS,
        AttributeKind.INTEGER: NUMBERS,
        AttributeKind.FLOAT: [*ends(AttributeKind.FLOAT), -1, 0, 1, 2**52, 2**62],
        AttributeKind.BOOLEAN: [0, 1],
        AttributeKind.DATE: [*ends(AttributeKind.DATE), -1, 0, 1],
        AttributeKind.TIMESTAMP: NUMBERS,
        AttributeKind.DECIMAL: [*ends(AttributeKind.DECIMAL), -(10**38), *NUMBERS, 2**63, 10**38],
    }[kind]
    ranges = []
    for _ in range(draw(st.sampled_from([0, 1, 1, 1, 1, 2, 3]))):
        low = draw(st.sampled_from(keys))
        high = draw(st.sampled_from([after(low), after(low), kind.end, *keys]))
        ranges.append((low, high))
    return Values.of(ranges, kind, null=draw(st.integers(0, 4)) == 0)


@st.composite
def nasty_filters(draw: st.DrawFn, schema: Schema = SCHEMA) -> Filter:
    """Up to three boxes, mostly one, with tests on few attributes so that some cover others."""
    boxes = []
    for _ in range(draw(st.sampled_from([0, 1, 1, 1, 1, 1, 2, 3]))):
        places = draw(st.sets(st.sampled_from([0, *range(len(schema))]), max_size=3))
        tests = [(at, draw(nasty_values(schema.attributes[at].kind))) for at in sorted(places)]
        box = Box.of(tests, schema)
        if box is not None:
            boxes.append(box)
    return Filter.of(boxes, schema)


def parsed(schema: Schema) -> st.SearchStrategy[Filter]:
    leaves = small_tests() if schema is SMALL else None
    return conditions(leaves).map(lambda text: parse_filter(text, schema))


FILTERS = nasty_filters() | parsed(SCHEMA)


def check_answers(index: CoverIndex[object], plain: PlainCoverIndex, query: Filter) -> None:
    assert index.find_covers(query) == plain.find_covers(query)
    assert index.find_covered(query) == plain.find_covered(query)
    assert index.find_meeting(query) == plain.find_meeting(query)
    assert index.meets(query) == plain.meets(query)
    for but in (None, *plain):
        assert index.is_covered(query, but) == plain.is_covered(query, but)


def check_changes(schema: Schema, filters: list[Filter], gone: list[int]) -> None:
    """Add all, remove some, ask about each, add those again, ask again."""
    index: CoverIndex[object] = CoverIndex(schema)
    plain = PlainCoverIndex(schema)
    for key, each in enumerate(filters):
        index.add(each, key)
        plain.add(each, key)
    for query in filters:
        check_answers(index, plain, query)
    removed = sorted({key % len(filters) for key in gone}, reverse=True) if filters else []
    for key in removed:
        assert index.remove(key) is plain.remove(key)
    assert list(index) == list(plain)
    for query in filters:
        check_answers(index, plain, query)
    for key in removed:
        index.add(filters[key], ("again", key))
        plain.add(filters[key], ("again", key))
    for query in filters[:3]:
        check_answers(index, plain, query)
    assert len(index) == len(plain) == len(filters)


@up_to(250)
@given(st.lists(FILTERS, max_size=8), st.lists(st.integers(0, 7), max_size=4))
@example([NOTHING, EVERYTHING, NOTHING, EVERYTHING], [0, 1])
def test_answers_are_those_of_comparing_with_all(filters: list[Filter], gone: list[int]) -> None:
    check_changes(SCHEMA, filters, gone)


@up_to(150)
@given(st.lists(parsed(SMALL), max_size=8), st.lists(st.integers(0, 7), max_size=4))
def test_attributes_with_few_values_are_compared_by_what_can_occur(
    filters: list[Filter], gone: list[int]
) -> None:
    check_changes(SMALL, filters, gone)


@up_to(200)
@given(st.lists(nasty_filters(SMALL), max_size=8), st.lists(st.integers(0, 7), max_size=4))
def test_tests_outside_a_domain_are_compared_as_the_model_does(
    filters: list[Filter], gone: list[int]
) -> None:
    check_changes(SMALL, filters, gone)


def where(*texts: str) -> list[Filter]:
    return [parse_filter(text, SCHEMA) for text in texts]


def ranges_of_qty() -> list[Filter]:
    """From both ends of the axis and close to them, also beside a missing value."""
    first, end = AttributeKind.INTEGER.least, 2**63
    ends = [(first, first + 1), (first + 1, first + 2), (first, first + 2), (first, 0)]
    ends += [(first + 1, end), (first + 2, end), (first, end - 1), (end - 1, end), (first, end)]
    return [
        Filter(SCHEMA, (Box(((1, Values((found,), null)),)),))
        for found in ends
        for null in (False, True)
    ][:-1]


@pytest.mark.parametrize(
    "filters",
    [
        ranges_of_qty() + where("TRUE", "qty IS NULL"),
        # A union that lets through every value of an attribute, which its boxes test.
        where("(hot AND qty < 5) OR ((hot IS NULL OR NOT hot) AND qty < 4)", "qty = 1", "qty < 5"),
        where("price IS NOT NULL", "price > 1e308", "price < 1e308", "NOT price > 1e308"),
    ],
)
def test_axes_are_compared_to_their_very_ends(filters: list[Filter]) -> None:
    check_changes(SCHEMA, filters, [0])


# More attributes than a word has bits, the last of them a text.
WIDE = Schema(
    (
        *(Attribute(f"n{at}", AttributeKind.INTEGER) for at in range(70)),
        Attribute("text", AttributeKind.TEXT),
    )
)


def test_more_attributes_than_a_word_has_bits() -> None:
    texts = [
        f"{symbol} AND n{at} {sign} 5"
        for symbol in ("text = 'workflow-01'", "text = 'workflow-02'", "text > 'workflow-01'")
        for at in (0, 65)
        for sign in ("=", "<", "<=")
    ]
    check_changes(WIDE, [parse_filter(text, WIDE) for text in texts], [1, 5, 9])


def many_filters(n: int, seed: int) -> list[Filter]:
    """Filters that often cover each other, by the dozen on each symbol."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(n):
        tests = []
        if rng.random() < 0.8:
            tests.append(f"symbol = 'symbol-number-{rng.integers(4)}'")
        if rng.random() < 0.3:
            tests.append(f"hot = {rng.random() < 0.5}")
        if rng.random() < 0.3:
            tests.append(f"qty IN ({rng.integers(3)}, {rng.integers(3)})")
        if rng.random() < 0.7:
            low = int(rng.integers(10))
            tests.append(f"price BETWEEN {low} AND {low + int(rng.integers(10))}")
        if rng.random() < 0.1:
            tests.append("(hot OR at IS NULL)")
        made.append(parse_filter(" AND ".join(tests) or "TRUE", SCHEMA))
    return made


@pytest.mark.parametrize("seed", range(2))
def test_hundreds_of_filters_that_come_and_go(seed: int) -> None:
    """Enough for rows and buckets to grow, to be moved and to be given up."""
    rng = np.random.default_rng(seed)
    index: CoverIndex[object] = CoverIndex(SCHEMA)
    plain = PlainCoverIndex(SCHEMA)
    for step, each in enumerate(many_filters(300, seed)):
        index.add(each, step)
        plain.add(each, step)
        if step % 3 == 2 or (step > 200 and step % 10):
            key = list(plain)[int(rng.integers(len(plain)))]
            assert index.remove(key) is plain.remove(key)
        if step % 20 == 0:
            check_answers(index, plain, each)
    for key in list(plain):
        assert index.remove(key) is plain.remove(key)
    assert len(index) == 0
    assert index.find_covered(EVERYTHING) == []


@given(st.data(), st.sampled_from(list(AttributeKind)))
def test_sets_of_values_meet_where_they_share_one(data: st.DataObject, kind: AttributeKind) -> None:
    one, other = data.draw(nasty_values(kind)), data.draw(nasty_values(kind))
    assert one.meets(other) == other.meets(one) == bool(one & other)


def test_equal_filters_cover_each_other() -> None:
    index: CoverIndex[str] = CoverIndex(SCHEMA)
    one, other = (parse_filter("symbol = 'IBM' AND qty > 3", SCHEMA) for _ in range(2))
    index.add(one, "one")
    assert not index.is_covered(one, but="one")
    index.add(other, "other")
    assert index.find_covers(one) == index.find_covered(one) == ["one", "other"]
    assert index.is_covered(one, but="one")
    assert index.is_covered(other, but="other")


def test_keys_are_unique_while_present() -> None:
    index: CoverIndex[str] = CoverIndex(SCHEMA)
    for each in (EVERYTHING, NOTHING, parse_filter("hot", SCHEMA)):
        index.add(each, "key")
        assert "key" in index
        assert index["key"] is each
        with pytest.raises(ValueError, match="'key' is already in use"):
            index.add(EVERYTHING, "key")
        assert index.remove("key") is each
        assert "key" not in index
        with pytest.raises(KeyError):
            index.remove("key")


def test_a_union_of_several_filters_is_no_cover() -> None:
    index: CoverIndex[str] = CoverIndex(SCHEMA)
    index.add(parse_filter("qty < 5", SCHEMA), "low")
    index.add(parse_filter("qty >= 5", SCHEMA), "high")
    assert not index.is_covered(parse_filter("qty BETWEEN 3 AND 7", SCHEMA))
    index.add(parse_filter("qty < 5 OR qty >= 5", SCHEMA), "both")
    assert index.find_covers(parse_filter("qty BETWEEN 3 AND 7", SCHEMA)) == ["both"]


def test_bounds_are_forgotten_before_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "_kept", kept := {})
    monkeypatch.setattr(bounds, "_MOST_KEPT", 4)
    check_changes(SCHEMA, many_filters(20, 0), [3, 8])
    assert len(kept) <= 4


@up_to(200)
@given(st.data())
def test_the_kernels_find_what_their_plain_twins_find(data: st.DataObject) -> None:
    width = data.draw(st.integers(1, 4))
    numbers = st.integers(0, 3) | st.sampled_from([-(2**63), 2**63 - 1])
    row = st.tuples(*[numbers] * width, st.integers(0, 7))
    table = data.draw(st.lists(row, min_size=1, max_size=12))
    rows = data.draw(st.lists(st.integers(0, len(table) - 1), max_size=12))
    query = data.draw(st.tuples(*[numbers] * width))
    doubts, enough = data.draw(st.integers(0, 7)), data.draw(st.sampled_from([-1, 1, 2]))
    found = np.empty(len(rows), np.int32)
    arrays = (np.array(table, np.int64), np.array(rows, np.int32))
    n = _covering_kernels.rows_at_most(*arrays, np.array(query), doubts, enough, found)
    expected = _covering_reference.rows_at_most(table, rows, query, doubts, enough)
    assert found[:n].tolist() == expected
    n = _covering_kernels.rows_at_least(*arrays, np.array(query), doubts, found)
    assert found[:n].tolist() == _covering_reference.rows_at_least(table, rows, query, doubts)


@pytest.mark.parametrize(
    "ask", [CoverIndex.find_covers, CoverIndex.find_covered, CoverIndex.find_meeting]
)
def test_simple_filters_are_answered_by_their_bounds_alone(
    ask: Callable[[CoverIndex[int], Filter], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long texts that are asked for by value, ranges and nulls leave no doubt."""
    index: CoverIndex[int] = CoverIndex(SCHEMA)
    moment = datetime(2026, 1, 5)
    for key, text in enumerate(
        [
            "symbol = 'workflow-01' AND qty < 3",
            "symbol = 'workflow-02' AND qty < 5",
            f"symbol = 'workflow-01' AND price > 0 AND at > '{moment}'",
            "symbol = 'workflow-01' AND hot IS NULL",
        ]
    ):
        index.add(parse_filter(text, SCHEMA), key)

    def compared(*_: object) -> bool:
        raise AssertionError("two filters were compared")

    monkeypatch.setattr("distributary.matching.covering.covers", compared)
    monkeypatch.setattr("distributary.matching.covering.intersects", compared)
    for key in index:
        assert key in ask(index, index[key])
    ask(index, EVERYTHING)
