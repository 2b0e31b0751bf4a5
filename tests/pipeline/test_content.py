from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from distributary.pipeline.content import Content, check_filters, content_flows
from distributary.pipeline.schemas import FILTERS, QUARANTINE
from tests.pipeline.test_replay import frame

START = datetime(2026, 1, 5, tzinfo=UTC)
Event = dict[str, Any]
Truth = bool | None
EVENTS = pa.schema(
    [
        ("ts", pa.timestamp("us", "UTC")),
        ("symbol", pa.string()),
        ("price", pa.float64()),
        ("qty", pa.int32()),
        ("messages", pa.int64()),  # a name the step uses itself
        ("hot", pa.bool_()),
        ("size", pa.int32()),
    ]
)


class Filter(NamedTuple):
    """A condition as text and as Python, in SQL's three-valued logic."""

    text: str
    holds: Callable[[Event], Truth]


def compared(chance: Random) -> Filter:
    name, value = chance.choice(
        [
            ("symbol", chance.choice("ABCD")),
            ("price", chance.choice((0.5, 1.0, 1.5))),
            ("qty", chance.randint(0, 3)),
            ("messages", chance.randint(0, 3)),
        ]
    )
    operator, test = chance.choice(
        [
            ("=", lambda a, b: a == b),
            ("<>", lambda a, b: a != b),
            ("<", lambda a, b: a < b),
            (">=", lambda a, b: a >= b),
        ]
    )
    return Filter(
        f"{name} {operator} {value!r}",
        lambda event: None if event[name] is None else test(event[name], value),
    )


def condition(chance: Random, depth: int) -> Filter:
    kind = chance.choice(("and", "or", "not", "null", "hot", "in", "plain", "plain", "plain"))
    if depth == 0 or kind == "plain":
        return compared(chance)
    if kind == "null":
        return Filter("symbol IS NULL", lambda event: event["symbol"] is None)
    if kind == "hot":
        return Filter("hot", lambda event: event["hot"])
    if kind == "in":
        return Filter(
            "symbol IN ('A', 'B')",
            lambda event: None if event["symbol"] is None else event["symbol"] in "AB",
        )
    one, other = condition(chance, depth - 1), condition(chance, depth - 1)
    if kind == "not":
        return Filter(f"NOT ({one.text})", lambda event: _not(one.holds(event)))
    if kind == "and":
        return Filter(
            f"({one.text}) AND ({other.text})",
            lambda event: _not(_either(_not(one.holds(event)), _not(other.holds(event)))),
        )
    return Filter(
        f"({one.text}) OR ({other.text})",
        lambda event: _either(one.holds(event), other.holds(event)),
    )


def _not(truth: Truth) -> Truth:
    return None if truth is None else not truth


def _either(one: Truth, other: Truth) -> Truth:
    if one or other:
        return True
    return None if one is None or other is None else False


class World(NamedTuple):
    """Filters with owners, and events, each told by its `ts`."""

    filters: dict[str, Filter]
    owners: set[tuple[str, str]]  # receiver, text
    events: list[Event]

    def matches(self, event: Event) -> frozenset[str]:
        return frozenset(t for t, one in self.filters.items() if one.holds(event))

    def receivers(self, texts: frozenset[str]) -> set[str]:
        return {receiver for receiver, text in self.owners if text in texts}

    @property
    def sets(self) -> Counter[frozenset[str]]:
        found = Counter(self.matches(event) for event in self.events)
        del found[frozenset()]
        return found

    def frames(self, spark: SparkSession) -> tuple[DataFrame, DataFrame]:
        events = spark.createDataFrame(pa.Table.from_pylist(self.events, EVENTS))
        return events, frame(spark, sorted(self.owners), FILTERS)


def world(seed: int, n_filters: int = 25, n_events: int = 400) -> World:
    chance = Random(seed)
    conditions = [condition(chance, 2) for _ in range(n_filters)]
    filters = {one.text: one for one in conditions}
    owners = {
        (f"r{chance.randrange(12)}", text) for text in filters for _ in range(chance.randint(1, 4))
    }
    events = [
        {
            "ts": START + timedelta(seconds=second),
            "symbol": chance.choice((None, *"AABCE")),
            "price": chance.choice((None, 0.0, 0.5, 1.0, 2.0)),
            "qty": chance.choice((None, 0, 1, 2, 3)),
            "messages": chance.choice((0, 1, 2)),
            "hot": chance.choice((None, True, False)),
            "size": chance.choice((None, 10)),
        }
        for second in range(n_events)
    ]
    return World(filters, owners, events)


class Told(NamedTuple):
    """What came out, in plain Python."""

    flow_of: dict[datetime, str]
    interest: set[tuple[str, str]]
    filters_of: dict[str, frozenset[str]]
    sets: dict[frozenset[str], tuple[str, int, bool]]
    counts: dict[str, int]


def told(content: Content) -> Told:
    events = content.publications.toArrow().to_pylist()
    assert len({row["ts"] for row in events}) == len(events)
    flows = content.flows.toArrow().to_pylist()
    return Told(
        {row["ts"]: row["flow"] for row in events},
        {(row["receiver"], row["flow"]) for row in content.interest.toArrow().to_pylist()},
        {
            flow: frozenset(row["filter"] for row in flows if row["flow"] == flow)
            for flow in {row["flow"] for row in flows}
        },
        {
            frozenset(row["filters"]): (row["flow"], row["messages"], row["own"])
            for row in content.sets.toArrow().to_pylist()
        },
        content.counts(),
    )


@pytest.fixture
def released() -> Iterator[list[Content]]:
    made: list[Content] = []
    yield made
    for content in made:
        content.release()


def check_nobody_is_excluded(given: World, found: Told) -> None:
    for event in given.events:
        texts = given.matches(event)
        flow = found.flow_of.get(event["ts"])
        if not texts:
            assert flow is None
            continue
        assert flow is not None
        assert texts <= found.filters_of[flow]
        assert all((receiver, flow) in found.interest for receiver in given.receivers(texts))
    wanted = {
        (receiver, flow)
        for flow, texts in found.filters_of.items()
        for receiver in given.receivers(texts)
    }
    assert found.interest == wanted
    unwanted = sum(not given.matches(event) for event in given.events)
    assert found.counts["messages"] == len(given.events)
    assert found.counts["unwanted"] == unwanted
    assert len(found.flow_of) == len(given.events) - unwanted
    assert {texts: n for texts, (_, n, _) in found.sets.items()} == given.sets
    assert found.counts["sets"] == len(given.sets)


def nearest(given: World, cores: list[frozenset[str]], texts: frozenset[str]) -> frozenset[str]:
    """The brute-force oracle; receivers are counted filter by filter."""
    sets = given.sets

    def weight(some: frozenset[str]) -> int:
        return sum(text in some for _, text in given.owners)

    def price(core: frozenset[str]) -> int:
        return sets[texts] * weight(core - texts) + sets[core] * weight(texts - core)

    larger = [core for core in cores if core >= texts]
    return min(larger or cores, key=price)


@pytest.mark.slow
def test_without_folding_a_flow_is_a_set_of_filters(
    spark: SparkSession, released: list[Content]
) -> None:
    given = world(1)
    released.append(content_flows(*given.frames(spark)))
    found = told(released[0])
    check_nobody_is_excluded(given, found)
    assert set(found.filters_of.values()) == set(given.sets)
    assert found.counts["folded"] == 0
    for event in given.events:
        texts = given.matches(event)
        if texts:
            assert found.filters_of[found.flow_of[event["ts"]]] == texts


@pytest.mark.parametrize(
    ("max_flows", "rare"),
    [(7, 1), *(pytest.param(*each, marks=pytest.mark.slow) for each in ((1000, 6), (5, 10_000)))],
)
def test_rare_sets_are_folded_into_the_nearest_and_nobody_is_excluded(
    spark: SparkSession, released: list[Content], max_flows: int, rare: int
) -> None:
    given = world(2)
    released.append(content_flows(*given.frames(spark), max_flows=max_flows, rare=rare))
    found = told(released[0])
    check_nobody_is_excluded(given, found)
    order = sorted(given.filters)
    ranked = sorted(
        given.sets.items(), key=lambda item: (-item[1], sorted(order.index(t) for t in item[0]))
    )
    cores = [texts for texts, n in ranked[:max_flows] if n >= rare] or [ranked[0][0]]
    assert len(found.filters_of) == len(cores)
    flow_of_core = {core: found.sets[core][0] for core in cores}
    assert len(set(flow_of_core.values())) == len(cores)
    for texts, (flow, _, own) in found.sets.items():
        assert own == (texts in cores)
        assert flow == flow_of_core[nearest(given, cores, texts)]
    assert found.counts["folded"] == sum(n for t, n in given.sets.items() if t not in cores)


def test_partitions_and_order_change_nothing(spark: SparkSession, released: list[Content]) -> None:
    given = world(3)
    events, filters = given.frames(spark)
    released.append(content_flows(events, filters, max_flows=6))
    released.append(
        content_flows(
            events.repartition(7, "price").orderBy("qty"), filters.repartition(5), max_flows=6
        )
    )
    assert told(released[0]) == told(released[1])


def test_filters_that_cannot_be_used_go_to_quarantine(spark: SparkSession) -> None:
    events, _ = world(4).frames(spark)
    rows = [
        ("a", "qty = 1"),
        ("b", "qty = 1"),
        ("c", "qty ="),
        ("d", "colour = 'red'"),
        ("e", "colour = 'red'"),
        ("f", "symbol = 3"),
        (None, "qty = 1"),
        ("g", None),
        ("h", "messages <> 2 OR Hot"),
        ("i", "price < 1e400"),
    ]
    schema = pa.schema([("receiver", pa.string()), ("filter", pa.string())])
    table = pa.table([list(column) for column in zip(*rows, strict=True)], schema=schema)
    usable = check_filters(spark.createDataFrame(table), events)
    assert usable.texts == ("messages <> 2 OR Hot", "qty = 1")
    assert usable.attributes == ("qty", "messages", "hot")
    owners = sorted(tuple(row.values()) for row in usable.owners.toArrow().to_pylist())
    assert owners == [("a", "qty = 1"), ("b", "qty = 1"), ("h", "messages <> 2 OR Hot")]
    assert usable.quarantine.schema == QUARANTINE
    bad = {row["raw"]: row["reason"] for row in usable.quarantine.toArrow().to_pylist()}
    assert len(bad) == len(rows) - len(owners)
    assert bad['{"receiver":"e","filter":"colour = \'red\'"}'] == (
        "filter: there is no attribute 'colour'"
    )
    assert bad['{"receiver":"f","filter":"symbol = 3"}'] == (
        "filter: symbol = 3 compares text with a number"
    )
    assert bad['{"receiver":null,"filter":"qty = 1"}'] == "receiver is null"
    assert bad['{"receiver":"g","filter":null}'] == "filter is null"
    assert bad['{"receiver":"i","filter":"price < 1e400"}'].startswith("filter: ")


def test_a_row_with_two_faults_counts_for_one_reason(spark: SparkSession) -> None:
    """Rows without a receiver may have a filter that cannot be used, and often the same one."""
    events, _ = world(4).frames(spark)
    rows = [
        ("a", "qty = 1"),
        (None, "qty = 1"),
        *[(None, "qty =")] * 2,
        *[("c", "qty =")] * 3,
        (None, "colour = 'red'"),
        ("d", "colour = 'red'"),
        (None, "symbol = 3"),
        (None, None),
        ("e", None),
    ]
    schema = pa.schema([("receiver", pa.string()), ("filter", pa.string())])
    table = pa.table([list(column) for column in zip(*rows, strict=True)], schema=schema)
    usable = check_filters(spark.createDataFrame(table), events)
    reasons = Counter(usable.quarantine.toArrow()["reason"].to_pylist())
    parse = next(reason for reason in reasons if "does not parse" in reason)
    assert reasons == {
        "receiver is null": 6,
        "filter is null": 1,
        "filter: there is no attribute 'colour'": 1,
        parse: 3,
    }
    assert reasons.total() + usable.owners.count() == len(rows)


def test_a_filter_without_attributes_matches_every_event(
    spark: SparkSession, released: list[Content]
) -> None:
    events, _ = world(5, n_events=9).frames(spark)
    filters = frame(spark, [("a", "TRUE")], FILTERS)
    released.append(content_flows(events, filters))
    found = told(released[0])
    assert len(found.flow_of) == 9
    assert {receiver for receiver, _ in found.interest} == {"a"}
    released.append(content_flows(events.limit(0), filters))
    assert told(released[1]) == Told(
        {}, set(), {}, {}, {"messages": 0, "unwanted": 0, "sets": 0, "folded": 0}
    )


def test_limits_below_one_are_refused(spark: SparkSession) -> None:
    events, filters = world(6, n_events=1).frames(spark)
    with pytest.raises(ValueError, match="must be at least 1"):
        content_flows(events, filters, max_flows=0)
