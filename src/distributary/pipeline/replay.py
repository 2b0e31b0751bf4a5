"""The publication log replayed under a plan: what each receiver would have received, and why.

A receiver *receives* all messages of the groups that it joins and its unicast messages. Messages of
sessions that it does not subscribe to are *dropped by session*, the first filter. Of the rest, the
*wanted* messages remain, each counted once, and the others are *dropped by flow*, the second
filter: flows it did not ask for, and further copies of flows it did. So

    received = wanted + dropped_by_session + dropped_by_flow

for every receiver and every minute. These are the quantities of `cost.loads`: at rates of messages
over seconds, the totals equal those of `evaluate`, to the message.

Every message is accounted for. What a receiver wants and the plan does not bring is `unserved`,
beside the sum above; messages of flows in no session and not sent by unicast are `unplaced`. The
table of receivers covers those of the plan and those of the interest, with a column for each; the
table of flows does the same for the flows of the log.

Receivers are never joined with messages. A message of a flow always reaches the receivers that join
the groups of its sessions, so five numbers per flow (`_reach`) turn the counts per minute and flow
into sums over all receivers. A receiver's totals are sums over its groups, sessions and flows.

Bytes are summed over the messages with a known size, and are null if there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from distributary.pipeline.plans import PlanTables

__all__ = ["Replay", "activity", "references", "replay"]

_SHARES = ("received", "wanted", "dropped_by_session", "dropped_by_flow", "unserved")
_SUMS = ("messages", "sent", "unplaced", *_SHARES)


@dataclass(frozen=True, slots=True, eq=False)
class Replay:
    """The replay of a log under a plan; each count also exists in bytes, with the suffix `_bytes`.

    `receivers`: receiver, planned, interested, received, wanted, dropped_by_session,
    dropped_by_flow, unserved. `minutes`: minute, messages, sent, unplaced and the same five, over
    all receivers. `flows`: flow, published, placed, wanted_by, unserved_by (receivers), messages,
    sent and unserved.
    """

    receivers: DataFrame
    minutes: DataFrame
    flows: DataFrame

    def totals(self) -> dict[str, int | None]:
        """The sums over all minutes; 0 if nothing was published."""
        row = self.minutes.agg(
            *(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in _SUMS),
            *(F.sum(f"{name}_bytes").alias(f"{name}_bytes") for name in _SUMS),
        ).first()
        return {} if row is None else row.asDict()


def activity(publications: DataFrame) -> DataFrame:
    """minute (UTC), flow, messages, bytes: all that a replay needs of the log.

    Cache it to replay more than one plan.
    """
    messages, sizes = F.count(F.lit(1)), F.col("size")
    if "count" in publications.columns:
        messages, sizes = F.sum("count"), sizes.cast("bigint") * F.col("count")
    return publications.groupBy(F.date_trunc("minute", "ts").alias("minute"), "flow").agg(
        messages.alias("messages"), F.sum(sizes).cast("bigint").alias("bytes")
    )


def replay(
    log: DataFrame,
    plan: PlanTables,
    interest: DataFrame,
    keep: Callable[[DataFrame], DataFrame] = lambda frame: frame,
) -> Replay:
    """Replay a log's `activity` under a plan, for receivers with this interest.

    All three tables are made from the wanted pairs, marked with whether the plan serves them:
    `keep`, say `DataFrame.persist`, is asked to keep these.
    """
    served = keep(_served_pairs(plan, interest))
    by_flow = log.groupBy("flow").agg(*_sums())
    reached = _reach(plan, served)
    return Replay(
        _receivers(by_flow, plan, served), _minutes(log, reached), _flows(by_flow, reached)
    )


def references(replayed: Replay, receivers: int) -> dict[str, dict[str, int | None]]:
    """The totals of flooding and of unicast, computed from the replay of any plan.

    They are those of `replay` with the plans `flooding` and `unicast`, for so many receivers.
    """
    wanted = F.col("wanted_by") > 0

    def sums(unit: str) -> tuple[Column, Column, Column]:
        return (
            F.sum(unit),
            F.sum(F.when(wanted, F.col(unit))),
            F.sum(F.col(unit) * F.col("wanted_by")),
        )

    row = replayed.flows.agg(*sums("messages"), *sums("bytes")).collect()[0]
    flooding: dict[str, int | None] = {}
    unicast: dict[str, int | None] = {}
    for unit, (all_, sent, copies) in (("", row[:3]), ("_bytes", row[3:])):
        if all_ is None and unit:
            for name in _SUMS:
                flooding[f"{name}{unit}"] = unicast[f"{name}{unit}"] = None
            continue
        all_, sent, copies = all_ or 0, sent or 0, copies or 0
        received = sent * receivers
        same = {"messages": all_, "unplaced": all_ - sent, "wanted": copies}
        none = dict.fromkeys(("dropped_by_session", "unserved"), 0)
        flooded = {"sent": sent, "received": received, "dropped_by_flow": received - copies}
        copied = {"sent": copies, "received": copies, "dropped_by_flow": 0}
        for totals, more in ((flooding, flooded), (unicast, copied)):
            totals.update({f"{key}{unit}": value for key, value in (same | none | more).items()})
    return {"flooding": flooding, "unicast": unicast}


def _served_pairs(plan: PlanTables, interest: DataFrame) -> DataFrame:
    """receiver, flow, served: every wanted pair, and whether the plan serves it."""
    heard = plan.subscriptions.select("receiver", "session")
    in_sessions = interest.join(plan.placements, "flow").join(heard, ["receiver", "session"])
    brought = in_sessions.select("receiver", "flow").unionByName(
        interest.select("receiver", "flow").join(plan.unicast, ["receiver", "flow"], "left_semi")
    )
    marked = brought.distinct().withColumn("served", F.lit(True))
    return (
        interest.select("receiver", "flow")
        .join(marked, ["receiver", "flow"], "left")
        .withColumn("served", F.coalesce("served", F.lit(False)))
    )


def _reach(plan: PlanTables, served: DataFrame) -> DataFrame:
    """For each flow, the effect of one message of it over all receivers.

    `copies` are sent, `received` and `accepted` of them come to receivers and pass their first
    filter; `wanted` receivers asked for it and get it, `unserved` ones asked and do not.
    """
    listeners = plan.subscriptions.groupBy("session").agg(F.count(F.lit(1)).alias("listeners"))
    members = plan.memberships.groupBy("group").agg(F.count(F.lit(1)).alias("members"))
    one, none = F.lit(1).cast("bigint"), F.lit(0).cast("bigint")
    by_session = (
        plan.placed.join(listeners, "session", "left")
        .join(members, "group", "left")
        .select(
            "flow",
            one.alias("copies"),
            F.coalesce("members", none).alias("received"),
            F.coalesce("listeners", none).alias("accepted"),
            none.alias("wanted"),
            none.alias("unserved"),
        )
    )
    by_unicast = plan.unicast.select(
        "flow",
        one.alias("copies"),
        one.alias("received"),
        one.alias("accepted"),
        none.alias("wanted"),
        none.alias("unserved"),
    )
    asked = served.select(
        "flow",
        none.alias("copies"),
        none.alias("received"),
        none.alias("accepted"),
        F.col("served").cast("bigint").alias("wanted"),
        (~F.col("served")).cast("bigint").alias("unserved"),
    )
    parts = by_session.unionByName(by_unicast).unionByName(asked)
    sums = ("copies", "received", "accepted", "wanted", "unserved")
    return parts.groupBy("flow").agg(*(F.sum(name).alias(name) for name in sums))


def _minutes(log: DataFrame, reached: DataFrame) -> DataFrame:
    weights: dict[str, Column] = {
        "messages": F.lit(1),
        "sent": F.coalesce("copies", F.lit(0)),
        "unplaced": F.when(F.coalesce("copies", F.lit(0)) == 0, 1).otherwise(0),
        "received": F.coalesce("received", F.lit(0)),
        "wanted": F.coalesce("wanted", F.lit(0)),
        "dropped_by_session": F.coalesce(F.col("received") - F.col("accepted"), F.lit(0)),
        "dropped_by_flow": F.coalesce(F.col("accepted") - F.col("wanted"), F.lit(0)),
        "unserved": F.coalesce("unserved", F.lit(0)),
    }
    return (
        log.join(reached, "flow", "left")
        .groupBy("minute")
        .agg(
            *(F.sum(F.col("messages") * weights[name]).alias(name) for name in _SUMS),
            *(F.sum(F.col("bytes") * weights[name]).alias(f"{name}_bytes") for name in _SUMS),
        )
    )


def _flows(by_flow: DataFrame, reached: DataFrame) -> DataFrame:
    """Flows of the log, of the plan and of the interest, and which of them each one is in."""
    none = F.lit(0).cast("bigint")
    both = by_flow.join(reached, "flow", "full")
    return both.select(
        "flow",
        F.col("messages").isNotNull().alias("published"),
        (F.coalesce("copies", none) > 0).alias("placed"),
        (F.coalesce("wanted", none) + F.coalesce("unserved", none)).alias("wanted_by"),
        F.coalesce("unserved", none).alias("unserved_by"),
        F.coalesce("messages", none).alias("messages"),
        "bytes",
        (F.coalesce("messages", none) * F.coalesce("copies", none)).alias("sent"),
        (F.col("bytes") * F.coalesce("copies", none)).alias("sent_bytes"),
        (F.coalesce("messages", none) * F.coalesce("unserved", none)).alias("unserved"),
        (F.col("bytes") * F.coalesce("unserved", none)).alias("unserved_bytes"),
    )


def _receivers(by_flow: DataFrame, plan: PlanTables, served: DataFrame) -> DataFrame:
    heard = plan.subscriptions.select("receiver").unionByName(plan.unicast.select("receiver"))
    planned = heard.distinct().withColumn("planned", F.lit(True))
    interested = served.select("receiver").distinct().withColumn("interested", F.lit(True))
    shares = _shares(_intake(by_flow, plan, served))
    everybody = planned.join(interested, "receiver", "full").join(shares, "receiver", "left")
    return everybody.select(
        "receiver",
        F.coalesce("planned", F.lit(False)).alias("planned"),
        F.coalesce("interested", F.lit(False)).alias("interested"),
        *(F.coalesce(name, F.lit(0).cast("bigint")).alias(name) for name in _SHARES),
        *(f"{name}_bytes" for name in _SHARES),
    )


def _intake(counts: DataFrame, plan: PlanTables, served: DataFrame) -> DataFrame:
    """receiver, part, messages, bytes: what reached each receiver and passed which filter."""
    groups = counts.join(plan.placed, "flow").groupBy("group").agg(*_sums())
    sessions = counts.join(plan.placements, "flow").groupBy("session").agg(*_sums())
    alone = counts.join(plan.unicast, "flow")
    asked = counts.join(served, "flow")
    parts = (
        (groups.join(plan.memberships, "group"), "received"),
        (alone, "received"),
        (sessions.join(plan.subscriptions.select("receiver", "session"), "session"), "accepted"),
        (alone, "accepted"),
        (asked.where("served"), "wanted"),
        (asked.where("NOT served"), "unserved"),
    )
    columns = ("receiver", "messages", "bytes")
    return reduce(
        DataFrame.unionByName,
        (frame.select(*columns, F.lit(part).alias("part")) for frame, part in parts),
    )


def _shares(intake: DataFrame) -> DataFrame:
    """What each filter dropped, from what passed it, per receiver."""

    def sum_passed(part: str, unit: str) -> Column:
        return F.sum(F.when(F.col("part") == part, F.col(unit)))

    parts = ("received", "accepted", "wanted", "unserved")
    sums = intake.groupBy("receiver").agg(
        *(F.coalesce(sum_passed(part, "messages"), F.lit(0)).alias(part) for part in parts),
        *(sum_passed(part, "bytes").alias(f"{part}_bytes") for part in parts),
    )
    # Bytes are null where no size is known; where one is, the parts without any are 0.
    sized = F.coalesce(*(f"{part}_bytes" for part in parts)).isNotNull()
    messages = {part: F.col(part) for part in parts}
    in_bytes = {part: F.when(sized, F.coalesce(f"{part}_bytes", F.lit(0))) for part in parts}
    return sums.select(
        "receiver", *_share_columns(messages, ""), *_share_columns(in_bytes, "_bytes")
    )


def _share_columns(parts: Mapping[str, Column], unit: str) -> tuple[Column, ...]:
    return (
        parts["received"].alias(f"received{unit}"),
        parts["wanted"].alias(f"wanted{unit}"),
        (parts["received"] - parts["accepted"]).alias(f"dropped_by_session{unit}"),
        (parts["accepted"] - parts["wanted"]).alias(f"dropped_by_flow{unit}"),
        parts["unserved"].alias(f"unserved{unit}"),
    )


def _sums() -> tuple[Column, Column]:
    return F.sum("messages").alias("messages"), F.sum("bytes").alias("bytes")
