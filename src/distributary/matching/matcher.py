"""Find the filters that an event matches, while filters are added and removed.

The newest filters are tried one by one. Once there are a few dozen they are compiled into a
`Bitmap`, and bitmaps of similar size are compiled into one. So there are never many bitmaps, and a
filter is compiled a number of times that grows with the logarithm of the number of filters. A
removed filter is only marked. A fold compiles all filters into one bitmap: at once with `fold`, or
while the matcher is in use with `begin_fold` and `finish_fold`.

Bitmaps know only tests of single attributes. The residuals of a filter are checked for the events
that pass its tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import pyarrow as pa

from distributary.matching.axes import event_table
from distributary.matching.bitmap import BUCKETS, Bitmap, Buckets
from distributary.matching.residuals import check_pairs
from distributary.matching.scalars import plain_value
from distributary.model import Filter, IntArray, Key, Schema

__all__ = ["Folding", "Matcher"]

# At most this many filters are tried one by one before they are compiled, so that not every new
# filter costs a compilation.
_MOST_NEWEST = 32
# After this many events on the same newest filters, compiling these filters pays off.
_MOST_TRIED = 16
# A bitmap is at least this many times as large as the next newer one.
_GROWTH = 4

# Adding a filter never merges more filters than this; larger bitmaps are merged only by a fold.
_MOST_IN_PASSING = 100_000

# The most pairs of events and filters with residuals to check at once.
_MOST_CHECKED = 1 << 23

_NONE = np.empty(0, np.int64)

_Found = TypeVar("_Found")


class Folding:
    """A fold in progress: the filters as they were at its start, to be compiled in any thread."""

    def __init__(self, filters: dict[int, Filter], schema: Schema, buckets: Buckets) -> None:
        self._filters = filters
        self._schema = schema
        self._buckets = buckets
        self._bitmap: Bitmap | None = None

    def compile(self) -> None:
        """Compile the filters. The matcher may be used and changed meanwhile."""
        self._bitmap = _compile(self._filters, self._schema, self._buckets)

    @property
    def bitmap(self) -> Bitmap:
        """The compiled bitmap."""
        if self._bitmap is None:
            raise ValueError("the fold has not been compiled; call `compile` first")
        return self._bitmap


class Matcher:
    """Numbered filters over one schema, matched against events one by one or in tables.

    Adding a filter merges bitmaps of at most `in_passing` filters together: with fewer, adding
    never takes long, but there are more bitmaps to match. A fold merges all.

    Not thread-safe; `match_table` and `count_table` can use several threads of their own.
    """

    def __init__(
        self,
        schema: Schema,
        filters: Iterable[Filter] = (),
        *,
        buckets: Buckets = BUCKETS,
        in_passing: int = _MOST_IN_PASSING,
    ) -> None:
        self.schema = schema
        self._in_passing = in_passing
        self._buckets = buckets
        self._filters = dict(enumerate(filters))
        for each in self._filters.values():
            self._check(each)
        # Filters with residuals: their matches have to be checked, since bitmaps know only tests.
        self._inexact = {n: each for n, each in self._filters.items() if each.has_residuals}
        self._next = len(self._filters)
        self._newest = dict(self._filters)  # filters in no bitmap
        self._newest_bitmap: Bitmap | None = None  # of the newest filters, until these change
        self._tried = 0  # events tried on the newest filters since these changed
        self._bitmaps: list[Bitmap] = []  # older first, so numbers ascend from one to the next
        self._folding: Folding | None = None
        self._n_folding = 0  # how many bitmaps hold what is being folded
        self._removed: list[int] = []  # since the fold began
        if len(self._newest) > _MOST_NEWEST:
            self._compile_newest()

    def __len__(self) -> int:
        return len(self._filters)

    def __getitem__(self, number: int) -> Filter:
        return self._filters[number]

    @property
    def numbers(self) -> IntArray:
        """The numbers of all filters, in order."""
        return np.fromiter(self._filters, np.int64, len(self._filters))

    @property
    def bitmaps(self) -> tuple[Bitmap, ...]:
        """The compiled bitmaps, older filters first."""
        return tuple(self._bitmaps)

    @property
    def bytes_used(self) -> int:
        """Memory of the bitmaps."""
        return sum(bitmap.bytes_used for bitmap in self._bitmaps)

    # --- changing --------------------------------------------------------------------------------

    def add(self, filter: Filter) -> int:
        """Add a filter and return its number, which is never reused."""
        self._check(filter)
        number = self._next
        self._next += 1
        self._filters[number] = self._newest[number] = filter
        if filter.has_residuals:
            self._inexact[number] = filter
        self._forget_newest()
        if len(self._newest) > _MOST_NEWEST:
            self._compile_newest()
        return number

    def add_all(self, filters: Iterable[Filter]) -> range:
        """Add many filters at once and return their numbers, in order."""
        found = list(filters)
        for each in found:
            self._check(each)
        numbers = range(self._next, self._next + len(found))
        self._next += len(found)
        given = dict(zip(numbers, found, strict=True))
        self._filters |= given
        self._newest |= given
        self._inexact |= {number: each for number, each in given.items() if each.has_residuals}
        self._forget_newest()
        if len(self._newest) > _MOST_NEWEST:
            self._compile_newest()
        return numbers

    def remove(self, number: int) -> None:
        """Remove a filter; `KeyError` if there is none with that number."""
        del self._filters[number]
        self._inexact.pop(number, None)
        if number in self._newest:
            del self._newest[number]
            self._forget_newest()
        else:
            next(bitmap for bitmap in self._bitmaps if number in bitmap).remove(number)
        if self._folding is not None:
            self._removed.append(number)

    def _forget_newest(self) -> None:
        self._newest_bitmap = None
        self._tried = 0

    def _check(self, filter: Filter) -> None:
        if filter.schema != self.schema:
            raise ValueError("the filter and the matcher have different schemas")

    def _compile_newest(self) -> None:
        """Compile the newest filters, together with the bitmaps that are not much larger."""
        size = len(self._newest)
        first = len(self._bitmaps)
        while first > self._n_folding:
            older_size = len(self._bitmaps[first - 1])
            if older_size >= _GROWTH * size or older_size + size > self._in_passing:
                break
            first -= 1
            size += older_size
        older = {
            number: self._filters[number]
            for bitmap in self._bitmaps[first:]
            for number in bitmap.numbers.tolist()
            if number in self._filters
        }
        together = {**older, **self._newest}
        self._bitmaps[first:] = [_compile(together, self.schema, self._buckets)]
        self._newest = {}
        self._forget_newest()

    # --- folding ---------------------------------------------------------------------------------

    def fold(self) -> None:
        """Compile all filters into one bitmap, now."""
        folding = self.begin_fold()
        folding.compile()
        self.finish_fold(folding)

    def begin_fold(self) -> Folding:
        """Start a fold of the present filters; an unfinished earlier fold is abandoned."""
        self._n_folding = len(self._bitmaps)
        if self._newest:
            self._compile_newest()
        self._n_folding = len(self._bitmaps)
        self._removed = []
        self._folding = Folding(dict(self._filters), self.schema, self._buckets)
        return self._folding

    def finish_fold(self, folding: Folding) -> None:
        """Replace the old bitmaps by the compiled one, without the filters removed since."""
        if folding is not self._folding:
            raise ValueError("another fold was started, or this one is finished already")
        bitmap = folding.bitmap
        for number in self._removed:
            if number in bitmap:
                bitmap.remove(number)
        self._bitmaps[: self._n_folding] = [bitmap]
        self._folding = None
        self._n_folding = 0
        self._removed = []

    # --- matching --------------------------------------------------------------------------------

    def match(self, event: Mapping[str, object]) -> IntArray:
        """The numbers of the filters that an event matches, in order.

        Values may be Python, numpy or Arrow scalars; they match like the values of a table.
        """
        plain = {name: plain_value(value) for name, value in event.items()}
        return self.match_keys(self.schema.keys(plain))

    def match_keys(self, keys: Sequence[Key | None]) -> IntArray:
        """The same for an event given as the schema's `keys` of it."""
        self._tried += 1
        if self._tried > _MOST_TRIED:
            found = [bitmap.match_keys(keys) for bitmap in self._all_bitmaps()]
            numbers = found[0] if len(found) == 1 else np.concatenate([_NONE, *found])
            return self._check_residuals(numbers, keys)
        found = [bitmap.match_keys(keys) for bitmap in self._bitmaps]
        older = self._check_residuals(np.concatenate([_NONE, *found]), keys)
        newest = [number for number, each in self._newest.items() if each.matches(keys)]
        return np.concatenate([older, np.array(newest, np.int64)])

    def _check_residuals(self, numbers: IntArray, keys: Sequence[Key | None]) -> IntArray:
        """Keep the filters whose residuals hold too, of those whose tests pass."""
        if not self._inexact:
            return numbers
        inexact = self._inexact
        holds = [each not in inexact or inexact[each].matches(keys) for each in numbers.tolist()]
        return numbers[np.array(holds, np.bool_)]

    def match_table(self, events: pa.Table, *, threads: int = 1) -> tuple[IntArray, IntArray]:
        """The pairs of a row and a filter's number that match, by row and then by number."""
        parts = self._over_parts(events, threads, self._match_part)
        rows = (rows + first for (rows, _), first in parts)
        return (
            np.concatenate([_NONE, *rows]),
            np.concatenate([_NONE, *(numbers for (_, numbers), _ in parts)]),
        )

    def count_table(self, events: pa.Table, *, threads: int = 1) -> IntArray:
        """How many filters each event matches."""

        def count(part: pa.Table) -> IntArray:
            if self._inexact:
                rows, _ = self._match_part(part)
                return np.bincount(rows, minlength=part.num_rows)
            counts = np.zeros(part.num_rows, np.int64)
            for bitmap in self._all_bitmaps():
                counts += bitmap.count_codes(bitmap.axes.codes(part))
            return counts

        parts = self._over_parts(events, threads, count)
        return np.concatenate([_NONE, *(counts for counts, _ in parts)])

    def _match_part(self, part: pa.Table) -> tuple[IntArray, IntArray]:
        found = [bitmap.match_codes(bitmap.axes.codes(part)) for bitmap in self._all_bitmaps()]
        rows, numbers = _merge_results(
            [np.repeat(np.arange(part.num_rows), np.diff(offsets)) for offsets, _ in found],
            [numbers for _, numbers in found],
        )
        if not self._inexact:
            return rows, numbers
        holds = check_pairs(part, rows, numbers, self._inexact)
        return rows[holds], numbers[holds]

    def _all_bitmaps(self) -> list[Bitmap]:
        """All bitmaps, including one of the newest filters."""
        if not self._newest:
            return self._bitmaps
        if self._newest_bitmap is None:
            self._newest_bitmap = _compile(self._newest, self.schema, self._buckets)
        return [*self._bitmaps, self._newest_bitmap]

    def _over_parts(
        self, events: pa.Table, threads: int, work: Callable[[pa.Table], _Found]
    ) -> list[tuple[_Found, int]]:
        """Call `work` on consecutive parts of the events; return its results and the first rows.

        There are as many parts as threads, or more if residuals might have to be checked for more
        pairs than fit into memory.
        """
        if threads < 1:
            raise ValueError(f"threads must be at least 1, not {threads}")
        self._all_bitmaps()
        events = event_table(events, self.schema)
        size = max(1, -(-events.num_rows // threads))
        if self._inexact:
            size = min(size, max(1, _MOST_CHECKED // len(self._inexact)))
        firsts = range(0, events.num_rows, size)
        parts = [events.slice(first, size) for first in firsts]
        if threads == 1:
            return list(zip(map(work, parts), firsts, strict=True))
        with ThreadPoolExecutor(threads) as pool:
            return list(zip(pool.map(work, parts), firsts, strict=True))


def _compile(filters: dict[int, Filter], schema: Schema, buckets: Buckets) -> Bitmap:
    """Compile the tests of filters; residuals are checked later, for the events found."""
    tests = [each.drop_residuals() for each in filters.values()]
    return Bitmap.of(list(filters), tests, schema, buckets=buckets)


def _merge_results(rows: list[IntArray], numbers: list[IntArray]) -> tuple[IntArray, IntArray]:
    """Merge the results of several bitmaps by row; a later bitmap has greater numbers."""
    if not rows:
        return _NONE, _NONE
    if len(rows) == 1:
        return rows[0], numbers[0]
    row = np.concatenate(rows)
    order = np.argsort(row, kind="stable")
    return row[order], np.concatenate(numbers)[order]
