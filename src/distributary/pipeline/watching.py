"""What arrives while a stream runs: new files of a folder, or messages of a Kafka topic.

Of a folder only the names of its files are streamed, each once: Spark records which it has seen.
The files are read when their batch is processed. So a file must arrive complete: write it elsewhere
or under another name (such as `a.csv.tmp`) and rename it; later additions are not seen. Lines from
Kafka are in the stream themselves.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from distributary.errors import InputError
from distributary.pipeline.sources import Source, sources_of
from distributary.pipeline.spark import spark_message

__all__ = ["Arrivals", "BatchSize", "list_arrivals", "watch_log"]

_FILES = "path STRING, modificationTime TIMESTAMP, length BIGINT, content BINARY"
_NAMES = "*.{parquet,csv,csv.gz,jsonl,jsonl.gz,json,json.gz}"
_FOREVER = "36500d"  # by default Spark ignores files a week older than the newest
_KAFKA = "kafka://"


BatchSize = tuple[Literal["maxFilesPerTrigger", "maxBytesPerTrigger"], int]
"""How much of a folder a batch takes, as Spark's option; it takes one file at least."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """What a batch has of one log: `size` is that of its files in bytes."""

    sources: tuple[Source, ...]
    files: int = 0
    size: int = 0


def watch_log(spark: SparkSession, log: str, where: str, most: BatchSize) -> DataFrame:
    """A log as a stream: `log, path, length`, and from Kafka `value, block, line`."""
    if where.startswith(_KAFKA):
        rows = _watch_topic(spark, where)
    else:
        rows = _watch_folder(spark, where, most)
    return rows.withColumn("log", F.lit(log))


def list_arrivals(batch: DataFrame, logs: Mapping[str, str]) -> dict[str, Arrivals]:
    """What a batch has of each log. Only file names are collected; empty files are left out."""
    found = batch.where(F.col("value").isNull()).select("log", "path", "length").collect()
    parts = {}
    for log, where in logs.items():
        if where.startswith(_KAFKA):
            parts[log] = _list_lines(batch.where(F.col("log") == log), where)
            continue
        own = [row for row in found if row["log"] == log]
        paths = sorted(row["path"] for row in own if row["length"])
        size = sum(row["length"] for row in own)
        parts[log] = Arrivals(tuple(sources_of(where, paths)), len(own), size)
    return parts


def _list_lines(rows: DataFrame, address: str) -> Arrivals:
    """What a batch has of a topic."""
    position = F.struct(F.col("path").alias("file"), "block", "line")
    lines = rows.select("value", position.alias("position"))
    return Arrivals(() if lines.isEmpty() else (Source(address, "json", lines=lines),))


def _watch_folder(spark: SparkSession, folder: str, most: BatchSize) -> DataFrame:
    if "://" not in folder and not folder.startswith("file:"):
        path = Path(folder).resolve()
        if not path.is_dir():
            raise InputError("no such folder", path=folder, remedy="make it, or check the path")
        folder = str(path)
    names = (
        spark.readStream.format("binaryFile")
        .schema(_FILES)
        .option(*most)
        .option("maxFileAge", _FOREVER)
        .option("recursiveFileLookup", "true")
        .option("pathGlobFilter", _NAMES)
    )
    try:
        # The content is not selected, so it is not read.
        return names.load(folder).select(
            "path",
            "length",
            F.lit(None).cast("string").alias("value"),
            F.lit(None).cast("bigint").alias("block"),
            F.lit(None).cast("bigint").alias("line"),
        )
    except AnalysisException as error:
        raise InputError(f"cannot be watched: {spark_message(error)}", path=folder) from error


def _watch_topic(spark: SparkSession, address: str) -> DataFrame:
    """Messages of a topic; a partition is a block, an offset a line. Needs the Kafka package."""
    match = re.fullmatch(r"kafka://([^/]+)/([^/]+)", address)
    if match is None:
        raise InputError("is not kafka://host:port/topic", path=address, remedy="use that form")
    messages = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", match[1])
        .option("subscribe", match[2])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 1_000_000)
    )
    try:
        return messages.load().select(
            F.lit(address).alias("path"),
            F.lit(0).cast("bigint").alias("length"),
            F.coalesce(F.col("value").cast("string"), F.lit("")).alias("value"),
            F.col("partition").cast("bigint").alias("block"),
            F.col("offset").alias("line"),
        )
    except AnalysisException as error:
        if "kafka" not in str(error).lower():
            raise
        version = f"spark-sql-kafka-0-10_2.13:{spark.version}"
        raise InputError(
            "Spark has no package for Kafka on its class path",
            path=address,
            remedy=f"add --conf spark.jars.packages=org.apache.spark:{version}",
        ) from error
