"""The subscribing half of a client: runs the subscriber's machine on a connection."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Iterable
from typing import Any

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from distributary.errors import LiveError
from distributary.machines.actions import Action, Deliver, Send, SetTimer
from distributary.machines.real import Timers
from distributary.topics import Subscriber
from distributary.topics.codec import AROUND, NoTopic, Pulse, checksum, encode
from distributary.topics.errors import EventsLostError, SubjectDeniedError, UnknownTopicError
from distributary.topics.live.subscription import TopicSubscription
from distributary.topics.messages import Event, Join, Left, Unwant, Want
from distributary.topics.names import is_topic, topic_channel, topic_of
from distributary.topics.nats.packets import EventPacket
from distributary.topics.nats.permissions import Refusal, has_token
from distributary.topics.nats.subjects import Subjects
from distributary.topics.parts import split_message
from distributary.topics.reception import UnexpectedMessageError, check_for_subscriber

__all__ = ["TopicReader"]

_LINGER = 2.0  # seconds to stay subscribed to a channel after leaving it
_SOON = 0.1
_BREATH = 100  # steps between two yields to the event loop
_OUTSIDE = "application"
_UNLISTEN = "unlisten "  # begins the names of our own timers


class TopicReader:
    """Keeps a subscriber on the channels that it needs, and hands events to subscriptions.

    All input passes through one queue. When it is full, events of channels wait and other messages
    are dropped, because their senders repeat them. Most events take a fast path: one that is next
    in its topic while the queue is empty is delivered at once.
    """

    def __init__(
        self, nc: Client, subjects: Subjects, subscriber: Subscriber, *, queue: int
    ) -> None:
        self.machine = subscriber
        self.delivered = 0
        self.dropped = 0
        self.pulse = 0  # checksum of the last one that was taken in
        self._nc = nc
        self._subjects = subjects
        self._queue: asyncio.Queue[tuple[str, Any] | None] = asyncio.Queue(queue)
        self._busy = False  # with an item of the queue
        self._due: deque[tuple[str, int]] = deque()  # timers that have expired
        self._timers = Timers(time.time, self._expire)
        self._data: dict[str, Subscription] = {}  # by channel
        self._coming: set[str] = set()
        self._denied: dict[str, SubjectDeniedError] = {}  # by channel, until it is left
        self._channels: dict[str, str] = {}  # by the subject of their events, in lower case
        self._subscriptions: dict[str, TopicSubscription] = {}
        self._confirmations: dict[str, asyncio.Future[None]] = {}
        self._service = ""  # its identity
        self._replaced = False

    # --- for the client ------------------------------------------------------------------------

    async def want(self, subscription: TopicSubscription) -> None:
        """Return once every event from now on will arrive; if cancelled, the topic is unwanted."""
        topic = subscription.topic
        if topic in self._subscriptions:
            raise ValueError(f"already subscribed to {topic!r}")
        self._subscriptions[topic] = subscription
        confirmed = asyncio.get_running_loop().create_future()
        self._confirmations[topic] = confirmed
        try:
            await self._feed(_OUTSIDE, Want(topic))
            await confirmed
        except BaseException:
            await self.unwant(topic)
            raise
        finally:
            self._confirmations.pop(topic, None)

    async def unwant(self, topic: str) -> None:
        """End the subscription and leave channels that are no longer needed."""
        subscription = self._subscriptions.pop(topic, None)
        if subscription is not None:
            subscription.close()
            await self._feed(_OUTSIDE, Unwant(topic))

    def hear(self, sender: str, message: Any) -> None:
        """Queue a message to this client alone."""
        if isinstance(message, Pulse):
            self._replaced |= self._service not in ("", message.identity) and bool(
                self._subscriptions
            )
            self._service = message.identity
        try:
            self._queue.put_nowait((sender, message))
        except asyncio.QueueFull:
            self.dropped += 1
        else:
            if isinstance(message, Pulse):
                self.pulse = checksum(message)

    async def pump(self) -> None:
        """Process the queue until cancelled."""
        for count in itertools.count(1):
            if count % _BREATH == 0:
                await asyncio.sleep(0)  # a queue that is never empty must not starve other tasks
            item = await self._queue.get()
            self._busy = True
            if item is not None:
                await self._take(*item)
            while self._due:
                await self._ring(*self._due.popleft())
            self._busy = False

    def refresh(self) -> None:
        """Request all events that may have been missed, soon; several calls cause one request."""
        self._timers.set("refresh", time.time() + _SOON)

    async def deny(self, refusal: Refusal, error: SubjectDeniedError) -> None:
        """Fail the subscriptions that need a subject which the server refuses."""
        channel = self.find_channel(refusal)
        if channel is not None:
            self._denied[channel] = error
            await self._unlisten(channel)
            await self._fail_denied()
        if not refusal.subscribes:
            for topic in self._find_unjoinable(refusal.token):
                await self._fail(topic, error)

    async def deny_all(self, error: SubjectDeniedError) -> None:
        """Fail all subscriptions."""
        for topic in [*self._subscriptions]:
            await self._fail(topic, error)

    def find_channel(self, refusal: Refusal) -> str | None:
        """The channel whose events the server refuses; None for another subject."""
        return self._channels.get(refusal.subject) if refusal.subscribes else None

    def _find_unjoinable(self, token: str) -> list[str]:
        """The topics that need a channel to which this client may say nothing."""
        wanted = self.machine.wanted
        found = [topic for topic in wanted if has_token(topic_channel(topic), token)]
        for channel, held in self.machine.on.clusters.items():
            if has_token(channel, token):  # one that is not joined brings nothing
                on = (topic for topic in held.topics if topic in wanted)
                found += [topic for topic in on if not self.machine.is_covered(topic)]
        return found

    async def _fail_denied(self) -> None:
        """Fail the topics that a channel should bring whose events the server refuses."""
        for channel, error in [*self._denied.items()]:
            held = self.machine.on.get(channel)
            if held is None or held.is_leaving:
                self._denied.pop(channel, None)  # the next join asks the server again
                continue
            for topic in [topic for topic in held.topics if topic in self.machine.wanted]:
                await self._fail(topic, error)

    def check_service(self) -> None:
        """Raise a `LiveError` if the service no longer knows our subscriptions."""
        if self._replaced:
            raise LiveError(
                "the channel service has lost its state or was replaced, and knows none of this "
                "client's subscriptions; start it with its former folder, or open a new client"
            )

    def close(self) -> None:
        """Stop all timers and end all subscriptions."""
        self._timers.close()
        for subscription in self._subscriptions.values():
            subscription.close()
        for confirmation in self._confirmations.values():
            confirmation.cancel()

    @property
    def channels(self) -> tuple[str, ...]:
        """The channels that this client listens to."""
        return tuple(self._data)

    # --- inputs --------------------------------------------------------------------------------

    async def _take(self, sender: str, message: Any) -> None:
        if isinstance(message, NoTopic):
            await self._miss(message.topic)
            return
        try:
            check_for_subscriber(sender, message)
        except UnexpectedMessageError:
            self.dropped += 1
            return
        await self._feed(sender, message)

    async def _miss(self, topic: str) -> None:
        """Report to the caller or to the reader of a subscription that the topic does not exist."""
        if self._replaced and topic not in self._confirmations:
            return  # all topics are gone: `check_service` reports it
        await self._fail(topic, UnknownTopicError(topic))

    async def _fail(self, topic: str, error: LiveError) -> None:
        """Report an error to who waits to be subscribed, or to the reader of the subscription."""
        confirmation = self._confirmations.get(topic)
        if confirmation is not None and not confirmation.done():
            confirmation.set_exception(error)
            return
        subscription = self._subscriptions.pop(topic, None)
        if subscription is not None:
            subscription.fail(error)
            await self._feed(_OUTSIDE, Unwant(topic))

    async def _feed(self, sender: str, message: Any) -> None:
        await self._perform(self.machine.on_message(sender, message, time.time()))
        if self._denied:
            await self._fail_denied()
        if isinstance(message, Left):
            self._unlisten_later(sender)
        secured, self.machine.secured = self.machine.secured, set()
        for topic in secured:
            confirmation = self._confirmations.get(topic)
            if confirmation is not None and not confirmation.done() and self._is_secured(topic):
                confirmation.set_result(None)

    def _is_secured(self, topic: str) -> bool:
        """Whether the topic's events come, from a known number on."""
        wanted = self.machine.wanted.get(topic)
        return wanted is not None and wanted.expected is not None and self.machine.is_covered(topic)

    def _expire(self, name: str, number: int) -> None:
        self._due.append((name, number))
        if self._queue.empty():
            self._queue.put_nowait(None)

    async def _ring(self, name: str, number: int) -> None:
        if not self._timers.take(name, number):
            return
        if name.startswith(_UNLISTEN):
            await self._unlisten_unless_needed(name.removeprefix(_UNLISTEN))
        else:
            await self._perform(self.machine.on_timer(name, time.time()))

    # --- actions -------------------------------------------------------------------------------

    async def _perform(self, actions: Iterable[Action]) -> None:
        for count, action in enumerate(actions, start=1):
            if count % _BREATH == 0:
                await asyncio.sleep(0)  # let heartbeats be sent
            match action:
                case Deliver(_, event, _):
                    await self._hand_over(event)
                case Send(to, message):
                    if isinstance(message, Join):
                        await self._listen(to)
                    await self._say(to, message)
                case SetTimer(name, at):
                    self._timers.set(name, at)

    async def _hand_over(self, event: Event | EventsLostError) -> None:
        subscription = self._subscriptions.get(event.topic)
        if subscription is not None:
            self.delivered += 1
            await subscription.put(event)

    async def _say(self, to: str, message: Any) -> None:
        subject, most = self._subjects.to(to), self._nc.max_payload - AROUND
        try:
            for part in split_message(message, most):
                await self._nc.publish(subject, encode(self.machine.name, part))
        except (nats.errors.OutboundBufferLimitError, nats.errors.ConnectionClosedError):
            self.dropped += 1  # the machine repeats it

    async def _listen(self, channel: str) -> None:
        if channel in self._data or channel in self._coming or self._nc.is_closed:
            return
        self._coming.add(channel)
        try:
            subject = self._subjects.all_on(channel)
            self._channels[subject.lower()] = channel
            self._data[channel] = await self._nc.subscribe(subject, cb=self._on_events)
        finally:
            self._coming.discard(channel)

    async def _on_events(self, message: Msg) -> None:
        try:
            packet = EventPacket(message.data)
            name = self._subjects.channel(message.subject)
            topic = topic_of(name) if is_topic(name) else name
        except ValueError:
            self.dropped += 1
            return
        epoch = self.machine.find_epoch(topic, packet.mark)
        if epoch is None:
            wanted = self.machine.wanted.get(topic)
            if wanted is not None and wanted.expected is not None:
                self.refresh()  # the answer tells the epoch
            return
        for event in packet.events(topic, epoch):
            if not self._take_at_once(event):
                await self._queue.put(("", event))

    def _take_at_once(self, event: Event) -> bool:
        """The fast path: whether an event could be delivered, or dropped, ahead of the queue."""
        if self._busy or not self._queue.empty():
            return False
        subscription = self._subscriptions.get(event.topic)
        if subscription is not None and not subscription.has_room:
            return False
        wanted = self.machine.take_next(event)
        if wanted and subscription is not None:
            self.delivered += 1
            subscription.put_now(event)
        return wanted is not None

    def _unlisten_later(self, channel: str) -> None:
        if channel not in self.machine.on:
            self._timers.set(f"{_UNLISTEN}{channel}", time.time() + _LINGER)

    async def _unlisten_unless_needed(self, channel: str) -> None:
        if channel not in self.machine.on and not self._nc.is_closed:
            await self._unlisten(channel)

    async def _unlisten(self, channel: str) -> None:
        self._channels.pop(self._subjects.all_on(channel).lower(), None)
        if (heard := self._data.pop(channel, None)) is not None:
            await heard.unsubscribe()
