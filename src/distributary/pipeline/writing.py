"""Tables and documents of a run, written so that the same rows give the same files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as F  # noqa: N812

__all__ = [
    "say",
    "sort_parts",
    "stage_frame",
    "tidy",
    "write_arrow",
    "write_json",
    "write_parts",
]

_ROWS_PER_FILE = 2_000_000


def say(spark: SparkSession, step: str) -> None:
    """Name what Spark is doing, for its progress bar."""
    spark.sparkContext.setJobDescription(step)


def stage_frame(frame: DataFrame, path: Path) -> DataFrame:
    """The frame as a Parquet folder for this run: made once, whoever reads it how often."""
    frame.write.parquet(str(path))
    return frame.sparkSession.read.parquet(str(path))


def write_parts(frame: DataFrame, path: Path, key: str, *more: str) -> DataFrame:
    """Write a table sorted, in files that depend on its rows alone and not on the partitioning."""
    spark = frame.sparkSession
    unsorted = path.parent / ".work" / f"unsorted-{path.parent.name}-{path.name}"
    rows = stage_frame(frame, unsorted)
    sort_parts(rows, rows.count(), key, *more).parquet(str(path))
    shutil.rmtree(unsorted)
    return spark.read.parquet(str(path))


def sort_parts(frame: DataFrame, rows: int, key: str, *more: str) -> DataFrameWriter:
    """A writer of the frame cut by the hash of `key`, each part sorted."""
    parts = max(1, -(-rows // _ROWS_PER_FILE))
    name = F.coalesce(F.col(key), F.lit("")).cast("binary")
    part = F.pmod(F.crc32(name), F.lit(parts)).cast("int")
    ordered = frame.repartitionById(parts, part).sortWithinPartitions(key, *more)
    return ordered.write


def write_arrow(table: Any, path: Path) -> None:
    """Write a small table that the driver holds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_batches(table.to_batches(), table.schema), path)


def tidy(folder: Path) -> None:
    """Leave what is for readers: Spark's marks go, and part files get plain names."""
    shutil.rmtree(folder / ".work", ignore_errors=True)
    for file in folder.rglob("*"):
        if file.name.endswith(".crc") or file.name == "_SUCCESS":
            file.unlink()
    for parent in {file.parent for file in folder.rglob("part-*")}:
        for number, file in enumerate(sorted(parent.glob("part-*"))):
            file.rename(parent / f"part-{number:05d}.parquet")


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Write a document for people and programs."""
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
