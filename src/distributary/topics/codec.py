"""Encodes messages as MessagePack: an array of the kind, the sender and the message itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from zlib import crc32

import msgspec

from distributary.topics import messages
from distributary.topics.messages import Event, kind_of
from distributary.topics.numbers import MOST, Count, Flow

__all__ = [
    "AROUND",
    "SERVICE",
    "Beat",
    "Bye",
    "Create",
    "Created",
    "EventRun",
    "Expect",
    "Expired",
    "Forgotten",
    "Missed",
    "NoTopic",
    "Pulse",
    "Put",
    "Puts",
    "Remove",
    "Removed",
    "Resume",
    "Taken",
    "checksum",
    "decode",
    "digest",
    "encode",
    "mark_of",
]

AROUND = 1_024  # bytes of a message that are reserved for all but the payload
SERVICE = "service"  # the receiver of messages that are for no channel


# --- between a client and the service ------------------------------------------------------------


class _Word(msgspec.Struct, frozen=True, array_like=True):
    """A message without field names, to keep the overhead of small events low."""


class Put(_Word, frozen=True):
    """A publisher's event: number `number`, from 1, of one of its streams to one topic."""

    stream: Count
    number: Count
    payload: bytes


def _check_last(first: int, payloads: tuple[bytes, ...]) -> None:
    if first + len(payloads) - 1 > MOST:
        raise ValueError("the numbers of events are too large")


class Puts(_Word, frozen=True):
    """Consecutive events of one stream, the first with number `first`, as between peers."""

    stream: Count
    first: Count
    payloads: tuple[bytes, ...]

    def __post_init__(self) -> None:
        _check_last(self.first, self.payloads)


class EventRun(_Word, frozen=True):
    """Consecutive events of one topic and epoch, the first with number `first`, for a client."""

    topic: str
    first: Count
    payloads: tuple[bytes, ...]
    epoch: Count = 0

    def __post_init__(self) -> None:
        _check_last(self.first, self.payloads)


class Taken(_Word, frozen=True):
    """The service has accepted the events of a stream up to a number and will deliver them."""

    stream: Count
    upto: Count


class Expect(_Word, frozen=True):
    """An event of a stream arrived out of order: the service expects this number."""

    stream: Count
    number: Count


class NoTopic(_Word, frozen=True):
    """The topic does not exist."""

    topic: str


class Create(_Word, frozen=True):
    """Create a topic, with a first guess of its events per interval."""

    flow: Flow


class Created(_Word, frozen=True):
    """The topic exists; `new` if this request created it."""

    new: bool


class Remove(_Word, frozen=True):
    """Remove a topic, with its events and subscriptions."""


class Removed(_Word, frozen=True):
    """The topic does not exist any more; `existed` if this request removed it."""

    existed: bool


class Expired(_Word, frozen=True):
    """Events from `first` on were requested; the oldest that is still kept is `oldest`."""

    topic: str
    first: Count
    oldest: Count


class Resume(_Word, frozen=True):
    """Events of an earlier epoch were requested; `number` is the first accepted after it.

    A subscriber that has this number or a later one has events that the service has lost, if it is
    still in the epoch `after`, for which it asked.
    """

    topic: str
    epoch: Count
    number: Count
    after: Count | None = None


class Beat(_Word, frozen=True):
    """A client's heartbeat; `generation` counts how often it was declared dead.

    `joined` tells whether the client believes to be on any channel; `digest` is the digest of
    these. `pulse` is the checksum of the last `Pulse`, which is not said again while it holds.
    """

    generation: Count
    joined: bool
    digest: Count = 0
    pulse: Count = 0


class Pulse(_Word, frozen=True):
    """The service's answer to a heartbeat, with the policy that subscribers must follow.

    `identity` stays the same while the service keeps its state; `epoch` changes with each start.
    """

    identity: str
    tells: bool
    obeys: bool
    refresh: Flow
    epoch: Count = 0


class Forgotten(_Word, frozen=True):
    """The client was declared dead in that generation and must join its channels again."""

    generation: Count


class Missed(_Word, frozen=True):
    """Events of the sending channel may have been lost on the way: request them."""


class Bye(_Word, frozen=True):
    """A client disconnects for good."""


_OURS = (
    *(Put, Puts, EventRun, Taken, Expect, NoTopic, Create, Created, Remove, Removed),
    *(Expired, Resume, Beat, Pulse, Forgotten, Missed, Bye),
)
_KINDS: dict[str, type[Any]] = {
    kind_of(kind): kind for kind in (*_OURS, *messages.OVERHEAD, messages.Repair)
}
_EVENT = kind_of(Event)


class _Envelope(msgspec.Struct, array_like=True, frozen=True):
    kind: str
    sender: str
    message: msgspec.Raw


class _Event(_Word, frozen=True):
    """An `Event` as it is encoded."""

    topic: str
    number: Count
    payload: bytes
    epoch: Count = 0


_envelope = msgspec.msgpack.Decoder(_Envelope)
_decoders = {name: msgspec.msgpack.Decoder(kind) for name, kind in _KINDS.items()}
_events = msgspec.msgpack.Decoder(_Event)
_encoder = msgspec.msgpack.Encoder()


def digest(channels: Iterable[str]) -> int:
    """A digest of a set of channels, independent of their order; 0 for the empty set."""
    return sum(crc32(name.encode()) + 1 for name in channels)


def checksum(pulse: Pulse) -> int:
    """A checksum of a pulse, never 0."""
    return crc32(_encoder.encode(pulse)) + 1


def mark_of(epoch: int) -> int:
    """15 bits of an epoch, which tell it from the few that a subscriber knows of."""
    return epoch & 0x7FFF


def encode(sender: str, message: Any) -> bytes:
    """Encode a message and its sender."""
    if isinstance(message, Event):
        event = _Event(message.topic, message.number, message.payload, message.epoch)
        return _encoder.encode((_EVENT, sender, event))
    return _encoder.encode((kind_of(type(message)), sender, message))


def decode(data: bytes) -> tuple[str, Any]:
    """Decode the sender and the message; raises `ValueError` for anything else."""
    try:
        return _decode(data)
    except RecursionError:
        raise ValueError("the arrays are nested deeper than in any message") from None


def _decode(data: bytes) -> tuple[str, Any]:
    envelope = _envelope.decode(data)
    if envelope.kind == _EVENT:
        event = _events.decode(envelope.message)
        return envelope.sender, Event(event.topic, event.number, event.payload, event.epoch)
    decoder = _decoders.get(envelope.kind)
    if decoder is None:
        raise ValueError(f"there is no message {envelope.kind!r}")
    return envelope.sender, decoder.decode(envelope.message)
