"""Parse SQL conditions into filters.

The language compares attributes with constants or with each other: =, <>, <, <=, >, >=, <=>,
BETWEEN, IN, LIKE, IS [NOT] NULL, TRUE or FALSE and bare Boolean attributes, combined with AND, OR
and NOT. Anything else is refused, and the error shows the offending part. Nothing is cast, except
that dates and timestamps may be written as text. A filter means the same as in Spark.

A comparison of an attribute with a constant is a set of values. A comparison of two attributes, or
a LIKE that asks for more than a prefix, is a residual of its box.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import product

from sqlglot import exp, parse_one
from sqlglot.errors import ParseError, SqlglotError

from distributary.errors import InputError
from distributary.matching.comparisons import (
    MOST_DECIMALS,
    Constant,
    after_prefix,
    common_type,
    compare,
    prefix_range,
)
from distributary.matching.conjunctions import plain_conjunction
from distributary.matching.sql_terms import (
    bare,
    constant_of,
    find_attribute,
    is_column,
    is_text,
    shorten,
    show,
)
from distributary.matching.times import DateConstant, TimestampConstant
from distributary.model import (
    Attribute,
    AttributeKind,
    Box,
    Filter,
    Pattern,
    Residual,
    Schema,
    Values,
)
from distributary.model.filter import Test, join_boxes
from distributary.model.residual import compare_attributes
from distributary.model.values import Range

__all__ = [
    "MOST_ALTERNATIVES",
    "parse_any_filter",
    "parse_condition",
    "parse_filter",
]

MOST_CHARACTERS = 100_000
MOST_ALTERNATIVES = 1_000
MOST_WORK = 100_000
# Comments, quoted names and texts: all that may contain a quote.
_QUOTED = re.compile(
    r"--[^\n]*|/\*.*?\*/|`(?:[^`]|``)*`"
    r"|\"(?:[^\"\\]|\\.|\"\")*\"|'(?:[^'\\]|\\.|'')*'",
    re.DOTALL,
)
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
    """Parse a filter; an `InputError` says which part of it cannot be used, and why."""
    box = plain_conjunction(text, schema)
    if box is not None:
        return Filter(schema, (box,))
    return parse_any_filter(text, schema)


def parse_any_filter(text: str, schema: Schema) -> Filter:
    """The same by the SQL parser alone, without the fast path for plain conjunctions."""
    try:
        boxes = _boxes(parse_condition(text), True, schema, _Work(MOST_WORK))
    except InputError as error:
        raise InputError(error.reason, value=text) from None
    except RecursionError:
        raise InputError("is nested too deeply", value=text) from None
    return Filter.of(boxes, schema)


def parse_condition(text: str) -> exp.Expr:
    """Parse a condition into a syntax tree."""
    if len(text) > MOST_CHARACTERS:
        raise InputError(f"is longer than {MOST_CHARACTERS:,} characters", value=text)
    try:
        return parse_one(_QUOTED.sub(_escape_quotes, text), dialect="spark")
    except ParseError as error:
        reason = error.errors[0]["description"] if error.errors else str(error)
        if "Required keyword" in reason:  # it names the parser's own classes
            reason = "an operand is missing"
        raise InputError(f"does not parse: {shorten(reason)}", value=text) from None
    except SqlglotError as error:
        raise InputError(f"does not parse: {shorten(str(error))}", value=text) from None
    except RecursionError:
        raise InputError("is nested too deeply", value=text) from None


def _escape_quotes(found: re.Match[str]) -> str:
    """Escape doubled quotes: Spark reads them as one quote, sqlglot as the end of a text."""
    part = found.group()
    quote = part[0]
    if quote not in "'\"":
        return part

    def escape(inner: re.Match[str]) -> str:
        return "\\" + quote if inner.group() == 2 * quote else inner.group()

    return quote + _ESCAPES.sub(escape, part[1:-1]) + quote


# --- conditions into boxes -----------------------------------------------------------------------


@dataclass(slots=True)
class _Work:
    """Counts the boxes that may still be made while a condition is multiplied out."""

    left: int

    def count(self, alternatives: int) -> None:
        """Refuse too many alternatives before they are made."""
        self.left -= alternatives
        if alternatives > MOST_ALTERNATIVES:
            raise InputError(
                f"has more than {MOST_ALTERNATIVES:,} alternatives when its ORs are multiplied out"
            )
        if self.left < 0:
            raise InputError(f"takes more than {MOST_WORK:,} alternatives to multiply out its ORs")


def _boxes(node: exp.Expr, wanted: bool, schema: Schema, work: _Work) -> list[Box]:
    """The boxes of the events for which a condition is `wanted`: true or false."""
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
        case exp.Between() if is_column(node.args["low"]) or is_column(node.args["high"]):
            return _boxes(_as_comparisons(node), wanted, schema, work)
        case exp.Like() if (found := _read_pattern(node, schema)) is not None:
            return _pattern_boxes(found, wanted != bool(node.args.get("negate")), schema)
        case exp.Binary() if isinstance(node, _COMPARISONS) and (
            is_column(node.this) and is_column(node.expression)
        ):
            return _pair_boxes(node, wanted, schema)
    return _test_boxes(node, wanted, schema)


def _any_of(parts: list[list[Box]], schema: Schema, work: _Work) -> list[Box]:
    joined = join_boxes((box for part in parts for box in part), schema)
    work.count(len(joined))
    return list(Filter.of(joined, schema).boxes)


def _all_of(parts: list[list[Box]], schema: Schema, work: _Work) -> list[Box]:
    """Intersect the parts: first those with a single box, then by the number of boxes."""
    if not all(parts):
        return []
    singles = [part[0] for part in parts if len(part) == 1]
    single = _both(singles, schema)
    boxes = [] if single is None else [single]
    for part in sorted((part for part in parts if len(part) > 1), key=len):
        work.count(len(boxes) * len(part))
        found = (_both(pair, schema) for pair in product(boxes, part))
        boxes = list(Filter.of((box for box in found if box is not None), schema).boxes)
    return boxes


def _both(boxes: Sequence[Box], schema: Schema) -> Box | None:
    """The events that are in all of the boxes."""
    residuals = [each for box in boxes for each in box.residuals]
    return Box.of((test for box in boxes for test in box.tests), schema, residuals)


def _test_boxes(node: exp.Expr, wanted: bool, schema: Schema) -> list[Box]:
    """The box of one test of one attribute."""
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
            at, attribute = find_attribute(node, schema)
            if attribute.kind is not AttributeKind.BOOLEAN:
                raise InputError(f"{show(node)} is not true or false")
            return _decide(at, attribute, [(1, 2)])
        case exp.Is() if isinstance(node.this, exp.Column) and isinstance(
            node.expression, exp.Null
        ):
            at, attribute = find_attribute(node.this, schema)
            return at, Values((), null=True), Values.present(attribute)
        case exp.Is() if isinstance(node.this, exp.Column) and isinstance(
            node.expression, exp.Boolean
        ):
            at, attribute = find_attribute(node.this, schema)
            if attribute.kind is not AttributeKind.BOOLEAN:
                raise InputError(f"{show(node.this)} is not true or false")
            inside = Values(((int(node.expression.this), int(node.expression.this) + 1),))
            return at, inside, inside.complement(attribute)
        case exp.Between() if not node.args.get("symmetric"):
            at, attribute = find_attribute(node.this, schema)
            low = _compare(">=", node.args["low"], attribute, node)
            high = _compare("<=", node.args["high"], attribute, node)
            both = Values.of(low, attribute.kind) & Values.of(high, attribute.kind)
            return _decide(at, attribute, both.ranges)
        case exp.In() if node.expressions and not node.args.get("query"):
            return _membership(node, schema)
        case exp.Like():
            at, attribute = find_attribute(node.this, schema)
            reach = prefix_range(node.expression.name)
            assert reach is not None, "other patterns are residuals"
            return _decide(at, attribute, [reach])
        case _ if isinstance(node, _COMPARISONS):
            return _comparison(node, schema)
    raise InputError(f"{show(node)} is not a condition that filters may have")


def _decide(at: int, attribute: Attribute, ranges: Iterable[Range]) -> tuple[int, Values, Values]:
    """Return a test that is true within `ranges`, false outside, and neither without a value."""
    inside = Values.of(ranges, attribute.kind)
    outside = inside.complement(attribute)
    return at, inside, Values(outside.ranges)


def _membership(node: exp.In, schema: Schema) -> tuple[int, Values, Values]:
    """An IN with a NULL in its list is never false, because NULL might be the value."""
    at, attribute = find_attribute(node.this, schema)
    for each in filter(is_column, node.expressions):
        raise InputError(
            f"{show(node)}: IN lists only constants; write OR {show(node.this)} = {show(each)}"
        )
    given = [each for each in node.expressions if not isinstance(each, exp.Null)]
    constants = common_type([constant_of(each) for each in given])
    points = (_compare_with("=", each, attribute, node) for each in constants)
    found = _decide(at, attribute, (each for ranges in points for each in ranges))
    return found if len(given) == len(node.expressions) else (*found[:2], Values(()))


def _comparison(node: exp.Expr, schema: Schema) -> tuple[int, Values, Values]:
    left, right = bare(node.this), bare(node.expression)
    relation: type[exp.Expr] = type(node)
    if not isinstance(left, exp.Column):
        left, right, relation = right, left, _FLIPPED.get(relation, relation)
    if not isinstance(left, exp.Column):
        raise InputError(f"{show(node)} tests no attribute")
    at, attribute = find_attribute(left, schema)
    if relation is exp.NullSafeEQ:
        if isinstance(right, exp.Null):
            return at, Values((), null=True), Values.present(attribute)
        inside = Values.of(_compare("=", right, attribute, node), attribute.kind)
        return at, inside, inside.complement(attribute)
    return _decide(at, attribute, _compare(_SIGNS[relation], right, attribute, node))


def _compare(sign: str, node: exp.Expr, attribute: Attribute, whole: exp.Expr) -> tuple[Range, ...]:
    return _compare_with(sign, constant_of(node), attribute, whole)


def _compare_with(
    sign: str, constant: Constant, attribute: Attribute, whole: exp.Expr
) -> tuple[Range, ...]:
    if attribute.kind is AttributeKind.INTEGER and _decimals(constant) > MOST_DECIMALS:
        raise InputError(
            f"{show(whole)} compares a whole number with more than {MOST_DECIMALS} digits "
            "after the point"
        )
    found = compare(sign, constant, attribute)
    if found is None:
        raise InputError(f"{show(whole)} compares {attribute.kind.value} with {_kind_of(constant)}")
    return found


def _decimals(constant: Constant) -> int:
    return -int(constant.as_tuple().exponent) if isinstance(constant, Decimal) else 0


def _kind_of(constant: Constant) -> str:
    match constant:
        case bool():
            return AttributeKind.BOOLEAN.value
        case str():
            return AttributeKind.TEXT.value
        case DateConstant():
            return AttributeKind.DATE.value
        case TimestampConstant():
            return AttributeKind.TIMESTAMP.value
    return "a number"


# --- residuals -----------------------------------------------------------------------------------


def _read_pattern(node: exp.Like, schema: Schema) -> Pattern | None:
    """The pattern of a LIKE; None for a prefix or a text without wildcards, which is a range."""
    at, attribute = find_attribute(node.this, schema)
    pattern = node.expression
    if attribute.kind is not AttributeKind.TEXT:
        raise InputError(f"{show(node)} applies LIKE to an attribute that is not text")
    if not is_text(pattern) or "\\" in pattern.name:
        raise InputError(f"{show(node)}: a pattern must be a text constant without backslashes")
    return None if prefix_range(pattern.name) is not None else Pattern(at, pattern.name)


def _pattern_boxes(found: Pattern, wanted: bool, schema: Schema) -> list[Box]:
    """The boxes of a LIKE: a residual, and a range of texts with the same prefix."""
    if not wanted:
        return _residual_boxes(found.negate(), (), schema)
    start = re.split("[%_]", found.pattern, maxsplit=1)[0]
    beginning = Values.of([(start, after_prefix(start))], AttributeKind.TEXT)
    return _residual_boxes(found, [(found.at, beginning)], schema)


def _pair_boxes(node: exp.Expr, wanted: bool, schema: Schema) -> list[Box]:
    """The boxes of a comparison of two attributes."""
    left, right = find_attribute(node.this, schema), find_attribute(node.expression, schema)
    found = compare_attributes(left, _SIGNS.get(type(node), "="), right)
    if found is None:
        raise InputError(f"{show(node)} compares {left[1].kind.value} with {right[1].kind.value}")
    boxes = _residual_boxes(found if wanted else found.negate(), (), schema)
    if not isinstance(node, exp.NullSafeEQ):
        return boxes
    here, there = ((at, Values.present(attribute)) for at, attribute in (left, right))
    not_here, not_there = ((at, Values((), null=True)) for at, _ in (left, right))
    missing = [(not_here, not_there)] if wanted else [(here, not_there), (not_here, there)]
    return boxes + [box for tests in missing if (box := Box.of(tests, schema)) is not None]


def _residual_boxes(residual: Residual, tests: Iterable[Test], schema: Schema) -> list[Box]:
    present = [(at, Values.present(schema.attributes[at])) for at in residual.attributes]
    box = Box.of([*present, *tests], schema, [residual])
    return [] if box is None else [box]


def _as_comparisons(node: exp.Between) -> exp.Expr:
    if node.args.get("symmetric"):
        raise InputError(f"{show(node)} is not a condition that filters may have")
    value, low, high = node.this, node.args["low"], node.args["high"]
    return exp.and_(exp.GTE(this=value, expression=low), exp.LTE(this=value, expression=high))
