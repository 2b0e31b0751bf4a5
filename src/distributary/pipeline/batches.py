"""One batch of a stream: new rows into the state, and the plan after it.

**State.** The last action of each receiver and flow, and the messages per flow and slot of time (a
60th of the window of rates). Both can be merged in any order, so files may arrive in any order. For
messages with ids, also the ids that may still come again. Spark reads, checks and aggregates the
batch's rows; what remains of them comes to the driver, which keeps the state (`kept_state`).

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
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from distributary.errors import InfeasibleError, InputError
from distributary.files import plan_document, read_plan, write_plan
from distributary.model import Plan
from distributary.pipeline.base import BasePlan, BaseWatch
from distributary.pipeline.buckets import TableKind
from distributary.pipeline.collecting import collect_parts
from distributary.pipeline.following import (
    FollowedPlan,
    PlanFollower,
    budget_to_move,
    find_unserved,
)
from distributary.pipeline.history import describe_batch, describe_plan
from distributary.pipeline.ingest import (
    Log,
    Reason,
    RowCounts,
    TimeWindow,
    check_sum,
    mark_copies,
    read_publications,
    read_subscriptions,
    unite_rows,
)
from distributary.pipeline.interest import action_digest
from distributary.pipeline.job import StreamJob, driver_need
from distributary.pipeline.kept_state import BatchRows, KeptState
from distributary.pipeline.kept_tables import ACTIONS, IDS, SLOTS
from distributary.pipeline.ledger import Ledger, LedgerError, LedgerState, PlannedAt
from distributary.pipeline.live_demand import DemandChange, LiveDemand
from distributary.pipeline.rates import publication_digest
from distributary.pipeline.sources import report_read_faults
from distributary.pipeline.steps import say
from distributary.pipeline.times import to_time
from distributary.pipeline.warming import PlannerWarmUp
from distributary.pipeline.watching import Arrivals, list_arrivals
from distributary.pipeline.writing import count_rows, write_arrow
from distributary.planning import Size

__all__ = ["BatchSteps", "StreamHooks", "stream_need"]

AHEAD = timedelta(days=1)
_BYTES_PER_TALLY = 4  # of a running plan
_BYTES_PER_ENDED_PAIR, _BYTES_PER_NAME = 30, 150
_BYTES_PER_ORDERED_PAIR = 12  # in order of names: kept once, and copied twice by a change
_BYTES_PER_ROW = 300  # of a batch, as collected and as taken into a table
_BROADCAST = 32 * 2**20
_COLUMN_OF: Mapping[str, str] = {
    Reason.NO_RECEIVER: "receiver",
    Reason.NO_FLOW: "flow",
    Reason.NO_TS: "ts",
    Reason.ACTION: "action",
}
"""The columns that rows with these reasons may lack."""


@dataclass(frozen=True, slots=True)
class StreamHooks:
    """What a stream calls: `tell` with each batch's line of the history, `step` before each step.

    `show` gets the state at the start and after each batch, before `tell` has the batch's line.
    `note` gets what an operator should know, a line each. What any of them raises ends the stream.
    `clock` gives the present time.
    """

    tell: Callable[[Mapping[str, Any]], None] = lambda entry: None
    show: Callable[[LedgerState], None] = lambda state: None
    step: Callable[[str], None] = lambda name: None
    note: Callable[[str], None] = lambda line: None
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)


class BatchSteps:
    """The work on each batch. Spark calls `run`, on a thread of its own."""

    def __init__(
        self, spark: SparkSession, job: StreamJob, ledger: Ledger, hooks: StreamHooks
    ) -> None:
        self.failure: BaseException | None = None
        self._spark, self._job, self._ledger = spark, job, ledger
        self._hooks, self._kept = hooks, KeptState(job, ledger, hooks.step)
        self._shapes = job.shapes.without_guessing()
        self._follower = PlanFollower(
            job.request,
            self._kept.demand,
            self._read_running(),
            job.drift,
            job.max_moves,
            budget_to_move(job.trigger.total_seconds()),
        )
        self._base = None if job.base is None else BaseWatch(job.base, job.request.size)
        if self._base is not None and self._base.is_missing:
            hooks.note(f"{job.base}: has no plan yet; it is taken when there is one")
        self._warm_up = PlannerWarmUp(job.request)
        self._warm_up.start()
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
            say(self._spark, None)

    def end(self) -> None:
        """Commit nothing from now on, even if a batch is still running."""
        with self._committing:
            self._ended = True
        self._warm_up.end()

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
        actions, state = self._read_actions(parts["subscriptions"], state, folder)
        slots, ids, state = self._read_messages(parts["publications"], state, folder)
        state, change = self._kept.apply(BatchRows(actions, slots, ids), state, folder)
        state = self._follow_demand(state, change, folder)
        if self._base is not None and self._base.fault is not None:
            state = replace(state, entry={**state.entry, "base_fault": self._base.fault})
        files = sum(part.files for part in parts.values())
        state = replace(state, entry=describe_batch(before, state, files))
        with self._committing:
            if self._ended:
                raise InterruptedError("the stream has ended")
            self._ledger.commit(state)
        self._hooks.show(self._ledger.state)
        self._hooks.tell(state.entry)

    def _read_actions(
        self, part: Arrivals, state: LedgerState, folder: Path
    ) -> tuple[pa.Table, LedgerState]:
        """The last actions among the batch's rows, and the state with its rows counted."""
        if not part.sources:
            return ACTIONS.schema.empty_table(), state
        self._say("reading the subscriptions")
        window = TimeWindow(until=self._hooks.clock() + AHEAD)
        shape, first = self._shapes.subscriptions, not _count_rows(state, "subscriptions")
        logs = [
            read_subscriptions(self._spark, one, window, shape=shape, check=first)
            for one in part.sources
        ]
        digest = action_digest(_union([log.rows.drop("raw", "id") for log in logs])).withColumns(
            {"key": F.xxhash64("receiver", "flow"), "ts": F.unix_micros("ts")}
        )
        with report_read_faults(self._job.subscriptions):
            found = self._collect(digest, part, folder)
            counts = _count_actions(found)
            self._write_quarantine(logs, counts, folder)
        self._note_lost_column(counts, "subscriptions", state)
        return _select(found, ACTIONS), _add_counts(state, "subscriptions", counts)

    def _read_messages(
        self, part: Arrivals, state: LedgerState, folder: Path
    ) -> tuple[pa.Table, pa.Table, LedgerState]:
        """The batch's messages per slot, their ids, and the state with its rows counted."""
        if not part.sources:
            return SLOTS.schema.empty_table(), IDS.schema.empty_table(), state
        self._say("reading the publications")
        logs = self._read_publications(part, state)
        identified = sum(log.identified for log in logs)
        rows = unite_rows(logs)
        with report_read_faults(self._job.publications), _cache(rows, needed=identified > 0):
            if identified:
                rows = self._mark_known(rows, part, folder)
            if identified > 1:
                rows = mark_copies(rows)
            digest = publication_digest(rows, peak_window=timedelta(microseconds=state.slot_us))
            found = self._collect(_in_micros(digest), part, folder)
            counts = _count_messages(found)
            self._write_quarantine(logs, counts, folder)
            ids = IDS.schema.empty_table()
            if identified:
                ids = _select(self._collect(_new_ids(rows), part, folder), IDS)
        self._note_lost_column(counts, "publications", state)
        good = found.filter(pc.field("reason").is_null())
        state = replace(
            _add_counts(state, "publications", counts),
            first=_extreme(min, state.first, pc.min(good["first"]).as_py()),
            latest=_extreme(max, state.latest, pc.max(good["last"]).as_py()),
        )
        return _select(good.filter(pc.field("messages") > 0), SLOTS), ids, state

    def _read_publications(self, part: Arrivals, state: LedgerState) -> list[Log]:
        """The batch's publications, with late messages marked."""
        watermark = None
        if state.latest is not None:
            watermark = to_time(state.latest) - self._job.late
        window = TimeWindow(since=watermark, until=self._hooks.clock() + AHEAD)
        shape, first = self._shapes.publications, not _count_rows(state, "publications")
        logs = [
            read_publications(self._spark, one, window, shape=shape, check=first)
            for one in part.sources
        ]
        return [_id_as_text(_mark_late(log, watermark)) for log in logs]

    def _mark_known(self, rows: DataFrame, part: Arrivals, folder: Path) -> DataFrame:
        """Mark rows as copies whose id came in an earlier batch.

        Of the stored ids it reads the row groups that may have those of the batch.
        """
        stored = self._ledger.table(IDS)
        if not stored.paths:
            return rows
        asked = self._collect(_new_ids(rows).select("key").distinct(), part, folder)
        found = stored.find(asked["key"].to_numpy())
        if not found.num_rows:
            return rows
        names = found.group_by("id").aggregate([])  # by their names: two ids may have the same key
        known = self._spark.createDataFrame(names).withColumnRenamed("id", "_known")
        if names.nbytes <= _BROADCAST:
            known = F.broadcast(known)
        rows = rows.join(known, F.col("id") == F.col("_known"), "left")
        again = F.col("reason").isNull() & F.col("_known").isNotNull()
        return rows.withColumn("copy", F.col("copy") | again).drop("_known")

    def _collect(self, frame: DataFrame, part: Arrivals, folder: Path) -> pa.Table:
        return pa.concat_tables(list(collect_parts(frame, folder, part.size, self._check_rows)))

    def _follow_demand(self, state: LedgerState, change: DemandChange, folder: Path) -> LedgerState:
        """Let the plan follow the demand: a new version if it differs from the running plan."""
        self._check_size()
        base = self._look_at_base(state)
        self._say("planning")
        self._warm_up.wait()
        try:
            if base is None:
                followed = self._follower.follow(change, state.reference)
            else:
                followed = self._follower.follow_base(base.plan, state.reference)
        except InfeasibleError as error:
            self._leave_base(base)
            return self._keep_plan(state, folder, error)
        if followed is None:
            self._leave_base(base)
            return state
        if base is not None:
            state = replace(state, base=base.fingerprint)
        version = self._write_version(followed, state, folder)
        planned = state.planned
        if followed.drift is None or followed.before is not None or planned is None:
            saved, before = followed.saved, followed.before
            share = saved / before.work if saved is not None and before and before.work else None
            planned = PlannedAt(state.batch, state.latest, saved, share)
        return replace(
            state,
            version=version,
            reference=followed.reference,
            planned=planned,
            entry=describe_plan(followed) | ({} if base is None else {"base": base.fingerprint}),
            unserved=None,
        )

    def _look_at_base(self, state: LedgerState) -> BasePlan | None:
        """The plan to go on from, if it is another one than before."""
        if self._base is None:
            return None
        fault = self._base.fault
        found = self._base.look(state.base)
        if self._base.fault not in (None, fault):
            self._hooks.note(f"the base stays as it was: {self._base.fault}")
        return found

    def _leave_base(self, base: BasePlan | None) -> None:
        """Go on from the plan in force; the base is tried again with the next batch."""
        if base is not None:
            self._follower.restart(self._read_running())

    def _write_version(self, followed: FollowedPlan, state: LedgerState, folder: Path) -> int:
        """Write the plan, if it differs from the running one; return the version in force."""
        if followed.made is None:
            return state.version
        document = plan_document(followed.made, self._kept.demand.fingerprints())
        write_plan(followed.made.solution.plan, document, folder / "plan")
        self._hooks.step("planned")
        if self._ledger.is_running(folder / "plan"):
            shutil.rmtree(folder / "plan")
            return state.version
        return state.version + 1

    def _keep_plan(self, state: LedgerState, folder: Path, error: InfeasibleError) -> LedgerState:
        """Leave the running plan in force, since none keeps the terms; write who misses what."""
        demand = self._kept.demand.demand()
        assert demand is not None
        unserved = find_unserved(self._read_running(), demand.interest)
        columns = zip(*unserved, strict=True) if unserved else ((), ())
        receivers, flows = (pa.array(column, pa.string()) for column in columns)
        table = pa.table({"receiver": receivers, "flow": flows})
        write_arrow(table, folder / "unserved" / "part.parquet")
        entry = {"refused": str(error), "unserved": len(unserved)}
        return replace(state, unserved=f"{folder.name}/unserved", entry=entry)

    def _read_running(self) -> Plan | None:
        running = self._ledger.running_plan
        return None if running is None else read_plan(running).plan

    def _check_size(self) -> None:
        """Refuse interest that takes more memory than the driver may use to plan."""
        need, limit = stream_need(self._kept.demand, self._job.request.size), self._job.driver_limit
        if need > limit:
            pairs, ended = self._kept.demand.pairs, self._kept.demand.ended_pairs
            gone = f" and {ended:,} that ended" if ended else ""
            raise InputError(
                f"{pairs:,} pairs of interest{gone} take about {need / 2**30:.1f} GiB to plan, "
                f"more than the {limit / 2**30:.1f} GiB that a stream may use",
                remedy="raise --driver-limit, or plan with `pipeline run`, which can do it on "
                "executors",
            )

    def _check_rows(self, rows: int) -> None:
        """Refuse a batch whose rows, aggregated, take more memory than the driver may use."""
        need, limit = _BYTES_PER_ROW * rows, self._job.driver_limit
        if need > limit:
            raise InputError(
                f"batch {self._ledger.state.batch + 1} comes to {rows:,} different rows, about "
                f"{need / 2**30:.1f} GiB, more than the {limit / 2**30:.1f} GiB that a stream may "
                "use",
                remedy="raise --driver-limit, or replace its files by smaller ones; nothing of it "
                "was read",
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

    def _note_lost_column(self, counts: RowCounts, log: str, state: LedgerState) -> None:
        """Note if all rows of a batch lack a column, which may have another name now."""
        lost = [_COLUMN_OF.get(reason) for reason in counts.reasons]
        if len(lost) == 1 and lost[0] is not None and counts.quarantined == counts.read:
            self._hooks.note(
                f"batch {state.batch}: all {counts.read:,} rows of the {log} are put aside: "
                f"{next(iter(counts.reasons))}; if it is now elsewhere, start again with "
                f"--column {log}.{lost[0]}=PATH"
            )

    def _say(self, step: str) -> None:
        say(self._spark, step)
        self._hooks.step(step)


def stream_need(demand: LiveDemand, size: Size) -> int:
    """An estimate of the bytes that a stream takes to plan.

    It counts the pairs that ended and all names ever seen as well: their memory stays, because a
    pair's last action must be known, even if it ended the pair.
    """
    sizes = size.most_sessions, size.groups
    need = driver_need(demand.pairs, demand.n_receivers, *sizes)
    need += _BYTES_PER_TALLY * len(demand.receivers) * sum(sizes)
    need += _BYTES_PER_ENDED_PAIR * demand.ended_pairs + _BYTES_PER_ORDERED_PAIR * demand.pairs
    return need + _BYTES_PER_NAME * (len(demand.receivers) + len(demand.flows))


def _mark_late(log: Log, watermark: datetime | None) -> Log:
    """Give rows before the watermark the reason "late"; those after the window keep theirs."""
    if watermark is None:
        return log
    late = (F.col("reason") == str(Reason.OUTSIDE)) & (F.col("ts") < F.lit(watermark))
    reason = F.when(late, str(Reason.LATE)).otherwise(F.col("reason"))
    return replace(log, rows=log.rows.withColumn("reason", reason))


def _id_as_text(log: Log) -> Log:
    """An id is the same in files of any format: text, as it is stored."""
    return replace(log, rows=log.rows.withColumn("id", F.col("id").cast("string")))


def _union(parts: Sequence[DataFrame]) -> DataFrame:
    return reduce(DataFrame.unionByName, parts)


def _in_micros(digest: DataFrame) -> DataFrame:
    times = {name: F.unix_micros(name) for name in ("first", "last")}
    return digest.withColumns({"key": F.xxhash64("flow"), **times})


def _new_ids(rows: DataFrame) -> DataFrame:
    """The ids of messages that count."""
    counts = F.col("reason").isNull() & ~F.col("copy") & F.col("id").isNotNull()
    return rows.where(counts).select(
        F.xxhash64("id").alias("key"), "id", F.unix_micros("ts").alias("ts")
    )


def _select(found: pa.Table, kind: TableKind) -> pa.Table:
    """The usable rows of what was collected, as rows of a table of the state."""
    if "reason" in found.column_names:
        found = found.select([*kind.schema.names, "reason"])  # the others need not be copied
        found = found.filter(pc.field("reason").is_null())
    return found.select(kind.schema.names).cast(kind.schema)


def _count_actions(found: pa.Table) -> RowCounts:
    """Count the rows of a digest by what became of them."""
    reasons = _sum_by_reason(found, "rows", "different")
    rows, different = reasons.pop(None, (0, 0))
    return RowCounts(different, rows - different, _first_of_each(reasons))


def _count_messages(found: pa.Table) -> RowCounts:
    """Count the rows of a digest by what became of them."""
    rows = "rows" if "rows" in found.column_names else "messages"
    reasons = _sum_by_reason(found, rows, "copies")
    messages, copies = reasons.pop(None, (0, 0))
    return RowCounts(messages, copies, _first_of_each(reasons))


def _sum_by_reason(found: pa.Table, *columns: str) -> dict[str | None, tuple[int, ...]]:
    sums = found.group_by("reason").aggregate([(name, "sum") for name in columns])
    names = ["reason", *(f"{name}_sum" for name in columns)]
    rows = zip(*(sums[name].to_pylist() for name in names), strict=True)
    return {reason: tuple(numbers) for reason, *numbers in rows}


def _first_of_each(reasons: Mapping[str | None, tuple[int, ...]]) -> dict[str, int]:
    return {str(reason): numbers[0] for reason, numbers in sorted(reasons.items())}


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


@contextmanager
def _cache(frame: DataFrame, *, needed: bool) -> Iterator[None]:
    """Keep a frame, if a batch needs it several times, so that files are read once."""
    if needed:
        frame.persist()
    try:
        yield
    finally:
        if needed:
            frame.unpersist()


def _count_rows(state: LedgerState, log: str) -> int:
    """The rows of a log so far."""
    counts = state.counts.get(log, {"used": 0, "duplicates": 0, "reasons": {}})
    return int(counts["used"] + counts["duplicates"] + sum(counts["reasons"].values()))


def _extreme(of: Callable[[Sequence[int]], int], *values: int | None) -> int | None:
    known = [value for value in values if value is not None]
    return of(known) if known else None
