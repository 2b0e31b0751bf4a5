"""Drops events that a client gets a second time, from the broker that it has moved to.

While a client moves it has sessions at two brokers, and both deliver what is published. The events
of the new broker wait until the old one has delivered everything. A broker delivers the events of a
publisher in the order of their numbers. So the last number that a subscription got of a publisher
tells what is new to it: the old broker has delivered all up to there, and the new one the rest.
"""

from __future__ import annotations

from collections.abc import Collection

from distributary.content.protocol import Event

__all__ = ["EventInbox"]

_MOST = 200_000


class EventInbox:
    """Remembers the last event that each subscription got of each publisher.

    It remembers `most` pairs of a subscription and a publisher, those with the latest events. After
    a move, an event of a pair that it has forgotten may come twice.
    """

    def __init__(self, *, most: int = _MOST) -> None:
        self._most = most
        # By subscription, broker and publisher, the one that changed longest ago first.
        self._last: dict[tuple[int, str, str], int] = {}

    def take_new(self, event: Event, ignored: Collection[int] = ()) -> tuple[int, ...]:
        """The subscriptions that an event is new to, but the `ignored`; notes that they have it."""
        last, number, new = self._last, event.number, []
        for subscription in event.subscriptions:
            key = subscription, event.broker, event.publisher
            known = last.get(key)
            if subscription in ignored or (known is not None and number <= known):
                continue
            if known is not None:
                del last[key]  # it becomes the one that changed last
            last[key] = number
            new.append(subscription)
        while len(self._last) > self._most:
            del self._last[next(iter(self._last))]
        return tuple(new)
