"""The length of a broker's queue over the time of a simulation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from distributary.model import FloatArray, IntArray

__all__ = ["QueueTrace"]


@dataclass(frozen=True, slots=True, eq=False)
class QueueTrace:
    """The number of waiting messages from each time on; 0 before the first."""

    times: FloatArray
    waiting: IntArray

    @property
    def longest(self) -> int:
        """The greatest number of waiting messages."""
        return int(self.waiting.max(initial=0))

    @property
    def longest_before_drain(self) -> int:
        """The greatest number waiting before the queue is empty for the last time."""
        empty = np.flatnonzero(self.waiting == 0)
        return int(self.waiting[: empty[-1]].max(initial=0)) if len(empty) else 0

    def at(self, times: FloatArray) -> IntArray:
        """The number of waiting messages at these times."""
        places = np.searchsorted(self.times, times, side="right")
        return np.asarray(np.append(0, self.waiting)[places])

    def drains_after(self, time: float) -> bool:
        """Whether the queue is empty at or after this time."""
        return bool(
            self.at(np.array([time]))[0] == 0 or (self.waiting[self.times > time] == 0).any()
        )
