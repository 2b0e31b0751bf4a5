"""Encodes the messages of peers and clients as MessagePack: the number of the type, and its fields.

A peer travels as its name alone, from which its place on the ring follows, so nobody can claim
another place. What channels and clients say is encoded as on NATS (`topics/codec.py`). `decode`
refuses whatever does not fit, so that machines get well-formed messages only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Annotated, Any, NamedTuple, get_type_hints

import msgspec

from distributary.topics import codec
from distributary.topics.host import ChannelMessage
from distributary.topics.messages import Event
from distributary.topics.names import LONGEST_TOPIC, is_channel
from distributary.topics.numbers import Count, Flow
from distributary.topics.overlay import messages as m
from distributary.topics.overlay.identifiers import Peer, make_peer
from distributary.topics.peer.messages import (
    Listen,
    Neighbours,
    ToChannel,
    ToClient,
    Unlisten,
    Vouch,
    Vouched,
)

__all__ = ["CLIENT_SIDE", "PEER_SIDE", "RING", "PeerCodec"]

# Numbers are never reused. Between peers from 1, between a client and its peer from 64.
_NUMBERS: dict[int, type] = {
    1: m.KeepAlive,
    2: m.LivenessProbe,
    3: m.ProbeAnswer,
    4: m.Route,
    5: m.RouteAck,
    6: m.OverlayJoin,
    7: m.Welcome,
    8: m.Announce,
    9: m.OverlayLeave,
    10: m.EntryRequest,
    11: m.EntryAnswer,
    12: m.TreeSubscribe,
    13: m.TreeSubscribed,
    14: m.TreeUnsubscribe,
    15: m.Orphan,
    16: m.TreeKeepAlive,
    17: m.Refresh,
    18: m.Events,
    19: m.CreateGroup,
    20: m.Replicate,
    21: m.Replicated,
    22: m.Seat,
    23: m.Seated,
    24: m.Recover,
    25: m.Recovered,
    26: m.Fetch,
    27: m.Copied,
    28: m.Bequest,
    29: m.Release,
    30: m.BallotRefused,
    31: ToChannel,
    32: ToClient,
    33: Vouch,
    34: Vouched,
    64: ChannelMessage,
    65: Listen,
    66: Unlisten,
    67: Neighbours,
}
_ROUTED = frozenset({m.OverlayJoin, m.CreateGroup, ToChannel, Vouch})

_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_TOPIC)]
_Channel = Annotated[str, msgspec.Meta(min_length=1, max_length=2 * LONGEST_TOPIC)]
_Key = Annotated[int, msgspec.Meta(ge=0)]  # msgpack's integers end where keys do
_Version = tuple[tuple[Count, _Key], Count]
_Slot = Annotated[int, msgspec.Meta(ge=0, lt=16)]

_SHORT_ARRAY, _MASK = 0x90, 0xF0  # how MessagePack begins arrays of up to 15 items

_encoder = msgspec.msgpack.Encoder()


class _Form(NamedTuple):
    """How a field travels: its type on the wire, and the translations, if any."""

    wire: Any
    encode: Callable[[Any], Any] | None = None
    decode: Callable[[Any], Any] | None = None


@lru_cache(100_000)
def _peer(name: str) -> Peer:
    return make_peer(name)


def _peers(names: Iterable[str]) -> tuple[Peer, ...]:
    return tuple(map(_peer, names))


def _said(raw: msgspec.Raw) -> Any:
    return codec.decode(bytes(raw))[1]


def _encode_said(said: Any) -> msgspec.Raw:
    return msgspec.Raw(codec.encode("", said))


def _encode_members(found: m.Members) -> tuple[Any, tuple[str, ...]]:
    return found.version, _names(found.peers)


def _decode_members(found: tuple[Any, tuple[str, ...]]) -> m.Members:
    return m.Members(found[0], _peers(found[1]))


def _event(found: tuple[msgspec.Raw, float]) -> m.GroupPublication:
    raw, since = found
    event = _said(raw)
    if not isinstance(event, Event):
        raise msgspec.ValidationError(f"a tree carries events, not {type(event).__name__}")
    return m.GroupPublication(_NOBODY, 0, event, since)


def _names(peers: Iterable[Peer]) -> tuple[str, ...]:
    return tuple(peer.name for peer in peers)


_NOBODY = Peer(0, "")  # events do not say who was the root
_PEER = _Form(_Name, lambda peer: peer.name, _peer)
_MAYBE_PEER = _Form(
    _Name | None,
    lambda peer: None if peer is None else peer.name,
    lambda name: None if name is None else _peer(name),
)
_PEERS = _Form(tuple[_Name, ...], _names, _peers)
_LEAVES = _Form(
    tuple[_Name, ...],
    lambda leaves: tuple(leaves),
    lambda names: {name: _peer(name) for name in names},
)
_MEMBERS = _Form(tuple[_Version, tuple[_Name, ...]], _encode_members, _decode_members)
_MAYBE_MEMBERS = _Form(
    _MEMBERS.wire | None,
    lambda found: None if found is None else _encode_members(found),
    lambda found: None if found is None else _decode_members(found),
)
_SAID = _Form(msgspec.Raw, _encode_said, _said)
_PUBLICATIONS = _Form(
    tuple[tuple[msgspec.Raw, Flow], ...],
    lambda found: [(_encode_said(each.payload), each.since) for each in found],
    lambda found: tuple(map(_event, found)),
)
_ROUTABLE = _Form(
    msgspec.Raw,
    lambda payload: msgspec.Raw(_encode(payload)),
    lambda raw: _decode(bytes(raw), _ROUTED),
)
_RECORDS = _Form(tuple[bytes, ...])
_CLIENTS = _Form(dict[_Channel, tuple[_Name, ...]])
_KEY, _COUNT = _Form(_Key), _Form(Count)

# By the name of the field, then by its type; everything else travels as it is.
_BY_NAME: dict[str, _Form] = {
    "group": _KEY,
    "key": _KEY,
    "leaves": _LEAVES,
    "entries": _RECORDS,
    "publications": _PUBLICATIONS,
    "payload": _ROUTABLE,
    "message": _SAID,
    "clients": _CLIENTS,
    "strangers": _CLIENTS,
    "channel": _Form(_Channel),
    "client": _Form(_Name),
    "sender": _Form(_Channel),
    "slot": _Form(tuple[_Slot, _Slot]),
    "groups": _Form(tuple[tuple[_Key, Count | None], ...]),
    "version": _Form(_Version),
    "names": _Form(tuple[_Name, ...]),
    "channels": _Form(tuple[_Channel, ...]),
    "elsewhere": _Form(tuple[_Channel, ...]),
}
_BY_TYPE: dict[Any, _Form] = {
    Peer: _PEER,
    Peer | None: _MAYBE_PEER,
    tuple[Peer, ...]: _PEERS,
    m.Members: _MEMBERS,
    m.Members | None: _MAYBE_MEMBERS,
    m.Ballot: _Form(tuple[Count, _Key]),
    int: _COUNT,
    int | None: _Form(Count | None),
}
_CONTENT: dict[type, _Form] = {m.Replicate: _Form(tuple[bytes, ...] | None)}


class _Layout(NamedTuple):
    kind: type
    number: int
    encoders: tuple[tuple[str, Callable[[Any], Any] | None], ...]  # None: it travels as it is
    decoders: tuple[Callable[[Any], Any] | None, ...]
    decoder: msgspec.msgpack.Decoder[Any]


def _lay_out(number: int, kind: type) -> _Layout:
    hints = get_type_hints(kind)
    each = fields(kind) if is_dataclass(kind) else msgspec.structs.fields(kind)
    names = tuple(one.name for one in each)
    forms = tuple(_form(kind, name, hints[name]) for name in names)
    wire: Any = tuple.__class_getitem__((int, *(form.wire for form in forms)))
    encoders = tuple((name, form.encode) for name, form in zip(names, forms, strict=True))
    decoders = tuple(form.decode for form in forms)
    return _Layout(kind, number, encoders, decoders, msgspec.msgpack.Decoder(wire))


def _form(kind: type, name: str, hint: Any) -> _Form:
    if name == "content":
        return _CONTENT.get(kind, _RECORDS)
    return _BY_NAME.get(name) or _BY_TYPE.get(hint) or _Form(hint)


_LAYOUTS = {number: _lay_out(number, kind) for number, kind in _NUMBERS.items()}
_BY_KIND = {layout.kind: layout for layout in _LAYOUTS.values()}


def _encode(message: Any) -> bytes:
    layout = _BY_KIND[type(message)]
    values: list[Any] = [layout.number]
    for name, encode in layout.encoders:
        value = getattr(message, name)
        values.append(value if encode is None else encode(value))
    return _encoder.encode(values)


def _decode(data: bytes, kinds: frozenset[type]) -> Any:
    if len(data) < 2 or data[0] & _MASK != _SHORT_ARRAY:
        raise ValueError("a message is an array")
    layout = _LAYOUTS.get(data[1])  # numbers below 128 are one byte
    if layout is None or layout.kind not in kinds:
        raise ValueError("there is no such message here")
    _, *found = layout.decoder.decode(data)
    for at, decode in enumerate(layout.decoders):
        if decode is not None:
            found[at] = decode(found[at])
    message = layout.kind(*found)
    if isinstance(message, ToChannel | ToClient) and not is_channel(message.channel):
        raise ValueError(f"{message.channel!r} is no channel")
    return message


class PeerCodec:
    """Encodes any message, and decodes those of the given types."""

    def __init__(self, kinds: Iterable[type]) -> None:
        self._kinds = frozenset(kinds)

    def encode(self, message: Any) -> bytes:
        """Encode a message."""
        return _encode(message)

    def decode(self, data: bytes) -> Any:
        """Decode a message; raises `ValueError` for anything else."""
        try:
            return _decode(data, self._kinds)
        except RecursionError:
            raise ValueError("the arrays are nested deeper than in any message") from None


RING = PeerCodec(kind for number, kind in _NUMBERS.items() if number < 64)
PEER_SIDE = PeerCodec((ChannelMessage, Listen, Unlisten))  # what a peer takes from clients
CLIENT_SIDE = PeerCodec((ChannelMessage, Neighbours))
