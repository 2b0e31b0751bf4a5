"""The client side: every publication once, even while the client moves between brokers.

A client moves without loss by subscribing at the new broker first, and leaving the old one once the
new subscription has had time to reach the publishers. In between, both brokers deliver the same
publications, arbitrarily interleaved.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from distributary.content.messages import Name, Publication

__all__ = ["Inbox"]


@dataclass(slots=True)
class _Received:
    """Numbers received under one advertisement: all up to `before`, and those in `since`."""

    before: int = 0
    since: set[int] = field(default_factory=set)


class Inbox:
    """Filters out publications that a client has already received.

    Each broker delivers the publications of an advertisement in the order of their numbers, so with
    a single broker the last number suffices. Individual numbers are remembered only while there are
    two.
    """

    def __init__(self) -> None:
        self._brokers: set[str] = set()
        self._received: dict[Name, _Received] = {}

    def attach(self, broker: str) -> None:
        """A broker starts to deliver publications."""
        self._brokers.add(broker)

    def detach(self, broker: str) -> None:
        """A broker has delivered its last publication; another broker may lag behind it."""
        self._brokers.discard(broker)

    def is_new(self, publication: Publication) -> bool:
        """Whether the publication is received for the first time; remembers it."""
        received = self._received.setdefault(publication.advertisement, _Received())
        number = publication.number
        if number <= received.before or number in received.since:
            return False
        if len(self._brokers) > 1:
            received.since.add(number)
        else:
            received.before = number
            received.since = {each for each in received.since if each > number}
        return True
