"""A stream that stops at any step, or loses power, ends as one that did not."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from distributary.pipeline.kept_tables import KINDS
from distributary.pipeline.ledger import LedgerState
from distributary.pipeline.stream import StreamHooks, StreamJob, stream

from .power import lose_power, note_syncs
from .stream_outcome import everything, plan_bytes, quarantine, table
from .stream_process import SETTLING, StoppedError, small_job

pytestmark = pytest.mark.usefixtures("small_slices")


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
    job = small_job(logs, "without power", files_per_batch=2)
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
