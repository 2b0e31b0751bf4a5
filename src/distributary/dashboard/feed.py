"""Asks the control plane once a second, and lets any number of browsers watch.

All browsers get the same bytes. A browser that reads slowly misses documents and gets the newest:
there is no queue. While nobody watches, nothing is asked.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable

import msgspec

from distributary.control.status import ControlStatus, StreamStatus
from distributary.dashboard.glance import Glance, take_glance
from distributary.dashboard.sources import ControlSource
from distributary.errors import DistributaryError

__all__ = ["AWAY_ERRORS", "Away", "BatchPoint", "Feed", "Snapshot", "describe_absence"]

# What an asked control plane raises while it is away.
AWAY_ERRORS = (DistributaryError, OSError, TimeoutError)

_MOST_BATCHES = 300


class Away(msgspec.Struct, frozen=True):
    """The control plane does not answer: since when, and what was wrong."""

    since: float
    says: str


class Document(msgspec.Struct, frozen=True):
    """What browsers get: the last known state, and whether it is old."""

    number: int
    at: float
    away: Away | None
    control: Glance | None


class BatchPoint(msgspec.Struct, frozen=True):
    """A batch of the stream, as it was when it ended."""

    batch: int
    at: float
    seconds: float | None
    planning: float | None  # seconds of these
    drift: float | None
    excess: float | None


class Snapshot(msgspec.Struct, frozen=True):
    """What was last heard of the control plane, and the document about it as JSON."""

    number: int = 0
    away: Away | None = None
    status: ControlStatus | None = None
    encoded: bytes = b""


class Feed:
    """The newest state of a control plane, for everybody who watches.

    `run` must run beside; `look` may be called at any time, for instance after a change.
    """

    def __init__(
        self,
        source: ControlSource,
        *,
        every: float = 1.0,
        within: float = 5.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._source = source
        self._every = every
        self._within = within
        self._clock = clock
        self._next = asyncio.Event()
        self._watched = asyncio.Event()
        self._watchers = 0
        self._closed = False
        self._looking = asyncio.Lock()
        self.latest = Snapshot()
        self.batches: deque[BatchPoint] = deque(maxlen=_MOST_BATCHES)

    @property
    def watchers(self) -> int:
        """How many browsers watch."""
        return self._watchers

    async def run(self) -> None:
        """Look at the control plane for as long as somebody watches; runs until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await self._watched.wait()
            began = loop.time()
            await self.look()
            await asyncio.sleep(max(0.0, began + self._every - loop.time()))

    async def look(self) -> None:
        """Look once, and tell everybody."""
        async with self._looking:
            status, away = self.latest.status, None
            try:
                async with asyncio.timeout(self._within):
                    status = await self._source.status()
            except AWAY_ERRORS as error:
                away = Away(self._away_since(), describe_absence(error))
            else:
                self._note_batch(status.stream)
            self._publish(status, away)

    def close(self) -> None:
        """End the watching of everybody."""
        self._closed = True
        self._wake()

    async def watch(self) -> AsyncIterator[Snapshot]:
        """Yield the newest state, then every newer one; ends when the feed is closed."""
        seen = 0 if self._watchers else self.latest.number  # nobody asked lately: it may be old
        self._watchers += 1
        self._watched.set()
        try:
            while not self._closed:
                following = self._next
                if self.latest.number > seen:
                    seen = self.latest.number
                    yield self.latest
                else:
                    await following.wait()
        finally:
            self._watchers -= 1
            if not self._watchers:
                self._watched.clear()

    def _publish(self, status: ControlStatus | None, away: Away | None) -> None:
        number = self.latest.number + 1
        glance = None if status is None else take_glance(status)
        encoded = msgspec.json.encode(Document(number, self._clock(), away, glance))
        self.latest = Snapshot(number, away, status, encoded)
        self._wake()

    def _wake(self) -> None:
        self._next.set()
        self._next = asyncio.Event()

    def _away_since(self) -> float:
        return self.latest.away.since if self.latest.away else self._clock()

    def _note_batch(self, stream: StreamStatus) -> None:
        known = self.batches[-1].batch if self.batches else None
        if stream.batch >= 0 and stream.batch != known:
            at = self._clock() if stream.batch_at is None else stream.batch_at
            self.batches.append(
                BatchPoint(
                    stream.batch,
                    at,
                    stream.batch_seconds,
                    stream.planning_seconds,
                    stream.drift,
                    stream.excess,
                )
            )


def describe_absence(error: Exception) -> str:
    """Say in one line why there is no answer; time-outs have no text of their own."""
    return " ".join(str(error).split()) or "the control plane does not answer in time"
