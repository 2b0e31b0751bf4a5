"""Virtual time: a heap of what happens next."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

__all__ = ["Clock"]

Happening = Callable[[], None]


class Clock:
    """Time that jumps to the next happening; those of one time come in the order of scheduling."""

    def __init__(self) -> None:
        self.now = 0.0
        self.scheduled = 0
        self._heap: list[tuple[float, int, Happening]] = []

    def at(self, time: float, happen: Happening) -> None:
        """Let something happen at a time that is not over yet."""
        if not self.now <= time < float("inf"):
            raise ValueError(f"it is {self.now} already: nothing can happen at {time}")
        self.scheduled += 1
        heappush(self._heap, (time, self.scheduled, happen))

    def run(self, *, until: float = float("inf"), max_events: float = float("inf")) -> int:
        """Go on up to a time, for so many events or to the end; how many events there were."""
        events = 0
        while self._heap and self._heap[0][0] <= until:
            if events >= max_events:
                return events
            self.now, _, happen = heappop(self._heap)
            happen()
            events += 1
        if until < float("inf"):
            self.now = max(self.now, until)
        return events
