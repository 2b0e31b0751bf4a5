from __future__ import annotations

import json
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import reduce
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from distributary.cli.stream import _batch_line
from distributary.cost import FilteringCost, evaluate
from distributary.errors import InputError, OutputError
from distributary.files import read_plan
from distributary.model import (
    Constraints,
    Demand,
    Interest,
    Limits,
    Previous,
    Rates,
    broken_constraints,
    plan_problems,
)
from distributary.pipeline import buckets, collecting
from distributary.pipeline import job as job_module
from distributary.pipeline import stream as stream_module
from distributary.pipeline.batches import stream_need
from distributary.pipeline.buckets import BucketTable, Longs, TableFiles, TableKind
from distributary.pipeline.following import FollowedPlan, follow
from distributary.pipeline.ingest import Reason, TimeWindow, read_publications, read_subscriptions
from distributary.pipeline.interest import interest_of, last_actions
from distributary.pipeline.kept_tables import ACTIONS, IDS, KINDS, SLOTS
from distributary.pipeline.ledger import Ledger, LedgerError, LedgerState
from distributary.pipeline.live_demand import LiveDemand
from distributary.pipeline.metrics import StreamMetrics
from distributary.pipeline.rates import publication_digest, rates_for, rates_from
from distributary.pipeline.shapes import LogShape, LogShapes
from distributary.pipeline.stream import StreamHooks, StreamJob, rate_span, stream
from distributary.pipeline.watching import list_arrivals
from distributary.planning import Request
from tests.in_process import call_main
from tests.pipeline.test_rates import judged

from .power import lose_power, note_syncs
from .stream_process import SMALL_SLICES, small_job

START = datetime(2025, 3, 3, 9, 0, tzinfo=UTC)
DAYS = TimeWindow(until=START + timedelta(days=365))
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


BAD_SUBSCRIPTIONS = (
    ({"receiver": ""}, Reason.NO_RECEIVER),
    ({"flow": None}, Reason.NO_FLOW),
    ({"action": "maybe"}, Reason.ACTION),
    ({"ts": None}, Reason.NO_TS),
    ({"ts": "soon"}, Reason.TS),
    ({"ts": "2999-03-06T00:00:00Z"}, Reason.OUTSIDE),
)
BAD_PUBLICATIONS = (
    ({"flow": ""}, Reason.NO_FLOW),
    ({"ts": ""}, Reason.NO_TS),
    ({"ts": "2025-02-30"}, Reason.TS),
    ({"ts": "2999-03-06T00:00:00Z"}, Reason.OUTSIDE),
    ({"size": -1}, Reason.SIZE),
)
SUBSCRIPTION_FILES, PUBLICATION_FILES = 3, 5
FORMATS = ("jsonl", "csv", "parquet")


def file_name(number: int) -> str:
    return f"{number:02d}.{FORMATS[number % 3]}"


def make_logs(
    folder: Path,
    files: int = PUBLICATION_FILES,
    subscription_files: int = SUBSCRIPTION_FILES,
    seed: int = 0,
) -> None:
    """Files of 20 minutes each in all formats, with ties, bad rows, late rows and changing tastes.

    The first files have a row of each bad kind. Late rows come two files late, so that they are
    late however files are put into batches.
    """
    rng = random.Random(seed)
    for number in range(files):
        base = START + timedelta(minutes=20 * number)
        moments = [base + timedelta(seconds=10 * step) for step in range(120)]
        written = base + timedelta(minutes=21)
        taste = number * 3
        busy = [(taste + rng.randrange(6)) % 16 for _ in range(150)]
        publishing = [
            publication(rng.choice(moments), f"f{flow}", rng.randrange(500)) for flow in busy
        ]
        publishing += [publication(base - timedelta(minutes=41), "f1")] * (number > 1)
        subscribing = [
            subscription(
                rng.choice(moments),
                f"r{rng.randrange(8)}",
                f"f{(taste + min(rng.randrange(12), rng.randrange(12))) % 16}",
                rng.choice(["subscribe", "subscribe", "unsubscribe"]),
            )
            for _ in range(40)
        ]
        if number == 0:
            good = subscription(base, "r1", "f1")
            subscribing += [good | change for change, _ in BAD_SUBSCRIPTIONS]
            publishing += [publication(base, "f1") | change for change, _ in BAD_PUBLICATIONS]
        write(folder / "publications" / file_name(number), publishing, written)
        if number < subscription_files:
            write(folder / "subscriptions" / file_name(number), subscribing, written)
    with (folder / "subscriptions" / file_name(0)).open("a") as file:
        file.write('{"ts": "2025-03-\n')
    os.utime(folder / "subscriptions" / file_name(0), (START.timestamp() + 1260,) * 2)


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


@pytest.fixture(autouse=True, scope="module")
def small_slices() -> Iterator[None]:
    """So small that the few rows of a batch make merges of many slices."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SMALL_SLICES.items():
            patch.setattr(buckets, name, value)
        yield


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("logs")
    make_logs(folder)
    return folder


@pytest.fixture(scope="module")
def undisturbed(spark: SparkSession, logs: Path) -> tuple[StreamJob, LedgerState]:
    job = small_job(logs, "undisturbed")
    return job, stream(spark, job)


@pytest.fixture(scope="module")
def more_logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Enough batches to stop 20 times, and enough of them with actions that those are merged."""
    folder = tmp_path_factory.mktemp("more-logs")
    make_logs(folder, files=10, subscription_files=8)
    return folder


@pytest.fixture(scope="module")
def more_undisturbed(spark: SparkSession, more_logs: Path) -> tuple[StreamJob, LedgerState]:
    job = small_job(more_logs, "undisturbed")
    return job, stream(spark, job)


def test_interest_and_rates_are_those_of_the_batch_functions(
    spark: SparkSession, logs: Path, undisturbed: tuple[StreamJob, LedgerState]
) -> None:
    job, state = undisturbed
    subscribed = [
        read_subscriptions(spark, str(logs / "subscriptions" / file_name(number)), DAYS).used
        for number in range(SUBSCRIPTION_FILES)
    ]
    interest = interest_of(last_actions(reduce(DataFrame.union, subscribed))).persist()
    assert wanted_pairs(job, state) == sorted(map(tuple, interest.collect()))

    span = rate_span(state, job)
    assert span is not None
    start, end = span
    assert timedelta(hours=1) <= end - start < timedelta(hours=1, minutes=1)
    assert start.second == start.microsecond == 0
    published = []
    for number in range(PUBLICATION_FILES):
        used = read_publications(spark, str(logs / "publications" / file_name(number)), DAYS).used
        in_time = F.col("ts") >= F.lit(START + timedelta(minutes=20 * number))
        published.append(used.where(in_time & F.col("ts").between(F.lit(start), F.lit(end))))
    rows_in_span = judged(reduce(DataFrame.union, published))
    rates = rates_from(publication_digest(rows_in_span), start, end)
    expected = rates_for(interest, rates, 1 / (end - start).total_seconds())
    rows = expected.select("flow", "rate").collect()
    assert stored_rates(job, state) == {row["flow"]: row["rate"] for row in rows}


def test_each_bad_row_is_counted_and_put_aside_once(
    spark: SparkSession, undisturbed: tuple[StreamJob, LedgerState]
) -> None:
    job, state = undisturbed
    told = state.counts["subscriptions"]
    assert told["used"] + told["duplicates"] == SUBSCRIPTION_FILES * 40
    assert told["reasons"] == {Reason.CORRUPT: 1, **{reason: 1 for _, reason in BAD_SUBSCRIPTIONS}}
    told = state.counts["publications"]
    assert told["used"] == PUBLICATION_FILES * 150
    assert told["reasons"] == {
        Reason.LATE: PUBLICATION_FILES - 2,
        **{reason: 1 for _, reason in BAD_PUBLICATIONS},
    }
    aside = Counter((log, reason) for log, _, reason, _ in quarantine(spark, job))
    assert aside == {
        (log, reason): number
        for log, counts in state.counts.items()
        for reason, number in counts["reasons"].items()
    }


def test_the_history_adds_up(undisturbed: tuple[StreamJob, LedgerState]) -> None:
    job, state = undisturbed
    lines = history(job)
    assert [line["batch"] for line in lines] == list(range(PUBLICATION_FILES))
    assert sum(line["files"] for line in lines) == SUBSCRIPTION_FILES + PUBLICATION_FILES
    assert sum(line["publications"] for line in lines) == state.counts["publications"]["used"]
    assert sum(line["subscriptions"] for line in lines) == state.counts["subscriptions"]["used"]
    for before, line in pairwise(lines):
        assert line["version"] - before["version"] in (0, 1)
        assert line["moves"] <= 1  # 2 % of 16 flows, but one at least
        assert line["version"] > before["version"] or not line["moves"] + line["new"]
    assert lines[-1]["version"] == state.version == len(list((job.out / "plans").iterdir()))


def test_metrics_say_what_the_history_says(undisturbed: tuple[StreamJob, LedgerState]) -> None:
    job, state = undisturbed
    metrics = StreamMetrics(clock=lambda: 12.0)

    def read() -> dict[str, float]:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as page:
            lines = page.read().decode().splitlines()
        values = (line.rpartition(" ") for line in lines if not line.startswith("#"))
        return {
            name.removeprefix("distributary_stream_"): float(value) for name, _, value in values
        }

    with metrics.serve(0) as port:
        assert read() == {}
        metrics.take(state)
        told = read()
    line = history(job)[-1]
    gauges = {
        **{"plan_version": "version", "excess_ratio": "excess", "drift_ratio": "drift"},
        **{"drift_cost": "drift_cost", "drift_share": "drift_share"},
        **{"plan_age_batches": "age_batches", "plan_age_seconds": "age_s"},
        **{"saved": "saved", "saved_share": "saved_share", "moves": "moves", "new_flows": "new"},
    }
    known = {name: line[key] for name, key in gauges.items() if line[key] is not None}
    assert {"drift_cost", "plan_age_seconds"} <= set(known)
    assert {name: told.get(name) for name in gauges if name in told} == known
    assert (told["batches_total"], told["committed_seconds"]) == (PUBLICATION_FILES, 12)
    assert told['rows_total{fate="used",log="publications"}'] == PUBLICATION_FILES * 150
    assert told['quarantined_rows_total{log="publications",reason="late"}'] == 3
    assert told['state_files{table="actions"}'] == len(state.tables["actions"].files)


def test_the_plan_serves_everybody_and_is_the_last_version(
    undisturbed: tuple[StreamJob, LedgerState],
) -> None:
    job, state = undisturbed
    interest = Interest.from_pairs(wanted_pairs(job, state))
    stored = read_plan(job.out / "plan", interest)
    assert plan_problems(stored.plan, interest) == ()
    assert plan_bytes(job.out / "plan") == plan_bytes(job.out / "plans" / f"{state.version:06d}")


def test_other_programs_read_the_interest_as_documented(
    undisturbed: tuple[StreamJob, LedgerState], monkeypatch: pytest.MonkeyPatch
) -> None:
    job, state = undisturbed
    page = Path(__file__).parents[2] / "docs" / "pipeline.md"
    query = page.read_text(encoding="utf-8").split("```sql")[1].split("```")[0]
    monkeypatch.chdir(job.out.parent)
    found = duckdb.sql(query.replace("live/", f"{job.out.name}/")).fetchall()
    assert sorted(found) == wanted_pairs(job, state)


class StoppedError(Exception):
    pass


SETTLING = ("quarantine in place", "version in place", "plan in place", "history in place")


def stops(rng: random.Random) -> list[tuple[str, int]]:
    """Steps to stop before, and at which time that they come: all of them, some while opening."""
    early = [(f"putting bad {log} aside", 1) for log in ("subscriptions", "publications")]
    early += [(f"reading the {log}", 1) for log in ("subscriptions", "publications")]
    early += [("listing the files", 1), ("writing the actions", 1), ("merging the actions", 1)]
    late = [("writing the slots", 1), ("planning", 1), ("planned", 1)]
    late += [("committing", 1), ("committed", 1), ("settled", 1), ("settled", 2)]
    late += [(name, 2) for name in SETTLING] + [(name, 1) for name in SETTLING[2:]]
    # In one batch, so in the middle of a merge.
    merging = [("merging the slots", 2), ("merging the actions", 4), ("merging the slots", 9)]
    return [*rng.sample(early, len(early)), *rng.sample(late, len(late)), *merging]


def test_a_stream_stopped_at_a_few_steps_ends_as_one_that_was_not(
    spark: SparkSession, logs: Path, undisturbed: tuple[StreamJob, LedgerState]
) -> None:
    """The small version of the next test; `test_ledger` stops at every step from the commit on."""
    points = [("merging the actions", 1), ("planned", 1), ("committed", 2)]
    stop_a_stream(spark, small_job(logs, "stopped thrice"), points, undisturbed)


@pytest.mark.slow
def test_a_stream_stopped_at_any_step_ends_as_one_that_was_not(
    spark: SparkSession, more_logs: Path, more_undisturbed: tuple[StreamJob, LedgerState]
) -> None:
    points = stops(random.Random(5))
    assert len(points) >= 20
    stop_a_stream(spark, small_job(more_logs, "stopped"), points, more_undisturbed)


def stop_a_stream(
    spark: SparkSession,
    job: StreamJob,
    points: list[tuple[str, int]],
    undisturbed: tuple[StreamJob, LedgerState],
) -> None:
    for name, time_ in points:
        left = time_

        def step(reached: str, name: str = name, time_: int = time_) -> None:
            nonlocal left
            if reached == "listing the files" and name.startswith("merging"):
                left = time_
            left -= reached == name
            if reached == name and not left:
                raise StoppedError(name)

        with pytest.raises(StoppedError, match=name):
            stream(spark, job, StreamHooks(step=step))
    state = stream(spark, job)
    assert everything(spark, job, state) == everything(spark, *undisturbed)
    assert not list(job.out.glob(".*.tmp"))
    root = job.out / "state"
    left = {path.relative_to(root).as_posix() for path in root.glob("*/*")}
    assert state.paths <= left <= {*state.paths, *state.released}


def test_a_stream_goes_on_after_a_loss_of_power(
    spark: SparkSession,
    logs: Path,
    undisturbed: tuple[StreamJob, LedgerState],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also from what Spark noted, which syncs nothing."""
    job = small_job(logs, "without power")
    synced = note_syncs(monkeypatch)
    for nth, name in ((1, "planned"), (2, "listing the files"), (2, "committed"), (1, "settled")):
        left = [name] * nth

        def stop(reached: str, left: list[str] = left) -> None:
            if reached == left[0]:
                left.pop()
                if not left:
                    raise StoppedError(reached)

        with pytest.raises(StoppedError):
            stream(spark, job, StreamHooks(step=stop))
        lose_power(job.out, synced)
    state = stream(spark, job)
    for kind in KINDS:
        assert table(job, state, kind) == table(undisturbed[0], undisturbed[1], kind)
    assert state.counts == undisturbed[1].counts
    assert quarantine(spark, job) == quarantine(spark, undisturbed[0])
    assert plan_bytes(job.out / "plan") == plan_bytes(job.out / "plans" / f"{state.version:06d}")


def test_a_state_of_the_former_version_is_converted(
    spark: SparkSession, logs: Path, undisturbed: tuple[StreamJob, LedgerState], tmp_path: Path
) -> None:
    """The first batches as a former version left them; killed while converting, and continued."""
    job = small_job(tmp_path)
    for log, files in (("subscriptions", SUBSCRIPTION_FILES), ("publications", PUBLICATION_FILES)):
        (tmp_path / log).mkdir()
        for number in range(files - 1):
            shutil.copy2(logs / log / file_name(number), tmp_path / log / file_name(number))
    stream(spark, job)
    make_former(spark, job)

    def stop(name: str) -> None:
        if name == "committing":
            raise StoppedError(name)

    with pytest.raises(StoppedError):
        stream(spark, job, StreamHooks(step=stop))
    assert json.loads((job.out / "state.json").read_text())["format"] == 1
    for log, files in (("subscriptions", SUBSCRIPTION_FILES), ("publications", PUBLICATION_FILES)):
        shutil.copy2(logs / log / file_name(files - 1), tmp_path / log / file_name(files - 1))
    state = stream(spark, job)
    other, undisturbed_state = undisturbed
    for kind in KINDS:
        assert table(job, state, kind) == table(other, undisturbed_state, kind)
    root = job.out / "state"
    assert state.paths <= {path.relative_to(root).as_posix() for path in root.glob("*/*")}
    stored = json.loads((job.out / "state.json").read_text())
    assert (stored["format"], stored["former"]) == (2, {})


def make_former(spark: SparkSession, job: StreamJob) -> None:
    """Rewrite the state of a stream as version 1 had it: whole tables, written by Spark."""
    with Ledger(job.out).open() as ledger:
        state = ledger.state
        read = {kind.name: pa.concat_tables(ledger.table(kind).read()) for kind in (ACTIONS, SLOTS)}
    folder = job.out / "state" / "000003-former"
    position = F.struct("file", "block", "line").alias("position")
    action = F.when(F.col("on"), "subscribe").otherwise("unsubscribe").alias("action")
    actions = spark.createDataFrame(read["actions"])
    actions.select("receiver", "flow", "ts", position, action).write.partitionBy("action").parquet(
        str(folder / "actions")
    )
    never, time_ = F.lit(None).cast("bigint"), F.timestamp_micros("slot")
    slots = spark.createDataFrame(read["slots"]).select(
        "flow",
        F.lit(None).cast("string").alias("reason"),
        never.alias("span"),
        *("slot", "messages", "bytes", "sized"),
        F.lit(0).cast("bigint").alias("weight"),
        time_.alias("first"),
        time_.alias("last"),
        F.lit(0).cast("bigint").alias("copies"),
    )
    slots.write.parquet(str(folder / "slots"))
    document = json.loads((job.out / "state.json").read_text())
    for name in ("released", "unserved", "former"):
        del document[name]
    document |= {
        "format": 1,
        "folder": folder.name,
        "tables": {name: f"{folder.name}/{name}" for name in ("actions", "slots")},
        "kept": [state.folder],
    }
    (job.out / "state.json").write_text(json.dumps(document))


@pytest.mark.slow
def test_batches_and_partitions_do_not_change_the_state(spark: SparkSession, logs: Path) -> None:
    """As long as nothing is late, which depends on the batch that a row comes in."""
    before = str(spark.conf.get("spark.sql.shuffle.partitions"))
    states = []
    for partitions, files in ((2, 1), (1, 9), (5, 2)):
        name = f"{partitions} partitions, {files} files"
        job = small_job(logs, name, files_per_batch=files, late=timedelta(days=1))
        spark.conf.set("spark.sql.shuffle.partitions", partitions)
        try:
            state = stream(spark, job)
        finally:
            spark.conf.set("spark.sql.shuffle.partitions", before)
        assert state.batch + 1 == -(-PUBLICATION_FILES // files)
        tables = [table(job, state, kind) for kind in KINDS]
        states.append((tables, state.counts["publications"], stored_rates(job, state)))
    assert states[0] == states[1] == states[2]


def test_newcomers_are_served_at_once_and_no_change_is_no_version(
    spark: SparkSession, tmp_path: Path
) -> None:
    names = [(f"r{r}", f"f{f}") for r in range(6) for f in range(8) if (r + f) % 3 == 0]
    job = small_job(tmp_path, files_per_batch=10, drift=10.0)

    def arrive(number: int, subscribing: list[Row], messages: int = 3) -> LedgerState:
        at = START + timedelta(minutes=10 * number)
        if subscribing:
            write(tmp_path / "subscriptions" / f"{number}.csv", subscribing, at)
        publishing = [publication(at, f"f{flow}") for flow in range(8)] * messages
        write(tmp_path / "publications" / f"{number}.parquet", publishing, at)
        return stream(spark, job)

    assert arrive(0, [subscription(START, *pair) for pair in names]).version == 1
    assert arrive(1, []).version == 1
    assert history(job)[-1]["drift"] == pytest.approx(0)
    at = START + timedelta(minutes=20)
    gone = [subscription(at, r, f, "unsubscribe") for r, f in names if f == "f2"]
    assert arrive(2, [subscription(at, "ann", "new"), *gone]).version == 2
    placed = {
        row["flow"]: row["session"]
        for row in pq.read_table(job.out / "plan" / "placements.parquet").to_pylist()
    }
    heard = pq.read_table(job.out / "plan" / "subscriptions.parquet").to_pylist()
    assert "f2" not in placed
    assert {row["session"] for row in heard if row["receiver"] == "ann"} == {placed["new"]}
    line = history(job)[-1]
    assert (line["moves"], line["new"]) == (0, 1)
    # The plan was completed, and is as old as before.
    assert (line["age_batches"], line["age_s"]) == (2, 1200)


def test_the_history_says_how_old_the_plan_is_and_what_moving_flows_saved(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Three circles of receivers in two groups: the two that publish least share one."""
    pairs = [(f"r{r}", f"f{f}") for r in range(6) for f in range(8) if (r + f) % 3 == 0]
    job = small_job(tmp_path, files_per_batch=10, max_moves=8)
    states = []

    def arrive(number: int, messages: dict[int, int]) -> None:
        at = START + timedelta(minutes=10 * number)
        subscribing = [subscription(at, *pair) for pair in pairs]
        publishing = [publication(at, f"f{f}") for f in range(8) for _ in range(messages[f % 3])]
        write(tmp_path / "subscriptions" / f"{number}.csv", subscribing, at)
        write(tmp_path / "publications" / f"{number}.parquet", publishing, at)
        states.append(stream(spark, job))

    def cost_of(version: int, state: LedgerState) -> FilteringCost:
        rates = stored_rates(job, state)
        demand = Demand.of(Interest.from_pairs(pairs), Rates.from_mapping(rates))
        return evaluate(read_plan(job.out / "plans" / f"{version:06d}").plan, demand).filtering

    arrive(0, {0: 90, 1: 2, 2: 3})
    arrive(1, {0: 90, 1: 2, 2: 9})
    arrive(2, {0: 1, 1: 2, 2: 900})
    arrive(3, {0: 1, 1: 4, 2: 900})
    made, kept, moved, left = history(job)
    first, second = (cost_of(version, states[2]) for version in (made["version"], moved["version"]))
    assert first.excess > second.excess
    assert (moved["moves"] > 0, kept["moves"], left["moves"]) == (True, 0, 0)
    assert moved["saved"] == pytest.approx(first.excess - second.excess)
    assert moved["saved_share"] == pytest.approx((first.excess - second.excess) / first.work)
    now, reference = cost_of(left["version"], states[3]), second.relative_excess
    drift_cost = now.excess - reference * now.flooding_excess
    assert left["drift_cost"] == pytest.approx(drift_cost)
    assert left["drift_share"] == pytest.approx(drift_cost / now.work)
    assert drift_cost != pytest.approx(0)
    ages = [(line["age_batches"], line["age_s"]) for line in (made, kept, moved, left)]
    assert ages == [(0, 0), (1, 600), (0, 0), (1, 600)]
    assert [line["saved"] for line in (made, kept, left)] == [None, None, moved["saved"]]


def test_limits_hold_in_every_version_and_one_that_cannot_is_not_put_in_force(
    spark: SparkSession, tmp_path: Path
) -> None:
    within = Constraints(Limits(group_members=2, receiver_groups=1))
    request = Request(groups=2, constraints=within, budget_s=0.01, patience=math.inf)
    job = small_job(tmp_path, files_per_batch=10, request=request)
    wanted = {("r0", "f0"), ("r1", "f0"), ("r2", "f1"), ("r3", "f1")}
    batches = iter(range(9))

    def arrive(changes: list[tuple[str, str, str]]) -> LedgerState:
        number = next(batches)
        at = START + timedelta(minutes=10 * number)
        rows = [subscription(at, *change) for change in changes]
        write(tmp_path / "subscriptions" / f"{number}.csv", rows, at)
        publishing = [publication(at, "f0"), publication(at, "f1")]
        write(tmp_path / "publications" / f"{number}.parquet", publishing, at)
        return stream(spark, job)

    def check_plan(wants: set[tuple[str, str]]) -> None:
        interest = Interest.from_pairs(sorted(wants))
        kept = read_plan(job.out / "plan", interest).plan
        assert plan_problems(kept, interest) == ()
        assert broken_constraints(kept, Demand(interest, np.ones(2)), within) == ()

    assert arrive([(*pair, "subscribe") for pair in sorted(wanted)]).version == 1
    check_plan(wanted)
    state = arrive([("r4", "f0", "subscribe")])  # three receivers of one flow
    assert state.version == 1
    check_plan(wanted)
    line = history(job)[-1]
    assert line["refused"].startswith("infeasible: ")
    assert (line["unserved"], line["version"], line["excess"]) == (1, 1, None)
    assert state.unserved is not None
    unserved = pq.read_table(job.out / "state" / state.unserved)
    assert unserved.to_pylist() == [{"receiver": "r4", "flow": "f0"}]
    assert f"version 1 stays: {line['refused']}; 1 wanted pairs" in _batch_line(line, 0.1)
    state = arrive([("r0", "f0", "unsubscribe")])
    assert state.version == 2
    check_plan(wanted - {("r0", "f0")} | {("r4", "f0")})
    assert "refused" not in history(job)[-1]
    assert state.unserved is None


def test_messages_with_ids_count_once_whatever_file_they_come_in(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sent(minute: int, number: int) -> Row:
        return publication(START + timedelta(minutes=minute), "f") | {"id": number}

    asked: list[tuple[int, int]] = []  # how many ids, and how many rows were found
    find = BucketTable.find

    def note_find(stored: BucketTable, keys: Longs) -> pa.Table:
        found = find(stored, keys)
        if stored.kind is IDS:
            asked.append((len(set(keys.tolist())), found.num_rows))
        return found

    monkeypatch.setattr(BucketTable, "find", note_find)
    (tmp_path / "subscriptions").mkdir()
    files = {
        "0.parquet": [sent(0, 0), sent(20, 1), sent(20, 1)],  # here ids are numbers, there text
        "1.csv": [sent(20, 1), sent(0, 0), sent(19, 2), sent(30, 3)],
        "2.csv": [sent(31, 4), sent(32, 5), sent(32, 6)],
    }
    for number, (name, rows) in enumerate(files.items()):
        write(tmp_path / "publications" / name, rows, START + timedelta(hours=1 + number))
    (tmp_path / "publications" / "half.csv.tmp").write_text("not yet")
    (tmp_path / "publications" / "empty.csv").write_text("")
    state = stream(spark, small_job(tmp_path))
    assert state.counts["publications"] == {
        "used": 7,
        "duplicates": 2,
        "reasons": {Reason.LATE: 1},  # 0 again, but long after
    }
    assert asked == [(3, 1), (3, 0)]  # what is stored is not read but for the ids of the batch
    kept = table(small_job(tmp_path), state, IDS)
    assert [row["id"] for row in kept][-4:] == ["3", "4", "5", "6"]  # a merge may drop older ones
    assert state.version == 0
    assert history(small_job(tmp_path))[-1]["excess"] is None


@pytest.mark.parametrize("name", ["live", "nested/-live ü 100%#+"])
def test_a_stream_may_write_to_a_relative_folder_of_any_name(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("subscriptions/0.csv"), [subscription(START, "ann", "f")], START)
    write(Path("publications/0.csv"), [publication(START, "f")], START)
    job = replace(
        small_job(tmp_path),
        out=Path(name),
        subscriptions="subscriptions",
        publications="publications",
    )
    for _ in range(2):  # the second time it goes on from what is there
        state = stream(spark, job)
        assert state.counts["subscriptions"]["used"] == 1
    made = {path.name for path in (tmp_path / name).iterdir()}
    assert made == {".lock", "checkpoint", "drift.jsonl", "plan", "plans", "state", "state.json"}
    outside = {"subscriptions", "publications", Path(name).parts[0]}
    assert {path.name for path in tmp_path.iterdir()} == outside


def test_an_id_counts_once_in_a_batch_of_several_formats(
    spark: SparkSession, tmp_path: Path
) -> None:
    def sent(minute: int, number: int) -> Row:
        return publication(START + timedelta(minutes=minute), "f") | {"id": number}

    (tmp_path / "subscriptions").mkdir()
    files = {
        "0.csv": [sent(0, 1), sent(1, 2), sent(1, 2)],
        "1.jsonl": [sent(0, 1), sent(2, 3)],
        "2.parquet": [sent(3, 1), sent(2, 3), sent(4, 4)],
        "3.csv": [publication(START, "f")],
    }
    for name, rows in files.items():
        write(tmp_path / "publications" / name, rows, START + timedelta(hours=1))
    state = stream(spark, small_job(tmp_path, files_per_batch=10))
    assert state.batch == 0
    assert state.counts["publications"] == {"used": 5, "duplicates": 4, "reasons": {}}
    kept = table(small_job(tmp_path), state, IDS)
    assert [row["id"] for row in kept] == ["1", "2", "3", "4"]


@pytest.mark.parametrize("named", [False, True])
def test_an_id_counts_once_after_many_messages_without_one(
    spark: SparkSession, tmp_path: Path, named: bool
) -> None:
    (tmp_path / "subscriptions").mkdir()
    plain = [publication(START, "f")] * 120
    known = [publication(START, "f") | {"id": "x"}]
    write(tmp_path / "publications" / "0.jsonl", plain + 2 * known, START)
    write(tmp_path / "publications" / "1.jsonl", plain + known, START + timedelta(minutes=1))
    shape = LogShape({"id": "id"} if named else {})
    state = stream(spark, small_job(tmp_path, shapes=LogShapes(publications=shape)))
    assert state.batch == 1
    assert state.counts["publications"] == {"used": 241, "duplicates": 2, "reasons": {}}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"flow": "topic"}, "has no 'topic', which --column names for 'flow', only 'ts', 'flow'"),
        ({"id": "offset"}, "has no 'offset', which --column names for 'id'"),
    ],
)
def test_a_column_that_json_lines_do_not_have_ends_the_stream_with_nothing_read(
    spark: SparkSession, tmp_path: Path, columns: dict[str, str], message: str
) -> None:
    (tmp_path / "subscriptions").mkdir()
    for number in range(2):
        at = START + timedelta(minutes=number)
        write(tmp_path / "publications" / f"{number}.jsonl", [publication(at, "f")] * 3, at)
    wrong = LogShapes(publications=LogShape(columns))
    with pytest.raises(InputError, match=re.escape(message)):
        stream(spark, small_job(tmp_path, shapes=wrong))
    state = stream(spark, small_job(tmp_path))
    assert state.counts["publications"] == {"used": 6, "duplicates": 0, "reasons": {}}


def test_a_batch_without_a_column_that_earlier_ones_had_is_put_aside_and_noted(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "subscriptions").mkdir()
    for number, name in enumerate(["flow", "topic"]):
        at = START + timedelta(minutes=number)
        rows = [{"ts": at.isoformat(), name: "f"}] * 3
        write(tmp_path / "publications" / f"{number}.jsonl", rows, at)
    notes: list[str] = []
    state = stream(spark, small_job(tmp_path), StreamHooks(note=notes.append))
    assert state.counts["publications"]["reasons"] == {Reason.NO_FLOW: 3}
    assert notes == [
        "batch 1: all 3 rows of the publications are put aside: no flow; if it is now elsewhere, "
        "start again with --column publications.flow=PATH"
    ]


def test_a_damaged_file_stops_the_stream_until_it_is_taken_out(
    spark: SparkSession, tmp_path: Path
) -> None:
    job = small_job(tmp_path)
    (tmp_path / "subscriptions").mkdir()
    write(tmp_path / "publications" / "0.csv", [publication(START, "f")], START)
    damaged = tmp_path / "publications" / "1.parquet"
    damaged.write_text("no Parquet at all")
    with pytest.raises(InputError, match=r"1\.parquet.*damaged"):
        stream(spark, job)
    damaged.unlink()
    assert stream(spark, job).counts["publications"]["used"] == 1


def test_files_that_were_read_may_be_moved_away_and_their_paths_do_not_come_back(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "subscriptions").mkdir()
    first, second = (tmp_path / "publications" / f"{number}.csv" for number in range(2))
    write(first, [publication(START, "f")], START)
    job = small_job(tmp_path)
    assert stream(spark, job).counts["publications"]["used"] == 1
    (tmp_path / "archive").mkdir()
    first.rename(tmp_path / "archive" / first.name)
    write(second, [publication(START, "f")] * 2, START)
    assert stream(spark, job).counts["publications"]["used"] == 3
    write(first, [publication(START, "f")] * 4, START + timedelta(hours=1))
    assert stream(spark, job).counts["publications"]["used"] == 3


def test_drift_moves_flows_but_no_more_than_allowed() -> None:
    """Two circles swap a flow; with one move at a time the plan comes after in two steps."""
    flows = [f"f{number}" for number in range(8)]

    def liked(swapped: int) -> Demand:
        circle = ["abc"] * 4 + ["xyz"] * 4
        circle[:swapped], circle[4 : 4 + swapped] = ["xyz"] * swapped, ["abc"] * swapped
        pairs = [(r, f) for f, own in zip(flows, circle, strict=True) for r in own]
        return Demand(Interest.from_pairs(pairs), np.ones(8))

    request = Request(groups=2, budget_s=60)
    followed = follow(liked(0), request, None, None, drift=0.1)
    assert (followed.excess, followed.moves, followed.new) == (0, 0, 8)
    told = []
    for _ in range(3):
        start = previous_of(followed)
        followed = follow(liked(1), request, start, followed.reference, drift=0.1, max_moves=1)
        told.append((followed.moves, followed.excess > 0, followed.drift))
    assert told == [(1, True, 1), (1, False, 1), (0, False, 0)]

    start = previous_of(followed)
    moved = follow(liked(0), request, start, 0.0, drift=0.1)
    still = follow(liked(0), request, start, 0.0, drift=0.1, max_moves=0)
    assert follow(liked(0), request, start, 0.0, drift=2.0).moves == 0
    assert (moved.moves, still.moves) == (1, 0)
    assert still.excess > moved.excess


def test_drift_counts_from_the_excess_that_no_more_moves_can_lower() -> None:
    pairs = [(r, f) for r, own in {"a": "xy", "b": "yz", "c": "zx"}.items() for f in own]
    demand = Demand(Interest.from_pairs(pairs), np.ones(3))
    request = Request(groups=2, budget_s=60)
    best = follow(demand, request, None, None, drift=0.1)
    followed = follow(demand, request, previous_of(best), best.excess / 2, drift=0.1)
    assert followed.drift == pytest.approx(1)
    assert followed.reference == followed.excess == best.excess


def previous_of(followed: FollowedPlan) -> Previous:
    plan = followed.made.solution.plan
    names = [plan.flows[flow] for flow in plan.placement_flow]
    return Previous(
        dict(zip(names, map(int, plan.placement_session), strict=True)), plan.session_group
    )


# --- the folder of a stream ----------------------------------------------------------------------


def copied(undisturbed: tuple[StreamJob, LedgerState], tmp_path: Path) -> StreamJob:
    job, _ = undisturbed
    shutil.copytree(job.out, tmp_path / "out")
    return replace(job, out=tmp_path / "out")


@pytest.mark.parametrize("lost", ["state.json", "checkpoint"])
def test_half_a_stream_is_refused(
    spark: SparkSession, undisturbed: tuple[StreamJob, LedgerState], tmp_path: Path, lost: str
) -> None:
    job = copied(undisturbed, tmp_path)
    path = job.out / lost
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(LedgerError, match="not of one stream"):
        stream(spark, job)


def test_settings_that_do_not_fit_are_refused(
    spark: SparkSession, undisturbed: tuple[StreamJob, LedgerState]
) -> None:
    job, _ = undisturbed
    with pytest.raises(LedgerError, match="slots of 60 s"):
        stream(spark, replace(job, rate_window=timedelta(hours=2)))
    with pytest.raises(LedgerError, match="more than asked"):
        stream(spark, replace(job, request=Request(groups=1)))


def test_a_folder_is_for_one_stream_at_a_time(
    spark: SparkSession, undisturbed: tuple[StreamJob, LedgerState]
) -> None:
    job, _ = undisturbed
    with Ledger(job.out).open(), pytest.raises(LedgerError, match="another stream"):
        stream(spark, job)


def test_a_folder_with_other_things_is_left_alone(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("")
    with pytest.raises(OutputError, match="other things"):
        stream(spark, small_job(tmp_path))


def test_a_folder_that_is_not_there_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        stream(spark, small_job(tmp_path))


def test_interest_beyond_the_limit_is_refused_and_ended_pairs_count(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "publications").mkdir()
    ended = [subscription(START, f"r{n}", f"f{n}", "unsubscribe") for n in range(50)]
    rows = [subscription(START, "ann", "f"), *ended]
    write(tmp_path / "subscriptions" / "0.csv", rows, START)
    with pytest.raises(
        InputError,
        match=r"1 pairs of interest and 50 that ended take about .*--driver-limit.*`pipeline run`",
    ):
        stream(spark, small_job(tmp_path, driver_limit=1_000))


def test_a_batch_too_large_to_collect_is_refused_before_and_read_with_more_memory(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "publications").mkdir()
    monkeypatch.setattr(collecting, "_AT_ONCE", 0)
    monkeypatch.setattr(collecting.pq, "read_table", lambda path: pytest.fail("read"))
    rows = [subscription(START, f"r{n}", "f") for n in range(50)]
    write(tmp_path / "subscriptions" / "0.csv", rows, START)
    with pytest.raises(InputError, match=r"batch 0 comes to 50 different rows.*--driver-limit"):
        stream(spark, small_job(tmp_path, driver_limit=14_999))
    monkeypatch.undo()
    assert stream(spark, small_job(tmp_path)).counts["subscriptions"]["used"] == 50


def test_a_backlog_of_large_files_comes_in_several_batches(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "publications").mkdir()
    monkeypatch.setattr(job_module, "_LEAST_BATCH", 1)
    rows = [subscription(START, f"r{n}", "f") for n in range(500)]
    for number in range(4):
        write(tmp_path / "subscriptions" / f"{number}.csv", rows, START)
    size = (tmp_path / "subscriptions" / "0.csv").stat().st_size
    job = small_job(tmp_path, files_per_batch=None, driver_limit=16 * int(2.5 * size))
    state = stream(spark, job)
    assert [line["files"] for line in history(job)] == [2, 2]
    assert state.counts["subscriptions"] == {"used": 1000, "duplicates": 1000, "reasons": {}}


def test_names_and_pairs_that_are_gone_count_as_memory() -> None:
    size = Request(groups=2, sessions=4).size
    demand = LiveDemand()

    def act(receiver: str, flow: str, time_: int, *, on: bool) -> None:
        row = {"receiver": receiver, "flow": flow, "ts": time_, "on": on}
        demand.apply(pa.Table.from_pylist([row]), None, 1.0, lambda rows: np.zeros(0, np.bool_))

    act("ann", "f", 1, on=True)
    least = stream_need(demand, size)
    needs = []
    for number in range(100):
        act(f"r{number}", f"f{number}", 2, on=True)
        act(f"r{number}", f"f{number}", 3, on=False)
        needs.append(stream_need(demand, size))
    assert (demand.pairs, demand.ended_pairs) == (1, 100)
    assert needs == sorted(needs)
    assert needs[-1] - least >= 100 * (30 + 2 * 150)


class _Asked(StreamJob):
    """A job that ends the command that asks for it."""

    def __post_init__(self) -> None:
        raise ValueError(f"limit {self.driver_limit}, base {self.base}")


@pytest.mark.parametrize(
    ("more", "status", "said"),
    [
        ((), 2, f"limit {4 * 2**30}, base None"),
        (("--driver-limit", "6GiB", "--base", "file:///b"), 2, f"limit {6 * 2**30}, base /b"),
        (("--base", "s3a://b/plan"), 1, "error: s3a://b/plan: the base of a stream is looked at"),
    ],
)
def test_the_command_takes_a_limit_and_a_base_on_a_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...], status: int, said: str
) -> None:
    monkeypatch.setattr(stream_module, "StreamJob", _Asked)
    words = ("--subscriptions", "s", "--publications", "p", "--groups", "2", "--out", "out", *more)
    found, _, told = call_main(("distributary", "pipeline", "stream", *words), tmp_path)
    assert found == status
    assert said in " ".join(told.replace("\u2502", " ").split())
    assert status == 2 or told.count("\n") == 1
    assert not (tmp_path / "out").exists()


# --- Kafka ---------------------------------------------------------------------------------------


def test_kafka_without_its_package_says_which_one(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "subscriptions").mkdir()
    with pytest.raises(InputError, match="spark-sql-kafka"):
        stream(spark, small_job(tmp_path, publications="kafka://localhost:9092/messages"))
    with pytest.raises(InputError, match="kafka://host:port/topic"):
        stream(spark, small_job(tmp_path, publications="kafka://localhost"))


def test_lines_out_of_kafka_are_judged_like_lines_of_files(spark: SparkSession) -> None:
    rows = [
        (json.dumps(subscription(START, "ann", "f")), 0, 7),
        (json.dumps(subscription(START, "ann", "f", "unsubscribe")), 0, 8),
        ("{", 1, 0),
    ]
    batch = spark.createDataFrame(rows, "value STRING, block BIGINT, line BIGINT").withColumns(
        {"log": F.lit("subscriptions"), "path": F.lit("kafka://h/t"), "length": F.lit(0)}
    )
    part = list_arrivals(batch, {"subscriptions": "kafka://h/t"})["subscriptions"]
    log = read_subscriptions(spark, part.sources[0])
    assert interest_of(last_actions(log.valid)).count() == 0  # the later offset wins
    assert [tuple(row) for row in log.quarantined.collect()] == [
        ("subscriptions", "kafka://h/t", Reason.CORRUPT, "{")
    ]


# --- killed from outside -------------------------------------------------------------------------


def started(*words: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.pipeline.stream_process", *map(str, words)],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
        process_group=0,
    )


def finish(folder: Path, job: StreamJob) -> LedgerState:
    process = started(folder, job.out.name)
    process.communicate()
    assert process.returncode == 0
    with Ledger(job.out).open() as ledger:
        return ledger.state


def read_batches(job: StreamJob) -> list[list[str]]:
    """The files of each batch, as Spark noted them."""
    sources = sorted((job.out / "checkpoint" / "sources").iterdir())
    noted: list[dict[str, int]] = [{} for _ in sources]
    for source, of in zip(sources, noted, strict=True):
        for note in source.glob("[0-9]*"):
            entries = map(json.loads, note.read_text().splitlines()[1:])
            of |= {urlsplit(entry["path"]).path: entry["batchId"] for entry in entries}
    done, batches = [-1] * len(sources), []
    for note in sorted((job.out / "checkpoint" / "offsets").glob("[0-9]*"), key=note_number):
        offsets = [json.loads(line) for line in note.read_text().splitlines()[2:]]
        ends = [offset["logOffset"] for offset in offsets]
        parts = zip(noted, done, ends, strict=True)
        batches.append(
            sorted(path for of, was, is_ in parts for path in of if was < of[path] <= is_)
        )
        done = ends
    return batches


def plan_batches(spark: SparkSession, batches: list[list[str]], folder: Path) -> Row:
    """The plans and the history of an unbroken stream with these batches."""
    job = small_job(folder, files_per_batch=100)
    for log in job.logs.values():
        Path(log).mkdir(parents=True)
    for files in batches:
        for file in files:
            shutil.copy2(file, folder / Path(file).parent.name)
        state = stream(spark, job)
    found = everything(spark, job, state)
    return {key: found[key] for key in ("history", "plan", "plans")}


def note_number(note: Path) -> int:
    return int(note.name.removesuffix(".compact"))


@pytest.mark.slow
def test_the_batches_that_spark_noted_are_planned_alike(
    spark: SparkSession, undisturbed: tuple[StreamJob, LedgerState], tmp_path: Path
) -> None:
    """What the test below compares with, should batches differ."""
    batches = read_batches(undisturbed[0])
    assert sum(map(len, batches)) == SUBSCRIPTION_FILES + PUBLICATION_FILES
    found = everything(spark, *undisturbed)
    same = plan_batches(spark, batches, tmp_path)
    assert same == {key: found[key] for key in same}
    joined = plan_batches(spark, [batches[0] + batches[1], *batches[2:]], tmp_path / "joined")
    assert joined["history"] != same["history"]


def steps_of_batch(spark: SparkSession, folder: Path, number: int) -> list[tuple[str, int]]:
    """The steps of a batch up to its commit, each with how often it came by then."""
    steps: list[tuple[str, int]] = []
    seen = Counter[str]()

    def step(name: str) -> None:
        seen[name] += 1
        if seen["listing the files"] == number + 1:
            steps.append((name, 1 + sum(name == one for one, _ in steps)))
            if name == "committed":
                raise StoppedError(name)

    with pytest.raises(StoppedError):
        stream(spark, small_job(folder, f"steps of batch {number}"), StreamHooks(step=step))
    return steps


def test_a_stream_killed_within_a_merge_ends_as_one_that_was_not(
    spark: SparkSession, logs: Path, undisturbed: tuple[StreamJob, LedgerState]
) -> None:
    """With SIGKILL; the slow tests kill at all other steps, too."""
    job = small_job(logs, "killed within a merge")
    process = started(logs, job.out.name, "merging the slots", 7)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    state = stream(spark, job)
    assert everything(spark, job, state) == everything(spark, *undisturbed)


@pytest.mark.slow
def test_a_batch_killed_at_each_of_its_steps_ends_as_one_that_was_not(
    spark: SparkSession, more_logs: Path, more_undisturbed: tuple[StreamJob, LedgerState]
) -> None:
    """With SIGKILL, always in the eighth batch: it reads both logs, and merges in both tables."""
    job, batch = small_job(more_logs, "killed"), 7
    points = steps_of_batch(spark, more_logs, batch)
    for kind in (ACTIONS, SLOTS):
        assert (f"merging the {kind.name}", 7) in points  # so a merge is cut in its middle
    points = [(name, nth) for name, nth in points if nth in (1, 2, 4, 6)]
    # After the commit the start puts all in its place, and is killed at it as well.
    points += [(name, 1) for name in (*SETTLING, "settled")]
    assert len(points) >= 20

    def stop(name: str, left: Iterator[int] = iter(range(batch, -1, -1))) -> None:  # noqa: B008
        if name == "listing the files" and not next(left):
            raise StoppedError(name)

    with pytest.raises(StoppedError):
        stream(spark, job, StreamHooks(step=stop))
    for name, nth in points:
        process = started(more_logs, job.out.name, name, nth)
        process.communicate()
        assert process.returncode == -signal.SIGKILL, name
    state = finish(more_logs, job)
    assert everything(spark, job, state) == everything(spark, *more_undisturbed)


@pytest.mark.slow
def test_a_stream_killed_20_times_ends_as_one_that_was_not(
    spark: SparkSession,
    more_logs: Path,
    more_undisturbed: tuple[StreamJob, LedgerState],
    tmp_path: Path,
) -> None:
    """With SIGKILL, at a moment after a step, both drawn by lot; Spark and Python die together."""
    rng = random.Random(20)
    job = small_job(more_logs)
    for _ in range(20):
        process = started(more_logs, "out")
        assert process.stdout is not None
        for _ in range(rng.randrange(1, 20)):
            process.stdout.readline()
        time.sleep(rng.uniform(0, 0.5))
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
    state = finish(more_logs, job)
    ours, theirs = everything(spark, job, state), everything(spark, *more_undisturbed)
    batches = read_batches(job)
    if batches != read_batches(more_undisturbed[0]):
        # Killed between Spark's notes on a source and those on the batch, which makes the next
        # batch larger: what was counted is the same, and the plans are those of these batches.
        theirs |= plan_batches(spark, batches, tmp_path)
    assert ours == theirs
    assert len(ours["plans"]) >= 5


@pytest.mark.slow
def test_ctrl_c_ends_a_stream_whole(
    spark: SparkSession, undisturbed: tuple[StreamJob, LedgerState], tmp_path: Path
) -> None:
    job, _ = undisturbed
    command = [sys.executable, "-m", "distributary", "pipeline", "stream", "--json"]
    command += ["--subscriptions", job.subscriptions, "--publications", job.publications]
    command += ["--groups", "2", "--sessions", "4", "--out", str(tmp_path / "out")]
    command += ["--master", "local[2]", "--conf", "spark.driver.memory=1g", "--trigger", "1s"]
    command += ["--metrics", "0"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0
    )
    assert process.stdout is not None
    assert process.stderr is not None
    line = json.loads(process.stdout.readline())
    address = next(note for note in process.stderr if note.startswith("metrics at ")).split()[-1]
    with urllib.request.urlopen(address, timeout=30) as page:
        assert "\ndistributary_stream_batches_total 1.0\n" in page.read().decode()
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert (line["batch"], process.returncode) == (0, 130)
    assert "Traceback" not in errors
    with Ledger(tmp_path / "out").open() as ledger:
        times = ("seconds", "planning_seconds")
        assert ledger.state.entry == {key: line[key] for key in line if key not in times}
        assert 0 < line["planning_seconds"] < line["seconds"]
