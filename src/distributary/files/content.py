"""The tables that matching reads: events with arbitrary columns, and filters on them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from distributary.errors import InputError
from distributary.files.columns import Column, ColumnKind
from distributary.files.faults import input_fault, read_fault, report_arrow_faults
from distributary.files.jsonl import read_any_jsonl
from distributary.files.tables import FileTable, part_formats, read_table
from distributary.matching import parse_filter
from distributary.model import Filter, Schema

__all__ = ["FilterTable", "RefusedFilter", "read_events", "read_filter_texts", "read_filters"]

FILTERS = (Column("receiver", ColumnKind.TEXT), Column("filter", ColumnKind.TEXT))
_BROKEN = ("cannot be read as a table of events", "write it again")


@dataclass(frozen=True, slots=True)
class RefusedFilter:
    """A filter that cannot be used: its row number from 0, its text, and the reason."""

    row: int
    receiver: str
    text: str
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class FilterTable:
    """Filters and their receivers; `rows` are the row numbers, from 0, of the usable filters."""

    table: FileTable
    rows: tuple[int, ...]
    receivers: tuple[str, ...]
    filters: tuple[Filter, ...]
    refused: tuple[RefusedFilter, ...]

    def fault(self) -> InputError:
        """The first refusal as an error that names file and row."""
        first, more = self.refused[0], len(self.refused) - 1
        told = f" (and {more:,} more rows)" if more else ""
        remedy = "mend the filter, or put such rows aside with --quarantine FILE"
        return self.table.fault(
            first.row,
            f"the filter cannot be used: {first.reason}{told}",
            value=first.text,
            remedy=remedy,
        )


def read_filters(path: str | os.PathLike[str], schema: Schema) -> FilterTable:
    """Read (receiver, filter) rows; each distinct text is parsed once."""
    table = read_table(path, FILTERS)
    texts, codes = table.names("filter")
    names, owners = table.names("receiver")
    parsed: list[Filter | str] = []
    for text in texts:
        try:
            parsed.append(parse_filter(text, schema))
        except InputError as error:
            parsed.append(error.reason)
    rows, receivers, filters, refused = [], [], [], []
    for row, (code, owner) in enumerate(zip(codes.tolist(), owners.tolist(), strict=True)):
        found = parsed[code]
        if isinstance(found, str):
            refused.append(RefusedFilter(row, names[owner], texts[code], found))
        else:
            rows.append(row)
            receivers.append(names[owner])
            filters.append(found)
    return FilterTable(table, tuple(rows), tuple(receivers), tuple(filters), tuple(refused))


def read_filter_texts(path: str | os.PathLike[str]) -> tuple[str, ...]:
    """The distinct texts of a table of filters."""
    return read_table(path, FILTERS).names("filter")[0]


def read_events(path: str | os.PathLike[str]) -> pa.Table:
    """Read a file, or a folder of part files, with whatever columns it has.

    Parquet brings its types. Those of CSV and JSON lines are inferred; an empty CSV cell is a
    missing value.
    """
    parts = [_read_part(part, format_) for part, format_ in part_formats(Path(path))]
    with report_arrow_faults(path, "its part files cannot be joined", "give each column one type"):
        return pa.concat_tables(parts, promote_options="permissive")


def _read_part(path: Path, format_: str) -> Any:
    try:
        if path.stat().st_size == 0:
            raise input_fault(path, "holds no rows: the file is empty", remedy="write it again")
        with report_arrow_faults(path, *_BROKEN):
            if format_ == "parquet":
                return pq.read_table(path, partitioning=None)
            if format_ == "csv":
                blank = pyarrow.csv.ConvertOptions(
                    strings_can_be_null=True, null_values=[""], quoted_strings_can_be_null=False
                )
                return pyarrow.csv.read_csv(path, convert_options=blank)
            return read_any_jsonl(path)
    except OSError as error:
        raise read_fault(path, error) from error
