"""What a channel service must find again: the states of its channels, written as they change.

An event is one record. Of anything else that happens to a channel, what is written is the fields
that changed and the one subscriber that it was about, not the whole state.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec

from distributary.errors import StateError
from distributary.topics import ClusterState, Policy, TopicState, is_cluster
from distributary.topics.channel import Member
from distributary.topics.departures import Departure, depart
from distributary.topics.journal import Journal
from distributary.topics.messages import Event
from distributary.topics.numbers import Count

__all__ = ["Death", "Kept", "State", "Stream", "TopicStore"]

State = TopicState | ClusterState
T = TypeVar("T")

_APART = frozenset({"members", "departed", "history"})  # written one by one
_LEAST = 1 << 24  # bytes of journal that are never worth a shorter one
_GROWTH = 4
_PART, _PART_BYTES = 1_000, 1 << 20  # of a state in one record
# What replaying a record raises if it does not fit: not a fault of ours that should end the start.
_UNUSABLE = (msgspec.MsgspecError, ValueError, TypeError, ArithmeticError, RecursionError)


class _Patch(msgspec.Struct, array_like=True, tag="patch"):
    """A channel's other fields, none if they stay, and these of its subscribers (None: gone)."""

    channel: str
    fields: msgspec.Raw
    members: dict[str, Member | None]
    departed: dict[str, Departure | None]


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
    """Up to which number streams were accepted, and when last; None: forget it."""

    channel: str
    streams: dict[str, tuple[Count, float] | None]


class _Dead(msgspec.Struct, array_like=True, tag="dead"):
    """A client was found dead in a generation; None: forget it."""

    client: str
    generation: Count | None
    at: float


class _Thrown(msgspec.Struct, array_like=True, tag="thrown"):
    channel: str


class _Identity(msgspec.Struct, array_like=True, tag="identity"):
    identity: str


class _Epoch(msgspec.Struct, array_like=True, tag="epoch"):
    """The service has started, and accepts the events that follow in this epoch."""

    epoch: Count


_Record = _Patch | _Accepted | _History | _Streams | _Dead | _Thrown | _Identity | _Epoch
_decoder = msgspec.msgpack.Decoder(_Record)
_encoder = msgspec.msgpack.Encoder()
_NOTHING = _encoder.encode({})
_TAGS = {kind.__struct_config__.tag for kind in get_args(_Record)}
_HINTS = {kind: get_type_hints(kind) for kind in (TopicState, ClusterState)}


@dataclass(slots=True)
class Stream:
    """A publisher's stream to one topic: the number accepted last, and when."""

    upto: int
    at: float


@dataclass(frozen=True, slots=True)
class Death:
    """In which generation a client was found dead last, and when."""

    generation: int
    at: float


@dataclass(slots=True)
class Kept:
    """All that a service knew."""

    states: dict[str, State] = field(default_factory=dict)
    streams: dict[str, dict[str, Stream]] = field(default_factory=dict)  # by channel
    dead: dict[str, Death] = field(default_factory=dict)  # by client, whether it is back or not
    epoch: int = 0  # the last start of the service
    identity: str = ""  # made with the journal: whoever has another knows nothing of this


class TopicStore:
    """Keeps the states of channels in a journal, and brings them back from there.

    What is noted is kept once `commit` has returned; only then may anybody hear of it.
    """

    def __init__(self, journal: Journal, policy: Policy) -> None:
        self.kept = Kept()
        self._journal = journal
        self._policy = policy
        self._fields: dict[str, bytes] = {}
        self._noted: list[bytes] = []
        unusable = [*self._replay(journal.read())]
        self._base = journal.size
        if not self.kept.identity:
            self.kept.identity = secrets.token_hex(8)
            self._note(_Identity(self.kept.identity))
        if unusable:
            journal.set_aside(*_describe(unusable))
            self.shorten()

    @property
    def reports(self) -> list[str]:
        """What could not be brought back, and why."""
        return self._journal.reports

    # --- noting --------------------------------------------------------------------------------

    def begin_epoch(self, now: float) -> int:
        """The service starts: a number that no start before had, also none that is forgotten.

        A state that is brought back from an older copy does not know of the starts since; the
        clock does.
        """
        self.kept.epoch = max(self.kept.epoch + 1, int(now * 1_000))
        self._note(_Epoch(self.kept.epoch))
        return self.kept.epoch

    def changed(self, channel: str, state: State, who: str | None = None) -> None:
        """Something happened to a channel: somebody said it, or it was said about them."""
        body = _encoder.encode(_rest(state))
        same = self._fields.get(channel) == body
        self._fields[channel] = body
        self.kept.states[channel] = state
        raw = msgspec.Raw(_NOTHING if same else body)
        if who is not None:
            member, departed = state.members.get(who), state.departed.get(who)
            self._note(_Patch(channel, raw, {who: member}, {who: departed}))
        elif not same:
            self._note(_Patch(channel, raw, {}, {}))

    def accepted(self, channel: str, stream: str, number: int, payload: bytes, at: float) -> None:
        """A topic's channel has accepted an event."""
        self.kept.streams.setdefault(channel, {})[stream] = Stream(number, at)
        self._note(_Accepted(channel, stream, number, payload, at))

    def forget_stream(self, channel: str, stream: str) -> None:
        """A publisher will not be heard of again."""
        if self.kept.streams.get(channel, {}).pop(stream, None) is not None:
            self._note(_Streams(channel, {stream: None}))

    def found_dead(self, client: str, at: float, least: int = 0) -> None:
        """A client was found dead, once more, and in that generation at the least."""
        before = self.kept.dead.get(client)
        generation = max(before.generation + 1 if before else 0, least)
        death = self.kept.dead[client] = Death(generation, at)
        self._note(_Dead(client, death.generation, at))

    def forget_death(self, client: str) -> None:
        """A client will not be heard of again."""
        if self.kept.dead.pop(client, None) is not None:
            self._note(_Dead(client, None, 0.0))

    def thrown(self, channel: str) -> None:
        """A cluster is no more."""
        self.kept.states.pop(channel, None)
        self._fields.pop(channel, None)
        self._note(_Thrown(channel))

    def commit(self) -> None:
        """Write what was noted."""
        noted, self._noted = self._noted, []
        self._journal.append(noted)
        if self._journal.size > max(_LEAST, _GROWTH * self._base):
            self.shorten()

    def shorten(self) -> None:
        """Write a new journal with nothing but how things are now."""
        self._journal.replace(self._snapshot())
        self._base = self._journal.size

    def _note(self, record: _Record) -> None:
        self._noted.append(_encoder.encode(record))

    def _snapshot(self) -> Iterator[bytes]:
        yield _encoder.encode(_Identity(self.kept.identity))
        yield _encoder.encode(_Epoch(self.kept.epoch))
        for channel, state in self.kept.states.items():
            yield from _describe_state(channel, state)
        for channel, streams in self.kept.streams.items():
            found = [(name, (stream.upto, stream.at)) for name, stream in streams.items()]
            for part in [*_split(found)] or [[]]:
                yield _encoder.encode(_Streams(channel, {**dict(part)}))
        for client, death in self.kept.dead.items():
            yield _encoder.encode(_Dead(client, death.generation, death.at))

    # --- bringing back -------------------------------------------------------------------------

    def _replay(self, records: Iterable[bytes]) -> Iterator[tuple[bytes, Exception]]:
        """Bring all records back; those that cannot be are what comes back, and why."""
        for data in records:
            try:
                self._apply(_decoder.decode(data))
            except _UNUSABLE as error:
                if _tag_of(data) not in _TAGS:
                    raise StateError(
                        str(self._journal.path),
                        f"has a record that this version does not understand ({error})",
                        "use the version that wrote it, or start anew",
                    ) from error
                yield data, error

    def _apply(self, record: _Record) -> None:
        match record:
            case _Patch():
                self._patch(record)
            case _Accepted(channel, stream, number, payload, at):
                self._topic(channel).accept(payload, at, self._policy, self.kept.epoch)
                self.kept.streams.setdefault(channel, {})[stream] = Stream(number, at)
            case _History(channel, events):
                state, policy = self._topic(channel), self._policy
                for event in events:
                    kept = Event(state.topic, *event, state.epoch_of(event[0]))
                    state.history.append(kept, policy.history, policy.history_bytes)
            case _Streams(channel, streams):
                held = self.kept.streams.setdefault(channel, {})
                for name, last in streams.items():
                    held.pop(name, None)
                    if last is not None:
                        held[name] = Stream(*last)
            case _Dead(client, None, _):
                self.kept.dead.pop(client, None)
            case _Dead(client, generation, at) if generation is not None:
                self.kept.dead[client] = Death(generation, at)
            case _Thrown(channel):
                self.kept.states.pop(channel, None)
            case _Identity(identity):
                self.kept.identity = identity
            case _Epoch(epoch):
                self.kept.epoch = epoch

    def _patch(self, patch: _Patch) -> None:
        kind = ClusterState if is_cluster(patch.channel) else TopicState
        found: dict[str, Any] = msgspec.msgpack.decode(patch.fields)
        changes = {  # all of them or none
            name: msgspec.convert(value, _HINTS[kind][name])
            for name, value in found.items()
            if name in _HINTS[kind]
        }
        state = self.kept.states.get(patch.channel)
        if state is None:
            state = self.kept.states[patch.channel] = kind()
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
            else:  # who is forgotten follows from who leaves
                depart(state.departed, name, last, self._policy.remember)

    def _topic(self, channel: str) -> TopicState:
        state = self.kept.states.get(channel)
        if not isinstance(state, TopicState):
            raise TypeError(f"there is no topic of the channel {channel!r}")
        return state


def _describe_state(channel: str, state: State) -> Iterator[bytes]:
    """Records that bring a channel's state back, none of them long."""
    body = msgspec.Raw(_encoder.encode(_rest(state)))
    yield _encoder.encode(_Patch(channel, body, {}, {}))
    nothing = msgspec.Raw(_NOTHING)
    for members in _split(state.members.items()):
        yield _encoder.encode(_Patch(channel, nothing, {**dict(members)}, {}))
    for departed in _split(state.departed.items()):
        yield _encoder.encode(_Patch(channel, nothing, {}, {**dict(departed)}))
    if isinstance(state, TopicState):
        events = ((event.number, event.payload) for event in state.history)
        for part in _split(events, lambda event: len(event[1])):
            yield _encoder.encode(_History(channel, part))


def _split(items: Iterable[T], size: Callable[[T], int] = lambda item: 0) -> Iterator[list[T]]:
    """Lists of a thousand or so items, shorter where these are large."""
    part, total = list[T](), 0
    for item in items:
        part.append(item)
        total += size(item)
        if len(part) >= _PART or total >= _PART_BYTES:
            yield part
            part, total = [], 0
    if part:
        yield part


def _tag_of(data: bytes) -> object:
    """Which kind a record says that it is."""
    try:
        match msgspec.msgpack.decode(data):
            case [tag, *_]:
                return tag
    except (msgspec.MsgspecError, RecursionError):
        pass
    return None


def _describe(unusable: list[tuple[bytes, Exception]]) -> tuple[bytes, str]:
    """The records one after the other, and a reason for setting them aside."""
    records = "1 record" if len(unusable) == 1 else f"{len(unusable):,} records"
    first = " ".join(str(unusable[0][1]).split())
    return b"".join(data for data, _ in unusable), f"{records} cannot be replayed ({first})"


def _rest(state: State) -> dict[str, Any]:
    return {one.name: getattr(state, one.name) for one in fields(state) if one.name not in _APART}
