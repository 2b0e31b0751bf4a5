"""CSV in UTF-8: a header line, commas, and double quotes where a value needs them."""

from __future__ import annotations

import io
import re
from collections.abc import Collection, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from distributary.errors import InputError
from distributary.files.columns import (
    Column,
    ColumnKind,
    Faults,
    as_text,
    bad_value,
    corrupt_row,
    no_rows,
)
from distributary.files.csv_records import csv_cells, csv_records, is_csv
from distributary.files.faults import (
    input_fault,
    missing_column_fault,
    repeated_column_fault,
    show_value,
)

BLOCK_BYTES = 1 << 24
_BOM = "\ufeff"
_NOT_UTF8 = re.compile("[\udc80-\udcff]")  # how surrogateescape decodes a byte that is not UTF-8


def read_csv(path: Path, columns: tuple[Column, ...]) -> tuple[Any, Faults]:
    """Read the given columns of a file in their Arrow types, and find the rows at fault.

    Every cell is read as text first, so that ids such as NA, null or 007 stay as they are.
    """
    data = path.read_bytes()
    header = _header(path, data)
    if not header:
        return no_rows(columns), {}
    found = _select_columns(path, header, columns)
    cells, faults = _read_cells(path, data, header, found)
    table = {
        column.name: _convert_cells(path, cells[column.name], column, faults) for column in found
    }
    return pa.table(table), faults


def raw_csv(path: Path, rows: Collection[int]) -> dict[int, str]:
    """The text of some records, numbered from 0, as it stands in the file."""
    data = path.read_bytes()
    records = _records(data, len(_header(path, data)))
    return {row: _printable(record) for row, record in enumerate(records) if row in rows}


def write_csv(table: Any, file: BinaryIO) -> None:
    """Write a table with a header line; strings are quoted, numbers are not."""
    pyarrow.csv.write_csv(table, file)


def _header(path: Path, data: bytes) -> list[str]:
    """The names in the first record; empty if the file has no record."""
    first = next(_lines_of_records(data, None), None)
    if first is None:
        return []
    if _NOT_UTF8.search(first):
        raise _encoding_fault(path, None, first)
    cells = csv_cells(first)
    if cells is None:
        raise input_fault(
            path,
            f"does not parse as CSV: {show_value(first)}",
            value=first,
            remedy="the first line must name the columns",
        )
    return [cell.strip() for cell in cells]


def _select_columns(path: Path, header: list[str], columns: tuple[Column, ...]) -> list[Column]:
    for column in columns:
        if header.count(column.name) > 1:
            raise repeated_column_fault(path, column.name)
        if column.name not in header and not column.optional:
            raise missing_column_fault(path, column.name, header)
    return [column for column in columns if column.name in header]


def _read_cells(
    path: Path, data: bytes, header: list[str], found: list[Column]
) -> tuple[dict[str, Any], Faults]:
    """The columns' cells as text; null in rows that do not parse."""
    numbers = {column.name: header.index(column.name) for column in found}
    try:
        if is_csv(data.decode("utf-8")):
            return _read_with_arrow(data, numbers), {}
    except (pa.ArrowException, UnicodeDecodeError):
        pass
    return _read_record_by_record(path, data, len(header), numbers)


def _read_with_arrow(data: bytes, numbers: dict[str, int]) -> dict[str, Any]:
    """Read a file that is valid CSV throughout: the fast path."""
    # Other columns may have any name, even a repeated one, so columns are addressed by number.
    keys = {name: f"f{number}" for name, number in numbers.items()}
    table = pyarrow.csv.read_csv(
        pa.BufferReader(data),
        read_options=pyarrow.csv.ReadOptions(
            block_size=BLOCK_BYTES, autogenerate_column_names=True
        ),
        parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
        convert_options=pyarrow.csv.ConvertOptions(
            include_columns=list(keys.values()),
            column_types=dict.fromkeys(keys.values(), pa.string()),
            strings_can_be_null=False,
        ),
    )
    return {name: table[key].slice(1) for name, key in keys.items()}


def _read_record_by_record(
    path: Path, data: bytes, width: int, numbers: dict[str, int]
) -> tuple[dict[str, Any], Faults]:
    """Read each record by itself and note the ones that do not parse: the slow path."""
    faults: Faults = {}
    columns: dict[str, list[str | None]] = {name: [] for name in numbers}
    for row, record in enumerate(_records(data, width)):
        cells = csv_cells(record)
        fault = _find_fault(path, row + 1, record, cells, width)
        if fault is not None:
            faults[row] = corrupt_row(fault)
        for name, number in numbers.items():
            columns[name].append(None if fault or cells is None else cells[number])
    return {name: pa.chunked_array([pa.array(v, pa.string())]) for name, v in columns.items()}, (
        faults
    )


def _find_fault(
    path: Path, row: int, record: str, cells: list[str] | None, width: int
) -> InputError | None:
    if _NOT_UTF8.search(record):
        return _encoding_fault(path, row, record)
    if cells is None:
        return input_fault(
            path,
            f"does not parse as CSV, a quote is not closed or not doubled: {show_value(record)}",
            row=row,
            value=record,
            remedy='put quotes around the value and write each one in it as ""',
        )
    if len(cells) != width:
        return input_fault(
            path,
            f"has {len(cells)} of {width} fields: {show_value(','.join(cells))}",
            row=row,
            value=cells,
            remedy="quote values that hold commas, quotes or line ends",
        )
    return None


def _convert_cells(path: Path, cells: Any, column: Column, faults: Faults) -> Any:
    if column.kind is ColumnKind.TEXT:
        return as_text(cells)
    cells = pc.utf8_trim_whitespace(cells)
    cells = pc.if_else(pc.equal(cells, ""), pa.scalar(None, pa.string()), cells)
    values, bad = _cast(cells, column.kind.arrow)
    for row in bad:
        faults.setdefault(row, bad_value(path, column, row + 1, cells[row].as_py()))
    return values


def _cast(cells: Any, arrow_type: Any, start: int = 0) -> tuple[Any, list[int]]:
    """The cells as numbers, null where a cell is not a number, and the indices of those cells."""
    try:
        return cells.cast(arrow_type), []
    except pa.ArrowInvalid:
        if len(cells) == 1:
            return pa.chunked_array([pa.nulls(1, arrow_type)]), [start]
    half = len(cells) // 2
    left, bad_left = _cast(cells.slice(0, half), arrow_type, start)
    right, bad_right = _cast(cells.slice(half), arrow_type, start + half)
    return pa.chunked_array([*left.chunks, *right.chunks], arrow_type), bad_left + bad_right


def _records(data: bytes, width: int) -> Iterator[str]:
    """The records after the header."""
    return islice(_lines_of_records(data, width), 1, None)


def _lines_of_records(data: bytes, width: int | None) -> Iterator[str]:
    text = data.decode("utf-8", "surrogateescape").removeprefix(_BOM)
    return csv_records(io.StringIO(text, newline=""), width)


def _encoding_fault(path: Path, row: int | None, record: str) -> InputError:
    bad = _NOT_UTF8.search(record)
    assert bad is not None
    byte = bad[0].encode("utf-8", "surrogateescape")
    return input_fault(
        path,
        f"holds the byte {show_value(byte)}, which is not UTF-8: {show_value(_printable(record))}",
        row=row,
        value=byte,
        remedy="save the file as UTF-8",
    )


def _printable(record: str) -> str:
    return record.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
