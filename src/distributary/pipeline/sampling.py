"""The first rows of a log, in the order of its files, whatever the partitions.

They are fetched file by file, so little is read of a large log.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from distributary.files.csv_records import csv_cells, csv_records
from distributary.pipeline.lines import restore_line_ends, text_lines
from distributary.pipeline.parquet import read_parquet
from distributary.pipeline.sources import Source

__all__ = ["sample_source"]

_MOST_FILES = 8


def sample_source(
    spark: SparkSession, source: Source, rows: int, files: int = _MOST_FILES
) -> Source:
    """A source with the first rows alone, of at most so many files; a table's are any rows."""
    if source.format == "table":
        return replace(source, lines=_hold_first(spark, spark.table(source.path), rows)[0])
    parts: list[DataFrame] = []
    used: list[str] = []
    for file in source.files[:files]:
        held, number = _first_of_file(spark, source, file, rows)
        parts.append(held)
        used.append(file)
        rows -= number
        if rows <= 0:
            break
    lines = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), parts)
    return replace(source, files=tuple(used), lines=lines)


def _first_of_file(
    spark: SparkSession, source: Source, file: str, rows: int
) -> tuple[DataFrame, int]:
    if source.format == "parquet":
        table = read_parquet(spark, replace(source, files=(file,)))
        return _hold_first(spark, table, rows)
    if source.format == "csv":
        return _first_records(spark, file, rows)
    lines = text_lines(spark, [file]).where(F.trim("value") != "")
    # As bytes, because a line need not be UTF-8.
    held, number = _hold_first(
        spark, lines.withColumn("value", F.col("value").cast("binary")), rows
    )
    return held.withColumn("value", F.col("value").cast("string")), number


def _hold_first(spark: SparkSession, frame: DataFrame, rows: int) -> tuple[DataFrame, int]:
    """The first rows of a frame, held by the driver, and their number.

    They stay in Java, which has a value for each of Spark's; Python has none for the year 20000.
    """
    taken: Any = frame._jdf.takeAsList(rows)
    session: Any = spark._jsparkSession
    return DataFrame(session.createDataFrame(taken, frame._jdf.schema()), spark), taken.size()


def _first_records(spark: SparkSession, file: str, rows: int) -> tuple[DataFrame, int]:
    """The first records of a CSV file, its header first."""
    lines = text_lines(spark, [file], "\n").select(F.col("value").cast("binary").alias("value"))
    # A record may have several lines; of the last one perhaps only some were taken.
    taken = [bytes(row["value"]) for row in lines.take(rows + 1)]
    records = list(_join_records(taken))
    if len(taken) > rows:
        records = records[:-1]
    kinds = pa.struct({"file": pa.string(), "block": pa.int64(), "line": pa.int64()})
    table = pa.table(
        {
            "value": pa.array(records, pa.binary()),
            "position": pa.array(
                [{"file": file, "block": 0, "line": i} for i in range(len(records))], kinds
            ),
        }
    )
    frame = spark.createDataFrame(table)
    return frame.withColumn("value", F.col("value").cast("string")), len(records)


def _join_records(lines: list[bytes]) -> Iterator[bytes]:
    text = restore_line_ends(iter(lines))
    header = next(csv_records(text), None)
    if header is None:
        return
    cells = csv_cells(header)
    yield header.encode("utf-8", "surrogateescape")
    for record in csv_records(text, None if cells is None else len(cells)):
        yield record.encode("utf-8", "surrogateescape")
