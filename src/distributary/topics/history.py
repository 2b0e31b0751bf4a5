"""The last events of a topic, kept for subscribers that missed them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from distributary.topics.messages import Event

__all__ = ["TopicHistory"]


@dataclass(slots=True)
class TopicHistory:
    """Consecutive events of a topic, bounded in number and bytes."""

    events: deque[Event] = field(default_factory=deque)
    size: int = 0  # bytes of all payloads

    def append(self, event: Event, most: int, most_bytes: int) -> None:
        """Append the next event and drop the oldest ones; the last one always stays."""
        self.events.append(event)
        self.size += len(event.payload)
        while len(self.events) > most or (self.size > most_bytes and len(self.events) > 1):
            self.size -= len(self.events.popleft().payload)

    def since(self, first: int, most: int) -> list[Event]:
        """Up to `most` of the kept events, from a number on."""
        if not self.events:
            return []
        skipped = max(0, first - self.events[0].number)
        return list(islice(self.events, skipped, skipped + most))

    @property
    def last(self) -> Event | None:
        """The last event."""
        return self.events[-1] if self.events else None

    def find_oldest(self, next_number: int) -> int:
        """The number of the oldest kept event, or of the next event if none is kept."""
        return self.events[0].number if self.events else next_number

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    def __len__(self) -> int:
        return len(self.events)
