"""Print filters as SQL, in normal form."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal

from distributary.matching.comparisons import MOST_DIGITS, after_prefix
from distributary.matching.times import print_day, print_moment
from distributary.model import (
    Attribute,
    AttributeKind,
    Box,
    Comparison,
    Filter,
    Key,
    Pattern,
    Residual,
    Schema,
    Values,
)
from distributary.model.event import EXACT, after, float_of

__all__ = ["print_filter"]


def print_filter(found: Filter) -> str:
    """Print the normal form as SQL; parsing it gives the same filter."""
    if not found.boxes:
        return "FALSE"
    printed = [_print_box(box, found.schema) for box in found.boxes]
    if len(printed) == 1:
        return printed[0]
    return " OR ".join(f"({text})" if " AND " in text else text for text in printed)


def _print_box(box: Box, schema: Schema) -> str:
    needed = {at for each in box.residuals for at in each.attributes}
    tests = [
        _print_test(attribute, values)
        for at, values in box.tests
        if (attribute := schema.attributes[at])
        and not (at in needed and values == Values.present(attribute))
    ]
    tests += [_print_residual(each, schema) for each in box.residuals]
    return " AND ".join(tests) or "TRUE"


def _print_residual(residual: Residual, schema: Schema) -> str:
    names = [_Name(schema.attributes[at]) for at in residual.attributes]
    match residual:
        case Comparison():
            return f"{names[0]} {residual.sign} {names[1]}"
        case Pattern():
            like = "LIKE" if residual.wanted else "NOT LIKE"
            return f"{names[0]} {like} {_text(residual.pattern)}"


def _print_test(attribute: Attribute, values: Values) -> str:
    name = _Name(attribute)
    if Values(values.ranges) == Values.present(attribute):
        return f"{name} IS NOT NULL"
    alternatives = [f"{name} IS NULL"] if values.null else []
    points = _points(values, attribute)
    others = _points(Values(values.complement(attribute).ranges), attribute)
    if len(points) > 1:
        alternatives.append(f"{name} IN ({_print_list(points, attribute)})")
    elif others and attribute.domain is None and attribute.kind is not AttributeKind.BOOLEAN:
        one = "<> {}" if len(others) == 1 else "NOT IN ({})"
        alternatives.append(f"{name} {one.format(_print_list(others, attribute))}")
    else:
        alternatives += _print_ranges(name, values, attribute)
    return alternatives[0] if len(alternatives) == 1 else f"({' OR '.join(alternatives)})"


def _points(values: Values, attribute: Attribute) -> tuple[Key, ...]:
    """The single values, if there is a constant for each of them; otherwise none."""
    points = values.points() or ()
    return points if all(_constant(key, attribute) is not None for key in points) else ()


def _print_ranges(name: _Name, values: Values, attribute: Attribute) -> Iterator[str]:
    for low, high in values.ranges:
        here = _constant(low, attribute)
        if attribute.kind is AttributeKind.BOOLEAN:
            yield f"{name}" if low else f"NOT {name}"
        elif high == after(low) and here is not None:
            yield f"{name} = {here}"
        elif (
            attribute.kind is AttributeKind.TEXT
            and low
            and high == after_prefix(low)
            and _is_plain(low)
        ):
            yield f"{name} LIKE {_constant(low + '%', attribute)}"
        else:
            yield _print_range(name, low, high, attribute)


def _print_range(name: _Name, low: Key, high: Key | None, attribute: Attribute) -> str:
    kind = attribute.kind
    lower = None if low == kind.least else _end(low, attribute, ">=", ">")
    upper = None if high == kind.end else _end(high, attribute, "<", "<=")
    if lower and upper and lower[0] == ">=" and upper[0] == "<=":
        return f"{name} BETWEEN {lower[1]} AND {upper[1]}"
    return " AND ".join(f"{name} {sign} {text}" for sign, text in filter(None, (lower, upper)))


def _end(key: Key, attribute: Attribute, at: str, beyond: str) -> tuple[str, str]:
    """Print an end of a range by its key or by the key before it, whichever is shorter."""
    here = _constant(key, attribute)
    if attribute.kind is AttributeKind.TEXT:
        return (beyond, _text(key[:-1])) if key.endswith("\0") else (at, _text(key))
    before = _constant(key - 1, attribute)
    if attribute.kind in (AttributeKind.INTEGER, AttributeKind.DATE) and here and before:
        return (at, here) if at == ">=" else (beyond, before)
    if before and (here is None or len(before) < len(here)):
        return beyond, before
    # A key too long for a decimal is the end of all keys that convert to the same double.
    return at, here or repr(float(_decimal(key, attribute)))


def _print_list(keys: Iterable[Key], attribute: Attribute) -> str:
    return ", ".join(str(_constant(key, attribute)) for key in keys)


def _constant(key: Key, attribute: Attribute) -> str | None:
    """Print the constant of a key; None if there is none, as for infinity."""
    match attribute.kind:
        case AttributeKind.TEXT:
            return _text(key)
        case AttributeKind.DATE:
            return f"DATE '{print_day(key)}'"
        case AttributeKind.TIMESTAMP:
            return f"TIMESTAMP '{print_moment(key)}'"
        case AttributeKind.DECIMAL:
            number = _decimal(key, attribute)
            digits = max(len(number.as_tuple().digits), -int(number.as_tuple().exponent))
            return f"{number:f}" if digits <= MOST_DIGITS else None
        case AttributeKind.FLOAT:
            value = float_of(key)
            if value.is_integer() and abs(value) < 1e15:
                return str(int(value))
            return repr(value) if math.isfinite(value) else None
    return str(key)


def _decimal(key: Key, attribute: Attribute) -> Decimal:
    number = Decimal(int(key)).scaleb(-attribute.scale, EXACT)
    whole = number.to_integral_value()
    return whole.quantize(Decimal(1), context=EXACT) if number == whole else EXACT.normalize(number)


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


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
