"""Streams that are killed from outside, or interrupted."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from pyspark.sql import SparkSession

from distributary.pipeline.kept_tables import ACTIONS, SLOTS
from distributary.pipeline.ledger import Ledger, LedgerState
from distributary.pipeline.stream import StreamHooks, StreamJob, stream

from .stream_logs import PUBLICATION_FILES, SUBSCRIPTION_FILES, Row
from .stream_outcome import everything
from .stream_process import SETTLING, StoppedError, small_job, start_stream

pytestmark = pytest.mark.usefixtures("small_slices")


def finish(folder: Path, job: StreamJob) -> LedgerState:
    process = start_stream(folder, job.out.name)
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
    """With SIGKILL, as few merges are; `test_stream_stops` stops there without a new process."""
    job = small_job(logs, "killed within a merge")
    process = start_stream(logs, job.out.name, "merging the slots", 7)
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
        process = start_stream(more_logs, job.out.name, name, nth)
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
        process = start_stream(more_logs, "out")
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
