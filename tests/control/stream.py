"""What a stream was told: it must always be able to plan from that alone."""

from __future__ import annotations

from collections import Counter

from distributary.control.messages import WriteCounts, WriteInterest
from distributary.model import Plan


class Stream:
    """The pairs and counts that were written for it, and the plan to go on from."""

    def __init__(self) -> None:
        self.pairs: set[tuple[str, str]] = set()
        self.counts: Counter[tuple[int, str]] = Counter()
        self.base: Plan | None = None

    def write_interest(self, action: WriteInterest) -> None:
        for receiver, flow, is_wanted in action.rows:
            pair = receiver, flow
            assert (pair in self.pairs) != is_wanted, f"{pair} is told twice"
            if is_wanted:
                self.pairs.add(pair)
            else:
                self.pairs.remove(pair)

    def write_counts(self, action: WriteCounts) -> None:
        for second, flow, messages in action.rows:
            self.counts[second, flow] += messages
