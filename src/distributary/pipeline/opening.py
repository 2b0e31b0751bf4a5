"""A log's rows as they stand at the source: text, or a table's own columns, and where each stood.

Nothing is judged here: a line that cannot be parsed is a row with `corrupt` set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    DataType,
    DateType,
    DecimalType,
    FractionalType,
    IntegralType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from distributary.errors import InputError
from distributary.files.csv_records import csv_cells
from distributary.pipeline.lines import csv_cells_of, csv_lines, has_open_lines, text_lines
from distributary.pipeline.parquet import PLACE, read_parquet
from distributary.pipeline.schemas import POSITION, quote_name
from distributary.pipeline.sources import (
    Source,
    first_record,
    reading_faults,
    resolve_source,
    shown_path,
)

__all__ = ["Opened", "opened"]


@dataclass(frozen=True, slots=True)
class Opened:
    """A source as a frame: the wanted columns as they stand, `raw`, `corrupt`, and `position`."""

    name: str
    source: Source
    frame: DataFrame
    given: frozenset[str]
    types: Mapping[str, DataType]
    extra: tuple[StructField, ...]
    lines: DataFrame

    @property
    def text(self) -> bool:
        """Whether every column is text, and a row may be corrupt."""
        return self.source.format in ("csv", "json")


def opened(
    spark: SparkSession,
    name: str,
    where: str | Source,
    required: tuple[str, ...],
    optional: tuple[str, ...] = (),
    attributes: StructType | Literal["all"] | None = None,
) -> Opened:
    """Open a log that has the `required` columns and may have the `optional` ones."""
    source = where if isinstance(where, Source) else resolve_source(spark, where)
    with reading_faults(source.path):
        if source.format == "csv":
            return _open_csv(spark, name, source, required, optional, attributes)
        if source.format == "json":
            return _open_json(spark, name, source, required, optional, attributes)
        return _open_typed(spark, name, source, required, optional, attributes)


def _open_typed(
    spark: SparkSession,
    name: str,
    source: Source,
    required: tuple[str, ...],
    optional: tuple[str, ...],
    attributes: StructType | Literal["all"] | None,
) -> Opened:
    known = (*required, *optional)
    if source.format == "table":
        table = spark.table(source.path)
        position = F.struct(*(F.lit(None).cast(f.dataType).alias(f.name) for f in POSITION.fields))
    else:
        table = read_parquet(spark, source, None if attributes else ("ts",))
        position = F.col(PLACE)
    schema = StructType([one for one in table.schema if one.name != PLACE])
    columns = schema.names
    _check_columns(source.path, columns, required, known)
    for column in known:
        if column in columns:
            _check_type(source.path, column, schema[column].dataType)
    extra = _attribute_fields(schema, known, attributes)
    given = frozenset(columns) & {*known, *(one.name for one in extra)}
    raw = F.to_json(F.struct(*(F.col(quote_name(column)) for column in columns)))
    wanted = [*known, *(one.name for one in extra)]
    frame = table.select(
        *(
            F.col(quote_name(column))
            if column in given
            else F.lit(None).cast("string").alias(column)
            for column in wanted
        ),
        raw.alias("raw"),
        position.alias("position"),
    )
    types = {one.name: one.dataType for one in frame.schema.fields}
    return Opened(name, source, frame, given, types, extra, table)


def _open_csv(
    spark: SparkSession,
    name: str,
    source: Source,
    required: tuple[str, ...],
    optional: tuple[str, ...],
    attributes: StructType | Literal["all"] | None,
) -> Opened:
    headers: dict[str, list[str]] = {}
    for file in source.files:
        record = first_record(spark, file)
        if record is not None:
            headers.setdefault(record, []).append(file)
    if not headers:
        raise InputError("holds no header line", path=source.path, remedy="write it again")
    names = {header: _names(header, shown_path(files[0])) for header, files in headers.items()}
    known = (*required, *optional)
    for header, files in headers.items():
        _check_columns(shown_path(files[0]), names[header], required, known)
    joined = has_open_lines(spark, source.files)
    schema = StructType()
    if attributes == "all":
        inferred = spark.read.options(header=True, inferSchema=True, escape='"', multiLine=joined)
        schema = inferred.csv(list(source.files)).schema
    extra = _attribute_fields(schema, known, attributes)
    wanted = [*known, *(one.name for one in extra)]
    lines = {
        header: csv_lines(spark, files, header, len(names[header]), joined=joined)
        for header, files in headers.items()
    }
    parts = [_csv_part(lines[header], names[header], wanted) for header in headers]
    given = frozenset(column for found in names.values() for column in found) & set(wanted)
    frame = reduce(DataFrame.unionByName, parts)
    types: dict[str, DataType] = {column: StringType() for column in wanted}
    return Opened(name, source, frame, given, types, extra, reduce(DataFrame.union, lines.values()))


def _csv_part(lines: DataFrame, found: Sequence[str], wanted: Sequence[str]) -> DataFrame:
    cells = csv_cells_of(F.col("value"), len(found))
    return lines.withColumn("row", F.when(F.is_valid_utf8("value"), cells)).select(
        *(
            F.get("row", F.lit(found.index(column))).alias(column)
            if column in found
            else F.lit(None).cast("string").alias(column)
            for column in wanted
        ),
        F.col("row").isNull().alias("corrupt"),
        F.make_valid_utf8("value").alias("raw"),
        "position",
    )


def _names(header: str, path: str) -> list[str]:
    cells = csv_cells(header)
    if cells is None:
        raise InputError(
            f"does not parse as CSV: {header!r}",
            path=path,
            remedy="the first line must name the columns",
        )
    return [cell.strip() for cell in cells]


def _open_json(
    spark: SparkSession,
    name: str,
    source: Source,
    required: tuple[str, ...],
    optional: tuple[str, ...],
    attributes: StructType | Literal["all"] | None,
) -> Opened:
    known = (*required, *optional)
    schema = StructType()
    if attributes == "all":
        schema = spark.read.json(list(source.files)).schema
    extra = _attribute_fields(schema, known, attributes)
    wanted = [*known, *(one.name for one in extra)]
    fields = [StructField(column, StringType()) for column in [*wanted, "_corrupt"]]
    row = F.from_json(
        F.when(F.is_valid_utf8("value"), F.col("value")),
        StructType(fields),
        {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_corrupt"},
    )
    lines = _json_lines(spark, source)
    frame = lines.withColumn("row", row).select(
        *(F.col(f"row.{quote_name(column)}").alias(column) for column in wanted),
        (
            ~F.is_valid_utf8("value")
            | ~F.ltrim("value").startswith("{")
            | F.col("row").isNull()
            | F.col("row._corrupt").isNotNull()
        ).alias("corrupt"),
        F.make_valid_utf8("value").alias("raw"),
        "position",
    )
    types: dict[str, DataType] = {column: StringType() for column in wanted}
    # A key that no line has is found out row by row, except `id`, which would cost a shuffle.
    given = frozenset(wanted) - (set() if _has_id(lines, optional) else {"id"})
    return Opened(name, source, frame, given, types, extra, lines)


def _json_lines(spark: SparkSession, source: Source) -> DataFrame:
    if source.lines is not None:
        return source.lines
    return text_lines(spark, source.files).where(F.trim("value") != "")


def _has_id(lines: DataFrame, optional: tuple[str, ...]) -> bool:
    """Whether JSON lines carry ids: looked up in the first lines, as a header would say it."""
    if "id" not in optional:
        return False
    first = lines.limit(100).select(F.get_json_object("value", "$.id").alias("id"))
    return first.where(F.col("id").isNotNull()).limit(1).count() > 0


def _check_columns(
    path: str, found: Sequence[str], required: Sequence[str], known: Sequence[str]
) -> None:
    for column in known:
        if list(found).count(column) > 1:
            raise InputError(
                f"has the column {column!r} twice",
                path=path,
                value=column,
                remedy="keep one of them",
            )
    for column in required:
        if column not in found:
            raise InputError(
                f"has no column {column!r}, only {', '.join(map(repr, found[:10])) or 'none'}",
                path=path,
                value=column,
                remedy="name the columns as documented",
            )


def _check_type(path: str, column: str, kind: DataType) -> None:
    fits: dict[str, tuple[type[DataType], ...]] = {
        "ts": (TimestampType, TimestampNTZType, DateType, StringType),
        "size": (IntegralType, FractionalType, DecimalType, StringType),
        "id": (DataType,),
    }
    if not isinstance(kind, fits.get(column, (StringType,))):
        wanted = {"ts": "times", "size": "whole numbers"}.get(column, "text")
        raise InputError(
            f"column {column!r} holds {kind.simpleString()} values",
            path=path,
            value=kind.simpleString(),
            remedy=f"they must be {wanted}",
        )


def _attribute_fields(
    schema: StructType, known: Sequence[str], attributes: StructType | Literal["all"] | None
) -> tuple[StructField, ...]:
    if attributes is None:
        return ()
    fields = schema.fields if attributes == "all" else attributes.fields
    return tuple(one for one in fields if one.name not in known)
