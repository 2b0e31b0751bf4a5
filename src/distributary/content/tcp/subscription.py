"""The events of one subscription as an application reads them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Self

from distributary.content.client_actions import LostEvents, ReceivedEvent
from distributary.content.client_session import TakenFrom
from distributary.content.errors import EventsMissedError
from distributary.errors import LiveError

__all__ = ["ContentSubscription"]


class ContentSubscription:
    """Events that match a filter, each once: `async for event in subscription`.

    An event counts as processed when the next one is asked for, or at `acknowledge`; the broker
    keeps it until then. Raises an `EventsMissedError` where events are missing; reading continues
    after it.
    """

    def __init__(self, filter: str, number: int, finish: Callable[[TakenFrom], None]) -> None:
        self.filter = filter
        self.number = number
        self._finish = finish
        self._items: deque[ReceivedEvent | LostEvents] = deque()
        self._taken: list[TakenFrom] = []
        self._readable = asyncio.Event()
        self._settled = asyncio.Event()
        self._failure: LiveError | None = None
        self._is_closed = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedEvent:
        event = await self.get()
        if event is None:
            raise StopAsyncIteration
        return event

    async def get(self) -> ReceivedEvent | None:
        """The next event; None once unsubscribed. Cancelling it loses no event."""
        found = await self.get_some(1)
        return found[0] if found else None

    async def get_some(self, most: int = 1_000) -> list[ReceivedEvent]:
        """The events that are there, at least one; none once unsubscribed.

        They count as processed at the next call. Cancelling it loses no event.
        """
        self.acknowledge()
        while not self._items:
            if self._failure is not None:
                raise self._failure
            if self._is_closed:
                return []
            self._readable.clear()
            await self._readable.wait()
        found: list[ReceivedEvent] = []
        while self._items and len(found) < most:
            item = self._items[0]
            if isinstance(item, LostEvents):
                break
            found.append(item)
            self._taken.append(self._items.popleft().taken_from)
        if not found and isinstance(item, LostEvents):
            self._taken.append(self._items.popleft().taken_from)
            raise EventsMissedError(item.count, item.reason)
        return found

    def acknowledge(self) -> None:
        """The application has processed the events that it got last."""
        taken, self._taken = self._taken, []
        for each in taken:
            self._finish(each)

    def __len__(self) -> int:
        """The number of unread events."""
        return len(self._items)

    @property
    def is_settled(self) -> bool:
        """Whether all brokers know the subscription, so that it gets every event from then on."""
        return self._settled.is_set()

    async def settle(self) -> None:
        """Wait until all brokers know the subscription."""
        while not self._settled.is_set():
            if self._failure is not None:
                raise self._failure
            await self._settled.wait()

    # --- for the client ---------------------------------------------------------------------------

    def put(self, item: ReceivedEvent | LostEvents) -> None:
        """Add an event, or a report of lost ones."""
        if self._is_closed:
            self._finish(item.taken_from)
            return
        self._items.append(item)
        self._readable.set()

    def note_settled(self) -> None:
        """All brokers know the subscription."""
        self._settled.set()

    def fail(self, error: LiveError) -> None:
        """Raise the error after the events that are there."""
        self._failure = self._failure or error
        self._readable.set()
        self._settled.set()

    def close(self) -> None:
        """End the subscription; unread events count as processed."""
        self._is_closed = True
        self.acknowledge()
        while self._items:
            self._finish(self._items.popleft().taken_from)
        self._readable.set()
