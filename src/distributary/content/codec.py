"""Translates the messages of brokers and clients to bytes and back, by msgspec.

A message is a MessagePack array: the number of its type, then its fields in order. A later version
may append fields that have defaults. A filter travels as its boxes, since both ends have the same
schema. `decode` rejects whatever does not fit the schema, so that a machine gets well-formed
messages only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from operator import attrgetter
from typing import Any, Union, get_type_hints

import msgspec

from distributary.content import connections, events, messages, protocol, resync
from distributary.content.messages import Name
from distributary.content.resync import Known
from distributary.errors import InputError
from distributary.model import Box, Comparison, Filter, Key, Pattern, Residual, Schema, Values
from distributary.model.event import AttributeKind
from distributary.model.residual import compare_attributes

__all__ = ["Codec", "MessageError"]


class MessageError(InputError):
    """Bytes that are not a message."""


# A key outside 64 bits, which only decimals have, travels as bytes in an array.
_WireKey = int | str | tuple[bytes]
_Ranges = tuple[tuple[_WireKey, _WireKey | None], ...]
# Tests by attribute, comparisons of two attributes, and patterns.
_WireBox = tuple[
    tuple[tuple[int, _Ranges, bool], ...],
    tuple[tuple[int, str, int], ...],
    tuple[tuple[int, str, bool], ...],
]
_WireFilter = tuple[_WireBox, ...]
_WireKnown = tuple[tuple[tuple[Name, _WireFilter], ...], tuple[tuple[Name, _WireFilter], ...]]
_WireEvent = tuple[int, tuple[_WireKey | None, ...], float, str, bytes]

# The types that are not sent as they are, and what is sent in their place.
_WIRE: dict[Any, Any] = {
    Filter: _WireFilter,
    Known: _WireKnown,
    events.ContentEvent: _WireEvent,
    tuple[messages.Statement, ...]: tuple[msgspec.Raw, ...],
    tuple[Any, ...]: tuple[msgspec.Raw, ...],
    Mapping[str, protocol.AttributeValue]: dict[str, Any],
    Mapping[str, Any]: dict[str, Any],
}

# Numbers are never reused. Messages inside packets from 1, packets from 32, clients' from 64.
_NUMBERS: dict[int, type] = {
    1: messages.AdvertiseStatement,
    2: messages.UnadvertiseStatement,
    3: messages.SubscribeStatement,
    4: messages.UnsubscribeStatement,
    5: messages.Packed,
    6: messages.Publication,
    7: messages.Probe,
    8: messages.Echo,
    9: messages.Barrier,
    10: messages.BarrierPassed,
    11: resync.HeardDigests,
    12: resync.ToldBuckets,
    13: resync.StaleStatements,
    14: resync.SyncComplete,
    15: resync.AskDigests,
    32: connections.Packet,
    33: protocol.LinksKnown,
    48: protocol.Hello,
    49: protocol.Welcome,
    50: protocol.Refusal,
    51: protocol.Goodbye,
    64: protocol.OpenSession,
    65: protocol.Subscribe,
    66: protocol.Unsubscribe,
    67: protocol.Advertise,
    68: protocol.Unadvertise,
    69: protocol.Publish,
    70: protocol.Acknowledge,
    71: protocol.CloseSession,
    72: protocol.AskStatus,
    96: protocol.SessionOpened,
    97: protocol.Accepted,
    98: protocol.Refused,
    99: protocol.Stored,
    100: protocol.Event,
    101: protocol.Dropped,
    102: protocol.SessionClosed,
    103: protocol.Status,
    104: protocol.Ended,
}
_LAST_INSIDE = 31
_LAST_STATEMENT = 4


def _wire_struct(number: int, of: type) -> type[msgspec.Struct]:
    hints = get_type_hints(of)
    found = [
        (
            each.name,
            _WIRE.get(hints[each.name], hints[each.name]),
            msgspec.NODEFAULT if each.default is MISSING else each.default,
        )
        for each in fields(of)
    ]
    return msgspec.defstruct(
        f"Wire{of.__name__}", found, array_like=True, tag=number, frozen=True, gc=False
    )


_STRUCTS = {of: _wire_struct(number, of) for number, of in _NUMBERS.items()}
_TYPES = {struct: of for of, struct in _STRUCTS.items()}


def _make_reader(of: type) -> Callable[[Any], tuple[Any, ...]]:
    """Make a function that reads all fields of a message."""
    names = [each.name for each in fields(of)]
    if len(names) > 1:
        return attrgetter(*names)
    return lambda message: tuple(getattr(message, name) for name in names)


_READERS = {of: _make_reader(of) for of in _STRUCTS}


def _decoder(numbers: range) -> msgspec.msgpack.Decoder[Any]:
    structs = tuple(_STRUCTS[of] for number, of in _NUMBERS.items() if number in numbers)
    return msgspec.msgpack.Decoder(Union[structs])  # noqa: UP007  # of types known at run time


_OUTER = _decoder(range(_LAST_INSIDE + 1, 1 << 16))
_INSIDE = _decoder(range(_LAST_INSIDE + 1))
_STATEMENTS = _decoder(range(_LAST_STATEMENT + 1))


class Codec:
    """Encodes and decodes messages between processes that have the same schema."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._encoder = msgspec.msgpack.Encoder()
        self._pack: dict[Any, Callable[[Any], Any]] = {
            Filter: _pack_filter,
            Known: _pack_known,
            events.ContentEvent: _pack_event,
            tuple[messages.Statement, ...]: self._pack_messages,
            tuple[Any, ...]: self._pack_messages,
        }
        self._unpack: dict[Any, Callable[[Any], Any]] = {
            Filter: self._unpack_filter,
            Known: self._unpack_known,
            events.ContentEvent: self._unpack_event,
            tuple[messages.Statement, ...]: self._unpack_statements,
            tuple[Any, ...]: self._unpack_messages,
        }
        hints = {of: get_type_hints(of) for of in _STRUCTS}
        self._packers = {of: _per_field(of, hints[of], self._pack) for of in _STRUCTS}
        self._unpackers = {of: _per_field(of, hints[of], self._unpack) for of in _STRUCTS}

    def encode(self, message: Any) -> bytes:
        """The bytes of a message."""
        return self._encoder.encode(self._to_wire(message))

    def decode(self, data: bytes | bytearray | memoryview) -> Any:
        """The message, other than one that travels inside a packet; or a `MessageError`."""
        return self._read(_OUTER, data)

    def _to_wire(self, message: Any) -> msgspec.Struct:
        of = type(message)
        packers, read = self._packers[of], _READERS[of]
        if packers is None:
            return _STRUCTS[of](*read(message))
        return _STRUCTS[of](
            *(
                each if pack is None else pack(each)
                for each, pack in zip(read(message), packers, strict=True)
            )
        )

    def _read(self, decoder: msgspec.msgpack.Decoder[Any], data: Any) -> Any:
        try:
            return self._from_wire(decoder.decode(data))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise MessageError(f"this is not a message: {error}") from None

    def _from_wire(self, struct: msgspec.Struct) -> Any:
        of = _TYPES[type(struct)]
        given = msgspec.structs.astuple(struct)
        unpackers = self._unpackers[of]
        if unpackers is None:
            return of(*given)
        return of(
            *(
                each if unpack is None else unpack(each)
                for each, unpack in zip(given, unpackers, strict=True)
            )
        )

    # --- messages inside others ------------------------------------------------------------------

    def _pack_messages(self, found: tuple[Any, ...]) -> list[msgspec.Raw]:
        return [msgspec.Raw(self.encode(each)) for each in found]

    def _unpack_messages(self, found: tuple[msgspec.Raw, ...]) -> tuple[Any, ...]:
        return tuple(self._read(_INSIDE, each) for each in found)

    def _unpack_statements(self, found: tuple[msgspec.Raw, ...]) -> tuple[Any, ...]:
        return tuple(self._read(_STATEMENTS, each) for each in found)

    # --- what the schema gives its meaning -------------------------------------------------------

    def _unpack_event(self, wire: Any) -> events.ContentEvent:
        number, given, published, publisher, payload = wire
        if len(given) != len(self._schema):
            raise MessageError(f"the event has {len(given)} values, the schema {len(self._schema)}")
        keys = tuple(
            None if key is None else _unpack_key(key, attribute.kind)
            for key, attribute in zip(given, self._schema.attributes, strict=True)
        )
        return events.ContentEvent(number, keys, published, publisher, payload)

    def _unpack_known(self, wire: Any) -> Known:
        ads, subs = ({name: self._unpack_filter(of) for name, of in part} for part in wire)
        return Known(ads, subs)

    def _unpack_filter(self, wire: Any) -> Filter:
        return Filter(self._schema, tuple(map(self._unpack_box, wire)))

    def _unpack_box(self, wire: Any) -> Box:
        tests, pairs, patterns = wire
        residuals: list[Residual] = [
            *(self._unpack_comparison(*each) for each in pairs),
            *(self._unpack_pattern(*each) for each in patterns),
        ]
        given = tuple((at, self._unpack_values(at, ranges, null)) for at, ranges, null in tests)
        box = Box.of(given, self._schema, residuals)
        if box is None or box.tests != given or len(box.residuals) != len(residuals):
            raise MessageError("a box of a filter is not in normal form")
        return box

    def _unpack_values(self, at: int, ranges: Any, null: bool) -> Values:
        kind = self._attribute_kind(at)
        given = tuple(
            (_unpack_key(low, kind), None if high is None else _unpack_key(high, kind, end=True))
            for low, high in ranges
        )
        if kind is not AttributeKind.TEXT and any(high is None for _, high in given):
            raise MessageError("a range of numbers has no end")
        values = Values.of(given, kind, null=null)
        if values.ranges != given:
            raise MessageError("the ranges of a test are not in normal form")
        return values

    def _unpack_comparison(self, left: int, sign: str, right: int) -> Comparison:
        self._attribute_kind(left), self._attribute_kind(right)
        attributes = self._schema.attributes
        found = (
            compare_attributes((left, attributes[left]), sign, (right, attributes[right]))
            if left < right and sign in ("=", "<>", "<", "<=", ">", ">=")
            else None
        )
        if found is None:
            raise MessageError(f"attributes {left} and {right} cannot be compared by {sign!r}")
        return found

    def _unpack_pattern(self, at: int, pattern: str, wanted: bool) -> Pattern:
        if self._attribute_kind(at) is not AttributeKind.TEXT:
            raise MessageError(f"attribute {at} is not text, so it has no pattern")
        return Pattern(at, pattern, wanted)

    def _attribute_kind(self, at: int) -> AttributeKind:
        if not 0 <= at < len(self._schema):
            raise MessageError(f"the schema has no attribute {at}")
        return self._schema.attributes[at].kind


def _per_field(
    of: type, hints: Mapping[str, Any], by_type: Mapping[Any, Callable[[Any], Any]]
) -> list[Callable[[Any], Any] | None] | None:
    """How each field is translated, None if it is not; None if no field is."""
    found = [by_type.get(hints[each.name]) for each in fields(of)]
    return found if any(found) else None


def _pack_event(event: events.ContentEvent) -> Any:
    keys = tuple(map(_pack_key, event.keys))
    return event.number, keys, event.published, event.publisher, event.payload


def _pack_known(known: Known) -> Any:
    parts = known.advertisements, known.subscriptions
    return [[(name, _pack_filter(filter)) for name, filter in part.items()] for part in parts]


def _pack_filter(filter: Filter) -> Any:
    return [
        (
            [
                (at, [(_pack_key(a), _pack_key(b)) for a, b in values.ranges], values.null)
                for at, values in box.tests
            ],
            [
                (each.left.at, each.sign, each.right.at)
                for each in box.residuals
                if isinstance(each, Comparison)
            ],
            [
                (each.at, each.pattern, each.wanted)
                for each in box.residuals
                if isinstance(each, Pattern)
            ],
        )
        for box in filter.boxes
    ]


def _pack_key(key: Key | None) -> Key | None:
    if isinstance(key, int) and not -(2**63) <= key < 2**63:
        return (key.to_bytes(key.bit_length() // 8 + 1, signed=True),)
    return key


def _unpack_key(key: Any, kind: AttributeKind, *, end: bool = False) -> Key:
    """The key, if the kind has it; `end` allows the one after the last."""
    if isinstance(key, tuple):
        key = int.from_bytes(key[0], signed=True)
    if isinstance(key, str) != (kind is AttributeKind.TEXT):
        raise MessageError(f"the key {key!r} is not one of {kind.value}")
    if kind.end is not None and not kind.least <= key < kind.end + end:
        raise MessageError(f"the key {key} is out of the range of {kind.value}")
    return key
