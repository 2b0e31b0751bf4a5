"""Filters that compare two attributes or look for patterns: checked after the tests of boxes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.errors import InputError
from distributary.matching import CoverIndex, LinkMatcher, Matcher, parse_filter, print_filter
from distributary.matching import matcher as matching
from distributary.model import Filter, covers, equivalent, intersects
from distributary.model.residual import is_like
from tests.examples import up_to
from tests.matching.schemas import (
    EVENTS,
    SCHEMA,
    arrow_events,
    conditions,
    residual_tests,
    single_tests,
)
from tests.matching.test_sql import duck  # noqa: F401

KEYS = [SCHEMA.keys(event) for event in EVENTS]
TABLE = arrow_events(EVENTS)
MIXED = conditions(residual_tests() | residual_tests() | single_tests())


def rows_of(found: Filter) -> set[int]:
    return {row for row, keys in enumerate(KEYS) if found.matches(keys)}


def parse(text: str) -> Filter:
    return parse_filter(text, SCHEMA)


@up_to(150)
@given(MIXED)
def test_a_filter_with_residuals_means_what_sql_means(
    duck: Callable[[str], set[int]],  # noqa: F811
    text: str,
) -> None:
    assert rows_of(parse(text)) == duck(text)


@up_to(60, by_default=25)
@given(
    st.lists(MIXED, min_size=1, max_size=40),
    st.integers(1, 3),
    st.integers(1, len(KEYS)),
    st.integers(0, len(KEYS) - 1),
)
def test_a_matcher_finds_what_plain_evaluation_finds(
    texts: list[str], threads: int, size: int, first: int
) -> None:
    """In parts of about so many events, and in no more parts than a few dozen."""
    filters = [parse(text) for text in texts]
    matcher = Matcher(SCHEMA, filters)
    events, wanted = TABLE.slice(first, 30 * size), KEYS[first : first + 30 * size]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matching, "_MOST_CHECKED", size * len(filters))
        rows, numbers = matcher.match_table(events, threads=threads)
        counts = matcher.count_table(events, threads=threads)
    expected = [
        (row, number)
        for row, keys in enumerate(wanted)
        for number, each in enumerate(filters)
        if each.matches(keys)
    ]
    assert list(zip(rows.tolist(), numbers.tolist(), strict=True)) == expected
    assert counts.tolist() == np.bincount(rows, minlength=len(wanted)).tolist()
    for row in range(0, len(wanted), 23):
        assert matcher.match_keys(wanted[row]).tolist() == numbers[rows == row].tolist()


@up_to(30, by_default=15)
@given(st.lists(MIXED, min_size=40, max_size=80), st.data())
def test_filters_with_residuals_come_and_go(texts: list[str], data: st.DataObject) -> None:
    matcher = Matcher(SCHEMA)
    for text in texts:
        matcher.add(parse(text))
    for number in data.draw(st.sets(st.sampled_from(matcher.numbers.tolist()), max_size=20)):
        matcher.remove(number)
    for event in EVENTS[::50]:
        keys = SCHEMA.keys(event)
        expected = [number for number in matcher.numbers.tolist() if matcher[number].matches(keys)]
        assert matcher.match(event).tolist() == expected


@up_to(150)
@given(MIXED, MIXED)
def test_a_filter_with_residuals_covers_no_more_than_is_true(one: str, other: str) -> None:
    a, b = parse(one), parse(other)
    mine, others = rows_of(a), rows_of(b)
    assert not covers(a, b) or others <= mine
    assert intersects(a, b) or not mine & others
    assert covers(a, a)
    index: CoverIndex[str] = CoverIndex(SCHEMA)
    index.add(a, "a")
    assert index.find_covers(b) == ["a"] * covers(a, b)
    assert index.find_covered(b) == ["a"] * covers(b, a)
    assert index.find_meeting(b) == ["a"] * intersects(a, b)
    assert index.is_covered(b) == covers(a, b)
    assert index.meets(b) == intersects(a, b)


@up_to(150)
@given(MIXED)
def test_a_printed_filter_with_residuals_is_read_again(text: str) -> None:
    found = parse(text)
    assert equivalent(parse(print_filter(found)), found)


def test_what_is_known_of_residuals_is_concluded() -> None:
    assert covers(parse("qty < price"), parse("price > qty AND hot"))
    assert covers(parse("qty < price OR hot"), parse("qty < price"))
    assert not covers(parse("qty < price"), parse("hot"))
    assert covers(parse("qty IS NOT NULL"), parse("qty < price"))
    assert covers(parse("symbol LIKE 'ab%'"), parse("symbol LIKE 'abc%d'"))
    assert not covers(parse("symbol LIKE 'ab%d'"), parse("symbol LIKE 'ab%'"))
    assert not intersects(parse("symbol LIKE 'a%b'"), parse("symbol LIKE 'b%'"))
    both = parse("(qty < price AND qty < 5) OR (qty < price AND qty >= 5)")
    assert both == parse("qty < price")
    assert print_filter(both) == "qty < price"
    assert print_filter(parse("NOT symbol LIKE '%x_'")) == "symbol NOT LIKE '%x_'"


def test_link_matching_refuses_residuals() -> None:
    links = LinkMatcher(SCHEMA, 2)
    links.add(parse("symbol LIKE 'a%'"), 0)
    with pytest.raises(InputError, match="takes no filters that compare two attributes"):
        links.add(parse("qty < price"), 1)
    assert len(links) == 1


def plain_like(text: str, pattern: str) -> bool:
    if not pattern:
        return not text
    if pattern[0] == "%":
        return any(plain_like(text[n:], pattern[1:]) for n in range(len(text) + 1))
    return bool(text) and pattern[0] in ("_", text[0]) and plain_like(text[1:], pattern[1:])


def test_like_is_what_its_definition_says() -> None:
    texts = ["".join(found) for n in range(5) for found in product("ab\n", repeat=n)]
    patterns = ["".join(found) for n in range(5) for found in product("ab%_", repeat=n)]
    for text, pattern in product(texts[:60], patterns):
        assert is_like(text, pattern) == plain_like(text, pattern), (text, pattern)


def test_a_pattern_of_many_parts_takes_no_more_than_its_size_times_the_texts() -> None:
    assert not is_like("a" * 20_000, "%a" * 200 + "%b")
    assert is_like("a" * 20_000 + "b", "%a" * 200 + "%b")
