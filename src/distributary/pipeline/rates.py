"""The rate of each flow over a window, from the publication log.

`publication_digest` counts a log in one aggregation, and `rates_from` turns the digest into rates.
Only whole numbers are summed, so that the result does not depend on the partitioning, and so that a
stream can add digests up (`kept_tables`).

**Weighted rates.** A message counts 2^-(age / half-life), and the sum is divided by the integral of
the same weight over the window, so that a constant rate stays as it is. The end of the window is
not known while messages are counted, so weights are taken at the end of a span of four half-lives,
as multiples of 2^-31 (each is then precise to 1 part in 10^8), and aged by whole spans later.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from distributary.pipeline.ingest import RowCounts
from distributary.pipeline.schemas import RATES
from distributary.pipeline.times import to_micros, to_time

__all__ = [
    "FlowCounts",
    "flow_counts",
    "publication_counts",
    "publication_digest",
    "published_window",
    "rates_for",
    "rates_from",
]

_UNIT = 2**31
_SPAN = 4
_SHORTEST = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class FlowCounts:
    """The numbers of wanted flows, silent ones among them, and unwanted flows and messages."""

    wanted: int
    silent: int
    unwanted: int
    unwanted_messages: int


def publication_digest(
    rows: DataFrame, half_life: timedelta | None = None, peak_window: timedelta | None = None
) -> DataFrame:
    """Count a log's `rows` per flow, and per reason where they cannot be used.

    `flow, reason, span, slot, messages, bytes, sized, weight, first, last, copies`: `span` (the end
    of four half-lives) and `slot` (the start of a peak window) are in microseconds, null if not
    asked for; `sized` is the number of messages with a size; `copies` of a message seen before
    count nowhere else. Where rows have a `count`, `messages` are those that rows stand for, and
    there is one more column, `rows`: the rows themselves, without copies.
    """
    many = "count" in rows.columns
    counted = F.col("reason").isNull() & ~F.col("copy")
    micros = F.unix_micros("ts")
    never = F.lit(None).cast("long")
    span, slot, weight = never, never, F.lit(0).cast("long")
    if half_life is not None:
        length = to_micros(_SPAN * half_life)
        span = F.when(counted, micros - F.pmod(micros, F.lit(length)) + length)
        age = (micros - span) / F.lit(float(to_micros(half_life)))
        weight = F.round(F.pow(F.lit(2.0), age) * _UNIT).cast("long")
    if peak_window is not None:
        slot = F.when(counted, micros - F.pmod(micros, F.lit(to_micros(peak_window))))
    keyed = rows.select(
        F.when(F.col("reason").isNull(), F.col("flow")).alias("flow"),
        "reason",
        span.alias("span"),
        slot.alias("slot"),
        F.when(counted, micros).alias("micros"),
        F.when(counted, F.col("size")).alias("size"),
        F.when(counted, weight).alias("weight"),
        "copy",
        *([F.when(counted, F.col("count")).alias("count")] if many else []),
    )
    without_copies = F.col("rows") - F.col("copies")
    return (
        keyed.groupBy("flow", "reason", "span", "slot")
        .agg(
            F.count("*").alias("rows"),
            *(_sum_messages(half_life is not None) if many else _sum_rows()),
            F.min("micros").alias("first"),
            F.max("micros").alias("last"),
            F.count_if("copy").alias("copies"),
        )
        .select(
            "flow",
            "reason",
            "span",
            "slot",
            F.col("messages") if many else without_copies.alias("messages"),
            "bytes",
            "sized",
            "weight",
            F.timestamp_micros("first").alias("first"),
            F.timestamp_micros("last").alias("last"),
            "copies",
            *([without_copies.alias("rows")] if many else []),
        )
    )


def _sum_rows() -> tuple[Column, ...]:
    """The sums of a digest, if each row is a message: bytes, sized, weight."""
    return (
        F.sum(F.col("size").cast("long")).alias("bytes"),
        F.count("size").alias("sized"),
        F.sum("weight").alias("weight"),
    )


def _sum_messages(weighted: bool) -> tuple[Column, ...]:
    """The same and messages, if each row stands for `count` of them.

    Weights of many messages need more than 64 bits.
    """
    count, weight, none = F.col("count"), F.col("weight"), F.lit(0).cast("long")
    if weighted:
        weight = weight.cast("decimal(10,0)") * count.cast("decimal(16,0)")
    return (
        F.coalesce(F.sum(count), none).alias("messages"),
        F.sum(F.col("size").cast("long") * count).alias("bytes"),
        F.coalesce(F.sum(F.when(F.col("size").isNotNull(), count)), none).alias("sized"),
        F.sum(weight).alias("weight"),
    )


def publication_counts(digest: DataFrame) -> RowCounts:
    """Count the rows by what became of them. Runs a job; cache the digest first."""
    rows = "rows" if "rows" in digest.columns else "messages"
    by_reason = digest.groupBy("reason").agg(
        F.sum(rows).alias("rows"), F.sum("copies").alias("copies")
    )
    found = {row["reason"]: row for row in by_reason.collect()}
    good = found.pop(None, None)
    return RowCounts(
        used=good["rows"] if good else 0,
        duplicates=good["copies"] if good else 0,
        reasons={reason: row["rows"] for reason, row in sorted(found.items())},
    )


def published_window(digest: DataFrame) -> tuple[datetime, datetime] | None:
    """From the first to the last used message, at least a second; None without any. Runs a job."""
    micros = digest.where(F.col("reason").isNull()).agg(
        F.unix_micros(F.min("first")), F.unix_micros(F.max("last"))
    )
    first, last = micros.collect()[0]
    if first is None:
        return None
    start, end = to_time(first), to_time(last)
    return start, max(end, start + _SHORTEST)


def rates_from(
    digest: DataFrame,
    start: datetime,
    end: datetime,
    half_life: timedelta | None = None,
    peak_window: timedelta | None = None,
) -> DataFrame:
    """Rates from a digest that was made with the same half-life and peak window.

    Sizes are means, null if no message had one; `peak` is the rate of the busiest peak window.
    """
    if end <= start:
        raise ValueError(f"the window from {start} to {end} is empty")
    state = digest.where(F.col("reason").isNull() & (F.col("messages") > 0))
    sums = [F.sum(name).alias(name) for name in ("messages", "bytes", "sized")]
    seconds = (end - start).total_seconds()
    if half_life is None:
        flows = state.groupBy("flow").agg(*sums)
        rate = F.col("messages") / F.lit(seconds)
    else:
        spans = state.groupBy("flow", "span").agg(*sums, F.sum("weight").alias("weight"))
        # Doubles are added in the order of time, or the last bit would depend on the partitioning.
        ordered = F.array_sort(F.collect_list(F.struct("span", "weight"))).alias("weights")
        flows = spans.groupBy("flow").agg(*sums, ordered)
        rate = _sum_weights(F.col("weights"), end, half_life) / F.lit(_integral(seconds, half_life))
    rates = flows.select("flow", rate.alias("rate"), F.try_divide("bytes", "sized").alias("size"))
    if peak_window is None:
        return rates.withColumn("peak", F.lit(None).cast("double")).select(*RATES.fieldNames())
    busiest = (
        state.groupBy("flow", "slot")
        .agg(F.sum("messages").alias("messages"))
        .groupBy("flow")
        .agg((F.max("messages") / F.lit(peak_window.total_seconds())).alias("peak"))
    )
    return rates.join(busiest, "flow").select(*RATES.fieldNames())


def rates_for(interest: DataFrame, rates: DataFrame, floor: float) -> DataFrame:
    """Rates of the wanted flows; silent flows get the floor."""
    if not floor > 0:
        raise ValueError(f"the floor must be above 0 messages/s, not {floor}")
    wanted = interest.select("flow").distinct()
    # A weighted rate may be so old that it is 0: the flow counts as silent.
    rate = F.when(F.col("rate") > 0, F.col("rate")).otherwise(F.lit(floor))
    return wanted.join(rates, "flow", "left").withColumn("rate", rate).select(*RATES.fieldNames())


def flow_counts(interest: DataFrame, digest: DataFrame) -> FlowCounts:
    """Count wanted, silent and unwanted flows. Runs a job."""
    published = (
        digest.where(F.col("reason").isNull() & (F.col("messages") > 0))
        .groupBy("flow")
        .agg(F.sum("messages").alias("messages"))
    )
    wanted = interest.select("flow").distinct().withColumn("wanted", F.lit(True))
    unwanted = F.col("wanted").isNull()
    row = (
        wanted.join(published, "flow", "full")
        .agg(
            F.count("wanted").alias("wanted"),
            F.count_if(F.col("messages").isNull()).alias("silent"),
            F.count_if(unwanted).alias("unwanted"),
            F.sum(F.when(unwanted, F.col("messages"))).alias("unwanted_messages"),
        )
        .collect()[0]
    )
    return FlowCounts(row["wanted"], row["silent"], row["unwanted"], row["unwanted_messages"] or 0)


def _sum_weights(weights: Column, end: datetime, half_life: timedelta) -> Column:
    last, length = float(to_micros(end)), float(to_micros(half_life))

    def aged(total: Column, one: Column) -> Column:
        age = (one["span"].cast("double") - F.lit(last)) / F.lit(length)
        return total + one["weight"] / F.lit(float(_UNIT)) * F.pow(F.lit(2.0), age)

    return F.aggregate(weights, F.lit(0.0), aged)


def _integral(seconds: float, half_life: timedelta) -> float:
    """The integral of 2^-(age / half-life) from age 0 to the length of the window."""
    length = half_life.total_seconds()
    return length / math.log(2) * -math.expm1(-math.log(2) * seconds / length)
