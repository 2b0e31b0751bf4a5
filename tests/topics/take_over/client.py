"""A client: the production subscriber, and a publisher that repeats events until confirmed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from distributary.machines.actions import Action, Deliver, Send, SetTimer
from distributary.topics import Policy, Subscriber, members_of, topic_channel
from distributary.topics.codec import (
    SERVICE,
    Beat,
    Create,
    Created,
    Expect,
    NoTopic,
    Pulse,
    Put,
    Taken,
    checksum,
    digest,
)
from distributary.topics.host import ChannelMessage
from distributary.topics.messages import Event, Join, Left, Unwant, Want
from tests.topics.take_over.server import SERVER, Heard, Listen, Publish, Unlisten

APPLICATION = "application"
BEAT_EVERY, REPEAT_AFTER, LINGER, SOON = 1.0, 1.0, 2.0, 0.1  # seconds
_OWN = "own "  # begins the names of our timers


class Say(NamedTuple):
    topic: str
    payload: bytes


class Outbox:
    """The events of one stream that are not confirmed, in order."""

    def __init__(self, stream: int) -> None:
        self.stream = stream
        self.waiting: list[Put] = []
        self.count = 0
        self.heard_at = 0.0


class Client:
    """The `Machine` of one client; the application sends it `Say`, `Want`, `Unwant`, `Create`."""

    def __init__(self, name: str, policy: Policy) -> None:
        self.name = name
        self.subscriber = Subscriber(name, policy)
        self.acknowledged: list[bytes] = []
        self.failed: list[str] = []  # topics that are said not to exist
        self.creating: dict[str, None] = {}
        self._outboxes: dict[str, Outbox] = {}
        self._listens: dict[str, None] = {name: None}
        self._pulse = 0
        self._connected = True

    # --- inputs ----------------------------------------------------------------------------------

    def start(self, now: float) -> list[Action]:
        return [Send(SERVER, Listen(self.name)), *self._beat(now)]

    def disconnect(self, now: float) -> list[Action]:
        del now
        self._connected = False
        return []

    def reconnect(self, now: float) -> list[Action]:
        self._connected = True
        listens = [Send(SERVER, Listen(subject)) for subject in self._listens]
        again = [action for topic in self._outboxes for action in self._say_again(topic, now)]
        return [*listens, *again, SetTimer("refresh", now + SOON)]

    def on_message(self, sender: str, message: Any, now: float) -> list[Action]:
        if sender == APPLICATION:
            return self._on_application(message, now)
        assert isinstance(message, Heard)
        said = message.message
        match said:
            case Created():
                self.creating.pop(message.subject.rpartition("/")[2], None)
            case Taken(stream, upto):
                self._confirm(stream, upto, now)
            case Expect(stream):
                return self._repeat_stream(stream, now)
            case NoTopic(topic):
                self.failed.append(topic)
            case _:
                if isinstance(said, Pulse):
                    self._pulse = checksum(said)
                return self._feed(message.sender, said, now)
        return []

    def on_timer(self, name: str, now: float) -> list[Action]:
        if name == f"{_OWN}beat":
            return self._beat(now)
        if name.startswith(_OWN):
            return self._unlisten(name.removeprefix(_OWN))
        return self._perform(self.subscriber.on_timer(name, now))

    @property
    def unconfirmed(self) -> int:
        return sum(len(outbox.waiting) for outbox in self._outboxes.values())

    # --- the publisher ---------------------------------------------------------------------------

    def _on_application(self, message: Any, now: float) -> list[Action]:
        match message:
            case Say(topic, payload):
                fresh = Outbox(len(self._outboxes) + 1)
                outbox = self._outboxes.setdefault(topic, fresh)
                outbox.count += 1
                put = Put(outbox.stream, outbox.count, payload)
                if not outbox.waiting:
                    outbox.heard_at = now
                outbox.waiting.append(put)
                return self._publish(topic_channel(topic), put)
            case Create():
                return self._create()
            case Want() | Unwant():
                return self._feed(sender=APPLICATION, message=message, now=now)
        raise TypeError(f"a client does not understand {message!r}")

    def _create(self) -> list[Action]:
        actions = []
        for topic in self.creating:
            reply = f"{self.name}/{topic}"
            actions += self._listen(reply)
            actions += self._publish(topic_channel(topic), Create(0.0), reply)
        return actions

    def _confirm(self, stream: int, upto: int, now: float) -> None:
        for outbox in self._outboxes.values():
            while outbox.stream == stream and outbox.waiting and outbox.waiting[0].number <= upto:
                outbox.heard_at = now
                self.acknowledged.append(outbox.waiting.pop(0).payload)

    def _repeat_stream(self, stream: int, now: float) -> list[Action]:
        for topic, outbox in self._outboxes.items():
            if outbox.stream == stream and now - outbox.heard_at > REPEAT_AFTER / 10:
                return self._say_again(topic, now)
        return []

    def _say_again(self, topic: str, now: float) -> list[Action]:
        outbox = self._outboxes[topic]
        outbox.heard_at = now
        channel = topic_channel(topic)
        return [action for put in outbox.waiting for action in self._publish(channel, put)]

    def _beat(self, now: float) -> list[Action]:
        channels = self.subscriber.channels()
        beat = Beat(self.subscriber.generation, bool(channels), digest(channels), self._pulse)
        actions = [*self._publish(SERVICE, beat), *self._create()]
        for topic, outbox in self._outboxes.items():
            if outbox.waiting and now - outbox.heard_at > REPEAT_AFTER:
                actions += self._say_again(topic, now)
        return [*actions, SetTimer(f"{_OWN}beat", now + BEAT_EVERY)]

    # --- the subscriber --------------------------------------------------------------------------

    def _feed(self, sender: str, message: Any, now: float) -> list[Action]:
        actions = self._perform(self.subscriber.on_message(sender, message, now))
        if isinstance(message, Left) and sender not in self.subscriber.on:
            actions.append(SetTimer(f"{_OWN}{sender}", now + LINGER))
        return actions

    def _perform(self, given: Iterable[Action]) -> list[Action]:
        actions: list[Action] = []
        for action in given:
            match action:
                case Send(to, message):
                    if isinstance(message, Join):
                        actions += self._listen(members_of(to))
                    actions += self._publish(to, message)
                case _:
                    assert isinstance(action, Deliver | SetTimer)
                    actions.append(action)
        return actions

    def _publish(self, to: str, message: Any, reply: str = "") -> list[Action]:
        assert not isinstance(message, Event)
        if not self._connected:
            return []
        said = ChannelMessage(to, message)
        return [Send(SERVER, Publish(SERVICE, self.name, said, reply))]

    def _listen(self, subject: str) -> list[Action]:
        if subject in self._listens:
            return []
        self._listens[subject] = None
        return [Send(SERVER, Listen(subject))] if self._connected else []

    def _unlisten(self, channel: str) -> list[Action]:
        subject = members_of(channel)
        if channel in self.subscriber.on or subject not in self._listens:
            return []
        del self._listens[subject]
        return [Send(SERVER, Unlisten(subject))] if self._connected else []
