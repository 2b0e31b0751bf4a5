"""Finds who wants an event, the neighbours and clients, without listing their subscriptions.

A `Matcher` finds all that match, and counts them by neighbour and client. Where neighbours have
many subscriptions, a `LinkMatcher` takes theirs: it stops as soon as every link is decided, so its
cost does not grow with the number of those that match. It takes no filters with residuals and no
more than 64 neighbours; the rest stays in the matcher.

Which is faster was measured with 1,000, 10,000 and 100,000 subscriptions
(`benchmarks/broker_matching.py`). Counting is while few match, by up to 50 microseconds an event;
it takes a microsecond more for every hundred that match. With 100,000 subscriptions, mostly of
neighbours, link matching handles 1.2 to 1.5 times as many events where thousands match, and 0.8 to
0.9 times as many where hundreds do. The limit of 50,000 is between the sizes that were measured.

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

# Beyond this many subscriptions of neighbours, link matching is worth a second index.
MANY_OF_NEIGHBOURS = 50_000
_MOST_LINKS = 64  # the trees keep one word of links per node
# After this many events without a new filter, moving the latest ones into a tree pays off.
_MOST_SEARCHED = 16


class HopIndex:
    """Subscriptions by name, each of a hop: a neighbour or a client.

    Beyond `many` subscriptions of neighbours link matching is used.
    """

    def __init__(
        self, schema: Schema, neighbours: Container[str], *, many: int = MANY_OF_NEIGHBOURS
    ) -> None:
        self._schema = schema
        self._neighbours = neighbours
        self._many = many
        self._of_neighbours = 0  # subscriptions, before there are trees
        self._trees: LinkMatcher | None = None
        self._links = _Places(_MOST_LINKS)
        self._mask = 0  # the bits of the links in use
        self._handles: dict[Name, int] = {}
        self._new: dict[Name, tuple[Filter, int]] = {}  # not in the trees before the next search
        self._searched = 0  # events since the latest filter was added to the trees
        self._rest = HopMatcher(schema)

    def add(self, name: Name, filter: Filter, hop: str) -> None:
        """Add a subscription."""
        is_neighbour = hop in self._neighbours
        self._of_neighbours += is_neighbour
        if self._trees is None and self._of_neighbours > self._many:
            self._move_to_trees()
        fits = self._trees is not None and is_neighbour and not filter.has_residuals
        link = self._links.take(hop) if fits else None
        if link is None:
            self._rest.add(name, filter, hop)
        else:
            self._mask |= 1 << link
            self._new[name] = filter, link

    def _move_to_trees(self) -> None:
        """Start link matching; it goes on however few subscriptions are left."""
        self._trees = LinkMatcher(self._schema, _MOST_LINKS)
        rest, self._rest = self._rest, HopMatcher(self._schema)
        for name, filter, hop in rest.list_all():
            self.add(name, filter, hop)

    def remove(self, name: Name, hop: str) -> None:
        """Remove a subscription, which was added with that hop."""
        self._of_neighbours -= hop in self._neighbours
        if self._trees is not None and name in self._handles:
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
        assert self._trees is not None  # there are links
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

    def list_all(self) -> list[tuple[Name, Filter, str]]:
        """All filters, with their names and hops."""
        hops = self._hops.names
        return [(name, filter, hops[place]) for name, filter, place in self._filters.list_all()]

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
