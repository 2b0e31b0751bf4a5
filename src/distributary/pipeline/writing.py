"""The tables and documents of a run, written so that the same rows give the same files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, DataFrameWriter
from pyspark.sql import functions as F  # noqa: N812

from distributary.pipeline.folders import OutputFolder
from distributary.pipeline.stores import LITERAL_PATHS, Place, remove_folder

__all__ = [
    "count_rows",
    "read_back",
    "sort_parts",
    "stage_frame",
    "tidy",
    "write_arrow",
    "write_json",
    "write_parts",
]

_ROWS_PER_FILE = 2_000_000


def stage_frame(frame: DataFrame, path: Place) -> DataFrame:
    """Write the frame to a Parquet folder and read it back, so that it is computed once."""
    frame.write.parquet(str(path))
    return read_back(frame, path)


def write_parts(frame: DataFrame, path: Place, key: str, *more: str) -> DataFrame:
    """Write a sorted table in files that depend on its rows alone, not on the partitioning."""
    unsorted = path.parent / ".work" / f"unsorted-{path.parent.name}-{path.name}"
    rows = stage_frame(frame, unsorted)
    sort_parts(rows, count_rows(unsorted), key, *more).parquet(str(path))
    remove_folder(unsorted)
    return read_back(frame, path)


def read_back(frame: DataFrame, path: Place) -> DataFrame:
    """Read what was written of a frame; as its schema is known, Spark need not look for it."""
    reader = frame.sparkSession.read.schema(frame.schema).options(**LITERAL_PATHS)
    return reader.parquet(str(path))


def count_rows(folder: Place) -> int:
    """The number of rows of a table, from its files' footers."""
    if isinstance(folder, Path):
        return sum(int(pq.read_metadata(part).num_rows) for part in folder.glob("part-*"))
    return folder.spark.read.options(**LITERAL_PATHS).parquet(str(folder)).count()


def sort_parts(frame: DataFrame, rows: int, key: str, *more: str) -> DataFrameWriter:
    """A writer of the frame split by the hash of `key`, with each part sorted."""
    parts = max(1, -(-rows // _ROWS_PER_FILE))
    name = F.coalesce(F.col(key), F.lit("")).cast("binary")
    part = F.pmod(F.crc32(name), F.lit(parts)).cast("int")
    ordered = frame.repartitionById(parts, part).sortWithinPartitions(key, *more)
    return ordered.write


def write_arrow(table: Any, path: Path) -> None:
    """Write a small table from the driver."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_batches(table.to_batches(), table.schema), path)


def tidy(folder: OutputFolder) -> None:
    """Remove what is not part of the output, such as Spark's marker files.

    On this machine's disk part files get plain names. Other stores would copy them for that.
    """
    remove_folder(folder.stage)
    if not isinstance(folder.tables, Path):
        for path, _ in folder.tables.list_files():
            if path.name == "_SUCCESS":
                path.remove()
        return
    for file in folder.local.rglob("*"):
        if file.name.endswith(".crc") or file.name == "_SUCCESS":
            file.unlink()
    for parent in {file.parent for file in folder.local.rglob("part-*")}:
        for number, file in enumerate(sorted(parent.glob("part-*"))):
            file.rename(parent / f"part-{number:05d}.parquet")


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Write a document as indented JSON."""
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
