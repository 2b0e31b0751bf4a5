"""Lines of text files, and CSV records made of them by the grammar of all readers.

A line of CSV is nearly always a record, so files are read in parallel pieces. If a line ends inside
quotes, the files are read again, each by one task from its beginning, and lines are joined by the
function that reads CSV without Spark.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from itertools import groupby, islice
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from distributary.files.csv_records import FIELD, OPEN_LINE, RECORD, csv_records

__all__ = [
    "csv_cells_of",
    "csv_lines",
    "drop_headers",
    "has_open_lines",
    "restore_line_ends",
    "text_lines",
]

_BOM = "\ufeff"
_RECORDS_AT_ONCE = 10_000
_JOINED = "value BINARY, position STRUCT<file: STRING, block: BIGINT, line: BIGINT>"


def text_lines(spark: SparkSession, files: Sequence[str], line_end: str | None = None) -> DataFrame:
    """value, position: the lines of text files, by default without their ends."""
    reader = spark.read if line_end is None else spark.read.option("lineSep", line_end)
    return reader.text(list(files)).select(
        "value",
        F.struct(
            F.col("_metadata.file_path").alias("file"),
            F.col("_metadata.file_block_start").alias("block"),
            F.monotonically_increasing_id().alias("line"),
        ).alias("position"),
    )


def has_open_lines(spark: SparkSession, files: Sequence[str]) -> bool:
    """Whether a line of the CSV files ends inside quotes; a pass over the files if none does."""
    open_line = F.col("value").contains('"') & F.col("value").rlike(rf"\A{OPEN_LINE}\z")
    return text_lines(spark, files).where(open_line).limit(1).count() > 0


def csv_lines(
    spark: SparkSession, files: Sequence[str], header: str, width: int, *, joined: bool
) -> DataFrame:
    """value, position: the records of CSV files with one header, without it and blank lines.

    With `joined`, lines are joined into records; otherwise each line is a record.
    """
    lines = _join_lines(spark, files, width) if joined else text_lines(spark, files)
    return drop_headers(lines, header)


def drop_headers(lines: DataFrame, header: str) -> DataFrame:
    """The lines without blank ones, and without those that repeat the header."""
    named = F.ltrim(F.rtrim(F.col("value"), F.lit("\r")), F.lit(_BOM)) == header
    return lines.where((F.trim("value") != "") & ~named)


def csv_cells_of(value: Column, width: int) -> Column:
    """The cells of a record as an array, empty ones as null; null if the record is not valid."""
    found = F.regexp_extract_all(F.concat(F.lit(","), value), F.lit(f",({FIELD})"), F.lit(1))
    quoted = F.when(value.rlike(rf"\A{RECORD}\z"), F.transform(found, _unquote))
    cells = F.when(value.contains('"'), quoted).otherwise(F.split(value, ",", -1))
    filled = F.transform(cells, lambda cell: F.nullif(cell, F.lit("")))
    return F.when(F.size(cells) == width, filled)


def _unquote(cell: Column) -> Column:
    inner = F.substring(cell, F.lit(2), F.length(cell) - 2)
    plain = F.replace(inner, F.lit('""'), F.lit('"'))
    return F.when(cell.startswith('"'), plain).otherwise(cell)


def _join_lines(spark: SparkSession, files: Sequence[str], width: int) -> DataFrame:
    """The lines of each file, in order, joined into records where quotes span several lines."""
    # As bytes, because a line need not be UTF-8; carriage returns inside quotes are kept.
    lines = text_lines(spark, files, "\n").withColumn("value", F.col("value").cast("binary"))
    in_order = lines.repartition("position.file").sortWithinPartitions("position")

    def join(batches: Iterator[Any]) -> Iterator[Any]:
        yield from _join_batches(batches, width)

    joined = in_order.mapInArrow(join, _JOINED)
    return joined.withColumn("value", F.col("value").cast("string"))


def _join_batches(batches: Iterator[Any], width: int) -> Iterator[Any]:
    """Batches of records from batches of lines that are sorted by file and position."""
    lines = (line for batch in batches for line in batch.to_pylist())
    for file, own in groupby(lines, key=lambda line: line["position"]["file"]):
        records = enumerate(csv_records(restore_line_ends(line["value"] for line in own), width))
        next(records, None)  # the header
        while some := list(islice(records, _RECORDS_AT_ONCE)):
            yield _to_batch(file, some)


def restore_line_ends(lines: Iterator[bytes]) -> Iterator[str]:
    """Lines as text with their ends; a carriage return ends a line as well."""
    for number, line in enumerate(lines):
        text = line.decode("utf-8", "surrogateescape") + "\n"
        yield from io.StringIO(text if number else text.removeprefix(_BOM), newline="")


def _to_batch(file: str, records: Sequence[tuple[int, str]]) -> Any:
    values = [record.encode("utf-8", "surrogateescape") for _, record in records]
    positions = [{"file": file, "block": 0, "line": number} for number, _ in records]
    kinds = pa.struct({"file": pa.string(), "block": pa.int64(), "line": pa.int64()})
    return pa.RecordBatch.from_arrays(
        [pa.array(values, pa.binary()), pa.array(positions, kinds)], ["value", "position"]
    )
