"""Tables in files: one reader and one writer for all formats; the extension names the format."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from distributary.errors import InputError
from distributary.files.bad_rows import BadRow, bad_rows_error
from distributary.files.columns import Column, Faults, judge_values, no_rows
from distributary.files.csv import raw_csv, read_csv, write_csv
from distributary.files.faults import (
    input_fault,
    output_fault,
    read_fault,
    report_arrow_faults,
    show_path,
    show_value,
    to_python,
)
from distributary.files.jsonl import raw_jsonl, read_jsonl, write_jsonl
from distributary.files.parquet import raw_parquet, read_parquet, write_parquet
from distributary.files.replacing import replace_file
from distributary.files.versions import follow_pointer
from distributary.model import FloatArray, IndexArray, IntArray


@dataclass(frozen=True, slots=True)
class TableFormat:
    """How a table is read from a file of one format and written to one."""

    extensions: tuple[str, ...]
    read: Callable[[Path, tuple[Column, ...]], tuple[Any, Faults]]
    write: Callable[[Any, BinaryIO], None]
    raw: Callable[[Path, Collection[int]], dict[int, str]]


FORMATS = {
    "parquet": TableFormat((".parquet", ".pq"), read_parquet, write_parquet, raw_parquet),
    "csv": TableFormat((".csv",), read_csv, write_csv, raw_csv),
    "jsonl": TableFormat((".jsonl", ".ndjson", ".json"), read_jsonl, write_jsonl, raw_jsonl),
}
EXTENSIONS = tuple(ext for kind in FORMATS.values() for ext in kind.extensions)


@dataclass(frozen=True, slots=True, eq=False)
class FileTable:
    """Rows read from one file or several; every value is of its column's kind.

    `part_paths` are the files; `part_ends` are the cumulative numbers of rows at the end of each
    file, counting the `bad` rows. `kept` are the numbers of the usable rows, from 0, or None if no
    row is bad.
    """

    part_paths: tuple[Path, ...]
    part_ends: tuple[int, ...]
    columns: Any
    kept: IntArray | None = None
    bad: tuple[BadRow, ...] = ()

    @property
    def rows(self) -> int:
        """The number of usable rows."""
        return len(self.columns)

    def has(self, column: str) -> bool:
        """Whether the table has an optional column."""
        return column in self.columns.column_names

    def names(self, column: str) -> tuple[tuple[str, ...], IndexArray]:
        """The distinct strings of a column, sorted, and for each row the index of its string."""
        values = self.columns[column].combine_chunks()
        # Dense ranks merge strings that a writer's dictionary lists twice.
        rank = pc.rank(values.dictionary, tiebreaker="dense").to_numpy().astype(np.int32) - 1
        names = pc.unique(values.dictionary.take(pc.sort_indices(values.dictionary)))
        codes = rank[values.indices.to_numpy()]
        used = np.bincount(codes, minlength=len(names)) > 0
        codes = (np.cumsum(used, dtype=np.int32) - 1)[codes]
        return tuple(names.filter(pa.array(used)).to_pylist()), codes.astype(np.int32, copy=False)

    def amounts(self, column: str) -> FloatArray:
        """The doubles of a column."""
        return np.asarray(self.columns[column].to_numpy(), np.float64)

    def numbers(self, column: str) -> IntArray:
        """The whole numbers of a column."""
        return np.asarray(self.columns[column].to_numpy(), np.int64)

    def place(self, index: int) -> tuple[Path, int]:
        """The file that a row of `columns` came from, and the row's number in it, from 1."""
        if self.kept is not None:
            index = int(self.kept[index])
        part = bisect_right(self.part_ends, index)
        return self.part_paths[part], index + 1 - (self.part_ends[part - 1] if part else 0)

    def fault(self, index: int, reason: str, *, value: object, remedy: str) -> InputError:
        """An `InputError` at a row of `columns`."""
        path, row = self.place(index)
        return input_fault(path, reason, row=row, value=value, remedy=remedy)


def read_table(
    path: str | os.PathLike[str], columns: tuple[Column, ...], *, may_be_empty: bool = False
) -> FileTable:
    """Read a file, or a folder of part files as one table; other columns are ignored."""
    table = read_rows(path, columns, may_be_empty=may_be_empty)
    if table.bad:
        raise bad_rows_error(table.bad)
    return table


def read_rows(
    path: str | os.PathLike[str], columns: tuple[Column, ...], *, may_be_empty: bool = False
) -> FileTable:
    """Read a table that may have bad rows: they are listed in `bad` and left out of its columns."""
    parts = [_read_part(part, columns) for part in _part_paths(Path(path))]
    filled = [part for part in parts if part.rows]
    if not filled and not may_be_empty:
        raise input_fault(path, "holds no rows", remedy="give a table with at least one row")
    for part in filled:
        _check_same_columns(part.path, part.table, filled[0].path, filled[0].table)
    with report_arrow_faults(path, "its part files cannot be joined", "write it again"):
        together = pa.concat_tables([part.table for part in filled] or [no_rows(columns)])
    ends = tuple(accumulate(part.rows for part in filled))
    bad = tuple(row for part in filled for row in part.bad)
    kept = None
    if bad:
        starts = (0, *ends[:-1])
        kept = np.concatenate(
            [start + part.kept for start, part in zip(starts, filled, strict=True)]
        )
    return FileTable(tuple(part.path for part in filled), ends, together, kept, bad)


def set_aside(table: FileTable, faults: Faults) -> FileTable:
    """Move the rows with faults from the table's columns to its `bad` rows."""
    if not faults:
        return table
    places = {index: table.place(index) for index in faults}
    raw: dict[tuple[Path, int], str] = {}
    for path in {path for path, _ in places.values()}:
        kind = _format_of(path)
        assert kind is not None
        rows = [row - 1 for own, row in places.values() if own == path]
        raw |= {(path, row + 1): text for row, text in kind.raw(path, rows).items()}
    more = [
        BadRow(*place, faults[index], raw[place], table.columns.slice(index, 1).to_pylist()[0])
        for index, place in places.items()
    ]
    order = {path: number for number, path in enumerate(table.part_paths)}
    bad = sorted([*table.bad, *more], key=lambda one: (order[one.path], one.row))
    left = np.delete(np.arange(table.rows), sorted(faults))
    kept = left if table.kept is None else table.kept[left]
    return replace(table, columns=table.columns.take(left), kept=kept, bad=tuple(bad))


def part_formats(path: Path) -> list[tuple[Path, str]]:
    """The files of a table, each with the name of its format."""
    found = []
    for part in _part_paths(path):
        _check_readable(part)
        kind = _format_of(part)
        if kind is None:
            reason, remedy = _unknown_extension(part)
            raise input_fault(part, reason, value=part.suffix, remedy=remedy)
        found.append((part, next(name for name, each in FORMATS.items() if each is kind)))
    return found


def write_table(table: Any, path: str | os.PathLike[str]) -> None:
    """Write a file whole or not at all, in the format of its extension."""
    kind = _format_of(Path(path))
    if kind is None:
        raise output_fault(path, *_unknown_extension(Path(path)))
    with replace_file(path) as file:
        kind.write(table, file)


def first_row(holds: npt.NDArray[np.bool_]) -> int | None:
    """The index of the first row for which `holds` is true."""
    index = int(holds.argmax()) if len(holds) else 0
    return index if len(holds) and holds[index] else None


def encode_names(kind: str, names: Sequence[str], codes: IndexArray) -> Any:
    """A dictionary column of strings: row k holds `names[codes[k]]`."""
    try:
        return pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(names, pa.string()))
    except UnicodeEncodeError as error:
        raise ValueError(f"{kind} {show_value(error.object)} is not Unicode text") from None


def _format_of(path: Path) -> TableFormat | None:
    extension = path.suffix.lower()
    return next((kind for kind in FORMATS.values() if extension in kind.extensions), None)


def _unknown_extension(path: Path) -> tuple[str, str]:
    found = f"the extension {show_value(path.suffix)}" if path.suffix else "no extension"
    return f"has {found}, which is not that of a table", f"use one of {', '.join(EXTENSIONS)}"


def _part_paths(path: Path) -> list[Path]:
    path = follow_pointer(path)
    if not os.path.isdir(path):
        return [path]
    try:
        parts = sorted(part for part in path.iterdir() if part.name[0] not in "_.")
    except OSError as error:
        raise read_fault(path, error) from error
    if not parts:
        raise input_fault(
            path, "is a folder without part files", remedy="give a file, or a folder of them"
        )
    return parts


@dataclass(frozen=True, slots=True, eq=False)
class _TablePart:
    """One file: its usable rows, their numbers from 0, and its bad rows."""

    path: Path
    table: Any
    kept: IntArray
    bad: tuple[BadRow, ...]

    @property
    def rows(self) -> int:
        return len(self.kept) + len(self.bad)


def _read_part(path: Path, columns: tuple[Column, ...]) -> _TablePart:
    _check_readable(path)
    kind = _format_of(path)
    if kind is None:
        reason, remedy = _unknown_extension(path)
        raise input_fault(path, reason, value=path.suffix, remedy=remedy)
    try:
        table, faults = kind.read(path, columns)
        judge_values(path, table, columns, faults)
        raw = kind.raw(path, faults.keys()) if faults else {}
    except OSError as error:
        raise read_fault(path, error) from error
    bad = tuple(
        BadRow(
            path,
            row + 1,
            faults[row],
            raw[row],
            {name: to_python(table[name][row]) for name in table.column_names},
        )
        for row in sorted(faults)
    )
    kept = np.delete(np.arange(len(table)), sorted(faults))
    return _TablePart(path, table.take(kept) if bad else table, kept, bad)


def _check_readable(path: Path) -> None:
    try:
        with path.open("rb"):
            pass
    except (OSError, ValueError) as error:
        raise read_fault(path, error) from error


def _check_same_columns(path: Path, rows: Any, other: Path, other_rows: Any) -> None:
    missing = set(other_rows.column_names) ^ set(rows.column_names)
    if missing:
        column = min(missing)
        without, having = (path, other) if column in other_rows.column_names else (other, path)
        raise input_fault(
            without,
            f"has no column {column!r}, which {show_path(having)} has",
            value=column,
            remedy="write all parts with the same columns",
        )
