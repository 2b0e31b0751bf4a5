"""Raw logs in; usable rows, bad rows with their reasons, and exact counts out.

Rows are read as they stand (text lines, or a table's own columns) and then converted with
expressions that give null instead of failing, so that each bad row has its own exact reason and
never stops a run. A `Log` only describes: nothing is read before an action on it.

**One pass.** `Log.rows` holds every row, usable or not. The digests of `interest` and `rates`
reduce it in one aggregation that also counts usable rows, duplicates and each reason. The logs are
read again only in rare cases: to write bad rows, and to resolve ties. All counts come from the data
flow itself, because Spark's accumulators count a task twice if it runs again after the loss of an
executor. `count_rows_at_source` counts without parsing (Parquet's footers, or lines of text), and
`check_sum` compares the two.

**Position** is a row's place in the input, independent of the partitioning: the file, the block of
the file that was read at once, and the line in it. Spark's ids grow within a block, and rows of one
block stay in one task. A table read by name has no order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import reduce
from typing import Final, Literal

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import IntegralType, StringType, StructType
from pyspark.sql.window import Window as Over

from distributary.errors import DistributaryError
from distributary.pipeline.moments import is_number
from distributary.pipeline.opening import LogColumns, OpenedLog, open_log
from distributary.pipeline.schemas import SUBSCRIBE, UNSUBSCRIBE, quote_name
from distributary.pipeline.shapes import AS_DOCUMENTED, LOG_COLUMNS, LogShape, TimeUnit
from distributary.pipeline.sources import Source, report_read_faults

__all__ = [
    "BadRowsError",
    "CountError",
    "Log",
    "Reason",
    "RowCounts",
    "TimeWindow",
    "check_bad",
    "check_sum",
    "count_rows_at_source",
    "mark_copies",
    "read_filters",
    "read_interest",
    "read_publications",
    "read_subscriptions",
    "unite_rows",
]


SUBSCRIPTION_COLUMNS: Final = LogColumns(LOG_COLUMNS["subscriptions"])
PUBLICATION_COLUMNS: Final = LogColumns(("ts", "flow"), ("size", "id", "count"))
FILTER_COLUMNS: Final = LogColumns(LOG_COLUMNS["filters"])
MOST_MESSAGES: Final = 2**53
"""The most messages that a row may stand for: doubles count so far."""


class Reason(StrEnum):
    """Why a row cannot be used; if several apply, the first in this order."""

    CORRUPT = "corrupt line"
    NO_RECEIVER = "no receiver"
    NO_FLOW = "no flow"
    NO_FILTER = "no filter"
    ACTION = "unknown action"
    NO_TS = "no ts"
    YEAR_S = "ts outside 1990 to 2100, but not in seconds: --time-unit s"
    YEAR_MS = "ts outside 1990 to 2100, but not in milliseconds: --time-unit ms"
    YEAR_US = "ts outside 1990 to 2100, but not in microseconds: --time-unit us"
    YEAR_NS = "ts outside 1990 to 2100, but not in nanoseconds: --time-unit ns"
    YEAR = "ts outside 1990 to 2100 in every unit"
    UNIT = "ts is a number: name its unit with --time-unit"
    TS = "ts is not a time"
    OUTSIDE = "ts outside the window"
    SIZE = "size is not a whole number >= 0"
    COUNT = "count is not a whole number from 1 to 2^53"
    BYTES = "size times count is beyond 2^63"
    ATTRIBUTE = "attribute of the wrong type"
    LATE = "late"  # in a stream: older than the watermark


_FITTING: Final[Mapping[TimeUnit, Reason]] = {
    "s": Reason.YEAR_S,
    "ms": Reason.YEAR_MS,
    "us": Reason.YEAR_US,
    "ns": Reason.YEAR_NS,
}


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """The time that a run covers: from `since` (included) to `until` (excluded); None is open."""

    since: datetime | None = None
    until: datetime | None = None

    def __post_init__(self) -> None:
        if self.since and self.until and _assume_utc(self.since) >= _assume_utc(self.until):
            raise ValueError(f"the window ends at {self.until}, before it begins at {self.since}")


@dataclass(frozen=True, slots=True)
class Log:
    """A log as read: every row with its `reason`, which is null if the row can be used.

    `rows` has the log's own columns, `reason`, `id` (null if the log has none), `copy` (an earlier
    row has the same id), `position` and `raw`. `lines` are the rows as they stand at the source.
    Publications may also have `count`: how many messages a row stands for.
    """

    name: str
    source: Source
    rows: DataFrame = field(repr=False)
    columns: tuple[str, ...]
    lines: DataFrame = field(repr=False)
    identified: bool = False

    @property
    def valid(self) -> DataFrame:
        """Usable rows, possibly repeated, for aggregations that handle duplicates themselves."""
        return self.rows.where(F.col("reason").isNull() & ~F.col("copy")).select(
            *map(quote_name, self.columns), "position"
        )

    @property
    def messages(self) -> DataFrame:
        """The usable rows of publications: ts, flow, size, and count if the log has it."""
        return self.valid.select("ts", "flow", "size", *(["count"] if self.counted else []))

    @property
    def counted(self) -> bool:
        """Whether rows stand for several messages each, and say for how many."""
        return "count" in self.columns

    @property
    def used(self) -> DataFrame:
        """Usable rows, each once."""
        if self.name != "subscriptions":
            return self.valid
        return (
            self.valid.groupBy(*self.columns)
            .agg(F.max("position").alias("position"))
            .select(*self.columns, "position")
        )

    @property
    def quarantined(self) -> DataFrame:
        """Rows that cannot be used: log, file, reason, raw."""
        return self.rows.where(F.col("reason").isNotNull()).select(
            F.lit(self.name).alias("log"), F.col("position.file").alias("file"), "reason", "raw"
        )


@dataclass(frozen=True, slots=True)
class RowCounts:
    """The numbers of a log's rows that were used, duplicates, and bad by reason."""

    used: int
    duplicates: int
    reasons: Mapping[str, int]

    @property
    def quarantined(self) -> int:
        """The number of bad rows."""
        return sum(self.reasons.values())

    @property
    def read(self) -> int:
        """The number of all rows."""
        return self.used + self.duplicates + self.quarantined


class BadRowsError(DistributaryError):
    """More rows of a log are bad than the caller allows."""

    def __init__(self, log: str, counts: RowCounts, share: float) -> None:
        self.log = log
        self.counts = counts
        self.share = share
        worst = ", ".join(
            f"{number:,} x {reason}" for reason, number in Counter(counts.reasons).most_common(3)
        )
        super().__init__(
            f"{counts.quarantined:,} of {counts.read:,} rows of the {log} cannot be used, more "
            f"than {share:.3%} ({worst}); mend them, or allow more with --max-bad"
        )


class CountError(DistributaryError):
    """Rows were lost or counted twice: the rows read are not the rows used and put aside."""

    def __init__(self, log: str, read: int, counts: RowCounts, written: int) -> None:
        self.log = log
        self.read = read
        self.counts = counts
        self.written = written
        super().__init__(
            f"{log}: {read:,} rows at the source, but {counts.used:,} used + "
            f"{counts.duplicates:,} duplicates + {written:,} put aside (of "
            f"{counts.quarantined:,} bad); the files changed during the run: run again"
        )


def read_subscriptions(
    spark: SparkSession,
    source: str | Source,
    window: TimeWindow | None = None,
    *,
    shape: LogShape = AS_DOCUMENTED,
    check: bool = True,
) -> Log:
    """Read the subscription log; subscriptions made before the window still stand.

    `check`: see `open_log`.
    """
    log = open_log(spark, "subscriptions", source, SUBSCRIPTION_COLUMNS, shape, check=check)
    until = TimeWindow(until=window.until) if window else TimeWindow()
    action, unknown = _read_actions(shape)
    faults = [
        (_is_blank("receiver"), Reason.NO_RECEIVER),
        (_is_blank("flow"), Reason.NO_FLOW),
        *unknown,
        *_find_time_faults(log, until),
    ]
    return _judge_rows(
        log, faults, {"ts": _parse_time(log), "receiver": None, "flow": None, "action": action}
    )


def read_publications(
    spark: SparkSession,
    source: str | Source,
    window: TimeWindow | None = None,
    attributes: StructType | Literal["all"] | None = None,
    *,
    shape: LogShape = AS_DOCUMENTED,
    check: bool = True,
) -> Log:
    """Read the publication log; rows outside the window are bad.

    `attributes`: see `LogColumns`; `check`: see `open_log`.
    """
    columns = replace(PUBLICATION_COLUMNS, attributes=attributes)
    log = open_log(spark, "publications", source, columns, shape, check=check)
    kept = _cast_attributes(log)
    wrong = [F.col(quote_name(name)).isNotNull() & value.isNull() for name, value in kept.items()]
    size = _parse_whole(log, "size")
    counts: dict[str, Column | None] = {}
    too_many: list[tuple[Column, Reason]] = []
    if "count" in log.given:
        count = _parse_count(log)
        product = F.try_multiply(size.cast("bigint"), count)
        counts = {"count": count}
        too_many = [
            (count.isNull(), Reason.COUNT),
            (size.isNotNull() & product.isNull(), Reason.BYTES),
        ]
    faults = [
        (_is_blank("flow"), Reason.NO_FLOW),
        *_find_time_faults(log, window or TimeWindow()),
        (F.col("size").isNotNull() & size.isNull(), Reason.SIZE),
        *too_many,
        *((fault, Reason.ATTRIBUTE) for fault in wrong),
    ]
    typed = {"ts": _parse_time(log), "flow": None, "size": size, **counts, **kept}
    return _judge_rows(log, faults, typed, identified="id" in log.given)


def read_filters(
    spark: SparkSession, source: str | Source, *, shape: LogShape = AS_DOCUMENTED
) -> Log:
    """The filters as text; whether each is one is for `content` to say."""
    log = open_log(spark, "filters", source, FILTER_COLUMNS, shape)
    faults = [
        (_is_blank("receiver"), Reason.NO_RECEIVER),
        (_is_blank("filter"), Reason.NO_FILTER),
    ]
    return _judge_rows(log, faults, {"receiver": None, "filter": None})


def read_interest(spark: SparkSession, source: str | Source) -> Log:
    """Interest as a table of its own, from wherever a log could come."""
    log = open_log(spark, "interest", source, LogColumns(("receiver", "flow")))
    faults = [(_is_blank("receiver"), Reason.NO_RECEIVER), (_is_blank("flow"), Reason.NO_FLOW)]
    return _judge_rows(log, faults, {"receiver": None, "flow": None})


def unite_rows(logs: Sequence[Log]) -> DataFrame:
    """The rows of several logs of messages; a row without a count stands for one, if others have.

    `raw` is left out.
    """
    counted = any(log.counted for log in logs)
    rows = [
        log.rows.withColumn("count", F.lit(1).cast("bigint"))
        if counted and not log.counted
        else log.rows
        for log in logs
    ]
    return reduce(DataFrame.unionByName, (one.drop("raw") for one in rows))


def mark_copies(rows: DataFrame) -> DataFrame:
    """Mark usable rows as copies if an earlier row, by time and position, has the same id."""
    counts = F.col("reason").isNull() & ~F.col("copy") & F.col("id").isNotNull()
    alone = F.when(~counts, F.monotonically_increasing_id())
    first = Over.partitionBy(F.when(counts, F.col("id")), "_alone").orderBy("ts", "position")
    again = F.col("_alone").isNull() & (F.row_number().over(first) > 1)
    return rows.withColumn("_alone", alone).withColumn("copy", F.col("copy") | again).drop("_alone")


def count_rows_at_source(log: Log) -> int:
    """The number of rows at the source, counted without parsing them."""
    with report_read_faults(log.source.path):
        return log.lines.count()


def check_bad(log: str, counts: RowCounts, share: float) -> None:
    """Raise a `BadRowsError` if more than this share of a log's rows are bad."""
    if counts.quarantined > share * counts.read:
        raise BadRowsError(log, counts, share)


def check_sum(log: str, read: int, counts: RowCounts, written: int) -> None:
    """Check that rows read = used + duplicates + put aside, each counted by itself."""
    if read != counts.used + counts.duplicates + written or written != counts.quarantined:
        raise CountError(log, read, counts, written)


# --- judging -------------------------------------------------------------------------------------


def _is_blank(name: str) -> Column:
    return F.coalesce(F.col(name) == "", F.lit(True))


def _read_actions(shape: LogShape) -> tuple[Column | None, list[tuple[Column, Reason]]]:
    """The action in our words (None: the column as it is), and which rows have an unknown one."""
    if not shape.path_of("action"):
        return F.lit(SUBSCRIBE), []
    words = (*shape.subscribe, *shape.unsubscribe)
    unknown = F.coalesce(~F.col("action").isin(*words), F.lit(True))
    if words == (SUBSCRIBE, UNSUBSCRIBE):
        return None, [(unknown, Reason.ACTION)]
    joins = F.col("action").isin(*shape.subscribe)
    action = F.when(joins, SUBSCRIBE).when(~unknown, UNSUBSCRIBE).otherwise(F.col("action"))
    return action, [(unknown, Reason.ACTION)]


def _parse_time(log: OpenedLog) -> Column:
    if log.clock is None:  # all of it was so from the beginning
        return F.timestamp_micros(F.lit(0))
    return log.clock.parse(F.col("ts"))


def _find_time_faults(log: OpenedLog, window: TimeWindow) -> list[tuple[Column, Reason]]:
    if log.clock is None:
        return []
    ts = _parse_time(log)
    faults = [(F.col("ts").isNull(), Reason.NO_TS)]
    if isinstance(log.clock.kind, StringType):
        faults = [(F.coalesce(F.trim("ts") == "", F.lit(True)), Reason.NO_TS)]
    outside = log.clock.is_outside(F.col("ts"))
    if outside is not None:
        faults += [(fits, _FITTING[unit]) for unit, fits in log.clock.list_others(F.col("ts"))]
        faults.append((outside, Reason.YEAR))
    if isinstance(log.clock.kind, StringType) and not log.shape.guess and outside is None:
        faults.append((ts.isNull() & is_number(F.col("ts"), log.clock.kind), Reason.UNIT))
    if isinstance(log.clock.kind, StringType) or outside is not None:
        faults.append((ts.isNull(), Reason.TS))
    if window.since is not None:
        faults.append((ts < F.lit(_assume_utc(window.since)), Reason.OUTSIDE))
    if window.until is not None:
        faults.append((ts >= F.lit(_assume_utc(window.until)), Reason.OUTSIDE))
    return faults


def _parse_whole(log: OpenedLog, name: str) -> Column:
    """A whole number >= 0 as an int, null if it is not one."""
    kind, value = log.types[name], F.col(name)
    if isinstance(kind, StringType):
        return F.when(value.rlike(r"^\s*\d{1,10}\s*$"), F.trim(value).try_cast("int"))
    if isinstance(kind, IntegralType):
        return F.when(value >= 0, value.try_cast("int"))
    return F.when((value >= 0) & (value % 1 == 0), value.try_cast("int"))


def _parse_count(log: OpenedLog) -> Column:
    """A whole number of messages as a bigint, null if it is not one."""
    kind, value = log.types["count"], F.col("count")
    whole = value.try_cast("bigint")
    if isinstance(kind, StringType):
        whole = F.when(value.rlike(r"^\s*\d{1,16}\s*$"), F.trim(value).try_cast("bigint"))
    elif not isinstance(kind, IntegralType):
        whole = F.when(value % 1 == 0, whole)
    return F.when(whole.between(1, MOST_MESSAGES), whole)


def _cast_attributes(log: OpenedLog) -> dict[str, Column]:
    return {
        one.name: F.col(quote_name(one.name)).try_cast(one.dataType)
        if log.types[one.name] != one.dataType
        else F.col(quote_name(one.name))
        for one in log.extra
    }


def _judge_rows(
    log: OpenedLog,
    faults: Sequence[tuple[Column, Reason]],
    columns: Mapping[str, Column | None],
    *,
    identified: bool = False,
) -> Log:
    """The log with the first fault of each row, and its columns in their final types."""
    if log.text:
        faults = [(F.col("corrupt"), Reason.CORRUPT), *faults]
    (fault, why), *others = faults
    reason = F.when(fault, F.lit(str(why)))
    for fault, why in others:
        reason = reason.when(fault, F.lit(str(why)))
    rows = log.frame.select(
        *(
            F.col(quote_name(name)) if value is None else value.alias(name)
            for name, value in columns.items()
        ),
        reason.alias("reason"),
        F.col("id") if identified else F.lit(None).cast("string").alias("id"),
        F.lit(False).alias("copy"),
        "position",
        "raw",
    )
    if identified:
        rows = mark_copies(rows)
    return Log(log.name, log.source, rows, tuple(columns), log.lines, identified)


def _assume_utc(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
