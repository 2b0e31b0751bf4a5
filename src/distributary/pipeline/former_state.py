"""Take over the state of a stream that a former version wrote: whole tables, written by Spark.

The tables are read once, written in buckets, and committed by one rename. A process that is killed
before the commit has changed nothing; one that is killed after it finds nothing left to convert.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from distributary.pipeline.collecting import collect_parts
from distributary.pipeline.kept_tables import KINDS
from distributary.pipeline.ledger import Ledger
from distributary.pipeline.schemas import SUBSCRIBE

__all__ = ["convert_former"]


def convert_former(spark: SparkSession, ledger: Ledger) -> None:
    """Convert the tables of a former version, if there are any."""
    former = ledger.state.former
    if not former:
        return
    folder = ledger.new_folder(ledger.state.batch)
    tables = {}
    for kind in KINDS:
        if kind.name not in former:
            continue
        path = ledger.root / former[kind.name]
        table = ledger.table(kind)
        frame = _READERS[kind.name](spark.read.parquet(str(path)))
        for rows in collect_parts(frame, folder, _size(path)):
            table = table.append(rows.select(kind.schema.names).cast(kind.schema), folder)
        tables[kind.name] = table.stored
    ledger.convert(tables)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _read_actions(table: DataFrame) -> DataFrame:
    return table.select(
        F.xxhash64("receiver", "flow").alias("key"),
        "receiver",
        "flow",
        F.unix_micros("ts").alias("ts"),
        (F.col("action") == SUBSCRIBE).alias("on"),
        "position.*",
    )


def _read_slots(table: DataFrame) -> DataFrame:
    columns = ("flow", "slot", "messages", "bytes", "sized")
    return table.select(F.xxhash64("flow").alias("key"), *columns)


def _read_ids(table: DataFrame) -> DataFrame:
    return table.select(F.xxhash64("id").alias("key"), "id", F.unix_micros("ts").alias("ts"))


_READERS: dict[str, Callable[[DataFrame], DataFrame]] = {
    "actions": _read_actions,
    "slots": _read_slots,
    "ids": _read_ids,
}
