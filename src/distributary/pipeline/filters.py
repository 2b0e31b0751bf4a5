"""Which filters can be used: SQL Boolean expressions, checked before Spark runs any of them.

A filter compares attributes of an event with constants or with each other: =, <>, <, <=, >, >=,
<=>, BETWEEN, IN, LIKE, IS NULL and bare Boolean attributes, put together by AND, OR and NOT.
Functions, arithmetic, subqueries and casts are refused, with the offending part shown.

**Both sides of a comparison are of one kind.** Spark's ANSI mode would otherwise cast text to a
number at run time and fail the whole job at the first event whose text is none. A point in time may
be compared with text if that reads as a date or a time of day of one. With no cast that can fail
and no arithmetic, nothing that passes here can fail while it runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import Enum

from pyspark.sql.types import (
    BooleanType,
    DataType,
    DateType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)
from sqlglot import exp

from distributary.errors import InputError
from distributary.matching.sql import is_moment, parsed, shown

__all__ = ["Kind", "attribute_kinds", "used_attributes"]


class Kind(Enum):
    """What can be compared with what."""

    TEXT = "text"
    NUMBER = "a number"
    TRUTH = "true or false"
    TIME = "a point in time"


_KINDS: tuple[tuple[type[DataType], Kind], ...] = (
    (StringType, Kind.TEXT),
    (NumericType, Kind.NUMBER),
    (BooleanType, Kind.TRUTH),
    (DateType, Kind.TIME),
    (TimestampType, Kind.TIME),
    (TimestampNTZType, Kind.TIME),
)
_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ)
_TIMES = (exp.DType.DATE, exp.DType.TIMESTAMP, exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPNTZ)
# A number of so many digits fits, beside any whole number of 64 bits, into Spark's widest decimal;
# a whole number of 64 bits is none.
_MOST_DIGITS = 18


def attribute_kinds(schema: StructType) -> dict[str, Kind | None]:
    """The kind of each column, by its name in small letters; None where filters cannot test it."""
    return {
        field.name.lower(): next(
            (kind for type_, kind in _KINDS if isinstance(field.dataType, type_)), None
        )
        for field in schema.fields
    }


def used_attributes(text: str, kinds: Mapping[str, Kind | None]) -> frozenset[str]:
    """The attributes that a filter tests; an `InputError` says why it cannot be used.

    `kinds` are those of `attribute_kinds`, and so are the names that come back.
    """
    tree = parsed(text)
    try:
        _check_truth(tree, kinds)
        return frozenset(column.name.lower() for column in tree.find_all(exp.Column))
    except RecursionError:
        raise InputError("is nested too deeply", value=text) from None


def _check_truth(node: exp.Expr, kinds: Mapping[str, Kind | None]) -> None:
    """Refuse what is not a condition of the language above."""
    match node:
        case exp.And() | exp.Or():
            for part in node.flatten():
                _check_truth(part, kinds)
        case exp.Paren() | exp.Not():
            _check_truth(node.this, kinds)
        case exp.Between() if not node.args.get("symmetric"):
            _check_same((node.this, node.args["low"], node.args["high"]), kinds, node)
        case exp.In() if node.expressions and not node.args.get("query"):
            _check_same((node.this, *node.expressions), kinds, node)
        case exp.Like():
            _check_pattern(node, kinds)
        case exp.Is() if isinstance(node.this, exp.Column) and isinstance(
            node.expression, exp.Null
        ):
            _kind(node.this, kinds)
        case exp.Boolean():
            pass
        case exp.Column():
            if _kind(node, kinds) is not Kind.TRUTH:
                raise InputError(f"{shown(node)} is not true or false")
        case _ if isinstance(node, _COMPARISONS):
            _check_same((node.this, node.expression), kinds, node)
        case _:
            raise InputError(f"{shown(node)} is not a condition that filters may have")


def _check_same(
    operands: Iterable[exp.Expr],
    kinds: Mapping[str, Kind | None],
    whole: exp.Expr,
) -> None:
    found: dict[Kind, list[exp.Expr]] = {}
    for operand in operands:
        found.setdefault(_kind(operand, kinds), []).append(operand)
    if Kind.TIME in found and all(is_moment(text) for text in found.get(Kind.TEXT, ())):
        found.pop(Kind.TEXT, None)
    if len(found) > 1:
        unlike = " with ".join(sorted(kind.value for kind in found))
        raise InputError(f"{shown(whole)} compares {unlike}")


def _check_pattern(node: exp.Like, kinds: Mapping[str, Kind | None]) -> None:
    pattern = node.expression
    if not (isinstance(pattern, exp.Literal) and pattern.is_string) or "\\" in pattern.name:
        raise InputError(f"{shown(node)}: a pattern is plain text without backslashes")
    if _kind(node.this, kinds) is not Kind.TEXT:
        raise InputError(f"{shown(node)} looks for a pattern in what is not text")


def _kind(node: exp.Expr, kinds: Mapping[str, Kind | None]) -> Kind:
    """The kind of an attribute or a constant; anything else is refused."""
    match node:
        case exp.Paren():
            return _kind(node.this, kinds)
        case exp.Column() if isinstance(node.this, exp.Identifier) and not node.table:
            return _attribute_kind(node.name, kinds)
        case exp.Literal() if node.is_string:
            return Kind.TEXT
        case exp.Literal():
            return _number(node)
        case exp.Concat() if all(_is_text(part) for part in node.expressions):
            return Kind.TEXT  # 'it''s', which Spark reads as one constant
        case exp.Neg() if isinstance(node.this, exp.Literal) and not node.this.is_string:
            return _number(node.this)
        case exp.Boolean():
            return Kind.TRUTH
        case exp.Cast() if node.to.this in _TIMES and is_moment(node.this):
            return Kind.TIME  # DATE '2026-01-05'
    raise InputError(f"{shown(node)} is neither an attribute nor a constant")


def _attribute_kind(name: str, kinds: Mapping[str, Kind | None]) -> Kind:
    if name.lower() not in kinds:
        raise InputError(f"there is no attribute {name!r}")
    kind = kinds[name.lower()]
    if kind is None:
        raise InputError(f"attribute {name!r} is of a type that filters cannot test")
    return kind


def _number(node: exp.Literal) -> Kind:
    digits = re.sub(r"\D", "", node.name)
    is_whole = digits == node.name and int(digits) <= 2**63  # which is -2^63 after a minus
    if "e" not in node.name.lower() and len(digits) > _MOST_DIGITS and not is_whole:
        raise InputError(f"{shown(node)} has more than {_MOST_DIGITS} digits")
    return Kind.NUMBER


def _is_text(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal) and node.is_string
