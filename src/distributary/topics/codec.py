"""Messages as bytes: MessagePack, an array of the kind, the sender and the message itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from zlib import crc32

import msgspec

from distributary.topics import messages
from distributary.topics.messages import Event
from distributary.topics.numbers import Count, Flow

__all__ = [
    "AROUND",
    "SERVICE",
    "Beat",
    "Bye",
    "Create",
    "Created",
    "Expect",
    "Expired",
    "Forgotten",
    "NoTopic",
    "Pulse",
    "Put",
    "Resume",
    "Taken",
    "decode",
    "digest",
    "encode",
]

AROUND = 1_024  # bytes of a message that are not payload, at most: names are short
SERVICE = "service"  # who is spoken to with what is for no channel


# --- between a client and the service, beside what subscribers and channels say -------------------


class _Word(msgspec.Struct, frozen=True, array_like=True):
    """Fields without their names: events are small, and what is around them should be."""


class Put(_Word, frozen=True):
    """A publisher's event: the `number`-th of a stream of its own to one topic, from 1."""

    stream: Count
    number: Count
    payload: bytes


class Taken(_Word, frozen=True):
    """The events of a stream up to a number are accepted, and will be delivered."""

    stream: Count
    upto: Count


class Expect(_Word, frozen=True):
    """An event of a stream came too early: this one is next."""

    stream: Count
    number: Count


class NoTopic(_Word, frozen=True):
    """Nobody has made this topic."""

    topic: str


class Create(_Word, frozen=True):
    """Make a topic, with a first guess of its events per interval."""

    flow: Flow


class Created(_Word, frozen=True):
    """The topic is there; `new` if it was not before."""

    new: bool


class Expired(_Word, frozen=True):
    """Asked for events from `first` on: the oldest that is kept is a later one."""

    topic: str
    first: Count
    oldest: Count


class Resume(_Word, frozen=True):
    """Asked for events as of another epoch: since then, `number` was the first that is new.

    Whoever has that one or a later one has events that the service has lost.
    """

    topic: str
    epoch: Count
    number: Count


class Beat(_Word, frozen=True):
    """A client is alive; `generation` counts how often it was found dead before.

    `joined` if it takes it that it is on some channel; `digest` tells on which.
    """

    generation: Count
    joined: bool
    digest: Count = 0


class Pulse(_Word, frozen=True):
    """The service is alive and answers a beat; this is how it wants subscribers to be.

    `identity` stays as long as the service knows what it knew, `epoch` until it starts again.
    """

    identity: str
    tells: bool
    obeys: bool
    refresh: Flow
    epoch: Count = 0


class Forgotten(_Word, frozen=True):
    """The client was found dead in that generation: it must come to its channels anew."""

    generation: Count


class Bye(_Word, frozen=True):
    """A client goes for good."""


_OURS = (
    *(Put, Taken, Expect, NoTopic, Create, Created, Expired, Resume, Beat, Pulse, Forgotten, Bye),
)
_KINDS: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (*_OURS, *messages.OVERHEAD, messages.Repair)
}
_EVENT = Event.__name__


class _Envelope(msgspec.Struct, array_like=True, frozen=True):
    kind: str
    sender: str
    message: msgspec.Raw


class _Event(_Word, frozen=True):
    """An `Event` on its way."""

    topic: str
    number: Count
    payload: bytes
    epoch: Count = 0


_envelope = msgspec.msgpack.Decoder(_Envelope)
_decoders = {name: msgspec.msgpack.Decoder(kind) for name, kind in _KINDS.items()}
_events = msgspec.msgpack.Decoder(_Event)
_encoder = msgspec.msgpack.Encoder()


def digest(channels: Iterable[str]) -> int:
    """A number that tells some channels from others, in any order; 0 if there are none."""
    return sum(crc32(name.encode()) + 1 for name in channels)


def encode(sender: str, message: Any) -> bytes:
    """A message and who says it."""
    if isinstance(message, Event):
        event = _Event(message.topic, message.number, message.payload, message.epoch)
        return _encoder.encode((_EVENT, sender, event))
    return _encoder.encode((type(message).__name__, sender, message))


def decode(data: bytes) -> tuple[str, Any]:
    """The sender and the message; a ValueError if that is not what the bytes are."""
    try:
        return _decode(data)
    except RecursionError:
        raise ValueError("arrays within arrays, deeper than any message of ours") from None


def _decode(data: bytes) -> tuple[str, Any]:
    envelope = _envelope.decode(data)
    if envelope.kind == _EVENT:
        event = _events.decode(envelope.message)
        return envelope.sender, Event(event.topic, event.number, event.payload, event.epoch)
    decoder = _decoders.get(envelope.kind)
    if decoder is None:
        raise ValueError(f"there is no message {envelope.kind!r}")
    return envelope.sender, decoder.decode(envelope.message)
