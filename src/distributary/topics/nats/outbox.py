"""The unconfirmed events of a publisher to one topic."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

from distributary.topics.codec import Put

__all__ = ["Outbox"]


@dataclass(slots=True)
class _Waiting:
    put: Put
    since: float
    confirmed: asyncio.Future[None]


class Outbox:
    """A stream of numbered events that are retransmitted, in order, until they are confirmed.

    At most `window` of them are in flight; adding another waits for room.
    """

    def __init__(self, topic: str, stream: int, window: int) -> None:
        self.topic = topic
        self.stream = stream
        self.heard_at = 0.0  # time of the last progress or retransmission
        self.failed = False
        self._room = asyncio.Semaphore(window)
        self._waiting: deque[_Waiting] = deque()
        self._next = 1

    async def room(self) -> bool:
        """Wait until another event may be in flight; returns False if the stream has ended."""
        await self._room.acquire()
        if self.failed:
            self._room.release()  # wake the next who waits
        return not self.failed

    def add(self, payload: bytes, now: float) -> tuple[Put, asyncio.Future[None]]:
        """Add an event, after `room`."""
        put = Put(self.stream, self._next, payload)
        self._next += 1
        if not self._waiting:
            self.heard_at = now
        confirmed = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(put, now, confirmed))
        return put, confirmed

    def confirm(self, upto: int, now: float) -> None:
        """Drop all events up to a number, which the service has accepted."""
        while self._waiting and self._waiting[0].put.number <= upto:
            self.heard_at = now
            self._drop(None)

    def again(self, now: float) -> list[Put]:
        """All unconfirmed events, for retransmission."""
        self.heard_at = now
        return [each.put for each in self._waiting]

    def expects(self, number: int) -> bool:
        """Whether the event that the service expects is still available here."""
        first = self._waiting[0].put.number if self._waiting else self._next
        return number >= first

    @property
    def oldest_at(self) -> float | None:
        """When the oldest unconfirmed event was added."""
        return self._waiting[0].since if self._waiting else None

    def fail(self, error: Exception) -> None:
        """Fail all unconfirmed events; the stream ends here."""
        self.failed = True
        while self._waiting:
            self._drop(error)
        self._room.release()  # whoever waits wakes the next

    def _drop(self, error: Exception | None) -> None:
        confirmed = self._waiting.popleft().confirmed
        self._room.release()
        if confirmed.done():
            return  # the caller was cancelled
        if error is None:
            confirmed.set_result(None)
        else:
            confirmed.set_exception(error)
