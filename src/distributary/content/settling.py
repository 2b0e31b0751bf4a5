"""Which of the clients' statements are known everywhere, found out by barriers."""

from __future__ import annotations

from dataclasses import dataclass

from distributary.content.durable import DurableBroker
from distributary.content.messages import Name
from distributary.content.protocol import RequestKind
from distributary.machines.actions import Action

__all__ = ["Settling", "Waiting"]


@dataclass(frozen=True, slots=True)
class Waiting:
    """A client's statement that settles, or, without a name, a session that drains."""

    client: str
    kind: RequestKind
    number: int
    name: Name | None


class Settling:
    """Collects statements, sends barriers after them, and says which have settled.

    While a barrier is under way, further subscriptions wait for the next one. A new advertisement
    does not: what is published under it must follow its barrier.
    """

    def __init__(self, broker: DurableBroker) -> None:
        self._broker = broker
        self._next: list[Waiting] = []
        self._under_way: dict[Name, list[Waiting]] = {}

    def __len__(self) -> int:
        return len(self._next) + sum(map(len, self._under_way.values()))

    def add(self, waiting: Waiting) -> None:
        """Let a statement settle."""
        self._next.append(waiting)

    def begin(self, now: float) -> list[Action]:
        """Send a barrier if one is due."""
        urgent = any(each.kind == "advertisement" for each in self._next)
        if not self._next or (self._under_way and not urgent):
            return []
        unsettled = [
            each.name
            for waiting in (*self._under_way.values(), self._next)
            for each in waiting
            if each.kind == "advertisement" and each.name is not None
        ]
        name, actions = self._broker.begin_barrier(unsettled, now)
        self._under_way[name] = self._next
        self._next = []
        return actions

    def take_settled(self) -> list[Waiting]:
        """What has settled: everything behind which a barrier has passed all brokers."""
        if not self._broker.passed:
            return []
        newest = max(self._broker.passed)
        self._broker.passed.clear()
        names = [name for name in self._under_way if name <= newest]
        return [each for name in names for each in self._under_way.pop(name)]
