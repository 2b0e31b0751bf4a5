"""The last events of a group, numbered without gaps, and the copies of them that outlive a root."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from distributary.protocol.overlay.messages import Ballot, Publication

__all__ = ["NOBODY", "Copy", "Window"]

# Lower than the ballot of any peer.
NOBODY: Ballot = (0, 0)


class Window:
    """Events from number `first` up to before `end`; at least the last `limit` are kept."""

    __slots__ = ("_items", "_limit", "first")

    def __init__(self, first: int, limit: int, items: Iterable[Publication] = ()) -> None:
        self.first = first
        self._limit = limit
        self._items = list(items)
        self._trim()

    @property
    def end(self) -> int:
        """The number that comes next."""
        return self.first + len(self._items)

    def extend(self, items: Iterable[Publication]) -> None:
        """Add the events that come next."""
        self._items.extend(items)
        self._trim()

    def part(self, start: int, end: int | None = None) -> tuple[Publication, ...]:
        """The events from `start` up to before `end`, all of which must be there."""
        if start < self.first:
            raise ValueError(f"the window begins at {self.first}: {start} is gone")
        return tuple(self._items[start - self.first : None if end is None else end - self.first])

    def _trim(self) -> None:
        """Cut off many at a time, as each cut moves all that is left."""
        if len(self._items) >= 2 * self._limit:
            gone = len(self._items) - self._limit
            del self._items[:gone]
            self.first += gone


@dataclass(slots=True)
class Copy:
    """What a peer has of a group's log: as root, as one of its replicas, or from former times.

    `written` is the ballot of the root that wrote it last, `promised` the highest that this peer
    has heard of. `numbers`: of each publisher by name, the number of its last event.
    """

    window: Window
    written: Ballot = NOBODY
    promised: Ballot = NOBODY
    numbers: dict[str, int] = field(default_factory=dict)

    def extend(self, publications: Iterable[Publication]) -> None:
        """Add the events that come next."""
        publications = tuple(publications)
        self.window.extend(publications)
        self._note(publications)

    def catch_up(self, seen: Window) -> None:
        """Take from what came down the tree: it has more only if the copies are lost."""
        if seen.end > self.window.end:
            if seen.first <= self.window.end:
                self.extend(seen.part(self.window.end))
            else:
                self.window = seen
                self._note(seen.part(seen.first))

    def _note(self, publications: Iterable[Publication]) -> None:
        for found in publications:
            self.numbers[found.publisher.name] = found.number
