"""The columns of a table, their kinds, and the values that each kind allows."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distributary.errors import InputError
from distributary.files.faults import input_fault, show_value, to_python

TEXT_TYPE = pa.dictionary(pa.int32(), pa.string())


class ColumnKind(Enum):
    """The kind of value in a column, once read."""

    TEXT = "text"
    """Non-empty strings, held as `TEXT_TYPE`."""
    AMOUNT = "amount"
    """Finite numbers above 0, held as doubles."""
    NUMBER = "number"
    """Whole numbers, held as int64."""

    @property
    def arrow(self) -> Any:
        """The Arrow type of the values."""
        return {
            ColumnKind.TEXT: TEXT_TYPE,
            ColumnKind.AMOUNT: pa.float64(),
            ColumnKind.NUMBER: pa.int64(),
        }[self]

    @property
    def words(self) -> str:
        """What a value must be, in words."""
        return {
            ColumnKind.TEXT: "a string",
            ColumnKind.AMOUNT: "a finite number above 0",
            ColumnKind.NUMBER: "a whole number",
        }[self]


@dataclass(frozen=True, slots=True)
class Column:
    """A required or optional column of a table."""

    name: str
    kind: ColumnKind
    optional: bool = False


def no_rows(columns: tuple[Column, ...]) -> Any:
    """A table with every required column and no rows."""
    return pa.table(
        {column.name: pa.array([], column.kind.arrow) for column in columns if not column.optional}
    )


def as_text(values: Any) -> Any:
    """Encode strings, of whatever Arrow type, as `TEXT_TYPE`."""
    if pa.types.is_string_view(values.type):
        values = values.cast(pa.string())
    if not pa.types.is_dictionary(values.type):
        values = values.dictionary_encode()
    return values.cast(TEXT_TYPE)


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a row: a reason that rows with such a fault share, and the full error."""

    reason: str
    error: InputError


Faults: TypeAlias = dict[int, Fault]
"""The first fault of each row that has one, by the row's number from 0."""


def judge_values(
    path: str | os.PathLike[str], table: Any, columns: tuple[Column, ...], faults: Faults
) -> None:
    """Add a fault for each row with a value that its column's kind does not allow."""
    for column in columns:
        if column.name in table.column_names:
            values = table[column.name]
            for row in _find_bad_rows(values, column.kind):
                if row not in faults:
                    faults[row] = bad_value(path, column, row + 1, to_python(values[row]))


def bad_value(path: str | os.PathLike[str], column: Column, row: int, value: object) -> Fault:
    """The fault of a value that its column does not allow."""
    if value is None or value == "":
        kind = f"no {column.name}"
        reason = f"{column.name} is {'missing' if value is None else 'empty'}"
        remedy = f"give {column.kind.words} or take the row out"
    elif column.kind is ColumnKind.TEXT and isinstance(value, str | bytes):
        kind = f"{column.name} is not Unicode text"
        reason = f"{column.name} {show_value(value)} is not Unicode text"
        remedy = "save the file as UTF-8"
    else:
        kind = f"{column.name} is not {column.kind.words}"
        reason = f"{column.name} is {show_value(value)}"
        remedy = f"it must be {column.kind.words}"
    return Fault(kind, input_fault(path, reason, row=row, value=value, remedy=remedy))


def corrupt_row(error: InputError) -> Fault:
    """The fault of a row that does not parse."""
    return Fault("corrupt line", error)


def _find_bad_rows(values: Any, kind: ColumnKind) -> list[int]:
    """The indices of values that `kind` does not allow."""
    if kind is ColumnKind.TEXT:
        good = _find_good_texts(values)
    elif kind is ColumnKind.AMOUNT:
        good = pc.and_(pc.is_finite(values), pc.greater(values, 0.0))
    else:
        good = pc.is_valid(values)
    if good is None:
        return []
    bad: list[int] = np.flatnonzero(~pc.fill_null(good, False).to_numpy()).tolist()
    return bad


def _find_good_texts(values: Any) -> Any:
    """Which strings are present, not empty and valid UTF-8; None if all are."""
    if values.null_count == 0 and all(
        _are_all_good(chunk.dictionary) for chunk in values.chunks if len(chunk)
    ):
        return None
    return pa.chunked_array(
        [
            pa.array(
                [_is_good_text(to_python(name)) for name in chunk.dictionary], pa.bool_()
            ).take(chunk.indices)
            for chunk in values.chunks
        ],
        pa.bool_(),
    )


def _are_all_good(names: Any) -> bool:
    try:
        names.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return bool(names.null_count == 0 and pc.index(names, pa.scalar("")).as_py() < 0)


def _is_good_text(name: object) -> bool:
    return isinstance(name, str) and name != ""
