"""Filters and a log with attributes made into flows and interest, so that content has channels too.

Events are grouped by the *set of filters* that they match. Each set is a flow, wanted by the owners
of its filters; an event that matches no filter is `unwanted` and left out. There may be as many
sets as events, so only the most frequent ones become flows (at most `max_flows`, none with fewer
than `rare` messages). Every other set is folded into one of these: into the nearest superset of its
filters or, if there is none, into the nearest set of all, which then takes in its filters. The
*nearest* set adds the least receivers x messages; receivers are counted per filter, so a receiver
with two filters of a set counts twice. No event loses a receiver by folding: a flow is wanted by
the owners of every filter that any of its events match.

**Where the work is done.** The driver parses and compiles the distinct texts. Executors match the
distinct combinations of the tested attributes, in Arrow batches. Attributes with few values make
that cheap; an attribute that differs from event to event (an exact price, a time) makes it as
expensive as the log is long. Spark counts the sets, the driver chooses the flows, a bounded number,
and executors fold the remaining sets into them. The result does not depend on the partitions.

**Names.** A flow is named after the set it grew from: `c-` and a hash of its filters' texts. It
keeps its name from run to run, whatever is folded into it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]
from pyspark.sql.pandas.types import to_arrow_schema

from distributary.errors import InputError
from distributary.matching import Matcher, event_schema, parse_filter
from distributary.model import Filter, IntArray, Schema
from distributary.pipeline.matching import list_matches
from distributary.pipeline.schemas import QUARANTINE, quote_name

__all__ = ["Content", "UsableFilters", "check_filters", "content_flows", "name_flow"]

# The driver parses each text, in some 40 microseconds, and holds all filters.
MOST_FILTERS = 1_000_000


@dataclass(frozen=True, slots=True, eq=False)
class UsableFilters:
    """The filters that can be matched: their distinct texts, sorted, and the attributes they test.

    Filter i of `matcher` has text i. `owners` (receiver, filter) has the rows with a usable filter;
    `quarantine` has the others.
    """

    matcher: Matcher
    texts: tuple[str, ...]
    attributes: tuple[str, ...]
    owners: DataFrame
    quarantine: DataFrame


@dataclass(frozen=True, slots=True, eq=False)
class Content:
    """A content-based log as flows.

    `publications` (ts, flow, size, and count and position if the log has them) and `interest`
    (receiver, flow) are the input of the other steps. `flows` describes each flow: flow, filter,
    and `own`, true for the filters of the set that the flow is named after. `sets` lists every set
    of filters: flow, filters (texts), messages, and `own`. They are computed from `matched` and
    `folded`.
    `filters` are the filters that were matched.
    """

    publications: DataFrame
    interest: DataFrame
    flows: DataFrame
    sets: DataFrame
    quarantine: DataFrame
    matched: DataFrame
    folded: DataFrame
    filters: UsableFilters

    def counts(self) -> dict[str, int]:
        """The numbers of `messages`, `unwanted` ones, `folded` ones, and `sets`."""
        events = self.matched.agg(
            F.coalesce(F.sum("_messages"), F.lit(0)).alias("messages"),
            F.coalesce(F.sum(F.when(F.size("_filters") == 0, F.col("_messages"))), F.lit(0)).alias(
                "unwanted"
            ),
        ).first()
        sets = self.folded.agg(
            F.count(F.lit(1)).alias("sets"),
            F.coalesce(F.sum(F.when(~F.col("own"), F.col("messages"))), F.lit(0)).alias("folded"),
        ).first()
        return {**(events.asDict() if events else {}), **(sets.asDict() if sets else {})}

    def release(self) -> None:
        """Free the memory of the matched events and the folded sets."""
        self.matched.unpersist()
        self.folded.unpersist()


def content_flows(
    publications: DataFrame, filters: DataFrame, *, max_flows: int = 1000, rare: int = 1
) -> Content:
    """Turn filters and a log with attributes into at most `max_flows` flows and their interest.

    The matched events and the folded sets stay cached until `release`.
    """
    if max_flows < 1 or rare < 1:
        raise ValueError(f"max_flows ({max_flows}) and rare ({rare}) must be at least 1")
    usable = check_filters(filters, publications)
    matched = _match_combinations(publications, usable).persist()
    sets = (
        matched.where(F.size("_filters") > 0)
        .groupBy(F.col("_filters").alias("filters"))
        .agg(F.sum("_messages").alias("messages"))
    )
    cores = _choose_cores(sets, usable, max_flows, rare)
    folded = (
        sets.withColumn("core", _find_nearest(cores)("filters", "messages"))
        .join(F.broadcast(_name_cores(cores, usable)), "core")
        .withColumn("own", F.col("filters") == F.col("core_filters"))
        .select("flow", "filters", "messages", "own")
        .persist()
    )
    texts = _create_frame(
        sets, {"id": pa.array(range(len(usable.texts)), pa.int32()), "filter": list(usable.texts)}
    )
    flows = (
        folded.select("flow", "own", F.explode("filters").alias("id"))
        .groupBy("flow", "id")
        .agg(F.bool_or("own").alias("own"))
        .join(F.broadcast(texts), "id")
        .select("flow", "filter", "own")
    )
    return Content(
        publications=_label_events(publications, matched, folded, usable.attributes),
        interest=flows.join(usable.owners, "filter").select("receiver", "flow").distinct(),
        flows=flows,
        sets=_add_texts(folded, texts),
        quarantine=usable.quarantine,
        matched=matched,
        folded=folded,
        filters=usable,
    )


# --- filters -------------------------------------------------------------------------------------


def check_filters(filters: DataFrame, publications: DataFrame) -> UsableFilters:
    """Separate the filters that can be matched with the log from the others, with the reason."""
    known = filters.where(F.col("filter").isNotNull() & F.col("receiver").isNotNull())
    rows = known.select("filter").distinct().limit(MOST_FILTERS + 1).toArrow()
    if len(rows) > MOST_FILTERS:
        raise InputError(
            f"there are more than {MOST_FILTERS:,} different filters",
            value=len(rows),
            remedy="write equal filters with the same text, or take some out",
        )
    schema = event_schema(to_arrow_schema(publications.schema, timezone="UTC"))
    reasons: dict[str, str] = {}
    usable: dict[str, Filter] = {}
    for text in sorted(rows["filter"].to_pylist()):
        try:
            usable[text] = parse_filter(text, schema)
        except InputError as error:
            reasons[text] = error.reason
    refused = _create_frame(filters, {"filter": list(reasons), "reason": list(reasons.values())})
    return UsableFilters(
        Matcher(schema, usable.values()),
        tuple(usable),
        _tested_attributes(usable.values(), schema),
        known.join(F.broadcast(refused), "filter", "left_anti").select("receiver", "filter"),
        _refused_rows(filters, refused),
    )


def _tested_attributes(filters: Iterable[Filter], schema: Schema) -> tuple[str, ...]:
    """The names of the attributes on which some filter depends, in order of the schema."""
    tested = {at for each in filters for box in each.boxes for at in box.attributes}
    return tuple(schema.attributes[at].name for at in sorted(tested))


def _refused_rows(filters: DataFrame, refused: DataFrame) -> DataFrame:
    reason = (
        F.when(F.col("receiver").isNull(), "receiver is null")
        .when(F.col("filter").isNull(), "filter is null")
        .otherwise(F.concat(F.lit("filter: "), F.col("reason")))
    )
    file = F.col("position.file") if "position" in filters.columns else F.lit(None).cast("string")
    joined = filters.join(F.broadcast(refused), "filter", "left").withColumn("reason", reason)
    return (
        joined.where(F.col("reason").isNotNull())
        .select(
            F.lit("filters").alias("log"),
            file.alias("file"),
            F.coalesce("reason", F.lit("")).alias("reason"),  # so that Spark knows it is never null
            F.to_json(F.struct("receiver", "filter"), {"ignoreNullFields": "false"}).alias("raw"),
        )
        .to(QUARANTINE)
    )


# --- events --------------------------------------------------------------------------------------


def _match_combinations(publications: DataFrame, usable: UsableFilters) -> DataFrame:
    """The distinct combinations of attributes, their events' number, and the filters they match."""
    combinations = publications.groupBy(*map(quote_name, usable.attributes)).agg(
        _count_messages(publications).alias("_messages")
    )
    return list_matches(combinations.where(F.col("_messages") > 0), usable.matcher, "_filters")


def _count_messages(publications: DataFrame) -> Column:
    if "count" not in publications.columns:
        return F.count(F.lit(1))
    return F.coalesce(F.sum("count"), F.lit(0).cast("bigint"))  # 0: there are no rows at all


def _label_events(
    publications: DataFrame, matched: DataFrame, folded: DataFrame, attributes: Sequence[str]
) -> DataFrame:
    """The log with each event's flow in place of its attributes."""
    flow_of = folded.select(F.col("filters").alias("_filters"), F.col("flow").alias("_flow"))
    labels = matched.join(flow_of, "_filters").select(
        *(F.col(quote_name(name)).alias(f"_{nth}") for nth, name in enumerate(attributes)), "_flow"
    )
    same = F.lit(True)
    for nth, name in enumerate(attributes):
        same = same & F.col(quote_name(name)).eqNullSafe(F.col(f"_{nth}"))
    columns = publications.columns
    size = F.col("size") if "size" in columns else F.lit(None)
    return publications.join(labels, same).select(
        "ts",
        F.col("_flow").alias("flow"),
        size.cast("int").alias("size"),
        *(name for name in ("count", "position") if name in columns),
    )


# --- folding -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Cores:
    """The sets that become flows, the most frequent first, and what `nearest` needs of them.

    `reach` is the number of receivers of each set, `weight` that of each filter.
    `holders[offsets[f]:offsets[f + 1]]` are the sets that contain filter f.
    """

    sets: tuple[IntArray, ...]
    messages: IntArray
    reach: IntArray
    weight: IntArray
    offsets: IntArray
    holders: IntArray

    def fold(self, sets: pa.Array, messages: pa.Array) -> pa.Array:
        """The core that each of many sets is folded into."""
        listed = zip(sets.to_pylist(), messages.to_pylist(), strict=True)
        found = [self.nearest(np.array(filters, np.int64), count) for filters, count in listed]
        return pa.array(found, pa.int32())

    def nearest(self, filters: IntArray, messages: int) -> int:
        """The core into which a set with these filters and this many messages is folded."""
        held = [self.holders[self.offsets[f] : self.offsets[f + 1]] for f in filters]
        weight = np.repeat(self.weight[filters], [len(sets) for sets in held])
        common = np.zeros(len(self.sets), np.int64)
        np.add.at(common, np.concatenate(held), weight)
        lacking = int(self.weight[filters].sum()) - common
        beyond = self.reach - common
        larger = lacking == 0
        price = messages * beyond + self.messages * lacking
        if larger.any():
            price = np.where(larger, price, np.iinfo(np.int64).max)
        return int(price.argmin())


def _choose_cores(sets: DataFrame, usable: UsableFilters, max_flows: int, rare: int) -> _Cores:
    """The most frequent sets; ties are broken by the filters, in order of text."""
    first = sets.orderBy(F.desc("messages"), "filters").limit(max_flows).toArrow()
    messages = first["messages"].to_numpy().astype(np.int64)
    kept = max(int((messages >= rare).sum()), min(1, len(messages)))
    cores = tuple(np.array(ids, np.int64) for ids in first["filters"].to_pylist()[:kept])
    held = np.concatenate(cores) if cores else np.empty(0, np.int64)
    by_filter = np.argsort(held, kind="stable")
    holders = np.repeat(np.arange(len(cores)), [len(core) for core in cores])[by_filter]
    counts = np.bincount(held, minlength=len(usable.texts))
    weight = _count_receivers(usable)
    return _Cores(
        cores,
        messages[:kept],
        np.array([weight[core].sum() for core in cores], np.int64),
        weight,
        np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
        holders.astype(np.int64),
    )


def _count_receivers(usable: UsableFilters) -> IntArray:
    """The number of receivers of each filter."""
    owned = usable.owners.groupBy("filter").agg(F.count_distinct("receiver").alias("n")).toArrow()
    counts = dict(zip(owned["filter"].to_pylist(), owned["n"].to_pylist(), strict=True))
    return np.array([counts[text] for text in usable.texts], np.int64)


def _find_nearest(cores: _Cores) -> Callable[..., Column]:
    """A function of the columns filters and messages: the core that a set is folded into."""
    # A lambda, because PySpark needs pandas to read the types of an annotated function.
    made: Callable[..., Column] = arrow_udf(lambda sets, counts: cores.fold(sets, counts), "int")
    return made


def _name_cores(cores: _Cores, usable: UsableFilters) -> DataFrame:
    """core (index), core_filters and flow (name) of each core."""
    names = [name_flow([usable.texts[f] for f in core]) for core in cores.sets]
    columns = {
        "core": pa.array(range(len(names)), pa.int32()),
        "core_filters": pa.array([core.tolist() for core in cores.sets], pa.list_(pa.int32())),
        "flow": names,
    }
    return _create_frame(usable.owners, columns)


def name_flow(texts: Sequence[str]) -> str:
    """The name of the flow that stands for a set of filters."""
    return "c-" + hashlib.sha256(json.dumps(sorted(texts)).encode()).hexdigest()[:12]


def _add_texts(folded: DataFrame, texts: DataFrame) -> DataFrame:
    """flow, filters (texts, sorted), messages, own: every set and the flow it went to."""
    return (
        folded.withColumn("id", F.explode("filters"))
        .join(F.broadcast(texts), "id")
        .groupBy("filters", "flow", "messages", "own")
        .agg(F.array_sort(F.collect_list("filter")).alias("texts"))
        .select("flow", F.col("texts").alias("filters"), "messages", "own")
    )


def _create_frame(like: DataFrame, columns: Mapping[str, Sequence[str] | pa.Array]) -> DataFrame:
    """A small table of the driver as a frame in the session of another frame."""
    arrays = {
        name: values if isinstance(values, pa.Array) else pa.array(values, pa.string())
        for name, values in columns.items()
    }
    return like.sparkSession.createDataFrame(pa.table(arrays))
