"""Tables in hash buckets whose changes cost what they change, not what is there.

A table is a set of Parquet files with rows in the order of `key`, a 64-bit hash. Its upper 16 bits
are the row's *bucket*. New rows are written as a *run* of their own, without a look at older runs;
whoever reads a bucket merges the rows of all runs. The merge of a table must give the same for any
grouping and order of its rows.

**Compaction.** Runs have levels: a level holds runs four times as large as the one below it. Four
runs of a level are merged into one. Each row is thus rewritten once per level, and the number of
runs and files stays within a few per level and one file per 65,536 rows. A merge goes bucket by
bucket in slices of about 65,536 rows, and a batch does a bounded number of slices, so that no
batch pays for the whole table. A slice that is done is taken out of the merge's sources by their
range of buckets, so a table is complete after every slice.

**Expiry.** Rows whose `expiry` column is before a horizon are dropped when they are merged, and
files without any later row at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from distributary.files.faults import report_arrow_faults

__all__ = ["BUCKETS", "BucketFile", "BucketTable", "Merge", "TableFiles", "TableKind"]

BUCKETS = 1 << 16
FAN = 4
SMALLEST_RUN = 1024
SLICE_ROWS = 1 << 16
READ_ROWS = 1 << 19
_ROW_GROUP = 1 << 13
_SHIFT = 48
_REMEDY = "restore the stream's folder from a copy, or start over in another folder"

Longs = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TableKind:
    """What a table's rows are: its name and columns, how rows are merged, and when they expire.

    `merge` takes rows in any order and gives them in the order of `key`. `names` are the columns of
    text, in which values repeat.
    """

    name: str
    schema: pa.Schema
    merge: Callable[[pa.Table], pa.Table]
    names: tuple[str, ...]
    expiry: str | None = None


@dataclass(frozen=True, slots=True)
class BucketFile:
    """A file of a run. Of its rows count those in the buckets from `first` up to `end`.

    `rows` is their number, `newest` the latest value of the expiry column in the file.
    """

    path: str
    run: int
    first: int
    end: int
    rows: int
    newest: int | None = None


@dataclass(frozen=True, slots=True)
class Merge:
    """A merge of runs into a new one, done up to the bucket `done`."""

    sources: tuple[int, ...]
    target: int
    done: int = 0


@dataclass(frozen=True, slots=True)
class TableFiles:
    """The files of a table, the merges that go on in it, and the number of runs it ever had."""

    files: tuple[BucketFile, ...] = ()
    merges: tuple[Merge, ...] = ()
    runs: int = 0

    @property
    def rows(self) -> int:
        """The number of stored rows, of which several may be about one thing."""
        return sum(file.rows for file in self.files)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """From what `dataclasses.asdict` gives, also by way of JSON."""
        files = tuple(BucketFile(**one) for one in document["files"])
        merges = tuple(
            Merge(**{**one, "sources": tuple(one["sources"])}) for one in document["merges"]
        )
        return cls(files, merges, document["runs"])

    def plan_merges(self) -> Self:
        """End merges without rows left, and begin those of levels with enough runs."""
        merges = tuple(one for one in self.merges if self.rows_left(one))
        busy = {run for one in merges for run in (*one.sources, one.target)}
        sizes: dict[int, int] = {}
        for file in self.files:
            if file.run not in busy:
                sizes[file.run] = sizes.get(file.run, 0) + file.rows
        levels: dict[int, list[int]] = {}
        for run in sorted(sizes):
            levels.setdefault(_level(sizes[run]), []).append(run)
        runs = self.runs
        for _, own in sorted(levels.items()):
            if len(own) >= FAN:
                merges = (*merges, Merge(tuple(own), runs))
                runs += 1
        return replace(self, merges=merges, runs=runs)

    def rows_left(self, merge: Merge) -> int:
        """The number of rows that a merge has still to read."""
        return sum(file.rows for file in self.files if file.run in merge.sources)


@dataclass(frozen=True, slots=True)
class BucketTable:
    """A table below the folder `root`. It never changes: methods return the table after a change.

    Files are written into a given folder below the root, and no file is changed or removed.
    """

    kind: TableKind
    root: Path
    stored: TableFiles = TableFiles()

    @property
    def paths(self) -> list[Path]:
        """The files of the table."""
        return [self.root / file.path for file in self.stored.files]

    def append(self, rows: pa.Table, folder: Path) -> BucketTable:
        """Add rows as a run of their own."""
        if not rows.num_rows:
            return self
        rows, run = self.kind.merge(rows), self.stored.runs
        key = _longs(rows, "key")
        new, start, first = [], 0, 0
        while start < len(key):
            stop, end = len(key), BUCKETS
            if stop - start > SLICE_ROWS:  # cut between two buckets
                end = _bucket(int(key[start + SLICE_ROWS - 1])) + 1
                stop = int(np.searchsorted(key, _first_key(end) - 1, side="right"))
            new.append(self._write(rows.slice(start, stop - start), folder, run, first, end))
            start, first = stop, end
        return self._with(files=(*self.stored.files, *new), runs=run + 1)

    def compact(
        self, appended: int, folder: Path, horizon: int | None = None
    ) -> Iterator[BucketTable]:
        """Merge runs, for about as much work as `appended` new rows cause in the long run.

        That is one merge per level above theirs, and twice as much so that merges end in time.
        Yields the table after each step; it is complete after any of them.
        """
        table = self._expire(horizon)
        table = replace(table, stored=table.stored.plan_merges())
        yield table
        levels = max(_level(table.stored.rows) - _level(appended), 0) + 1
        work = max(SLICE_ROWS, 2 * levels * appended)
        while table.stored.merges and work > 0:
            smallest = min(table.stored.merges, key=table.stored.rows_left)
            work -= min(table.stored.rows_left(smallest), SLICE_ROWS)
            table = table._advance(smallest, folder, horizon)
            table = replace(table, stored=table.stored.plan_merges())
            yield table

    def read(self, horizon: int | None = None) -> Iterator[pa.Table]:
        """The merged rows, some buckets at a time."""
        width = max(1, BUCKETS * READ_ROWS // max(self.stored.rows, READ_ROWS))
        for first in range(0, BUCKETS, width):
            parts = [self._read_file(file, first, first + width) for file in self.stored.files]
            rows = self._merge([part for part in parts if part.num_rows], horizon)
            if rows.num_rows:
                yield rows

    def find(self, keys: Longs) -> pa.Table:
        """The stored rows with these keys, not merged."""
        keys = np.unique(keys)
        buckets = np.unique((keys >> _SHIFT) + BUCKETS // 2)
        found = [self.kind.schema.empty_table()]
        for file in self.stored.files:
            own = buckets[(buckets >= file.first) & (buckets < file.end)]
            if len(own):
                rows = self._read_file(file, int(own[0]), int(own[-1]) + 1, keys)
                found.append(rows.filter(pa.array(np.isin(_longs(rows, "key"), keys))))
        return pa.concat_tables(found)

    def _with(self, **changes: Any) -> BucketTable:
        return replace(self, stored=replace(self.stored, **changes))

    def _expire(self, horizon: int | None) -> BucketTable:
        """Leave out files whose rows have all expired."""
        if horizon is None or self.kind.expiry is None:
            return self
        files = self.stored.files
        return self._with(
            files=tuple(one for one in files if one.newest is None or one.newest >= horizon)
        )

    def _advance(self, merge: Merge, folder: Path, horizon: int | None) -> BucketTable:
        """Merge the next slice."""
        left = self.stored.rows_left(merge)
        end = merge.done + -(-(BUCKETS - merge.done) * SLICE_ROWS // left)
        end = min(end, BUCKETS)
        parts, files = [], []
        for file in self.stored.files:
            kept = file
            if file.run in merge.sources and file.first < end:
                part = self._read_file(file, merge.done, end)
                parts.append(part)
                kept = replace(file, first=end, rows=file.rows - part.num_rows)
            if kept.first < kept.end and kept.rows:
                files.append(kept)
        rows = self._merge(parts, horizon)
        if rows.num_rows:
            files.append(self._write(rows, folder, merge.target, merge.done, end))
        merges = self.stored.merges
        return self._with(
            files=tuple(files),
            merges=tuple(replace(one, done=end) if one == merge else one for one in merges),
        )

    def _merge(self, parts: Sequence[pa.Table], horizon: int | None) -> pa.Table:
        rows = pa.concat_tables([self.kind.schema.empty_table(), *parts])
        if horizon is not None and self.kind.expiry is not None:
            rows = rows.filter(pc.greater_equal(_as_longs(rows[self.kind.expiry]), horizon))
        return self.kind.merge(rows)

    def _write(self, rows: pa.Table, folder: Path, run: int, first: int, end: int) -> BucketFile:
        path = folder / f"{self.kind.name}-{run:06d}-{first:05d}.parquet"
        pq.write_table(
            rows,
            path,
            row_group_size=_ROW_GROUP,
            use_dictionary=list(self.kind.names),
            write_statistics=["key"],
            write_page_checksum=True,
        )
        newest = None
        if self.kind.expiry is not None:
            newest = pc.max(_as_longs(rows[self.kind.expiry])).as_py()
        name = path.relative_to(self.root).as_posix()
        return BucketFile(name, run, first, end, rows.num_rows, newest)

    def _read_file(
        self, file: BucketFile, first: int, end: int, keys: Longs | None = None
    ) -> pa.Table:
        """The rows of a file that count in a range of buckets, from row groups that may have any.

        With `keys`, which are sorted, row groups without any of them are left out as well.
        """
        first, end = max(first, file.first), min(end, file.end)
        if first >= end:
            return self.kind.schema.empty_table()
        low, high = _first_key(first), _first_key(end) - 1
        path = self.root / file.path
        with (
            report_arrow_faults(path, "cannot be read", _REMEDY),
            pq.ParquetFile(path, page_checksum_verification=True) as stored,
        ):
            groups = []
            for number in range(stored.metadata.num_row_groups):
                bounds = stored.metadata.row_group(number).column(0).statistics
                if bounds.max < low or bounds.min > high:
                    continue
                if keys is not None and not _has_between(keys, bounds.min, bounds.max):
                    continue
                groups.append(number)
            rows = stored.read_row_groups(groups).cast(self.kind.schema)
        key = _longs(rows, "key")
        start, stop = np.searchsorted(key, low), np.searchsorted(key, high, side="right")
        return rows.slice(int(start), int(stop - start))


def _level(rows: int) -> int:
    """0 for the smallest runs, and one more for each four times as many rows."""
    level = 0
    while rows >= SMALLEST_RUN * FAN ** (level + 1):
        level += 1
    return level


def _bucket(key: int) -> int:
    return (key >> _SHIFT) + BUCKETS // 2


def _first_key(bucket: int) -> int:
    return (bucket - BUCKETS // 2) << _SHIFT


def _has_between(keys: Longs, low: int, high: int) -> bool:
    return bool(np.searchsorted(keys, low) < np.searchsorted(keys, high, side="right"))


def _as_longs(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column if column.type == pa.int64() else column.cast(pa.int64())


def _longs(rows: pa.Table, name: str) -> Longs:
    values: Longs = rows[name].to_numpy()
    return values
