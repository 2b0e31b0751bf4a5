"""The pipeline: ingestion, replay, and how they and planning on executors scale."""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from unittest.mock import patch

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from benchmarks.instances import floor_demand
from benchmarks.logs import PIECE, Logs, interest_table, write_logs, write_publications
from benchmarks.measure import Section, shown_seconds
from benchmarks.processes import cpu_seconds
from distributary import Demand, Plan, Request, evaluate, plan
from distributary.pipeline import distributed as executors
from distributary.pipeline.folders import OutputFolder
from distributary.pipeline.ingest import read_publications, read_subscriptions
from distributary.pipeline.inputs import prepare_inputs as whole_ingest
from distributary.pipeline.interest import (
    interest_of,
    resolve_last_actions,
    subscription_counts,
    subscription_digest,
    ties,
)
from distributary.pipeline.job import Job
from distributary.pipeline.plans import PlanTables, flooding, plan_tables, unicast
from distributary.pipeline.rates import (
    publication_counts,
    publication_digest,
    published_window,
    rates_for,
    rates_from,
)
from distributary.pipeline.replay import activity, replay
from distributary.pipeline.spark import use_spark

THREADS = 2
QUIET = {"spark.ui.enabled": "false"}


@dataclass(frozen=True)
class Spent:
    """The cost of some work: wall seconds, and CPU seconds of all cores."""

    seconds: float
    cpu: float


# --- from logs to interest and rates -------------------------------------------------------------


def ingest(rows: int = 10_000_000, times: int = 3, bad: float = 0.001) -> Section:
    """Our ingestion against the bare aggregation on the same Spark, and against DuckDB."""
    rows_shown: list[list[str]] = []
    spent: dict[str, Spent] = {}
    with (
        tempfile.TemporaryDirectory() as scratch,
        use_spark(f"local[{THREADS}]", QUIET) as spark,
    ):
        folder = Path(scratch)
        logs = write_logs(folder / "logs", rows)
        ways = _ways(spark, logs)
        if times == 1:  # none is warmed up separately: a short log does that for all of them
            short = write_logs(folder / "short", PIECE)
            for way in _ways(spark, short).values():
                _repeat(way, folder / "out", 1)
        seconds = _seconds_of(logs)
        seen: list[tuple[object, ...]] = []
        for name, way in ways.items():
            look = partial(_marks, seconds=seconds, seen=seen)
            spent[name] = _repeat(way, folder / "out", times, look)
        assert len(set(seen)) == 1, seen
        if bad:
            spoiled = write_logs(folder / "spoiled", rows, bad)
            name = f"ours: the same, {bad:.1%} of the rows bad"
            spent[name] = _repeat(lambda out: our_run(spark, spoiled, out), folder / "out", times)
    plain = spent["bare Spark SQL"]
    counted = (
        f"median of {times} runs after one to warm up"
        if times > 1
        else "one run of each after all had a short log"
    )
    for name, one in spent.items():
        rows_shown.append(
            [
                name,
                f"{one.seconds:.1f} s",
                f"{rows / one.seconds / 1e6:.2f} million",
                f"{one.cpu:.0f} s",
                f"{one.seconds / plain.seconds:.2f}",
            ]
        )
    return Section(
        f"From logs to interest and rates, {rows / 1e6:g} million rows",
        f"Half of the rows are subscriptions (5,000 receivers, about two actions for each of "
        f"{rows / 4e6:.3g} million pairs), half are publications (100,003 flows), as Parquet files "
        f"of a million rows. `local[{THREADS}]`, DuckDB with {THREADS} threads; {counted}. The "
        "bare aggregation is `max_by(action, ts)` by receiver and flow, `count(*)` and `avg(size)` "
        "by flow, written as Parquet. Interest and rates are the same in all (asserted).",
        ["way", "time", "rows per second", "CPU", "over bare Spark"],
        rows_shown,
        "The bare aggregation trusts every row: it counts no duplicates, checks nothing against "
        "the source and sorts no files. `run` does all of this, so that each row is accounted "
        "for and the same input gives the same bytes.",
    )


def _ways(spark: SparkSession, logs: Logs) -> dict[str, Callable[[Path], None]]:
    return {
        "bare Spark SQL": lambda out: bare_spark(spark, logs, out),
        "ours: digests, counts, interest, rates": lambda out: our_tables(spark, logs, out),
        "ours: all that `run` does before it plans": lambda out: our_run(spark, logs, out),
        "DuckDB": lambda out: in_duckdb(logs, out),
    }


def ingest_large() -> Section:
    """The same with ten times as many rows, once."""
    return ingest(100_000_000, times=1, bad=0)


def bare_spark(spark: SparkSession, logs: Logs, out: Path) -> None:
    """What a Spark user would write for logs that have no faults."""
    last = F.max_by("action", "ts").alias("action")
    pairs = spark.read.parquet(str(logs.subscriptions)).groupBy("receiver", "flow").agg(last)
    wanted = pairs.where(F.col("action") == "subscribe").select("receiver", "flow")
    wanted.write.parquet(str(out / "interest"))
    rates = spark.read.parquet(str(logs.publications)).groupBy("flow")
    counted = rates.agg(F.count("*").alias("messages"), F.avg("size").alias("size"))
    counted.write.parquet(str(out / "rates"))


def our_tables(spark: SparkSession, logs: Logs, out: Path) -> None:
    """The steps of the pipeline, with each table staged as `run` stages it, and nothing else."""
    subscriptions = read_subscriptions(spark, str(logs.subscriptions))
    digest = _stage(subscription_digest(subscriptions), out / "subscriptions")
    assert subscription_counts(digest).read == logs.rows // 2
    tied = ties(digest).limit(1).count()
    interest = interest_of(resolve_last_actions(digest, subscriptions.valid if tied else None))
    interest = _stage(interest, out / "interest")
    publications = read_publications(spark, str(logs.publications))
    published = _stage(publication_digest(publications.rows), out / "publications")
    assert publication_counts(published).read == logs.rows // 2
    window = published_window(published)
    assert window is not None
    rates = rates_for(interest, rates_from(published, *window), 1e-6)
    rates.write.parquet(str(out / "rates"))


def our_run(spark: SparkSession, logs: Logs, out: Path) -> None:
    """Everything that `pipeline run` does before it plans."""
    job = Job(str(out), str(logs.publications), Request(1), subscriptions=str(logs.subscriptions))
    whole_ingest(spark, job, OutputFolder("measured", out, out, out))


def in_duckdb(logs: Logs, out: Path) -> None:
    """The bare aggregation in DuckDB."""
    out.mkdir(parents=True)
    with duckdb.connect() as base:
        base.execute(f"SET threads = {THREADS}")
        for name, query in {
            "interest": "SELECT receiver, flow FROM (SELECT receiver, flow, arg_max(action, ts) AS "
            f"a FROM '{logs.subscriptions}/*.parquet' GROUP BY ALL) WHERE a = 'subscribe'",
            "rates": "SELECT flow, count(*) AS messages, avg(size) AS size "
            f"FROM '{logs.publications}/*.parquet' GROUP BY ALL",
        }.items():
            (out / name).mkdir()
            base.execute(f"COPY ({query}) TO '{out / name}/0.parquet' (FORMAT parquet)")


def _stage(frame: DataFrame, path: Path) -> DataFrame:
    frame.write.parquet(str(path))
    return frame.sparkSession.read.parquet(str(path))


def _seconds_of(logs: Logs) -> float:
    """The seconds from the first publication to the last."""
    window = f"SELECT epoch_us(max(ts)) - epoch_us(min(ts)) FROM '{logs.publications}/*.parquet'"
    micros: int = duckdb.sql(window).fetchall()[0][0]
    return micros / 1e6


def _marks(out: Path, seconds: float, seen: list[tuple[object, ...]]) -> None:
    """Sums of hashes over the pairs of the interest, and over the messages of each wanted flow.

    Flows with one message are left out, since the floor rate of silent flows may be the same.
    """
    interest, rates = f"'{out}/interest/*.parquet'", f"'{out}/rates/*.parquet'"
    rated = "rate" in duckdb.sql(f"SELECT * FROM {rates} LIMIT 0").columns
    messages = f"round(rate * {seconds})::BIGINT" if rated else "messages"
    pairs = duckdb.sql(f"SELECT count(*), sum(hash(receiver, flow)) FROM {interest}")
    flows = duckdb.sql(
        "SELECT count(*), sum(n), sum(hash(flow, n, round(size, 6))) FROM "
        f"(SELECT flow, {messages} AS n, size FROM {rates}) "
        f"WHERE n > 1 AND flow IN (SELECT flow FROM {interest})"
    )
    seen.append((*pairs.fetchall(), *flows.fetchall()))


def _repeat(
    way: Callable[[Path], object],
    out: Path,
    times: int,
    look: Callable[[Path], object] = lambda out: None,
) -> Spent:
    """The median run; if there are several, an additional one comes first to warm up.

    `look` inspects the output of each run before it is deleted, and is not timed.
    """
    seconds, cpu = [], []
    for number in range(times + (times > 1)):
        before, began = cpu_seconds(), time.perf_counter()
        way(out)
        if number or times == 1:
            seconds.append(time.perf_counter() - began)
            cpu.append(cpu_seconds() - before)
        look(out)
        shutil.rmtree(out)
    return Spent(statistics.median(seconds), statistics.median(cpu))


# --- replay --------------------------------------------------------------------------------------

SILENT = 2.0**-40  # messages: the rate of a silent flow, too small to change a sum


def replays(messages: int = 5_000_000, plain_messages: int = 200_000, times: int = 3) -> Section:
    """A log replayed under a plan, flooding and unicast; a shorter one message by message."""
    demand = floor_demand()
    found = plan(demand, Request(groups=50, sessions=500, algorithm="GF")).plan
    timings = []
    with (
        tempfile.TemporaryDirectory() as scratch,
        use_spark(f"local[{THREADS}]", QUIET) as spark,
    ):
        folder = Path(scratch)
        pq.write_table(interest_table(demand.interest), folder / "interest.parquet")
        interest = spark.read.parquet(str(folder / "interest.parquet"))
        tables = plan_tables(spark, found)
        for name, n in (("log", messages), ("short", plain_messages)):
            write_publications(folder / name, demand, n, np.random.default_rng(n))

        def count(out: Path, name: str = "log") -> DataFrame:
            log = read_publications(spark, str(folder / name))
            return _stage(activity(log.valid.select("ts", "flow", "size")), out / "activity")

        timings.append(
            ["counting per minute and flow", messages, _repeat(count, folder / "o", times)]
        )
        counted = count(folder / "counted")
        plans = {"plan": tables, "flooding": flooding(interest), "unicast": unicast(interest)}
        totals = {}
        for name, each in plans.items():

            def run(out: Path, name: str = name, each: PlanTables = each) -> None:
                out.mkdir()
                ours = replay(counted, each, interest, DataFrame.persist)
                totals[name] = ours.totals()
                assert ours.receivers.toArrow().num_rows == len(demand.interest.receivers)
                spark.catalog.clearCache()

            timings.append(
                [f"{name}: minutes and receivers", messages, _repeat(run, folder / "o", times)]
            )
        _check_with_evaluate(found, demand, folder / "log", totals)

        def whole(out: Path) -> None:
            short.append(replay(count(out, "short"), tables, interest).totals())

        def plainly(out: Path) -> None:
            out.mkdir()
            plain.append(message_by_message(spark, folder / "short", tables, interest))

        short: list[dict[str, int | None]] = []
        plain: list[dict[str, int | None]] = []
        timings.append(["a short log, ours", plain_messages, _repeat(whole, folder / "o", times)])
        timings.append(
            ["the same, message by message", plain_messages, _repeat(plainly, folder / "o", 1)]
        )
        assert all(plain[0][name] == short[0][name] for name in plain[0])
    sums = totals["plan"]
    return Section(
        f"Replay of {messages / 1e6:g} million publications",
        "Trading floor (20,000 symbols, 500 receivers), 50 groups, 500 sessions, planned by "
        f"groups-first; `local[{THREADS}]`, median of {times}. The totals over all minutes equal "
        "those of `evaluate` at the rates of the log, to the message (asserted), for the plan, "
        "flooding and unicast. Message by message means that each message is joined with all its "
        "receivers, on a shorter log, with the same totals (asserted).",
        ["step", "publications", "time", "publications per second", "CPU"],
        [
            [
                name,
                f"{n:,}",
                shown_seconds(spent.seconds),
                f"{n / spent.seconds / 1e6:.3g} million",
                shown_seconds(spent.cpu),
            ]
            for name, n, spent in timings
        ],
        f"Received under the plan: {sums['received']:,} messages, of which {sums['wanted']:,} were "
        f"wanted; under flooding {totals['flooding']['received']:,}.",
    )


def message_by_message(
    spark: SparkSession, log: Path, tables: PlanTables, interest: DataFrame
) -> dict[str, int | None]:
    """The plain way: join every message with every receiver that joined its group."""
    heard = tables.subscriptions.select("receiver", "session", F.lit(1).alias("accepted"))
    asked = interest.select("receiver", "flow", F.lit(1).alias("asked"))
    met = (
        spark.read.parquet(str(log))
        .join(tables.placed, "flow")
        .join(tables.memberships, "group")
        .join(heard, ["receiver", "session"], "left")
        .join(asked, ["receiver", "flow"], "left")
    )
    accepted, wanted = F.col("accepted").isNotNull(), F.col("asked").isNotNull()
    parts = {
        "received": F.lit(True),
        "wanted": accepted & wanted,
        "dropped_by_session": ~accepted,
        "dropped_by_flow": accepted & ~wanted,
        "unserved": ~accepted & wanted,
    }
    minutes = met.groupBy(F.date_trunc("minute", "ts").alias("minute")).agg(
        *(F.count_if(test).alias(name) for name, test in parts.items()),
        *(
            F.sum(F.when(test, F.col("size"))).alias(f"{name}_bytes")
            for name, test in parts.items()
        ),
    )
    names = (*parts, *(f"{name}_bytes" for name in parts))
    sums: Row = minutes.agg(*(F.sum(name).alias(name) for name in names)).collect()[0]
    return {name: value or 0 for name, value in sums.asDict().items()}


def _check_with_evaluate(
    found: Plan, demand: Demand, log: Path, totals: dict[str, dict[str, int | None]]
) -> None:
    """Check that the totals equal those of `evaluate` at the log's own rates."""
    rows = duckdb.sql(f"SELECT flow, count(*) FROM '{log}/*.parquet' GROUP BY flow").fetchall()
    count = dict(rows)
    interest = demand.interest
    counted = Demand(interest, np.array([float(count.get(f, SILENT)) for f in interest.flows]))
    cost = evaluate(found, counted)
    ours = totals["plan"]
    assert cost.valid
    assert ours["unserved"] == ours["unplaced"] == 0
    assert ours["sent"] == round(cost.channel.sent)
    assert ours["received"] == round(cost.filtering.session_cost)
    assert (ours["received"] or 0) - (ours["dropped_by_session"] or 0) == round(
        cost.filtering.flow_cost
    )
    wanted = round(cost.filtering.wanted_work / 2)
    assert all(one["wanted"] == wanted for one in totals.values())
    assert totals["unicast"]["received"] == wanted
    flooded = (totals["flooding"]["received"] or 0) - wanted
    assert flooded == round(cost.filtering.flooding_excess / 2)


# --- growth --------------------------------------------------------------------------------------


def growth() -> Section:
    """The time of each step at three sizes, a factor of two or three apart."""
    rows = []
    with (
        tempfile.TemporaryDirectory() as scratch,
        use_spark(f"local[{THREADS}]", QUIET) as spark,
    ):
        folder = Path(scratch)
        steps: list[tuple[str, str, tuple[int, ...], Callable[[int], Callable[[Path], object]]]] = [
            (
                "ingest",
                "log rows",
                (1_000_000, 3_000_000, 9_000_000),
                lambda n: _ingest_of(spark, folder, rows=n),
            ),
            (
                "ingest, 2 million rows",
                "flows",
                (10_007, 31_607, 100_003),
                lambda n: _ingest_of(spark, folder, flows=n),
            ),
            (
                "ingest, 2 million rows",
                "receivers",
                (1_000, 5_000, 25_000),
                lambda n: _ingest_of(spark, folder, receivers=n),
            ),
            (
                "replay",
                "messages",
                (500_000, 1_500_000, 4_500_000),
                lambda n: _replay_of(spark, folder, messages=n),
            ),
            (
                "replay, a million messages",
                "flows",
                (5_000, 20_000, 80_000),
                lambda n: _replay_of(spark, folder, symbols=n),
            ),
            (
                "replay, a million messages",
                "receivers",
                (250, 1_000, 4_000),
                lambda n: _replay_of(spark, folder, receivers=n),
            ),
            (
                "planning on executors, 3 rounds",
                "flows",
                (5_000, 15_000, 45_000),
                lambda n: _plan_of(spark, folder, symbols=n),
            ),
            (
                "planning on executors, 3 rounds",
                "receivers",
                (500, 1_500, 4_500),
                lambda n: _plan_of(spark, folder, receivers=n),
            ),
        ]
        for name, unit, sizes, made in steps:
            taken = []
            for number, size in enumerate(sizes):
                way = made(size)
                spent = _repeat(way, folder / "out", 2 if number == 0 else 1)
                taken.append(spent)
                for left in folder.iterdir():
                    shutil.rmtree(left)
            rows.append(
                [
                    name,
                    unit,
                    *(
                        f"{size:,}: {shown_seconds(one.seconds)}"
                        for size, one in zip(sizes, taken, strict=True)
                    ),
                    f"{_exponent(sizes, [one.seconds for one in taken]):.2f}",
                    f"{_exponent(sizes, [one.cpu for one in taken]):.2f}",
                ]
            )
    return Section(
        "How the pipeline grows",
        f"`local[{THREADS}]`. An exponent is the slope of log time over log size, through three "
        "sizes; the last column uses CPU seconds instead of wall time. At these sizes Spark's "
        "fixed cost of one or two seconds per job is a large part, so the exponents are smaller "
        "than for larger sizes. In the replay and in planning, more receivers also mean more "
        "pairs. Planning: 48 groups, 400 sessions.",
        ["step", "grows in", "small", "middle", "large", "exponent", "exponent, CPU"],
        rows,
    )


def _exponent(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def _ingest_of(
    spark: SparkSession, folder: Path, rows: int = 2_000_000, **size: int
) -> Callable[[Path], object]:
    logs = write_logs(folder / "logs", rows, **size)
    return lambda out: our_tables(spark, logs, out)


def _replay_of(
    spark: SparkSession, folder: Path, messages: int = 1_000_000, **size: int
) -> Callable[[Path], object]:
    demand = floor_demand(**size)
    found = plan(demand, Request(groups=50, sessions=500, algorithm="GF")).plan
    write_publications(folder / "log", demand, messages, np.random.default_rng(0))
    interest = _interest_frame(spark, folder, demand)

    def way(out: Path) -> None:
        log = read_publications(spark, str(folder / "log")).valid
        counted = _stage(activity(log.select("ts", "flow", "size")), out / "activity")
        replayed = replay(counted, plan_tables(spark, found), interest)
        assert replayed.totals()["messages"] == messages

    return way


def _plan_of(
    spark: SparkSession, folder: Path, symbols: int = 15_000, receivers: int = 1_500
) -> Callable[[Path], object]:
    demand = floor_demand(symbols=symbols, receivers=receivers)
    interest = _interest_frame(spark, folder, demand)
    names = pa.array(demand.interest.flows, pa.string())
    rates = spark.createDataFrame(pa.table({"flow": names, "rate": demand.rate}))
    request = Request(groups=48, sessions=400)

    def way(out: Path) -> None:
        with (
            patch.object(executors, "MOST_ROUNDS", 3),
            patch.object(executors, "ENOUGH", -1.0),
        ):
            made = executors.plan_on_executors(interest, rates, request, out)
        assert len(made.rounds) == 4

    return way


def _interest_frame(spark: SparkSession, folder: Path, demand: Demand) -> DataFrame:
    (folder / "interest").mkdir(parents=True)
    pq.write_table(interest_table(demand.interest), folder / "interest" / "0.parquet")
    return spark.read.parquet(str(folder / "interest"))


SECTIONS: dict[str, Callable[[], Section]] = {
    "ingest": ingest,
    "ingest_large": ingest_large,
    "replay": replays,
    "growth": growth,
}
