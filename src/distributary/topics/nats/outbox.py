"""What a publisher has sent to one topic and not yet heard back about."""

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
    """A stream of numbered events that are said again until they are confirmed, in order.

    At most `window` are on their way; whoever has one more waits.
    """

    def __init__(self, topic: str, stream: int, window: int) -> None:
        self.topic = topic
        self.stream = stream
        self.heard_at = 0.0  # of progress, or of the last repetition
        self.failed = False
        self._room = asyncio.Semaphore(window)
        self._waiting: deque[_Waiting] = deque()
        self._next = 1

    async def room(self) -> None:
        """Wait until one more may be on its way."""
        await self._room.acquire()

    def add(self, payload: bytes, now: float) -> tuple[Put, asyncio.Future[None]]:
        """Take an event on, after there was room for it."""
        put = Put(self.stream, self._next, payload)
        self._next += 1
        if not self._waiting:
            self.heard_at = now
        confirmed = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(put, now, confirmed))
        return put, confirmed

    def confirm(self, upto: int, now: float) -> None:
        """Drop all events up to a number: the service has accepted them."""
        while self._waiting and self._waiting[0].put.number <= upto:
            self.heard_at = now
            self._drop(None)

    def again(self, now: float) -> list[Put]:
        """Everything that is not confirmed, to be said once more."""
        self.heard_at = now
        return [each.put for each in self._waiting]

    def expects(self, number: int) -> bool:
        """Whether the channel can be given the event it waits for; else nobody knows any more."""
        first = self._waiting[0].put.number if self._waiting else self._next
        return number >= first

    def waiting_since(self) -> float | None:
        """When the oldest came that is not confirmed."""
        return self._waiting[0].since if self._waiting else None

    def fail(self, error: Exception) -> None:
        """Give all up; the stream ends here."""
        self.failed = True
        while self._waiting:
            self._drop(error)

    def _drop(self, error: Exception | None) -> None:
        confirmed = self._waiting.popleft().confirmed
        self._room.release()
        if confirmed.done():
            return  # nobody waits any more
        if error is None:
            confirmed.set_result(None)
        else:
            confirmed.set_exception(error)
