"""An ordinary asyncio client for topics: create, publish, subscribe, unsubscribe."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from contextlib import AsyncExitStack
from dataclasses import dataclass
from math import isfinite
from types import TracebackType
from typing import Any, Self

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from distributary.errors import LiveError
from distributary.machines.real.tasks import owned_tasks
from distributary.topics import Subscriber
from distributary.topics.codec import (
    SERVICE,
    Beat,
    Bye,
    Create,
    Created,
    Expect,
    NoTopic,
    Taken,
    decode,
    digest,
    encode,
)
from distributary.topics.errors import (
    ClientClosedError,
    ServerAwayError,
    ServerRefusedError,
    ServiceAwayError,
    TopicNameError,
)
from distributary.topics.names import check_topic
from distributary.topics.nats.options import NatsOptions, connected
from distributary.topics.nats.policy import LIVE
from distributary.topics.nats.reader import TopicReader
from distributary.topics.nats.subjects import Subjects
from distributary.topics.nats.subscription import TopicSubscription, WhenFull
from distributary.topics.nats.writer import TopicWriter

__all__ = ["ClientSettings", "ClientStatistics", "TopicClient"]

_TICK = 0.25  # seconds between two looks at what was not answered
_AT_ONCE = 256  # topics to create or to subscribe to; others wait for their turn
_LONGEST_NAME = 100  # bytes, in everything that is said


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """How a client works; times in seconds.

    `capacity` events of each topic wait for the application, and what happens then is `when_full`.
    `window` events to each topic may be unconfirmed; publishing one more waits.
    """

    prefix: str = "distributary"
    timeout: float = 30.0  # for an answer of the service
    connect_within: float = 10.0
    beat_every: float = 2.0  # so that the service knows we are alive
    repeat_after: float = 1.0  # an event without confirmation is said again
    window: int = 256
    capacity: int = 10_000
    when_full: WhenFull = WhenFull.WAIT


@dataclass(frozen=True, slots=True)
class ClientStatistics:
    """What a client has done so far, and where it listens now."""

    published: int
    repeated: int
    delivered: int
    dropped: int
    rejoined: int
    channels: tuple[str, ...]


class TopicClient:
    """Publishes and subscribes to topics, whichever channels their events come by.

    `async with TopicClient(options) as client:` connects, and says goodbye at the end. A connection
    that breaks comes back by itself, and what was missed meanwhile is asked for.
    """

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
        # A restarted client is a new one: nobody may take its first words for late ones.
        self.name = f"client/{name + '/' if name else ''}{secrets.token_hex(8)}"
        self._subjects = Subjects(self.settings.prefix)
        self._stack = AsyncExitStack()
        self._creating = asyncio.Semaphore(_AT_ONCE)
        self._subscribing = asyncio.Semaphore(_AT_ONCE)
        self._nc: Client | None = None

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            nc = await stack.enter_async_context(
                connected(
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
            )
            self._nc = nc
            await nc.subscribe(self._subjects.client(self.name), cb=self._on_inbox)
            start = await stack.enter_async_context(owned_tasks())
            start(self._reader.pump())
            start(self._beat())
            start(self._tick())
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        await self.close()
        return bool(await self._stack.__aexit__(kind, error, trace))

    async def close(self) -> None:
        """Say goodbye; what was not read or not confirmed is given up."""
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
                pass  # the service finds us dead in time

    # --- topics --------------------------------------------------------------------------------

    async def create(self, topic: str, *, flow: float = 0.0) -> bool:
        """Make a topic if there is none; whether it is new. `flow` guesses its events per interval.

        Cancelled, it may or may not have been made.
        """
        check_topic(topic)
        if not (isfinite(flow) and flow >= 0):
            raise ValueError(f"a topic cannot have {flow:g} events per interval")
        self._open()
        try:
            async with asyncio.timeout(self.settings.timeout), self._creating:
                return await self._create(topic, Create(flow))
        except TimeoutError:
            raise self._away(self.settings.timeout) from None

    async def _create(self, topic: str, message: Create) -> bool:
        """Ask until there is an answer, each time with more patience."""
        subject, data = self._subjects.to(f"topic/{topic}"), encode(self.name, message)
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
                if isinstance(said, Created):
                    return said.new
                if said is not None:
                    raise TopicNameError(topic, "the service refuses it")
        raise AssertionError("nobody counts that far")

    async def publish(self, topic: str, payload: bytes) -> None:
        """Return once an event is accepted: everybody who is subscribed will get it, once.

        Events that one client publishes to one topic keep their order. Cancelled, the event may
        still be accepted; so it may after a `NotConfirmedError`.
        """
        self._open()
        await self._writer.publish(topic, payload)

    async def subscribe(self, topic: str) -> TopicSubscription:
        """The topic's events, every one that is accepted from when this returns.

        Cancelled, we are not subscribed.
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
        """Get no more events of a topic; its subscription ends."""
        self._open()
        await self._reader.unwant(topic)

    @property
    def statistics(self) -> ClientStatistics:
        """A snapshot."""
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
        """Answers to a publisher go past the queue of events, which may be full."""
        try:
            sender, said = decode(message.data)
        except ValueError:
            return
        if isinstance(said, Taken | Expect | NoTopic):
            for topic, puts in self._writer.hear(said):
                await self._writer.say_again(topic, puts)
        if not isinstance(said, Taken | Expect):
            self._reader.hear(sender, said)

    async def _on_reconnect(self) -> None:
        if self._nc is not None:
            self._reader.refresh()
            await self._writer.repeat(all_of_it=True)

    async def _on_error(self, error: Exception) -> None:
        """Events that came too fast for the connection's own buffer are asked for at once."""
        if isinstance(error, nats.errors.SlowConsumerError) and self._nc is not None:
            self._reader.refresh()

    async def _beat(self) -> None:
        while (nc := self._nc) is not None:
            if nc.is_closed:
                reason = str(nc.last_error or "the connection is closed for good")
                raise ServerRefusedError(self.options.url, reason)
            if nc.is_connected:
                machine = self._reader.machine
                channels = machine.channels()
                beat = Beat(machine.generation, bool(channels), digest(channels))
                data = encode(self.name, beat)
                await nc.publish(self._subjects.to(SERVICE), data)
            await asyncio.sleep(self.settings.beat_every)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK)
            await self._writer.repeat()
            self._reader.check_service()


def _answer_in(message: Msg) -> Any:
    """What an answer says; None if nobody can know."""
    try:
        return decode(message.data)[1]
    except ValueError:
        return None
