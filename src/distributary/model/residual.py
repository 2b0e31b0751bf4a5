"""Conditions on more than a set of values of one attribute; a box checks them after its tests.

A *residual* compares two attributes, or looks for a pattern in a text. It never holds for a missing
value: the box that has one also requires that its attributes are present, so under SQL's
three-valued logic the negation of a residual is a residual.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any

from distributary.model.event import DAY, EXACT, Attribute, AttributeKind, Key, key_of

__all__ = ["SIGNS", "Comparison", "Operand", "Pattern", "Residual", "compare_attributes", "is_like"]

SIGNS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_OPPOSITE = {"=": "<>", "<>": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_SWAPPED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_EXACT = {AttributeKind.INTEGER, AttributeKind.DECIMAL}
_NUMBERS = {*_EXACT, AttributeKind.FLOAT}
_TIMES = {AttributeKind.DATE, AttributeKind.TIMESTAMP}


@dataclass(frozen=True, slots=True)
class Operand:
    """One side of a comparison: an attribute, and how to make its keys comparable.

    The key is multiplied by `factor`. With a `scale`, the key counts units of 10 ** -scale, and the
    number is converted to a double first.
    """

    at: int
    factor: int = 1
    scale: int | None = None

    def value(self, key: Key) -> Key:
        """The value that is compared with the other side's."""
        if self.scale is None:
            return key if self.factor == 1 else key * self.factor
        number = Decimal(key).scaleb(-self.scale, EXACT)
        return key_of(float(number), AttributeKind.FLOAT)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two attributes compared by one of `SIGNS`; the first is earlier in the schema."""

    left: Operand
    sign: str
    right: Operand

    @property
    def attributes(self) -> tuple[int, ...]:
        """The attributes that it looks at."""
        return self.left.at, self.right.at

    def matches(self, keys: Sequence[Key | None]) -> bool:
        """Whether it holds for an event."""
        left, right = keys[self.left.at], keys[self.right.at]
        if left is None or right is None:
            return False
        return bool(SIGNS[self.sign](self.left.value(left), self.right.value(right)))

    def negate(self) -> Comparison:
        """The comparison that holds where this one does not, if both values are present."""
        return Comparison(self.left, _OPPOSITE[self.sign], self.right)

    def order(self) -> tuple[object, ...]:
        """A key for a total order of residuals of one schema."""
        return 0, *self.attributes, self.sign


@dataclass(frozen=True, slots=True)
class Pattern:
    """LIKE, or NOT LIKE if not `wanted`: % stands for any characters, _ for a single one."""

    at: int
    pattern: str
    wanted: bool = True

    @property
    def attributes(self) -> tuple[int, ...]:
        """The attributes that it looks at."""
        return (self.at,)

    def matches(self, keys: Sequence[Key | None]) -> bool:
        """Whether it holds for an event."""
        return self.matches_text(keys[self.at])

    def matches_text(self, text: Key | None) -> bool:
        """Whether it holds for a value of its attribute."""
        return text is not None and is_like(text, self.pattern) == self.wanted

    def negate(self) -> Pattern:
        """The pattern that holds where this one does not, if the text is present."""
        return Pattern(self.at, self.pattern, not self.wanted)

    def order(self) -> tuple[object, ...]:
        """A key for a total order of residuals of one schema."""
        return 1, self.at, self.pattern, self.wanted


Residual = Comparison | Pattern


def compare_attributes(
    left: tuple[int, Attribute], sign: str, right: tuple[int, Attribute]
) -> Comparison | None:
    """The comparison of two attributes, each given with its place; None if their kinds differ.

    If either is a double, both are compared as doubles; other numbers are compared exactly. A day
    is compared with a point in time as its midnight.
    """
    if right[0] < left[0]:
        left, sign, right = right, _SWAPPED[sign], left
    converted = _operands(left, right)
    return None if converted is None else Comparison(converted[0], sign, converted[1])


def _operands(
    left: tuple[int, Attribute], right: tuple[int, Attribute]
) -> tuple[Operand, Operand] | None:
    (here, one), (there, other) = left, right
    kinds = {one.kind, other.kind}
    if len(kinds) == 1 and one.scale == other.scale:
        return Operand(here), Operand(there)
    if kinds <= _EXACT:
        finest = max(one.scale, other.scale)
        return Operand(here, 10 ** (finest - one.scale)), Operand(
            there, 10 ** (finest - other.scale)
        )
    if kinds <= _NUMBERS:
        is_double = [each.kind is AttributeKind.FLOAT for each in (one, other)]
        return (
            Operand(here, scale=None if is_double[0] else one.scale),
            Operand(there, scale=None if is_double[1] else other.scale),
        )
    if kinds == _TIMES:
        is_day = [each.kind is AttributeKind.DATE for each in (one, other)]
        return Operand(here, DAY if is_day[0] else 1), Operand(there, DAY if is_day[1] else 1)
    return None


def is_like(text: str, pattern: str) -> bool:
    """Whether a text is LIKE a pattern without escapes."""
    return _expression(pattern).fullmatch(text) is not None


@lru_cache(maxsize=4096)
def _expression(pattern: str) -> re.Pattern[str]:
    """The pattern as a regular expression that needs at most text times pattern steps.

    If a part between two % fits in several places, the first is as good as any later one; an atomic
    group keeps the first and prevents backtracking.
    """
    first, *parts = (
        "".join("." if char == "_" else re.escape(char) for char in part)
        for part in pattern.split("%")
    )
    if not parts:
        return re.compile(first, re.DOTALL)
    inner = "".join(f"(?>.*?{part})" for part in parts[:-1] if part)
    return re.compile(f"{first}{inner}.*{parts[-1]}", re.DOTALL)
