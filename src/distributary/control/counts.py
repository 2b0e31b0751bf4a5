"""How many messages of each flow were published in the last seconds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

__all__ = ["CountRow", "FlowCounts"]

CountRow = tuple[int, str, int]  # second since 1970, flow, messages

_EARLY = 5  # seconds that the clock of a publisher may be ahead


class FlowCounts:
    """The messages of each flow in a window that ends now, and the rows not written down yet.

    Rates are exact: a flow with n messages in a window of s seconds has the rate n / s. The counts
    of each second are kept for `keep` seconds, if that is longer.
    """

    def __init__(self, window: float, keep: float = 0.0) -> None:
        self._window = max(1, round(window))
        self._keep = max(self._window, math.ceil(keep))
        self._seconds: dict[int, Counter[str]] = {}  # in the window
        self._earlier: dict[int, Counter[str]] = {}  # that the window has passed
        self._totals: dict[str, int] = {}
        self._first: int | None = None  # second of which there ever was a count
        self._changed: set[str] = set()
        self._unwritten: Counter[tuple[int, str]] = Counter()

    @property
    def weights(self) -> Mapping[str, int]:
        """The messages of each flow in the window; flows without any are left out."""
        return self._totals

    def rate_of(self, flow: str, now: float) -> float:
        """Messages per second."""
        return self._totals.get(flow, 0) / self.span(now)

    def span(self, now: float) -> float:
        """The length of the window: less while the first counts are younger than that."""
        if self._first is None:
            return 1.0
        return float(min(self._window, max(1, math.floor(now) - self._first)))

    def add(self, second: int, flow: str, messages: int, now: float) -> None:
        """Count messages of a second; those of a second outside of the window are only written."""
        self._unwritten[second, flow] += messages
        if not now - self._window <= second <= now + _EARLY:
            return
        self._first = second if self._first is None else min(self._first, second)
        self._seconds.setdefault(second, Counter())[flow] += messages
        self._totals[flow] = self._totals.get(flow, 0) + messages
        self._changed.add(flow)

    def add_up(self, first: int, end: int) -> Counter[str]:
        """The messages of each flow from a second on and before another, as far as kept."""
        found: Counter[str] = Counter()
        for second in range(first, end):
            found.update(self._seconds.get(second) or self._earlier.get(second) or {})
        return found

    def expire(self, now: float) -> None:
        """Take the seconds that have passed out of the window."""
        for second in sorted(self._seconds):
            if second >= now - self._window:
                break
            self._earlier[second] = counts = self._seconds.pop(second)
            for flow, messages in counts.items():
                left = self._totals[flow] - messages
                if left:
                    self._totals[flow] = left
                else:
                    del self._totals[flow]
                self._changed.add(flow)
        for second in [at for at in self._earlier if at < now - self._keep]:
            del self._earlier[second]

    def take_changed(self) -> list[str]:
        """The flows whose messages in the window changed since the last call, sorted."""
        changed, self._changed = sorted(self._changed), set()
        return changed

    def take_rows(self) -> tuple[CountRow, ...]:
        """The rows that were not written down yet, in order."""
        rows, self._unwritten = self._unwritten, Counter()
        return tuple((second, flow, n) for (second, flow), n in sorted(rows.items()))
