"""One batch of a stream: new rows into the state, and the plan after it.

**State.** The last action of each receiver and flow, and the messages per flow and slot of time (a
60th of the window of rates). Both can be merged in any order (`last_actions`, `merge_digests`), so
files may arrive in any order. For messages with ids, also the ids that may still come again.

**Time.** The watermark is the latest message of earlier batches minus `late`; older messages are
late, put aside and counted. Subscriptions are never late, because the last action wins whenever it
arrives. Rows dated more than a day ahead of the clock are put aside: one such row would make
everything after it late. Rates are over the last whole slots of `rate_window` up to the latest
message, or since the first one.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import reduce
from pathlib import Path
from threading import Lock
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from distributary.errors import InfeasibleError, InputError
from distributary.files import read_demand, read_plan, read_previous, save_plan
from distributary.model import Interest
from distributary.pipeline.following import find_unserved, follow
from distributary.pipeline.ingest import (
    Log,
    Reason,
    RowCounts,
    TimeWindow,
    check_sum,
    mark_copies,
    read_publications,
    read_subscriptions,
)
from distributary.pipeline.interest import last_actions, subscription_counts, subscription_digest
from distributary.pipeline.job import LOGS, StreamJob, driver_need
from distributary.pipeline.ledger import Ledger, LedgerError, LedgerState
from distributary.pipeline.rates import (
    merge_digests,
    publication_counts,
    publication_digest,
    rates_for,
    rates_from,
)
from distributary.pipeline.schemas import INTEREST, RATES, SUBSCRIBE, SUBSCRIPTIONS, with_position
from distributary.pipeline.sources import report_read_faults
from distributary.pipeline.times import to_micros, to_time
from distributary.pipeline.watching import Arrivals, list_arrivals
from distributary.pipeline.writing import count_rows, say, write_arrow

__all__ = ["BatchSteps", "StreamHooks", "rate_span"]

AHEAD = timedelta(days=1)
_SLOTS = (
    "flow STRING, reason STRING, span BIGINT, slot BIGINT, messages BIGINT, bytes BIGINT, "
    "sized BIGINT, weight BIGINT, first TIMESTAMP, last TIMESTAMP, copies BIGINT"
)
_IDS = "id STRING, ts TIMESTAMP"


@dataclass(frozen=True, slots=True)
class StreamHooks:
    """What a stream calls: `tell` with each batch's line of the history, `step` before each step.

    What either raises ends the stream. `clock` gives the present time.
    """

    tell: Callable[[Mapping[str, Any]], None] = lambda entry: None
    step: Callable[[str], None] = lambda name: None
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)


def rate_span(state: LedgerState, rate_window: timedelta) -> tuple[datetime, datetime] | None:
    """The start and end of the window of rates; None before the first message."""
    if state.first is None or state.latest is None:
        return None
    earliest = state.latest - to_micros(rate_window)
    start = max(state.first, earliest - earliest % state.slot_us)
    return to_time(start), to_time(max(state.latest, start + 1_000_000))


class BatchSteps:
    """The work on each batch. Spark calls `run`, on a thread of its own."""

    def __init__(
        self, spark: SparkSession, job: StreamJob, ledger: Ledger, hooks: StreamHooks
    ) -> None:
        self.failure: BaseException | None = None
        self._spark, self._job, self._ledger = spark, job, ledger
        self._hooks = hooks
        self._committing, self._ended = Lock(), False

    def run(self, batch: DataFrame, number: int) -> None:
        """Apply a batch, unless it was applied already."""
        try:
            self._run(batch, number)
        except BaseException as error:
            self.failure = self.failure or error
            # A short message: a long one overflows the stack of Spark.
            raise RuntimeError(f"batch {number} failed") from None
        finally:
            self._spark.sparkContext.setJobDescription(None)  # type: ignore[arg-type]

    def end(self) -> None:
        """Commit nothing from now on, even if a batch is still running."""
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
        parts = list_arrivals(batch, self._job.logs)
        folder = self._ledger.new_folder(number)
        state = replace(
            before, batch=number, folder=folder.name, slot_us=self._job.slot_us, entry={}
        )
        state = self._apply_subscriptions(parts["subscriptions"], state, folder)
        state = self._apply_publications(parts["publications"], state, folder)
        state = self._write_rates(state, folder)
        state = self._follow_demand(state, folder)
        files = sum(part.files for part in parts.values())
        state = replace(state, entry=_entry(before, state, files))
        with self._committing:
            if self._ended:
                raise InterruptedError("the stream has ended")
            self._ledger.commit(state)
        self._hooks.tell(state.entry)

    def _apply_subscriptions(self, part: Arrivals, state: LedgerState, folder: Path) -> LedgerState:
        """Merge the batch's actions into the last actions."""
        if not part.sources:
            return state
        self._say("reading the subscriptions")
        window = TimeWindow(until=self._hooks.clock() + AHEAD)
        logs = [read_subscriptions(self._spark, one, window) for one in part.sources]
        rows = _union([log.rows.drop("raw", "id") for log in logs])
        with report_read_faults(self._job.subscriptions), _cache(rows):
            log = replace(logs[0], rows=rows)
            counts = subscription_counts(subscription_digest(log))
            self._write_quarantine(logs, counts, folder)
            self._say("writing the last actions")
            columns = [*SUBSCRIPTIONS.fieldNames(), "position"]
            known = self._read_stored("actions", with_position(SUBSCRIPTIONS))
            actions = last_actions(known.select(columns).unionByName(log.valid.select(columns)))
            # The partition of those who subscribed last is the interest.
            actions.write.partitionBy("action").parquet(str(folder / "actions"))
        return _add_counts(_add_table(state, folder, "actions"), "subscriptions", counts)

    def _apply_publications(self, part: Arrivals, state: LedgerState, folder: Path) -> LedgerState:
        """Add the batch's messages to the slots, drop slots of the past, and keep ids."""
        if not part.sources:
            return state
        self._say("reading the publications")
        seen = self._read_stored("ids", _IDS)
        logs = self._read_publications(part, state, seen)
        identified = sum(log.identified for log in logs)
        rows = _union([log.rows.drop("raw") for log in logs])
        if identified > 1:
            rows = mark_copies(rows)
        digest = publication_digest(rows, peak_window=timedelta(microseconds=state.slot_us))
        with report_read_faults(self._job.publications), _cache(digest):
            state = self._count_publications(logs, digest, state, folder)
            self._say("writing the slots")
            good = digest.where(F.col("reason").isNull() & (F.col("messages") > 0))
            slots = merge_digests(self._read_stored("slots", _SLOTS).unionByName(good))
            if state.latest is not None:
                earliest = state.latest - to_micros(self._job.rate_window)
                slots = slots.where(F.col("slot") >= earliest - earliest % state.slot_us)
            slots.write.parquet(str(folder / "slots"))
            state = _add_table(state, folder, "slots")
            if identified:
                self._remember_ids(rows, seen, state).write.parquet(str(folder / "ids"))
                state = _add_table(state, folder, "ids")
        return state

    def _read_publications(self, part: Arrivals, state: LedgerState, seen: DataFrame) -> list[Log]:
        """The batch's publications, with late messages and ids of earlier batches marked."""
        watermark = None
        if state.latest is not None:
            watermark = to_time(state.latest) - self._job.late
        window = TimeWindow(since=watermark, until=self._hooks.clock() + AHEAD)
        logs = [read_publications(self._spark, one, window) for one in part.sources]
        logs = [_mark_late(log, watermark) for log in logs]
        if any(log.identified for log in logs):
            logs = _mark_known(logs, seen)
        return logs

    def _count_publications(
        self, logs: Sequence[Log], digest: DataFrame, state: LedgerState, folder: Path
    ) -> LedgerState:
        """Account for the batch's rows, and note its first and latest message."""
        counts = publication_counts(digest)
        first, latest = (
            digest.where(F.col("reason").isNull())
            .agg(F.unix_micros(F.min("first")), F.unix_micros(F.max("last")))
            .collect()[0]
        )
        self._write_quarantine(logs, counts, folder)
        return replace(
            _add_counts(state, "publications", counts),
            first=_extreme(min, state.first, first),
            latest=_extreme(max, state.latest, latest),
        )

    def _remember_ids(self, rows: DataFrame, seen: DataFrame, state: LedgerState) -> DataFrame:
        """The ids of messages that would not be late if they came again."""
        new = rows.where(
            F.col("reason").isNull() & ~F.col("copy") & F.col("id").isNotNull()
        ).select("id", "ts")
        watermark = to_time(state.latest or 0) - self._job.late
        return seen.unionByName(new).where(F.col("ts") >= F.lit(watermark))

    def _write_rates(self, state: LedgerState, folder: Path) -> LedgerState:
        """Write the rates of the wanted flows."""
        interest = self._interest_folder(state)
        if interest is None:
            return state
        self._say("writing the rates")
        span = rate_span(state, self._job.rate_window)
        if span is None or "slots" not in state.tables:
            rates = self._spark.createDataFrame([], RATES)
            floor = 1 / self._job.rate_window.total_seconds()
        else:
            rates = rates_from(
                self._read_table(self._job.out / "state" / state.tables["slots"], _SLOTS), *span
            )
            floor = 1 / (span[1] - span[0]).total_seconds()
        wanted = rates_for(self._read_table(interest, INTEREST), rates, floor)
        wanted.select("flow", "rate").write.parquet(str(folder / "rates"))
        return _add_table(state, folder, "rates")

    def _follow_demand(self, state: LedgerState, folder: Path) -> LedgerState:
        """Let the plan follow the demand: a new version if it differs from the running plan."""
        interest = self._interest_folder(state)
        if interest is None:
            return state
        self._say("planning")
        self._check_size(interest)
        inputs = read_demand(interest, self._job.out / "state" / state.tables["rates"])
        running = self._ledger.running_plan
        previous = None if running is None else read_previous(running)
        job = self._job
        try:
            followed = follow(
                inputs.demand, job.request, previous, state.reference, job.drift, job.max_moves
            )
        except InfeasibleError as error:
            return self._keep_plan(state, folder, inputs.demand.interest, error)
        save_plan(followed.made, inputs, folder / "plan")
        self._hooks.step("planned")
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
        tables = {name: path for name, path in state.tables.items() if name != "unserved"}
        return replace(
            state, version=version, reference=followed.reference, entry=entry, tables=tables
        )

    def _keep_plan(
        self, state: LedgerState, folder: Path, interest: Interest, error: InfeasibleError
    ) -> LedgerState:
        """Leave the running plan in force, since none keeps the terms; write who misses what."""
        running = self._ledger.running_plan
        unserved = find_unserved(None if running is None else read_plan(running).plan, interest)
        columns = zip(*unserved, strict=True) if unserved else ((), ())
        receivers, flows = (pa.array(column, pa.string()) for column in columns)
        table = pa.table({"receiver": receivers, "flow": flows})
        write_arrow(table, folder / "unserved" / "part.parquet")
        entry = {"refused": str(error), "unserved": len(unserved)}
        return replace(_add_table(state, folder, "unserved"), entry=entry)

    def _interest_folder(self, state: LedgerState) -> Path | None:
        """The table of the interest; None while nobody wants anything."""
        actions = state.tables.get("actions")
        path = self._job.out / "state" / f"{actions}" / f"action={SUBSCRIBE}"
        return path if path.is_dir() else None

    def _check_size(self, interest: Path) -> None:
        """Refuse interest that takes more memory than the driver may use to plan."""
        request, limit = self._job.request, self._job.driver_limit
        sizes = request.size.most_sessions, request.size.groups
        pairs = count_rows(interest)
        need = driver_need(pairs, pairs, *sizes)
        if need > limit:  # assuming a receiver for each pair, the worst case
            receivers = self._read_table(interest, INTEREST).select("receiver").distinct().count()
            need = driver_need(pairs, receivers, *sizes)
        if need > limit:
            raise InputError(
                f"{pairs:,} pairs of interest take about {need / 2**30:.1f} GiB to plan, more than "
                f"the {limit / 2**30:.1f} GiB that a stream may use",
                remedy="plan with `pipeline run`, which can do it on executors",
            )

    def _write_quarantine(self, logs: Sequence[Log], counts: RowCounts, folder: Path) -> None:
        """Write the bad rows, reading the files again, and check their number."""
        name, written = logs[0].name, 0
        if counts.quarantined:
            self._say(f"putting bad {name} aside")
            path = folder / "quarantine" / f"log={name}"
            bad = _union([log.quarantined for log in logs]).drop("log")
            bad.coalesce(1).write.parquet(str(path))
            written = count_rows(path)
        check_sum(name, counts.read, counts, written)

    def _read_stored(self, name: str, schema: StructType | str) -> DataFrame:
        """A table of the state before the batch; empty if there is none yet."""
        path = self._ledger.table(name)
        if path is None:
            return self._spark.createDataFrame([], schema)
        return self._read_table(path, schema)

    def _read_table(self, path: Path, schema: StructType | str) -> DataFrame:
        """A table of the state; a given schema saves Spark from looking into the files first."""
        return self._spark.read.schema(schema).parquet(str(path))

    def _say(self, step: str) -> None:
        say(self._spark, step)
        self._hooks.step(step)


def _mark_late(log: Log, watermark: datetime | None) -> Log:
    """Give rows before the watermark the reason "late"; those after the window keep theirs."""
    if watermark is None:
        return log
    late = (F.col("reason") == str(Reason.OUTSIDE)) & (F.col("ts") < F.lit(watermark))
    reason = F.when(late, str(Reason.LATE)).otherwise(F.col("reason"))
    return replace(log, rows=log.rows.withColumn("reason", reason))


def _mark_known(logs: Sequence[Log], seen: DataFrame) -> list[Log]:
    """Mark rows as copies whose id came in an earlier batch."""
    known = seen.select(F.col("id").alias("_known")).distinct()
    marked = []
    for log in logs:
        rows = log.rows.withColumn("id", F.col("id").cast("string"))
        again = F.col("reason").isNull() & F.col("_known").isNotNull()
        rows = rows.join(known, F.col("id") == F.col("_known"), "left")
        rows = rows.withColumn("copy", F.col("copy") | again).drop("_known")
        marked.append(replace(log, rows=rows))
    return marked


def _union(parts: Sequence[DataFrame]) -> DataFrame:
    return reduce(DataFrame.unionByName, parts)


def _add_table(state: LedgerState, folder: Path, name: str) -> LedgerState:
    return replace(state, tables={**state.tables, name: f"{folder.name}/{name}"})


def _add_counts(state: LedgerState, log: str, counts: RowCounts) -> LedgerState:
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


def _entry(before: LedgerState, state: LedgerState, files: int) -> dict[str, Any]:
    """The batch's line of the history, which does not depend on the clock."""

    def number(of: LedgerState, log: str, key: str) -> int:
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


@contextmanager
def _cache(frame: DataFrame) -> Iterator[None]:
    """Keep a frame that a batch uses several times, so that files are read once."""
    frame.persist()
    try:
        yield
    finally:
        frame.unpersist()


def _extreme(of: Callable[[Sequence[int]], int], *values: int | None) -> int | None:
    known = [value for value in values if value is not None]
    return of(known) if known else None
