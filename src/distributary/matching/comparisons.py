"""What one test lets through: the ranges of keys that stand in a relation to a constant."""

from __future__ import annotations

import math
import re
from datetime import datetime
from decimal import Decimal

from distributary.model import Attribute, Key
from distributary.model import AttributeKind as Kind
from distributary.model.event import after, key_of
from distributary.model.values import Range

__all__ = ["Constant", "after_prefix", "compared", "moment_of", "prefix_range"]

Constant = str | bool | datetime | Decimal

_MOMENT = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d{1,6})?)?)?")


def compared(sign: str, constant: Constant, attribute: Attribute) -> tuple[Range, ...] | None:
    """The keys that are =, <>, <, <=, > or >= a constant; None if it is of another kind."""
    around = _around(constant, attribute.kind)
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


def _around(constant: Constant, kind: Kind) -> tuple[Key, Key] | None:
    """Where a constant lies on an axis: [low, high) holds its key, or nothing between two keys."""
    value: object = constant
    if isinstance(constant, Decimal):
        if kind is Kind.INTEGER:
            return math.ceil(constant), math.floor(constant) + 1
        if kind is Kind.FLOAT:
            value = float(constant)
    elif kind is Kind.TIMESTAMP and isinstance(constant, str):
        value = moment_of(constant)
    key = key_of(value, kind)
    return None if key is None else (key, after(key))


def prefix_range(pattern: str) -> Range | None:
    """The texts that are LIKE 'prefix%', or LIKE a text without wildcards; None for others."""
    prefix = pattern.rstrip("%")
    if "%" in prefix or "_" in prefix or "\\" in prefix:
        return None
    return prefix, after(prefix) if prefix == pattern else after_prefix(prefix)


def after_prefix(prefix: str) -> str | None:
    """The first text after all those that begin with `prefix`; None where there is none."""
    while prefix:
        last = ord(prefix[-1]) + 1
        if 0xD800 <= last <= 0xDFFF:
            last = 0xE000
        if last <= 0x10FFFF:
            return prefix[:-1] + chr(last)
        prefix = prefix[:-1]
    return None


def moment_of(text: str) -> datetime | None:
    """The day, or the time of one, that a text reads as."""
    if not _MOMENT.fullmatch(text):
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None
