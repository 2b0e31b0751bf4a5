"""The routing tables of a content broker: what came from where."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from distributary.matching import Matcher
from distributary.matching.covering import CoverIndex
from distributary.model import Filter, Key, Schema, intersects
from distributary.protocol.content.messages import Name

__all__ = ["Advertisements", "Entry", "Subscriptions"]


class Entry(NamedTuple):
    """A subscription, and the neighbour or client it came from: there its events go."""

    name: Name
    filter: Filter
    hop: str


class Subscriptions:
    """All subscriptions that a broker knows, to be matched against events."""

    def __init__(self, schema: Schema) -> None:
        self.boxes = 0
        self._entries: dict[Name, Entry] = {}
        self._matcher = Matcher(schema)
        self._numbers: dict[Name, int] = {}
        self._by_number: dict[int, Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def __contains__(self, name: Name) -> bool:
        return name in self._entries

    def get(self, name: Name) -> Entry | None:
        """The entry of that name, if there is one."""
        return self._entries.get(name)

    def add(self, entry: Entry) -> None:
        """A subscription begins."""
        number = self._matcher.add(entry.filter)
        self._entries[entry.name] = self._by_number[number] = entry
        self._numbers[entry.name] = number
        self.boxes += len(entry.filter.boxes)

    def remove(self, name: Name) -> None:
        """It ends."""
        entry = self._entries.pop(name)
        number = self._numbers.pop(name)
        self._matcher.remove(number)
        del self._by_number[number]
        self.boxes -= len(entry.filter.boxes)

    def matched(self, keys: Sequence[Key | None], but: str | None) -> list[Entry]:
        """Those that an event matches, except what came from the neighbour that brought it."""
        by_number = self._by_number
        found = (by_number[number] for number in self._matcher.match_keys(keys).tolist())
        return [entry for entry in found if entry.hop != but]

    def meeting(self, filter: Filter) -> list[Entry]:
        """Those that some event of a filter matches."""
        return [entry for entry in self if intersects(entry.filter, filter)]

    def of(self, hop: str) -> list[Entry]:
        """Those that came from one neighbour or client."""
        return [entry for entry in self if entry.hop == hop]


class Advertisements:
    """All advertisements that a broker knows, by where they came from."""

    def __init__(self, schema: Schema) -> None:
        self.hops: dict[Name, str] = {}
        self._schema = schema
        self._behind: dict[str, CoverIndex[Name]] = {}

    def __contains__(self, name: Name) -> bool:
        return name in self.hops

    def add(self, entry: Entry) -> None:
        """An advertisement begins."""
        self.hops[entry.name] = entry.hop
        if entry.hop not in self._behind:
            self._behind[entry.hop] = CoverIndex(self._schema)
        self._behind[entry.hop].add(entry.filter, entry.name)

    def remove(self, name: Name) -> Entry:
        """It ends."""
        hop = self.hops.pop(name)
        return Entry(name, self._behind[hop].remove(name), hop)

    def filter_of(self, name: Name) -> Filter:
        """What an advertisement promises."""
        return self._behind[self.hops[name]][name]

    def meets(self, hop: str, filter: Filter) -> bool:
        """Whether some event that comes from there may match."""
        return hop in self._behind and self._behind[hop].meets(filter)

    def met(self, hop: str, filter: Filter) -> list[Name]:
        """The advertisements from there of which an event may match."""
        return self._behind[hop].meeting(filter) if hop in self._behind else []

    def of(self, hop: str) -> list[Entry]:
        """Those that came from one neighbour or client."""
        index = self._behind.get(hop, ())
        return [Entry(name, self._behind[hop][name], hop) for name in index]

    def apart_from(self, hop: str) -> list[Entry]:
        """Those that came from elsewhere."""
        return [entry for other in self._behind if other != hop for entry in self.of(other)]
