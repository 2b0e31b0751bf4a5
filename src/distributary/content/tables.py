"""The routing tables of a content broker: each statement, and where it came from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from distributary.content.messages import Name
from distributary.content.named_matcher import NamedMatcher
from distributary.matching.covering import CoverIndex
from distributary.model import Filter, Key, Schema, intersects

__all__ = ["AdvertisementTable", "Entry", "MatchIndex", "SubscriptionIndex", "SubscriptionTable"]


class Entry(NamedTuple):
    """A statement, and the neighbour or client that it came from."""

    name: Name
    filter: Filter
    hop: str


def _ignore(name: Name, hop: str) -> None:
    """Nobody wants to know what has changed."""


class SubscriptionIndex(Protocol):
    """Finds the neighbours and clients that want an event."""

    def add(self, name: Name, filter: Filter, hop: str) -> None:
        """Add a subscription."""
        ...

    def remove(self, name: Name, hop: str) -> None:
        """Remove a subscription, which was added with that hop."""
        ...

    def find_hops(self, keys: Sequence[Key | None], but: str | None) -> list[str]:
        """The neighbours and clients that want an event, except `but`."""
        ...

    def wants(self, keys: Sequence[Key | None], hop: str) -> bool:
        """Whether a neighbour or client wants an event."""
        ...

    def recall_names(self, keys: Sequence[Key | None], hop: str) -> list[Name] | None:
        """The subscriptions of a client that an event matches, if it was the latest; or None."""
        ...


class MatchIndex:
    """Lists all subscriptions that an event matches: what `HopIndex` answers, and how many."""

    def __init__(self, schema: Schema) -> None:
        self._filters = NamedMatcher(schema)
        self._entries: dict[Name, Entry] = {}

    def add(self, name: Name, filter: Filter, hop: str) -> None:
        """Add a subscription."""
        self._filters.add(name, filter)
        self._entries[name] = Entry(name, filter, hop)

    def remove(self, name: Name, hop: str) -> None:
        """Remove a subscription."""
        self._filters.remove(name)
        del self._entries[name]

    def match(self, keys: Sequence[Key | None], but: str | None) -> list[Entry]:
        """The subscriptions that an event matches, except those of `but`."""
        entries = self._entries
        numbers = self._filters.match(keys).tolist()
        names = self._filters.names
        found = (entries[names[number]] for number in numbers)
        return [entry for entry in found if entry.hop != but]

    def find_hops(self, keys: Sequence[Key | None], but: str | None) -> list[str]:
        """The neighbours and clients that want an event, except `but`."""
        return list(dict.fromkeys(entry.hop for entry in self.match(keys, but)))

    def wants(self, keys: Sequence[Key | None], hop: str) -> bool:
        """Whether a neighbour or client wants an event."""
        return hop in self.find_hops(keys, None)

    def recall_names(self, keys: Sequence[Key | None], hop: str) -> list[Name] | None:
        """None: it does not remember the latest event."""
        return None


class SubscriptionTable:
    """All subscriptions known to a broker, and an index that says who wants an event."""

    def __init__(self, index: SubscriptionIndex) -> None:
        self.boxes = 0
        self.index = index
        self.on_change: Callable[[Name, str], None] = _ignore
        self._entries: dict[Name, Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def __contains__(self, name: Name) -> bool:
        return name in self._entries

    def get(self, name: Name) -> Entry | None:
        """The entry with that name, or None."""
        return self._entries.get(name)

    def add(self, entry: Entry) -> None:
        """Add a subscription."""
        self._entries[entry.name] = entry
        self.index.add(*entry)
        self.boxes += len(entry.filter.boxes)
        self.on_change(entry.name, entry.hop)

    def remove(self, name: Name) -> None:
        """Remove a subscription."""
        entry = self._entries.pop(name)
        self.index.remove(name, entry.hop)
        self.boxes -= len(entry.filter.boxes)
        self.on_change(name, entry.hop)

    def find_intersecting(self, filter: Filter) -> list[Entry]:
        """The subscriptions that some event of the filter matches."""
        return [entry for entry in self if intersects(entry.filter, filter)]

    def of(self, hop: str) -> list[Entry]:
        """The subscriptions of one neighbour or client."""
        return [entry for entry in self if entry.hop == hop]


class AdvertisementTable:
    """All advertisements known to a broker, by where they came from."""

    def __init__(self, schema: Schema) -> None:
        self.hops: dict[Name, str] = {}
        self.on_change: Callable[[Name, str], None] = _ignore
        self._schema = schema
        self._behind: dict[str, CoverIndex[Name]] = {}

    def __contains__(self, name: Name) -> bool:
        return name in self.hops

    def add(self, entry: Entry) -> None:
        """Add an advertisement."""
        self.hops[entry.name] = entry.hop
        if entry.hop not in self._behind:
            self._behind[entry.hop] = CoverIndex(self._schema)
        self._behind[entry.hop].add(entry.filter, entry.name)
        self.on_change(entry.name, entry.hop)

    def remove(self, name: Name) -> Entry:
        """Remove an advertisement and return it."""
        hop = self.hops.pop(name)
        self.on_change(name, hop)
        return Entry(name, self._behind[hop].remove(name), hop)

    def filter_of(self, name: Name) -> Filter:
        """The filter of an advertisement."""
        return self._behind[self.hops[name]][name]

    def meets(self, hop: str, filter: Filter) -> bool:
        """Whether an event from there may match the filter."""
        return hop in self._behind and self._behind[hop].meets(filter)

    def find_intersecting(self, hop: str, filter: Filter) -> list[Name]:
        """The advertisements from there that intersect the filter."""
        return self._behind[hop].find_meeting(filter) if hop in self._behind else []

    def of(self, hop: str) -> list[Entry]:
        """The advertisements of one neighbour or client."""
        index = self._behind.get(hop, ())
        return [Entry(name, self._behind[hop][name], hop) for name in index]

    def apart_from(self, hop: str) -> list[Entry]:
        """The advertisements that came from anywhere else."""
        return [entry for other in self._behind if other != hop for entry in self.of(other)]
