"""The terms of SQL conditions: attributes and constants."""

from __future__ import annotations

import sys
from decimal import Decimal
from math import inf

from sqlglot import exp

from distributary.errors import InputError
from distributary.matching.comparisons import MOST_DIGITS, Constant
from distributary.matching.times import read_day, read_moment
from distributary.model import Attribute, Schema

__all__ = ["bare", "constant_of", "find_attribute", "is_column", "is_text", "shorten", "show"]

_TIMES = (exp.DType.DATE, exp.DType.TIMESTAMP, exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPNTZ)
_LARGEST = sys.float_info.max


def show(node: exp.Expr) -> str:
    """Print a part of a condition as one short line."""
    return shorten(node.sql(dialect="spark"))


def find_attribute(node: exp.Expr, schema: Schema) -> tuple[int, Attribute]:
    """The attribute that a part names, with its place in the schema."""
    node = bare(node)
    if not isinstance(node, exp.Column) or not isinstance(node.this, exp.Identifier) or node.table:
        raise InputError(f"{show(node)} is not an attribute")
    at = schema.place(node.name)
    if at is None and node.name.lower() in schema.untestable:
        raise InputError(f"attribute {node.name!r} is of a type that filters cannot test")
    if at is None:
        raise InputError(f"there is no attribute {node.name!r}")
    return at, schema.attributes[at]


def constant_of(node: exp.Expr) -> Constant:
    """The value of a constant; `InputError` if the part is no constant."""
    node = bare(node)
    match node:
        case exp.Literal() if node.is_string:
            return str(node.name)
        case exp.Literal():
            return _number(node)
        case exp.Concat() if all(is_text(part) for part in node.expressions):
            return "".join(part.name for part in node.expressions)  # 'a' 'b', one text to Spark
        case exp.Neg() if isinstance(node.this, exp.Literal) and not node.this.is_string:
            number = _number(node.this)
            return -number if isinstance(number, float) else number.copy_negate()
        case exp.Boolean():
            return bool(node.this)
        case exp.Cast() if node.to.this in _TIMES and is_text(node.this):
            read = read_day if node.to.this is exp.DType.DATE else read_moment
            time = read(node.this.name)
            if time is not None:
                return time
    raise InputError(f"{show(node)} is not a constant")


def _number(node: exp.Literal) -> Decimal | float:
    """A number with an exponent is a double, any other a decimal, as in Spark."""
    if "e" in node.name.lower():
        double = float(node.name)
        # A number just beyond the largest double is rounded down to it, but Spark refuses it.
        if double == inf or (double == _LARGEST and Decimal(node.name) > Decimal(_LARGEST)):
            raise InputError(f"{show(node)} is beyond the largest number")
        return double
    number = Decimal(node.name)
    _, digits, exponent = number.as_tuple()
    if max(len(digits), -int(exponent)) > MOST_DIGITS:
        raise InputError(f"{show(node)} has more than {MOST_DIGITS} digits")
    return number


def bare(node: exp.Expr) -> exp.Expr:
    """A part without the parentheses around it."""
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def is_column(node: exp.Expr) -> bool:
    """Whether a part names an attribute."""
    return isinstance(bare(node), exp.Column)


def is_text(node: exp.Expr) -> bool:
    """Whether a part is a constant text."""
    return isinstance(node, exp.Literal) and node.is_string


def shorten(text: str) -> str:
    """A text as one short line."""
    line = " ".join(text.split())
    return line if len(line) <= 120 else f"{line[:117]}..."
