"""The attributes of events between clients' values and keys of the schema."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation

from distributary.content.protocol import AttributeValue
from distributary.errors import InputError
from distributary.model import Attribute, AttributeKind, Key, Schema
from distributary.model.event import EXACT, float_of

__all__ = ["read_attributes", "show_attributes", "value_of"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def read_attributes(
    attributes: Mapping[str, AttributeValue], schema: Schema
) -> tuple[Key | None, ...]:
    """The keys of an event's values, or an `InputError` in words.

    Times, days and decimals may be given as text, as JSON has no other form for them.
    """
    given: dict[str, object] = {}
    for name, value in attributes.items():
        place = schema.place(name)
        if place is None:
            known = ", ".join(each.name for each in schema.attributes)
            raise InputError(f"there is no attribute {name!r}; the schema has {known}", value=name)
        given[name] = _read_text(value, schema.attributes[place])
    if len({name.lower() for name in given}) != len(given):
        raise InputError("an attribute is given twice, in different cases of its letters")
    return schema.keys(given)


def _read_text(value: object, attribute: Attribute) -> object:
    """The value that a text stands for, or the text itself if it stands for none."""
    if not isinstance(value, str):
        return value
    with suppress(ValueError, InvalidOperation, OverflowError):
        match attribute.kind:
            case AttributeKind.TIMESTAMP:
                return datetime.fromisoformat(value)
            case AttributeKind.DATE:
                return date.fromisoformat(value)
            case AttributeKind.DECIMAL:
                return Decimal(value)
    return value


def show_attributes(keys: tuple[Key | None, ...], schema: Schema) -> dict[str, AttributeValue]:
    """The values that an event's keys stand for; missing ones are left out."""
    return {
        attribute.name: value_of(key, attribute)
        for key, attribute in zip(keys, schema.attributes, strict=True)
        if key is not None
    }


def value_of(key: Key, attribute: Attribute) -> AttributeValue:
    """The value of a key; the key itself for a time that Python cannot represent."""
    with suppress(OverflowError, ValueError):
        return _convert(key, attribute)
    return int(key)


def _convert(key: Key, attribute: Attribute) -> AttributeValue:
    match attribute.kind:
        case AttributeKind.FLOAT:
            return float_of(key)
        case AttributeKind.BOOLEAN:
            return bool(key)
        case AttributeKind.DECIMAL:
            return Decimal(key).scaleb(-attribute.scale, EXACT)
        case AttributeKind.TIMESTAMP:
            return _EPOCH + timedelta(microseconds=key)
        case AttributeKind.DATE:
            return date.fromordinal(key + _EPOCH.toordinal())
    return key  # type: ignore[no-any-return]  # text and whole numbers are their own keys
