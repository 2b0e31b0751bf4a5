"""The last events of a topic, kept for who missed them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from distributary.topics.messages import Event

__all__ = ["TopicHistory"]


@dataclass(slots=True)
class TopicHistory:
    """Events in order, whose numbers leave none out; at most so many, and so many bytes."""

    events: deque[Event] = field(default_factory=deque)
    size: int = 0  # bytes of all payloads

    def append(self, event: Event, most: int, most_bytes: int) -> None:
        """Take in the next event and let the oldest go; the last one always stays."""
        self.events.append(event)
        self.size += len(event.payload)
        while len(self.events) > most or (self.size > most_bytes and len(self.events) > 1):
            self.size -= len(self.events.popleft().payload)

    def since(self, first: int, most: int) -> list[Event]:
        """The events from a number on that are kept, up to so many."""
        if not self.events:
            return []
        skipped = max(0, first - self.events[0].number)
        return list(islice(self.events, skipped, skipped + most))

    @property
    def last(self) -> Event | None:
        """The event that came last."""
        return self.events[-1] if self.events else None

    def oldest(self, next_number: int) -> int:
        """The number of the oldest event; where there is none, of the one to come."""
        return self.events[0].number if self.events else next_number

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    def __len__(self) -> int:
        return len(self.events)
