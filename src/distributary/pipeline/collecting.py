"""What Spark aggregated, on the driver as Arrow tables."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

__all__ = ["collect_parts"]

_AT_ONCE = 32 * 2**20


def collect_parts(
    frame: DataFrame,
    folder: Path,
    size: int,
    check_rows: Callable[[int], None] = lambda rows: None,
) -> Iterator[pa.Table]:
    """The rows of a frame. `size` is that of its input in bytes; times must be whole numbers.

    Few rows come straight from the executors, which takes a tenth of a second. Many come by way of
    Parquet files in the folder, since Spark limits what a job may return. Before any of these is
    read, `check_rows` may refuse their number.
    """
    if size <= _AT_ONCE:
        yield frame.toArrow()
        return
    path = folder / "collected"
    frame.write.parquet(str(path))
    parts = sorted(path.glob("part-*"))
    try:
        check_rows(sum(pq.read_metadata(part).num_rows for part in parts))
        yield from map(pq.read_table, parts)
    finally:
        shutil.rmtree(path)
