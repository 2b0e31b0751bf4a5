"""Parse plain conjunctions, as most filters are, many times faster than the SQL parser.

This reads only what certainly means the same to the SQL parser: names, numbers and texts without
escapes, =, <>, <, <=, >, >=, BETWEEN, IN and LIKE, joined by AND. Anything else, and anything that
cannot be used, is left to the SQL parser, which has the error messages.
"""

from __future__ import annotations

import re
from decimal import Decimal
from functools import lru_cache

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from distributary.matching.comparisons import Constant, compare, prefix_range
from distributary.model import Attribute, AttributeKind, Box, Schema, Values
from distributary.model.filter import Test
from distributary.model.values import Range

__all__ = ["plain_conjunction"]

_CONSTANT = r"-?[0-9]{1,10}(?:\.[0-9]{1,8})?(?![\w.])|'[^'\\]*'"
_TEST = re.compile(
    rf"""\s*(?P<name>[A-Za-z_][A-Za-z_0-9]*)
    (?:\s*(?P<sign>=|<>|<=|>=|<|>)\s*(?P<constant>{_CONSTANT})
      |\s+(?i:BETWEEN)\s+(?P<low>{_CONSTANT})\s+(?i:AND)\s+(?P<high>{_CONSTANT})
      |\s+(?i:IN)\s*\(\s*(?P<listed>(?:{_CONSTANT})(?:\s*,\s*(?:{_CONSTANT}))*)\s*\)
      |\s+(?i:LIKE)\s+(?P<pattern>'[^'\\]*')
    )
    (?:(?P<more>\s+(?i:AND)\s+)|\s*$)""",
    re.VERBOSE,
)
_CONSTANTS = re.compile(_CONSTANT)


def plain_conjunction(text: str, schema: Schema) -> Box | None:
    """The box of a plain conjunction; None for anything else, or if no event can match."""
    tests: list[Test] = []
    at, more = 0, True
    while more:
        found = _TEST.match(text, at)
        test = None if found is None else _test(found, schema)
        if found is None or test is None:
            return None
        tests.append(test)
        at, more = found.end(), found["more"] is not None
    return Box.of(tests, schema)


def _test(found: re.Match[str], schema: Schema) -> Test | None:
    place = schema.place(found["name"])
    if place is None or not _is_name(found["name"]):
        return None
    attribute = schema.attributes[place]
    values = _values(found, attribute)
    if values is None:
        return None
    return place, values if attribute.domain is None else values & Values.present(attribute)


def _values(found: re.Match[str], attribute: Attribute) -> Values | None:
    if found["sign"]:
        return _compare_text(found["sign"], found["constant"], attribute)
    if found["low"]:
        low = _compare_text(">=", found["low"], attribute)
        high = _compare_text("<=", found["high"], attribute)
        return None if low is None or high is None else low & high
    if found["pattern"]:
        reach = (
            prefix_range(found["pattern"][1:-1]) if attribute.kind is AttributeKind.TEXT else None
        )
        return None if reach is None else Values.of([reach], attribute.kind)
    ranges: list[Range] = []
    for constant in _CONSTANTS.findall(found["listed"]):
        more = compare("=", _constant(constant), attribute)
        if more is None:
            return None
        ranges += more
    return Values.of(ranges, attribute.kind)


def _compare_text(sign: str, constant: str, attribute: Attribute) -> Values | None:
    ranges = compare(sign, _constant(constant), attribute)
    return None if ranges is None else Values.of(ranges, attribute.kind)


def _constant(text: str) -> Constant:
    return text[1:-1] if text.startswith("'") else Decimal(text)


@lru_cache(maxsize=4096)
def _is_name(word: str) -> bool:
    """Whether the SQL parser reads a word as an attribute, not as a keyword."""
    try:
        found = parse_one(f"{word} = 0", dialect="spark")
    except SqlglotError:
        return False
    return (
        isinstance(found, exp.EQ)
        and isinstance(found.this, exp.Column)
        and isinstance(found.this.this, exp.Identifier)
        and found.this.name == word
    )
