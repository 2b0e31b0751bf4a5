"""What a peer wants done, gathered while it takes in one input; and what it waits for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from heapq import heappop, heappush
from typing import Any

from distributary.protocol.actions import Action, Deliver, Send, SetTimer, Work

__all__ = ["Deadlines", "Effects"]

_TIMER = "deadline"


class Deadlines:
    """Times by which something should have happened, any number of them behind one timer."""

    def __init__(self) -> None:
        self._at: dict[Hashable, float] = {}
        self._heap: list[tuple[float, int, Hashable]] = []
        self._pushed = 0

    def __contains__(self, what: Hashable) -> bool:
        return what in self._at

    def set(self, what: Hashable, at: float) -> None:
        """Wait for something up to this time, however long it was before."""
        self._at[what] = at
        self._pushed += 1  # of one time the first comes first, whatever is waited for
        heappush(self._heap, (at, self._pushed, what))

    def drop(self, what: Hashable) -> None:
        """It happened, or does not matter any more."""
        self._at.pop(what, None)

    def due(self, now: float) -> Iterator[Any]:
        """What did not happen in time; it is waited for no more."""
        while (at := self.first()) is not None and at <= now:
            _, _, what = heappop(self._heap)
            del self._at[what]
            yield what

    def first(self) -> float | None:
        """The earliest of the times."""
        while self._heap and self._at.get(self._heap[0][2]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None


class Effects:
    """Sends, deliveries and timers of one peer, taken together and counted once per input."""

    def __init__(self) -> None:
        self.deadlines = Deadlines()
        self._actions: list[Action] = []
        self._sent: Counter[str] = Counter()
        self._timer: float | None = None

    def send(self, to: str, message: Any) -> None:
        """Send a message, and count it by its kind."""
        self._actions.append(Send(to, message))
        self._sent[message.kind] += 1

    def deliver(self, client: str, message: Any, since: float) -> None:
        """Hand something to the application."""
        self._actions.append(Deliver(client, message, since))

    def count(self, kind: str, units: float = 1) -> None:
        """Count something else that happened."""
        self._actions.append(Work(kind, units))

    def set_timer(self, name: str, at: float) -> None:
        """Set a timer."""
        self._actions.append(SetTimer(name, at))

    def rang(self) -> None:
        """The timer of the deadlines ran out."""
        self._timer = None

    def take(self) -> list[Action]:
        """Everything since the last time, the timer of the deadlines included."""
        first = self.deadlines.first()
        # A timer that rings too early costs one look; setting it anew each time costs more.
        if first is not None and (self._timer is None or first < self._timer):
            self._timer = first
            self._actions.append(SetTimer(_TIMER, first))
        self._actions.extend(Work(kind, n) for kind, n in self._sent.items())
        self._sent.clear()
        actions, self._actions = self._actions, []
        return actions
