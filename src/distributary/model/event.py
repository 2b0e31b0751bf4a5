"""What an event looks like: its attributes, and their values as keys on an ordered axis.

Every value of every kind has a *key*, and keys are ordered as SQL orders the values: text by its
characters, everything else as a whole number. A floating-point number becomes the rank of its bits,
so it too has a next one, and "not a number" comes last, as in Spark. On such an axis each test of a
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

__all__ = ["Attribute", "Key", "Kind", "Schema", "Value", "after", "key_of", "value_of"]

# A whole number, or for text a str: the keys of one attribute compare with each other.
Key = Any
Value = str | int | float | bool | datetime

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_MAGNITUDE = 0x7FFF_FFFF_FFFF_FFFF
_INFINITE = 0x7FF0_0000_0000_0000
_NOT_A_NUMBER = _INFINITE + 1


class Kind(Enum):
    """What values an attribute has, and so what it can be compared with."""

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
        """What comes after the last key; None for text, which has no last."""
        return _END[self]


_LEAST: dict[Kind, Key] = {
    Kind.TEXT: "",
    Kind.INTEGER: -(2**63),
    Kind.FLOAT: -_INFINITE,
    Kind.BOOLEAN: 0,
    Kind.TIMESTAMP: -(2**63),
}
_END: dict[Kind, Key | None] = {
    Kind.TEXT: None,
    Kind.INTEGER: 2**63,
    Kind.FLOAT: _NOT_A_NUMBER + 1,
    Kind.BOOLEAN: 2,
    Kind.TIMESTAMP: 2**63,
}


@dataclass(frozen=True, slots=True)
class Attribute:
    """One column of an event. A `domain` promises that no other value ever occurs."""

    name: str
    kind: Kind
    domain: frozenset[Value] | None = None

    def key(self, value: object) -> Key | None:
        """The key of an event's value, None for a missing one; or an `InputError`."""
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
    """The attributes that events have, in order. Names have no case, as in SQL."""

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
        """Where the attribute of that name is, whatever its case; None where there is none."""
        return self._places.get(name.lower())

    def keys(self, event: Mapping[str, object]) -> tuple[Key | None, ...]:
        """The key of each attribute. Those the event lacks are None, others it has are left out."""
        given = {name.lower(): value for name, value in event.items()}
        return tuple(
            attribute.key(given.get(attribute.name.lower())) for attribute in self.attributes
        )


def key_of(value: object, kind: Kind) -> Key | None:
    """The key of a value, or None if it is not of that kind."""
    match kind, value:
        case Kind.TEXT, str():
            return value
        case Kind.BOOLEAN, bool():
            return int(value)
        case _, bool():
            return None
        case Kind.INTEGER, int() if -(2**63) <= value < 2**63:
            return value
        case Kind.FLOAT, int() | float():
            return _float_key(float(value))
        case Kind.TIMESTAMP, datetime():
            moment = value if value.tzinfo else value.replace(tzinfo=UTC)
            return (moment - _EPOCH) // _MICROSECOND
        case Kind.TIMESTAMP, date():
            return key_of(datetime(value.year, value.month, value.day, tzinfo=UTC), kind)
    return None


def value_of(key: Key, kind: Kind) -> Value:
    """The value that has a key."""
    if isinstance(key, str):
        return key
    if kind is Kind.INTEGER:
        return int(key)
    if kind is Kind.BOOLEAN:
        return bool(key)
    if kind is Kind.TIMESTAMP:
        return _EPOCH + int(key) * _MICROSECOND
    bits = key if key >= 0 else -key | ~_MAGNITUDE
    (value,) = struct.unpack("<d", struct.pack("<q", bits))
    return float(value)


def after(key: Key) -> Key:
    """The next key of the axis."""
    return key + "\0" if isinstance(key, str) else key + 1


def _float_key(value: float) -> int:
    """The rank of a number among all of its kind; both zeros have rank 0."""
    if value != value:
        return _NOT_A_NUMBER
    (bits,) = struct.unpack("<q", struct.pack("<d", value))
    return int(bits) if bits >= 0 else -(int(bits) & _MAGNITUDE)
