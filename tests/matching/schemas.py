"""Events and filters on them, drawn for tests: small worlds that can be enumerated whole."""

from __future__ import annotations

import random
import string
from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
from hypothesis import strategies as st

from distributary.model import Attribute, AttributeKind, Schema
from tests.strategies import AWKWARD

ARROW = pa.schema(
    {
        "symbol": pa.string(),
        "qty": pa.int64(),
        "price": pa.float64(),
        "hot": pa.bool_(),
        "at": pa.timestamp("us"),
        "day": pa.date32(),
        "amount": pa.decimal128(24, 2),
    }
)
SCHEMA = Schema(
    (
        Attribute("symbol", AttributeKind.TEXT),
        Attribute("qty", AttributeKind.INTEGER),
        Attribute("price", AttributeKind.FLOAT),
        Attribute("hot", AttributeKind.BOOLEAN),
        Attribute("at", AttributeKind.TIMESTAMP),
        Attribute("day", AttributeKind.DATE),
        Attribute("amount", AttributeKind.DECIMAL, scale=2),
    )
)
_LARGEST, _SMALLEST, _NORMAL = 1.7976931348623157e308, 5e-324, 2.2250738585072014e-308
_INFINITE = float("inf")
# Values below, at, between and above the constants that filters are drawn with, and both ends of
# every type: Python's dates end before those of the tables do, so others are tried elsewhere.
WORLD: dict[str, tuple[object, ...]] = {
    "symbol": (
        *(None, "", "a", "a\0", "ab", "abc", "b", "é", "\U0010ffff", "\ud7ff", "\ue000", "😀"),
        *("it's", 'say "hi"', "a\\b", "a%", "a_b", "\n", "-- a", "/* b */", " a", "a" * 300),
    ),
    "qty": (
        *(None, -(2**63), -(2**63) + 1, -(2**53) - 1, -1, 0, 1, 2, 3, 2**53, 2**53 + 1),
        *(9999999999999999, 10**16, 2**63 - 1025, 2**63 - 512, 2**63 - 2, 2**63 - 1),
    ),
    "price": (
        *(None, -_INFINITE, -_LARGEST, -1e16, -20.5, -10.0, -2.0, -0.5, -_NORMAL, -_SMALLEST),
        *(-0.0, 0.0, _SMALLEST, _NORMAL, 0.5, 0.5000000000000001, 2.0, 25.5, 9007199254740992.0),
        *(_LARGEST, _INFINITE, float("nan")),
    ),
    "hot": (None, False, True),
    "at": (
        *(None, datetime.min, datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(1970, 1, 1)),
        *(datetime(2026, 1, 5), datetime(2026, 1, 5, 10, 30), datetime(2026, 1, 6), datetime.max),
    ),
    "day": (
        *(None, date.min, date(1969, 12, 31), date(1970, 1, 1)),
        *(date(2026, 1, 5), date(2026, 1, 6), date.max),
    ),
    "amount": (
        *(None, Decimal("-" + "9" * 22 + ".99"), Decimal("-1.00"), Decimal("-0.01"), Decimal(0)),
        *(Decimal("0.01"), Decimal("1234567.89"), Decimal("9007199254740992.00")),
        *(Decimal("9007199254740992.01"), Decimal("9007199254740993.00"), Decimal("9" * 22)),
    ),
}


def _events(n: int) -> list[dict[str, object]]:
    """Events with every value of every attribute, put together by chance."""
    chance = random.Random(0)
    columns = {}
    for name, values in WORLD.items():
        column = [values[row % len(values)] for row in range(n)]
        columns[name] = chance.sample(column, n)
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


EVENTS = _events(700)


def arrow_events(events: list[dict[str, object]]) -> pa.Table:
    """The events as a table."""
    return pa.Table.from_pylist(events, schema=ARROW)


def as_text(value: object) -> str:
    """A text as SQL writes it."""
    return "'" + str(value).replace("\\", "\\\\").replace("'", "\\'") + "'"


def _given(name: str) -> st.SearchStrategy[object]:
    """A value that events have, so that filters meet them."""
    odd = (None, _INFINITE, -_INFINITE)
    return st.sampled_from([v for v in WORLD[name] if v == v and v not in odd])


def _decimals(most: int, places: int) -> st.SearchStrategy[str]:
    return st.decimals(-most, most, places=places, allow_nan=False).map("{:f}".format)


def _times(days: st.SearchStrategy[object], moments: st.SearchStrategy[object]) -> object:
    """Days and points in time as constants of either type, and as text."""
    return st.one_of(
        days.map("DATE '{}'".format),
        moments.map("TIMESTAMP '{}'".format),
        st.one_of(days, moments).map("'{}'".format),
        moments.map("CAST('{}' AS DATE)".format),
    )


_SIGNS = st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "<=>"])
_WHOLE = st.integers(-(2**63), 2**63 - 1)
_DOUBLES = st.floats(allow_nan=False, allow_infinity=False).map(
    lambda found: repr(found) if "e" in repr(found) else f"{found!r}e0"
)
_NUMBERS = (
    st.sampled_from(["-10", "-1", "0", "1", "1.5", "2", "30", "1e0", "2e0", "1e16", "-1e16"])
    | st.sampled_from(["9223372036854775808", "-9223372036854775809", "9.223372036854775807e18"])
    | _WHOLE.map(str)
    | _decimals(10**15, 3)
    | _DOUBLES
)
_TEXTS = st.sampled_from(AWKWARD) | st.text(
    st.characters(codec="utf-8") | st.sampled_from(string.printable), max_size=12
)
_TIMES = _times(
    st.dates() | _given("day"),
    st.datetimes().map(lambda found: found.isoformat(" ")) | _given("at"),
)
_CONSTANTS = {
    "symbol": (st.sampled_from(["", "a", "ab", "b"]) | _given("symbol") | _TEXTS).map(as_text),
    "qty": _given("qty").map(str) | _NUMBERS,
    "price": _given("price").map(repr) | _NUMBERS,
    "hot": st.sampled_from(["TRUE", "FALSE"]),
    "at": _TIMES,
    "day": _TIMES,
    "amount": _given("amount").map("{:f}".format) | _NUMBERS | _decimals(10**21, 2),
}


SMALL = Schema(
    (
        Attribute("a", AttributeKind.INTEGER, frozenset({0, 1, 2})),
        Attribute("b", AttributeKind.TEXT, frozenset({"x", "y"})),
        Attribute("c", AttributeKind.BOOLEAN),
    )
)
SMALL_WORLD = [
    SMALL.keys({"a": a, "b": b, "c": c})
    for a in (None, 0, 1, 2)
    for b in (None, "x", "y")
    for c in (None, False, True)
]


def small_tests() -> st.SearchStrategy[str]:
    """One test of an attribute of the small world."""
    return st.one_of(
        st.builds("a {} {}".format, _SIGNS, st.integers(-1, 3)),
        st.builds("b {} '{}'".format, _SIGNS, st.sampled_from("wxyz")),
        st.builds("{} IS {}NULL".format, st.sampled_from("abc"), st.sampled_from(["", "NOT "])),
        st.just("c"),
    )


@st.composite
def single_tests(draw: st.DrawFn) -> str:
    """One test of one attribute."""
    name = draw(st.sampled_from(list(_CONSTANTS)))
    constants = _CONSTANTS[name]
    match draw(st.integers(0, 6)):
        case 0:
            return f"{name} BETWEEN {draw(constants)} AND {draw(constants)}"
        case 1:
            listed = draw(st.lists(constants, min_size=1, max_size=3))
            return f"{name} {draw(st.sampled_from(['IN', 'NOT IN']))} ({', '.join(listed)})"
        case 2:
            return f"{name} IS {draw(st.sampled_from(['', 'NOT ']))}NULL"
        case 3:
            odd = _TEXTS.map(lambda text: text.translate({ord(c): "" for c in "\\\\%_"}) + "%")
            prefix = draw(st.sampled_from(["a%", "ab%", "%", "b", "\U0010ffff%"]) | odd)
            return f"symbol {draw(st.sampled_from(['', 'NOT ']))}LIKE {as_text(prefix)}"
        case 4:
            return draw(st.sampled_from(["hot", "TRUE", "FALSE"]))
        case 5:
            return f"{draw(constants)} {draw(_SIGNS)} {name}"
    return f"{name} {draw(_SIGNS)} {draw(constants)}"


_PATTERNS = st.text(st.sampled_from("ab%_%é😀\n 'i"), max_size=6)
_COMPARABLE = [
    ("qty", "price", "amount"),
    ("at", "day"),
    ("symbol", "symbol"),
    ("hot", "hot"),
]


@st.composite
def residual_tests(draw: st.DrawFn) -> str:
    """A comparison of two attributes, a search for a pattern, IS TRUE, an IN with NULL."""
    names = draw(st.sampled_from(_COMPARABLE))
    one, other = draw(st.sampled_from(names)), draw(st.sampled_from(names))
    match draw(st.integers(0, 4)):
        case 0:
            ends = [draw(_CONSTANTS[one]), other] if draw(st.booleans()) else [other, other]
            return f"{one} {draw(st.sampled_from(['', 'NOT ']))}BETWEEN {ends[0]} AND {ends[1]}"
        case 1:
            return f"symbol {draw(st.sampled_from(['', 'NOT ']))}LIKE {as_text(draw(_PATTERNS))}"
        case 2:
            asked = draw(st.sampled_from(["TRUE", "FALSE", "NOT TRUE", "NOT FALSE"]))
            return f"hot IS {asked}"
        case 3:
            listed = [*draw(st.lists(_CONSTANTS[one], max_size=2)), "NULL"]
            return f"{one} {draw(st.sampled_from(['IN', 'NOT IN']))} ({', '.join(listed)})"
    return f"{one} {draw(_SIGNS)} {other}"


def conditions(leaves: st.SearchStrategy[str] | None = None) -> st.SearchStrategy[str]:
    """Any condition: tests under AND, OR and NOT."""
    return st.recursive(
        single_tests() if leaves is None else leaves,
        lambda inner: st.one_of(
            st.builds("({} AND {})".format, inner, inner),
            st.builds("({} OR {})".format, inner, inner),
            st.builds("NOT ({})".format, inner),
        ),
        max_leaves=6,
    )
