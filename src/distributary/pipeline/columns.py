"""A column of a log by its path: in a CSV cell, a JSON line, or a field of a table.

A path may lead through a text that is JSON itself, such as the value of a message from Kafka.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from distributary.pipeline.shapes import Path

__all__ = ["pick_field", "pick_json"]


def pick_json(text: Column, path: Path) -> Column:
    """The value at a path inside JSON text, as text; null if there is none.

    Objects on the way are text as well, so that a string that holds JSON is like what it holds.
    (`get_json_object` cannot have every name in a path, and makes text of the null of an array.)
    """
    for step in path:
        if isinstance(step, int):
            text = F.get(F.from_json(text, ArrayType(StringType())), F.lit(step))
        else:
            text = F.from_json(text, StructType([StructField(step, StringType())])).getField(step)
    return text


def pick_field(column: Column, kind: DataType, path: Path) -> tuple[Column, DataType] | None:
    """The field at a path inside a table's column, and its type; None if the type has no such."""
    for number, step in enumerate(path):
        if isinstance(kind, BinaryType):
            column, kind = column.cast("string"), StringType()
        if isinstance(kind, StringType):
            return pick_json(column, path[number:]), StringType()
        if isinstance(kind, StructType) and step in kind.names:
            column, kind = column.getField(str(step)), kind[str(step)].dataType
        elif isinstance(kind, MapType) and isinstance(kind.keyType, StringType):
            column, kind = F.try_element_at(column, F.lit(str(step))), kind.valueType
        elif isinstance(kind, ArrayType) and isinstance(step, int):
            column, kind = F.get(column, F.lit(step)), kind.elementType
        else:
            return None
    if isinstance(kind, BinaryType):
        return column.cast("string"), StringType()
    return column, kind
