"""The plain twins of the cover index and its kernels: every filter is compared with all."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from distributary.model import Filter, Schema, covers, intersects

__all__ = ["PlainCoverIndex", "rows_at_least", "rows_at_most"]


class PlainCoverIndex:
    """The same results as `CoverIndex`, by comparing every filter."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._filters: dict[Hashable, Filter] = {}

    def __len__(self) -> int:
        return len(self._filters)

    def __iter__(self) -> Iterator[Hashable]:
        return iter(self._filters)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._filters

    def __getitem__(self, key: Hashable) -> Filter:
        return self._filters[key]

    def add(self, filter: Filter, key: Hashable) -> None:
        if key in self._filters:
            raise ValueError(f"the key {key!r} is already in use")
        self._filters[key] = filter

    def remove(self, key: Hashable) -> Filter:
        return self._filters.pop(key)

    def find_covers(self, filter: Filter) -> list[Hashable]:
        return [key for key, other in self._filters.items() if covers(other, filter)]

    def find_covered(self, filter: Filter) -> list[Hashable]:
        return [key for key, other in self._filters.items() if covers(filter, other)]

    def find_meeting(self, filter: Filter) -> list[Hashable]:
        return [key for key, other in self._filters.items() if intersects(filter, other)]

    def is_covered(self, filter: Filter, but: Hashable | None = None) -> bool:
        return any(key != but for key in self.find_covers(filter))

    def meets(self, filter: Filter) -> bool:
        return bool(self.find_meeting(filter))


def rows_at_most(
    table: Sequence[Sequence[int]],
    rows: Sequence[int],
    query: Sequence[int],
    doubts: int,
    enough: int,
) -> list[int]:
    """The rows none of whose numbers is above that of the query, up to `enough` sure ones."""
    found: list[int] = []
    for row in rows:
        *numbers, word = table[row]
        if sum(one >= 0 for one in found) == enough:
            break
        if all(number <= most for number, most in zip(numbers, query, strict=True)):
            found.append(~row if word & doubts else row)
    return found


def rows_at_least(
    table: Sequence[Sequence[int]], rows: Sequence[int], query: Sequence[int], doubts: int
) -> list[int]:
    """The rows none of whose numbers is below that of the query."""
    found = []
    for row in rows:
        *numbers, word = table[row]
        if all(number >= least for number, least in zip(numbers, query, strict=True)):
            found.append(~row if word & doubts else row)
    return found
