"""The events that wait for one client until it acknowledges them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from distributary.content.messages import Publication
from distributary.machines.actions import Save

__all__ = ["Gap", "Outbox", "OutboxItem"]


@dataclass(frozen=True, slots=True)
class OutboxItem:
    """A publication for a client, and the numbers of the subscriptions that it matches."""

    publication: Publication
    subscriptions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Gap:
    """The deliveries from `first` up to the number of the gap itself were dropped."""

    first: int


# Saved under the last acknowledged number, so that numbers are not used again after a restart.
ACKNOWLEDGED = True


class Outbox:
    """Deliveries numbered from 1: acknowledged, sent, or waiting.

    It is full with `most_events`, or with `most_bytes` unless it is empty. Without a `key` nothing
    is saved; otherwise each delivery is saved under the key and its number.
    """

    def __init__(self, key: str | None, most_events: int, most_bytes: int) -> None:
        self._key = key
        self.limit(most_events, most_bytes)
        self._items: dict[int, OutboxItem | Gap] = {}
        self._unsent: deque[int] = deque()
        self._events = 0
        self.bytes = 0
        self.last = 0
        self.acknowledged = 0
        self.dropped = 0

    def __len__(self) -> int:
        return self._events

    def limit(self, most_events: int, most_bytes: int) -> None:
        """Set how much it takes from now on."""
        self._most_events = most_events
        self._most_bytes = most_bytes

    @property
    def has_room(self) -> bool:
        """Whether another event fits."""
        return self._events < self._most_events and (
            not self._events or self.bytes < self._most_bytes
        )

    @property
    def is_empty(self) -> bool:
        """Whether everything is acknowledged."""
        return not self._items

    def restore(self, saved: Iterable[tuple[int, object]]) -> None:
        """Restore what was saved, by number."""
        for number, value in sorted(saved, key=lambda each: each[0]):
            self.last = number
            if isinstance(value, OutboxItem | Gap):
                self._put(number, value)
            else:
                self.acknowledged = number

    def add(self, item: OutboxItem) -> list[Save]:
        """Add an event at the end, whether there is room or not."""
        self.last += 1
        self._put(self.last, item)
        return self._save(self.last, item)

    def drop_oldest(self) -> list[Save]:
        """Drop the oldest event that was not sent yet, if there is one, and leave a gap."""
        first = None
        if self._unsent and isinstance(gap := self._items[self._unsent[0]], Gap):
            first, before = gap.first, self._unsent.popleft()
        if not self._unsent:
            if first is not None:
                self._unsent.append(before)
            return []
        saves = []
        if first is not None:
            del self._items[before]
            saves = self._save(before, None)
        number = self._unsent[0]
        self._take(number)
        self.dropped += 1
        merged = self._items[number] = Gap(number if first is None else first)
        return [*saves, *self._save(number, merged)]

    def acknowledge(self, number: int) -> list[Save]:
        """The client has everything up to this number, which must not be above `last`."""
        if number <= self.acknowledged:
            return []
        gone = sorted(each for each in self._items if each <= number)
        for each in gone:
            self._take(each)
        while self._unsent and self._unsent[0] <= number:
            self._unsent.popleft()
        saves = [save for each in (self.acknowledged, *gone) for save in self._save(each, None)]
        self.acknowledged = number
        return [*saves, *self._save(number, ACKNOWLEDGED)]

    def take(self, window: int) -> Iterator[tuple[int, OutboxItem | Gap]]:
        """Take what is to be sent now: no more than `window` are under way at a time."""
        while self._unsent and len(self._items) - len(self._unsent) < window:
            number = self._unsent.popleft()
            yield number, self._items[number]

    def forget_sent(self) -> None:
        """The connection is gone: send everything again that is not acknowledged."""
        self._unsent = deque(sorted(self._items))

    def clear(self) -> list[Save]:
        """Delete everything that was saved."""
        return [
            save for each in (self.acknowledged, *self._items) for save in self._save(each, None)
        ]

    def _put(self, number: int, item: OutboxItem | Gap) -> None:
        self._items[number] = item
        self._unsent.append(number)
        if isinstance(item, OutboxItem):
            self._events += 1
            self.bytes += item.publication.event.size

    def _take(self, number: int) -> None:
        item = self._items.pop(number)
        if isinstance(item, OutboxItem):
            self._events -= 1
            self.bytes -= item.publication.event.size

    def _save(self, number: int, value: object) -> list[Save]:
        if self._key is None or not number:
            return []
        return [Save(("outbox", self._key, number), value)]
