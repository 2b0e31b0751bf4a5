"""The client of peers: runs the client's machine on a connection to one peer at a time."""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Iterable
from contextlib import AsyncExitStack
from functools import partial
from math import isfinite
from random import Random
from typing import Any, Self

from distributary.errors import LiveError
from distributary.machines.actions import Action, Deliver, Send
from distributary.machines.real import DirectDriver, LinkConnection, Links, own_tasks
from distributary.machines.real.clock import make_clock
from distributary.machines.real.liveness import BackOff
from distributary.topics.codec import Created, NoTopic, Put, Puts, Removed
from distributary.topics.errors import (
    ClientClosedError,
    EventsLostError,
    NotConfirmedError,
    PayloadTooLargeError,
    UnknownTopicError,
)
from distributary.topics.host import ChannelMessage
from distributary.topics.live.client import ClientSettings, ClientStatistics, TopicClient
from distributary.topics.live.subscription import TopicSubscription
from distributary.topics.messages import Event, Unwant, Want
from distributary.topics.names import check_topic
from distributary.topics.peer.client import (
    CancelRequest,
    ClientParameters,
    Confirmed,
    CreateTopic,
    GiveUp,
    PeerClient,
    RemoveTopic,
    Say,
    StreamForgotten,
)
from distributary.topics.peer.codec import CLIENT_SIDE
from distributary.topics.peer.parameters import PeerParameters
from distributary.topics.peer.runs import join_puts
from distributary.topics.peer.tcp.dialing import CLIENT_LIMITS, PeerOptions, make_client_dialer
from distributary.topics.peer.tcp.errors import PeerAwayError, PeerRefusedError, TopicWaitsError
from distributary.topics.peer.tcp.greeting import Hello, client_name, find_fault
from distributary.topics.peer.tcp.policy import LIVE_PEERS
from distributary.topics.peer.tcp.requests import Confirmations, Requests
from distributary.topics.reception import UnexpectedMessageError

__all__ = ["RingClient"]

_OUTSIDE = "application"
_TICK = 0.25  # seconds between two looks at what is too old
_AWAY_BEATS = 2.5  # heartbeats without an answer after which another peer is tried
_MOST_WAITING = 10_000  # messages for a peer that is being dialled
_LONGEST_EVENT = PeerParameters().longest_event


class RingClient(TopicClient):
    """A client of peers. It goes to another one if its own dies or is silent."""

    def __init__(
        self,
        options: PeerOptions,
        settings: ClientSettings | None = None,
        *,
        name: str | None = None,
    ) -> None:
        self.options = options
        self.settings = settings or ClientSettings()
        # A restarted client gets a new name, so that its messages are not taken for old ones.
        self._hello = Hello("client", options.name or name or "", secrets.token_hex(8))
        if fault := find_fault(self._hello):
            raise ValueError(fault)
        self.name = client_name(self._hello)
        self._clock = make_clock()
        beat = self.settings.beat_every
        self.machine = PeerClient(
            self.name,
            LIVE_PEERS,
            options.addresses,
            ClientParameters(
                beat_every=beat,
                away_after=max(4.0, _AWAY_BEATS * beat),
                repeat_after=self.settings.repeat_after,
                window=self.settings.window,
            ),
        )
        self._driver = DirectDriver(
            self._on_timer, {Send: self._send, Deliver: self._deliver}, clock=self._clock
        )
        self._links = Links(self, CLIENT_LIMITS)
        self._stack = AsyncExitStack()
        self._is_open = False
        self._connection: LinkConnection | None = None
        self._connected = asyncio.Event()
        self._moved = asyncio.Event()  # the connection is not to the machine's peer, or has ended
        self._said: list[Send] = []  # in this turn of the loop
        self._waiting: deque[Send] = deque()  # for the peer that is being dialled
        self._refusals: dict[str, PeerRefusedError] = {}  # by peer, since the last connection
        self._trouble = "it does not answer"
        self._subscriptions: dict[str, TopicSubscription] = {}
        self._secured: dict[str, asyncio.Future[None]] = {}
        self._due: deque[Event | EventsLostError] = deque()  # events that their readers have yet
        self._changed = asyncio.Event()  # there are such events
        self._room = asyncio.Event()
        self._is_held_up = False
        self._creating: Requests[bool] = Requests()
        self._removing: Requests[bool] = Requests()
        self._confirmations = Confirmations(self.settings.window, self.settings.timeout)
        self._published = self._puts = self._delivered = self._dropped = 0

    async def __aenter__(self) -> Self:
        await self.options.check_addresses()
        async with AsyncExitStack() as stack:
            stack.callback(self._driver.close)
            await stack.enter_async_context(self._links)
            start = await stack.enter_async_context(own_tasks())
            self._is_open = True
            self._driver.perform(self.machine.start(self._clock()))
            start(self._stay_connected())
            start(self._hand_over())
            start(self._tick())
            await self._wait_for_peer()
            self._stack = stack.pop_all()
        return self

    async def _wait_for_peer(self) -> None:
        try:
            async with asyncio.timeout(self.settings.connect_within):
                await self._connected.wait()
        except TimeoutError:
            raise PeerAwayError(str(self.options), self._trouble) from None

    async def __aexit__(self, *raised: Any) -> bool:
        await self.close()
        return bool(await self._stack.__aexit__(*raised))

    async def close(self) -> None:
        """Say goodbye; unread and unconfirmed events are given up."""
        if not self._is_open:
            return
        self._driver.perform(self.machine.leave())
        self._flush()
        self._is_open = False
        self._driver.close()
        for subscription in self._subscriptions.values():
            subscription.close()
        for secured in self._secured.values():
            secured.cancel()
        error = ClientClosedError()
        for waiting in (self._creating, self._removing, self._confirmations):
            waiting.fail_all(error)

    # --- topics --------------------------------------------------------------------------------

    async def create(self, topic: str, *, flow: float = 0.0) -> bool:
        """Create a topic; returns whether it is new. `flow` guesses its events per interval.

        If cancelled, the topic may or may not have been created.
        """
        check_topic(topic)
        if not (isfinite(flow) and flow >= 0):
            raise ValueError(f"flow must be at least 0 events per interval, not {flow:g}")
        return await self._request(self._creating, topic, CreateTopic(topic, flow))

    async def remove(self, topic: str) -> bool:
        """Remove a topic with its events and subscriptions; returns whether it existed.

        Subscriptions to it end with an `UnknownTopicError`. If cancelled, the topic may or may not
        have been removed.
        """
        check_topic(topic)
        return await self._request(self._removing, topic, RemoveTopic(topic))

    async def _request(self, requests: Requests[bool], topic: str, message: Any) -> bool:
        self._check_open()
        try:
            async with asyncio.timeout(self.settings.timeout):
                answer = requests.open(topic)
                self._tell_machine(message)
                return await asyncio.shield(answer)
        except TimeoutError:
            raise self._away(topic) from None
        finally:
            if requests.close(topic):
                self._tell_machine(CancelRequest(topic))

    async def publish(self, topic: str, payload: bytes) -> None:
        """Return once the event is accepted: every subscriber will receive it exactly once.

        Events that one client publishes to one topic keep their order. If cancelled, or after a
        `NotConfirmedError`, the event may still be accepted.
        """
        check_topic(topic)
        if not isinstance(payload, bytes):
            raise TypeError(
                f"an event must be bytes, not {type(payload).__name__}; encode it first"
            )
        if len(payload) > _LONGEST_EVENT:
            raise PayloadTooLargeError(topic, len(payload), _LONGEST_EVENT, remedy="split it")
        await self._confirmations.wait_for_room(topic)
        self._check_open()
        confirmed = self._confirmations.add(topic, self._clock())
        self._tell_machine(Say(topic, payload))
        await confirmed
        self._published += 1

    async def subscribe(self, topic: str) -> TopicSubscription:
        """Subscribe to all events of a topic that are accepted after this returns.

        If cancelled, the client is not subscribed.
        """
        check_topic(topic)
        self._check_open()
        if topic in self._subscriptions:
            raise ValueError(f"already subscribed to {topic!r}")
        settings = self.settings
        subscription = TopicSubscription(topic, settings.capacity, settings.when_full)
        self._subscriptions[topic] = subscription
        secured = self._secured[topic] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(settings.timeout):
                self._tell_machine(Want(topic))
                await secured
        except BaseException as error:
            self._end_subscription(topic)
            if isinstance(error, TimeoutError):
                raise self._away(topic) from None
            raise
        finally:
            self._secured.pop(topic, None)
        return subscription

    async def unsubscribe(self, topic: str) -> None:
        """End the subscription to a topic."""
        self._check_open()
        self._end_subscription(topic)

    def _end_subscription(self, topic: str) -> None:
        subscription = self._subscriptions.pop(topic, None)
        if subscription is not None:
            subscription.close()
            self._tell_machine(Unwant(topic))

    @property
    def peer(self) -> str:
        """The peer that this client is, or wants to be, attached to."""
        return self.machine.peer

    @property
    def statistics(self) -> ClientStatistics:
        """A snapshot of the counts."""
        return ClientStatistics(
            published=self._published,
            repeated=self._puts - self._confirmations.said,
            delivered=self._delivered,
            dropped=self._dropped,
            rejoined=self.machine.subscriber.generation,
            channels=self.machine.subscriber.channels(),
        )

    def _check_open(self) -> None:
        if not self._is_open:
            raise ClientClosedError

    def _away(self, topic: str) -> LiveError:
        if self._connection:
            return TopicWaitsError(self.peer, topic, self.settings.timeout)
        return PeerAwayError(str(self.options), self._trouble)

    # --- the machine ---------------------------------------------------------------------------

    def _tell_machine(self, message: Any) -> None:
        """Give the machine a request of the application."""
        if self._is_open:
            self._perform(self.machine.on_message(_OUTSIDE, message, self._clock()))

    def _perform(self, actions: Iterable[Action]) -> None:
        self._driver.perform(actions)
        self._note_secured()
        self._follow_machine()

    def _on_timer(self, name: str, now: float) -> list[Action]:
        if self._is_held_up:
            self.machine.excuse(now)
        actions = self.machine.on_timer(name, now)
        self._follow_machine()
        return actions

    def _follow_machine(self) -> None:
        """Leave the peer that the machine has given up."""
        connection = self._connection
        if connection is not None and connection.peer.dialled != self.machine.peer:
            self._connection = None
            self._links.close(connection.number, "the peer was silent")
            self._moved.set()

    def _note_secured(self) -> None:
        """Let those go on whose subscriptions are complete."""
        subscriber = self.machine.subscriber
        if not subscriber.secured:
            return
        secured, subscriber.secured = subscriber.secured, set()
        for topic in secured:
            waiting = self._secured.get(topic)
            if waiting is not None and not waiting.done() and subscriber.is_covered(topic):
                waiting.set_result(None)

    def _send(self, sends: list[Send]) -> None:
        """Queue messages; what one turn of the loop has said to the peer is sent together."""
        if not self._said:
            asyncio.get_running_loop().call_soon(self._driver.guard, self._flush)
        self._said += sends

    def _flush(self) -> None:
        """Send what is queued, or keep it for the peer that is being dialled."""
        connection, peer = self._connection, self.machine.peer
        messages = join_puts(action.message for action in self._said if action.to == peer)
        self._said.clear()
        self._puts += sum(map(_count_puts, messages))
        if connection is not None and connection.peer.dialled == peer:
            connection.send(map(connection.codec.encode, messages))
        elif len(self._waiting) + len(messages) <= _MOST_WAITING:
            self._waiting.extend(Send(peer, message) for message in messages)
        else:
            self._dropped += len(messages)  # the machine repeats them

    def _deliver(self, delivers: list[Deliver]) -> None:
        for action in delivers:
            match action.message:
                case Event() | EventsLostError() as event:
                    self._take_event(event)
                case Confirmed(topic, upto):
                    self._confirmations.confirm(topic, upto)
                case StreamForgotten(topic):
                    error = NotConfirmedError(topic, self.machine.parameters.away_after)
                    self._confirmations.fail(topic, error)
                case NoTopic(topic):
                    self._miss(topic)
                case (str() as topic, Created(new)):
                    self._creating.answer(topic, new)
                case (str() as topic, Removed(existed)):
                    self._removing.answer(topic, existed)

    # --- events --------------------------------------------------------------------------------

    def _take_event(self, event: Event | EventsLostError) -> None:
        subscription = self._subscriptions.get(event.topic)
        if subscription is None:
            return
        self._delivered += 1
        if not self._due and subscription.has_room:
            subscription.put_now(event)
        else:
            self._due.append(event)
            self._changed.set()

    async def _hand_over(self) -> None:
        """Hand events over in order, waiting for their readers."""
        while True:
            while self._due:
                subscription = self._subscriptions.get(self._due[0].topic)
                if subscription is not None:
                    await subscription.put(self._due[0])
                self._due.popleft()
            self._room.set()
            self._changed.clear()
            await self._changed.wait()

    def _miss(self, topic: str) -> None:
        """The topic does not exist: tell whoever publishes to it or reads it."""
        self._tell_machine(GiveUp(topic))
        self._confirmations.fail(topic, UnknownTopicError(topic))
        secured = self._secured.get(topic)
        if secured is not None:
            if not secured.done():
                secured.set_exception(UnknownTopicError(topic))
            return
        subscription = self._subscriptions.pop(topic, None)
        if subscription is not None:
            subscription.fail(UnknownTopicError(topic))
            self._tell_machine(Unwant(topic))

    async def _tick(self) -> None:
        """Fail what was not confirmed in time."""
        while True:
            await asyncio.sleep(_TICK)
            self._driver.check()
            for topic in self._confirmations.fail_overdue(self._clock()):
                self._tell_machine(GiveUp(topic))

    # --- connections ---------------------------------------------------------------------------

    async def _stay_connected(self) -> None:
        """Be connected to the machine's peer; tell the machine if that fails."""
        back_off = BackOff(Random(), longest=1.0)
        while True:
            peer, began = self.machine.peer, self._clock()
            self._moved.clear()
            ended = asyncio.get_running_loop().create_future()
            self._connect(peer, ended)
            moved = asyncio.ensure_future(self._moved.wait())
            try:
                await asyncio.wait((ended, moved), return_when=asyncio.FIRST_COMPLETED)
            finally:
                moved.cancel()
            if not self._is_open:
                return
            self._give_up_if_refused()
            # What the machine has said to its next peer already is sent there.
            self._waiting = deque(each for each in self._waiting if each.to != peer)
            if self.machine.peer == peer:
                self._perform(self.machine.lost(self._clock()))
            await asyncio.sleep(back_off.pause(self._clock() - began))

    def _connect(self, peer: str, ended: asyncio.Future[None]) -> None:
        def end(reason: str, opened: bool) -> None:
            if not opened:
                self._trouble = reason
            if not ended.done():
                ended.set_result(None)

        dialer = make_client_dialer(
            peer,
            self.options,
            hello=self._hello,
            codec=CLIENT_SIDE,
            on_refused=partial(self._refusals.__setitem__, peer),
        )
        self._links.connect(dialer, end)

    def _give_up_if_refused(self) -> None:
        """Fail if every peer that was tried refuses this client for good."""
        known = [*self.options.addresses]
        if all(peer in self._refusals for peer in known):
            raise self._refusals[known[0]]

    async def on_open(self, connection: LinkConnection) -> None:
        """Take a new connection, if the machine still wants it."""
        if connection.peer.dialled != self.machine.peer:
            self._links.close(connection.number, "another peer was chosen")
            return
        self._connection = connection
        self._refusals.clear()
        messages = [each.message for each in self._waiting if each.to == connection.peer.dialled]
        self._waiting.clear()
        connection.send(map(connection.codec.encode, messages))
        self.machine.excuse(self._clock())
        self._connected.set()

    async def on_message(self, connection: LinkConnection, message: Any) -> None:
        """Take a message; wait while the application does not read what is there."""
        if not self._is_open:
            return
        try:
            actions = self.machine.on_message(connection.peer.dialled, message, self._clock())
        except UnexpectedMessageError:
            self._dropped += 1  # not a message to a client
            return
        self._perform(actions)
        while len(self._due) > self.settings.capacity:
            self._is_held_up = True
            self._room.clear()
            await self._room.wait()
        self._is_held_up = False

    def on_close(self, connection: LinkConnection) -> None:
        """A connection has closed."""
        if connection is self._connection:
            self._connection = None
            self._trouble = connection.reason


def _count_puts(message: Any) -> int:
    """The events that a message publishes."""
    match message:
        case ChannelMessage(_, Put()):
            return 1
        case ChannelMessage(_, Puts(_, _, payloads)):
            return len(payloads)
    return 0
