"""Logs that keep coming in: interest and rates kept up to date, and a plan that follows them.

Structured Streaming decides which files make up a batch (`watching`), records that, and repeats a
batch that did not end. `ingest` reads and checks the rows as in a run over whole logs, so formats,
reasons and the order of ties are the same. The state is kept in tables of our own (`kept_state`),
with one commit per batch (`ledger`): a plan needs all of it at once, and other programs can read
it. After every batch (`batches`) the plan follows the state (`following`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from distributary.files import read_previous
from distributary.pipeline.batches import BatchSteps, StreamHooks
from distributary.pipeline.folders import report_write_faults
from distributary.pipeline.former_state import convert_former
from distributary.pipeline.job import StreamJob
from distributary.pipeline.kept_state import rate_span
from distributary.pipeline.ledger import Ledger, LedgerError, LedgerState
from distributary.pipeline.sources import report_read_faults
from distributary.pipeline.steps import say
from distributary.pipeline.watching import BatchSize, watch_log

__all__ = ["StreamHooks", "StreamJob", "rate_span", "stream"]

_PAUSE_S = 0.1


def stream(spark: SparkSession, job: StreamJob, hooks: StreamHooks | None = None) -> LedgerState:
    """Follow the logs until all are read (`until_idle`) or an interrupt; return the last state."""
    hooks = hooks or StreamHooks()
    # Spark resolves a relative path against the folder that Java was started in.
    job = replace(job, out=job.out.absolute())
    with (
        report_write_faults(job.out),
        Ledger(job.out, hooks.step).open() as ledger,
        _silence_py4j(),
    ):
        say(spark, "opening the stream")
        _check_settings(job, ledger)
        convert_former(spark, ledger)
        hooks.show(ledger.state)
        steps = BatchSteps(spark, job, ledger, hooks)
        say(spark, None)  # from now on the batches say
        try:
            query = _start_query(spark, job, ledger, steps)
            _wait_for_end(query, steps)
        finally:
            steps.end()
        _check_end(query, steps)
        return ledger.state


def _start_query(
    spark: SparkSession, job: StreamJob, ledger: Ledger, steps: BatchSteps
) -> StreamingQuery:
    most: BatchSize = ("maxBytesPerTrigger", job.bytes_per_batch)
    if job.files_per_batch is not None:
        most = ("maxFilesPerTrigger", job.files_per_batch)
    logs = [watch_log(spark, log, where, most) for log, where in job.logs.items()]
    writer = (
        reduce(DataFrame.unionByName, logs)
        .writeStream.foreachBatch(steps.run)
        .option("checkpointLocation", str(ledger.checkpoint))
        .queryName(f"distributary {job.out.name}")
    )
    if job.until_idle:
        return writer.trigger(availableNow=True).start()
    milliseconds = int(job.trigger.total_seconds() * 1000)
    return writer.trigger(processingTime=f"{milliseconds} milliseconds").start()


def _wait_for_end(query: StreamingQuery, steps: BatchSteps) -> None:
    """Wait until the stream ends or is interrupted; nothing is committed after that."""
    try:
        while query.isActive:
            time.sleep(_PAUSE_S)
    finally:
        steps.end()
        query.stop()


def _check_settings(job: StreamJob, ledger: Ledger) -> None:
    """Refuse settings that do not fit the slots and the plan of the stream so far."""
    state = ledger.state
    if state.batch >= 0 and state.slot_us != job.slot_us:
        raise LedgerError(
            job.out,
            f"its messages are counted in slots of {state.slot_us / 1e6:g} s, and this window of "
            f"rates takes {job.slot_us / 1e6:g} s",
            "keep --rate-window as it was, or start over in another folder",
        )
    if ledger.running_plan is None:
        return
    group = read_previous(ledger.running_plan).session_group
    size = job.request.size
    if len(group) > size.most_sessions or int(group.max()) >= size.groups:
        raise LedgerError(
            job.out,
            f"its plan has {len(group)} sessions in {int(group.max()) + 1} groups, more than asked",
            "allow as many, or start over in another folder",
        )


def _check_end(query: StreamingQuery, steps: BatchSteps) -> None:
    """Raise the error that ended the stream, if one did."""
    if steps.failure is not None:
        raise steps.failure
    error = query.exception()
    if error is not None:
        with report_read_faults(query.name or "stream"):
            raise error


@contextmanager
def _silence_py4j() -> Iterator[None]:
    """Keep py4j from printing what a batch raises: the stream raises it."""
    logger = logging.getLogger("py4j")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)
