"""The attributes that events of a network have, as a broker says in its `Welcome`."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import numpy as np

from distributary.content.attributes import value_of
from distributary.content.protocol import AttributeValue
from distributary.errors import InputError
from distributary.model import Attribute, AttributeKind, Schema

__all__ = ["EventForm"]

# Brokers cut off clients whose frames have more than 2 MiB.
LONGEST_PAYLOAD = 1 << 20
LONGEST_TEXT = 1 << 17  # characters, of up to four bytes

# The types whose values are sent as they are; whole numbers only within 64 bits.
_SENT_AS_IS: dict[AttributeKind, type] = {
    AttributeKind.TEXT: str,
    AttributeKind.INTEGER: int,
    AttributeKind.FLOAT: float,
    AttributeKind.BOOLEAN: bool,
}
_LEAST, _END = -(2**63), 2**63


class EventForm:
    """Checks events before they are sent, and brings their values into the form that is sent."""

    def __init__(self, attributes: tuple[tuple[str, str], ...]) -> None:
        kinds = AttributeKind.__members__
        self.schema = Schema(
            tuple(
                Attribute(name, kinds[kind.upper()])
                for name, kind in attributes
                if kind.upper() in kinds
            )
        )
        self._as_is = {
            each.name: _SENT_AS_IS[each.kind]
            for each in self.schema.attributes
            if each.kind in _SENT_AS_IS
        }

    def check(
        self, attributes: Mapping[str, Any], payload: bytes = b""
    ) -> dict[str, AttributeValue]:
        """The attributes as they are sent; raises `InputError` for what a broker would refuse."""
        if len(payload) > LONGEST_PAYLOAD:
            raise InputError(
                f"its payload has {len(payload):,} bytes, and brokers take {LONGEST_PAYLOAD:,}"
            )
        as_is, size = self._as_is, 0
        checked: dict[str, AttributeValue] = {}
        for name, value in attributes.items():
            kind = type(value)
            if as_is.get(name) is not kind or (kind is int and not _LEAST <= value < _END):
                name, value = self._convert(name, value)
                kind = type(value)
            if kind is str:
                size += len(value)
                if not value.isascii():
                    _check_text(name, value)
            checked[name] = value
        if len(checked) < len(attributes):
            raise InputError("two attributes have names that differ only in case")
        if size > LONGEST_TEXT:
            raise InputError(f"its text has {size:,} characters, and brokers take {LONGEST_TEXT:,}")
        return checked

    def _convert(self, name: str, value: Any) -> tuple[str, AttributeValue]:
        """The attribute's own name, and the value in the form in which it is sent."""
        at = self.schema.place(name)
        if at is None:
            known = ", ".join(each.name for each in self.schema.attributes)
            raise InputError(f"there is no attribute {name!r}, only {known}", value=name)
        attribute = self.schema.attributes[at]
        if attribute.kind is AttributeKind.DECIMAL:
            return attribute.name, _convert_decimal(attribute, value)
        key = attribute.key(value)
        if key is None:
            return attribute.name, None
        # Keys of text and whole numbers may be of types derived from `str` and `int`.
        plain = str.__str__(key) if isinstance(key, str) else int(key)
        return attribute.name, value_of(plain, attribute)


def _convert_decimal(attribute: Attribute, value: Any) -> AttributeValue:
    """A decimal with whatever scale; only the broker knows how many digits there may be."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        return Decimal(value)
    if value is None or isinstance(value, str):
        return None if value is None else str.__str__(value)
    raise InputError(
        f"attribute {attribute.name!r} is {value!r}, not {attribute.kind.value}", value=value
    )


def _check_text(name: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError(
            f"attribute {name!r} is {text!r}, which has half of a surrogate pair", value=text
        ) from None
