"""JSON lines: one object per line, as Spark and most log shippers write them."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

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
from distributary.files.faults import input_fault, missing_column_fault, show_value, summarize_error

BLOCK_BYTES = 1 << 24
ROWS_AT_A_TIME = 1 << 20
_REMEDY = "write one JSON object on each line"


def read_jsonl(path: Path, columns: tuple[Column, ...]) -> tuple[Any, Faults]:
    """Read the given columns of a file in their Arrow types, and find the rows at fault.

    A key that a line lacks is a missing value. An optional column that is null on every line counts
    as absent.
    """
    data = _read_bytes(path)
    if not data.strip():
        return no_rows(columns), {}
    table: Any = None
    faults: Faults = {}
    if _is_plain(data):
        with suppress(pa.ArrowException, UnicodeError):
            table = _parse(data, columns)
    if table is None:
        table, faults = _read_line_by_line(path, data, columns)
    table = pa.table(
        {
            column.name: table[column.name]
            for column in columns
            if not (column.optional and table[column.name].null_count == len(table))
        }
    )
    if len(faults) < len(table):
        _check_columns(path, data, table, columns)
    return table, faults


def raw_jsonl(path: Path, rows: Collection[int]) -> dict[int, str]:
    """The text of some lines, numbered from 0 without blank lines, as it stands in the file."""
    lines = (line for line in _read_bytes(path).split(b"\n") if line.strip())
    return {
        row: line.decode("utf-8", "backslashreplace").rstrip("\r")
        for row, line in enumerate(lines)
        if row in rows
    }


def write_jsonl(table: Any, file: BinaryIO) -> None:
    """Write a table, one object per line, with keys in the order of its columns."""
    columns = [_JsonColumn(name, table[name].combine_chunks()) for name in table.column_names]
    for start in range(0, len(table), ROWS_AT_A_TIME):
        pieces: list[Any] = []
        for column in columns:
            pieces += [f'{", " if pieces else "{"}"{column.name}": ', column.rows(start)]
        lines = pc.binary_join_element_wise(*pieces, "}\n", "")
        file.write(lines.buffers()[2])


def read_any_jsonl(path: Path) -> Any:
    """Read a file with whatever keys its objects have, and infer their types."""
    data = path.read_bytes()
    try:
        if _is_plain(data):
            return pyarrow.json.read_json(
                pa.BufferReader(data),
                read_options=pyarrow.json.ReadOptions(block_size=BLOCK_BYTES),
            )
        return pa.Table.from_pylist([_record(line) for line in data.split(b"\n") if line.strip()])
    except (pa.ArrowException, ValueError, RecursionError) as error:
        _, faults = _read_line_by_line(path, data, ())
        if faults:
            raise faults[min(faults)].error from None
        raise input_fault(
            path,
            f"cannot be read as a table: {summarize_error(error)}",
            remedy="give each key one type",
        ) from None


class _JsonColumn:
    """A column whose values are available as JSON text; each distinct string is escaped once."""

    def __init__(self, name: str, values: Any) -> None:
        self.name = name
        self.values = values
        self.names = None
        if pa.types.is_string(values.type):
            values = values.dictionary_encode()
        if pa.types.is_dictionary(values.type):
            names = values.dictionary.to_pylist()
            self.names = pa.array([json.dumps(n, ensure_ascii=False) for n in names], pa.string())
            self.values = values.indices

    def rows(self, start: int) -> Any:
        values = self.values.slice(start, ROWS_AT_A_TIME)
        return values.cast(pa.string()) if self.names is None else self.names.take(values)


def _read_bytes(path: Path) -> bytes:
    return path.read_bytes().removeprefix(b"\xef\xbb\xbf")


def _arrow_type(column: Column) -> Any:
    return pa.string() if column.kind is ColumnKind.TEXT else column.kind.arrow


def _is_plain(data: bytes) -> bool:
    """Whether each line certainly is one flat object, decided by counting braces and line ends.

    Arrow's reader crashes the process on a line that is a bare `null`, and accepts several objects
    on one line, so data that does not look plain is parsed line by line.
    """
    objects = data.count(b"{")
    borders = data.count(b"}\n{") + data.count(b"}\r\n{")
    end = data.rstrip(b"\r\n")
    return (
        data.startswith(b"{")
        and end.endswith(b"}")
        and objects == data.count(b"}") == borders + 1
        and end.count(b"\n") == borders
    )


def _parse(data: bytes, columns: tuple[Column, ...]) -> Any:
    types = {column.name: _arrow_type(column) for column in columns}
    table = pyarrow.json.read_json(
        pa.BufferReader(data),
        read_options=pyarrow.json.ReadOptions(block_size=BLOCK_BYTES),
        parse_options=pyarrow.json.ParseOptions(
            explicit_schema=pa.schema(types), unexpected_field_behavior="ignore"
        ),
    )
    return _convert_kinds(table, columns)


def _convert_kinds(table: Any, columns: tuple[Column, ...]) -> Any:
    return pa.table(
        {
            column.name: as_text(table[column.name])
            if column.kind is ColumnKind.TEXT
            else table[column.name]
            for column in columns
        }
    )


def _check_columns(path: Path, data: bytes, table: Any, columns: tuple[Column, ...]) -> None:
    for column in columns:
        if column.optional or table[column.name].null_count < len(table):
            continue
        keys = _keys(data.lstrip().split(b"\n", 1)[0])
        if column.name not in keys:
            raise missing_column_fault(path, column.name, keys)


def _keys(line: bytes) -> list[str]:
    try:
        return list(json.loads(line, strict=False))
    except (ValueError, RecursionError):
        return []


def _read_line_by_line(path: Path, data: bytes, columns: tuple[Column, ...]) -> tuple[Any, Faults]:
    """Parse each line by itself and note the ones that are not such objects: the slow path."""
    lines = ((number, line) for number, line in enumerate(data.split(b"\n"), 1) if line.strip())
    values: dict[str, list[object]] = {column.name: [] for column in columns}
    faults: Faults = {}
    for row, (number, line) in enumerate(lines):
        record: dict[str, object] = {}
        try:
            record = _record(line)
        except (ValueError, RecursionError) as error:
            faults[row] = corrupt_row(_parse_fault(path, row + 1, number, line, error))
        for column in columns:
            value = record.get(column.name)
            if value is not None and not _is_of_kind(value, column.kind):
                faults.setdefault(row, bad_value(path, column, row + 1, value))
                value = None
            values[column.name].append(value)
    arrays = {column.name: pa.array(values[column.name], _arrow_type(column)) for column in columns}
    return _convert_kinds(pa.table(arrays), columns), faults


def _parse_fault(path: Path, row: int, number: int, line: bytes, error: Exception) -> InputError:
    text = line.decode("utf-8", "backslashreplace").strip()
    where = "" if number == row else f"line {number:,} "
    return input_fault(
        path,
        f"{where}does not parse as a JSON object ({_describe_error(error)}): {show_value(text)}",
        row=row,
        value=text,
        remedy=_REMEDY,
    )


def _record(line: bytes) -> dict[str, object]:
    record = json.loads(line.decode("utf-8"), strict=False, object_pairs_hook=_reject_repeated_keys)
    if not isinstance(record, dict):
        raise ValueError("not an object")  # noqa: TRY004 - the caller handles all faults alike
    return record


def _reject_repeated_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    record = dict(pairs)
    if len(record) < len(pairs):
        raise ValueError("a key is there twice")
    return record


def _describe_error(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "not UTF-8"
    return error.msg if isinstance(error, json.JSONDecodeError) else summarize_error(error)


def _is_of_kind(value: object, kind: ColumnKind) -> bool:
    if kind is ColumnKind.TEXT:
        return isinstance(value, str) and _is_encodable(value)
    if isinstance(value, bool):
        return False
    if kind is ColumnKind.NUMBER:
        return isinstance(value, int) and abs(value) <= np.iinfo(np.int64).max
    return isinstance(value, int | float) and 0 < value <= sys.float_info.max


def _is_encodable(text: str) -> bool:
    """Whether the text has no unpaired surrogates."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
