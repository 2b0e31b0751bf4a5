"""Counts messages of flows that a publisher does not carry."""

from __future__ import annotations

from collections import Counter

__all__ = ["UnplannedFlows"]

_MOST_NAMES = 10_000  # flows that are counted one by one


class UnplannedFlows:
    """How many messages of each flow were dropped; `messages` counts those of all flows."""

    def __init__(self) -> None:
        self.messages = 0
        self._of: Counter[str] = Counter()

    def count(self, flow: str) -> None:
        """Count a message that was dropped."""
        self.messages += 1
        if flow in self._of or len(self._of) < _MOST_NAMES:
            self._of[flow] += 1

    def by_flow(self) -> dict[str, int]:
        """The counts by flow, of 10,000 flows at most."""
        return dict(self._of)
