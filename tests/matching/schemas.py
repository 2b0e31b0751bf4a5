"""Events and filters on them, drawn for tests: small worlds that can be enumerated whole."""

from __future__ import annotations

from datetime import datetime
from itertools import product

from hypothesis import strategies as st

from distributary.model import Attribute, Schema
from distributary.model import AttributeKind as Kind

SCHEMA = Schema(
    (
        Attribute("symbol", Kind.TEXT),
        Attribute("qty", Kind.INTEGER),
        Attribute("price", Kind.FLOAT),
        Attribute("hot", Kind.BOOLEAN),
        Attribute("at", Kind.TIMESTAMP),
    )
)
# Enough values to have one below, at, between and above every constant that filters are drawn with.
WORLD: dict[str, tuple[object, ...]] = {
    "symbol": (None, "", "a", "a\0", "ab", "abc", "b", "é", "\U0010ffff"),
    "qty": (None, -(2**63), -1, 0, 1, 2, 3, 2**63 - 1),
    "price": (None, float("-inf"), -0.5, -0.0, 0.5, 0.5000000000000001, 2.0, float("nan")),
    "hot": (None, False, True),
    "at": (None, datetime(2026, 1, 5), datetime(2026, 1, 5, 10, 30), datetime(2026, 1, 6)),
}
EVENTS = [
    dict(zip(WORLD, values, strict=True))
    for values in product(*(found[:6:2] + found[-1:] for found in WORLD.values()))
]

_SIGNS = st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "<=>"])
_CONSTANTS = {
    "symbol": st.sampled_from(["''", "'a'", "'ab'", "'b'"]),
    "qty": st.sampled_from(["-1", "0", "1", "1.5", "2", "2e0"]),
    "price": st.sampled_from(["-0.5", "0", "0.5", "2", "1e0"]),
    "hot": st.sampled_from(["TRUE", "FALSE"]),
    "at": st.sampled_from(["'2026-01-05'", "TIMESTAMP '2026-01-05 10:30:00'", "DATE '2026-01-06'"]),
}


SMALL = Schema(
    (
        Attribute("a", Kind.INTEGER, frozenset({0, 1, 2})),
        Attribute("b", Kind.TEXT, frozenset({"x", "y"})),
        Attribute("c", Kind.BOOLEAN),
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
            prefix = draw(st.sampled_from(["a%", "ab%", "%", "b", "\U0010ffff%"]))
            return f"symbol {draw(st.sampled_from(['', 'NOT ']))}LIKE '{prefix}'"
        case 4:
            return draw(st.sampled_from(["hot", "TRUE", "FALSE"]))
        case 5:
            return f"{draw(constants)} {draw(_SIGNS)} {name}"
    return f"{name} {draw(_SIGNS)} {draw(constants)}"


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
