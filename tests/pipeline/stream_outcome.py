"""What a stream leaves: its state, its history, and the plans."""

from __future__ import annotations

import json
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from distributary.pipeline.buckets import BucketTable, TableFiles, TableKind
from distributary.pipeline.kept_tables import ACTIONS, KINDS, SLOTS
from distributary.pipeline.ledger import LedgerState
from distributary.pipeline.stream import StreamJob, rate_span

from .stream_logs import Row


def table(job: StreamJob, state: LedgerState, kind: TableKind) -> list[Row]:
    """A table of the state without keys and places, sorted."""
    stored = BucketTable(kind, job.out / "state", state.tables.get(kind.name, TableFiles()))
    horizon = rate_horizon(state, job) if kind is SLOTS else None
    rows = [row for part in stored.read(horizon) for row in part.to_pylist()]
    hidden = {"key", "file", "block", "line"}
    return sorted(({k: row[k] for k in row if k not in hidden} for row in rows), key=str)


def rate_horizon(state: LedgerState, job: StreamJob) -> int:
    earliest = (state.latest or 0) - 3_600_000_000
    assert job.rate_window == timedelta(hours=1)
    return earliest - earliest % 60_000_000


def wanted_pairs(job: StreamJob, state: LedgerState) -> list[tuple[str, str]]:
    rows = table(job, state, ACTIONS)
    return sorted((row["receiver"], row["flow"]) for row in rows if row["on"])


def stored_rates(job: StreamJob, state: LedgerState) -> dict[str, float]:
    """The rates of the wanted flows, from the stored slots."""
    span = rate_span(state, job)
    seconds = (span[1] - span[0]).total_seconds() if span else 3600.0
    messages = Counter[str]()
    for row in table(job, state, SLOTS):
        messages[row["flow"]] += row["messages"]
    wanted = {flow for _, flow in wanted_pairs(job, state)}
    return {flow: max(messages[flow], 1) / seconds for flow in sorted(wanted)}


def history(job: StreamJob) -> list[Row]:
    return [json.loads(line) for line in (job.out / "drift.jsonl").read_text().splitlines()]


def quarantine(spark: SparkSession, job: StreamJob) -> list[Any]:
    rows = spark.read.parquet(str(job.out / "quarantine"))
    return sorted(map(tuple, rows.select("log", "file", "reason", "raw").collect()), key=str)


def plan_bytes(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def everything(spark: SparkSession, job: StreamJob, state: LedgerState) -> Row:
    """All that must be the same, however often the stream was killed."""
    versions = sorted((job.out / "plans").iterdir())
    return {
        "tables": {kind.name: table(job, state, kind) for kind in KINDS},
        "unserved": state.unserved and pq.read_table(job.out / "state" / state.unserved),
        "counts": state.counts,
        "history": history(job),
        "quarantine": quarantine(spark, job),
        "plan": plan_bytes(job.out / "plan"),
        "plans": {path.name: plan_bytes(path) for path in versions},
    }
