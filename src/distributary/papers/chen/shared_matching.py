"""Brokers of one simulation that match each event once for all of them.

A subscription keeps its name and its filter from broker to broker, so an event that passes fifty
brokers would be compared with the same filters at each. Here the network matches it once, and a
broker looks up which of the matches are in its own table. Each finds what its own index would find,
in the same order, as often as it asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from distributary.content import ContentBroker, Covering
from distributary.content.hop_index import Places
from distributary.content.messages import Name
from distributary.content.named_matcher import NamedMatcher
from distributary.content.tables import Entry, MatchIndex
from distributary.model import Filter, Key, Schema

__all__ = ["NetworkMatcher", "SharedIndex", "SharingBroker"]


class NetworkMatcher:
    """The subscriptions in the tables of all brokers, each with a number of its own."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._filters = NamedMatcher(schema)
        self._numbers: dict[Name, int] = {}
        self._uses: dict[Name, int] = {}
        self._additions = 0
        # By event: the numbers of those that it matches, and after how many additions.
        self._found: dict[tuple[Key | None, ...], tuple[int, list[int]]] = {}

    def add(self, name: Name, filter: Filter) -> int:
        """A broker has a subscription in its table; returns its number."""
        if name not in self._uses:
            self._additions += 1
            self._uses[name] = 0
            self._numbers[name] = self._additions
            self._filters.add(name, filter, self._additions)
        self._uses[name] += 1
        return self._numbers[name]

    def remove(self, name: Name) -> int:
        """A broker has it no longer; returns the number that it had."""
        self._uses[name] -= 1
        number = self._numbers[name]
        if not self._uses[name]:
            self._filters.remove(name)
            del self._uses[name], self._numbers[name]
        return number

    def match(self, keys: Sequence[Key | None]) -> list[int]:
        """The numbers of the subscriptions that an event matches, and of some that have ended."""
        event = tuple(keys)
        since, found = self._found.get(event, (-1, []))
        if since != self._additions:
            matches = self._filters.match(event)
            found = self._filters.tags[matches].tolist()
            self._found[event] = self._additions, found
        return found


class SharedIndex(MatchIndex):
    """A broker's own index by another way: `MatchIndex`, or `HopIndex` where `by_place`.

    They differ in the order of the hops that want an event.
    """

    def __init__(self, network: NetworkMatcher, *, by_place: bool) -> None:
        super().__init__(network.schema)
        self._network = network
        self._by_place = by_place
        self._hops = Places()
        self._held: dict[int, _Held] = {}  # by the network's number
        self._added = 0

    def add(self, name: Name, filter: Filter, hop: str) -> None:
        """Add a subscription."""
        place = self._hops.take(hop)
        assert place is not None  # there is no limit
        self._added += 1
        number = self._network.add(name, filter)
        self._held[number] = _Held(self._added, place, Entry(name, filter, hop))

    def remove(self, name: Name, hop: str) -> None:
        """Remove a subscription."""
        self._hops.give_back(hop)
        del self._held[self._network.remove(name)]

    def match(self, keys: Sequence[Key | None], but: str | None) -> list[Entry]:
        """The subscriptions that an event matches, except those of `but`."""
        return [each.entry for each in sorted(self._find(keys)) if each.entry.hop != but]

    def find_hops(self, keys: Sequence[Key | None], but: str | None) -> list[str]:
        """The neighbours and clients that want an event, except `but`."""
        if not self._by_place:
            return super().find_hops(keys, but)
        names = self._hops.names
        places = sorted({each.place for each in self._find(keys)})
        return [names[place] for place in places if names[place] != but]

    def _find(self, keys: Sequence[Key | None]) -> list[_Held]:
        held = self._held
        return [held[number] for number in held.keys() & self._network.match(keys)]


class _Held(NamedTuple):
    """A subscription in a broker's table."""

    at: int  # the how many-th it was to come
    place: int  # of its hop
    entry: Entry


class SharingBroker(ContentBroker):
    """A broker that asks the matcher of its network."""

    def __init__(
        self,
        name: str,
        neighbours: Iterable[str],
        schema: Schema,
        policy: Covering,
        network: NetworkMatcher,
    ) -> None:
        super().__init__(name, neighbours, schema, policy)
        index = SharedIndex(network, by_place=self._matches is None)
        self.subscriptions.index = index
        if self._matches is not None:
            self._matches = index
