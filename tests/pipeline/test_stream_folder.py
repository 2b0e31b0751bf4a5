"""The folder of a stream, and whose it is."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from distributary.errors import InputError, OutputError
from distributary.pipeline.ledger import Ledger, LedgerError, LedgerState
from distributary.pipeline.stream import StreamJob, stream
from distributary.planning import Request

from .stream_logs import START, publication, subscription, write
from .stream_process import small_job

pytestmark = pytest.mark.usefixtures("small_slices")


def test_a_stream_may_write_to_a_relative_folder_of_any_name(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "nested/-live ü 100%#+"
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
