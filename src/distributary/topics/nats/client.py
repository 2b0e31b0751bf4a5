"""The client of a channel service on NATS."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from contextlib import AsyncExitStack
from math import isfinite
from typing import Any, Self, TypeVar

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from distributary.errors import LiveError
from distributary.machines.nats.options import NatsOptions, connect_to_server
from distributary.machines.real.tasks import own_tasks
from distributary.topics import Subscriber, topic_channel
from distributary.topics.codec import (
    SERVICE,
    Beat,
    Bye,
    Create,
    Created,
    Expect,
    NoTopic,
    Remove,
    Removed,
    decode,
    digest,
    encode,
)
from distributary.topics.errors import (
    ClientClosedError,
    ServerAwayError,
    ServerRefusedError,
    ServiceAwayError,
    SubjectDeniedError,
    TopicNameError,
)
from distributary.topics.live.client import ClientSettings, ClientStatistics, TopicClient
from distributary.topics.live.subscription import TopicSubscription
from distributary.topics.names import check_topic
from distributary.topics.nats.packets import TAKEN, PieceCollector, decode_taken, encode_beat
from distributary.topics.nats.permissions import REPLIES, Refusal, has_token, read_refusal
from distributary.topics.nats.policy import LIVE
from distributary.topics.nats.reader import TopicReader
from distributary.topics.nats.subjects import JOINT, Subjects
from distributary.topics.nats.writer import TopicWriter

__all__ = ["NatsClient"]

A = TypeVar("A", Created, Removed)

_TICK = 0.25  # seconds between two checks for unconfirmed requests
_AT_ONCE = 256  # concurrent requests to create or remove topics, and to subscribe; others wait
_LONGEST_NAME = 100  # bytes; the name is part of every message


class NatsClient(TopicClient):
    """A client of the channel service on a NATS server."""

    def __init__(
        self,
        options: NatsOptions | None = None,
        settings: ClientSettings | None = None,
        *,
        name: str | None = None,
    ) -> None:
        self.options = options or NatsOptions()
        self.settings = settings or ClientSettings()
        if len((name or "").encode()) > _LONGEST_NAME:
            raise ValueError(f"{name!r} is too long for a client: {_LONGEST_NAME} bytes at most")
        # A restarted client gets a new name, so that its messages are not taken for old ones.
        self.name = f"client/{name + '/' if name else ''}{secrets.token_hex(8)}"
        self._subjects = Subjects(self.settings.prefix)
        self._stack = AsyncExitStack()
        self._asking = asyncio.Semaphore(_AT_ONCE)
        self._subscribing = asyncio.Semaphore(_AT_ONCE)
        self._pieces = PieceCollector()
        self._requests: dict[str, set[asyncio.Future[LiveError]]] = {}  # that wait, by channel
        self._denied: LiveError | None = None  # the server refuses all answers to requests
        self._fault: LiveError | None = None  # nothing can reach this client
        self._nc: Client | None = None

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            nc = await stack.enter_async_context(
                connect_to_server(
                    self.options,
                    name=self.name,
                    within=self.settings.connect_within,
                    on_reconnect=self._on_reconnect,
                    on_error=self._on_error,
                )
            )
            subscriber = Subscriber(self.name, LIVE)
            self._reader = TopicReader(nc, self._subjects, subscriber, queue=self.settings.capacity)
            self._writer = TopicWriter(
                nc,
                self._subjects,
                self.name,
                timeout=self.settings.timeout,
                window=self.settings.window,
                repeat_after=self.settings.repeat_after,
                linger=self.settings.linger,
            )
            self._nc = nc
            await nc.subscribe(self._subjects.client(self.name), cb=self._on_inbox)
            start = await stack.enter_async_context(own_tasks())
            start(self._reader.pump())
            start(self._writer.pump())
            start(self._beat())
            start(self._tick())
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *raised: Any) -> bool:
        await self.close()
        return bool(await self._stack.__aexit__(*raised))

    async def close(self) -> None:
        """Say goodbye; unread and unconfirmed events are given up."""
        nc, self._nc = self._nc, None
        if nc is None:
            return
        self._writer.close()
        self._reader.close()
        if nc.is_connected:
            try:
                await nc.publish(self._subjects.to(SERVICE), encode(self.name, Bye()))
                await nc.flush(timeout=1)
            except (nats.errors.Error, TimeoutError):
                pass  # the service will declare this client dead

    # --- topics --------------------------------------------------------------------------------

    async def create(self, topic: str, *, flow: float = 0.0) -> bool:
        """Create a topic; returns whether it is new. `flow` guesses its events per interval.

        If cancelled, the topic may or may not have been created.
        """
        check_topic(topic)
        if not (isfinite(flow) and flow >= 0):
            raise ValueError(f"flow must be at least 0 events per interval, not {flow:g}")
        answer = await self._ask(topic, Create(flow), Created)
        return answer.new

    async def remove(self, topic: str) -> bool:
        """Remove a topic with its events and subscriptions; returns whether it existed.

        Subscriptions to it end with an `UnknownTopicError`. If cancelled, the topic may or may not
        have been removed.
        """
        check_topic(topic)
        answer = await self._ask(topic, Remove(), Removed)
        return answer.existed

    async def _ask(self, topic: str, message: Create | Remove, kind: type[A]) -> A:
        self._open()
        try:
            async with asyncio.timeout(self.settings.timeout), self._asking:
                return await self._ask_unless_denied(topic, message, kind)
        except TimeoutError:
            raise self._away(self.settings.timeout) from None

    async def _ask_unless_denied(self, topic: str, message: Create | Remove, kind: type[A]) -> A:
        """Ask; raises at once if the server refuses to carry the request or its answer."""
        if self._denied is not None:
            raise self._denied
        channel = topic_channel(topic)
        denied: asyncio.Future[LiveError] = asyncio.get_running_loop().create_future()
        waiting = self._requests.setdefault(channel, set())
        waiting.add(denied)
        asking = asyncio.ensure_future(self._repeat_until_answered(topic, message, kind))
        try:
            await asyncio.wait((asking, denied), return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                raise denied.result()
            return await asking
        finally:
            asking.cancel()
            waiting.discard(denied)
            if not waiting:
                self._requests.pop(channel, None)

    async def _repeat_until_answered(
        self, topic: str, message: Create | Remove, kind: type[A]
    ) -> A:
        """Repeat the request, each time with a longer time-out, until it is answered."""
        subject, data = self._subjects.to(topic_channel(topic)), encode(self.name, message)
        for attempt in itertools.count():
            nc = self._open()
            try:
                wait = min(2.0 ** min(attempt, 20), self.settings.timeout)
                answer = await nc.request(subject, data, timeout=wait)
            except (nats.errors.NoRespondersError, nats.errors.OutboundBufferLimitError):
                await asyncio.sleep(0.1)
            except nats.errors.TimeoutError:
                pass
            except nats.errors.ConnectionClosedError:
                raise ClientClosedError from None
            else:
                said = _answer_in(answer)
                if isinstance(said, kind):
                    return said
                if said is not None:
                    raise TopicNameError(topic, "the service refuses it")
        raise AssertionError("nobody counts that far")

    async def publish(self, topic: str, payload: bytes) -> None:
        """Return once the event is accepted: every subscriber will receive it exactly once.

        Events that one client publishes to one topic keep their order. If cancelled, or after a
        `NotConfirmedError`, the event may still be accepted.
        """
        self._open()
        await self._writer.publish(topic, payload)

    async def subscribe(self, topic: str) -> TopicSubscription:
        """Subscribe to all events of a topic that are accepted after this returns.

        If cancelled, the client is not subscribed.
        """
        check_topic(topic)
        self._open()
        settings = self.settings
        subscription = TopicSubscription(topic, settings.capacity, settings.when_full)
        try:
            async with asyncio.timeout(settings.timeout), self._subscribing:
                await self._reader.want(subscription)
        except TimeoutError:
            raise self._away(settings.timeout) from None
        return subscription

    async def unsubscribe(self, topic: str) -> None:
        """End the subscription to a topic."""
        self._open()
        await self._reader.unwant(topic)

    @property
    def statistics(self) -> ClientStatistics:
        """A snapshot of the counts."""
        return ClientStatistics(
            published=self._writer.published,
            repeated=self._writer.repeated,
            delivered=self._reader.delivered,
            dropped=self._reader.dropped,
            rejoined=self._reader.machine.generation,
            channels=self._reader.channels,
        )

    # --- inside --------------------------------------------------------------------------------

    def _open(self) -> Client:
        if self._nc is None or self._nc.is_closed:
            raise ClientClosedError
        return self._nc

    def _away(self, waited: float) -> LiveError:
        if self._nc is not None and not self._nc.is_connected:
            return ServerAwayError(self.options.url, f"nothing for {waited:g} s")
        return ServiceAwayError(self.settings.prefix, waited)

    async def _on_inbox(self, message: Msg) -> None:
        """Handle a message to this client; answers to the publisher bypass the queue of events."""
        try:
            if message.data[:1] == TAKEN:
                sender, said = "", decode_taken(message.data)
            else:
                data = self._pieces.take(message.data)
                if data is None:
                    return
                sender, said = decode(data)
        except ValueError:
            return
        if isinstance(said, list):
            for taken in said:
                self._writer.hear(taken)
            return
        if isinstance(said, Expect | NoTopic):
            for topic, puts in self._writer.hear(said):
                await self._writer.say_again(topic, puts)
        if not isinstance(said, Expect):
            self._reader.hear(sender, said)

    async def _on_reconnect(self) -> None:
        self._denied = None  # the server refuses it again, if it still does
        if self._nc is not None:
            self._reader.refresh()
            await self._writer.repeat(all_of_it=True)

    async def _on_error(self, error: Exception) -> None:
        """Request events that overflowed the connection's own buffer; tell who waits in vain."""
        if self._nc is None:
            return
        if isinstance(error, nats.errors.SlowConsumerError):
            self._reader.refresh()
        elif (refusal := read_refusal(error)) is not None:
            await self._deny(refusal)

    async def _deny(self, refusal: Refusal) -> None:
        """Fail all that needs a subject which the server refuses."""
        error = SubjectDeniedError(refusal.action, self._spell(refusal))
        if refusal.subscribes:
            if refusal.subject == self._subjects.client(self.name).lower():
                self._fault = error
            elif refusal.subject.startswith(REPLIES.lower()):
                self._denied = error
                self._fail_requests(error)
            await self._reader.deny(refusal, error)
        elif has_token(SERVICE, refusal.token):  # who is silent is removed from its channels
            await self._reader.deny_all(error)
        else:
            self._fail_requests(error, refusal.token)
            self._writer.deny(refusal.token, error)
            await self._reader.deny(refusal, error)

    def _spell(self, refusal: Refusal) -> str:
        """The refused subject as an operator has to allow it, where case matters."""
        if refusal.subscribes:
            channel = self._reader.find_channel(refusal)
            if channel is not None:
                return self._subjects.all_on(channel)
        elif refusal.token == JOINT:
            return self._subjects.joint_puts
        else:
            topics = (*self._writer.topics, *self._reader.machine.wanted)
            clusters = self._reader.machine.on.clusters
            for channel in (SERVICE, *map(topic_channel, topics), *self._requests, *clusters):
                if has_token(channel, refusal.token):
                    return self._subjects.to(channel)
        return refusal.find_family(self._subjects)

    def _fail_requests(self, error: LiveError, token: str | None = None) -> None:
        for channel, waiting in self._requests.items():
            if token is None or has_token(channel, token):
                for denied in waiting:
                    if not denied.done():
                        denied.set_result(error)

    async def _beat(self) -> None:
        while (nc := self._nc) is not None:
            if nc.is_closed:
                reason = str(nc.last_error or "the connection is closed for good")
                raise ServerRefusedError(self.options.url, reason)
            if nc.is_connected:
                machine = self._reader.machine
                channels = machine.channels()
                beat = Beat(
                    machine.generation, bool(channels), digest(channels), self._reader.pulse
                )
                await nc.publish(self._subjects.to(SERVICE), encode_beat(self.name, beat))
            await asyncio.sleep(self.settings.beat_every)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK)
            if self._fault is not None:
                raise self._fault
            await self._writer.repeat()
            self._reader.check_service()


def _answer_in(message: Msg) -> Any:
    """The decoded answer; None if it is malformed."""
    try:
        return decode(message.data)[1]
    except ValueError:
        return None
