"""The state of a former version of streams, which is converted at the start."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from distributary.pipeline.kept_tables import ACTIONS, KINDS, SLOTS
from distributary.pipeline.ledger import Ledger, LedgerState
from distributary.pipeline.stream import StreamHooks, StreamJob, stream

from .stream_logs import PUBLICATION_FILES, SUBSCRIPTION_FILES, file_name
from .stream_outcome import table
from .stream_process import StoppedError, small_job

pytestmark = pytest.mark.usefixtures("small_slices")


def test_a_state_of_the_former_version_is_converted(
    spark: SparkSession, logs: Path, undisturbed: tuple[StreamJob, LedgerState], tmp_path: Path
) -> None:
    """The first batches as a former version left them; killed while converting, and continued."""
    job = small_job(tmp_path, files_per_batch=2)
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
