"""Counts a publisher's messages by flow and second, until a control plane has stored the counts.

Counts wait while the control plane is away: each second apart at first, then, where that would be
too many counts, or more than an hour of seconds, neighbouring seconds together. No message is
counted twice or forgotten; those of flows that get no number are counted in `uncounted`.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import islice
from typing import NamedTuple

__all__ = ["FlowTally", "Portion", "TallyLimits"]


class TallyLimits(NamedTuple):
    """What a tally keeps at most, and what one report takes of it."""

    flows: int = 1 << 16
    kept: int = 1 << 19  # counts
    seconds: int = 3_600
    counts: int = 16_384  # in a report
    name_bytes: int = 1 << 17  # of all names in a report
    longest_name: int = 1_024  # bytes


class Portion(NamedTuple):
    """What one report says: names from a number on, and counts from a second on."""

    first_name: int
    names: tuple[str, ...]
    first_second: int
    counts: tuple[tuple[int, int, int], ...]  # seconds after the first, flow, messages
    uncounted: int


class FlowTally:
    """Counts messages; gives the counts out in portions, each once."""

    def __init__(self, limits: TallyLimits | None = None) -> None:
        self._limits = TallyLimits() if limits is None else limits
        self._open: defaultdict[str, int] = defaultdict(int)  # since the last second was closed
        self._numbers: dict[str, int] = {}
        self._names: list[str] = []
        self._sizes: list[int] = []  # of names, in bytes
        self._named = 0  # numbers below have been named
        self._cursor = 0  # the next number to name, perhaps again
        self._seconds: dict[int, dict[int, int]] = {}  # ascending: messages by flow
        self._kept = 0  # counts in all seconds
        self._uncounted = 0
        self._closed = 0  # messages of closed seconds

    def count(self, flow: str) -> None:
        """Count a message of a flow."""
        self._open[flow] += 1

    def close_second(self, second: int) -> None:
        """Ascribe what was counted since the last call to a second since 1970."""
        if not self._open:
            return
        if self._seconds:  # the clock may have stepped back
            second = max(second, next(reversed(self._seconds)))
        counts = self._seconds.setdefault(second, {})
        before = len(counts)
        for flow, messages in self._open.items():
            number = self._number(flow)
            if number is None:
                self._uncounted += messages
            else:
                counts[number] = counts.get(number, 0) + messages
            self._closed += messages
        self._open.clear()
        self._kept += len(counts) - before
        limits = self._limits
        while len(self._seconds) > 1 and (
            self._kept > limits.kept or len(self._seconds) > limits.seconds
        ):
            self._merge_seconds()

    @property
    def messages(self) -> int:
        """How many messages are counted and not given out yet."""
        return sum(self._open.values()) + self._closed

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to give out, but for what was counted in this second."""
        return not self._kept and not self._uncounted and self._cursor == len(self._names)

    def name_again(self) -> None:
        """Give all names out again, unless that is under way."""
        if self._cursor == len(self._names):
            self._cursor = 0

    def take_portion(self) -> Portion:
        """Take what fits into one report out of the tally."""
        first_name, names = self._take_names()
        first_second, counts = self._take_counts()
        uncounted, self._uncounted = self._uncounted, 0
        self._closed -= uncounted + sum(messages for _, _, messages in counts)
        return Portion(first_name, names, first_second, counts, uncounted)

    # --- inside -----------------------------------------------------------------------------------

    def _number(self, flow: str) -> int | None:
        """The number of a flow; None if it can have none."""
        number = self._numbers.get(flow)
        if number is not None:
            return number
        try:
            size = len(flow.encode())
        except UnicodeEncodeError:
            return None
        if size > self._limits.longest_name or len(self._names) >= self._limits.flows:
            return None
        number = self._numbers[flow] = len(self._names)
        self._names.append(flow)
        self._sizes.append(size)
        return number

    def _merge_seconds(self) -> None:
        """Count neighbouring seconds together, as the earlier one of both."""
        merged: dict[int, dict[int, int]] = {}
        pending: dict[int, int] | None = None
        for second, counts in self._seconds.items():
            if pending is None:
                pending = merged[second] = counts
            else:
                for number, messages in counts.items():
                    pending[number] = pending.get(number, 0) + messages
                pending = None
        self._seconds = merged
        self._kept = sum(len(counts) for counts in merged.values())

    def _take_names(self) -> tuple[int, tuple[str, ...]]:
        first, room = self._cursor, self._limits.name_bytes
        end = first
        while end < len(self._names) and (end == first or self._sizes[end] <= room):
            room -= self._sizes[end]
            end += 1
        self._cursor = end
        self._named = max(self._named, end)
        return first, tuple(self._names[first:end])

    def _take_counts(self) -> tuple[int, tuple[tuple[int, int, int], ...]]:
        """Take counts of flows that are named, the earliest seconds first."""
        found: list[tuple[int, int, int]] = []
        first_second = next(iter(self._seconds), 0)
        for second in [*self._seconds]:
            counts = self._seconds[second]
            nameable = (number for number in counts if number < self._named)
            taken = [*islice(nameable, self._limits.counts - len(found))]
            found += [(second - first_second, number, counts.pop(number)) for number in taken]
            if not counts:
                del self._seconds[second]
            if len(found) == self._limits.counts:
                break
        self._kept -= len(found)
        return first_second, tuple(found)
