"""The missing packets of one session, and when to ask for them.

A receiver does not ask at once: the packet may only be late, or another receiver may ask first, and
the repair goes to all. It draws its wait so that few receivers ask early and most late (RFC 5401,
section 3.2.1). After a few unanswered NAKs it doubles the wait each time.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from math import exp, log

import numpy as np

__all__ = ["Gaps", "MissingRange", "draw_back_off"]

_PROMPT = 4  # NAKs before the wait doubles: single losses are more likely than congestion


@dataclass(slots=True)
class MissingRange:
    """Missing packets from `first` to `last`; the next NAK for them is due at `at`."""

    first: int
    last: int
    at: float
    asked: int = 0
    put_off: int = 0


def draw_back_off(longest: float, receivers: float, rng: np.random.Generator) -> float:
    """Draw a wait of at most `longest`, so that of `receivers` only a few ask at the same time."""
    steep = log(receivers) + 1
    x = rng.random() * steep / longest + steep / (longest * (exp(steep) - 1))
    return longest / steep * log(x * (exp(steep) - 1) * (longest / steep))


@dataclass(slots=True)
class Gaps:
    """The missing ranges of a session in ascending order; times in seconds."""

    rng: np.random.Generator
    back_off: float  # the longest wait before asking
    receivers: float  # how many may miss the same packet
    wait: float  # for an answer, the first time
    longest_wait: float
    tries: int
    ranges: list[MissingRange]

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def add(self, first: int, last: int, now: float, wait: float = 0.0) -> None:
        """Add a range above all others, for which the back-off begins after a wait."""
        before = self.ranges[-1] if self.ranges else None
        if before is not None and before.last + 1 == first and not before.asked:
            before.last = last
            return
        self.ranges.append(MissingRange(first, last, now + wait + self._draw()))

    def insert(self, first: int, last: int, now: float) -> None:
        """Add a range anywhere, as far as it is not missing already."""
        for found in self.ranges:
            if first < found.first:
                self.ranges.append(
                    MissingRange(first, min(last, found.first - 1), now + self._draw())
                )
            first = max(first, found.last + 1)
            if first > last:
                break
        else:
            self.ranges.append(MissingRange(first, last, now + self._draw()))
        self.ranges.sort(key=lambda found: found.first)

    def remove(self, sequence: int) -> bool:
        """Remove a packet that arrived from its range; returns whether it was missing."""
        at = bisect_right(self.ranges, sequence, key=lambda found: found.first) - 1
        if at < 0 or sequence > self.ranges[at].last:
            return False
        found = self.ranges[at]
        rest = []
        if found.first < sequence:
            rest.append(
                MissingRange(found.first, sequence - 1, found.at, found.asked, found.put_off)
            )
        if sequence < found.last:
            rest.append(
                MissingRange(sequence + 1, found.last, found.at, found.asked, found.put_off)
            )
        self.ranges[at : at + 1] = rest
        return True

    def give_up(self, below: int) -> list[tuple[int, int]]:
        """Forget what is missing below a sequence number; returns the forgotten ranges."""
        gone = []
        while self.ranges and self.ranges[0].first < below:
            found = self.ranges[0]
            gone.append((found.first, min(found.last, below - 1)))
            if found.last < below:
                self.ranges.pop(0)
            else:
                found.first = below
        return gone

    def give_up_unanswered(self, now: float) -> list[tuple[int, int]]:
        """Forget ranges that were not repaired after `tries` NAKs; returns them."""
        gone = [found for found in self.ranges if found.asked >= self.tries and found.at <= now]
        if gone:
            self.ranges = [found for found in self.ranges if found not in gone]
        return [(found.first, found.last) for found in gone]

    def confirm(self, first: int, last: int, now: float) -> None:
        """Put the next NAK off, since the sender confirmed the repair; at most `tries` times."""
        for found in self.ranges:
            if found.first <= last and first <= found.last and found.put_off < self.tries:
                found.put_off += 1
                found.at = max(found.at, now + self.wait + self._draw())

    def find_due(self, now: float, most: int) -> list[MissingRange]:
        """Up to `most` ranges whose NAK is due."""
        found = []
        for each in self.ranges:
            if each.at <= now and each.asked < self.tries:
                found.append(each)
                if len(found) == most:
                    break
        return found

    def note_naks(self, ranges: list[MissingRange], now: float) -> None:
        """Note that NAKs for these ranges were sent, and when to send the next."""
        for found in ranges:
            patience = max(0, found.asked - _PROMPT)
            wait = min(self.wait * 2**patience, self.longest_wait)
            found.asked += 1
            found.at = now + wait + self._draw()

    def next_at(self) -> float:
        """When the next range is due."""
        if not self.ranges:  # the usual case
            return float("inf")
        return min(found.at for found in self.ranges)

    def _draw(self) -> float:
        return draw_back_off(self.back_off, self.receivers, self.rng)
