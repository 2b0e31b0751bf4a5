"""The ranges of keys that pass a comparison with a constant.

As in Spark, a number without an exponent is a decimal and is compared exactly; a number with an
exponent is a double, and the other side is converted to a double first. Text that is compared with
a date or a timestamp is read as one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal

from distributary.matching.times import DateConstant, TimestampConstant, read_day, read_moment
from distributary.model import Attribute, AttributeKind, Key
from distributary.model.event import DAY, EXACT, after, key_of
from distributary.model.values import Range

__all__ = [
    "MOST_DECIMALS",
    "MOST_DIGITS",
    "Constant",
    "after_prefix",
    "common_type",
    "compare",
    "prefix_range",
]

Constant = str | bool | Decimal | float | DateConstant | TimestampConstant

MOST_DIGITS = 38  # of Spark's decimals
# With more decimals beside a 64-bit integer, Spark rounds to make room for both.
MOST_DECIMALS = 18


def compare(sign: str, constant: Constant, attribute: Attribute) -> tuple[Range, ...] | None:
    """The keys that are =, <>, <, <=, > or >= a constant; None if the kinds differ."""
    around = _around(constant, attribute)
    if around is None:
        return None
    low, high = around  # keys below `low` are less, those from `high` on greater
    least, end = attribute.kind.least, attribute.kind.end
    ranges: dict[str, tuple[Range, ...]] = {
        "=": ((low, high),),
        "<>": ((least, low), (high, end)),
        "<": ((least, low),),
        "<=": ((least, high),),
        ">": ((high, end),),
        ">=": ((low, end),),
    }
    return ranges[sign]


def common_type(constants: Sequence[Constant]) -> list[Constant]:
    """Convert the constants of an IN: numbers to doubles if one is, texts to times if one is."""
    found = list(constants)
    if any(isinstance(each, float) for each in found):
        found = [float(each) if isinstance(each, Decimal) else each for each in found]
    if any(isinstance(each, TimestampConstant) for each in found):
        found = [read_moment(each) or each if isinstance(each, str) else each for each in found]
    return found


def _around(constant: Constant, attribute: Attribute) -> tuple[Key, Key] | None:
    """Where a constant lies on an axis: [low, high) holds its key, or is empty between two keys."""
    kind, value = attribute.kind, constant
    if isinstance(value, str) and kind in _READ:
        read = _READ[kind](value)
        if read is None:
            return None
        value = read
    match kind, value:
        case AttributeKind.INTEGER | AttributeKind.DECIMAL, Decimal():
            units = value.scaleb(attribute.scale, EXACT)
            return math.ceil(units), math.floor(units) + 1
        case AttributeKind.INTEGER | AttributeKind.DECIMAL, float():
            return _around_double(value, attribute)
        case AttributeKind.TIMESTAMP, TimestampConstant():
            return value.microseconds, value.microseconds + 1
        case AttributeKind.TIMESTAMP, DateConstant():
            return value.days * DAY, value.days * DAY + 1
        case AttributeKind.DATE, DateConstant():
            return value.days, value.days + 1
        case AttributeKind.DATE, TimestampConstant():
            return -(-value.microseconds // DAY), value.microseconds // DAY + 1
    key = key_of(value, kind)
    return None if key is None else (key, after(key))


_READ: dict[AttributeKind, Callable[[str], DateConstant | TimestampConstant | None]] = {
    AttributeKind.DATE: read_day,
    AttributeKind.TIMESTAMP: read_moment,
}


def _around_double(constant: float, attribute: Attribute) -> tuple[int, int]:
    """The range of keys whose values convert to this double."""

    def double(key: int) -> float:
        return float(Decimal(key).scaleb(-attribute.scale, EXACT))

    low = _first_key(lambda key: double(key) >= constant, attribute.kind)
    return low, _first_key(lambda key: double(key) > constant, attribute.kind)


def _first_key(passes: Callable[[int], bool], kind: AttributeKind) -> int:
    """The least key that passes a test that all greater keys pass too."""
    low, high = kind.least, kind.end
    while low < high:
        middle = (low + high) // 2
        if passes(middle):
            high = middle
        else:
            low = middle + 1
    return int(low)


def prefix_range(pattern: str) -> Range | None:
    """The range of texts LIKE 'prefix%' or LIKE a text without wildcards; None for others."""
    prefix = pattern.rstrip("%")
    if "%" in prefix or "_" in prefix or "\\" in prefix:
        return None
    return prefix, after(prefix) if prefix == pattern else after_prefix(prefix)


def after_prefix(prefix: str) -> str | None:
    """The first text after all those that begin with `prefix`; None if there is none."""
    while prefix:
        last = ord(prefix[-1]) + 1
        if 0xD800 <= last <= 0xDFFF:
            last = 0xE000
        if last <= 0x10FFFF:
            return prefix[:-1] + chr(last)
        prefix = prefix[:-1]
    return None
