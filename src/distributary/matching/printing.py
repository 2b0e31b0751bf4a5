"""Filters as text again: the normal form in SQL."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from distributary.matching.comparisons import after_prefix
from distributary.model import Attribute, Box, Filter, Key, Schema, Values
from distributary.model import AttributeKind as Kind
from distributary.model.event import after, value_of

__all__ = ["print_filter"]


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
        elif kind is Kind.TEXT and low and high == after_prefix(low) and _is_plain(low):
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
