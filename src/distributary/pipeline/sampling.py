"""The first rows of a log, in the order of its files, whatever the partitions.

They are fetched file by file, so little is read of a large log.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from distributary.files.csv_records import csv_cells, csv_records
from distributary.pipeline.lines import restore_line_ends, text_lines
from distributary.pipeline.parquet import read_parquet
from distributary.pipeline.sources import Source

__all__ = ["Sample", "draw_sample", "sample_source"]

_MOST_FILES = 8


@dataclass(frozen=True, slots=True)
class Sample:
    """The first rows of a source, and whether they are all that it has."""

    source: Source
    whole: bool


def sample_source(
    spark: SparkSession, source: Source, rows: int, files: int = _MOST_FILES
) -> Source:
    """A source with the first rows alone, of at most so many files; a table's are any rows."""
    return draw_sample(spark, source, rows, files).source


def draw_sample(
    spark: SparkSession,
    source: Source,
    rows: int,
    files: int = _MOST_FILES,
    *,
    keep_local: bool = False,
) -> Sample:
    """The first rows of at most so many files; `keep_local` as in `read_parquet`."""
    if source.format == "table":
        held, _, more = _hold_first(spark, spark.table(source.path), rows)
        return Sample(replace(source, lines=held), not more)
    parts: list[DataFrame] = []
    whole = len(source.files) <= files
    for file in source.files[:files]:
        held, number, more = _first_of_file(spark, source, file, rows, keep_local)
        parts.append(held)
        whole &= not more
        rows -= number
        if rows <= 0:
            break
    whole &= len(parts) == len(source.files)
    lines = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), parts)
    return Sample(replace(source, files=source.files[: len(parts)], lines=lines), whole)


def _first_of_file(
    spark: SparkSession, source: Source, file: str, rows: int, keep_local: bool
) -> tuple[DataFrame, int, bool]:
    """The first rows of a file, their number, and whether there may be more."""
    if source.format == "parquet":
        table = read_parquet(spark, replace(source, files=(file,)), keep_local=keep_local)
        return _hold_first(spark, table, rows)
    if source.format == "csv":
        return _first_records(spark, file, rows)
    lines = text_lines(spark, [file]).where(F.trim("value") != "")
    # As bytes, because a line need not be UTF-8.
    held, number, more = _hold_first(
        spark, lines.withColumn("value", F.col("value").cast("binary")), rows
    )
    return held.withColumn("value", F.col("value").cast("string")), number, more


def _hold_first(spark: SparkSession, frame: DataFrame, rows: int) -> tuple[DataFrame, int, bool]:
    """The first rows of a frame, held by the driver, their number, and whether there may be more.

    They stay in Java, which has a value for each of Spark's; Python has none for the year 20000.
    """
    taken: Any = frame._jdf.takeAsList(rows)
    session: Any = spark._jsparkSession
    held = DataFrame(session.createDataFrame(taken, frame._jdf.schema()), spark)
    return held, taken.size(), taken.size() == rows


def _first_records(spark: SparkSession, file: str, rows: int) -> tuple[DataFrame, int, bool]:
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
    held = frame.withColumn("value", F.col("value").cast("string"))
    return held, len(records), len(taken) > rows


def _join_records(lines: list[bytes]) -> Iterator[bytes]:
    text = restore_line_ends(iter(lines))
    header = next(csv_records(text), None)
    if header is None:
        return
    cells = csv_cells(header)
    yield header.encode("utf-8", "surrogateescape")
    for record in csv_records(text, None if cells is None else len(cells)):
        yield record.encode("utf-8", "surrogateescape")
