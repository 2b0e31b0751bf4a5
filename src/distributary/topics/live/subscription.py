"""The events of one topic as an application reads them."""

from __future__ import annotations

import asyncio
from collections import deque
from enum import StrEnum
from typing import Self

from distributary.errors import LiveError
from distributary.topics.errors import EventsLostError
from distributary.topics.messages import Event

__all__ = ["TopicSubscription", "WhenFull"]


class WhenFull(StrEnum):
    """What happens when an application reads more slowly than events arrive."""

    WAIT = "wait"  # the client stops receiving, for all topics; lost events are requested again
    DROP_OLDEST = "drop-oldest"  # drop the oldest event and count it


class TopicSubscription:
    """Events in order, each exactly once: `async for event in subscription`.

    Raises an `EventsLostError` where events are no longer available; reading continues after them.
    An `EventsForgottenError` names events that were delivered and that the service has lost.
    """

    def __init__(self, topic: str, capacity: int, when_full: WhenFull) -> None:
        self.topic = topic
        self.dropped = 0
        self._capacity = capacity
        self._when_full = when_full
        self._events: deque[Event | LiveError] = deque()
        self._readable = asyncio.Event()
        self._room = asyncio.Event()
        self._closed = False
        self._failed = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        event = await self.get()
        if event is None:
            raise StopAsyncIteration
        return event

    async def get(self) -> Event | None:
        """The next event; None once unsubscribed. Cancelling it loses no event."""
        while not self._events:
            if self._closed or self._failed:
                return None
            self._readable.clear()
            await self._readable.wait()
        event = self._events.popleft()
        self._room.set()
        if isinstance(event, LiveError):
            raise event
        return event

    def __len__(self) -> int:
        """The number of unread events."""
        return len(self._events)

    async def put(self, event: Event | EventsLostError) -> None:
        """Add an event, waiting for room; only for the client's own use."""
        while not self.has_room:
            self._room.clear()
            await self._room.wait()
        self.put_now(event)

    def put_now(self, event: Event | EventsLostError) -> None:
        """Add an event without waiting."""
        if self._closed:
            return
        if len(self._events) >= self._capacity:
            self._events.popleft()
            self.dropped += 1
        self._events.append(event)
        self._readable.set()

    @property
    def has_room(self) -> bool:
        """Whether `put` would return at once."""
        drops = self._when_full is WhenFull.DROP_OLDEST
        return drops or self._closed or len(self._events) < self._capacity

    def fail(self, error: LiveError) -> None:
        """Raise the error after the events that are already there."""
        self._events.append(error)
        self._failed = True
        self._readable.set()

    def close(self) -> None:
        """End the subscription and discard unread events."""
        self._closed = True
        self._events.clear()
        self._readable.set()
        self._room.set()
