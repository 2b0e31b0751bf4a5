"""Link matching inside a content broker, to be measured beside what the broker does.

A `LinkMatcher` takes the subscriptions of neighbours: it stops as soon as every link is decided, so
its cost does not grow with the number of those that match. It takes no filters with residuals and
no more than 64 neighbours; the rest stays in the broker's own index.

Reference: Banavar et al. (1999).
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from distributary.content.hop_index import HopIndex, Places
from distributary.content.messages import Name
from distributary.matching import LinkMatcher
from distributary.model import Filter, Key, Schema

_MOST_LINKS = 64  # the trees keep one word of links per node
# After this many events without a new filter, moving the latest ones into a tree pays off.
_MOST_SEARCHED = 16


class LinkedHops:
    """Subscriptions by name, each of a hop: a neighbour or a client."""

    def __init__(self, schema: Schema, neighbours: Container[str]) -> None:
        self._neighbours = neighbours
        self._trees = LinkMatcher(schema, _MOST_LINKS)
        self._links = Places(_MOST_LINKS)
        self._mask = 0  # the bits of the links in use
        self._handles: dict[Name, int] = {}
        self._new: dict[Name, tuple[Filter, int]] = {}  # not in the trees before the next search
        self._searched = 0  # events since the latest filter was added to the trees
        self._rest = HopIndex(schema)

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
