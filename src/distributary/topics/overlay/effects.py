"""Collects the actions of a peer while it handles one input, and its deadlines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from heapq import heappop, heappush
from typing import Any

from distributary.machines.actions import Action, Append, Deliver, Send, SetTimer, Work

__all__ = ["Deadlines", "Effects"]

_TIMER = "deadline"


class Deadlines:
    """Any number of named deadlines behind one timer."""

    def __init__(self) -> None:
        self._at: dict[Hashable, float] = {}
        self._heap: list[tuple[float, int, Hashable]] = []
        self._pushed = 0

    def __contains__(self, what: Hashable) -> bool:
        return what in self._at

    def set(self, what: Hashable, at: float) -> None:
        """Set a deadline, replacing an earlier one for the same thing."""
        self._at[what] = at
        self._pushed += 1  # breaks ties in the order of setting
        heappush(self._heap, (at, self._pushed, what))

    def drop(self, what: Hashable) -> None:
        """Cancel a deadline; nothing happens if there is none."""
        self._at.pop(what, None)

    def postpone(self, seconds: float) -> None:
        """Move all deadlines."""
        for what, at in [*self._at.items()]:
            self.set(what, at + seconds)

    def due(self, now: float) -> Iterator[Any]:
        """Remove and yield everything whose deadline has passed."""
        while (at := self.first()) is not None and at <= now:
            _, _, what = heappop(self._heap)
            del self._at[what]
            yield what

    def first(self) -> float | None:
        """The earliest deadline."""
        while self._heap and self._at.get(self._heap[0][2]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None


class Effects:
    """The sends, deliveries and timers of one peer, collected and counted per input."""

    def __init__(self) -> None:
        self.deadlines = Deadlines()
        self._actions: list[Action] = []
        self._sent: Counter[str] = Counter()
        self._timer: float | None = None

    def send(self, to: str, message: Any) -> None:
        """Send a message and count it by its kind."""
        self._actions.append(Send(to, message))
        self._sent[message.kind] += 1

    def deliver(self, client: str, message: Any, since: float) -> None:
        """Deliver a message to the application."""
        self._actions.append(Deliver(client, message, since))

    def append(self, record: bytes) -> None:
        """Append a record to the peer's log."""
        self._actions.append(Append(record))

    def count(self, kind: str, units: float = 1) -> None:
        """Count another event of the given kind."""
        self._actions.append(Work(kind, units))

    def set_timer(self, name: str, at: float | None) -> None:
        """Set a timer, or stop it."""
        self._actions.append(SetTimer(name, at))

    def on_timer(self) -> None:
        """The timer of the deadlines has expired."""
        self._timer = None

    def take_part(self) -> list[Action]:
        """Return the actions since the last call, without what `take` adds at the end."""
        actions, self._actions = self._actions, []
        return actions

    def take(self) -> list[Action]:
        """Return all actions since the last call, the timer of the deadlines, and counts."""
        first = self.deadlines.first()
        # A timer that expires too early costs little; resetting it each time costs more.
        if first is not None and (self._timer is None or first < self._timer):
            self._timer = first
            self._actions.append(SetTimer(_TIMER, first))
        if self._sent:
            self._actions.extend(Work(kind, n) for kind, n in self._sent.items())
            self._sent.clear()
        actions, self._actions = self._actions, []
        return actions
