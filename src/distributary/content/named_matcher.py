"""A matcher of named filters that come and go for as long as a broker runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from distributary.content.messages import Name
from distributary.matching import Matcher
from distributary.model import Filter, IndexArray, IntArray, Key, Schema

__all__ = ["NamedMatcher"]

# Numbers of removed filters that are kept in addition to as many as there are filters.
_SPARE_NUMBERS = 1 << 16
# Filters that are compiled at once: it takes some 50 ms, for which publications wait.
MOST_COMPILED = 1 << 14


class NamedMatcher:
    """A `Matcher` of filters that have a name and a small number, their tag.

    New filters are compiled together, before the next event or when there are many. After many
    changes all are, since a `Matcher` neither reuses a number nor drops a removed filter. `names`
    and `tags` are by the matcher's number.
    """

    def __init__(self, schema: Schema) -> None:
        self.names: list[Name] = []
        self.tags: IndexArray = np.empty(0, np.int32)
        self._schema = schema
        self._matcher = Matcher(schema, in_passing=MOST_COMPILED)
        self._numbers: dict[Name, int] = {}
        self._new: dict[Name, tuple[Filter, int]] = {}

    def __len__(self) -> int:
        return len(self._numbers) + len(self._new)

    def add(self, name: Name, filter: Filter, tag: int = 0) -> None:
        """Add a filter."""
        self._new[name] = filter, tag
        if len(self._new) >= MOST_COMPILED:
            self._take_new()

    def remove(self, name: Name) -> None:
        """Remove a filter."""
        if self._new.pop(name, None) is None:
            self._matcher.remove(self._numbers.pop(name))

    def match(self, keys: Sequence[Key | None]) -> IntArray:
        """The numbers of the filters that an event matches, in order."""
        if self._new:
            self._take_new()
        return self._matcher.match_keys(keys)

    def _take_new(self) -> None:
        if len(self.names) > 2 * len(self._numbers) + _SPARE_NUMBERS:
            self._drop_removed()
        filters, tags = zip(*self._new.values(), strict=True)
        self._numbers |= zip(self._new, self._matcher.add_all(filters), strict=True)
        first = len(self.names)
        self.names += self._new
        if len(self.names) > len(self.tags):
            self.tags = np.resize(self.tags, 2 * len(self.names))
        self.tags[first : len(self.names)] = tags
        self._new = {}

    def _drop_removed(self) -> None:
        numbers = [*self._numbers.values()]
        filters = map(self._matcher.__getitem__, numbers)
        self._matcher = Matcher(self._schema, filters, in_passing=MOST_COMPILED)
        self.names = [*self._numbers]
        self.tags = self.tags[numbers]
        self._numbers = dict(zip(self.names, range(len(numbers)), strict=True))
