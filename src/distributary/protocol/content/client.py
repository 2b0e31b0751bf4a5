"""A client's side: each publication once, also while it moves from one broker to another.

A client moves without losing anything by subscribing at the new broker first, and leaving the old
one once its subscriptions there had time to reach the publishers. In between both brokers hand it
the same publications, in any interleaving.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from distributary.protocol.content.messages import Name, Publication

__all__ = ["Inbox"]


@dataclass(slots=True)
class _Received:
    """Of one advertisement: all up to `before` are known, and those of `since` beyond it."""

    before: int = 0
    since: set[int] = field(default_factory=set)


class Inbox:
    """What a client has received, in so far as it could be handed to it again.

    A broker hands over the publications of one advertisement in the order of their numbers. With
    one broker the last number says it all; only while there are two must more be remembered.
    """

    def __init__(self) -> None:
        self._brokers: set[str] = set()
        self._received: dict[Name, _Received] = {}

    def attach(self, broker: str) -> None:
        """From now on this broker hands over publications, too."""
        self._brokers.add(broker)

    def detach(self, broker: str) -> None:
        """This broker has handed over its last; another may be behind it."""
        self._brokers.discard(broker)

    def is_new(self, publication: Publication) -> bool:
        """Whether this is handed over for the first time."""
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
