"""The schema of events: their attributes, and attribute values as keys on an ordered axis.

Every value of every kind has a *key*, and keys are ordered as SQL orders the values: text by its
characters, everything else as an integer. A floating-point number maps to the rank of its bits, so
every number has a successor; "not a number" comes last, as in Spark. On such an axis each test of a
filter is a set of half-open ranges, whatever the kind. A missing value has no key: None.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from enum import Enum
from typing import Any

from distributary.errors import InputError

__all__ = ["Attribute", "AttributeKind", "Key", "Schema", "Value", "after", "key_of", "value_of"]

# An int, or for text a str: keys of the same attribute are comparable.
Key = Any
Value = str | int | float | bool | datetime

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_MAGNITUDE = 0x7FFF_FFFF_FFFF_FFFF
_INFINITE = 0x7FF0_0000_0000_0000
_NOT_A_NUMBER = _INFINITE + 1


class AttributeKind(Enum):
    """The type of an attribute's values, which decides what they can be compared with."""

    TEXT = "text"
    INTEGER = "a whole number"
    FLOAT = "a number"
    BOOLEAN = "true or false"
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
    AttributeKind.FLOAT: -_INFINITE,
    AttributeKind.BOOLEAN: 0,
    AttributeKind.TIMESTAMP: -(2**63),
}
_END: dict[AttributeKind, Key | None] = {
    AttributeKind.TEXT: None,
    AttributeKind.INTEGER: 2**63,
    AttributeKind.FLOAT: _NOT_A_NUMBER + 1,
    AttributeKind.BOOLEAN: 2,
    AttributeKind.TIMESTAMP: 2**63,
}


@dataclass(frozen=True, slots=True)
class Attribute:
    """One column of an event. A `domain` promises that no other value ever occurs."""

    name: str
    kind: AttributeKind
    domain: frozenset[Value] | None = None

    def key(self, value: object) -> Key | None:
        """The key of an event's value, or None for a missing one.

        Raises `InputError` for a value of another kind or outside the domain.
        """
        if value is None:
            return None
        key = key_of(value, self.kind)
        if key is None:
            raise InputError(
                f"attribute {self.name!r} is {value!r}, not {self.kind.value}", value=value
            )
        if self.domain is not None and value not in self.domain:
            raise InputError(
                f"attribute {self.name!r} is {value!r}, which is not in its domain", value=value
            )
        return key


@dataclass(frozen=True, slots=True)
class Schema:
    """The attributes of events, in order. Names are case-insensitive, as in SQL."""

    attributes: tuple[Attribute, ...]
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


def key_of(value: object, kind: AttributeKind) -> Key | None:
    """The key of a value, or None if it is not of that kind."""
    match kind, value:
        case AttributeKind.TEXT, str():
            return value
        case AttributeKind.BOOLEAN, bool():
            return int(value)
        case _, bool():
            return None
        case AttributeKind.INTEGER, int() if -(2**63) <= value < 2**63:
            return value
        case AttributeKind.FLOAT, int() | float():
            return _float_key(float(value))
        case AttributeKind.TIMESTAMP, datetime():
            moment = value if value.tzinfo else value.replace(tzinfo=UTC)
            return (moment - _EPOCH) // _MICROSECOND
        case AttributeKind.TIMESTAMP, date():
            return key_of(datetime(value.year, value.month, value.day, tzinfo=UTC), kind)
    return None


def value_of(key: Key, kind: AttributeKind) -> Value:
    """The inverse of `key_of`."""
    if isinstance(key, str):
        return key
    if kind is AttributeKind.INTEGER:
        return int(key)
    if kind is AttributeKind.BOOLEAN:
        return bool(key)
    if kind is AttributeKind.TIMESTAMP:
        return _EPOCH + int(key) * _MICROSECOND
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
