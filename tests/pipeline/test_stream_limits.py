"""What a stream may hold in memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from distributary.errors import InputError
from distributary.pipeline import collecting
from distributary.pipeline import job as job_module
from distributary.pipeline import stream as stream_module
from distributary.pipeline.batches import stream_need
from distributary.pipeline.live_demand import LiveDemand
from distributary.pipeline.stream import StreamJob, stream
from distributary.planning import Request
from tests.in_process import call_main

from .stream_logs import START, subscription, write
from .stream_outcome import history
from .stream_process import small_job

pytestmark = pytest.mark.usefixtures("small_slices")


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
