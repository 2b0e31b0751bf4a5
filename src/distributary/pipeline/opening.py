"""Open a log: its rows as they stand at the source, and the position of each.

Columns are text, or have the types of a table. Rows are not checked here; a line that does not
parse is a row with `corrupt` set.
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
    plain_path,
    report_read_faults,
    resolve_source,
)

__all__ = ["LogColumns", "OpenedLog", "open_log"]


@dataclass(frozen=True, slots=True)
class LogColumns:
    """The columns of a log: `required` and `optional` ones, and the `attributes` to keep.

    Attributes are given by their types, or as "all" other columns with the types that the source
    has (a table, Parquet) or that Spark infers (text, which costs a pass).
    """

    required: tuple[str, ...]
    optional: tuple[str, ...] = ()
    attributes: StructType | Literal["all"] | None = None

    @property
    def known(self) -> tuple[str, ...]:
        """The columns that have a meaning of their own."""
        return (*self.required, *self.optional)

    def select_attributes(self, schema: StructType) -> tuple[StructField, ...]:
        """The attributes to keep of a source with this schema."""
        if self.attributes is None:
            return ()
        fields = schema.fields if self.attributes == "all" else self.attributes.fields
        return tuple(one for one in fields if one.name not in self.known)


@dataclass(frozen=True, slots=True)
class OpenedLog:
    """A log's `frame`: the wanted columns as they stand, `raw`, `corrupt` (text) and `position`.

    `given` are the columns that the source has, `extra` the attributes, and `lines` the rows as
    they are counted at the source.
    """

    name: str
    source: Source
    frame: DataFrame
    given: frozenset[str]
    types: Mapping[str, DataType]
    extra: tuple[StructField, ...]
    lines: DataFrame

    @property
    def text(self) -> bool:
        """Whether every column is text, so that rows may be corrupt."""
        return self.source.format in ("csv", "json")


def open_log(spark: SparkSession, name: str, where: str | Source, columns: LogColumns) -> OpenedLog:
    """Open a log with these columns, in whichever format it is."""
    source = where if isinstance(where, Source) else resolve_source(spark, where)
    with report_read_faults(source.path):
        if source.format == "csv":
            return _open_csv(spark, name, source, columns)
        if source.format == "json":
            return _open_json(spark, name, source, columns)
        return _open_typed(spark, name, source, columns)


def _open_typed(spark: SparkSession, name: str, source: Source, columns: LogColumns) -> OpenedLog:
    if source.format == "table":
        table = spark.table(source.path)
        position = F.struct(*(F.lit(None).cast(f.dataType).alias(f.name) for f in POSITION.fields))
    else:
        table = read_parquet(spark, source, None if columns.attributes else ("ts",))
        position = F.col(PLACE)
    schema = StructType([one for one in table.schema if one.name != PLACE])
    _check_columns(source.path, schema.names, columns)
    for column in columns.known:
        if column in schema.names:
            _check_type(source.path, column, schema[column].dataType)
    extra = columns.select_attributes(schema)
    wanted = [*columns.known, *(one.name for one in extra)]
    given = frozenset(schema.names) & set(wanted)
    raw = F.to_json(F.struct(*(F.col(quote_name(column)) for column in schema.names)))
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
    return OpenedLog(name, source, frame, given, types, extra, table)


def _open_csv(spark: SparkSession, name: str, source: Source, columns: LogColumns) -> OpenedLog:
    headers: dict[str, list[str]] = {}
    for file in source.files:
        record = first_record(spark, file)
        if record is not None:
            headers.setdefault(record, []).append(file)
    if not headers:
        raise InputError("holds no header line", path=source.path, remedy="write it again")
    names = {
        header: _parse_header(header, plain_path(files[0])) for header, files in headers.items()
    }
    for header, files in headers.items():
        _check_columns(plain_path(files[0]), names[header], columns)
    joined = has_open_lines(spark, source.files)
    schema = StructType()
    if columns.attributes == "all":
        inferred = spark.read.options(header=True, inferSchema=True, escape='"', multiLine=joined)
        schema = inferred.csv(list(source.files)).schema
    extra = columns.select_attributes(schema)
    wanted = [*columns.known, *(one.name for one in extra)]
    lines = {
        header: csv_lines(spark, files, header, len(names[header]), joined=joined)
        for header, files in headers.items()
    }
    parts = [_csv_part(lines[header], names[header], wanted) for header in headers]
    given = frozenset(column for found in names.values() for column in found) & set(wanted)
    frame = reduce(DataFrame.unionByName, parts)
    types: dict[str, DataType] = {column: StringType() for column in wanted}
    return OpenedLog(
        name, source, frame, given, types, extra, reduce(DataFrame.union, lines.values())
    )


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


def _parse_header(header: str, path: str) -> list[str]:
    cells = csv_cells(header)
    if cells is None:
        raise InputError(
            f"does not parse as CSV: {header!r}",
            path=path,
            remedy="the first line must name the columns",
        )
    return [cell.strip() for cell in cells]


def _open_json(spark: SparkSession, name: str, source: Source, columns: LogColumns) -> OpenedLog:
    schema = StructType()
    if columns.attributes == "all":
        schema = spark.read.json(list(source.files)).schema
    extra = columns.select_attributes(schema)
    wanted = [*columns.known, *(one.name for one in extra)]
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
    # Missing keys show up row by row. Only ids are looked for first, because they cost a shuffle.
    given = frozenset(wanted) - (set() if _has_id(lines, columns) else {"id"})
    return OpenedLog(name, source, frame, given, types, extra, lines)


def _json_lines(spark: SparkSession, source: Source) -> DataFrame:
    if source.lines is not None:
        return source.lines
    return text_lines(spark, source.files).where(F.trim("value") != "")


def _has_id(lines: DataFrame, columns: LogColumns) -> bool:
    """Whether one of the first JSON lines has an id; the others are taken to be alike."""
    if "id" not in columns.optional:
        return False
    first = lines.limit(100).select(F.get_json_object("value", "$.id").alias("id"))
    return first.where(F.col("id").isNotNull()).limit(1).count() > 0


def _check_columns(path: str, found: Sequence[str], columns: LogColumns) -> None:
    for column in columns.known:
        if list(found).count(column) > 1:
            raise InputError(
                f"has the column {column!r} twice",
                path=path,
                value=column,
                remedy="keep one of them",
            )
    for column in columns.required:
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
