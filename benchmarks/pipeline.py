"""The pipeline: logs in, replays, plans on executors, and how each of them grows."""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from benchmarks.instances import floor_demand
from benchmarks.logs import Logs, interest_table, write_logs, write_publications
from benchmarks.measure import Section, shown_seconds
from benchmarks.processes import cpu_seconds
from distributary import Demand, Plan, Request, evaluate, plan
from distributary.pipeline.ingest import read_publications, read_subscriptions
from distributary.pipeline.interest import (
    interest_of,
    settled,
    subscription_counts,
    subscription_digest,
    ties,
)
from distributary.pipeline.plans import PlanTables, flooding, plan_tables, unicast
from distributary.pipeline.rates import (
    publication_counts,
    publication_digest,
    published_window,
    rates_for,
    rates_from,
)
from distributary.pipeline.replay import activity, replay
from distributary.pipeline.run import Job
from distributary.pipeline.run import _inputs as whole_ingest
from distributary.pipeline.spark import running_spark

THREADS = 2
QUIET = {"spark.ui.enabled": "false"}


@dataclass(frozen=True)
class Spent:
    """What some work took: seconds on the clock, and of all cores together."""

    seconds: float
    cpu: float


# --- from logs to interest and rates -------------------------------------------------------------


def ingest(rows: int = 10_000_000, times: int = 3, bad: float = 0.001) -> Section:
    """Our digests against the bare aggregation on the same Spark, and against DuckDB."""
    told = []
    with (
        tempfile.TemporaryDirectory() as scratch,
        running_spark(f"local[{THREADS}]", QUIET) as spark,
    ):
        folder = Path(scratch)
        logs = write_logs(folder / "logs", rows)
        ways: dict[str, Callable[[Path], None]] = {
            "bare Spark SQL": lambda out: bare_spark(spark, logs, out),
            "ours: digests, counts, interest, rates": lambda out: our_tables(spark, logs, out),
            "ours: all that `run` does before it plans": lambda out: our_run(spark, logs, out),
            "DuckDB": lambda out: in_duckdb(logs, out),
        }
        spent = {name: _repeated(way, folder / "out", times) for name, way in ways.items()}
        _check_same_tables(ways, logs, folder / "out")
        if bad:
            spoiled = write_logs(folder / "spoiled", rows, bad)
            name = f"ours: the same, {bad:.1%} of the rows bad"
            spent[name] = _repeated(lambda out: our_run(spark, spoiled, out), folder / "out", times)
    plain = spent["bare Spark SQL"]
    for name, one in spent.items():
        told.append(
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
        f"of a million rows. `local[{THREADS}]`, DuckDB with {THREADS} threads; median of {times} "
        "run(s) after a warm-up. The bare aggregation is `max_by(action, ts)` by receiver and flow, "
        "`count(*)` and `avg(size)` by flow, written as Parquet. Interest and rates are the same in "
        "all (asserted).",
        ["way", "time", "rows per second", "CPU", "over bare Spark"],
        told,
        "The bare aggregation believes every row: it counts no duplicates, checks nothing against "
        "the source and sorts no files. `run` does, so that each row is accounted for and the same "
        "input gives the same bytes.",
    )


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
    """The steps of the pipeline, each table staged as `run` stages it, and no more than they."""
    subscriptions = read_subscriptions(spark, str(logs.subscriptions))
    digest = _staged(subscription_digest(subscriptions), out / "subscriptions")
    assert subscription_counts(digest).read == logs.rows // 2
    tied = ties(digest).limit(1).count()
    interest = interest_of(settled(digest, subscriptions.valid if tied else None))
    interest = _staged(interest, out / "interest")
    publications = read_publications(spark, str(logs.publications))
    published = _staged(publication_digest(publications), out / "publications")
    assert publication_counts(published).read == logs.rows // 2
    window = published_window(published)
    assert window is not None
    rates = rates_for(interest, rates_from(published, *window), 1e-6)
    rates.write.parquet(str(out / "rates"))


def our_run(spark: SparkSession, logs: Logs, out: Path) -> None:
    """What `pipeline run` does before it plans."""
    job = Job(out, str(logs.publications), Request(1), subscriptions=str(logs.subscriptions))
    whole_ingest(spark, job, out, out / ".work")


def in_duckdb(logs: Logs, out: Path) -> None:
    """The bare aggregation in DuckDB."""
    out.mkdir(parents=True)
    with duckdb.connect() as base:
        base.execute(f"SET threads = {THREADS}")
        for name, query in {
            "interest": "SELECT receiver, flow FROM (SELECT receiver, flow, arg_max(action, ts) AS "
            f"action FROM '{logs.subscriptions}/*.parquet' GROUP BY ALL) WHERE action = 'subscribe'",
            "rates": "SELECT flow, count(*) AS messages, avg(size) AS size "
            f"FROM '{logs.publications}/*.parquet' GROUP BY ALL",
        }.items():
            (out / name).mkdir()
            base.execute(f"COPY ({query}) TO '{out / name}/0.parquet' (FORMAT parquet)")


def _staged(frame: DataFrame, path: Path) -> DataFrame:
    frame.write.parquet(str(path))
    return frame.sparkSession.read.parquet(str(path))


def _check_same_tables(ways: dict[str, Callable[[Path], None]], logs: Logs, out: Path) -> None:
    """Each way's interest, pair by pair, and the messages of the flows that somebody wants.

    Flows with one message are left out: silent ones have a floor rate that may be the same.
    """
    window = f"SELECT epoch_us(max(ts)) - epoch_us(min(ts)) FROM '{logs.publications}/*.parquet'"
    micros = duckdb.sql(window).fetchall()[0][0]
    found = {}
    for name, way in ways.items():
        way(out)
        interest, rates = f"'{out}/interest/*.parquet'", f"'{out}/rates/*.parquet'"
        rated = "rate" in duckdb.sql(f"SELECT * FROM {rates} LIMIT 0").columns
        messages = f"round(rate * {micros / 1e6})::BIGINT" if rated else "messages"
        pairs = duckdb.sql(f"SELECT count(*), sum(hash(receiver, flow)) FROM {interest}")
        flows = duckdb.sql(
            f"SELECT count(*), sum(n), sum(hash(flow, n, round(size, 6))) FROM "
            f"(SELECT flow, {messages} AS n, size FROM {rates}) "
            f"WHERE n > 1 AND flow IN (SELECT flow FROM {interest})"
        )
        found[name] = (*pairs.fetchall(), *flows.fetchall())
        shutil.rmtree(out)
    assert len(set(found.values())) == 1, found


def _repeated(way: Callable[[Path], object], out: Path, times: int) -> Spent:
    """The median run; with several, one more comes before them to warm up."""
    seconds, cpu = [], []
    for number in range(times + (times > 1)):
        before, began = cpu_seconds(), time.perf_counter()
        way(out)
        if number or times == 1:
            seconds.append(time.perf_counter() - began)
            cpu.append(cpu_seconds() - before)
        shutil.rmtree(out)
    return Spent(statistics.median(seconds), statistics.median(cpu))


# --- replay --------------------------------------------------------------------------------------

SILENT = 2.0**-40  # messages: the rate of a flow that never spoke, too small to be seen in a sum


def replays(messages: int = 5_000_000, plain_messages: int = 50_000, times: int = 3) -> Section:
    """A log run through a plan, flooding and unicast; and message by message, on a shorter one."""
    demand = floor_demand()
    found = plan(demand, Request(groups=50, sessions=500, algorithm="GF")).plan
    told = []
    with (
        tempfile.TemporaryDirectory() as scratch,
        running_spark(f"local[{THREADS}]", QUIET) as spark,
    ):
        folder = Path(scratch)
        pq.write_table(interest_table(demand.interest), folder / "interest.parquet")
        interest = spark.read.parquet(str(folder / "interest.parquet"))
        tables = plan_tables(spark, found)
        for name, n in (("log", messages), ("short", plain_messages)):
            write_publications(folder / name, demand, n, np.random.default_rng(n))

        def count(out: Path, name: str = "log") -> DataFrame:
            log = read_publications(spark, str(folder / name))
            return _staged(activity(log.valid.select("ts", "flow", "size")), out / "activity")

        told.append(
            ["counting per minute and flow", messages, _repeated(count, folder / "o", times)]
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

            told.append(
                [f"{name}: minutes and receivers", messages, _repeated(run, folder / "o", times)]
            )
        _check_with_evaluate(found, demand, folder / "log", totals)

        def whole(out: Path) -> None:
            short.append(replay(count(out, "short"), tables, interest).totals())

        def plainly(out: Path) -> None:
            out.mkdir()
            plain.append(message_by_message(spark, folder / "short", tables, interest))

        short: list[dict[str, int | None]] = []
        plain: list[dict[str, int | None]] = []
        told.append(["a short log, ours", plain_messages, _repeated(whole, folder / "o", times)])
        told.append(
            ["the same, message by message", plain_messages, _repeated(plainly, folder / "o", 1)]
        )
        assert all(plain[0][name] == short[0][name] for name in plain[0])
    sums = totals["plan"]
    return Section(
        f"Replay of {messages / 1e6:g} million publications",
        f"Trading floor (20,000 symbols, 500 receivers), 50 groups, 500 sessions, planned by "
        f"groups-first; `local[{THREADS}]`, median of {times}. The totals over minutes are "
        "`evaluate`'s at the rates of the log, to the message (asserted), for the plan, flooding and "
        "unicast. Message by message means: each message joined with all that receive it, on a "
        "shorter log, with the same totals (asserted).",
        ["step", "publications", "time", "publications per second", "CPU"],
        [
            [
                name,
                f"{n:,}",
                shown_seconds(spent.seconds),
                f"{n / spent.seconds / 1e6:.3g} million",
                shown_seconds(spent.cpu),
            ]
            for name, n, spent in told
        ],
        f"Received under the plan: {sums['received']:,} messages, of which {sums['wanted']:,} were "
        f"wanted; under flooding {totals['flooding']['received']:,}.",
    )


def message_by_message(
    spark: SparkSession, log: Path, tables: PlanTables, interest: DataFrame
) -> dict[str, int | None]:
    """The plain way: every message meets every receiver that joined its group."""
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
    """The totals are those of `evaluate` when rates are the log's."""
    rows = duckdb.sql(f"SELECT flow, count(*) FROM '{log}/*.parquet' GROUP BY flow").fetchall()
    count = dict(rows)
    interest = demand.interest
    counted = Demand(interest, np.array([float(count.get(f, SILENT)) for f in interest.flows]))
    cost = evaluate(found, counted)
    ours = totals["plan"]
    assert cost.valid and ours["unserved"] == ours["unplaced"] == 0
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


SECTIONS: dict[str, Callable[[], Section]] = {
    "ingest": ingest,
    "ingest_large": ingest_large,
    "replay": replays,
}
