"""The last events of a group, numbered without gaps, and the copies that survive a root."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from distributary.topics.overlay.messages import (
    NO_MEMBERS,
    NOBODY,
    Ballot,
    GroupPublication,
    Members,
)

__all__ = ["EventWindow", "PublicationLog"]


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
class PublicationLog:
    """A `GroupLog` of publications; keeps the last ones only.

    `numbers` has the number of each publisher's last event, by name.
    """

    window: EventWindow
    limit: int
    written: Ballot = NOBODY
    promised: Ballot = NOBODY
    members: Members = NO_MEMBERS
    proposed: Members = NO_MEMBERS
    numbers: dict[str, int] = field(default_factory=dict)

    @property
    def end(self) -> int:
        """The number of the next event."""
        return self.window.end

    def part(self, start: int) -> tuple[GroupPublication, ...] | None:
        """The events from `start` on; None if they are gone."""
        return self.window.part(start) if start >= self.window.first else None

    def extend(self, entries: Iterable[GroupPublication]) -> None:
        """Append the next events."""
        entries = tuple(entries)
        self.window.extend(entries)
        self._note(entries)

    def copy(self) -> tuple[tuple[GroupPublication, ...], dict[str, int]]:
        """All events that are kept, and the publishers' numbers."""
        return self.window.part(self.window.first), dict(self.numbers)

    def restore(
        self, content: tuple[tuple[GroupPublication, ...], dict[str, int]], end: int
    ) -> None:
        """Replace the content."""
        events, numbers = content
        self.window = EventWindow(end - len(events), self.limit, events)
        self.numbers = dict(numbers)

    def note(self) -> None:
        """These logs are not stored."""

    def skip_to(self, number: int) -> None:
        """Continue with this number, without the events before it."""
        self.window = EventWindow(number, self.limit)

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
