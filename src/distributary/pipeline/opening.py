"""A log's rows as they stand at the source: text, or a table's own columns, and where each stood.

Nothing is judged here: a line that cannot be parsed is a row with `corrupt` set.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Literal

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
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
from distributary.pipeline.schemas import POSITION
from distributary.pipeline.sources import (
    Source,
    first_line,
    reading_faults,
    resolve_source,
    shown_path,
    whole_story,
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
    if source.format == "table":
        table = spark.table(source.path)
        position = F.struct(*(F.lit(None).cast(f.dataType).alias(f.name) for f in POSITION.fields))
    else:
        table = _parquet(spark, source)
        position = F.struct(
            F.col("_metadata.file_path").alias("file"),
            F.lit(0).cast("bigint").alias("block"),
            F.col("_metadata.row_index").alias("line"),
        )
    known = (*required, *optional)
    _check_columns(source.path, table.columns, required, known)
    for column in known:
        if column in table.columns:
            _check_type(source.path, column, table.schema[column].dataType)
    extra = _attribute_fields(table.schema, known, attributes)
    given = frozenset(table.columns) & {*known, *(one.name for one in extra)}
    raw = F.to_json(F.struct(*(F.col(f"`{column}`") for column in table.columns)))
    wanted = [*known, *(one.name for one in extra)]
    frame = table.select(
        *(
            F.col(f"`{column}`") if column in given else F.lit(None).cast("string").alias(column)
            for column in wanted
        ),
        raw.alias("raw"),
        position.alias("position"),
    )
    types = {one.name: one.dataType for one in frame.schema.fields}
    return Opened(name, source, frame, given, types, extra, table)


def _parquet(spark: SparkSession, source: Source) -> DataFrame:
    try:
        return spark.read.option("mergeSchema", "true").parquet(*source.files)
    except (PySparkException, Py4JError) as error:
        text = whole_story(error)
        if "CANNOT_MERGE" not in text:
            raise
        types = re.search(r'data types "([^"]+)" and "([^"]+)"', text)
        which = f", {types[1].lower()} and {types[2].lower()}" if types else ""
        raise InputError(
            f"its files disagree on the type of a column{which}",
            path=source.path,
            remedy="give each column one type",
        ) from error


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
        line = first_line(spark, file)
        if line is not None:
            headers.setdefault(line, []).append(file)
    if not headers:
        raise InputError("holds no header line", path=source.path, remedy="write it again")
    names = {header: [cell.strip() for cell in next(csv.reader([header]))] for header in headers}
    known = (*required, *optional)
    for header, files in headers.items():
        _check_columns(shown_path(files[0]), names[header], required, known)
    schema = StructType()
    if attributes == "all":
        inferred = spark.read.option("header", "true").option("inferSchema", "true")
        schema = inferred.csv(list(source.files)).schema
    extra = _attribute_fields(schema, known, attributes)
    wanted = [*known, *(one.name for one in extra)]
    parts = [
        _csv_part(_text(spark, files, header), names[header], wanted)
        for header, files in headers.items()
    ]
    lines = [_text(spark, files, header) for header, files in headers.items()]
    given = frozenset(column for found in names.values() for column in found) & set(wanted)
    frame = reduce(DataFrame.unionByName, parts)
    types: dict[str, DataType] = {column: StringType() for column in wanted}
    return Opened(name, source, frame, given, types, extra, reduce(DataFrame.union, lines))


def _csv_part(lines: DataFrame, found: Sequence[str], wanted: Sequence[str]) -> DataFrame:
    # Columns by number: names of other columns may be anything, even repeated.
    cells = ", ".join(f"_{number} STRING" for number in range(len(found)))
    row = F.from_csv(
        F.when(F.is_valid_utf8("value"), F.col("value")),
        f"{cells}, _corrupt STRING",
        {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_corrupt"},
    )
    return lines.withColumn("row", row).select(
        *(
            F.col(f"row._{found.index(column)}").alias(column)
            if column in found
            else F.lit(None).cast("string").alias(column)
            for column in wanted
        ),
        (
            ~F.is_valid_utf8("value") | F.col("row").isNull() | F.col("row._corrupt").isNotNull()
        ).alias("corrupt"),
        F.make_valid_utf8("value").alias("raw"),
        "position",
    )


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
    lines = _text(spark, source.files) if source.lines is None else source.lines
    frame = lines.withColumn("row", row).select(
        *(F.col(f"row.`{column}`").alias(column) for column in wanted),
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


def _has_id(lines: DataFrame, optional: tuple[str, ...]) -> bool:
    """Whether JSON lines carry ids: looked up in the first lines, as a header would say it."""
    if "id" not in optional:
        return False
    first = lines.limit(100).select(F.get_json_object("value", "$.id").alias("id"))
    return first.where(F.col("id").isNotNull()).limit(1).count() > 0


def _text(spark: SparkSession, files: Sequence[str], header: str | None = None) -> DataFrame:
    """Lines of text files with their positions, without blank lines and the header."""
    lines = spark.read.text(list(files)).select(
        "value",
        F.struct(
            F.col("_metadata.file_path").alias("file"),
            F.col("_metadata.file_block_start").alias("block"),
            F.monotonically_increasing_id().alias("line"),
        ).alias("position"),
    )
    kept = F.trim("value") != ""
    if header is not None:
        kept &= F.ltrim(F.rtrim(F.col("value"), F.lit("\r")), F.lit("\ufeff")) != header
    return lines.where(kept)


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
