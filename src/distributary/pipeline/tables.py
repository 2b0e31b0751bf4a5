"""A plan's tables for readers: what each receiver must listen to, and what each group carries.

Both are Parquet folders in which the rows of one receiver or group are found by reading little.
Each group has a folder of its own. Receivers are spread over buckets by the CRC-32 of their name,
which any program can compute, and sorted within, so that a reader can skip row groups by their
statistics. A bucket's folder names their number: `bucket=003-of-016`. The same plan gives the same
rows in the same order in each folder.
"""

from __future__ import annotations

import os

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from distributary.pipeline.plans import PlanTables

__all__ = [
    "bucket_count",
    "group_table",
    "receiver_table",
    "write_group_table",
    "write_receiver_table",
]

_RATES = ("rate", "session_rate", "group_rate")
_ROWS_PER_BUCKET = 250_000
_MOST_BUCKETS = 999


def receiver_table(plan: PlanTables, interest: DataFrame, rates: DataFrame) -> DataFrame:
    """One row per receiver and session that it subscribes to, and one for its unicast flows.

    receiver, session, group (both null for unicast), the number of flows and the rate that it wants
    there, and the total rates of the session and the group.
    """
    placed = plan.placed.join(rates.select("flow", "rate"), "flow")
    sessions = placed.groupBy("session").agg(F.sum("rate").alias("session_rate"))
    groups = placed.groupBy("group").agg(F.sum("rate").alias("group_rate"))
    heard = plan.subscriptions.select("receiver", "session")
    wanted = (
        interest.join(placed, "flow")
        .join(heard, ["receiver", "session"])
        .groupBy("receiver", "session")
        .agg(F.count(F.lit(1)).alias("flows"), F.sum("rate").alias("rate"))
    )
    listed = (
        heard.join(plan.sessions, "session")
        .join(wanted, ["receiver", "session"], "left")
        .join(sessions, "session", "left")
        .join(groups, "group", "left")
    )
    alone = (
        plan.unicast.join(rates.select("flow", "rate"), "flow")
        .groupBy("receiver")
        .agg(F.count(F.lit(1)).alias("flows"), F.sum("rate").alias("rate"))
    )
    nowhere = F.lit(None)
    return listed.select(
        "receiver",
        "session",
        "group",
        F.coalesce("flows", F.lit(0).cast("bigint")).alias("flows"),
        *(F.coalesce(name, F.lit(0.0)).alias(name) for name in _RATES),
    ).unionByName(
        alone.select(
            "receiver",
            nowhere.cast("int").alias("session"),
            nowhere.cast("int").alias("group"),
            "flows",
            "rate",
            F.col("rate").alias("session_rate"),
            F.col("rate").alias("group_rate"),
        )
    )


def group_table(plan: PlanTables, interest: DataFrame, rates: DataFrame) -> DataFrame:
    """group, session, flow, rate, receivers (those who want the flow): what each group carries."""
    wanted = interest.groupBy("flow").agg(F.count(F.lit(1)).alias("receivers"))
    return (
        plan.placed.join(rates.select("flow", "rate"), "flow", "left")
        .join(wanted, "flow", "left")
        .select(
            "group",
            "session",
            "flow",
            "rate",
            F.coalesce("receivers", F.lit(0).cast("bigint")).alias("receivers"),
        )
    )


def bucket_count(rows: int) -> int:
    """The number of buckets for a receivers' table of this many rows."""
    return min(max(-(-rows // _ROWS_PER_BUCKET), 1), _MOST_BUCKETS)


def write_receiver_table(table: DataFrame, path: str | os.PathLike[str], buckets: int = 1) -> None:
    """Write a receivers' table into a new folder, in this many buckets."""
    if not 1 <= buckets <= _MOST_BUCKETS:
        raise ValueError(f"buckets must be 1 to {_MOST_BUCKETS}, not {buckets}")
    number = F.crc32(F.col("receiver").cast("binary")) % buckets
    bucket = F.format_string(f"%03d-of-{buckets:03d}", number)
    spread = table.withColumn("bucket", bucket).repartition(buckets, "bucket")
    ordered = spread.sortWithinPartitions("bucket", "receiver", F.col("session").asc_nulls_last())
    ordered.write.partitionBy("bucket").parquet(str(path))


def write_group_table(table: DataFrame, path: str | os.PathLike[str]) -> None:
    """Write a groups' table into a new folder, with one folder per group."""
    ordered = table.repartition("group").sortWithinPartitions("group", "session", "flow")
    ordered.write.partitionBy("group").parquet(str(path))
