"""Parquet files of a log as one table, even if they store times in different units.

Spark has no type for nanoseconds and reads them as whole numbers (`nanosAsLong`, which the session
sets). The files' footers tell which columns those are; they become times, cut to microseconds.
Files that disagree on a type are named in the error.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import LongType, StructType, TimestampNTZType, TimestampType

from distributary.errors import InputError
from distributary.pipeline.schemas import quote_name
from distributary.pipeline.sources import Source, full_message, plain_path
from distributary.pipeline.stores import hadoop_path

__all__ = ["PLACE", "read_parquet"]

PLACE = "_distributary_position"
_TIMES = (TimestampType(), TimestampNTZType())


def read_parquet(
    spark: SparkSession,
    source: Source,
    times: Sequence[str] | None = None,
    *,
    keep_local: bool = False,
) -> DataFrame:
    """The rows of the files, with the position of each in the column `PLACE`.

    `times` are the columns that may hold times, by default all: if one seems to hold whole numbers,
    the footers are read. With `keep_local`, nanoseconds without a zone are times without one;
    otherwise they are in UTC.
    """
    try:
        table = _read(spark, source.files)
    except (PySparkException, Py4JError) as error:
        if "CANNOT_MERGE" not in full_message(error):
            raise
        found = _read_by_unit(spark, source, keep_local)
        if found is None:
            raise _type_conflict(spark, source) from error
        return found
    whole = {one.name for one in table.schema if isinstance(one.dataType, LongType)}
    if whole and (times is None or not whole.isdisjoint(times)):
        found = _read_by_unit(spark, source, keep_local)
        return table if found is None else found
    return table


def _read(spark: SparkSession, files: Sequence[str]) -> DataFrame:
    return (
        spark.read.option("mergeSchema", "true")
        .parquet(*files)
        .withColumn(
            PLACE,
            F.struct(
                F.col("_metadata.file_path").alias("file"),
                F.lit(0).cast("bigint").alias("block"),
                F.col("_metadata.row_index").alias("line"),
            ),
        )
    )


def _read_by_unit(spark: SparkSession, source: Source, keep_local: bool) -> DataFrame | None:
    """Read the files grouped by their nanosecond columns; None if no file has any."""
    groups: dict[frozenset[tuple[str, bool]], list[str]] = {}
    for file in source.files:
        groups.setdefault(_nanosecond_columns(spark, file), []).append(file)
    if not frozenset().union(*groups):
        return None
    try:
        parts = [
            _convert_times(_read(spark, files), names, keep_local)
            for names, files in groups.items()
        ]
    except (PySparkException, Py4JError) as error:
        if "CANNOT_MERGE" not in full_message(error):
            raise
        raise _type_conflict(spark, source) from error
    for part in parts[1:]:
        if _find_differing(parts[0].schema, part.schema) is not None:
            raise _type_conflict(spark, source)
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), parts)


def _nanosecond_columns(spark: SparkSession, file: str) -> frozenset[tuple[str, bool]]:
    """The columns that hold times in nanoseconds, by the file's footer; whether in UTC."""
    jvm: Any = spark.sparkContext._jvm
    path, _ = hadoop_path(spark, file)
    configuration = spark.sparkContext._jsc.hadoopConfiguration()
    parquet = jvm.org.apache.parquet.hadoop
    reader = parquet.ParquetFileReader.open(
        parquet.util.HadoopInputFile.fromPath(path, configuration)
    )
    try:
        fields = reader.getFileMetaData().getSchema().getFields()
        return frozenset(
            (str(one.getName()), "true" in kind)
            for one in fields
            if "TIMESTAMP(NANOS" in (kind := str(one.getLogicalTypeAnnotation()))
        )
    finally:
        reader.close()


def _convert_times(
    table: DataFrame, names: frozenset[tuple[str, bool]], keep_local: bool = False
) -> DataFrame:
    """The table with nanoseconds converted to times, rounded down also before 1970."""
    columns = {}
    for name, in_utc in names:
        value = quote_name(name)
        time = F.expr(f"timestamp_micros(({value} - pmod({value}, 1000)) div 1000)")
        columns[name] = time.cast("timestamp_ntz") if keep_local and not in_utc else time
    return table.withColumns(columns) if columns else table


def _type_conflict(spark: SparkSession, source: Source) -> InputError:
    """The error about files that disagree: a column, and two files with different types of it."""
    seen: list[tuple[str, StructType]] = []
    for file in source.files:
        schema = _convert_times(_read(spark, [file]), _nanosecond_columns(spark, file)).schema
        for other, known in seen:
            name = _find_differing(known, schema)
            if name is not None:
                kinds = [one[name].dataType.simpleString() for one in (schema, known)]
                return InputError(
                    f"column {name!r} holds {kinds[0]} values, and {kinds[1]} in "
                    f"{plain_path(other)}",
                    path=plain_path(file),
                    value=name,
                    remedy="give the column one type in all files",
                )
        if all(schema != known for _, known in seen):
            seen.append((file, schema))
    return InputError(
        "its files disagree on the type of a column",
        path=source.path,
        remedy="give each column one type",
    )


def _find_differing(one: StructType, other: StructType) -> str | None:
    """The first column that both schemas have with different types."""
    for name in one.names:
        if name in other.names:
            kinds = one[name].dataType, other[name].dataType
            if kinds[0] != kinds[1] and not all(kind in _TIMES for kind in kinds):
                return name
    return None
