"""Columns of a table in memory: pandas, polars, Arrow, or any library with Arrow's C interface."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

__all__ = ["ArrowTable", "Pairs", "RatesByFlow", "amounts", "has_column", "names"]


@runtime_checkable
class ArrowTable(Protocol):
    """A table that exports itself as a stream of Arrow batches."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


Pairs: TypeAlias = Iterable[tuple[str, str]] | ArrowTable
"""Pairs of receiver and flow, or a table with these columns."""

RatesByFlow: TypeAlias = Mapping[str, float] | Iterable[tuple[str, float]] | ArrowTable
"""Rates by the names of flows, or a table with the columns flow and rate."""


def has_column(table: ArrowTable, name: str) -> bool:
    """Whether the table has a column of this name."""
    return name in _arrow(table).column_names


def names(table: ArrowTable, name: str) -> tuple[tuple[str, ...], npt.NDArray[np.int32]]:
    """The distinct strings of a column, sorted, and for each row the index of its string."""
    import pyarrow as pa

    column = _column(table, name)
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if not (is_text or pa.types.is_string_view(kind) or pa.types.is_null(kind)):
        raise TypeError(f"{name} must be a column of strings, not of {kind}")
    if column.null_count:
        raise ValueError(f"{name} is missing in {column.null_count:,} rows")
    encoded = column.cast(pa.large_string()).combine_chunks().dictionary_encode()
    found: list[str] = encoded.dictionary.to_pylist()
    if "" in found:
        raise ValueError(f"{name} is empty in some rows")
    order = sorted(range(len(found)), key=found.__getitem__)
    rank = np.empty(len(found), np.int32)
    rank[order] = np.arange(len(found), dtype=np.int32)
    return tuple(found[index] for index in order), rank[encoded.indices.to_numpy()]


def amounts(table: ArrowTable, name: str) -> npt.NDArray[np.float64]:
    """The numbers of a column."""
    import pyarrow as pa

    column = _column(table, name)
    kind = column.type
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    if not (is_number or pa.types.is_null(kind)):
        raise TypeError(f"{name} must be a column of numbers, not of {kind}")
    if column.null_count:
        raise ValueError(f"{name} is missing in {column.null_count:,} rows")
    return np.asarray(column.cast(pa.float64()).to_numpy(), np.float64)


def _arrow(table: ArrowTable) -> Any:
    import pyarrow as pa

    return pa.table(table)


def _column(table: ArrowTable, name: str) -> Any:
    columns = _arrow(table)
    found = columns.column_names.count(name)
    if found != 1:
        there = ", ".join(map(repr, columns.column_names)) or "none"
        raise ValueError(f"a table needs one column {name!r}; this one has {there}")
    return columns[name]
