"""The durable state of a host, and the log records from which it is restored.

An event is one record. For any other change of a channel, the record holds the fields that changed,
the one subscriber concerned, and the carried topics that changed, not the whole state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec

from distributary.topics.carriage import Carriage, ClusterState
from distributary.topics.channel import Member
from distributary.topics.departures import Departure, depart
from distributary.topics.messages import Event
from distributary.topics.names import is_cluster
from distributary.topics.numbers import Count
from distributary.topics.policy import Policy
from distributary.topics.topic import TopicState

__all__ = ["UNUSABLE", "Death", "End", "HostLog", "HostState", "State", "Stream", "is_record"]

State = TopicState | ClusterState
T = TypeVar("T")

# The exceptions of `HostState.replay` for a record that cannot be replayed.
UNUSABLE = (msgspec.MsgspecError, ValueError, TypeError, ArithmeticError, RecursionError)

_APART = frozenset({"members", "departed", "topics", "history"})  # recorded item by item
_PART, _PART_BYTES = 1_000, 1 << 20  # items and bytes per record of a snapshot


class _Patch(msgspec.Struct, array_like=True, tag="patch"):
    """The changed fields of a channel, and some of its subscribers and carried topics.

    None marks one as removed. In older records the topics are among the fields.
    """

    channel: str
    fields: msgspec.Raw
    members: dict[str, Member | None]
    departed: dict[str, Departure | None]
    topics: dict[str, Carriage | None] = {}


class _Accepted(msgspec.Struct, array_like=True, tag="accepted"):
    channel: str
    stream: str
    number: Count
    payload: bytes
    at: float


class _History(msgspec.Struct, array_like=True, tag="history"):
    channel: str
    events: list[tuple[Count, bytes]]


class _Streams(msgspec.Struct, array_like=True, tag="streams"):
    """The last accepted number of each stream and its time; None forgets the stream."""

    channel: str
    streams: dict[str, tuple[Count, float] | None]


class _Dead(msgspec.Struct, array_like=True, tag="dead"):
    """A client was declared dead in a generation; None forgets that."""

    client: str
    generation: Count | None
    at: float


class _Removed(msgspec.Struct, array_like=True, tag="thrown"):
    channel: str


class _Ended(msgspec.Struct, array_like=True, tag="ended"):
    """A topic was removed; None forgets that."""

    channel: str
    next_number: Count | None
    at: float


class _Identity(msgspec.Struct, array_like=True, tag="identity"):
    identity: str


class _Epoch(msgspec.Struct, array_like=True, tag="epoch"):
    """The host has started; the events that follow belong to this epoch."""

    epoch: Count


_Record = _Patch | _Accepted | _History | _Streams | _Dead | _Removed | _Ended | _Identity | _Epoch
_decoder = msgspec.msgpack.Decoder(_Record)
_encoder = msgspec.msgpack.Encoder()
_NOTHING = _encoder.encode({})
_TAGS = {kind.__struct_config__.tag for kind in get_args(_Record)}
_HINTS = {kind: get_type_hints(kind) for kind in (TopicState, ClusterState)}


@dataclass(slots=True)
class Stream:
    """A publisher's stream to one topic: the last accepted number and its time."""

    upto: int
    at: float


@dataclass(frozen=True, slots=True)
class Death:
    """The last generation in which a client was declared dead, and when."""

    generation: int
    at: float


@dataclass(frozen=True, slots=True)
class End:
    """A topic that was removed: the number that its next event would have had, and when."""

    next_number: int
    at: float


@dataclass(slots=True)
class HostState:
    """The durable state of a host."""

    states: dict[str, State] = field(default_factory=dict)  # by channel
    streams: dict[str, dict[str, Stream]] = field(default_factory=dict)  # by channel
    dead: dict[str, Death] = field(default_factory=dict)  # by client, also after its return
    ended: dict[str, End] = field(default_factory=dict)  # removed topics, by channel
    epoch: int = 0  # of the last start of the host
    identity: str = ""  # differs for a host that started from another state

    def replay(self, record: bytes, policy: Policy) -> None:
        """Apply a record of a `HostLog` or of a snapshot; raises `UNUSABLE` if that fails."""
        self.apply(_decoder.decode(record), policy)

    def snapshot(self) -> Iterator[bytes]:
        """Encode the state as records of bounded size that recreate it from an empty one."""
        yield _encoder.encode(_Identity(self.identity))
        yield _encoder.encode(_Epoch(self.epoch))
        for channel, state in self.states.items():
            yield from _encode_state(channel, state)
        for channel, streams in self.streams.items():
            found = [(name, (stream.upto, stream.at)) for name, stream in streams.items()]
            for part in [*_split(found)] or [[]]:
                yield _encoder.encode(_Streams(channel, {**dict(part)}))
        for client, death in self.dead.items():
            yield _encoder.encode(_Dead(client, death.generation, death.at))
        for channel, end in self.ended.items():
            yield _encoder.encode(_Ended(channel, end.next_number, end.at))

    def apply(self, record: _Record, policy: Policy) -> None:
        """Apply a decoded record."""
        match record:
            case _Patch():
                self._patch(record, policy)
            case _Accepted(channel, stream, number, payload, at):
                self._topic(channel).accept(payload, at, policy, self.epoch)
                self.mark_stream(channel, stream, number, at)
            case _History(channel, events):
                state = self._topic(channel)
                for event in events:
                    kept = Event(state.topic, *event, state.epoch_of(event[0]))
                    state.history.append(kept, policy.history, policy.history_bytes)
            case _Streams(channel, streams):
                held = self.streams.setdefault(channel, {})
                for name, last in streams.items():
                    held.pop(name, None)
                    if last is not None:
                        held[name] = Stream(*last)
            case _Dead(client, None, _):
                self.dead.pop(client, None)
            case _Dead(client, generation, at) if generation is not None:
                self.dead[client] = Death(generation, at)
            case _Removed(channel):
                self.states.pop(channel, None)
            case _Ended(channel, None, _):
                self.ended.pop(channel, None)
            case _Ended(channel, number, at) if number is not None:
                self.states.pop(channel, None)
                self.streams.pop(channel, None)
                self.ended[channel] = End(number, at)
            case _Identity(identity):
                self.identity = identity
            case _Epoch(epoch):
                self.epoch = epoch

    def mark_stream(self, channel: str, stream: str, number: int, at: float) -> None:
        """Remember the last accepted event of a publisher's stream."""
        self.streams.setdefault(channel, {})[stream] = Stream(number, at)

    def _patch(self, patch: _Patch, policy: Policy) -> None:
        kind = ClusterState if is_cluster(patch.channel) else TopicState
        found: dict[str, Any] = msgspec.msgpack.decode(patch.fields)
        changes = {  # convert all before applying any
            name: msgspec.convert(value, _HINTS[kind][name])
            for name, value in found.items()
            if name in _HINTS[kind]
        }
        state = self.states.get(patch.channel)
        if state is None:
            state = self.states[patch.channel] = kind()
        for name, value in changes.items():
            setattr(state, name, value)
        for member, held in patch.members.items():
            if held is None:
                state.members.pop(member, None)
            else:
                state.members[member] = held
        for name, last in patch.departed.items():
            if last is None:
                state.departed.pop(name, None)
            else:  # also forgets old departures, as the channel did
                depart(state.departed, name, last, policy.remember)
        if isinstance(state, ClusterState):
            for topic, carried in patch.topics.items():
                if carried is None:
                    state.topics.pop(topic, None)
                else:
                    state.topics[topic] = carried

    def _topic(self, channel: str) -> TopicState:
        state = self.states.get(channel)
        if not isinstance(state, TopicState):
            raise TypeError(f"{channel!r} is not the channel of a known topic")
        return state


class HostLog:
    """Records the changes of a host's state.

    Channels change their own state and the host reports these changes here. Everything else changes
    by applying its record.
    """

    def __init__(self, state: HostState, policy: Policy) -> None:
        self.state = state
        self._policy = policy
        self._fields: dict[str, bytes] = {}  # of each channel, as last recorded
        self._topics: dict[str, dict[str, Carriage]] = {}  # of each cluster, as last recorded
        self._changed: dict[str, dict[str, None]] = {}  # channels, and whom the changes concern
        self._records: list[bytes] = []

    def take(self) -> list[bytes]:
        """Return the records since the last call."""
        self._record_changed()
        records, self._records = self._records, []
        return records

    def begin_epoch(self, now: float) -> None:
        """Start a new epoch, with a number that no earlier start used.

        A state restored from an old copy does not know of later starts, so the number is taken from
        the clock if that is larger.
        """
        self._change(_Epoch(max(self.state.epoch + 1, int(now * 1_000))))

    def record_channel(self, channel: str, state: State, who: str | None = None) -> None:
        """Record a change of a channel that concerned the subscriber `who`, or none.

        The record is written with the next one of another kind, or by `take`: a channel that
        changes with each of a hundred messages is encoded once.
        """
        self.state.states[channel] = state
        concerned = self._changed.setdefault(channel, {})
        if who is not None:
            concerned[who] = None

    def _record_changed(self) -> None:
        changed, self._changed = self._changed, {}
        for channel, concerned in changed.items():
            state = self.state.states[channel]
            body = _encoder.encode(_plain_fields(state))
            same = self._fields.get(channel) == body
            self._fields[channel] = body
            topics = self._find_changed_topics(channel, state)
            if same and not concerned and not topics:
                continue
            raw = msgspec.Raw(_NOTHING if same else body)
            members = {who: state.members.get(who) for who in concerned}
            departed = {who: state.departed.get(who) for who in concerned}
            self._records.append(_encoder.encode(_Patch(channel, raw, members, departed, topics)))

    def _find_changed_topics(self, channel: str, state: State) -> dict[str, Carriage | None]:
        """The carried topics that are not as last recorded; None for those no longer carried."""
        if not isinstance(state, ClusterState):
            return {}
        before, now = self._topics.get(channel, {}), state.topics
        if before == now:
            return {}
        self._topics[channel] = dict(now)
        gone = dict.fromkeys(topic for topic in before if topic not in now)
        return gone | {topic: held for topic, held in now.items() if before.get(topic) != held}

    def record_event(
        self, channel: str, stream: str, number: int, payload: bytes, at: float
    ) -> None:
        """Record an event that a topic has just accepted, before any other change of it."""
        self.state.mark_stream(channel, stream, number, at)
        self._record(_Accepted(channel, stream, number, payload, at))

    def remove_channel(self, channel: str) -> None:
        """Forget a cluster that has ended."""
        self._change(_Removed(channel))
        self._fields.pop(channel, None)
        self._topics.pop(channel, None)

    def remove_topic(self, channel: str, next_number: int, at: float) -> None:
        """Remove a topic, with all that belongs to it."""
        self._change(_Ended(channel, next_number, at))
        self._fields.pop(channel, None)

    def forget_end(self, channel: str) -> None:
        """Forget a topic that was removed long ago."""
        self._change(_Ended(channel, None, 0.0))

    def forget_stream(self, channel: str, stream: str) -> None:
        """Forget a publisher that will not come back."""
        if stream in self.state.streams.get(channel, {}):
            self._change(_Streams(channel, {stream: None}))

    def record_death(self, client: str, at: float, least: int = 0) -> None:
        """Record that a client was declared dead, in generation `least` or a later one."""
        before = self.state.dead.get(client)
        generation = max(before.generation + 1 if before else 0, least)
        self._change(_Dead(client, generation, at))

    def forget_death(self, client: str) -> None:
        """Forget a client that will not come back."""
        if client in self.state.dead:
            self._change(_Dead(client, None, 0.0))

    def _change(self, record: _Record) -> None:
        self._record_changed()  # while the channels are there
        self.state.apply(record, self._policy)
        self._record(record)

    def _record(self, record: _Record) -> None:
        self._record_changed()
        self._records.append(_encoder.encode(record))


def is_record(data: bytes) -> bool:
    """Whether the data names a kind of record that this version knows, replayable or not."""
    try:
        match msgspec.msgpack.decode(data):
            case [tag, *_]:
                return tag in _TAGS
    except (msgspec.MsgspecError, RecursionError, TypeError):
        pass
    return False


def _encode_state(channel: str, state: State) -> Iterator[bytes]:
    body = msgspec.Raw(_encoder.encode(_plain_fields(state)))
    yield _encoder.encode(_Patch(channel, body, {}, {}))
    nothing = msgspec.Raw(_NOTHING)
    for members in _split(state.members.items()):
        yield _encoder.encode(_Patch(channel, nothing, {**dict(members)}, {}))
    for departed in _split(state.departed.items()):
        yield _encoder.encode(_Patch(channel, nothing, {}, {**dict(departed)}))
    if isinstance(state, ClusterState):
        for topics in _split(state.topics.items()):
            yield _encoder.encode(_Patch(channel, nothing, {}, {}, {**dict(topics)}))
    if isinstance(state, TopicState):
        events = ((event.number, event.payload) for event in state.history)
        for part in _split(events, lambda event: len(event[1])):
            yield _encoder.encode(_History(channel, part))


def _split(items: Iterable[T], size: Callable[[T], int] = lambda item: 0) -> Iterator[list[T]]:
    """Split items into lists of at most about `_PART` items or `_PART_BYTES` bytes."""
    part, total = list[T](), 0
    for item in items:
        part.append(item)
        total += size(item)
        if len(part) >= _PART or total >= _PART_BYTES:
            yield part
            part, total = [], 0
    if part:
        yield part


def _plain_fields(state: State) -> dict[str, Any]:
    return {one.name: getattr(state, one.name) for one in fields(state) if one.name not in _APART}
