"""The clients of a broker that have no room for publications, and what waits for each.

A broker saves up to which number it has served its clients. A client without room is behind the
others, so its own last number is saved too; after a crash it gets what it lacks, and the others do
not get it twice.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from typing import Protocol

from distributary.content.messages import Name, Publication
from distributary.machines.actions import Action, Deliver, Save

__all__ = ["ALWAYS_ROOM", "ClientSide", "Laggards"]


class ClientSide(Protocol):
    """Takes what a broker delivers to its clients."""

    def has_room(self, client: str) -> bool:
        """Whether a client can take another publication."""
        ...

    def take(self, delivered: Deliver) -> list[Action]:
        """Take a publication for a client; returns what is to be done."""
        ...


class _AlwaysRoom:
    """Clients that take everything at once."""

    def has_room(self, client: str) -> bool:
        return True

    def take(self, delivered: Deliver) -> list[Action]:
        return [delivered]


ALWAYS_ROOM = _AlwaysRoom()


class Laggards:
    """What waits for clients, in order, and the last number that each of them was served."""

    def __init__(self, has_room: Callable[[str], bool]) -> None:
        self._has_room = has_room
        self._waiting: dict[str, deque[Publication]] = {}
        self._behind: defaultdict[str, dict[Name, int]] = defaultdict(dict)

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def count(self, client: str) -> int:
        """The number of publications that wait for a client."""
        return len(self._waiting.get(client, ()))

    def restore(self, client: str, advertisement: Name, number: int) -> None:
        """Restore a saved number."""
        self._behind[client][advertisement] = number

    def is_unserved(self, client: str, publication: Publication, served: int) -> bool:
        """Whether a client lacks a publication, if the others were served up to a number."""
        behind = self._behind.get(client, {})
        return publication.number > behind.get(publication.advertisement, served)

    def must_wait(self, client: str) -> bool:
        """Whether the next publication has to wait."""
        return client in self._waiting or not self._has_room(client)

    def add(self, client: str, publication: Publication, served: int) -> list[Action]:
        """Let a publication wait; the others were served up to a number before."""
        self._waiting.setdefault(client, deque()).append(publication)
        behind, advertisement = self._behind[client], publication.advertisement
        if advertisement in behind:
            return []
        behind[advertisement] = served
        return [Save(("behind", client, advertisement), served)]

    def note_served(self, client: str, publication: Publication, served: int) -> list[Action]:
        """A client gets a publication; it may have caught up with the others by that."""
        behind, advertisement = self._behind.get(client), publication.advertisement
        if behind is None or advertisement not in behind:
            return []
        waits = any(each.advertisement == advertisement for each in self._waiting.get(client, ()))
        if waits or publication.number < served:
            behind[advertisement] = publication.number
            return [Save(("behind", client, advertisement), publication.number)]
        del behind[advertisement]
        return [Save(("behind", client, advertisement), None)]

    def take(self, client: str) -> Publication | None:
        """Take the next publication that a client has room for."""
        if client not in self._waiting or not self._has_room(client):
            return None
        publication = self._waiting[client].popleft()
        if not self._waiting[client]:
            del self._waiting[client]
        return publication

    def forget(self, client: str) -> tuple[list[Publication], list[Action]]:
        """Forget a client; returns what waited for it, and what to save."""
        behind = self._behind.pop(client, {})
        saves: list[Action] = [Save(("behind", client, name), None) for name in behind]
        return list(self._waiting.pop(client, ())), saves
