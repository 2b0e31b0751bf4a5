"""The last events of a group, numbered without gaps, and the copies that survive a root."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from distributary.topics.overlay.messages import Ballot, GroupPublication

__all__ = ["NOBODY", "EventWindow", "LogCopy"]

# Lower than the ballot of any peer.
NOBODY: Ballot = (0, 0)


class EventWindow:
    """Events from number `first` up to but excluding `end`; keeps at least the last `limit`."""

    __slots__ = ("_items", "_limit", "first")

    def __init__(self, first: int, limit: int, items: Iterable[GroupPublication] = ()) -> None:
        self.first = first
        self._limit = limit
        self._items = list(items)
        self._trim()

    @property
    def end(self) -> int:
        """The number of the next event."""
        return self.first + len(self._items)

    def extend(self, items: Iterable[GroupPublication]) -> None:
        """Append the next events."""
        self._items.extend(items)
        self._trim()

    def part(self, start: int, end: int | None = None) -> tuple[GroupPublication, ...]:
        """The events from `start` up to but excluding `end`, all of which must be present."""
        if start < self.first:
            raise ValueError(f"the window begins at {self.first}: {start} is gone")
        return tuple(self._items[start - self.first : None if end is None else end - self.first])

    def _trim(self) -> None:
        """Drop many events at a time, since each cut moves everything that is left."""
        if len(self._items) >= 2 * self._limit:
            gone = len(self._items) - self._limit
            del self._items[:gone]
            self.first += gone


@dataclass(slots=True)
class LogCopy:
    """A peer's copy of a group's log: as root, as one of its replicas, or from an earlier role.

    `written` is the ballot of the root that wrote it last, `promised` the highest ballot seen.
    `numbers` has the number of each publisher's last event, by name.
    """

    window: EventWindow
    written: Ballot = NOBODY
    promised: Ballot = NOBODY
    numbers: dict[str, int] = field(default_factory=dict)

    def extend(self, publications: Iterable[GroupPublication]) -> None:
        """Append the next events."""
        publications = tuple(publications)
        self.window.extend(publications)
        self._note(publications)

    def catch_up(self, seen: EventWindow) -> None:
        """Take events that came down the tree; it has more only if copies were lost."""
        if seen.end > self.window.end:
            if seen.first <= self.window.end:
                self.extend(seen.part(self.window.end))
            else:
                self.window = seen
                self._note(seen.part(seen.first))

    def _note(self, publications: Iterable[GroupPublication]) -> None:
        for found in publications:
            self.numbers[found.publisher.name] = found.number
