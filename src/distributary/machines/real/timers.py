"""The named timers of a machine, on the running event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heapify, heappop, heappush

__all__ = ["Timers"]

_SLACK = 64  # entries of reset or stopped timers that may stay in the heap


class Timers:
    """Timers at times of `clock`, which need not be the loop's own.

    `expire` is called with the name and the number of each timer that is due, in the order of their
    times, even if the loop is late. The timer stays set until `take`; if it is reset or stopped
    before, for instance while it waits in a queue, `take` returns False.
    """

    def __init__(self, clock: Callable[[], float], expire: Callable[[str, int], None]) -> None:
        self._clock = clock
        self._expire = expire
        self._set: dict[str, int] = {}  # the number of each timer
        self._heap: list[tuple[float, int, str]] = []  # includes timers that were reset or stopped
        self._count = 0
        self._handle: asyncio.TimerHandle | None = None
        self._handle_at = 0.0
        self._closed = False

    def set(self, name: str, at: float | None) -> None:
        """Set or reset a timer, to now if the time is in the past; without a time, stop it."""
        if at is None or self._closed:
            self._set.pop(name, None)
            return
        if not at < float("inf"):
            raise ValueError(f"timer {name!r} must be set to a finite time, not {at}")
        self._count += 1
        self._set[name] = self._count
        heappush(self._heap, (max(at, self._clock()), self._count, name))
        if len(self._heap) > 2 * len(self._set) + _SLACK:
            self._heap = [entry for entry in self._heap if self._set.get(entry[2]) == entry[1]]
            heapify(self._heap)
        self._arm()

    def take(self, name: str, number: int) -> bool:
        """Unset an expired timer; return False if it was reset or stopped since."""
        if self._set.get(name) != number:
            return False
        del self._set[name]
        return True

    def close(self) -> None:
        """Stop all timers; no more can be set."""
        self._closed = True
        self._set.clear()
        self._heap.clear()
        if self._handle is not None:
            self._handle.cancel()

    def _arm(self) -> None:
        """Schedule a call at the first time or earlier, so that resetting a timer is cheap."""
        if not self._heap or (self._handle is not None and self._handle_at <= self._heap[0][0]):
            return
        if self._handle is not None:
            self._handle.cancel()
        self._handle_at = self._heap[0][0]
        delay = max(0.0, self._handle_at - self._clock())
        self._handle = asyncio.get_running_loop().call_later(delay, self._ring)

    def _ring(self) -> None:
        self._handle = None
        now = self._clock()
        due = []
        while self._heap and self._heap[0][0] <= now:
            due.append(heappop(self._heap))
        self._arm()
        for _, number, name in due:
            if self._set.get(name) == number:
                self._expire(name, number)
