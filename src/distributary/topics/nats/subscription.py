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
    """What happens when an application does not read as fast as events come."""

    WAIT = "wait"  # nothing more is taken in, of no topic; what that loses is asked for again
    DROP_OLDEST = "drop-oldest"  # and count it


class TopicSubscription:
    """Events in order and each once: `async for event in subscription`.

    An `EventsLostError` is raised where events can be had no more; reading on goes on after them.
    One that is an `EventsForgottenError` names events that were read and that the service has lost.
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
        """The next event; None once we are unsubscribed. Cancelling it loses nothing."""
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
        """How many wait to be read."""
        return len(self._events)

    async def put(self, event: Event | EventsLostError) -> None:
        """Hand one more over; for the client's own use."""
        while not self.has_room:
            self._room.clear()
            await self._room.wait()
        self.put_now(event)

    def put_now(self, event: Event | EventsLostError) -> None:
        """Hand one more over where there is room."""
        if self._closed:
            return
        if len(self._events) >= self._capacity:
            self._events.popleft()
            self.dropped += 1
        self._events.append(event)
        self._readable.set()

    @property
    def has_room(self) -> bool:
        """Whether `put` would not wait."""
        drops = self._when_full is WhenFull.DROP_OLDEST
        return drops or self._closed or len(self._events) < self._capacity

    def fail(self, error: LiveError) -> None:
        """Nothing will come after what is there: raise the error then."""
        self._events.append(error)
        self._failed = True
        self._readable.set()

    def close(self) -> None:
        """No more will come, and what was not read is thrown away."""
        self._closed = True
        self._events.clear()
        self._readable.set()
        self._room.set()
