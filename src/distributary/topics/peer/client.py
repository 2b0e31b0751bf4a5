"""A client of peers: a subscriber and a publisher, attached to one peer at a time.

If its peer is silent, it attaches to another, listens to its channels there, repeats what is not
confirmed, and requests the events that it may have missed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from distributary.machines.actions import Action, Deliver, Send, SetTimer
from distributary.topics.codec import (
    SERVICE,
    Beat,
    Bye,
    Create,
    Created,
    EventRun,
    Expect,
    NoTopic,
    Pulse,
    Put,
    Remove,
    Removed,
    Taken,
)
from distributary.topics.host import ChannelMessage
from distributary.topics.messages import Join, Left, Unwant, Want
from distributary.topics.names import is_topic, topic_channel, topic_of
from distributary.topics.peer.messages import Listen, Neighbours, Unlisten
from distributary.topics.peer.runs import join_puts, split_run
from distributary.topics.policy import Policy
from distributary.topics.reception import UnexpectedMessageError, check_for_subscriber
from distributary.topics.subscriber import Subscriber

__all__ = [
    "CancelRequest",
    "ClientParameters",
    "Confirmed",
    "CreateTopic",
    "GiveUp",
    "PeerClient",
    "RemoveTopic",
    "Say",
    "StreamForgotten",
]

_OWN = "own "  # begins the names of the timers that are not the subscriber's
_UNLISTEN = "unlisten "
_FEW = 16  # events that are sent again at once


@dataclass(frozen=True, slots=True)
class Say:
    """The application publishes an event."""

    topic: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class CreateTopic:
    """The application creates a topic."""

    topic: str
    flow: float = 0.0


@dataclass(frozen=True, slots=True)
class RemoveTopic:
    """The application removes a topic."""

    topic: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The application gives up its events to a topic that are not confirmed."""

    topic: str


@dataclass(frozen=True, slots=True)
class CancelRequest:
    """The application no longer waits for a topic to be created or removed."""

    topic: str


@dataclass(frozen=True, slots=True)
class Confirmed:
    """Delivered to the application: its first `upto` events to a topic are accepted."""

    topic: str
    upto: int


@dataclass(frozen=True, slots=True)
class StreamForgotten:
    """Delivered to the application: the topic has forgotten which events it accepted from here.

    Those that are not confirmed may or may not be accepted; they are given up. What is published
    from now on is counted from 1 again.
    """

    topic: str


@dataclass(frozen=True, slots=True)
class ClientParameters:
    """All times are in seconds.

    A peer that is silent for `away_after` is given up for another; so is a stream of events whose
    beginning a topic asks for that long. At most `window` events of a topic are in flight. A
    stream without events for `renew_after` is not continued, since topics forget it after a day.
    """

    beat_every: float = 1.0
    away_after: float = 4.0
    repeat_after: float = 1.0
    linger: float = 2.0  # before it stops listening to a channel that it has left
    window: int = 256
    renew_after: float = 3_600.0


@dataclass(slots=True)
class _Outbox:
    """The stream of events to one topic, until they are accepted.

    At most `window` of them are in flight: few after a repetition, and more with each that is
    accepted. Peers that are slow because they have much to do would otherwise get more to do.
    """

    stream: int
    window: int
    before: int = 0  # accepted of earlier streams
    upto: int = 0  # accepted
    at: float = 0.0  # time of the last progress or repetition
    events: deque[bytes] = field(default_factory=deque)
    sent: int = 0  # of these
    forgotten_at: float | None = None  # the topic asks since then for what it had accepted

    def repeat(self, now: float) -> None:
        """Begin anew with the first event that is not accepted."""
        self.at, self.sent = now, 0
        self.window = min(self.window, _FEW)

    def accept(self, number: int, most: int, now: float) -> None:
        """So many more are accepted."""
        for _ in range(number):
            self.events.popleft()
        self.upto += number
        self.sent = max(0, self.sent - number)
        self.window = min(most, self.window + number)
        self.at, self.forgotten_at = now, None

    def next_puts(self) -> list[Put]:
        """The events that may be sent now."""
        first, self.sent = self.sent, max(self.sent, min(len(self.events), self.window))
        events = [*islice(self.events, first, self.sent)]
        return [
            Put(self.stream, self.upto + at, event) for at, event in enumerate(events, first + 1)
        ]


class PeerClient:
    """The `Machine` of one client.

    Requests of the application are messages from outside: `Want`, `Unwant`, `Say`, `CreateTopic`,
    `RemoveTopic`, `CancelRequest`, `GiveUp`. Delivered to it are events and reports of the
    subscriber, `Confirmed`, `StreamForgotten`, `Created` and `Removed` with the topic, and
    `NoTopic`. The process calls `start` once, and `lost` when a connection ends.
    """

    def __init__(
        self,
        name: str,
        policy: Policy,
        peers: Sequence[str],
        parameters: ClientParameters | None = None,
    ) -> None:
        if not peers:
            raise ValueError("a client needs the name of at least one peer")
        self.name = name
        self.parameters = parameters or ClientParameters()
        self.subscriber = Subscriber(name, policy)
        self.peer = peers[0]
        self._peers = dict.fromkeys(peers)
        self._given = tuple(peers)
        self._heard_at = 0.0
        self._listening: dict[str, None] = {}
        self._outboxes: dict[str, _Outbox] = {}  # by topic
        self._streams: dict[int, str] = {}
        self._count = 0  # of streams
        self._creating: dict[str, float] = {}
        self._removing: dict[str, None] = {}
        self.moves = 0

    def unconfirmed(self, topic: str) -> int:
        """How many events published to a topic are not accepted yet."""
        outbox = self._outboxes.get(topic)
        return 0 if outbox is None else len(outbox.events)

    # --- inputs --------------------------------------------------------------------------------

    def start(self, now: float) -> list[Action]:
        """Attach to the first peer."""
        self._heard_at = now
        return [*self._beat(), SetTimer(f"{_OWN}beat", now + self.parameters.beat_every)]

    def on_message(self, sender: str, message: Any, now: float) -> list[Action]:
        """Handle messages of the own peer and requests of the application."""
        match message:
            case Want() | Unwant():
                return self._perform(self.subscriber.on_message(sender, message, now), now)
            case Say(topic, payload):
                return self._say(topic, payload, now)
            case RemoveTopic(topic):
                self._removing[topic] = None
                return [self._send(topic_channel(topic), Remove())]
            case GiveUp(topic):
                return self._give_up(topic)
            case CancelRequest(topic):
                self._creating.pop(topic, None)
                self._removing.pop(topic, None)
                return []
            case CreateTopic(topic, flow):
                self._creating[topic] = flow
                return [self._send(topic_channel(topic), Create(flow))]
        if sender != self.peer:
            return []  # a peer that was left
        self._heard_at = now
        match message:
            case Neighbours(names):
                self._peers = dict.fromkeys((*names, *self._given))
                return []
            case ChannelMessage(channel, said):
                return self._on_said(channel, said, now)
        raise UnexpectedMessageError("a client", sender, message)

    def on_timer(self, name: str, now: float) -> list[Action]:
        """Send heartbeats, repeat what is not confirmed, and leave a silent peer."""
        if not name.startswith(_OWN):
            return self._perform(self.subscriber.on_timer(name, now), now)
        name = name.removeprefix(_OWN)
        if name.startswith(_UNLISTEN):
            return self._unlisten(name.removeprefix(_UNLISTEN))
        actions: list[Action] = []
        if now - self._heard_at > self.parameters.away_after:
            actions = self.lost(now)
        again = SetTimer(f"{_OWN}beat", now + self.parameters.beat_every)
        return [*actions, *self._beat(), *self._repeat(now), again]

    def lost(self, now: float) -> list[Action]:
        """The peer is gone: attach to the next of those that are known."""
        known = [*self._peers]
        at = known.index(self.peer) + 1 if self.peer in self._peers else 0
        self.peer = known[at % len(known)]
        self.moves += 1
        self._heard_at = now
        for outbox in self._outboxes.values():
            outbox.at = now - self.parameters.repeat_after  # repeat at once
        listen = [Send(self.peer, Listen(tuple(self._listening)))] if self._listening else []
        refresh = SetTimer("refresh", now + self.subscriber.policy.retry)
        return [*self._beat(), *listen, *self._repeat(now), refresh]

    def excuse(self, now: float) -> None:
        """The peer is not silent: the application was too slow to let anything be received."""
        self._heard_at = now

    def leave(self) -> list[Action]:
        """Say goodbye."""
        return [self._send(SERVICE, Bye())]

    # --- events --------------------------------------------------------------------------------

    def _say(self, topic: str, payload: bytes, now: float) -> list[Action]:
        outbox = self._outboxes.get(topic)
        if outbox is None:
            outbox = self._open_stream(topic)
        elif not outbox.events and now - outbox.at > self.parameters.renew_after:
            del self._streams[outbox.stream]
            outbox = self._open_stream(topic, outbox.before + outbox.upto)
        if not outbox.events:
            outbox.at = now
        outbox.events.append(payload)
        return self._put(topic, outbox)

    def _open_stream(self, topic: str, before: int = 0) -> _Outbox:
        self._count += 1
        outbox = self._outboxes[topic] = _Outbox(self._count, self.parameters.window, before)
        self._streams[outbox.stream] = topic
        return outbox

    def _give_up(self, topic: str) -> list[Action]:
        """Forget what is not confirmed; what is said later belongs to another stream."""
        outbox = self._outboxes.pop(topic, None)
        if outbox is not None:
            del self._streams[outbox.stream]
        return []

    def _put(self, topic: str, outbox: _Outbox) -> list[Action]:
        channel = topic_channel(topic)
        puts = [ChannelMessage(channel, put) for put in outbox.next_puts()]
        return [Send(self.peer, message) for message in join_puts(puts)]

    def _repeat(self, now: float) -> list[Action]:
        actions: list[Action] = []
        for topic, outbox in self._outboxes.items():
            if outbox.events and now - outbox.at >= self.parameters.repeat_after:
                outbox.repeat(now)
                actions += self._put(topic, outbox)
        create = self._creating.items()
        return [
            *actions,
            *(self._send(topic_channel(topic), Create(flow)) for topic, flow in create),
            *(self._send(topic_channel(topic), Remove()) for topic in self._removing),
        ]

    def _on_taken(self, taken: Taken, now: float) -> list[Action]:
        topic = self._streams.get(taken.stream)
        if topic is None:
            return []
        outbox = self._outboxes[topic]
        new = min(taken.upto - outbox.upto, len(outbox.events))
        if new <= 0:
            return []
        outbox.accept(new, self.parameters.window, now)
        confirmed = Deliver(self.name, Confirmed(topic, outbox.before + outbox.upto), now)
        return [confirmed, *self._put(topic, outbox)]

    def _on_expect(self, expect: Expect, now: float) -> list[Action]:
        topic = self._streams.get(expect.stream)
        if topic is None or expect.number > self._outboxes[topic].upto + 1:
            return self._on_taken(Taken(expect.stream, expect.number - 1), now)
        outbox = self._outboxes[topic]
        if expect.number <= outbox.upto:
            return self._give_up_if_forgotten(topic, outbox, now)
        if now - outbox.at < self.parameters.repeat_after / 10:
            return []  # everything has just been repeated
        outbox.repeat(now)
        return self._put(topic, outbox)

    def _give_up_if_forgotten(self, topic: str, outbox: _Outbox, now: float) -> list[Action]:
        """Give a stream up whose beginning the topic has forgotten: it can never go on.

        A root that does not know yet that it was replaced may ask for what its successor has, so
        this waits for a while.
        """
        if outbox.forgotten_at is None:
            outbox.forgotten_at = now
        if not outbox.events or now - outbox.forgotten_at < self.parameters.away_after:
            return []
        return [*self._give_up(topic), Deliver(self.name, StreamForgotten(topic), now)]

    # --- messages of channels ------------------------------------------------------------------

    def _on_said(self, channel: str, said: Any, now: float) -> list[Action]:
        match said:
            case Pulse():
                return []
            case EventRun():
                return self._on_events(channel, said, now)
            case Taken():
                return self._on_taken(said, now)
            case Expect():
                return self._on_expect(said, now)
            case Created(new) if is_topic(channel):
                topic = topic_of(channel)
                if self._creating.pop(topic, None) is None:
                    return []
                return [Deliver(self.name, (topic, Created(new)), now)]
            case Removed() if is_topic(channel):
                topic = topic_of(channel)
                if topic not in self._removing:
                    return []
                del self._removing[topic]
                return [Deliver(self.name, (topic, said), now)]
            case NoTopic(topic):
                if topic in self.subscriber.wanted or topic in self._outboxes:
                    return [Deliver(self.name, said, now)]
                return []
        check_for_subscriber(channel, said)
        actions = self._perform(self.subscriber.on_message(channel, said, now), now)
        if isinstance(said, Left) and channel not in self.subscriber.on:
            at = now + self.parameters.linger
            actions.append(SetTimer(f"{_OWN}{_UNLISTEN}{channel}", at))
        return actions

    def _on_events(self, channel: str, run: EventRun, now: float) -> list[Action]:
        actions: list[Action] = []
        for event in split_run(run):
            actions += self.subscriber.on_message(channel, event, now)
        return self._perform(actions, now)

    def _unlisten(self, channel: str) -> list[Action]:
        if channel in self.subscriber.on or channel not in self._listening:
            return []
        del self._listening[channel]
        return [Send(self.peer, Unlisten((channel,)))]

    def _perform(self, actions: Iterable[Action], now: float) -> list[Action]:
        """Bring the subscriber's messages to the peer; listen to a channel before joining it."""
        done: list[Action] = []
        for action in actions:
            if not isinstance(action, Send):
                done.append(action)
                continue
            if isinstance(action.message, Join) and action.to not in self._listening:
                self._listening[action.to] = None
                done.append(Send(self.peer, Listen((action.to,))))
            done.append(self._send(action.to, action.message))
        return done

    def _beat(self) -> list[Action]:
        machine = self.subscriber
        return [self._send(SERVICE, Beat(machine.generation, bool(machine.channels())))]

    def _send(self, channel: str, message: Any) -> Action:
        return Send(self.peer, ChannelMessage(channel, message))
