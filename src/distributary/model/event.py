"""The schema of events: their attributes, and attribute values as keys on an ordered axis.

Every value of every kind has a *key*, and keys are ordered as SQL orders the values: text by its
characters, everything else as a whole number. A floating-point number becomes the rank of its bits,
so it too has a next one, and "not a number" comes last, as in Spark; a decimal becomes the number
of its smallest units, a day the days and a point in time the microseconds since 1970. On such an
axis each test of a filter is a set of half-open ranges, whatever the kind. A missing value has no
key: None.
"""

from __future__ import annotations

import struct
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from enum import Enum
from typing import Any

import numpy as np

from distributary.errors import InputError

__all__ = [
    "DAY",
    "EXACT",
    "Attribute",
    "AttributeKind",
    "Instant",
    "Key",
    "Schema",
    "Value",
    "after",
    "float_of",
    "key_of",
]

# An int, or for text a str: keys of the same attribute are comparable.
Key = Any
Value = str | int | float | bool | Decimal | datetime | date

DAY = 86_400_000_000  # in microseconds
# More digits than any decimal of a table and any constant have together.
EXACT = Context(prec=400)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_MOST_UNITS = 10**76  # of Arrow's widest decimals
_MAGNITUDE = 0x7FFF_FFFF_FFFF_FFFF
_INFINITE = 0x7FF0_0000_0000_0000
_NOT_A_NUMBER = _INFINITE + 1


class AttributeKind(Enum):
    """The type of an attribute's values, which decides what they can be compared with."""

    TEXT = "text"
    INTEGER = "a whole number"
    DECIMAL = "a decimal number"
    FLOAT = "a number"
    BOOLEAN = "true or false"
    DATE = "a day"
    TIMESTAMP = "a point in time"

    @property
    def least(self) -> Key:
        """The first key of the axis."""
        return _LEAST[self]

    @property
    def end(self) -> Key | None:
        """The key after the last one; None for text, which has no last key."""
        return _END[self]


_LEAST: dict[AttributeKind, Key] = {
    AttributeKind.TEXT: "",
    AttributeKind.INTEGER: -(2**63),
    AttributeKind.DECIMAL: 1 - _MOST_UNITS,
    AttributeKind.FLOAT: -_INFINITE,
    AttributeKind.BOOLEAN: 0,
    AttributeKind.DATE: -(2**31),
    AttributeKind.TIMESTAMP: -(2**63),
}
_END: dict[AttributeKind, Key | None] = {
    AttributeKind.TEXT: None,
    AttributeKind.INTEGER: 2**63,
    AttributeKind.DECIMAL: _MOST_UNITS,
    AttributeKind.FLOAT: _NOT_A_NUMBER + 1,
    AttributeKind.BOOLEAN: 2,
    AttributeKind.DATE: 2**31,
    AttributeKind.TIMESTAMP: 2**63,
}


@dataclass(frozen=True, slots=True)
class Attribute:
    """One column of an event. A `domain` promises that no other value ever occurs.

    Decimals have `scale` digits after the point, as the column's type says.
    """

    name: str
    kind: AttributeKind
    domain: frozenset[Value] | None = None
    scale: int = 0

    def key(self, value: object) -> Key | None:
        """The key of an event's value, None for a missing one; or an `InputError`."""
        if isinstance(value, np.generic):
            value = _to_python(value)
        if value is None:
            return None
        key = key_of(value, self.kind, self.scale)
        if key is None:
            raise InputError(
                f"attribute {self.name!r} is {value!r}, not {self.kind.value}", value=value
            )
        if not self._has(value, key):
            raise InputError(
                f"attribute {self.name!r} is {value!r}, which is not in its domain", value=value
            )
        return key

    def _has(self, value: object, key: Key) -> bool:
        """Whether the domain holds the value, or one with the same key."""
        if self.domain is None or (isinstance(value, Hashable) and value in self.domain):
            return True
        return any(key_of(each, self.kind, self.scale) == key for each in self.domain)


@dataclass(frozen=True, slots=True)
class Schema:
    """The attributes of events, in order. Names are case-insensitive, as in SQL.

    `untestable` are the lower-case names of the events' other columns, whose types no filter can
    test.
    """

    attributes: tuple[Attribute, ...]
    untestable: frozenset[str] = field(default=frozenset(), repr=False, compare=False)
    _places: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        places = {attribute.name.lower(): at for at, attribute in enumerate(self.attributes)}
        if len(places) != len(self.attributes):
            raise ValueError("two attributes have the same name")
        object.__setattr__(self, "_places", places)

    def __hash__(self) -> int:
        return hash(self.attributes)

    def __len__(self) -> int:
        return len(self.attributes)

    def place(self, name: str) -> int | None:
        """The index of the attribute with that name, in any case; None if there is none."""
        return self._places.get(name.lower())

    def keys(self, event: Mapping[str, object]) -> tuple[Key | None, ...]:
        """The key of each attribute, None where the event lacks it; ignores unknown attributes."""
        given = {name.lower(): value for name, value in event.items()}
        return tuple(
            attribute.key(given.get(attribute.name.lower())) for attribute in self.attributes
        )


def key_of(value: object, kind: AttributeKind, scale: int = 0) -> Key | None:
    """The key of a value, or None if the value is not of that kind or out of the kind's range."""
    match kind, value:
        case AttributeKind.TEXT, str():
            return value
        case AttributeKind.BOOLEAN, bool():
            return int(value)
        case _, bool():
            return None
        case AttributeKind.INTEGER, int():
            return _check_range(value, kind)
        case AttributeKind.DECIMAL, int() | Decimal():
            return _check_range(_units(value, scale), kind)
        case AttributeKind.FLOAT, int() | float() | Decimal():
            return _nearest_float_key(value)
        case AttributeKind.TIMESTAMP, datetime():
            moment = value if value.tzinfo else value.replace(tzinfo=UTC)
            return (moment - _EPOCH) // _MICROSECOND
        case AttributeKind.DATE, datetime():
            return None
        case AttributeKind.DATE | AttributeKind.TIMESTAMP, date():
            days = value.toordinal() - _EPOCH.toordinal()
            return days if kind is AttributeKind.DATE else days * DAY
        case AttributeKind.DATE | AttributeKind.TIMESTAMP, Instant():
            return _check_range(value.key(kind), kind)
    return None


def _check_range(key: Key | None, kind: AttributeKind) -> Key | None:
    return key if key is not None and kind.least <= key < kind.end else None


def _to_python(scalar: np.generic) -> object:
    """The Python value of a numpy scalar; None for "not a time"."""
    if not isinstance(scalar, np.datetime64):
        return scalar.item()
    unit, size = np.datetime_data(scalar.dtype)
    return None if np.isnat(scalar) else Instant(size * int(scalar.astype(np.int64)), unit)


@dataclass(frozen=True, slots=True)
class Instant:
    """A time as numpy and Arrow store it, which may be out of the range of Python's datetime."""

    ticks: int
    unit: str  # as numpy names it, from D to ns

    def key(self, kind: AttributeKind) -> int | None:
        """The time cut down to whole microseconds; for a day, its number."""
        if self.unit not in _NANOSECONDS:
            return None
        if kind is AttributeKind.DATE:
            return self.ticks if self.unit == "D" else None
        return self.ticks * _NANOSECONDS[self.unit] // 1_000


_NANOSECONDS = {
    "D": 1_000 * DAY,
    "h": 3_600_000_000_000,
    "m": 60_000_000_000,
    "s": 1_000_000_000,
    "ms": 1_000_000,
    "us": 1_000,
    "ns": 1,
}


def _units(value: int | Decimal, scale: int) -> int | None:
    """The number of the decimal's smallest units; None if it is not a whole number of them."""
    number = Decimal(value)
    if not number.is_finite() or abs(number.adjusted()) > EXACT.prec // 2:
        return 0 if number == 0 else None
    units = number.scaleb(scale, EXACT)
    return int(units) if units == units.to_integral_value() else None


def _nearest_float_key(value: float | Decimal) -> int | None:
    try:
        return _float_key(float(value))
    except (OverflowError, ValueError):  # an integer too large for a double, or a signalling NaN
        return None


def float_of(key: Key) -> float:
    """The floating-point number that has a key."""
    bits = key if key >= 0 else -key | ~_MAGNITUDE
    (value,) = struct.unpack("<d", struct.pack("<q", bits))
    return float(value)


def after(key: Key) -> Key:
    """The next key of the axis."""
    return key + "\0" if isinstance(key, str) else key + 1


def _float_key(value: float) -> int:
    """The rank of a number among all doubles; both zeros have rank 0."""
    if value != value:
        return _NOT_A_NUMBER
    (bits,) = struct.unpack("<q", struct.pack("<d", value))
    return int(bits) if bits >= 0 else -(int(bits) & _MAGNITUDE)
