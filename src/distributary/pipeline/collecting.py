"""What Spark aggregated, on the driver as Arrow tables."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

__all__ = ["collect_parts"]

_AT_ONCE = 32 * 2**20


def collect_parts(frame: DataFrame, folder: Path, size: int) -> Iterator[pa.Table]:
    """The rows of a frame. `size` is that of its input in bytes; times must be whole numbers.

    Few rows come straight from the executors, which takes a tenth of a second. Many come by way of
    Parquet files in the folder, since Spark limits what a job may return.
    """
    if size <= _AT_ONCE:
        yield frame.toArrow()
        return
    path = folder / "collected"
    frame.write.parquet(str(path))
    for part in sorted(path.glob("part-*")):
        yield pq.read_table(part)
    shutil.rmtree(path)
