"""Who wants what at a moment, from the log of subscriptions and unsubscriptions.

The last action of each receiver and flow wins. Of two at the same time, the one later in the input
wins; if the input has no order, `subscribe` wins, because a plan must never drop what a receiver
wants.

`last_actions` says this in one line. It can be applied to its own results and new rows together.
`subscription_digest` gives the same for a whole log, also counts its rows, and is three times as
fast: an action and its time fit into one whole number, and aggregations of whole numbers need no
sort. It has no positions; the rare pairs with both actions at their last time are looked up again
(`resolve_last_actions`).
"""

from __future__ import annotations

import math
from datetime import datetime, timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from distributary.pipeline.ingest import Log, RowCounts
from distributary.pipeline.schemas import POSITION, SUBSCRIBE, SUBSCRIPTIONS, UNSUBSCRIBE

__all__ = [
    "FAINTEST_PRESENCE",
    "absent_receivers",
    "action_digest",
    "interest_of",
    "last_actions",
    "resolve_last_actions",
    "subscription_counts",
    "subscription_digest",
    "ties",
]

FAINTEST_PRESENCE = 0.1
"""A receiver whose presence is below this share counts as gone."""

_PAIR = ("receiver", "flow")


def interest_of(
    state: DataFrame, moment: datetime | None = None, half_life: timedelta | None = None
) -> DataFrame:
    """`receiver, flow`: who wants what at a moment, from last actions up to it.

    With a half-life, a receiver's presence halves with each one that passed between its last row
    in the log and the moment; below a tenth it is dropped with all it wanted.
    """
    wanted = state.where(F.col("action") == SUBSCRIBE).select(*_PAIR)
    if half_life is None:
        return wanted
    if moment is None:
        raise ValueError("a half-life needs the moment that age is counted from")
    return wanted.join(absent_receivers(state, moment, half_life), "receiver", "left_anti")


def absent_receivers(state: DataFrame, moment: datetime, half_life: timedelta) -> DataFrame:
    """Receivers that want something but were not seen for too long: `receiver`."""
    longest = half_life * math.log2(1 / FAINTEST_PRESENCE)
    seen = state.groupBy("receiver").agg(
        F.max("ts").alias("seen"), F.bool_or(F.col("action") == SUBSCRIBE).alias("wants")
    )
    gone = F.col("wants") & (F.col("seen") < F.lit(moment - longest))
    return seen.where(gone).select("receiver")


def last_actions(subscriptions: DataFrame) -> DataFrame:
    """The last row of each receiver and flow: `receiver, flow, ts, position, action`.

    Takes used rows of the log, its own results, or both together.
    """
    last = F.max(F.struct("ts", "position", (F.col("action") == SUBSCRIBE).alias("on")))
    return (
        subscriptions.groupBy(*_PAIR)
        .agg(last.alias("last"))
        .select(*_PAIR, "last.ts", "last.position", _action(F.col("last.on")).alias("action"))
    )


def subscription_digest(log: Log) -> DataFrame:
    """A log aggregated per receiver and flow, or per reason where rows cannot be used.

    `receiver, flow, reason, subscribed, unsubscribed` (the last time of each action, or null),
    `rows` and `different` (rows that differ in time or action: the others are duplicates).
    """
    good = F.col("reason").isNull()
    on = (F.col("action") == SUBSCRIBE).cast("long")
    rows = log.rows.select(
        *(F.when(good, F.col(name)).alias(name) for name in _PAIR),
        "reason",
        F.when(good, F.unix_micros("ts") * 2 + on).alias("stamp"),
    )
    # One shuffle, by pair, serves both aggregations.
    return (
        rows.repartition(*_PAIR)
        .groupBy(*_PAIR, "reason", "stamp")
        .agg(F.count("*").alias("rows"))
        .groupBy(*_PAIR, "reason")
        .agg(
            F.max(F.when(_is_odd("stamp"), F.col("stamp"))).alias("on"),
            F.max(F.when(~_is_odd("stamp"), F.col("stamp"))).alias("off"),
            F.sum("rows").alias("rows"),
            F.count("*").alias("different"),
        )
        .select(
            *_PAIR,
            "reason",
            F.timestamp_micros(F.shiftright("on", 1)).alias("subscribed"),
            F.timestamp_micros(F.shiftright("off", 1)).alias("unsubscribed"),
            "rows",
            "different",
        )
    )


def action_digest(rows: DataFrame) -> DataFrame:
    """A log's `rows` aggregated per receiver and flow, or per reason where rows cannot be used.

    `receiver, flow, reason`, the last action (`ts, file, block, line, on`; as `last_actions` has
    it), `rows` and `different` (as in `subscription_digest`).
    """
    good = F.col("reason").isNull()
    on = F.col("action") == SUBSCRIBE
    keyed = rows.select(
        *(F.when(good, F.col(name)).alias(name) for name in _PAIR),
        "reason",
        F.when(good, F.col("ts")).alias("ts"),
        F.when(good, on).alias("on"),
        F.when(good, F.col("position")).alias("position"),
    )
    # One shuffle, by pair, serves both aggregations.
    return (
        keyed.repartition(*_PAIR)
        .groupBy(*_PAIR, "reason", "ts", "on")
        .agg(F.count("*").alias("rows"), F.max("position").alias("position"))
        .groupBy(*_PAIR, "reason")
        .agg(
            F.max(F.struct("ts", "position", "on")).alias("last"),
            F.sum("rows").alias("rows"),
            F.count("*").alias("different"),
        )
        .select(*_PAIR, "reason", "last.ts", "last.position.*", "last.on", "rows", "different")
    )


def subscription_counts(digest: DataFrame) -> RowCounts:
    """Count the rows by what became of them. Runs a job; cache the digest first."""
    by_reason = digest.groupBy("reason").agg(
        F.sum("rows").alias("rows"), F.sum("different").alias("different")
    )
    found = {row["reason"]: row for row in by_reason.collect()}
    good = found.pop(None, None)
    used = good["different"] if good else 0
    return RowCounts(
        used=used,
        duplicates=good["rows"] - used if good else 0,
        reasons={reason: row["rows"] for reason, row in sorted(found.items())},
    )


def ties(digest: DataFrame) -> DataFrame:
    """Pairs whose last subscription and last unsubscription have the same time."""
    tied = digest.where(F.col("reason").isNull() & (F.col("subscribed") == F.col("unsubscribed")))
    return tied.select(*_PAIR, F.col("subscribed").alias("ts"))


def resolve_last_actions(digest: DataFrame, valid: DataFrame | None) -> DataFrame:
    """The last actions of a digest; ties are resolved with the log's `valid` rows.

    Pass None if there are no ties (`ties(digest)` is empty), so that the log is not read again.
    Positions are null except for ties, so a later row with the same time wins.
    """
    subscribed, unsubscribed = F.col("subscribed"), F.col("unsubscribed")
    none = F.lit(None).cast(POSITION)
    clear = digest.where(F.col("reason").isNull())
    if valid is not None:
        clear = clear.where(~subscribed.eqNullSafe(unsubscribed))
    on = F.coalesce(subscribed >= unsubscribed, subscribed.isNotNull())
    state = clear.select(
        *_PAIR,
        F.greatest(subscribed, unsubscribed).alias("ts"),
        none.alias("position"),
        _action(on).alias("action"),
    )
    if valid is None:
        return state
    columns = SUBSCRIPTIONS.fieldNames()
    tied = valid.select(*columns, "position").join(ties(digest), [*_PAIR, "ts"], "left_semi")
    return state.unionByName(last_actions(tied))


def _action(on: Column) -> Column:
    return F.when(on, SUBSCRIBE).otherwise(UNSUBSCRIBE)


def _is_odd(column: str) -> Column:
    return F.col(column).bitwiseAND(1) == 1
