from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from distributary.errors import InputError, OutputError
from distributary.files import read_demand, read_plan
from distributary.model import plan_problems
from distributary.pipeline.ingest import Reason, read_publications, read_subscriptions
from distributary.pipeline.interest import interest_at
from distributary.pipeline.ledger import LedgerError, State
from distributary.pipeline.rates import rates_for, rates_over
from distributary.pipeline.stream import StreamJob, rate_span, stream
from distributary.planning import Request

from . import stream_process
from .stream_process import small_job

START = datetime(2025, 3, 3, 9, 0, tzinfo=UTC)
Row = dict[str, Any]


def write(path: Path, rows: list[Row], written: datetime) -> None:
    """Rows as a file by its extension, last changed at a given moment."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".csv":
        names = list(rows[0])
        lines = [",".join("" if row[n] is None else str(row[n]) for n in names) for row in rows]
        path.write_text("\n".join([",".join(names), *lines]) + "\n")
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    os.utime(path, (written.timestamp(), written.timestamp()))


def subscription(at: datetime, receiver: str, flow: str, action: str = "subscribe") -> Row:
    return {"ts": at.isoformat(), "receiver": receiver, "flow": flow, "action": action}


def publication(at: datetime, flow: str, size: int | None = 100) -> Row:
    return {"ts": at.isoformat(), "flow": flow, "size": size}


def make_logs(folder: Path, files: int = 4, seed: int = 0) -> None:
    """Files of 20 minutes each in all formats, with ties, bad rows, late rows and changing tastes.

    Late rows are a whole file late, so that they are late however files are put into batches.
    """
    rng = random.Random(seed)
    for number in range(files):
        base = START + timedelta(minutes=20 * number)

        def moment(base: datetime = base) -> datetime:
            return base + timedelta(seconds=10 * rng.randrange(120))

        taste = number * 3
        subscribing = [
            subscription(
                moment(),
                f"r{rng.randrange(8)}",
                f"f{(taste + min(rng.randrange(12), rng.randrange(12))) % 16}",
                rng.choice(["subscribe", "subscribe", "unsubscribe"]),
            )
            for _ in range(40)
        ]
        busy = [(taste + rng.randrange(6)) % 16 for _ in range(150)]
        publishing = [publication(moment(), f"f{flow}", rng.randrange(500)) for flow in busy]
        subscribing.append(subscription(moment(), "", "f1"))
        subscribing.append(subscription(moment(), "r1", "f1", "maybe"))
        publishing.append(publication(moment(), ""))
        publishing.append({"ts": "soon", "flow": "f1", "size": 1})
        if number > 1:
            late = base - timedelta(minutes=41)
            publishing += [publication(late, "f1") for _ in range(number)]
        format_ = ("jsonl", "csv", "parquet")[number % 3]
        written = base + timedelta(minutes=21)
        write(folder / "subscriptions" / f"{number:02d}.{format_}", subscribing, written)
        write(folder / "publications" / f"{number:02d}.{format_}", publishing, written)


def table(spark: SparkSession, job: StreamJob, state: State, name: str) -> list[Any]:
    """A table of the state without positions, sorted."""
    frame = spark.read.parquet(str(job.out / "state" / state.tables[name])).drop("position")
    return sorted(map(tuple, frame.select(*sorted(frame.columns)).collect()), key=str)


def interest_path(job: StreamJob, state: State) -> Path:
    return job.out / "state" / state.tables["actions"] / "action=subscribe"


def history(job: StreamJob) -> list[Row]:
    return [json.loads(line) for line in (job.out / "drift.jsonl").read_text().splitlines()]


def quarantine(spark: SparkSession, job: StreamJob) -> list[Any]:
    rows = spark.read.parquet(str(job.out / "quarantine"))
    return sorted(map(tuple, rows.select("log", "file", "reason", "raw").collect()), key=str)


def plan_bytes(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def everything(spark: SparkSession, job: StreamJob, state: State) -> Row:
    """All that must be the same, however often the stream was killed."""
    versions = sorted((job.out / "plans").iterdir())
    return {
        "tables": {name: table(spark, job, state, name) for name in sorted(state.tables)},
        "counts": state.counts,
        "history": history(job),
        "quarantine": quarantine(spark, job),
        "plan": plan_bytes(job.out / "plan"),
        "plans": {path.name: plan_bytes(path) for path in versions},
    }


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("logs")
    make_logs(folder)
    return folder


@pytest.fixture(scope="module")
def undisturbed(spark: SparkSession, logs: Path) -> tuple[StreamJob, State]:
    job = small_job(logs, "undisturbed")
    return job, stream(spark, job)


def test_interest_rates_and_counts_are_those_of_the_batch_functions(
    spark: SparkSession, logs: Path, undisturbed: tuple[StreamJob, State]
) -> None:
    job, state = undisturbed
    subscribed, published, bad = None, None, 0
    for number, format_ in enumerate(("jsonl", "csv", "parquet", "jsonl")):
        name = f"{number:02d}.{format_}"
        subscriptions = read_subscriptions(spark, str(logs / "subscriptions" / name))
        publications = read_publications(spark, str(logs / "publications" / name))
        bad += subscriptions.quarantined.count() + publications.quarantined.count()
        subscribed = (
            subscriptions.used if subscribed is None else subscribed.union(subscriptions.used)
        )
        used = publications.used.where(
            F.col("ts") >= F.lit(START + timedelta(minutes=20 * number))
        )  # without what is late
        published = used if published is None else published.union(used)
    assert subscribed is not None
    assert published is not None
    interest = interest_at(subscribed)
    kept = spark.read.parquet(str(interest_path(job, state))).select("receiver", "flow")
    assert sorted(kept.collect()) == sorted(interest.collect())

    span = rate_span(state, job.rate_window)
    assert span is not None
    start, end = span
    assert timedelta(hours=1) <= end - start < timedelta(hours=1, minutes=1)
    assert start.second == start.microsecond == 0
    inside = published.where((F.col("ts") >= F.lit(start)) & (F.col("ts") <= F.lit(end)))
    expected = rates_for(
        interest, rates_over(inside, start, end), 1 / (end - start).total_seconds()
    )
    rows = expected.select("flow", "rate").collect()
    assert table(spark, job, state, "rates") == sorted(map(tuple, rows), key=str)

    late = 2 + 3
    assert state.counts["publications"]["reasons"]["late"] == late
    assert len(quarantine(spark, job)) == bad + late
    total = state.counts["publications"]["used"]
    assert total == published.count()
    counts = state.counts["subscriptions"]
    assert counts["used"] + counts["duplicates"] == 4 * 40
    assert [line["batch"] for line in history(job)] == [0, 1, 2, 3]
    assert sum(line["publications"] for line in history(job)) == total


def test_the_plan_serves_everybody_and_is_the_last_version(
    undisturbed: tuple[StreamJob, State],
) -> None:
    job, state = undisturbed
    demand = read_demand(
        interest_path(job, state), job.out / "state" / state.tables["rates"]
    ).demand
    stored = read_plan(job.out / "plan", demand.interest)
    assert plan_problems(stored.plan, demand.interest) == ()
    assert plan_bytes(job.out / "plan") == plan_bytes(job.out / "plans" / f"{state.version:06d}")
    assert len(list((job.out / "plans").iterdir())) == state.version


class StoppedError(Exception):
    pass


def test_a_stream_stopped_at_any_step_ends_as_one_that_was_not(
    spark: SparkSession, logs: Path, undisturbed: tuple[StreamJob, State]
) -> None:
    """20 times in all, at steps drawn by lot; each time another process could go on."""
    rng = random.Random(5)
    job = small_job(logs, "stopped")
    stops, reached = 0, set()
    while stops < 20:
        left = rng.randrange(1, 9)

        def step(name: str) -> None:
            nonlocal left
            left -= 1
            if not left:
                reached.add(name)
                raise StoppedError(name)

        try:
            stream(spark, job, step=step)
        except StoppedError:
            stops += 1
        else:
            break
    assert stops == 20
    assert len(reached) > 10
    state = stream(spark, job)
    before, undisturbed_state = undisturbed
    assert everything(spark, job, state) == everything(spark, before, undisturbed_state)
    assert not list(job.out.glob(".*.tmp"))
    assert {path.name for path in (job.out / "state").iterdir()} <= {*state.folders, *state.kept}
