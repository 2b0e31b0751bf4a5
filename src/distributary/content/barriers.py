"""The barriers that a broker has passed on and that have not come back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from distributary.content.messages import Barrier, Name

__all__ = ["Barriers"]

# More barriers of one broker are never open: a new one then replaces the newest.
MOST_OPEN = 8


@dataclass(slots=True)
class _Open:
    """Where a barrier came from, and the neighbours that have not answered it."""

    barrier: Barrier
    hop: str
    waiting: set[str]


class Barriers:
    """All open barriers of one broker, its own and those of others."""

    def __init__(self) -> None:
        self._open: dict[Name, _Open] = {}

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, name: Name) -> bool:
        return name in self._open

    def newest_to_replace(self, broker: str) -> Name | None:
        """The barrier of a broker that its next one replaces, or None."""
        own = [name for name in self._open if name.broker == broker]
        return max(own) if len(own) >= MOST_OPEN else None

    def add(self, barrier: Barrier, hop: str, neighbours: Iterable[str]) -> None:
        """Open a barrier that goes to these neighbours.

        Barriers of former incarnations of its broker stay open until later ones include their
        advertisements: what was published under these may still be here.
        """
        if barrier.replaces is not None:
            self._open.pop(barrier.replaces, None)
        covered = set(barrier.advertisements)
        for name in self._list_older(barrier.name)[: -MOST_OPEN + 1]:
            if covered.issuperset(self._open[name].barrier.advertisements):
                del self._open[name]
        self._open[barrier.name] = _Open(barrier, hop, set(neighbours))

    def _list_older(self, of: Name) -> list[Name]:
        return sorted(name for name in self._open if name.broker == of.broker and name < of)

    def answer(self, name: Name, neighbour: str) -> None:
        """A neighbour has passed a barrier."""
        if name in self._open:
            self._open[name].waiting.discard(neighbour)

    def take_passed(self) -> list[tuple[Name, str]]:
        """The barriers that all have passed, with where each came from; they are closed."""
        passed = [(name, each.hop) for name, each in self._open.items() if not each.waiting]
        for name, _ in passed:
            del self._open[name]
        return passed

    def find_unheard(self, advertisement: Name) -> set[str]:
        """The neighbours behind which somebody unknown may want what is published under it."""
        return {
            neighbour
            for each in self._open.values()
            if advertisement in each.barrier.advertisements
            for neighbour in each.waiting
        }

    def list_waiting(self, neighbour: str) -> list[Barrier]:
        """The barriers that a neighbour has not passed, to be sent again after a restart."""
        return [each.barrier for each in self._open.values() if neighbour in each.waiting]

    def remove_neighbour(self, neighbour: str) -> None:
        """A neighbour has left for good; nobody waits for it."""
        self._open = {name: each for name, each in self._open.items() if each.hop != neighbour}
        for each in self._open.values():
            each.waiting.discard(neighbour)
