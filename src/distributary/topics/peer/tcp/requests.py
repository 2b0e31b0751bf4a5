"""What an application waits for: answers about topics, and confirmations of events."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from distributary.topics.errors import NotConfirmedError

__all__ = ["Confirmations", "Requests"]

T = TypeVar("T")


class Requests(Generic[T]):
    """Requests of one kind, by topic. Those about the same topic share an answer."""

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[asyncio.Future[T], int]] = {}  # with the number who wait

    def open(self, topic: str) -> asyncio.Future[T]:
        """Make the future of an answer; whoever awaits it calls `close` afterwards."""
        found = self._waiting.get(topic)
        if found is None or found[0].done():
            found = asyncio.get_running_loop().create_future(), 0
        self._waiting[topic] = found[0], found[1] + 1
        return found[0]

    def close(self, topic: str) -> bool:
        """One less waits; returns whether nobody does, although there was no answer."""
        future, waiting = self._waiting[topic]
        if waiting > 1:
            self._waiting[topic] = future, waiting - 1
            return False
        del self._waiting[topic]
        return not future.done()

    def answer(self, topic: str, answer: T) -> None:
        """An answer has arrived."""
        found = self._waiting.get(topic)
        if found is not None and not found[0].done():
            found[0].set_result(answer)

    def fail_all(self, error: Exception) -> None:
        """No answer will arrive any more."""
        for future, _ in self._waiting.values():
            if not future.done():
                future.set_exception(error)


@dataclass(slots=True)
class _Stream:
    """The events to one topic that are not confirmed, with the time of each."""

    room: asyncio.Semaphore  # fair, so that events keep their order
    confirmed: int = 0
    waiting: deque[tuple[float, asyncio.Future[None]]] = field(default_factory=deque)


class Confirmations:
    """Futures of published events, in order for each topic; times in seconds."""

    def __init__(self, window: int, timeout: float) -> None:
        self.said = 0
        self._window = window
        self._timeout = timeout
        self._streams: dict[str, _Stream] = {}

    async def wait_for_room(self, topic: str) -> None:
        """Wait while too many events to a topic are unconfirmed; `add` follows at once."""
        while True:
            if topic not in self._streams:
                self._streams[topic] = _Stream(asyncio.Semaphore(self._window))
            stream = self._streams[topic]
            await stream.room.acquire()
            if self._streams.get(topic) is stream:
                return
            stream.room.release()  # it was given up meanwhile: wake the next who waits

    def add(self, topic: str, now: float) -> asyncio.Future[None]:
        """Make the future of the next event to a topic."""
        stream = self._streams[topic]
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        stream.waiting.append((now, future))
        self.said += 1
        return future

    def confirm(self, topic: str, upto: int) -> None:
        """The first `upto` events to a topic are accepted."""
        stream = self._streams.get(topic)
        if stream is None:
            return
        while stream.waiting and stream.confirmed < upto:
            stream.confirmed += 1
            _, future = stream.waiting.popleft()
            if not future.done():
                future.set_result(None)
            stream.room.release()

    def fail(self, topic: str, error: Exception) -> None:
        """Give up what is not confirmed; the next event is the first of another stream."""
        stream = self._streams.pop(topic, None)
        if stream is None:
            return
        for _, future in stream.waiting:
            if not future.done():
                future.set_exception(error)
        stream.waiting.clear()
        stream.room.release()

    def fail_overdue(self, now: float) -> list[str]:
        """Fail the topics whose oldest event was not confirmed in time, and return them."""
        late = [
            topic
            for topic, stream in self._streams.items()
            if stream.waiting and now - stream.waiting[0][0] > self._timeout
        ]
        for topic in late:
            self.fail(topic, NotConfirmedError(topic, self._timeout))
        return late

    def fail_all(self, error: Exception) -> None:
        """Give up everything."""
        for topic in [*self._streams]:
            self.fail(topic, error)
