"""Saves that can wait: many together, some time after what they save has changed.

What is lost in a crash before it was saved costs time only. So a broker writes it in portions, and
its work is bounded however much changes.
"""

from __future__ import annotations

from math import inf
from typing import Protocol

from distributary.machines.actions import Action, Save, SetTimer

__all__ = ["LateSaves", "Unsaved"]


class Unsaved(Protocol):
    """Something that knows which of its parts have changed since they were saved."""

    def __len__(self) -> int:
        """The number of changed parts."""
        ...

    def save(self, most: int | None = None) -> list[Save]:
        """Save changed parts, all of them or the oldest `most`."""
        ...


class LateSaves:
    """The timer of one source: it expires `pause` seconds after a change, never if infinite.

    It saves `most` parts at once; the others follow after a `rest`.
    """

    def __init__(
        self, timer: str, source: Unsaved, pause: float, *, most: int, rest: float
    ) -> None:
        self.timer = timer
        self._source = source
        self._pause = pause
        self._most = most
        self._rest = rest
        self._is_set = False

    def set_timer(self, now: float) -> list[Action]:
        """Set the timer if something has changed and it is not set."""
        if self._is_set or self._pause == inf or not len(self._source):
            return []
        self._is_set = True
        return [SetTimer(self.timer, now + self._pause)]

    def on_timer(self, now: float) -> list[Action]:
        """Save a portion."""
        saves: list[Action] = [*self._source.save(self._most)]
        self._is_set = len(self._source) > 0
        return [*saves, SetTimer(self.timer, now + self._rest)] if self._is_set else saves
