"""Translates what a broker saves to keys and bytes of a store, and back.

A value is MessagePack: numbers, texts, bytes and truth values as they are; anything else is an
array that begins with the number of its type. A filter is stored as its boxes, so it means the same
only under the same schema. Whoever reads rows knows by their checksums that they are as they were
written: `decode` checks just enough to fail with a `ValueError`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import fields, is_dataclass
from sys import intern
from typing import Any

import msgspec

from distributary.content.events import ContentEvent
from distributary.content.history import Seen
from distributary.content.messages import Name, Publication
from distributary.content.outbox import Gap, OutboxItem
from distributary.content.protocol import LinkFact
from distributary.content.sessions import SessionRecord
from distributary.model import Box, Comparison, Filter, Pattern, Residual, Schema, Values
from distributary.model.residual import compare_attributes

__all__ = ["StateCodec"]

# Numbers are never reused, and fields are only appended, with defaults.
_TYPES: dict[int, Any] = {
    4: Name,
    5: Publication,
    6: ContentEvent,
    7: Seen,
    8: SessionRecord,
    9: OutboxItem,
    10: Gap,
    11: LinkFact,
}
_TUPLE, _LONG, _FILTER = 0, 1, 2
_NUMBERS = {of: number for number, of in _TYPES.items()}
_FIELDS: dict[Any, tuple[str, ...]] = {
    of: tuple(each.name for each in fields(of)) if is_dataclass(of) else of._fields
    for of in _TYPES.values()
}
_PLAIN = {str, float, bool, bytes, type(None)}
_UNREADABLE = (
    msgspec.MsgspecError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    UnicodeDecodeError,
    ValueError,
)


class StateCodec:
    """Encodes and decodes what brokers with one schema save.

    Equal tests of filters that the same codec decodes are one object, which saves memory; so are
    equal names of brokers.
    """

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._tests: dict[tuple[Any, ...], tuple[int, Values]] = {}
        self._latest: tuple[Publication | None, msgspec.Raw] = None, msgspec.Raw()
        self._readers: dict[int, Callable[[list[Any]], Any]] = {
            _TUPLE: self._read_tuple,
            _LONG: lambda found: int.from_bytes(found[1], signed=True),
            _FILTER: self._read_filter,
            **{number: self._reader_of(of) for number, of in _TYPES.items()},
            _NUMBERS[Name]: lambda found: Name(intern(found[1]), found[2]),
        }

    # --- keys ------------------------------------------------------------------------------------

    def encode_key(self, key: Hashable) -> str:
        """A key of a `Save` as text: texts, numbers and names in a JSON array."""
        return msgspec.json.encode(key).decode()

    def decode_key(self, text: str) -> tuple[Hashable, ...]:
        """The key of a text; or a `ValueError`."""
        try:
            found = msgspec.json.decode(text, type=list[str | int | tuple[str, int]])
        except msgspec.MsgspecError as error:
            raise ValueError(f"not a key: {error}") from None
        return tuple(map(_read_part, found))

    # --- values ----------------------------------------------------------------------------------

    def encode(self, value: object) -> bytes:
        """The bytes of a value; `TypeError` if it has a part of an unknown type."""
        item = self._pack_item(value) if type(value) is OutboxItem else _pack(value)
        return msgspec.msgpack.encode(item)

    def _pack_item(self, item: OutboxItem) -> Any:
        """An item with its publication, which is encoded once for all clients in a row."""
        publication, encoded = self._latest
        if publication is not item.publication:
            encoded = msgspec.Raw(msgspec.msgpack.encode(_pack(item.publication)))
            self._latest = item.publication, encoded
        return [_NUMBERS[OutboxItem], encoded, _pack(item.subscriptions)]

    def decode(self, data: bytes) -> object:
        """The value of the bytes; or a `ValueError`."""
        try:
            return self._read(msgspec.msgpack.decode(data))
        except _UNREADABLE as error:
            raise ValueError(f"not a saved value: {error}") from None

    def _read(self, found: Any) -> Any:
        return self._readers[found[0]](found) if type(found) is list else found

    def _read_tuple(self, found: list[Any]) -> tuple[Any, ...]:
        return tuple(map(self._read, found[1:]))

    def _reader_of(self, of: Any) -> Callable[[list[Any]], Any]:
        return lambda found: of(*map(self._read, found[1:]))

    def _read_filter(self, found: list[Any]) -> Filter:
        return Filter(self._schema, tuple(map(self._read_box, found[1:])))

    def _read_box(self, found: list[Any]) -> Box:
        tests, residuals = found
        return Box(tuple(map(self._read_test, tests)), tuple(map(self._read_residual, residuals)))

    def _read_test(self, found: list[Any]) -> tuple[int, Values]:
        key: tuple[Any, ...] = tuple(
            each if type(each) is not list else int.from_bytes(each[1], signed=True)
            for each in found
        )
        test = self._tests.get(key)
        if test is None:
            at, null, *ends = key
            self._schema.attributes[at]  # there is such an attribute
            values = Values(tuple(zip(ends[::2], ends[1::2], strict=True)), null)
            test = self._tests[key] = at, values
        return test

    def _read_residual(self, found: list[Any]) -> Residual:
        if isinstance(found[1], int):
            left, right, sign = found
            attributes = self._schema.attributes
            compared = compare_attributes(
                (left, attributes[left]), sign, (right, attributes[right])
            )
            if compared is None:
                raise ValueError(f"attributes {left} and {right} cannot be compared")
            return compared
        return Pattern(*found)


def _read_part(part: str | int | tuple[str, int]) -> Hashable:
    """A part of a key; names of brokers and clients are repeated in many, so they are interned."""
    if isinstance(part, tuple):
        return Name(intern(part[0]), part[1])
    return intern(part) if isinstance(part, str) else part


def _pack(value: Any) -> Any:
    of = type(value)
    if of in _PLAIN:
        return value
    if of is int:
        return _pack_int(value)
    if of is tuple:
        return [_TUPLE, *map(_pack, value)]
    if of is Filter:
        return [_FILTER, *map(_pack_box, value.boxes)]
    number = _NUMBERS.get(of)
    if number is None:
        raise TypeError(f"a broker cannot save {value!r}")
    return [number, *(_pack(getattr(value, name)) for name in _FIELDS[of])]


def _pack_int(value: int) -> Any:
    if -(2**63) <= value < 2**63:
        return value
    return [_LONG, value.to_bytes(value.bit_length() // 8 + 1, signed=True)]


def _pack_box(box: Box) -> Any:
    tests = [
        [at, values.null, *(_pack_end(end) for ends in values.ranges for end in ends)]
        for at, values in box.tests
    ]
    return tests, [_pack_residual(each) for each in box.residuals]


def _pack_end(end: Any) -> Any:
    return _pack_int(end) if type(end) is int else end


def _pack_residual(residual: Residual) -> Any:
    if isinstance(residual, Comparison):
        return residual.left.at, residual.right.at, residual.sign
    return residual.at, residual.pattern, residual.wanted
