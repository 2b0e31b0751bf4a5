"""Finds who wants an event, the neighbours and clients, without listing their subscriptions.

One matcher finds all that match, and counts them by neighbour and client. Link matching (Banavar et
al., 1999) would stop as soon as every neighbour is decided. It was measured with 1,000, 10,000 and
100,000 subscriptions (`benchmarks/broker_matching.py`): it handles fewer events with up to 10,000,
and up to 2.4 times as many with 100,000 unless nearly all are local. It needs a second index, whose
trees are rebuilt as subscriptions come.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

import numpy as np

from distributary.content.messages import Name
from distributary.content.named_matcher import NamedMatcher
from distributary.model import Filter, Key, Schema

__all__ = ["HopIndex", "Places"]

# Up to this many matches are counted one by one, which is faster, and remembered.
_FEW_FOUND = 32


class HopIndex:
    """Subscriptions by name, each of a hop: a neighbour or a client."""

    def __init__(self, schema: Schema) -> None:
        self._filters = NamedMatcher(schema)
        self._hops = Places()
        self._forget_latest()

    def _forget_latest(self) -> None:
        self._latest: Sequence[Key | None] | None = None  # the event, if few filters match it
        self._found: list[int] = []
        self._places: list[int] = []  # of the hops

    def __len__(self) -> int:
        return len(self._filters)

    def add(self, name: Name, filter: Filter, hop: str) -> None:
        """Add a subscription."""
        place = self._hops.take(hop)
        assert place is not None  # there is no limit
        self._filters.add(name, filter, place)
        self._forget_latest()

    def remove(self, name: Name, hop: str) -> None:
        """Remove a subscription, which was added with that hop."""
        self._filters.remove(name)
        self._hops.give_back(hop)
        self._forget_latest()

    def find_hops(self, keys: Sequence[Key | None], but: str | None) -> list[str]:
        """The hops that want an event, except `but`."""
        return [*self.count_hops(keys, but)]

    def wants(self, keys: Sequence[Key | None], hop: str) -> bool:
        """Whether a hop wants an event."""
        return hop in self.count_hops(keys, None)

    def count_hops(self, keys: Sequence[Key | None], but: str | None) -> dict[str, int]:
        """How many filters of each hop match an event; without `but`."""
        found = self._filters.match(keys)
        names = self._hops.names
        if len(found) <= _FEW_FOUND:
            self._latest, self._found = keys, found.tolist()
            self._places = places = self._filters.tags[found].tolist()
            return {names[at]: places.count(at) for at in sorted(set(places)) if names[at] != but}
        self._forget_latest()
        counts = np.bincount(self._filters.tags[found])
        return {
            names[at]: int(counts[at]) for at in np.flatnonzero(counts).tolist() if names[at] != but
        }

    def recall_names(self, keys: Sequence[Key | None], hop: str) -> list[Name] | None:
        """The subscriptions of a hop that an event matches, if it was the latest; or None."""
        if keys is not self._latest:
            return None
        place, names = self._hops.numbers.get(hop), self._filters.names
        pairs = zip(self._found, self._places, strict=True)
        return [names[at] for at, of in pairs if of == place]


class Places:
    """Small numbers for hops: each has one while something of it is there."""

    def __init__(self, most: int | None = None) -> None:
        self.numbers: dict[str, int] = {}
        self.names: list[str] = []  # by number; those in use are valid
        self._most = most
        self._uses: dict[str, int] = {}
        self._free: list[int] = []

    def take(self, hop: str) -> int | None:
        """The number of a hop, which is used once more; None if all are in use."""
        number = self.numbers.get(hop)
        if number is None:
            if not self._free and len(self.names) == self._most:
                return None
            number = heappop(self._free) if self._free else len(self.names)
            self.names[number : number + 1] = [hop]
            self.numbers[hop] = number
        self._uses[hop] = self._uses.get(hop, 0) + 1
        return number

    def give_back(self, hop: str) -> int | None:
        """A hop's number is used once less; return it if it is free now."""
        self._uses[hop] -= 1
        if self._uses[hop]:
            return None
        del self._uses[hop]
        number = self.numbers.pop(hop)
        heappush(self._free, number)
        return number
