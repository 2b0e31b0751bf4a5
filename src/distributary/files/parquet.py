"""Parquet: typed columns, with dictionaries for strings."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from distributary.files.columns import Column, ColumnKind, Faults, as_text
from distributary.files.faults import (
    input_fault,
    missing_column_fault,
    repeated_column_fault,
    report_arrow_faults,
    to_python,
)

_BROKEN = ("is not a whole Parquet file", "write it again")
_UNFIT = ("holds a value that is out of range", "write it again")


def read_parquet(path: Path, columns: tuple[Column, ...]) -> tuple[Any, Faults]:
    """Read the given columns of a file in their Arrow types; no row can be at fault."""
    if path.stat().st_size == 0:
        raise input_fault(path, "holds no rows: the file is empty", remedy="write it again")
    texts = [column.name for column in columns if column.kind is ColumnKind.TEXT]
    with report_arrow_faults(path, *_BROKEN):
        with pq.ParquetFile(path) as file:
            metadata, found = file.metadata, _select_columns(path, file.schema_arrow, columns)
        with pq.ParquetFile(
            path, metadata=metadata, read_dictionary=texts, page_checksum_verification=True
        ) as file:
            table = file.read(columns=[column.name for column in found])
    with report_arrow_faults(path, *_UNFIT):
        table = pa.table(
            {column.name: _convert_values(table[column.name], column) for column in found}
        )
    return table, {}


def raw_parquet(path: Path, rows: Collection[int]) -> dict[int, str]:
    """Some rows, numbered from 0, as JSON."""
    with report_arrow_faults(path, *_BROKEN):
        table = pq.read_table(path, partitioning=None)
    return {row: _row_as_json(table, row) for row in rows}


def write_parquet(table: Any, file: BinaryIO) -> None:
    """Write a table; the same table gives the same bytes."""
    # With the Arrow schema stored, readers would see dictionaries instead of strings.
    pq.write_table(table, file, compression="zstd", store_schema=False, write_page_checksum=True)


def _row_as_json(table: Any, row: int) -> str:
    values = {name: to_python(table[name][row]) for name in table.column_names}
    return json.dumps(values, ensure_ascii=False, default=str)


def _select_columns(path: Path, schema: Any, columns: tuple[Column, ...]) -> list[Column]:
    found = []
    for column in columns:
        count = schema.names.count(column.name)
        if count > 1:
            raise repeated_column_fault(path, column.name)
        if count == 1:
            _check_type(path, column, schema.field(column.name).type)
            found.append(column)
        elif not column.optional:
            raise missing_column_fault(path, column.name, schema.names)
    return found


def _check_type(path: Path, column: Column, arrow_type: Any) -> None:
    values = arrow_type.value_type if pa.types.is_dictionary(arrow_type) else arrow_type
    types = pa.types
    whole = types.is_integer(values)
    fits = {
        ColumnKind.TEXT: types.is_string(values)
        or types.is_large_string(values)
        or types.is_string_view(values),
        ColumnKind.AMOUNT: whole or types.is_floating(values) or types.is_decimal(values),
        ColumnKind.NUMBER: whole,
    }
    if not fits[column.kind]:
        raise input_fault(
            path,
            f"column {column.name!r} holds {values} values",
            value=str(values),
            remedy=f"each must be {column.kind.words}",
        )


def _convert_values(values: Any, column: Column) -> Any:
    if column.kind is ColumnKind.TEXT:
        return as_text(values)
    # A double has 53 bits; the nearest one is precise enough for an amount.
    return values.cast(column.kind.arrow, safe=column.kind is ColumnKind.NUMBER)
