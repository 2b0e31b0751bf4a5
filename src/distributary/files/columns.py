"""What a table must hold: its columns, their kinds and which values they admit."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distributary.errors import InputError
from distributary.files.faults import input_fault, plain, shown

TEXT_TYPE = pa.dictionary(pa.int32(), pa.string())


class Kind(Enum):
    """What a column's values are, once read."""

    TEXT = "text"
    """Non-empty strings, held as `TEXT_TYPE`."""
    AMOUNT = "amount"
    """Finite numbers above 0, held as doubles."""
    NUMBER = "number"
    """Whole numbers, held as int64."""

    @property
    def arrow(self) -> Any:
        """The Arrow type its values are held in."""
        return {Kind.TEXT: TEXT_TYPE, Kind.AMOUNT: pa.float64(), Kind.NUMBER: pa.int64()}[self]

    @property
    def words(self) -> str:
        """What its values must be, in words."""
        return {
            Kind.TEXT: "a string",
            Kind.AMOUNT: "a finite number above 0",
            Kind.NUMBER: "a whole number",
        }[self]


@dataclass(frozen=True, slots=True)
class Column:
    """A column that a table has, or may have."""

    name: str
    kind: Kind
    optional: bool = False


def no_rows(columns: tuple[Column, ...]) -> Any:
    """A table that has every required column and nothing in them."""
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
    """What is wrong with a row: the kind of fault, to be counted, and all about it."""

    reason: str
    error: InputError


Faults: TypeAlias = dict[int, Fault]
"""The first fault of each row that has one, by the row's number from 0."""


def judge_values(
    path: str | os.PathLike[str], table: Any, columns: tuple[Column, ...], faults: Faults
) -> None:
    """Add a fault for each row with a value that its column's kind does not admit."""
    for column in columns:
        if column.name in table.column_names:
            values = table[column.name]
            for row in _bad_rows(values, column.kind):
                if row not in faults:
                    faults[row] = bad_value(path, column, row + 1, plain(values[row]))


def bad_value(path: str | os.PathLike[str], column: Column, row: int, value: object) -> Fault:
    """A value that its column does not admit."""
    if value is None or value == "":
        kind = f"no {column.name}"
        reason = f"{column.name} is {'missing' if value is None else 'empty'}"
        remedy = f"give {column.kind.words} or take the row out"
    elif column.kind is Kind.TEXT and isinstance(value, str | bytes):
        kind = f"{column.name} is not Unicode text"
        reason = f"{column.name} {shown(value)} is not Unicode text"
        remedy = "save the file as UTF-8"
    else:
        kind = f"{column.name} is not {column.kind.words}"
        reason = f"{column.name} is {shown(value)}"
        remedy = f"it must be {column.kind.words}"
    return Fault(kind, input_fault(path, reason, row=row, value=value, remedy=remedy))


def corrupt_row(error: InputError) -> Fault:
    """A row that does not parse."""
    return Fault("corrupt line", error)


def _bad_rows(values: Any, kind: Kind) -> list[int]:
    """The indices of values that `kind` does not admit."""
    if kind is Kind.TEXT:
        good = _good_texts(values)
    elif kind is Kind.AMOUNT:
        good = pc.and_(pc.is_finite(values), pc.greater(values, 0.0))
    else:
        good = pc.is_valid(values)
    if good is None:
        return []
    bad: list[int] = np.flatnonzero(~pc.fill_null(good, False).to_numpy()).tolist()
    return bad


def _good_texts(values: Any) -> Any:
    """Which strings are there, not empty and really UTF-8; None when all are."""
    if values.null_count == 0 and all(
        _all_good(chunk.dictionary) for chunk in values.chunks if len(chunk)
    ):
        return None
    return pa.chunked_array(
        [
            pa.array([_good(plain(name)) for name in chunk.dictionary], pa.bool_()).take(
                chunk.indices
            )
            for chunk in values.chunks
        ],
        pa.bool_(),
    )


def _all_good(names: Any) -> bool:
    try:
        names.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return bool(names.null_count == 0 and pc.index(names, pa.scalar("")).as_py() < 0)


def _good(name: object) -> bool:
    return isinstance(name, str) and name != ""
