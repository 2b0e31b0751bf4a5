"""Content matching: events per second compared with others, threads, links, changes, Spark."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F  # noqa: N812

from benchmarks.matching_peers import NumpyMasks, nats_server, qlobber
from benchmarks.measure import Section, shown_seconds, timed
from distributary.matching import (
    LinkMatcher,
    Matcher,
    SearchTree,
    TreeOptions,
    event_table,
    print_filter,
)
from distributary.matching._tree_reference import PlainTree
from distributary.matching.axes import Axes
from distributary.model import Filter, Schema
from distributary.pipeline.matching import compile_filters, count_matches
from distributary.pipeline.spark import use_spark
from distributary.workloads.broker_trees import broker_trees, region_of
from distributary.workloads.content import ContentParams, content_world
from distributary.workloads.quotes import QUOTE_SCHEMA, Quotes, quote_events, quote_filters

SIZES = (10_000, 100_000, 1_000_000)
EVENTS = 20_000


@dataclass(frozen=True)
class Shape:
    """A workload: filters and events of a schema; `values` if all tests are equalities."""

    name: str
    schema: Schema
    filters: Callable[[int], list[Filter]]
    events: pa.Table
    values: int | None = None


def shapes() -> list[Shape]:
    """The paper's ten attributes of three values, twenty of ten, and stock quotes with ranges."""
    made = []
    for attributes, values in ((10, 3), (20, 10)):
        rng = np.random.default_rng(attributes)
        world = content_world(ContentParams(attributes, values, regions=1), rng)
        made.append(
            Shape(
                f"{attributes} attributes x {values} values",
                world.schema,
                partial(_world_filters, world),
                event_table(world.events(EVENTS, 0, rng), world.schema),
                values,
            )
        )
    rng = np.random.default_rng(4)
    events = event_table(quote_events(Quotes(), EVENTS, rng), QUOTE_SCHEMA)
    made.append(Shape("stock quotes", QUOTE_SCHEMA, _quote_filters, events))
    return made


def _world_filters(world: Any, n: int) -> list[Filter]:
    found: list[Filter] = world.filters(n, 0, np.random.default_rng(n))
    return found


def _quote_filters(n: int) -> list[Filter]:
    return quote_filters(Quotes(), n, np.random.default_rng(n))


# --- speed and size ------------------------------------------------------------------------------


def matching(sizes: Sequence[int] = SIZES) -> Section:
    """Events per second on one thread for growing numbers of filters, ours and others."""
    rows = []
    for shape in shapes():
        speeds = []
        for n in sizes:
            filters = shape.filters(n)
            began = time.perf_counter()
            matcher = Matcher(shape.schema, filters)
            built = time.perf_counter() - began
            counts, seconds = timed(partial(_count, matcher, shape.events), 3)
            speed = len(counts) / seconds
            speeds.append(speed)
            tree, plain = _by_tree(shape, filters, counts)
            masks = _by_masks(shape, filters, counts)
            rows.append(
                [
                    shape.name,
                    f"{n:,}",
                    f"{counts.mean() / n:.2%}",
                    _thousands(speed),
                    _thousands(tree),
                    "-" if plain is None else _thousands(plain),
                    "-" if masks is None else _thousands(masks),
                    "-" if masks is None else f"{speed / masks:.0f}",
                    f"{matcher.bytes_used / n:.0f}",
                    shown_seconds(built),
                ]
            )
        slope = -np.polyfit(np.log(sizes), np.log(speeds), 1)[0]
        rows[-1].append(f"{slope:.2f}")
    return Section(
        "Matching: events per second",
        f"Counting the matches of {EVENTS:,} events, on one thread, in batches; thousands of "
        "events per second, including the computation of codes. Filters test attribute i with "
        "probability 0.98 x 0.82^i (i from 0), values by Zipf's law; quotes: symbol of 1,000, "
        "price band, volume, venue. `Matcher` uses bitmaps, the tree is the paper's with "
        "factoring, the plain tree is the same in Python; NumPy masks AND one packed row for "
        "each attribute. All find the same counts (asserted; the slow ones on fewer events). "
        "Growth: time per event as filters^x.",
        [
            "workload",
            "filters",
            "matching",
            "`Matcher`",
            "tree",
            "plain tree",
            "NumPy masks",
            "over masks",
            "bytes per filter",
            "built in",
            "growth",
        ],
        [[*row, *[""] * (11 - len(row))] for row in rows],
    )


def _count(matcher: Matcher, events: pa.Table) -> Any:
    return matcher.count_table(events)


def _by_tree(shape: Shape, filters: list[Filter], counts: Any) -> tuple[float, float | None]:
    """Events per second of the compiled tree, and of the plain one if it is small enough."""
    boxes = [filter.boxes[0] for filter in filters]
    axes = Axes.of(boxes, shape.schema)
    tree = SearchTree.of(boxes, axes)
    few = shape.events.slice(0, 2_000)
    (found, _), seconds = timed(lambda: tree.count(axes.codes(few)), 3)
    assert np.array_equal(found, counts[:2_000])
    speed = len(found) / seconds
    if len(filters) > 10_000 or shape.values is None:
        return speed, None
    plain = PlainTree(tree)
    codes = axes.codes(shape.events.slice(0, 100)).tolist()
    began = time.perf_counter()
    seen = [len(plain.match(event)[0]) for event in codes]
    taken = time.perf_counter() - began
    assert seen == counts[:100].tolist()
    return speed, len(codes) / taken


def _by_masks(shape: Shape, filters: list[Filter], counts: Any) -> float | None:
    if shape.values is None:
        return None
    masks = NumpyMasks(_as_values(filters, len(shape.schema)), shape.values)
    few = np.column_stack([column.to_numpy() for column in shape.events.columns])[:200]
    found, seconds = timed(lambda: masks.count(few), 3)
    assert np.array_equal(found, counts[:200])
    return len(few) / seconds


def _as_values(filters: list[Filter], attributes: int) -> Any:
    """The value that each filter requires of each attribute, -1 if it tests none."""
    wanted = np.full((len(filters), attributes), -1, np.int64)
    for row, filter in enumerate(filters):
        for at, values in filter.boxes[0].tests:
            wanted[row, at] = values.ranges[0][0]
    return wanted


def _thousands(speed: float) -> str:
    return f"{speed / 1000:,.3g}" if speed < 999_500 else f"{speed / 1000:,.0f}"


# --- peers ---------------------------------------------------------------------------------------


def matching_peers(n: int = 10_000, n_events: int = 3_000) -> Section:
    """The cost of one event here, with NumPy, in qlobber and through a real NATS server."""
    shape = shapes()[0]
    filters = shape.filters(n)
    events = shape.events.slice(0, n_events)
    wanted = _as_values(filters, len(shape.schema))
    values = np.column_stack([column.to_numpy() for column in events.columns])
    matcher = Matcher(shape.schema, filters)
    counts, ours = timed(lambda: matcher.count_table(events), 5)
    (_, numbers), listed = timed(lambda: matcher.match_table(events), 5)
    masks = NumpyMasks(wanted, 3)
    same, numpy_seconds = timed(lambda: masks.count(values), 3)
    total = int(counts.sum())
    assert len(numbers) == total
    assert np.array_equal(same, counts)
    q_seconds, q_matches = qlobber(wanted, values)
    few = values[:1_000]
    nats_seconds, delivered = nats_server(wanted, few)
    assert q_matches == total
    assert delivered == int(counts[:1_000].sum())
    timings = [
        ("`Matcher`, counting", ours / n_events),
        ("`Matcher`, listing all matches", listed / n_events),
        ("NumPy masks, counting", numpy_seconds / n_events),
        ("qlobber 8 (npm), listing", q_seconds / n_events),
        ("NATS server, publish to last delivery", nats_seconds / len(few)),
    ]
    return Section(
        f"Matching: other systems on {n:,} filters of 10 attributes x 3 values",
        f"{n_events:,} events, {counts.mean() / n:.2%} of the filters match each. For qlobber and "
        "NATS a filter is a subject of ten tokens, with `*` where it tests nothing. The numbers "
        "of matches and deliveries are the same (asserted). NATS is measured as a whole: server, "
        "sockets and a Python client that counts deliveries, one connection, 1,000 events.",
        ["who", "microseconds per event", "times ours, counting", "times ours, listing"],
        [
            [
                name,
                f"{one * 1e6:,.3g}",
                f"{one * n_events / ours:,.3g}",
                f"{one * n_events / listed:,.3g}",
            ]
            for name, one in timings
        ],
    )


# --- threads and batches -------------------------------------------------------------------------


def matching_threads(n: int = 100_000) -> Section:
    """Two threads against one, and a batch against single events."""
    return Section(
        f"Matching: threads and batches, {n:,} filters",
        "Counting in thousands of events per second; listing in microseconds per event, a table "
        "of 1,000 events against one event at a time. The answers are the same (asserted).",
        [
            "workload",
            "one thread",
            "two",
            "two / one",
            "batch, us",
            "single, us",
            "single / batch",
        ],
        [_threads_row(shape, n) for shape in shapes()],
    )


def _threads_row(shape: Shape, n: int) -> list[str]:
    matcher = Matcher(shape.schema, shape.filters(n))
    counts, one = timed(lambda: matcher.count_table(shape.events), 5)
    same, two = timed(lambda: matcher.count_table(shape.events, threads=2), 5)
    assert np.array_equal(counts, same)
    few = shape.events.slice(0, 1_000)
    keys = [shape.schema.keys(event) for event in few.to_pylist()]
    (_, numbers), batch = timed(lambda: matcher.match_table(few), 3)
    singly, single = timed(lambda: [matcher.match_keys(each) for each in keys], 3)
    assert np.array_equal(np.concatenate(singly), numbers)
    return [
        shape.name,
        _thousands(len(counts) / one),
        _thousands(len(counts) / two),
        f"{one / two:.2f}",
        f"{batch / 1_000 * 1e6:.3g}",
        f"{single / 1_000 * 1e6:.3g}",
        f"{single / batch:.2f}",
    ]


# --- links ---------------------------------------------------------------------------------------


def matching_links(sizes: Sequence[int] = (10_000, 100_000, 1_000_000)) -> Section:
    """The links that need an event at one broker of the paper's network, found in two ways."""
    rows = []
    topology = broker_trees()
    for attributes, values in ((10, 3), (20, 10)):
        for n in sizes:
            rng = np.random.default_rng(n)
            world = content_world(ContentParams(attributes, values), rng)
            table = topology.links("0", ["0", "1", "2"])
            clients = sorted(topology.clients)
            filters = _regional(world, clients, topology, n, rng)
            links = [table.numbers[_behind(client, topology, table)] for client, _ in filters]
            events = event_table(world.events(2_000, 0, rng), world.schema)
            rows.append(
                [
                    f"{attributes} x {values}",
                    f"{n:,}",
                    *_link_row(world.schema, [found for _, found in filters], links, table, events),
                ]
            )
    return Section(
        "Link matching against full matching at one broker",
        "Events are published at the root broker of a region in the paper's network of 39 "
        "brokers; 390 clients have filters with regional preferences. Full matching finds every "
        "filter and ORs their links; both use the same tree, with factoring and trivial-test "
        "elimination. The links are the same (asserted).",
        [
            "attributes x values",
            "filters",
            "steps, links",
            "steps, full",
            "ratio",
            "us per event, links",
            "us per event, full",
            "ratio",
            "bitmap and OR, us",
        ],
        rows,
    )


def _behind(client: str, topology: Any, table: Any) -> str:
    """The destination of a client in the table of links: itself, or its broker."""
    return client if client in table.numbers else topology.clients[client]


def _regional(
    world: Any, clients: list[str], topology: Any, n: int, rng: np.random.Generator
) -> list[tuple[str, Filter]]:
    """Filters assigned to the clients in turn, each drawn by the preferences of its region."""
    made: list[tuple[str, Filter]] = []
    for region in range(3):
        own = [client for client in clients if region_of(topology.clients[client]) == region]
        share = n // 3 + (region < n % 3)
        found = world.filters(share, region, rng)
        made += [(own[at % len(own)], each) for at, each in enumerate(found)]
    return made


def _link_row(
    schema: Schema, filters: list[Filter], links: list[int], table: Any, events: pa.Table
) -> list[str]:
    n_links, mask = len(table), table.masks["0"]
    matcher = LinkMatcher(schema, n_links)
    for filter, link in zip(filters, links, strict=True):
        matcher.add(filter, link)
    matcher.fold()
    found, by_links = timed(lambda: matcher.links_table(events, mask), 3)
    before = matcher.steps
    matcher.links_table(events, mask)
    steps = (matcher.steps - before) / len(events)
    boxes = [filter.boxes[0] for filter in filters]
    axes = Axes.of(boxes, schema)
    tree = SearchTree.of(boxes, axes, TreeOptions())
    bits = np.array([1 << link if mask >> link & 1 else 0 for link in links], np.uint64)

    def full() -> tuple[Any, Any]:
        offsets, matched, taken = tree.match_all(axes.codes(events))
        return _combine_links(bits[matched], offsets), taken

    (same, taken), in_full = timed(full, 3)
    assert np.array_equal(found[:, 0], same)
    bitmap = Matcher(schema, filters)

    def by_bitmap() -> Any:
        event, number = bitmap.match_table(events)
        offsets = np.searchsorted(event, np.arange(len(events) + 1))
        return _combine_links(bits[number], offsets)

    again, in_bitmap = timed(by_bitmap, 3)
    assert np.array_equal(again, same)
    each = 1e6 / len(events)
    return [
        f"{steps:.1f}",
        f"{taken.mean():.1f}",
        f"{steps / taken.mean():.2f}",
        f"{by_links * each:.3g}",
        f"{in_full * each:.3g}",
        f"{by_links / in_full:.2f}",
        f"{in_bitmap * each:.3g}",
    ]


def _combine_links(bits: Any, offsets: Any) -> Any:
    """The OR of the bits of each event."""
    padded = np.append(bits, np.uint64(0))
    ored = np.bitwise_or.reduceat(padded, offsets[:-1])
    return np.where(np.diff(offsets) > 0, ored, np.uint64(0))


# --- changes -------------------------------------------------------------------------------------


def matching_changes(n: int = 1_000_000, per_second: int = 1_000, seconds: int = 5) -> Section:
    """Adding and removing one filter among very many, and matching while filters arrive."""
    return Section(
        f"Subscribing and unsubscribing among {n:,} filters",
        "Microseconds per change, of 5,000 changes; the worst one compiles those before it into a "
        "bitmap. "
        f"Then batches of 1,000 events are counted for {seconds} s while {per_second:,} filters "
        "arrive each second, in thousands of events per second; the last column is the share of "
        "time spent on adding.",
        [
            "workload",
            "add, median us",
            "mean us",
            "worst",
            "remove, median us",
            "events/s, quiet",
            "with arrivals",
            "ratio",
            "time adding",
        ],
        [_changes_row(shape, n, per_second, seconds) for shape in shapes()[1:]],
    )


def _changes_row(shape: Shape, n: int, per_second: int, seconds: int) -> list[str]:
    filters = shape.filters(n + 20_000)
    matcher = Matcher(shape.schema, filters[:n])
    fresh = iter(filters[n:])
    added, add = time_each(lambda: matcher.add(next(fresh)), 5_000)
    going = iter([*added[:2_500], *range(2_500)])
    _, remove = time_each(lambda: matcher.remove(next(going)), 5_000)
    matcher.fold()
    quiet = _speed(matcher, shape.events, 2.0)
    busy, taken = _speed_under_changes(matcher, shape.events, fresh, per_second, seconds)
    return [
        shape.name,
        f"{np.median(add) * 1e6:.3g}",
        f"{np.mean(add) * 1e6:.3g}",
        shown_seconds(float(np.max(add))),
        f"{np.median(remove) * 1e6:.3g}",
        _thousands(quiet),
        _thousands(busy),
        f"{busy / quiet:.2f}",
        f"{taken:.0%}",
    ]


def time_each(act: Callable[[], Any], times: int) -> tuple[list[Any], list[float]]:
    """The result and the duration of each call."""
    answers, taken = [], []
    for _ in range(times):
        began = time.perf_counter()
        answers.append(act())
        taken.append(time.perf_counter() - began)
    return answers, taken


def _speed(matcher: Matcher, events: pa.Table, seconds: float) -> float:
    began, done = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        done += len(matcher.count_table(events.slice(done % (EVENTS - 1_000), 1_000)))
    return done / (time.perf_counter() - began)


def _speed_under_changes(
    matcher: Matcher, events: pa.Table, fresh: Any, per_second: int, seconds: int
) -> tuple[float, float]:
    """Events per second while filters arrive evenly, and the share of time spent on adding them."""
    began, done, arrived, adding = time.perf_counter(), 0, 0, 0.0
    while (now := time.perf_counter() - began) < seconds:
        while arrived < now * per_second:
            matcher.add(next(fresh))
            arrived += 1
        adding += time.perf_counter() - began - now
        done += len(matcher.count_table(events.slice(done % (EVENTS - 1_000), 1_000)))
    total = time.perf_counter() - began
    return done / total, adding / total


# --- Spark ---------------------------------------------------------------------------------------


def matching_spark(n_events: int = 200_000, sizes: Sequence[int] = (1_000, 10_000)) -> Section:
    """Our step in Spark against Spark's own evaluation of the same texts."""
    with (
        tempfile.TemporaryDirectory() as scratch,
        use_spark("local[2]", {"spark.ui.enabled": "false"}) as spark,
    ):
        table = quote_events(Quotes(), n_events, np.random.default_rng(1))
        events = _on_disk(spark, table, Path(scratch) / "events")
        few = _on_disk(spark, table.slice(0, n_events // 10), Path(scratch) / "few")
        rows = [
            _spark_row(spark, events, events if n <= 1_000 else few, n, n_events) for n in sizes
        ]
    return Section(
        "Matching in Spark against Spark SQL",
        f"{n_events:,} quotes, `local[2]`, counting matches. Spark SQL evaluates the filters' own "
        "texts, one aggregate for each, 200 per query; with 10,000 filters on a tenth of the "
        "events. The counts are the same (asserted). Filters are compiled once for all events. "
        "Spark SQL spends much of its time on planning its expressions, which matters less for a "
        "longer log.",
        [
            "filters",
            "matches per event",
            "compiled in",
            "events/s, ours",
            "events/s, Spark SQL",
            "ours / Spark SQL",
        ],
        rows,
    )


def _on_disk(spark: Any, table: pa.Table, folder: Path) -> Any:
    """Write the table as four files, so that both cores have work."""
    folder.mkdir()
    size = -(-table.num_rows // 4)
    for at in range(4):
        pq.write_table(table.slice(at * size, size), folder / f"{at}.parquet")
    return spark.read.parquet(str(folder))


def _spark_row(spark: Any, events: Any, few: Any, n: int, n_events: int) -> list[str]:
    texts = [print_filter(found) for found in _quote_filters(n)]
    listed = [(f"r{at}", text) for at, text in enumerate(texts)]
    filters = spark.createDataFrame(listed, "receiver string, filter string")
    compiled, compiling = timed(lambda: compile_filters(filters, events), 1)
    assert len(compiled.matcher) == n
    count = F.sum("matches").alias("n")
    ours, taken = timed(lambda: count_matches(events, compiled).agg(count).collect(), 3)
    began = time.perf_counter()
    theirs = _by_spark(few, texts)
    plain = time.perf_counter() - began
    part = count_matches(few, compiled).agg(count).collect()[0]["n"]
    assert part == theirs
    few_rows = few.count()
    return [
        f"{n:,}",
        f"{ours[0]['n'] / n_events:.1f}",
        shown_seconds(compiling),
        f"{n_events / taken:,.0f}",
        f"{few_rows / plain:,.0f}",
        f"{n_events / taken / (few_rows / plain):,.0f}",
    ]


def _by_spark(events: Any, texts: list[str], chunk: int = 200) -> int:
    """All matches, by Spark's own expressions."""
    total = 0
    for first in range(0, len(texts), chunk):
        tests = [F.when(F.expr(text), 1).otherwise(0) for text in texts[first : first + chunk]]
        sums = events.agg(*(F.sum(test).alias(f"s{at}") for at, test in enumerate(tests)))
        total += sum(sums.collect()[0].asDict().values())
    return total


SECTIONS: dict[str, Callable[[], Section]] = {
    "matching": matching,
    "matching_peers": matching_peers,
    "matching_threads": matching_threads,
    "matching_links": matching_links,
    "matching_changes": matching_changes,
    "matching_spark": matching_spark,
}
