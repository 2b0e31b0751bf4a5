"""Filters as text: SQL conditions read into boxes, and boxes printed back.

The language compares single attributes with constants: =, <>, <, <=, >, >=, <=>, BETWEEN, IN,
LIKE 'prefix%', IS [NOT] NULL and bare Boolean attributes, put together by AND, OR and NOT. Anything
else is refused with the offending part shown. Text is text and a number a number: nothing is cast,
except that a point in time may be written as text. What passes here means the same to Spark.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from itertools import product

from sqlglot import exp, parse_one
from sqlglot.errors import ParseError, SqlglotError

from distributary.errors import InputError
from distributary.model import Attribute, Box, Filter, Key, Kind, Schema, Values
from distributary.model.event import after, key_of, value_of
from distributary.model.values import Range

__all__ = [
    "MOST_ALTERNATIVES",
    "constant_of",
    "is_moment",
    "parse_filter",
    "parsed",
    "print_filter",
    "shown",
]

MOST_CHARACTERS = 100_000
MOST_ALTERNATIVES = 1_000
_TIMES = (exp.DType.DATE, exp.DType.TIMESTAMP, exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPNTZ)
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d{1,6})?)?)?")
# Comments, quoted names and texts: what a quote may stand in.
_QUOTED = re.compile(
    r"--[^\n]*|/\*.*?\*/|`(?:[^`]|``)*`"
    r"|\"(?:[^\"\\]|\\.|\"\")*\"|'(?:[^'\\]|\\.|'')*'",
    re.DOTALL,
)
# A number of so many digits fits, beside any whole number of 64 bits, into Spark's widest decimal.
_MOST_DIGITS = 18
_FLIPPED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.LT: exp.GT,
    exp.GT: exp.LT,
    exp.LTE: exp.GTE,
    exp.GTE: exp.LTE,
}
_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ)


def parse_filter(text: str, schema: Schema) -> Filter:
    """Read a filter; an `InputError` says which part of it cannot be used, and why."""
    try:
        boxes = _boxes(parsed(text), True, schema)
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
    return "'" + part[1:-1].replace("''", "\\'") + "'" if part.startswith("'") else part


def shown(node: exp.Expr) -> str:
    """A part of a condition as one short line."""
    return _line(node.sql(dialect="spark"))


def is_moment(node: exp.Expr) -> bool:
    """Whether a part is text that reads as a day, or a time of one."""
    return _is_text(node) and _moment(node.name) is not None


# --- conditions into boxes -----------------------------------------------------------------------


def _boxes(node: exp.Expr, wanted: bool, schema: Schema) -> list[Box]:
    """Boxes of the events for which a condition is true, or with `wanted` off, false."""
    match node:
        case exp.Paren():
            return _boxes(node.this, wanted, schema)
        case exp.Not():
            return _boxes(node.this, not wanted, schema)
        case exp.And() | exp.Or():
            parts = [_boxes(part, wanted, schema) for part in node.flatten()]
            both = isinstance(node, exp.And) == wanted
            return _all_of(parts, schema) if both else _any_of(parts, schema)
        case exp.Boolean():
            return [Box(())] if node.this == wanted else []
    return _tested(node, wanted, schema)


def _any_of(parts: list[list[Box]], schema: Schema) -> list[Box]:
    boxes = list(Filter.of((box for part in parts for box in part), schema).boxes)
    _check_number(len(boxes))
    return boxes


def _all_of(parts: list[list[Box]], schema: Schema) -> list[Box]:
    boxes = [Box(())]
    for part in parts:
        _check_number(len(boxes) * len(part))
        found = (Box.of((*a.tests, *b.tests), schema) for a, b in product(boxes, part))
        boxes = [box for box in found if box is not None]
        if len(boxes) > 1:
            boxes = list(Filter.of(boxes, schema).boxes)
    return boxes


def _check_number(alternatives: int) -> None:
    if alternatives > MOST_ALTERNATIVES:
        raise InputError(
            f"comes to more than {MOST_ALTERNATIVES:,} alternatives when its ORs are multiplied out"
        )


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
            if attribute.kind is not Kind.BOOLEAN:
                raise InputError(f"{shown(node)} is not true or false")
            return _decided(at, attribute, [(1, 2)])
        case exp.Is() if isinstance(node.this, exp.Column) and isinstance(
            node.expression, exp.Null
        ):
            at, attribute = _attribute(node.this, schema)
            return at, Values((), null=True), Values.present(attribute)
        case exp.Between() if not node.args.get("symmetric"):
            at, attribute = _attribute(node.this, schema)
            low = _compared(exp.GTE, node.args["low"], attribute, node)
            high = _compared(exp.LTE, node.args["high"], attribute, node)
            both = Values.of(low, attribute.kind) & Values.of(high, attribute.kind)
            return _decided(at, attribute, both.ranges)
        case exp.In() if node.expressions and not node.args.get("query"):
            at, attribute = _attribute(node.this, schema)
            points = (_compared(exp.EQ, each, attribute, node) for each in node.expressions)
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
        inside = Values.of(_compared(exp.EQ, right, attribute, node), attribute.kind)
        return at, inside, inside.complement(attribute)
    return _decided(at, attribute, _compared(relation, right, attribute, node))


def _compared(
    relation: type[exp.Expr], node: exp.Expr, attribute: Attribute, whole: exp.Expr
) -> tuple[Range, ...]:
    """The ranges of keys that stand in a relation to a constant."""
    low, high = _around(node, attribute, whole)  # keys below `low` are less, from `high` on greater
    least, end = attribute.kind.least, attribute.kind.end
    ranges: dict[type[exp.Expr], tuple[Range, ...]] = {
        exp.EQ: ((low, high),),
        exp.NEQ: ((least, low), (high, end)),
        exp.LT: ((least, low),),
        exp.LTE: ((least, high),),
        exp.GT: ((high, end),),
        exp.GTE: ((low, end),),
    }
    return ranges[relation]


def _around(node: exp.Expr, attribute: Attribute, whole: exp.Expr) -> tuple[Key, Key]:
    """Where a constant lies on an axis: [low, high) holds its key, or nothing between two keys."""
    constant: object = constant_of(node)
    kind = attribute.kind
    if kind is Kind.INTEGER and isinstance(constant, Decimal):
        return math.ceil(constant), math.floor(constant) + 1
    if kind is Kind.FLOAT and isinstance(constant, Decimal):
        constant = float(constant)
    if kind is Kind.TIMESTAMP and isinstance(constant, str):
        constant = _moment(constant) or constant
    key = key_of(constant, kind)
    if key is None:
        told = "a number" if isinstance(constant, Decimal) else _kind_of(constant)
        raise InputError(f"{shown(whole)} compares {kind.value} with {told}")
    return key, after(key)


def _kind_of(constant: object) -> str:
    kinds = {bool: Kind.BOOLEAN, str: Kind.TEXT, datetime: Kind.TIMESTAMP}
    return kinds[type(constant)].value


def _prefixed(node: exp.Like, attribute: Attribute) -> Range:
    """The range of texts that begin with the prefix of LIKE 'prefix%'."""
    pattern = node.expression
    if attribute.kind is not Kind.TEXT:
        raise InputError(f"{shown(node)} looks for a pattern in what is not text")
    if not _is_text(pattern) or "\\" in pattern.name:
        raise InputError(f"{shown(node)}: a pattern is plain text without backslashes")
    prefix = pattern.name.rstrip("%")
    if "%" in prefix or "_" in prefix:
        raise InputError(f"{shown(node)}: a pattern is a prefix with % at its end")
    if prefix == pattern.name:
        return prefix, after(prefix)
    return prefix, _after_prefix(prefix)


def _after_prefix(prefix: str) -> str | None:
    """The first text after all those that begin with `prefix`; None where there is none."""
    while prefix:
        last = ord(prefix[-1]) + 1
        if 0xD800 <= last <= 0xDFFF:
            last = 0xE000
        if last <= 0x10FFFF:
            return prefix[:-1] + chr(last)
        prefix = prefix[:-1]
    return None


# --- attributes and constants --------------------------------------------------------------------


def _attribute(node: exp.Expr, schema: Schema) -> tuple[int, Attribute]:
    node = _bare(node)
    if not isinstance(node, exp.Column) or not isinstance(node.this, exp.Identifier) or node.table:
        raise InputError(f"{shown(node)} is not an attribute")
    at = schema.place(node.name)
    if at is None:
        raise InputError(f"there is no attribute {node.name!r}")
    return at, schema.attributes[at]


def constant_of(node: exp.Expr) -> str | bool | datetime | Decimal:
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
            return -_number(node.this)
        case exp.Boolean():
            return bool(node.this)
        case exp.Cast() if node.to.this in _TIMES and is_moment(node.this):
            moment = _moment(node.this.name)
            assert moment is not None
            return moment
    raise InputError(f"{shown(node)} is not a constant")


def _number(node: exp.Literal) -> Decimal:
    digits = re.sub(r"\D", "", node.name)
    if "e" not in node.name.lower() and len(digits) > _MOST_DIGITS:
        raise InputError(f"{shown(node)} has more than {_MOST_DIGITS} digits")
    number = Decimal(node.name)
    if not math.isfinite(float(number)):
        raise InputError(f"{shown(node)} is beyond the largest number")
    return number


def _bare(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def _is_text(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal) and node.is_string


def _moment(text: str) -> datetime | None:
    if not _MOMENT.fullmatch(text):
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 120 else f"{line[:117]}..."


# --- boxes into text -----------------------------------------------------------------------------


def print_filter(found: Filter) -> str:
    """The normal form as SQL: reading it again gives the same filter."""
    if not found.boxes:
        return "FALSE"
    printed = [_printed_box(box, found.schema) for box in found.boxes]
    if len(printed) == 1:
        return printed[0]
    return " OR ".join(f"({text})" if " AND " in text else text for text in printed)


def _printed_box(box: Box, schema: Schema) -> str:
    tests = [_printed_test(schema.attributes[at], values) for at, values in box.tests]
    return " AND ".join(tests) or "TRUE"


def _printed_test(attribute: Attribute, values: Values) -> str:
    name = _Name(attribute)
    if Values(values.ranges) == Values.present(attribute):
        return f"{name} IS NOT NULL"
    alternatives = [f"{name} IS NULL"] if values.null else []
    points = values.points()
    others = Values(values.complement(attribute).ranges).points()
    if points is not None and len(points) > 1:
        alternatives.append(f"{name} IN ({_listed(points, attribute.kind)})")
    elif others and attribute.domain is None and attribute.kind is not Kind.BOOLEAN:
        one = "<> {}" if len(others) == 1 else "NOT IN ({})"
        alternatives.append(f"{name} {one.format(_listed(others, attribute.kind))}")
    else:
        alternatives += _printed_ranges(name, values, attribute.kind)
    return alternatives[0] if len(alternatives) == 1 else f"({' OR '.join(alternatives)})"


def _printed_ranges(name: _Name, values: Values, kind: Kind) -> Iterator[str]:
    for low, high in values.ranges:
        if kind is Kind.BOOLEAN:
            yield f"{name}" if low else f"NOT {name}"
        elif high == after(low):
            yield f"{name} = {_printed(low, kind)}"
        elif kind is Kind.TEXT and low and high == _after_prefix(low) and _is_plain(low):
            yield f"{name} LIKE {_printed(low + '%', kind)}"
        else:
            yield _printed_range(name, low, high, kind)


def _printed_range(name: _Name, low: Key, high: Key | None, kind: Kind) -> str:
    lower = None if low == kind.least else _end(low, kind, ">=", ">")
    upper = None if high == kind.end else _end(high, kind, "<", "<=")
    if lower and upper and lower[0] == ">=" and upper[0] == "<=":
        return f"{name} BETWEEN {lower[1]} AND {upper[1]}"
    return " AND ".join(f"{name} {sign} {text}" for sign, text in filter(None, (lower, upper)))


def _end(key: Key, kind: Kind, at: str, beyond: str) -> tuple[str, str]:
    """An end of a range, by its key or by the one before, whichever is shorter to say."""
    if kind is Kind.TEXT:
        return (
            (beyond, _printed(key[:-1], kind)) if key.endswith("\0") else (at, _printed(key, kind))
        )
    if kind is Kind.INTEGER:
        return (at, _printed(key, kind)) if at == ">=" else (beyond, _printed(key - 1, kind))
    here, before = _printed(key, kind), _printed(key - 1, kind)
    return (at, here) if len(here) <= len(before) else (beyond, before)


def _listed(keys: Iterable[Key], kind: Kind) -> str:
    return ", ".join(_printed(key, kind) for key in keys)


def _printed(key: Key, kind: Kind) -> str:
    value = value_of(key, kind)
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value.replace(tzinfo=None).isoformat(' ')}'"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    return str(value)


def _is_plain(text: str) -> bool:
    return not set(text) & {"%", "_", "\\"}


@dataclass(frozen=True, slots=True)
class _Name:
    attribute: Attribute

    def __str__(self) -> str:
        name = self.attribute.name
        plain = re.fullmatch(r"[A-Za-z_][A-Za-z_0-9]*", name) is not None
        return name if plain and name.lower() not in _RESERVED else f"`{name.replace('`', '``')}`"


_RESERVED = frozenset(
    [
        "and",
        "as",
        "between",
        "case",
        "cast",
        "date",
        "distinct",
        "else",
        "end",
        "exists",
        "false",
        "from",
        "in",
        "is",
        "like",
        "not",
        "null",
        "or",
        "select",
        "then",
        "timestamp",
        "true",
        "when",
        "where",
        "with",
    ]
)
