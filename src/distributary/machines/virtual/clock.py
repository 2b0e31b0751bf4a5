"""Virtual time: a heap of scheduled callbacks."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

__all__ = ["Clock"]

Callback = Callable[[], None]


class Clock:
    """A clock that jumps to the next callback; ties run in the order of scheduling."""

    def __init__(self) -> None:
        self.now = 0.0
        self.scheduled = 0
        self._heap: list[tuple[float, int, Callback]] = []

    def at(self, time: float, callback: Callback) -> None:
        """Schedule a callback at a time that is not in the past."""
        if not self.now <= time < float("inf"):
            raise ValueError(
                f"cannot schedule at {time}: the time must be finite and at least {self.now}"
            )
        self.scheduled += 1
        heappush(self._heap, (time, self.scheduled, callback))

    def run(self, *, until: float = float("inf"), max_events: float = float("inf")) -> int:
        """Run up to a time, a number of callbacks, or the end; returns the number of callbacks."""
        events = 0
        while self._heap and self._heap[0][0] <= until:
            if events >= max_events:
                return events
            self.now, _, callback = heappop(self._heap)
            callback()
            events += 1
        if until < float("inf"):
            self.now = max(self.now, until)
        return events
