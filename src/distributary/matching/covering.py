"""An index that finds the filters which cover a filter, are covered by it, or meet it.

Every filter is a row of numbers, its *bounds*. A filter that asks for one value of some attribute
is in the bucket of that value; all others share one bucket. A compiled loop tries the rows of the
few buckets in question. The filters themselves are compared only where the bounds leave a doubt.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Generic, TypeVar

import numpy as np

from distributary.matching._covering_kernels import rows_at_least, rows_at_most
from distributary.matching.bounds import Bounds, Point, bounds_of, doubt_of
from distributary.model import Filter, IndexArray, IntArray, Schema, covers, intersects

__all__ = ["CoverIndex"]

K = TypeVar("K", bound=Hashable)

_NOWHERE = -1  # the row of an odd filter, which has no bounds
_FEWEST_ROWS = 8
_FEWEST_IN_BUCKET = 4
_NEVER = -1

_by_order = attrgetter("order")


class _Bucket:
    """Unordered rows, and the value that all their filters ask for, if there is one."""

    __slots__ = ("count", "point", "rows", "unsure")

    def __init__(self, point: Point | None, rows: IndexArray) -> None:
        self.point = point
        self.rows = rows
        self.count = 0
        # The doubts that matter in this bucket: all but those about the value that all ask for.
        self.unsure = -1 if point is None else ~doubt_of(point[0])


@dataclass(slots=True, eq=False)
class _Entry(Generic[K]):
    key: K
    filter: Filter
    order: int
    row: int
    bucket: _Bucket
    place: int  # in the bucket


class CoverIndex(Generic[K]):
    """Filters under keys that the caller chooses: unique, and not None.

    Results are in the order in which filters were added, and agree with `covers` and `intersects`
    of the model. A cover is a single filter, never the union of several.
    """

    __slots__ = (
        "_all",
        "_buckets",
        "_by_row",
        "_entries",
        "_found",
        "_homes",
        "_next",
        "_odd",
        "_rest",
        "_table",
        "schema",
    )

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._entries: dict[K, _Entry[K]] = {}
        self._odd: dict[K, _Entry[K]] = {}
        self._by_row: list[_Entry[K]] = []
        self._all = _Bucket(None, np.arange(_FEWEST_ROWS, dtype=np.int32))
        self._rest = _Bucket(None, np.empty(_FEWEST_IN_BUCKET, np.int32))
        self._buckets: dict[Point, _Bucket] = {}
        # The number of buckets of each attribute.
        self._homes: dict[int, int] = {}
        self._next = 0
        self._table: IntArray = np.empty((_FEWEST_ROWS, 2 * len(schema) + 1), np.int64)
        self._found: IndexArray = np.empty(_FEWEST_ROWS, np.int32)

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[K]:
        return iter(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __getitem__(self, key: K) -> Filter:
        return self._entries[key].filter

    # --- changes ---------------------------------------------------------------------------------

    def add(self, filter: Filter, key: K) -> None:
        """Add a filter under a new key."""
        if key in self._entries:
            raise ValueError(f"the key {key!r} is already in use")
        entry = _Entry(key, filter, self._next, _NOWHERE, self._rest, _NOWHERE)
        self._next += 1
        self._entries[key] = entry
        bounds = bounds_of(filter)
        if bounds is None:
            self._odd[key] = entry
            return
        row = entry.row = len(self._by_row)
        self._by_row.append(entry)
        self._all.count += 1
        if row == len(self._table):
            self._make_room()
        self._table[row] = bounds.corner
        self._move_in(entry, self._home(bounds.points))

    def remove(self, key: K) -> Filter:
        """Remove a filter and return it; `KeyError` if there is none with that key."""
        entry = self._entries.pop(key)
        if entry.row == _NOWHERE:
            del self._odd[key]
            return entry.filter
        self._move_out(entry)
        last = self._by_row.pop()
        self._all.count -= 1
        if last is not entry:
            row = entry.row
            self._table[row] = self._table[last.row]
            self._by_row[row] = last
            last.row = last.bucket.rows[last.place] = row
        return entry.filter

    def _home(self, points: tuple[Point, ...]) -> _Bucket:
        """Choose a filter's bucket, at the attribute that has the most buckets so far."""
        if not points:
            return self._rest
        homes = self._homes
        best = points[0]
        if len(points) > 1:
            best = max(points, key=lambda point: homes.get(point[0], 0))
        bucket = self._buckets.get(best)
        if bucket is None:
            bucket = self._buckets[best] = _Bucket(best, np.empty(_FEWEST_IN_BUCKET, np.int32))
            homes[best[0]] = homes.get(best[0], 0) + 1
        return bucket

    def _move_in(self, entry: _Entry[K], bucket: _Bucket) -> None:
        if bucket.count == len(bucket.rows):
            bucket.rows = np.concatenate((bucket.rows, bucket.rows))
        bucket.rows[bucket.count] = entry.row
        entry.bucket, entry.place = bucket, bucket.count
        bucket.count += 1

    def _move_out(self, entry: _Entry[K]) -> None:
        bucket = entry.bucket
        bucket.count -= 1
        if entry.place != bucket.count:
            moved = self._by_row[bucket.rows[bucket.count]]
            bucket.rows[entry.place] = moved.row
            moved.place = entry.place
        if bucket.point is not None and not bucket.count:
            del self._buckets[bucket.point]
            at = bucket.point[0]
            self._homes[at] -= 1
            if not self._homes[at]:
                del self._homes[at]

    def _make_room(self) -> None:
        rows, width = self._table.shape
        table = np.empty((2 * rows, width), np.int64)
        table[:rows] = self._table
        self._table = table
        self._all.rows = np.arange(2 * rows, dtype=np.int32)
        self._found = np.empty(2 * rows, np.int32)

    # --- queries ---------------------------------------------------------------------------------

    def find_covers(self, filter: Filter) -> list[K]:
        """The keys of the filters that cover this one, equal ones included."""
        bounds = bounds_of(filter)
        rows = None
        if bounds is not None:
            rows = self._at_most(self._covering_buckets(bounds), *bounds.inside(), _NEVER)
        return self._keys(rows, lambda other: covers(other, filter))

    def is_covered(self, filter: Filter, but: K | None = None) -> bool:
        """Whether some filter, other than the one under the key `but`, covers this one."""
        bounds = bounds_of(filter)
        if bounds is None:
            return any(key != but for key in self.find_covers(filter))
        # Of two covers one is not `but`, so two are enough.
        enough = 1 if but is None else 2
        rows = self._at_most(self._covering_buckets(bounds), *bounds.inside(), enough)
        by_row = self._by_row
        if any(row >= 0 and by_row[row].key != but for row in rows):
            return True
        return any(
            entry.key != but and covers(entry.filter, filter) for entry in self._doubtful(rows)
        )

    def find_covered(self, filter: Filter) -> list[K]:
        """The keys of the filters that this one covers, equal ones included."""
        bounds = bounds_of(filter)
        rows: list[int] | None = None
        if bounds is not None:
            query, doubts = bounds.around()
            rows = []
            for bucket in self._meeting_buckets(bounds):
                n = rows_at_least(
                    self._table,
                    bucket.rows[: bucket.count],
                    query,
                    doubts & bucket.unsure,
                    self._found,
                )
                rows += self._found[:n].tolist()
        return self._keys(rows, lambda other: covers(filter, other))

    def find_meeting(self, filter: Filter) -> list[K]:
        """The keys of the filters that match some event that this one matches too."""
        bounds = bounds_of(filter)
        rows = None
        if bounds is not None:
            rows = self._at_most(self._meeting_buckets(bounds), *bounds.touching(), _NEVER)
        return self._keys(rows, lambda other: intersects(filter, other))

    def meets(self, filter: Filter) -> bool:
        """Whether `find_meeting` would return any filter."""
        bounds = bounds_of(filter)
        if bounds is None:
            return bool(self.find_meeting(filter))
        rows = self._at_most(self._meeting_buckets(bounds), *bounds.touching(), 1)
        return any(row >= 0 for row in rows) or any(
            intersects(filter, entry.filter) for entry in self._doubtful(rows)
        )

    def _covering_buckets(self, bounds: Bounds) -> list[_Bucket]:
        """The buckets that may hold covers of a filter: those of its own values, and the rest."""
        found = [self._buckets[point] for point in bounds.points if point in self._buckets]
        if self._rest.count:
            found.append(self._rest)
        return found

    def _meeting_buckets(self, bounds: Bounds) -> list[_Bucket]:
        """The buckets of filters that may meet one: not those of values that it excludes.

        If there are buckets of an attribute for which it asks for no single value, all are tried.
        """
        asked = [at for at, _ in bounds.points]
        if all(at in asked for at in self._homes):
            return self._covering_buckets(bounds)
        return [self._all]

    def _at_most(
        self, buckets: list[_Bucket], query: IntArray, doubts: int, enough: int
    ) -> list[int]:
        rows: list[int] = []
        for bucket in buckets:
            n = rows_at_most(
                self._table,
                bucket.rows[: bucket.count],
                query,
                doubts & bucket.unsure,
                enough,
                self._found,
            )
            rows += self._found[:n].tolist()
        return rows

    def _keys(self, rows: list[int] | None, holds: Callable[[Filter], bool]) -> list[K]:
        """The keys of rows in order; rows in doubt (`~row`) and odd filters must pass `holds`.

        `rows` is None for a query that is an odd filter itself: it is compared with all filters.
        """
        if rows is None:
            return [entry.key for entry in self._entries.values() if holds(entry.filter)]
        found = [self._by_row[row] for row in rows if row >= 0]
        found += [entry for entry in self._doubtful(rows) if holds(entry.filter)]
        if len(found) > 1:
            found.sort(key=_by_order)
        return [entry.key for entry in found]

    def _doubtful(self, rows: list[int]) -> list[_Entry[K]]:
        """The entries to be compared one by one: rows in doubt, and odd filters."""
        found = [self._by_row[~row] for row in rows if row < 0]
        if self._odd:
            found += self._odd.values()
        return found
