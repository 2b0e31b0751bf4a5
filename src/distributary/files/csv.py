"""CSV: UTF-8, a header line, commas, and double quotes around what needs them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from distributary.errors import InputError
from distributary.files.columns import Column, Kind, as_text, bad_value, no_rows
from distributary.files.faults import (
    brief,
    input_fault,
    missing_column,
    repeated_column,
    shown,
)

BLOCK_BYTES = 1 << 24


def read_csv(path: Path, columns: tuple[Column, ...]) -> Any:
    """Read a file's columns of interest, each as its kind's Arrow type.

    Every cell is text first, so that ids such as NA, null or 007 stay as they are.
    """
    header = _header(path)
    if not header:
        return no_rows(columns)
    found = _columns_found(path, header, columns)
    names = [column.name for column in found]
    try:
        table = pyarrow.csv.read_csv(
            path,
            read_options=pyarrow.csv.ReadOptions(block_size=BLOCK_BYTES),
            parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
            convert_options=pyarrow.csv.ConvertOptions(
                include_columns=names,
                column_types=dict.fromkeys(names, pa.string()),
                strings_can_be_null=False,
            ),
        )
        return pa.table({column.name: _as_kind(path, table, column) for column in found})
    except (pa.ArrowException, OSError) as error:
        if _find_fault(path, len(header)) == 0:
            return no_rows(columns)
        raise input_fault(
            path, f"does not parse as CSV: {brief(error)}", remedy="write it again"
        ) from error


def write_csv(table: Any, file: BinaryIO) -> None:
    """Write a table with a header line; strings are quoted, numbers are not."""
    pyarrow.csv.write_csv(table, file)


def _header(path: Path) -> list[str]:
    """The names in the first line that is not blank; none where there is no such line."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return next((row for row in csv.reader(file) if row), [])
    except UnicodeDecodeError:
        raise _not_utf8(path) from None
    except csv.Error as error:
        raise input_fault(
            path, f"does not parse as CSV: {error}", remedy="the first line must name the columns"
        ) from error


def _columns_found(path: Path, header: list[str], columns: tuple[Column, ...]) -> list[Column]:
    for column in columns:
        if header.count(column.name) > 1:
            raise repeated_column(path, column.name)
        if column.name not in header and not column.optional:
            raise missing_column(path, column.name, header)
    return [column for column in columns if column.name in header]


def _as_kind(path: Path, table: Any, column: Column) -> Any:
    cells = table[column.name]
    if column.kind is Kind.TEXT:
        return as_text(cells)
    cells = pc.utf8_trim_whitespace(cells)
    cells = pc.if_else(pc.equal(cells, ""), pa.scalar(None, pa.string()), cells)
    try:
        return cells.cast(column.kind.arrow)
    except pa.ArrowInvalid:
        for row, cell in enumerate(cells, start=1):
            _check_cell(path, column, row, cell)
        raise


def _check_cell(path: Path, column: Column, row: int, cell: Any) -> None:
    try:
        cell.cast(column.kind.arrow)
    except pa.ArrowInvalid:
        raise bad_value(path, column, row, cell.as_py()) from None


def _find_fault(path: Path, width: int) -> int:
    """Raise for the first row that cannot be read; else say how many rows there are."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise _not_utf8(path) from None
    rows = 0
    for rows, cells in enumerate(_records(text)):  # the header is row 0
        if len(cells) != width:
            raise input_fault(
                path,
                f"has {len(cells)} of {width} fields: {shown(','.join(cells))}",
                row=rows,
                value=cells,
                remedy="quote values that hold commas, quotes or line ends",
            )
    return rows


def _records(text: str) -> Iterator[list[str]]:
    """Rows that are not blank, as far as Python's own reader gets."""
    reader = csv.reader(io.StringIO(text, newline=""))
    try:
        yield from (cells for cells in reader if cells)
    except csv.Error:
        return


def _not_utf8(path: Path) -> InputError:
    data = path.read_bytes()
    try:
        data.decode("utf-8")
        start = len(data)
    except UnicodeDecodeError as error:
        start = error.start
    before = data[:start].decode("utf-8-sig")
    row = sum(1 for _ in _records(before + "?")) - 1
    byte = data[start : start + 1]
    return input_fault(
        path,
        f"byte {start:,} is {shown(byte)}, which is not UTF-8",
        row=row or None,
        value=byte,
        remedy="save the file as UTF-8",
    )
