"""Finds who wants an event, the neighbours and clients, without listing their subscriptions.

The filters of neighbours are in a `LinkMatcher`, which stops as soon as every link is decided: its
cost does not grow with the number of subscriptions that match. The filters of clients are in a
`Matcher`, which takes any number of clients. So are those that the search trees of the link matcher
do not take: filters with residuals, and those of neighbours beyond the first 64.

The alternative is one `Matcher` for all, and a count of its matches by neighbour and client. It is
faster while few subscriptions match, by up to 40 microseconds an event, and slower where many of
the neighbours' do: by a microsecond for every hundred of them (`benchmarks/broker_matching.py`).

Reference: Banavar et al. (1999) for link matching.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from heapq import heappop, heappush

import numpy as np

from distributary.content.messages import Name
from distributary.content.named_matcher import NamedMatcher
from distributary.matching import LinkMatcher
from distributary.model import Filter, Key, Schema

__all__ = ["HopIndex", "HopMatcher"]

_MOST_LINKS = 64  # the trees keep one word of links per node
# After this many events without a new filter, moving the latest ones into a tree pays off.
_MOST_SEARCHED = 16


class HopIndex:
    """Subscriptions by name, each of a hop: a neighbour or a client."""

    def __init__(self, schema: Schema, neighbours: Container[str]) -> None:
        self._neighbours = neighbours
        self._trees = LinkMatcher(schema, _MOST_LINKS)
        self._links = _Places(_MOST_LINKS)
        self._mask = 0  # the bits of the links in use
        self._handles: dict[Name, int] = {}
        self._new: dict[Name, tuple[Filter, int]] = {}  # not in the trees before the next search
        self._searched = 0  # events since the latest filter was added to the trees
        self._rest = HopMatcher(schema)

    def add(self, name: Name, filter: Filter, hop: str) -> None:
        """Add a subscription."""
        fits = hop in self._neighbours and not filter.has_residuals
        link = self._links.take(hop) if fits else None
        if link is None:
            self._rest.add(name, filter, hop)
        else:
            self._mask |= 1 << link
            self._new[name] = filter, link

    def remove(self, name: Name, hop: str) -> None:
        """Remove a subscription, which was added with that hop."""
        if name in self._handles:
            self._trees.remove(self._handles.pop(name))
        elif self._new.pop(name, None) is None:
            self._rest.remove(name, hop)
            return
        link = self._links.give_back(hop)
        if link is not None:
            self._mask &= ~(1 << link)

    def find_hops(self, keys: Sequence[Key | None], but: str | None) -> list[str]:
        """The hops that want an event, except `but`."""
        numbers = self._links.numbers
        mask = self._mask & ~(1 << numbers[but]) if but in numbers else self._mask
        found = self._search(keys, mask) if mask else 0
        hops = [hop for hop, link in numbers.items() if found >> link & 1]
        if len(self._rest):
            hops += [hop for hop in self._rest.count_hops(keys, but) if hop not in hops]
        return hops

    def wants(self, keys: Sequence[Key | None], hop: str) -> bool:
        """Whether a hop wants an event."""
        link = self._links.numbers.get(hop)
        if link is not None and self._search(keys, 1 << link):
            return True
        return bool(len(self._rest)) and hop in self._rest.count_hops(keys, None)

    def _search(self, keys: Sequence[Key | None], mask: int) -> int:
        if self._new:
            handles = self._trees.add_all([*self._new.values()])
            self._handles |= zip(self._new, handles, strict=True)
            self._new = {}
            self._searched = 0
        self._searched += 1
        if self._searched == _MOST_SEARCHED:
            self._trees.fold_recent()
        return self._trees.links(keys, mask)


class HopMatcher:
    """Named filters of hops; counts the matches of each hop."""

    def __init__(self, schema: Schema) -> None:
        self._filters = NamedMatcher(schema)
        self._hops = _Places()

    def __len__(self) -> int:
        return len(self._filters)

    def add(self, name: Name, filter: Filter, hop: str) -> None:
        """Add a filter."""
        place = self._hops.take(hop)
        assert place is not None  # there is no limit
        self._filters.add(name, filter, place)

    def remove(self, name: Name, hop: str) -> None:
        """Remove a filter, which was added with that hop."""
        self._filters.remove(name)
        self._hops.give_back(hop)

    def count_hops(self, keys: Sequence[Key | None], but: str | None) -> dict[str, int]:
        """How many filters of each hop match an event; without `but`."""
        found = self._filters.match(keys)
        if not len(found):
            return {}
        counts = np.bincount(self._filters.tags[found])
        names = self._hops.names
        return {
            names[at]: int(counts[at]) for at in np.flatnonzero(counts).tolist() if names[at] != but
        }


class _Places:
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
