"""The publishing half of a client: retransmits events until the service has confirmed them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

import nats.errors
from nats.aio.client import Client

from distributary.topics import topic_channel
from distributary.topics.codec import AROUND, Expect, NoTopic, Put, Taken
from distributary.topics.errors import (
    ClientClosedError,
    NotConfirmedError,
    PayloadTooLargeError,
    SubjectDeniedError,
    UnknownTopicError,
)
from distributary.topics.names import check_topic
from distributary.topics.nats.outbox import Outbox
from distributary.topics.nats.packets import encode_joint_puts, encode_puts
from distributary.topics.nats.permissions import has_token
from distributary.topics.nats.subjects import JOINT, Subjects

__all__ = ["TopicWriter"]


class TopicWriter:
    """Publishes to any number of topics, in order on each; times in seconds."""

    def __init__(
        self,
        nc: Client,
        subjects: Subjects,
        name: str,
        *,
        timeout: float,
        window: int,
        repeat_after: float,
        linger: float = 0.0,
    ) -> None:
        self._nc = nc
        self._subjects = subjects
        self._name = name
        self._timeout = timeout
        self._window = window
        self._repeat_after = repeat_after
        self._linger = linger
        self._many = max(window // 2, 1)  # unsent events of a topic that wait no longer
        self._outboxes: dict[str, Outbox] = {}  # by topic
        self._streams: dict[int, Outbox] = {}  # by stream
        self._unsent: dict[str, list[Put]] = {}  # by topic
        self._some = asyncio.Event()  # there is something unsent
        self._enough = asyncio.Event()
        self._count = 0
        self._is_closed = False
        self.published = 0
        self.repeated = 0

    async def publish(self, topic: str, payload: bytes) -> None:
        """Return once the service has confirmed that every subscriber will get the event."""
        check_topic(topic)
        if not isinstance(payload, bytes):
            raise TypeError(
                f"an event must be bytes, not {type(payload).__name__}; encode it first"
            )
        most = self._nc.max_payload - AROUND
        if len(payload) > most:
            raise PayloadTooLargeError(topic, len(payload), most)
        outbox = self._outbox(topic)
        while not await outbox.room():  # it failed while this waited
            outbox = self._outbox(topic)
        put, confirmed = outbox.add(payload, time.monotonic())
        unsent = self._unsent.setdefault(topic, [])
        unsent.append(put)
        self._some.set()
        if len(unsent) >= self._many:
            self._enough.set()
        await confirmed
        self.published += 1

    async def pump(self) -> None:
        """Send what was published since the last turn of the loop, until cancelled or closed."""
        while not self._nc.is_closed:
            await self._some.wait()
            await self._wait_for_more()
            self._some.clear()
            unsent, self._unsent = self._unsent, {}
            with suppress(ClientClosedError):
                await self._say_all(unsent)

    async def _wait_for_more(self) -> None:
        """Wait for events that can travel together with those that are unsent."""
        if self._linger > 0.0:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._linger):
                    await self._enough.wait()
        self._enough.clear()

    def hear(self, message: Taken | Expect | NoTopic) -> list[tuple[str, list[Put]]]:
        """Handle an answer; returns the events to retransmit."""
        now = time.monotonic()
        if isinstance(message, NoTopic):
            outbox = self._outboxes.get(message.topic)
            if outbox is not None:
                self._end(outbox, UnknownTopicError(message.topic))
            return []
        outbox = self._streams.get(message.stream)
        if outbox is None:
            return []
        if isinstance(message, Taken):
            outbox.confirm(message.upto, now)
            return []
        if not outbox.expects(message.number):
            self._end(outbox, NotConfirmedError(outbox.topic, self._timeout))
            return []
        if now - outbox.heard_at < self._repeat_after / 10:
            return []  # everything has just been retransmitted
        return [(outbox.topic, outbox.again(now))]

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that were published to."""
        return tuple(self._outboxes)

    def deny(self, token: str, error: SubjectDeniedError) -> None:
        """Fail what is unconfirmed and must pass a subject that the server refuses."""
        for outbox in [*self._outboxes.values()]:
            refused = token == JOINT or has_token(topic_channel(outbox.topic), token)
            if refused and outbox.oldest_at is not None:
                self._end(outbox, error)

    async def repeat(self, *, all_of_it: bool = False) -> None:
        """Retransmit events that are unconfirmed for some time, and fail those that are too old."""
        now = time.monotonic()
        for outbox in [*self._outboxes.values()]:
            since = outbox.oldest_at
            if since is None:
                continue
            if now - since > self._timeout:
                self._end(outbox, NotConfirmedError(outbox.topic, self._timeout))
            elif self._nc.is_connected and (
                all_of_it or now - outbox.heard_at > self._repeat_after
            ):
                await self.say_again(outbox.topic, outbox.again(now))

    async def say_again(self, topic: str, puts: list[Put]) -> None:
        """Retransmit events."""
        self.repeated += len(puts)
        await self._say(topic, puts)

    def close(self) -> None:
        """Fail all unconfirmed events, and what still waits to be sent."""
        self._is_closed = True
        for outbox in [*self._outboxes.values()]:
            self._end(outbox, ClientClosedError())

    def _outbox(self, topic: str) -> Outbox:
        if self._is_closed:
            raise ClientClosedError
        if topic not in self._outboxes:
            self._count += 1
            outbox = Outbox(topic, self._count, self._window)
            self._outboxes[topic] = self._streams[outbox.stream] = outbox
        return self._outboxes[topic]

    def _end(self, outbox: Outbox, error: Exception) -> None:
        del self._outboxes[outbox.topic], self._streams[outbox.stream]
        outbox.fail(error)

    async def _say_all(self, unsent: dict[str, list[Put]]) -> None:
        """Send events of several topics, together if they have waited for each other."""
        if self._linger > 0.0 and len(unsent) > 1:
            packets = _pack_jointly(self._name, unsent, self._nc.max_payload)
            await self._publish(self._subjects.joint_puts, packets)
            return
        for topic, puts in unsent.items():
            await self._say(topic, puts)

    async def _say(self, topic: str, puts: list[Put]) -> None:
        packets = _pack(self._name, puts, self._nc.max_payload)
        await self._publish(self._subjects.to(topic_channel(topic)), packets)

    async def _publish(self, subject: str, packets: Iterable[bytes]) -> None:
        for packet in packets:
            try:
                await self._nc.publish(subject, packet)
            except nats.errors.OutboundBufferLimitError:
                return  # disconnected: everything is retransmitted after the reconnection
            except nats.errors.ConnectionClosedError:
                raise ClientClosedError from None


def _pack_jointly(name: str, unsent: Mapping[str, list[Put]], most: int) -> Iterator[bytes]:
    """Encode events of several topics as few packets of at most `most` bytes."""
    packet, size = dict[str, list[Put]](), 0
    for topic, puts in unsent.items():
        for put in puts:
            needed = len(put.payload) + 10
            if topic not in packet:
                needed += len(topic.encode()) + 30
            if packet and size + needed > most - AROUND:
                yield encode_joint_puts(name, packet)
                packet, size = {}, 0
            packet.setdefault(topic, []).append(put)
            size += needed
    if packet:
        yield encode_joint_puts(name, packet)


def _pack(name: str, puts: list[Put], most: int) -> Iterator[bytes]:
    """Encode consecutive events as few packets of at most `most` bytes."""
    packet, size = list[Put](), 0
    for put in puts:
        if packet and size + len(put.payload) > most - AROUND:
            yield encode_puts(name, packet)
            packet, size = [], 0
        packet.append(put)
        size += len(put.payload) + 10
    if packet:
        yield encode_puts(name, packet)
