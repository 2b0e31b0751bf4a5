"""Logs that keep coming in: interest and rates kept up to date, and a plan that follows them.

Structured Streaming decides which files make up a batch (`watching`), notes it, and repeats a batch
that did not end. The rows are read and judged by `ingest`, as in a run over whole logs, so that
formats, reasons and the order of ties are the same. The state is kept in tables of our own, one
commit per batch (see `ledger`): a plan needs all of it at once, and other programs can read it.

**State.** The last action of each receiver and flow, and messages per flow and slot of time (a 60th
of the window of rates). Both are sums over rows in any order (`last_actions`, `merged`), so files
may come in any order, too. With message ids, those that may still come again.

**Time.** The watermark is the latest message of the batches before, less `late`. Older messages are
late: put aside and counted. Subscriptions are never late, as the last action wins whenever it
comes. Rows dated more than a day ahead of the clock are put aside: one of them would make
everything after it late. Rates are over the last whole slots of `rate_window` up to the latest
message, or since the first one.

**Plan.** It follows the state after every batch, as `following` says.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import reduce
from pathlib import Path
from threading import Lock
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from distributary.errors import InputError
from distributary.files import read_demand, read_previous, save_plan
from distributary.pipeline.folders import writing_faults
from distributary.pipeline.following import follow
from distributary.pipeline.ingest import (
    Counts,
    Log,
    Reason,
    Window,
    check_sum,
    mark_copies,
    read_publications,
    read_subscriptions,
)
from distributary.pipeline.interest import last_actions, subscription_counts, subscription_digest
from distributary.pipeline.job import DRIVER_LIMIT, driver_need
from distributary.pipeline.ledger import Ledger, LedgerError, State
from distributary.pipeline.rates import (
    merged,
    publication_counts,
    publication_digest,
    rates_for,
    rates_from,
)
from distributary.pipeline.schemas import INTEREST, RATES, SUBSCRIBE, SUBSCRIPTIONS, with_position
from distributary.pipeline.sources import reading_faults
from distributary.pipeline.watching import Arrived, arrived, watched
from distributary.planning import Request

__all__ = ["LOGS", "StreamJob", "rate_span", "stream"]

LOGS = ("subscriptions", "publications")
AHEAD = timedelta(days=1)
SLOTS = 60
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SLOTS = (
    "flow STRING, reason STRING, span BIGINT, slot BIGINT, messages BIGINT, bytes BIGINT, "
    "sized BIGINT, weight BIGINT, first TIMESTAMP, last TIMESTAMP, copies BIGINT"
)
_IDS = "id STRING, ts TIMESTAMP"
_PAUSE_S = 0.1


@dataclass(frozen=True, slots=True)
class StreamJob:
    """What to watch, what to make of it, where to put it.

    `subscriptions` and `publications` are folders, or `kafka://host:port/topic` with JSON values.
    `max_moves` is how many flows may change their session in one batch; 2 % of them without it. A
    batch takes at most `files_per_batch` of each log.
    """

    out: Path
    subscriptions: str
    publications: str
    request: Request
    trigger: timedelta = timedelta(seconds=10)
    rate_window: timedelta = timedelta(hours=1)
    late: timedelta = timedelta(minutes=10)
    drift: float = 0.1
    max_moves: int | None = None
    until_idle: bool = False
    files_per_batch: int = 100
    driver_limit: int = DRIVER_LIMIT

    def __post_init__(self) -> None:
        if self.request.solver.name != "best" or self.request.change.previous is not None:
            raise ValueError("a stream plans with best, from the plan that it has")
        if not self.drift >= 0:
            raise ValueError(f"drift must be at least 0, not {self.drift}")
        if self.max_moves is not None and self.max_moves < 0:
            raise ValueError(f"max_moves must be at least 0, not {self.max_moves}")
        if self.files_per_batch < 1:
            raise ValueError(f"files_per_batch must be at least 1, not {self.files_per_batch}")
        if self.rate_window < timedelta(seconds=1) or self.late < timedelta(0):
            raise ValueError("rates need a window of a second or more, and late cannot be negative")

    @property
    def logs(self) -> dict[str, str]:
        """Where each log comes in, by its name."""
        return {"subscriptions": self.subscriptions, "publications": self.publications}

    @property
    def slot_us(self) -> int:
        """How finely messages are counted, in microseconds."""
        return max(_micros(self.rate_window) // SLOTS, 1_000_000)


def stream(
    spark: SparkSession,
    job: StreamJob,
    tell: Callable[[Mapping[str, Any]], None] = lambda entry: None,
    step: Callable[[str], None] = lambda name: None,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> State:
    """Follow the logs until they are read (`until_idle`), or until interrupted.

    `tell` gets each batch's line of the history, `step` the name of each step before it is done.
    What either raises ends the stream. Returns where it stands.
    """
    # Spark resolves a relative path against the folder that Java was started in.
    job = replace(job, out=job.out.absolute())
    with (
        writing_faults(job.out),
        Ledger(job.out, step).opened() as ledger,
        _py4j_quiet(),
    ):
        _check_settings(job, ledger)
        steps = _Steps(spark, job, ledger, tell, step, clock)
        logs = [watched(spark, log, where, job.files_per_batch) for log, where in job.logs.items()]
        writer = (
            _together(logs)
            .writeStream.foreachBatch(steps.run)
            .option("checkpointLocation", str(ledger.checkpoint))
            .queryName(f"distributary {job.out.name}")
        )
        if job.until_idle:
            writer = writer.trigger(availableNow=True)
        else:
            milliseconds = int(job.trigger.total_seconds() * 1000)
            writer = writer.trigger(processingTime=f"{milliseconds} milliseconds")
        query = writer.start()
        try:
            while query.isActive:
                time.sleep(_PAUSE_S)
        finally:
            steps.end()
            query.stop()
        _check_end(query, steps)
        return ledger.state


def rate_span(state: State, rate_window: timedelta) -> tuple[datetime, datetime] | None:
    """The time that rates are over: whole slots up to the latest message, or since the first."""
    if state.first is None or state.latest is None:
        return None
    earliest = state.latest - _micros(rate_window)
    start = max(state.first, earliest - earliest % state.slot_us)
    return _moment(start), _moment(max(state.latest, start + 1_000_000))


# --- one batch -----------------------------------------------------------------------------------


class _Steps:
    """What is done with each batch. `run` is called by Spark, in a thread of its own."""

    def __init__(
        self,
        spark: SparkSession,
        job: StreamJob,
        ledger: Ledger,
        tell: Callable[[Mapping[str, Any]], None],
        step: Callable[[str], None],
        clock: Callable[[], datetime],
    ) -> None:
        self.failure: BaseException | None = None
        self._spark, self._job, self._ledger = spark, job, ledger
        self._tell, self._step, self._clock = tell, step, clock
        self._committing, self._ended = Lock(), False

    def run(self, batch: DataFrame, number: int) -> None:
        """Take a batch in, unless it is in already."""
        try:
            self._run(batch, number)
        except BaseException as error:
            self.failure = self.failure or error
            # A short error for Spark, whose stack overflows on the text of a long one.
            raise RuntimeError(f"batch {number} failed") from None
        finally:
            self._spark.sparkContext.setJobDescription(None)  # type: ignore[arg-type]

    def end(self) -> None:
        """Commit nothing from now on, even if a batch is still at work."""
        with self._committing:
            self._ended = True

    def _run(self, batch: DataFrame, number: int) -> None:
        before = self._ledger.state
        if number <= before.batch:
            return
        if number != before.batch + 1:
            raise LedgerError(
                self._job.out,
                f"batch {number} comes after batch {before.batch}",
                "restore state.json and checkpoint, or start over in another folder",
            )
        self._say("listing the files")
        parts = arrived(batch, self._job.logs)
        folder = self._ledger.new_folder(number)
        state = replace(
            before, batch=number, folder=folder.name, slot_us=self._job.slot_us, entry={}
        )
        state = self._subscribed(parts["subscriptions"], state, folder)
        state = self._published(parts["publications"], state, folder)
        state = self._rated(state, folder)
        state = self._planned(state, folder)
        files = sum(part.files for part in parts.values())
        state = replace(state, entry=_entry(before, state, files))
        with self._committing:
            if self._ended:
                raise InterruptedError("the stream has ended")
            self._ledger.commit(state)
        self._tell(state.entry)

    def _subscribed(self, part: Arrived, state: State, folder: Path) -> State:
        """The last actions, with those of the batch."""
        if not part.sources:
            return state
        self._say("reading the subscriptions")
        window = Window(until=self._clock() + AHEAD)
        logs = [read_subscriptions(self._spark, one, window) for one in part.sources]
        rows = _together([log.rows.drop("raw", "id") for log in logs])
        with reading_faults(self._job.subscriptions), _cached(rows):
            log = replace(logs[0], rows=rows)
            counts = subscription_counts(subscription_digest(log))
            self._put_aside(logs, counts, folder)
            self._say("writing the last actions")
            columns = [*SUBSCRIPTIONS.fieldNames(), "position"]
            known = self._stored("actions", with_position(SUBSCRIPTIONS))
            actions = last_actions(known.select(columns).unionByName(log.valid.select(columns)))
            # Those who subscribed last are then a table of their own: the interest.
            actions.write.partitionBy("action").parquet(str(folder / "actions"))
        return _counted(_with_table(state, folder, "actions"), "subscriptions", counts)

    def _published(self, part: Arrived, state: State, folder: Path) -> State:
        """Messages per flow and slot, with those of the batch, and without slots of the past."""
        if not part.sources:
            return state
        self._say("reading the publications")
        watermark = None
        if state.latest is not None:
            watermark = _moment(state.latest) - self._job.late
        window = Window(since=watermark, until=self._clock() + AHEAD)
        logs = [read_publications(self._spark, one, window) for one in part.sources]
        logs = [_late_told(log, watermark) for log in logs]
        if any(log.identified for log in logs):
            seen = self._stored("ids", _IDS)
            logs = _known_marked(logs, seen)
        rows = _together([log.rows.drop("raw") for log in logs])
        if sum(log.identified for log in logs) > 1:
            rows = mark_copies(rows)
        log = replace(logs[0], rows=rows)
        digest = publication_digest(log, peak_window=timedelta(microseconds=state.slot_us))
        with reading_faults(self._job.publications), _cached(digest):
            counts = publication_counts(digest)
            first, latest = (
                digest.where(F.col("reason").isNull())
                .agg(F.unix_micros(F.min("first")), F.unix_micros(F.max("last")))
                .collect()[0]
            )
            self._put_aside(logs, counts, folder)
            state = replace(
                _counted(state, "publications", counts),
                first=_extreme(min, state.first, first),
                latest=_extreme(max, state.latest, latest),
            )
            self._say("writing the slots")
            good = digest.where(F.col("reason").isNull() & (F.col("messages") > 0))
            slots = merged(self._stored("slots", _SLOTS).unionByName(good))
            if state.latest is not None:
                earliest = state.latest - _micros(self._job.rate_window)
                slots = slots.where(F.col("slot") >= earliest - earliest % state.slot_us)
            slots.write.parquet(str(folder / "slots"))
            state = _with_table(state, folder, "slots")
            if any(log.identified for log in logs):
                self._ids(log, seen, state).write.parquet(str(folder / "ids"))
                state = _with_table(state, folder, "ids")
        return state

    def _ids(self, log: Log, seen: DataFrame, state: State) -> DataFrame:
        """Ids that may come again: of messages that would not be late."""
        new = log.rows.where(
            F.col("reason").isNull() & ~F.col("copy") & F.col("id").isNotNull()
        ).select("id", "ts")
        watermark = _moment(state.latest or 0) - self._job.late
        return seen.unionByName(new).where(F.col("ts") >= F.lit(watermark))

    def _rated(self, state: State, folder: Path) -> State:
        """Rates of what is wanted."""
        interest = self._interest(state)
        if interest is None:
            return state
        self._say("writing the rates")
        span = rate_span(state, self._job.rate_window)
        if span is None or "slots" not in state.tables:
            rates = self._spark.createDataFrame([], RATES)
            floor = 1 / self._job.rate_window.total_seconds()
        else:
            rates = rates_from(
                self._read(self._job.out / "state" / state.tables["slots"], _SLOTS), *span
            )
            floor = 1 / (span[1] - span[0]).total_seconds()
        wanted = rates_for(self._read(interest, INTEREST), rates, floor)
        wanted.select("flow", "rate").write.parquet(str(folder / "rates"))
        return _with_table(state, folder, "rates")

    def _planned(self, state: State, folder: Path) -> State:
        """The running plan completed, or moved; written if it is not the one that is there."""
        interest = self._interest(state)
        if interest is None:
            return state
        self._say("planning")
        self._check_size(interest)
        inputs = read_demand(interest, self._job.out / "state" / state.tables["rates"])
        running = self._ledger.running_plan
        previous = None if running is None else read_previous(running)
        job = self._job
        followed = follow(
            inputs.demand, job.request, previous, state.reference, job.drift, job.max_moves
        )
        save_plan(followed.made, inputs, folder / "plan")
        self._step("planned")
        version = state.version + 1
        if self._ledger.is_running(folder / "plan"):
            shutil.rmtree(folder / "plan")
            version = state.version
        entry = {
            "excess": followed.excess,
            "drift": followed.drift,
            "moves": followed.moves,
            "new": followed.new,
        }
        return replace(state, version=version, reference=followed.reference, entry=entry)

    def _interest(self, state: State) -> Path | None:
        """The table of who wants what; None while nobody wants anything."""
        actions = state.tables.get("actions")
        path = self._job.out / "state" / f"{actions}" / f"action={SUBSCRIBE}"
        return path if path.is_dir() else None

    def _check_size(self, interest: Path) -> None:
        """Refuse interest that takes more memory than the driver may use."""
        request, limit = self._job.request, self._job.driver_limit
        sizes = request.size.most_sessions, request.size.groups
        pairs = _rows_in(interest)
        need = driver_need(pairs, pairs, *sizes)
        if need > limit:  # at the worst, with a receiver for each pair
            receivers = self._read(interest, INTEREST).select("receiver").distinct().count()
            need = driver_need(pairs, receivers, *sizes)
        if need > limit:
            raise InputError(
                f"{pairs:,} pairs of interest take about {need / 2**30:.1f} GiB to plan, more than "
                f"the {limit / 2**30:.1f} GiB that a stream may use",
                remedy="plan with `pipeline run`, which can do it on executors",
            )

    def _put_aside(self, logs: Sequence[Log], counts: Counts, folder: Path) -> None:
        """Write bad rows out, for which the files are read again; they must be as many."""
        name, written = logs[0].name, 0
        if counts.quarantined:
            self._say(f"putting bad {name} aside")
            path = folder / "quarantine" / f"log={name}"
            bad = _together([log.quarantined for log in logs]).drop("log")
            bad.coalesce(1).write.parquet(str(path))
            written = _rows_in(path)
        check_sum(name, counts.read, counts, written)

    def _stored(self, name: str, schema: StructType | str) -> DataFrame:
        """A table of the state as it was before the batch; empty if there was none."""
        path = self._ledger.table(name)
        if path is None:
            return self._spark.createDataFrame([], schema)
        return self._read(path, schema)

    def _read(self, path: Path, schema: StructType | str) -> DataFrame:
        """A table; with its schema named Spark need not look it up in the files first."""
        return self._spark.read.schema(schema).parquet(str(path))

    def _say(self, step: str) -> None:
        self._spark.sparkContext.setJobDescription(step)
        self._step(step)


def _late_told(log: Log, watermark: datetime | None) -> Log:
    """What lies before the window is late; what lies after it stays outside."""
    if watermark is None:
        return log
    late = (F.col("reason") == str(Reason.OUTSIDE)) & (F.col("ts") < F.lit(watermark))
    reason = F.when(late, str(Reason.LATE)).otherwise(F.col("reason"))
    return replace(log, rows=log.rows.withColumn("reason", reason))


def _known_marked(logs: Sequence[Log], seen: DataFrame) -> list[Log]:
    """Rows whose id an earlier batch had are copies."""
    known = seen.select(F.col("id").alias("_known")).distinct()
    marked = []
    for log in logs:
        rows = log.rows.withColumn("id", F.col("id").cast("string"))
        again = F.col("reason").isNull() & F.col("_known").isNotNull()
        rows = rows.join(known, F.col("id") == F.col("_known"), "left")
        rows = rows.withColumn("copy", F.col("copy") | again).drop("_known")
        marked.append(replace(log, rows=rows))
    return marked


def _together(parts: Sequence[DataFrame]) -> DataFrame:
    return reduce(DataFrame.unionByName, parts)


def _rows_in(folder: Path) -> int:
    """How many rows a table has, by its files' footers."""
    return sum(int(pq.read_metadata(part).num_rows) for part in folder.glob("part-*"))


def _with_table(state: State, folder: Path, name: str) -> State:
    return replace(state, tables={**state.tables, name: f"{folder.name}/{name}"})


def _counted(state: State, log: str, counts: Counts) -> State:
    before = state.counts.get(log, {"used": 0, "duplicates": 0, "reasons": {}})
    reasons = dict(before["reasons"])
    for reason, number in counts.reasons.items():
        reasons[reason] = reasons.get(reason, 0) + number
    total = {
        "used": before["used"] + counts.used,
        "duplicates": before["duplicates"] + counts.duplicates,
        "reasons": dict(sorted(reasons.items())),
    }
    return replace(state, counts={**state.counts, log: total})


def _entry(before: State, state: State, files: int) -> dict[str, Any]:
    """The batch's line of the history. Nothing in it depends on the clock."""

    def number(of: State, log: str, key: str) -> int:
        counts = of.counts.get(log, {})
        if key == "quarantined":
            return sum(counts.get("reasons", {}).values())
        return int(counts.get(key, 0))

    return {
        "batch": state.batch,
        "files": files,
        **{log: number(state, log, "used") - number(before, log, "used") for log in LOGS},
        **{
            key: sum(number(state, log, key) - number(before, log, key) for log in LOGS)
            for key in ("duplicates", "quarantined")
        },
        **{"excess": None, "drift": None, "moves": 0, "new": 0, **state.entry},
        "version": state.version,
    }


# --- start and end -------------------------------------------------------------------------------


def _check_settings(job: StreamJob, ledger: Ledger) -> None:
    """Refuse settings that do not fit what was counted and planned so far."""
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


def _check_end(query: StreamingQuery, steps: _Steps) -> None:
    """Raise what ended the stream, in our own words where we know them."""
    if steps.failure is not None:
        raise steps.failure
    error = query.exception()
    if error is not None:
        with reading_faults(query.name or "stream"):
            raise error


@contextmanager
def _cached(frame: DataFrame) -> Iterator[None]:
    """Keep what is used more than once in a batch, so that files are read once."""
    frame.persist()
    try:
        yield
    finally:
        frame.unpersist()


@contextmanager
def _py4j_quiet() -> Iterator[None]:
    """What a batch raises is raised by us; py4j need not print it as well."""
    logger = logging.getLogger("py4j")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)


def _extreme(of: Callable[[Sequence[int]], int], *values: int | None) -> int | None:
    known = [value for value in values if value is not None]
    return of(known) if known else None


def _micros(duration: timedelta) -> int:
    return duration // timedelta(microseconds=1)


def _moment(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)
