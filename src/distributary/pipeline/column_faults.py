"""What is wrong with the columns of a log as a whole: they are missing, or of another type."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql.types import (
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    FractionalType,
    IntegralType,
    NumericType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from distributary.errors import InputError
from distributary.pipeline.shapes import LogShape

__all__ = ["check_type", "explain_missing"]


def explain_missing(path: str, column: str, found: Sequence[str], shape: LogShape) -> InputError:
    """The error for a log without a column that it needs, or that `--column` names."""
    has = f"only {', '.join(map(repr, found[:10])) or 'none'}"
    named = shape.columns.get(column)
    if named:
        return InputError(
            f"has no {named!r}, which --column names for {column!r}, {has}",
            path=path,
            value=named,
            remedy="name one that it has; LOG.COLUMN=NAME is for one of two logs",
        )
    remedy = f"name it with --column {column}=NAME"
    if column == "action":
        remedy += ", or write --column action= if every row is a subscription"
    return InputError(f"has no column {column!r}, {has}", path=path, value=column, remedy=remedy)


def check_type(path: str, column: str, kind: DataType) -> None:
    """Refuse a column of a table whose type cannot be what it stands for."""
    fits: dict[str, tuple[type[DataType], ...]] = {
        "ts": (TimestampType, TimestampNTZType, DateType, StringType, NumericType),
        "size": (IntegralType, FractionalType, DecimalType, StringType),
        "count": (IntegralType, FractionalType, DecimalType, StringType),
        "id": (DataType,),
    }
    if not isinstance(kind, fits.get(column, (StringType, IntegralType, BooleanType))):
        wholes = dict.fromkeys(("size", "count"), "whole numbers")
        wanted = {"ts": "times", **wholes}.get(column, "text or whole numbers")
        raise InputError(
            f"column {column!r} holds {kind.simpleString()} values",
            path=path,
            value=kind.simpleString(),
            remedy=f"they must be {wanted}",
        )
