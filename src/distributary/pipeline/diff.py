"""The changes from one plan to the next: which flows move, who joins and leaves what.

Sessions and groups are compared by number, because numbers are addresses: the flows of a session
that changed its group have moved. A flow in several sessions is compared session by session; the
sessions it left and the ones it came to are paired in ascending order.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from distributary.pipeline.plans import PlanTables

__all__ = ["KINDS", "PlanDiff", "plan_diff"]

KINDS = {
    "moves": ("moved", "new", "gone", "added", "removed"),
    "subscriptions": ("subscribe", "unsubscribe"),
    "memberships": ("join", "leave"),
    "unicast": ("start", "stop"),
}
"""The kinds of change in each table, as its last column names them."""


@dataclass(frozen=True, slots=True, eq=False)
class PlanDiff:
    """The changes from one plan to another; tables are empty where nothing changes.

    `moves`: flow, session_before, group_before, session_after, group_after and `change`. A flow is
    `new` or `gone` if only one of the plans has it, in a session or by unicast; `moved` from one
    session to another; `added` to or `removed` from a session if it has more or fewer than before.

    The others list what each receiver must do, with the `action` last: `subscriptions` (receiver,
    session, group; subscribe or unsubscribe), `memberships` (receiver, group; join or leave, as the
    network sees it) and `unicast` (receiver, flow; start or stop).
    """

    moves: DataFrame
    subscriptions: DataFrame
    memberships: DataFrame
    unicast: DataFrame


def plan_diff(before: PlanTables, after: PlanTables) -> PlanDiff:
    """Compare two plans."""
    return PlanDiff(
        _moves(before, after),
        _changes(_subscriptions(before), _subscriptions(after), "unsubscribe", "subscribe"),
        _changes(before.memberships, after.memberships, "leave", "join"),
        _changes(before.unicast, after.unicast, "stop", "start"),
    )


def _moves(before: PlanTables, after: PlanTables) -> DataFrame:
    placements = _changes(before.placed, after.placed, "left", "came")
    # The nth place that a flow left and the nth that it came to are one move.
    ranked = placements.withColumn(
        "nth", F.row_number().over(Window.partitionBy("flow", "action").orderBy("session", "group"))
    )

    def place(action: str, column: str) -> Column:
        return F.max(F.when(F.col("action") == action, F.col(column)))

    paired = ranked.groupBy("flow", "nth").agg(
        place("left", "session").alias("session_before"),
        place("left", "group").alias("group_before"),
        place("came", "session").alias("session_after"),
        place("came", "group").alias("group_after"),
    )
    known = _flows(before).withColumn("known", F.lit(True))
    kept = _flows(after).withColumn("kept", F.lit(True))
    change = (
        F.when(F.col("known").isNull(), "new")
        .when(F.col("kept").isNull(), "gone")
        .when(F.col("session_before").isNull(), "added")
        .when(F.col("session_after").isNull(), "removed")
        .otherwise("moved")
    )
    return (
        paired.join(known, "flow", "left")
        .join(kept, "flow", "left")
        .select(
            "flow",
            "session_before",
            "group_before",
            "session_after",
            "group_after",
            change.alias("change"),
        )
    )


def _changes(before: DataFrame, after: DataFrame, gone: str, new: str) -> DataFrame:
    """The rows that only one of two tables has, with the action that each requires."""
    columns = before.columns
    sides = (
        before.withColumn("in_before", F.lit(1))
        .withColumn("in_after", F.lit(0))
        .unionByName(after.withColumn("in_before", F.lit(0)).withColumn("in_after", F.lit(1)))
    )
    both = sides.groupBy(*columns).agg(
        F.max("in_before").alias("in_before"), F.max("in_after").alias("in_after")
    )
    return both.where("in_before <> in_after").select(
        *columns, F.when(F.col("in_after") == 1, new).otherwise(gone).alias("action")
    )


def _subscriptions(plan: PlanTables) -> DataFrame:
    joined = plan.subscriptions.select("receiver", "session").join(plan.sessions, "session")
    return joined.select("receiver", "session", "group")


def _flows(plan: PlanTables) -> DataFrame:
    return plan.placements.select("flow").unionByName(plan.unicast.select("flow")).distinct()
