"""What is missing of one session, and when to ask for it.

A receiver does not ask at once: the packet may only be late, and another receiver may ask first,
whose repair serves all. How long it waits is drawn so that few ask early and many late (RFC 5401,
section 3.2.1). After some times in vain it waits twice as long each time.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from math import exp, log

import numpy as np

__all__ = ["Gaps", "Range", "back_off"]

_PROMPT = 4  # times that are asked at the same pace, for loss is more likely than congestion


@dataclass(slots=True)
class Range:
    """Packets that are missing, from `first` to `last`; to be asked for at the time `at`."""

    first: int
    last: int
    at: float
    asked: int = 0
    put_off: int = 0


def back_off(longest: float, receivers: float, rng: np.random.Generator) -> float:
    """A wait of at most `longest` such that of so many receivers only few ask at the same time."""
    steep = log(receivers) + 1
    x = rng.random() * steep / longest + steep / (longest * (exp(steep) - 1))
    return longest / steep * log(x * (exp(steep) - 1) * (longest / steep))


@dataclass(slots=True)
class Gaps:
    """Ranges in ascending order, none touching what is here; times in seconds."""

    rng: np.random.Generator
    back_off: float  # the longest wait before asking
    receivers: float  # how many may miss the same packet
    wait: float  # for an answer, the first time
    longest_wait: float
    tries: int
    ranges: list[Range]

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def add(self, first: int, last: int, now: float) -> None:
        """Packets above all those known are missing."""
        self.ranges.append(Range(first, last, now + self._draw()))

    def remove(self, sequence: int) -> bool:
        """A packet came: whether it was missing."""
        at = bisect_right(self.ranges, sequence, key=lambda found: found.first) - 1
        if at < 0 or sequence > self.ranges[at].last:
            return False
        found = self.ranges[at]
        rest = []
        if found.first < sequence:
            rest.append(Range(found.first, sequence - 1, found.at, found.asked, found.put_off))
        if sequence < found.last:
            rest.append(Range(sequence + 1, found.last, found.at, found.asked, found.put_off))
        self.ranges[at : at + 1] = rest
        return True

    def give_up(self, below: int) -> list[tuple[int, int]]:
        """Forget what is missing below a sequence number; the ranges that were."""
        gone = []
        while self.ranges and self.ranges[0].first < below:
            found = self.ranges[0]
            gone.append((found.first, min(found.last, below - 1)))
            if found.last < below:
                self.ranges.pop(0)
            else:
                found.first = below
        return gone

    def give_up_hopeless(self, now: float) -> list[tuple[int, int]]:
        """Forget what was asked for often enough in vain; the ranges that were."""
        gone = [found for found in self.ranges if found.asked >= self.tries and found.at <= now]
        if gone:
            self.ranges = [found for found in self.ranges if found not in gone]
        return [(found.first, found.last) for found in gone]

    def confirm(self, first: int, last: int, now: float) -> None:
        """Repairs are on their way: wait for them, though not forever."""
        for found in self.ranges:
            if found.first <= last and first <= found.last and found.put_off < self.tries:
                found.put_off += 1
                found.at = max(found.at, now + self.wait + self._draw())

    def due(self, now: float, most: int) -> list[Range]:
        """Up to so many ranges that it is time to ask for."""
        found = []
        for each in self.ranges:
            if each.at <= now and each.asked < self.tries:
                found.append(each)
                if len(found) == most:
                    break
        return found

    def ask(self, ranges: list[Range], now: float) -> None:
        """These have been asked for; see again when an answer should have come."""
        for found in ranges:
            patience = max(0, found.asked - _PROMPT)
            wait = min(self.wait * 2**patience, self.longest_wait)
            found.asked += 1
            found.at = now + wait + self._draw()

    def next_at(self) -> float:
        """When there is something to do."""
        return min((found.at for found in self.ranges), default=float("inf"))

    def _draw(self) -> float:
        return back_off(self.back_off, self.receivers, self.rng)
