"""Runs that are watched: the order of what is told, and Spark's own counts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from distributary.pipeline.progress import StageCount, StepState, Tracker
from distributary.pipeline.stages import SparkStages
from distributary.pipeline.steps import RunEnd, StepWatch, say


class Recorder:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []
        self.ended: dict[str, StepState] = {}
        self.end: RunEnd | None = None

    def start_run(self) -> None:
        self.told.append(("started", ""))

    def begin_step(self, step: StepState) -> None:
        self.told.append(("begin", step.name))

    def move_step(self, step: StepState) -> None:
        if self.told[-1] != ("move", step.name):
            self.told.append(("move", step.name))

    def end_step(self, step: StepState) -> None:
        self.told.append(("end", step.name))
        self.ended[step.name] = step

    def end_run(self, end: RunEnd) -> None:
        self.told.append((str(end.ending), ""))
        self.end = end


@pytest.fixture
def table(tmp_path: Path) -> Callable[[int], str]:
    def write(rows: int) -> str:
        path = tmp_path / f"{rows}"
        path.mkdir()
        half = rows // 3
        for part, some in enumerate((half, rows - half)):
            pq.write_table(pa.table({"n": list(range(some))}), path / f"{part}.parquet")
        return str(path)

    return write


def test_rows_read_are_the_rows_of_the_input(
    spark: SparkSession, table: Callable[[int], str]
) -> None:
    recorder = Recorder()
    once, twice = spark.read.parquet(table(1_234)), spark.read.parquet(table(5_678))
    with StepWatch([recorder]) as watch, watch.follow(spark):
        say(spark, "reading once")
        once.groupBy((F.col("n") % 7).alias("k")).count().collect()
        say(spark, "reading twice")
        for _ in range(2):
            twice.agg(F.sum("n")).collect()
        say(spark, "no rows")
        say(spark, None)
        summary = watch.summarize()
    assert {name: step.rows for name, step in recorder.ended.items()} == {
        "reading once": 1_234,
        "reading twice": 2 * 5_678,
        "no rows": None,
    }
    assert [step.rows for step in summary.steps[:2]] == [1_234, 2 * 5_678]
    told = [event for event in recorder.told if event[0] != "move"]
    names = ("reading once", "reading twice", "no rows")
    assert told == [
        ("started", ""),
        *((kind, name) for name in names for kind in ("begin", "end")),
        ("finished", ""),
    ]


def test_only_stages_from_now_on_are_read_and_each_that_ended_once(spark: SparkSession) -> None:
    spark.range(3).count()
    stages = SparkStages(spark)
    assert stages.read(complete=True) == []
    spark.sparkContext.setJobDescription("counting")
    spark.range(5).repartition(3).count()
    spark.sparkContext.setJobDescription(None)  # type: ignore[arg-type]
    found = stages.read(complete=True)
    assert {stage.name for stage in found} == {"counting"}
    assert all(stage.done == stage.total for stage in found)
    assert stages.read(complete=True) == []


def fail(recorder: Recorder, error: BaseException) -> None:
    with StepWatch([recorder]) as watch:
        watch.begin("reading")
        raise error


def test_a_run_says_how_it_failed_and_who_interrupted_it() -> None:
    for error, ending in ((ValueError("no"), "failed"), (KeyboardInterrupt(), "interrupted")):
        recorder = Recorder()
        with pytest.raises(type(error)):
            fail(recorder, error)
        assert recorder.told[-2:] == [("end", "reading"), (ending, "")]
        assert recorder.end is not None
        assert recorder.end.error is error


class Broken:
    """A Spark that stops answering."""

    def read(self, *, complete: bool = False) -> list[StageCount]:
        raise OSError("gone")


def test_a_spark_that_does_not_answer_fails_nothing() -> None:
    recorder = Recorder()
    with StepWatch([recorder]) as watch:
        watch._source = Broken()
        watch.begin("reading")
        assert watch.summarize().steps[0].name == "reading"
        watch.begin("writing")
        watch.summarize()
    assert list(recorder.ended) == ["reading", "writing"]
    assert "distributary-watch" not in {thread.name for thread in threading.enumerate()}


def test_steps_that_pass_between_two_looks_are_all_told() -> None:
    recorder = Recorder()
    watch = StepWatch([recorder], Tracker())
    for name in ("one", "two", "three"):
        watch.begin(name)
    watch.summarize()
    watch.begin("four")
    watch.summarize()
    kinds = [event for event in recorder.told if event[0] != "move"]
    pairs = [(kind, name) for name in ("one", "two", "three") for kind in ("begin", "end")]
    assert kinds == [*pairs, ("begin", "four")]
