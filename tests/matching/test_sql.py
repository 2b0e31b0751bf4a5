"""Filters as text: what they mean, by an engine that knows nothing of ours, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import datetime
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest
import sqlglot
from hypothesis import given
from hypothesis import strategies as st

from distributary.errors import InputError
from distributary.matching import parse_filter, print_filter, sql
from distributary.matching.conjunctions import plain_conjunction
from distributary.matching.sql import (
    MOST_ALTERNATIVES,
    MOST_CHARACTERS,
    MOST_WORK,
    parse_any_filter,
)
from distributary.model import (
    Attribute,
    AttributeKind,
    Box,
    Filter,
    Schema,
    covers,
    equivalent,
    intersects,
)
from tests.examples import up_to
from tests.matching.schemas import (
    EVENTS,
    SCHEMA,
    SMALL,
    SMALL_WORLD,
    arrow_events,
    conditions,
    single_tests,
    small_tests,
)

KEYS = [SCHEMA.keys(event) for event in EVENTS]


@pytest.fixture(scope="module")
def duck() -> Callable[[str], set[int]]:
    """Row numbers of the events for which DuckDB finds a condition true."""
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    table = arrow_events(EVENTS).append_column("row", pa.array(range(len(EVENTS))))
    connection.register("arrow_events", table)
    connection.execute("CREATE TABLE events AS SELECT * FROM arrow_events")

    def found(text: str) -> set[int]:
        condition = sqlglot.parse_one(text, read="spark").transform(_apart).sql("duckdb")
        rows = connection.execute(f"SELECT row FROM events WHERE {condition}").fetchall()
        return {row for (row,) in rows}

    return found


def _apart(node: sqlglot.exp.Expr) -> sqlglot.exp.Expr:
    """BETWEEN as two comparisons, which it is to Spark; DuckDB makes both its ends of one type."""
    if not isinstance(node, sqlglot.exp.Between):
        return node
    value, low, high = node.this, node.args["low"], node.args["high"]
    return sqlglot.exp.Paren(this=sqlglot.exp.and_(value >= low, value <= high))


def matched(text: str) -> set[int]:
    condition = parse_filter(text, SCHEMA)
    return {row for row, keys in enumerate(KEYS) if condition.matches(keys)}


@up_to(400)
@given(conditions())
def test_a_filter_means_what_sql_means(duck: Callable[[str], set[int]], text: str) -> None:
    assert matched(text) == duck(text)


DAY = datetime(2020, 1, 1)
TYPES = Schema(
    (
        Attribute("i", AttributeKind.INTEGER),
        Attribute("d", AttributeKind.FLOAT),
        Attribute("day", AttributeKind.DATE),
        Attribute("at", AttributeKind.TIMESTAMP),
        Attribute("m", AttributeKind.DECIMAL, scale=2),
        Attribute("s", AttributeKind.TEXT),
    )
)


@pytest.mark.parametrize(
    ("text", "value", "is_true"),
    [
        ("i < 1e16", 9999999999999999, False),
        ("i = 1e16", 9999999999999999, True),
        ("i = 10000000000000000", 9999999999999999, False),
        ("i IN (10000000000000000, 1e0)", 9999999999999999, True),
        ("i IN (10000000000000000, 1.5)", 9999999999999999, False),
        ("i BETWEEN 1e16 AND 10000000000000000", 9999999999999999, True),
        ("i BETWEEN 10000000000000000 AND 1e16", 9999999999999999, False),
        ("i = 9223372036854775807", 2**63 - 1, True),
        ("i < 9223372036854775808", 2**63 - 1, True),
        ("i < 9.223372036854775807e18", 2**63 - 1, False),
        ("i = -9223372036854775808", -(2**63), True),
        ("i >= -9223372036854775809", -(2**63), True),
        ("i < " + "9" * 38, 2**63 - 1, True),
        ("i <> 1.000000000000000001", 1, True),
        ("d = 9007199254740993", 2.0**53, True),
        ("d > 2e-324", 5e-324, True),
        ("CAST('2020-01-01 12:30:00' AS DATE) = day", DAY.date(), True),
        ("CAST('2020-01-01 12:30:00' AS DATE) = at", DAY, True),
        ("CAST('2020-01-01 12:30:00' AS DATE) = at", DAY.replace(hour=12, minute=30), False),
        ("CAST('2020-01-01 12:30:00' AS TIMESTAMP) = day", DAY.date(), False),
        ("day = '2020-01-01 12:30:00'", DAY.date(), True),
        ("day < '2020-01-01 12:30:00'", DAY.date(), False),
        ("day < TIMESTAMP '2020-01-01 12:30:00'", DAY.date(), True),
        ("day IN ('2020-01-01 12:30:00')", DAY.date(), True),
        ("day IN ('2020-01-01 12:30:00', TIMESTAMP '2021-01-01 00:00:00')", DAY.date(), False),
        ("day < '+20000-01-01'", DAY.date(), True),
        ("at < '294247-01-10 04:00:54.775807'", DAY, True),
        ("at > '-290308-12-21 19:59:05.224192'", DAY, True),
        ("at > '0000-01-01'", datetime.min, True),
        ("m = 1234567.89", Decimal("1234567.89"), True),
        ("m = 9007199254740992", Decimal("9007199254740993.00"), False),
        ("m = 9007199254740992e0", Decimal("9007199254740993.00"), True),
        ("m IN (9007199254740992, 1e0)", Decimal("9007199254740993.00"), True),
        ("m < 0.001", Decimal("0.00"), True),
        ("m <= 0.009", Decimal("0.01"), False),
        ("s = 'it''s'", "it's", True),
        ("s = '\\''''", "''", True),
        ('s = "say ""hi"""', 'say "hi"', True),
        (r"s = '\u0041\101\%'", "AA\\%", True),
    ],
)
def test_what_spark_says_a_comparison_means(text: str, value: object, is_true: bool) -> None:
    """Each was asked of Spark 4, where the test of its own asks again."""
    condition = parse_filter(text, TYPES)
    name = next(word for word in re.findall(r"\w+", text) if TYPES.place(word) is not None)
    assert condition.matches(TYPES.keys({name: value})) == is_true
    assert parse_filter(print_filter(condition), TYPES) == condition


@up_to(400)
@given(conditions())
def test_a_printed_filter_reads_as_the_same(text: str) -> None:
    condition = parse_filter(text, SCHEMA)
    assert parse_filter(print_filter(condition), SCHEMA) == condition


@up_to(500)
@given(st.lists(single_tests(), min_size=1, max_size=3))
def test_a_plain_conjunction_is_read_as_the_parser_reads_it(parts: list[str]) -> None:
    text = " AND ".join(parts)
    box = plain_conjunction(text, SCHEMA)
    if box is not None:
        assert Filter(SCHEMA, (box,)) == parse_any_filter(text, SCHEMA)


@pytest.mark.parametrize(
    ("text", "is_plain"),
    [
        ("symbol = 'IBM' AND price BETWEEN -1.5 and 120 AND qty in (1, 2,3)", True),
        ("symbol like 'IB%' AND qty <> 5 AND at >= '2026-01-05'", True),
        ("symbol = 'it''s'", False),
        ("symbol = 'a' 'b'", False),
        ("qty = 5L", False),
        ("qty = 1e3", False),
        ("qty = 5 OR hot", False),
        ("qty = 5 -- five", False),
        ("NOT qty = 5", False),
        ("symbol = 5", False),
        ("colour = 'red'", False),
        ("qty > 5 AND qty < 3", False),
    ],
)
def test_which_conjunctions_are_plain(text: str, is_plain: bool) -> None:
    assert (plain_conjunction(text, SCHEMA) is not None) == is_plain


def test_a_word_of_sql_is_no_plain_name() -> None:
    schema = Schema(
        (Attribute("case", AttributeKind.INTEGER), Attribute("select", AttributeKind.INTEGER))
    )
    assert plain_conjunction("case = 5", schema) is None
    assert plain_conjunction("select = 5", schema) is None


@up_to(300)
@given(conditions(), conditions())
def test_covering_is_never_claimed_wrongly(one: str, other: str) -> None:
    """Sound on any world; both answers are checked on a world enumerated whole below."""
    first, second = parse_filter(one, SCHEMA), parse_filter(other, SCHEMA)
    if covers(first, second):
        assert matched(other) <= matched(one)
    if equivalent(first, second):
        assert matched(other) == matched(one)
    if not intersects(first, second):
        assert not matched(one) & matched(other)


@up_to(500)
@given(conditions(small_tests()), conditions(small_tests()))
def test_relations_agree_with_enumeration(one: str, other: str) -> None:
    """Every event that there can be is tried: both answers must be right, not only safe."""
    first, second = parse_filter(one, SMALL), parse_filter(other, SMALL)
    mine = {keys for keys in SMALL_WORLD if first.matches(keys)}
    theirs = {keys for keys in SMALL_WORLD if second.matches(keys)}
    assert covers(first, second) == (theirs <= mine)
    assert equivalent(first, second) == (theirs == mine)
    assert intersects(first, second) == bool(mine & theirs)
    assert (first.boxes == ()) == (not mine)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("symbol = 'IBM' AND price > 120", "symbol = 'IBM' AND price > 120"),
        ("price > 120 AND 'IBM' = symbol", "symbol = 'IBM' AND price > 120"),
        ("NOT (qty < 3 OR hot)", "qty >= 3 AND NOT hot"),
        ("qty < 1.5 OR qty >= 2", "qty IS NOT NULL"),
        ("qty = 1.5", "FALSE"),
        ("qty IS NULL OR NOT qty IS NULL", "TRUE"),
        ("qty = 1 OR qty = 2 OR qty = 9", "(qty BETWEEN 1 AND 2 OR qty = 9)"),
        ("symbol NOT IN ('a', 'b')", "symbol NOT IN ('a', 'b')"),
        ("symbol <> 'it''s'", "symbol <> 'it\\'s'"),
        ("symbol = 'it' 's'", "symbol = 'its'"),
        ("symbol IN ('', '''') -- it's", "symbol IN ('', '\\'')"),
        ("symbol LIKE 'IB%' AND symbol LIKE 'IBM%'", "symbol LIKE 'IBM%'"),
        ("symbol LIKE 'IBM'", "symbol = 'IBM'"),
        ("NOT qty <=> 1", "(qty IS NULL OR qty <> 1)"),
        ("hot = FALSE", "NOT hot"),
        ("at >= '2026-01-05'", "at >= TIMESTAMP '2026-01-05 00:00:00'"),
        ("qty > 5 AND qty < 3", "FALSE"),
        ("(qty = 1 AND hot) OR (qty = 1 AND NOT hot)", "qty = 1 AND hot IS NOT NULL"),
        ("(qty = 1 AND hot) OR qty = 1", "qty = 1"),
        ("(qty = 1 AND hot) OR symbol = 'a'", "symbol = 'a' OR (qty = 1 AND hot)"),
    ],
)
def test_the_normal_form(text: str, printed: str) -> None:
    assert print_filter(parse_filter(text, SCHEMA)) == printed


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "does not parse"),
        ("symbol =", "does not parse"),
        ("symbol = 'IBM", "does not parse"),
        ("colour = 'red'", "there is no attribute 'colour'"),
        ("t.symbol = 'IBM'", "t.symbol is not an attribute"),
        ("length(symbol) > 3", "tests no attribute"),
        ("price + 1 > 3", "price + 1 > 3 tests no attribute"),
        ("qty = 1 + 1", "1 + 1 is not a constant"),
        ("1 = 1", "1 = 1 tests no attribute"),
        ("qty IN (SELECT 1)", "is not a condition that filters may have"),
        ("qty = 1; DROP TABLE x", "is not a condition that filters may have"),
        ("symbol RLIKE 'I.*'", "is not a condition that filters may have"),
        ("symbol LIKE 'a\\\\%'", "a pattern must be a text constant without backslashes"),
        ("qty LIKE '1%'", "applies LIKE to an attribute that is not text"),
        ("price", "price is not true or false"),
        ("symbol = 5", "symbol = 5 compares text with a number"),
        ("hot = 1", "compares true or false with a number"),
        ("qty = TRUE", "compares a whole number with true or false"),
        ("symbol IN ('IBM', 3)", "compares text with a number"),
        ("at = 'yesterday'", "compares a point in time with text"),
        ("at = '2026-02-30'", "compares a point in time with text"),
        ("qty = NULL", "NULL is not a constant"),
        ("qty = " + "1" * 39, "has more than 38 digits"),
        ("qty = 0.1234567890123456789", "whole number with more than 18 digits after the point"),
        ("price = 1e999", "is beyond the largest number"),
        ("price = -1.79769313486231571e308", "is beyond the largest number"),
        ("(" * 400 + "hot" + ")" * 400, "is nested too deeply"),
        ("hot OR " * 20_000 + "hot", "is longer than 100,000 characters"),
        (
            " AND ".join(f"(qty <> {n} OR price <> {n} OR symbol <> '{n}')" for n in range(12)),
            "has more than 1,000 alternatives",
        ),
    ],
)
def test_what_is_refused_shows_the_offending_part(text: str, reason: str) -> None:
    with pytest.raises(InputError) as raised:
        parse_filter(text, SCHEMA)
    assert reason in raised.value.reason
    assert "\n" not in raised.value.reason


WIDE = " OR ".join(f"(qty = {n} AND price = {n})" for n in range(900))


@pytest.mark.parametrize(
    "text",
    [
        " OR ".join(f"(qty = {n} AND price = {n})" for n in range(3000)),
        f"(({WIDE}) OR hot) AND ({WIDE} OR symbol = 'a')",
        f"({WIDE}) AND {' AND '.join(f'(qty <> {n} OR price <> {n})' for n in range(1800))}",
    ],
)
def test_a_long_filter_is_refused_before_it_is_multiplied_out(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted in boxes that are brought into normal form, not in seconds."""
    made = []
    of = Filter.of.__func__  # type: ignore[attr-defined]

    def counted(cls: type[Filter], boxes: Iterable[Box], schema: Schema) -> Filter:
        found = list(boxes)
        made.append(len(found))
        return of(cls, found, schema)

    monkeypatch.setattr(Filter, "of", classmethod(counted))
    assert len(text) < MOST_CHARACTERS
    with pytest.raises(InputError, match="has more than 1,000 alternatives"):
        parse_filter(text, SCHEMA)
    assert max(made, default=0) <= MOST_ALTERNATIVES
    assert sum(made) <= MOST_WORK


def test_a_filter_that_grows_again_and_again_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step comes to few alternatives, but there are very many steps."""
    monkeypatch.setattr(sql, "MOST_WORK", 100)
    text = "hot"
    for n in range(20):
        text = f"({text} OR qty = {n} AND price = {n}) AND (hot OR symbol > '{n}')"
    with pytest.raises(InputError, match="takes more than 100 alternatives to multiply"):
        parse_filter(text, SCHEMA)


def test_what_lies_within_another_alternative_is_left_out_of_many() -> None:
    text = " OR ".join(f"(qty BETWEEN {n} AND {2 * n} AND price < {n})" for n in range(40))
    one = parse_filter(f"{text} OR qty >= 0 OR (symbol IS NULL AND qty IS NULL)", SCHEMA)
    assert print_filter(one) == "(symbol IS NULL AND qty IS NULL) OR qty >= 0"


def test_many_alternatives_of_one_attribute_are_one_box() -> None:
    text = " OR ".join(f"qty = {2 * n}" for n in range(3000))
    assert len(parse_filter(text, SCHEMA).boxes) == 1


def test_a_domain_is_what_the_rest_of_a_test_is_drawn_from() -> None:
    assert print_filter(parse_filter("b <> 'x'", SMALL)) == "b = 'y'"
    assert print_filter(parse_filter("a >= 0", SMALL)) == "a IS NOT NULL"
    with pytest.raises(InputError, match="'z', which is not in its domain"):
        SMALL.keys({"b": "z"})


def test_an_event_may_lack_attributes_and_have_others() -> None:
    assert SCHEMA.keys({"QTY": 3, "colour": "red"}) == (None, 3, *[None] * 5)
    with pytest.raises(InputError, match="attribute 'qty' is 'three', not a whole number"):
        SCHEMA.keys({"qty": "three"})
