"""Filters as text: SQL conditions read into boxes.

The language compares single attributes with constants: =, <>, <, <=, >, >=, <=>, BETWEEN, IN,
LIKE 'prefix%', IS [NOT] NULL and bare Boolean attributes, put together by AND, OR and NOT. Anything
else is refused with the offending part shown. Text is text and a number a number: nothing is cast,
except that a point in time may be written as text. What passes here means the same to Spark.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from itertools import product
from math import inf

from sqlglot import exp, parse_one
from sqlglot.errors import ParseError, SqlglotError

from distributary.errors import InputError
from distributary.matching.comparisons import (
    MOST_DECIMALS,
    MOST_DIGITS,
    Constant,
    common_type,
    compared,
    prefix_range,
)
from distributary.matching.conjunctions import plain_conjunction
from distributary.matching.times import Day, Moment, read_day, read_moment
from distributary.model import Attribute, AttributeKind, Box, Filter, Schema, Values
from distributary.model.filter import join_boxes
from distributary.model.values import Range

__all__ = [
    "MOST_ALTERNATIVES",
    "constant_of",
    "is_moment",
    "parse_any_filter",
    "parse_filter",
    "parsed",
    "shown",
]

MOST_CHARACTERS = 100_000
MOST_ALTERNATIVES = 1_000
MOST_WORK = 100_000
_TIMES = (exp.DType.DATE, exp.DType.TIMESTAMP, exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPNTZ)
# Comments, quoted names and texts: what a quote may stand in.
_QUOTED = re.compile(
    r"--[^\n]*|/\*.*?\*/|`(?:[^`]|``)*`"
    r"|\"(?:[^\"\\]|\\.|\"\")*\"|'(?:[^'\\]|\\.|'')*'",
    re.DOTALL,
)
_LARGEST = sys.float_info.max
_ESCAPES = re.compile(r"\\.|''|\"\"", re.DOTALL)
_FLIPPED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.LT: exp.GT,
    exp.GT: exp.LT,
    exp.LTE: exp.GTE,
    exp.GTE: exp.LTE,
}
_SIGNS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_COMPARISONS = (*_SIGNS, exp.NullSafeEQ)


def parse_filter(text: str, schema: Schema) -> Filter:
    """Read a filter; an `InputError` says which part of it cannot be used, and why."""
    box = plain_conjunction(text, schema)
    if box is not None:
        return Filter(schema, (box,))
    return parse_any_filter(text, schema)


def parse_any_filter(text: str, schema: Schema) -> Filter:
    """The same by the SQL parser, whatever the filter: what conjunctions read fast are held to."""
    try:
        boxes = _boxes(parsed(text), True, schema, _Work(MOST_WORK))
    except InputError as error:
        raise InputError(error.reason, value=text) from None
    except RecursionError:
        raise InputError("is nested too deeply", value=text) from None
    return Filter.of(boxes, schema)


def parsed(text: str) -> exp.Expr:
    """The syntax tree of a condition."""
    if len(text) > MOST_CHARACTERS:
        raise InputError(f"is longer than {MOST_CHARACTERS:,} characters", value=text)
    try:
        return parse_one(_QUOTED.sub(_escaped, text), dialect="spark")
    except ParseError as error:
        told = error.errors[0]["description"] if error.errors else str(error)
        if "Required keyword" in told:  # told in terms of the parser's own classes
            told = "an operand is missing"
        raise InputError(f"does not parse: {_line(told)}", value=text) from None
    except SqlglotError as error:
        raise InputError(f"does not parse: {_line(str(error))}", value=text) from None
    except RecursionError:
        raise InputError("is nested too deeply", value=text) from None


def _escaped(found: re.Match[str]) -> str:
    """A quote doubled inside a text is a quote to Spark; sqlglot would take it for two texts."""
    part = found.group()
    quote = part[0]
    if quote not in "'\"":
        return part

    def escape(inner: re.Match[str]) -> str:
        return "\\" + quote if inner.group() == 2 * quote else inner.group()

    return quote + _ESCAPES.sub(escape, part[1:-1]) + quote


def shown(node: exp.Expr) -> str:
    """A part of a condition as one short line."""
    return _line(node.sql(dialect="spark"))


def is_moment(node: exp.Expr) -> bool:
    """Whether a part is text that reads as a day, or a time of one."""
    return _is_text(node) and read_moment(node.name) is not None


# --- conditions into boxes -----------------------------------------------------------------------


@dataclass(slots=True)
class _Work:
    """How many more boxes may be made while a condition is multiplied out."""

    left: int

    def count(self, alternatives: int) -> None:
        """Refuse, before they are made, more alternatives than a filter may have."""
        self.left -= alternatives
        if alternatives > MOST_ALTERNATIVES:
            raise InputError(
                f"comes to more than {MOST_ALTERNATIVES:,} alternatives "
                "when its ORs are multiplied out"
            )
        if self.left < 0:
            raise InputError(f"takes more than {MOST_WORK:,} alternatives to multiply its ORs out")


def _boxes(node: exp.Expr, wanted: bool, schema: Schema, work: _Work) -> list[Box]:
    """Boxes of the events for which a condition is true, or with `wanted` off, false."""
    match node:
        case exp.Paren():
            return _boxes(node.this, wanted, schema, work)
        case exp.Not():
            return _boxes(node.this, not wanted, schema, work)
        case exp.And() | exp.Or():
            parts = [_boxes(part, wanted, schema, work) for part in node.flatten()]
            both = isinstance(node, exp.And) == wanted
            return _all_of(parts, schema, work) if both else _any_of(parts, schema, work)
        case exp.Boolean():
            return [Box(())] if node.this == wanted else []
    return _tested(node, wanted, schema)


def _any_of(parts: list[list[Box]], schema: Schema, work: _Work) -> list[Box]:
    joined = join_boxes((box for part in parts for box in part), schema)
    work.count(len(joined))
    return list(Filter.of(joined, schema).boxes)


def _all_of(parts: list[list[Box]], schema: Schema, work: _Work) -> list[Box]:
    """Few alternatives first, and what has none besides it all at once: fewer to multiply."""
    if not all(parts):
        return []
    single = Box.of((test for part in parts if len(part) == 1 for test in part[0].tests), schema)
    boxes = [] if single is None else [single]
    for part in sorted((part for part in parts if len(part) > 1), key=len):
        work.count(len(boxes) * len(part))
        found = (Box.of((*a.tests, *b.tests), schema) for a, b in product(boxes, part))
        boxes = list(Filter.of((box for box in found if box is not None), schema).boxes)
    return boxes


def _tested(node: exp.Expr, wanted: bool, schema: Schema) -> list[Box]:
    """The box of one test."""
    at, passing, failing = _test(node, schema)
    if node.args.get("negate"):  # how sqlglot writes NOT LIKE
        passing, failing = failing, passing
    present = Values.present(schema.attributes[at])
    values = (passing if wanted else failing) & Values(present.ranges, null=True)
    box = Box.of([(at, values)], schema)
    return [] if box is None else [box]


def _test(node: exp.Expr, schema: Schema) -> tuple[int, Values, Values]:
    """The attribute of a test, the values for which it is true and those for which it is false."""
    match node:
        case exp.Column():
            at, attribute = _attribute(node, schema)
            if attribute.kind is not AttributeKind.BOOLEAN:
                raise InputError(f"{shown(node)} is not true or false")
            return _decided(at, attribute, [(1, 2)])
        case exp.Is() if isinstance(node.this, exp.Column) and isinstance(
            node.expression, exp.Null
        ):
            at, attribute = _attribute(node.this, schema)
            return at, Values((), null=True), Values.present(attribute)
        case exp.Between() if not node.args.get("symmetric"):
            at, attribute = _attribute(node.this, schema)
            low = _compared(">=", node.args["low"], attribute, node)
            high = _compared("<=", node.args["high"], attribute, node)
            both = Values.of(low, attribute.kind) & Values.of(high, attribute.kind)
            return _decided(at, attribute, both.ranges)
        case exp.In() if node.expressions and not node.args.get("query"):
            at, attribute = _attribute(node.this, schema)
            constants = common_type([constant_of(each) for each in node.expressions])
            points = (_compared_with("=", each, attribute, node) for each in constants)
            return _decided(at, attribute, (each for found in points for each in found))
        case exp.Like():
            at, attribute = _attribute(node.this, schema)
            return _decided(at, attribute, [_prefixed(node, attribute)])
        case _ if isinstance(node, _COMPARISONS):
            return _comparison(node, schema)
    raise InputError(f"{shown(node)} is not a condition that filters may have")


def _decided(at: int, attribute: Attribute, ranges: Iterable[Range]) -> tuple[int, Values, Values]:
    """A test that is true within `ranges`, false outside, and neither for a missing value."""
    inside = Values.of(ranges, attribute.kind)
    outside = inside.complement(attribute)
    return at, inside, Values(outside.ranges)


def _comparison(node: exp.Expr, schema: Schema) -> tuple[int, Values, Values]:
    left, right = _bare(node.this), _bare(node.expression)
    relation: type[exp.Expr] = type(node)
    if not isinstance(left, exp.Column):
        left, right, relation = right, left, _FLIPPED.get(relation, relation)
    if not isinstance(left, exp.Column):
        raise InputError(f"{shown(node)} tests no attribute")
    if isinstance(right, exp.Column):
        raise InputError(f"{shown(node)} compares two attributes, not one with a constant")
    at, attribute = _attribute(left, schema)
    if relation is exp.NullSafeEQ:
        inside = Values.of(_compared("=", right, attribute, node), attribute.kind)
        return at, inside, inside.complement(attribute)
    return _decided(at, attribute, _compared(_SIGNS[relation], right, attribute, node))


def _compared(
    sign: str, node: exp.Expr, attribute: Attribute, whole: exp.Expr
) -> tuple[Range, ...]:
    return _compared_with(sign, constant_of(node), attribute, whole)


def _compared_with(
    sign: str, constant: Constant, attribute: Attribute, whole: exp.Expr
) -> tuple[Range, ...]:
    if attribute.kind is AttributeKind.INTEGER and _decimals(constant) > MOST_DECIMALS:
        raise InputError(
            f"{shown(whole)} compares a whole number with more than {MOST_DECIMALS} digits "
            "after the point"
        )
    found = compared(sign, constant, attribute)
    if found is None:
        raise InputError(
            f"{shown(whole)} compares {attribute.kind.value} with {_kind_of(constant)}"
        )
    return found


def _decimals(constant: Constant) -> int:
    return -int(constant.as_tuple().exponent) if isinstance(constant, Decimal) else 0


def _kind_of(constant: Constant) -> str:
    match constant:
        case bool():
            return AttributeKind.BOOLEAN.value
        case str():
            return AttributeKind.TEXT.value
        case Day():
            return AttributeKind.DATE.value
        case Moment():
            return AttributeKind.TIMESTAMP.value
    return "a number"


def _prefixed(node: exp.Like, attribute: Attribute) -> Range:
    """The range of texts that begin with the prefix of LIKE 'prefix%'."""
    pattern = node.expression
    if attribute.kind is not AttributeKind.TEXT:
        raise InputError(f"{shown(node)} looks for a pattern in what is not text")
    if not _is_text(pattern) or "\\" in pattern.name:
        raise InputError(f"{shown(node)}: a pattern is plain text without backslashes")
    found = prefix_range(pattern.name)
    if found is None:
        raise InputError(f"{shown(node)}: a pattern is a prefix with % at its end")
    return found


# --- attributes and constants --------------------------------------------------------------------


def _attribute(node: exp.Expr, schema: Schema) -> tuple[int, Attribute]:
    node = _bare(node)
    if not isinstance(node, exp.Column) or not isinstance(node.this, exp.Identifier) or node.table:
        raise InputError(f"{shown(node)} is not an attribute")
    at = schema.place(node.name)
    if at is None:
        raise InputError(f"there is no attribute {node.name!r}")
    return at, schema.attributes[at]


def constant_of(node: exp.Expr) -> Constant:
    """The value that a part stands for; an `InputError` if it is no constant."""
    node = _bare(node)
    match node:
        case exp.Literal() if node.is_string:
            return str(node.name)
        case exp.Literal():
            return _number(node)
        case exp.Concat() if all(_is_text(part) for part in node.expressions):
            return "".join(part.name for part in node.expressions)  # 'a' 'b', one text to Spark
        case exp.Neg() if isinstance(node.this, exp.Literal) and not node.this.is_string:
            number = _number(node.this)
            return -number if isinstance(number, float) else number.copy_negate()
        case exp.Boolean():
            return bool(node.this)
        case exp.Cast() if node.to.this in _TIMES and _is_text(node.this):
            read = read_day if node.to.this is exp.DType.DATE else read_moment
            time = read(node.this.name)
            if time is not None:
                return time
    raise InputError(f"{shown(node)} is not a constant")


def _number(node: exp.Literal) -> Decimal | float:
    """A number with an exponent is a double, any other a decimal, as in Spark."""
    if "e" in node.name.lower():
        double = float(node.name)
        # What is rounded to the largest number may still be beyond it, which Spark refuses.
        if double == inf or (double == _LARGEST and Decimal(node.name) > Decimal(_LARGEST)):
            raise InputError(f"{shown(node)} is beyond the largest number")
        return double
    number = Decimal(node.name)
    _, digits, exponent = number.as_tuple()
    if max(len(digits), -int(exponent)) > MOST_DIGITS:
        raise InputError(f"{shown(node)} has more than {MOST_DIGITS} digits")
    return number


def _bare(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def _is_text(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal) and node.is_string


def _line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 120 else f"{line[:117]}..."
