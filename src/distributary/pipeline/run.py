"""One run of the pipeline: logs in, a plan with all that belongs to it out, or nothing changed.

Everything is made in a folder beside the output and takes its place at the end in one rename. The
same inputs and parameters give the same bytes of plan, whatever the partitioning, and the same rows
in the same files of all other tables (whose footers Java writes in an order of its own).

Interest that fits the driver (`driver_need`) is planned there; else the executors do it
(`distributed`). The estimate is 140 bytes for each pair, as measured from Parquet to plan, and 5
for each receiver and each session and group.
"""

from __future__ import annotations

import json
import math
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from distributary import __version__
from distributary.cost import Evaluation, evaluate
from distributary.errors import InputError, PlanError
from distributary.files import (
    evaluation_document,
    plan_document,
    read_demand,
    read_plan,
    read_previous,
    replaced_folder,
    write_plan,
)
from distributary.model import Demand, Plan
from distributary.pipeline.content import content_flows
from distributary.pipeline.diff import KINDS as DIFF_KINDS
from distributary.pipeline.diff import plan_diff
from distributary.pipeline.distributed import Costs, plan_on_executors
from distributary.pipeline.ingest import (
    Counts,
    Log,
    Window,
    check_bad,
    check_sum,
    read_filters,
    read_interest,
    read_publications,
    read_subscriptions,
    reading_faults,
    rows_at_source,
)
from distributary.pipeline.interest import (
    absent_receivers,
    interest_of,
    settled,
    subscription_counts,
    subscription_digest,
    ties,
)
from distributary.pipeline.plans import (
    PlanTables,
    plan_tables,
    stored_plan_tables,
)
from distributary.pipeline.rates import (
    flow_counts,
    publication_counts,
    publication_digest,
    published_window,
    rates_for,
    rates_from,
)
from distributary.pipeline.replay import activity, references, replay
from distributary.pipeline.restarts import plan_with_restarts
from distributary.pipeline.tables import (
    bucket_count,
    group_table,
    receiver_table,
    write_group_table,
    write_receiver_table,
)
from distributary.planning import Request, Solution, plan
from distributary.planning.progress import Progress, silent

__all__ = ["DRIVER_LIMIT", "MANIFEST", "Job", "Outcome", "driver_need", "replay_plan", "run"]

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
DRIVER_LIMIT = 4 * 2**30
_BYTES_PER_PAIR, _BYTES_PER_SEAT = 140, 5
_ROWS_PER_FILE = 2_000_000


@dataclass(frozen=True, slots=True)
class Job:
    """What to run: where the logs are, what to make of them, where to put it.

    Either `subscriptions` or `filters` says who wants what. `previous` is a plan to compare with,
    and to start from if the moves are limited; the one in `out`, if any, without it.
    """

    out: Path
    publications: str
    request: Request
    subscriptions: str | None = None
    filters: str | None = None
    window: Window = field(default_factory=Window)
    rate_half_life: timedelta | None = None
    presence_half_life: timedelta | None = None
    floor: float | None = None
    peak_window: timedelta | None = None
    max_flows: int = 1_000
    max_bad: float = 1.0
    previous: Path | None = None
    max_moves: int | None = None
    restarts: int = 1
    driver_limit: int = DRIVER_LIMIT

    def __post_init__(self) -> None:
        if (self.subscriptions is None) == (self.filters is None):
            raise ValueError("name either a subscription log or a table of filters")
        if self.restarts < 1:
            raise ValueError(f"restarts must be at least 1, not {self.restarts}")


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What a run made. `demand` and `evaluation` are there if the driver planned."""

    manifest: dict[str, Any]
    plan: Plan
    demand: Demand | None
    evaluation: Evaluation | None
    minutes: Any
    receivers: Any


@dataclass(frozen=True, slots=True, eq=False)
class _Inputs:
    """The logs made into tables, and what became of their rows."""

    interest: DataFrame
    rates: DataFrame
    used: DataFrame  # publications: ts, flow, size
    told: dict[str, Any]


def driver_need(pairs: int, receivers: int, sessions: int, groups: int) -> int:
    """Bytes that planning on the driver takes, roughly."""
    return _BYTES_PER_PAIR * pairs + _BYTES_PER_SEAT * receivers * (sessions + groups)


def run(
    spark: SparkSession,
    job: Job,
    finish: Callable[[Outcome, Path], None] = lambda outcome, folder: None,
    progress: Progress = silent,
) -> Outcome:
    """Run the pipeline; `finish` may add to the folder before it is put in its place."""
    previous = _previous(job)
    with replaced_folder(job.out, _is_ours, "pipeline output") as folder, _quiet(spark):
        stage = folder / ".work"
        inputs = _inputs(spark, job, folder, stage)
        outcome = _planned(spark, job, inputs, folder, previous, progress)
        finish(outcome, folder)
        _tidy(folder)
        _write_json(folder / MANIFEST, outcome.manifest)
    shutil.rmtree(_work_folder(job.out), ignore_errors=True)
    return outcome


def replay_plan(
    spark: SparkSession,
    plan_folder: Path,
    publications: str,
    interest: str,
    window: Window,
    out: Path | None = None,
) -> dict[str, Any]:
    """Run a log through a plan that is there; the tables go to `out`, if one is named."""
    read_previous(plan_folder)
    tables = stored_plan_tables(spark, plan_folder)
    wanted = read_interest_table(spark, interest).persist()
    log = read_publications(spark, publications, window)
    with reading_faults(log.source.path):
        counts = publication_counts(publication_digest(log).persist())
        counted = activity(log.valid.select("ts", "flow", "size")).persist()
        ours = replay(counted, tables, wanted, DataFrame.persist)
        receivers = wanted.select("receiver").distinct().count()
        document = {
            "publications": _counts_told(log, counts),
            "replay": {"plan": ours.totals(), **references(ours, receivers)},
        }
        if out is not None:
            with replaced_folder(
                out, lambda folder: (folder / "minutes.parquet").is_file(), "replay"
            ) as folder:
                _write_arrow(ours.minutes.toArrow().sort_by("minute"), folder / "minutes.parquet")
                _write_arrow(
                    ours.receivers.toArrow().sort_by("receiver"),
                    folder / "receivers.parquet",
                )
    return document


def read_interest_table(spark: SparkSession, source: str) -> DataFrame:
    """Who wants what, from any place a log can be in; pairs without a name are refused."""
    log = read_interest(spark, source)
    bad = log.quarantined.count()
    if bad:
        raise InputError(f"{bad:,} rows lack a receiver or a flow", path=log.source.path)
    return log.valid.select("receiver", "flow").distinct()


def _is_ours(folder: Path) -> bool:
    return (folder / MANIFEST).is_file()


def _work_folder(out: Path) -> Path:
    """Where rounds on executors are kept, beside the output: a restarted job goes on from there."""
    return out.parent / f".{out.name}.rounds"


def _previous(job: Job) -> Path | None:
    """The plan to compare with, checked before anything is done."""
    folder = job.previous or (job.out / "plan" if (job.out / "plan").is_dir() else None)
    if folder is None:
        if job.max_moves is not None:
            raise InputError(
                "there is no plan here yet whose moves could be limited",
                path=str(job.out),
                remedy="run once without --max-moves, or name a plan with --from",
            )
        return None
    read_previous(folder)
    return folder


@contextmanager
def _quiet(spark: SparkSession) -> Iterator[None]:
    try:
        yield
    finally:
        spark.catalog.clearCache()
        spark.sparkContext.setJobDescription(None)  # type: ignore[arg-type]


# --- logs into tables ----------------------------------------------------------------------------


def _inputs(spark: SparkSession, job: Job, folder: Path, stage: Path) -> _Inputs:
    publications = read_publications(
        spark, job.publications, job.window, "all" if job.filters else None
    )
    if job.filters is not None:
        return _from_filters(spark, job, publications, folder, stage)
    subscriptions = read_subscriptions(spark, str(job.subscriptions), job.window)

    _say(spark, "reading the subscriptions")
    with reading_faults(subscriptions.source.path):
        digest = _staged(subscription_digest(subscriptions), stage / "subscriptions")
    counts = subscription_counts(digest)
    check_bad("subscriptions", counts, job.max_bad)
    told = {"subscriptions": _checked(spark, subscriptions, counts, folder)}
    with reading_faults(subscriptions.source.path):
        tied = ties(digest).limit(1).count()
        state = settled(digest, subscriptions.valid if tied else None)
        if tied:
            state = _staged(state, stage / "state")

    _say(spark, "reading the publications")
    with reading_faults(publications.source.path):
        published = _staged(
            publication_digest(publications, job.rate_half_life, job.peak_window),
            stage / "publications",
        )
    counts = publication_counts(published)
    check_bad("publications", counts, job.max_bad)
    told["publications"] = _checked(spark, publications, counts, folder)

    start, end = _window(job, published)
    moment = max(end, _latest(state) or end)
    interest = interest_of(state, moment, job.presence_half_life)
    _say(spark, "writing the interest")
    interest = _written_interest(interest, folder, told)
    if job.presence_half_life is not None:
        gone = absent_receivers(state, moment, job.presence_half_life).count()
        told["interest"]["forgotten_receivers"] = gone
    rates = rates_from(published, start, end, job.rate_half_life, job.peak_window)
    floor = job.floor or 1 / (end - start).total_seconds()
    _say(spark, "writing the rates")
    rates = _written_rates(rates_for(interest, rates, floor), folder)
    told["window"] = _window_told(start, end)
    told["rates"] = {"floor": floor, **asdict(flow_counts(interest, published))}
    return _Inputs(interest, rates, publications.valid.select("ts", "flow", "size"), told)


def _from_filters(
    spark: SparkSession, job: Job, publications: Log, folder: Path, stage: Path
) -> _Inputs:
    """Flows are the sets of filters that events match; each filter's owner wants its sets."""
    filters = read_filters(spark, str(job.filters))
    _say(spark, "matching the filters")
    with reading_faults(publications.source.path):
        content = content_flows(publications.valid, filters.valid, max_flows=job.max_flows)
        used = _staged(content.publications.select("ts", "flow", "size"), stage / "matched")
        rows = publications.rows.groupBy("reason", "copy").count().collect()
    counts = Counts(
        used=sum(r["count"] for r in rows if r["reason"] is None and not r["copy"]),
        duplicates=sum(r["count"] for r in rows if r["reason"] is None and r["copy"]),
        reasons={r["reason"]: r["count"] for r in rows if r["reason"] is not None},
    )
    check_bad("publications", counts, job.max_bad)
    told: dict[str, Any] = {"publications": _checked(spark, publications, counts, folder)}
    told["filters"] = _filters_told(spark, filters, content.quarantine, folder, job.max_bad)
    told["content"] = content.counts()
    _say(spark, "writing the interest")
    interest = _written_interest(content.interest, folder, told)
    _write_parts(content.flows, folder / "flows", "flow")
    digest = _staged(
        publication_digest(_as_log(publications, used), job.rate_half_life, job.peak_window),
        stage / "publications",
    )
    start, end = _window(job, digest)
    floor = job.floor or 1 / (end - start).total_seconds()
    rates = rates_from(digest, start, end, job.rate_half_life, job.peak_window)
    rates = _written_rates(rates_for(interest, rates, floor), folder)
    content.release()
    told["window"] = _window_told(start, end)
    told["rates"] = {"floor": floor, **asdict(flow_counts(interest, digest))}
    return _Inputs(interest, rates, used, told)


def _as_log(log: Log, used: DataFrame) -> Log:
    """Rows that are all of use, in the shape of a log."""
    rows = used.withColumns({"reason": F.lit(None).cast("string"), "copy": F.lit(False)})
    return replace(log, rows=rows)


def _filters_told(
    spark: SparkSession, filters: Log, refused: DataFrame, folder: Path, max_bad: float
) -> dict[str, Any]:
    rows = filters.rows.groupBy("reason").count().collect()
    reasons = {row["reason"]: row["count"] for row in rows if row["reason"] is not None}
    good = sum(row["count"] for row in rows if row["reason"] is None)
    bad = refused.groupBy("reason").count().collect()
    reasons |= {row["reason"]: row["count"] for row in bad}
    counts = Counts(good - sum(row["count"] for row in bad), 0, reasons)
    check_bad("filters", counts, max_bad)
    written = _put_aside(filters.name, filters.quarantined.unionByName(refused), folder, counts)
    read = rows_at_source(filters)
    check_sum("filters", read, counts, written)
    return _counts_told(filters, counts)


def _checked(spark: SparkSession, log: Log, counts: Counts, folder: Path) -> dict[str, Any]:
    """Put the bad rows aside; what was read must be what was used, collapsed and put aside."""
    _say(spark, f"checking the {log.name}")
    with reading_faults(log.source.path):
        written = _put_aside(log.name, log.quarantined, folder, counts)
        check_sum(log.name, rows_at_source(log), counts, written)
    if counts.read == 0:
        raise InputError(f"the {log.name} have no rows", path=log.source.path)
    return _counts_told(log, counts)


def _counts_told(log: Log, counts: Counts) -> dict[str, Any]:
    return {
        "source": log.source.path,
        "read": counts.read,
        "used": counts.used,
        "duplicates": counts.duplicates,
        "quarantined": counts.quarantined,
        "reasons": dict(counts.reasons),
    }


def _put_aside(log: str, bad: DataFrame, folder: Path, counts: Counts) -> int:
    """Write a log's bad rows to the quarantine, if there are any; how many it then has."""
    if not counts.quarantined:
        return 0
    path = folder / "quarantine" / f"log={log}"
    _sorted_parts(bad.drop("log"), counts.quarantined, "raw", "file", "reason").parquet(str(path))
    return bad.sparkSession.read.parquet(str(path)).count()


def _window(job: Job, digest: DataFrame) -> tuple[datetime, datetime]:
    found = published_window(digest)
    since, until = job.window.since, job.window.until
    if found is None:
        if since is None or until is None:
            raise InputError(
                "no message can be used, so there is no window to take rates over",
                path=job.publications,
                remedy="mend the log, or name the window with --since and --until",
            )
        return since, until
    return since or found[0], until or found[1]


def _window_told(start: datetime, end: datetime) -> dict[str, Any]:
    return {
        "since": start.astimezone(UTC).isoformat(),
        "until": end.astimezone(UTC).isoformat(),
        "seconds": (end - start).total_seconds(),
    }


def _latest(state: DataFrame) -> datetime | None:
    micros = state.agg(F.unix_micros(F.max("ts"))).collect()[0][0]
    return None if micros is None else datetime.fromtimestamp(micros / 1e6, UTC)


def _written_interest(interest: DataFrame, folder: Path, told: dict[str, Any]) -> DataFrame:
    interest = _write_parts(interest, folder / "interest", "receiver", "flow")
    pairs, receivers, flows = interest.agg(
        F.count(F.lit(1)), F.count_distinct("receiver"), F.count_distinct("flow")
    ).collect()[0]
    if pairs == 0:
        raise InputError(
            "nobody wants anything: there is nothing to plan",
            remedy="look into the quarantine counts, or at the window",
        )
    told["interest"] = {"pairs": pairs, "receivers": receivers, "flows": flows}
    return interest


def _written_rates(rates: DataFrame, folder: Path) -> DataFrame:
    """Rates as every reader takes them: unknown sizes are the mean, unknown peaks the rate."""
    mean, sized, peaked = rates.agg(
        F.avg("size"), F.min(F.coalesce("size", F.lit(1.0))), F.count("peak")
    ).collect()[0]
    columns = ["flow", "rate"]
    if mean and sized > 0:
        rates = rates.fillna({"size": float(f"{mean:.9g}")})
        columns.append("size")
    if peaked:
        rates = rates.withColumn("peak", F.greatest(F.coalesce("peak", "rate"), F.col("rate")))
        columns.append("peak")
    return _write_parts(rates.select(*columns), folder / "rates", "flow")


# --- the plan ------------------------------------------------------------------------------------


def _planned(
    spark: SparkSession,
    job: Job,
    inputs: _Inputs,
    folder: Path,
    previous: Path | None,
    progress: Progress,
) -> Outcome:
    told = inputs.told
    facts = told["interest"]
    sizes = facts["receivers"], job.request.sessions or job.request.groups, job.request.groups
    need = driver_need(facts["pairs"], *sizes)
    on_driver = need <= job.driver_limit
    _say(spark, "planning")
    demand = evaluation = None
    if on_driver:
        demand, found, evaluation, document = _on_driver(spark, job, folder, previous, progress)
    else:
        found, document = _on_executors(job, inputs, folder, progress)
    where = {"where": "driver" if on_driver else "executors", "driver_need": need}

    before = None if previous is None else stored_plan_tables(spark, previous)
    after = plan_tables(spark, found)
    replays, minutes, receivers = _replayed(spark, inputs, after, before, folder)
    _check_replay(replays["plan"], folder)
    _say(spark, "writing tables of the plan")
    rows = len(found.subscription_receiver)
    table = receiver_table(after, inputs.interest, inputs.rates)
    write_receiver_table(table, folder / "receivers", bucket_count(rows))
    write_group_table(group_table(after, inputs.interest, inputs.rates), folder / "groups")
    manifest = {
        "format": FORMAT_VERSION,
        "distributary": __version__,
        **told,
        "plan": {**document, **where},
        "replay": replays,
        "diff": None if before is None else _diffed(spark, before, after, folder),
    }
    return Outcome(manifest, found, demand, evaluation, minutes, receivers)


def _on_driver(
    spark: SparkSession, job: Job, folder: Path, previous: Path | None, progress: Progress
) -> tuple[Demand, Plan, Evaluation, dict[str, Any]]:
    inputs = read_demand(folder / "interest", folder / "rates", on_peak=job.peak_window is not None)
    # A repeated run must give the same bytes, so the clock has no say here.
    request, demand = replace(job.request, patience=math.inf), inputs.demand
    if job.max_moves is not None and previous is not None:
        request = replace(request, previous=read_previous(previous), max_moves=job.max_moves)
    solution = None
    if request.previous is not None and previous is not None:
        solution = _unchanged(job, previous, inputs.fingerprints, demand)
    if solution is None and job.restarts > 1:
        solution, seed = plan_with_restarts(spark, demand, request, job.restarts)
        request = replace(request, seed=seed)
    if solution is None:
        solution = plan(demand, request, progress)
    evaluation = evaluate(solution.plan, demand, request.prices)
    document = plan_document(request, inputs.fingerprints, evaluation, solution)
    write_plan(solution.plan, document, folder / "plan")
    shown = {**evaluation_document(evaluation), "algorithm": document["algorithm"]}
    return demand, solution.plan, evaluation, {**shown, "seed": request.seed}


def _unchanged(
    job: Job, previous: Path, fingerprints: Mapping[str, str], demand: Demand
) -> Solution | None:
    """The plan that is there, if it was made with limited moves from these very inputs.

    A repeated run must change nothing, where another round of moves would.
    """
    document = json.loads((previous / "plan.json").read_text())
    same = document.get("inputs") == dict(fingerprints)
    if not (same and document.get("parameters", {}).get("max_moves") == job.max_moves):
        return None
    return Solution(read_plan(previous, demand.interest).plan)


def _on_executors(
    job: Job, inputs: _Inputs, folder: Path, progress: Progress
) -> tuple[Plan, dict[str, Any]]:
    if job.request.solver.name != "best" or job.max_moves is not None or job.restarts > 1:
        raise InputError(
            "this interest is too large for the driver, and only `best`, planned anew and once, "
            "runs on executors",
            remedy="allow the driver more with --driver-limit, or leave those options out",
        )
    made = plan_on_executors(
        inputs.interest, inputs.rates, job.request, _work_folder(job.out), progress
    )
    costs = _costs_document(made.costs, made.plan, job.request)
    metadata = {
        "distributary": __version__,
        "algorithm": "best",
        "seed": job.request.seed,
        "parameters": {
            "groups": job.request.groups,
            "sessions": job.request.sessions,
            "alpha": job.request.prices.alpha,
            "beta": job.request.prices.beta,
        },
        "costs": costs,
    }
    write_plan(made.plan, metadata, folder / "plan")
    told = {**costs, "algorithm": "best", "seed": job.request.seed}
    return made.plan, {**told, "rounds": len(made.rounds) - 1}


def _costs_document(costs: Costs, plan: Plan, request: Request) -> dict[str, Any]:
    """The keys of `evaluation_document` that need no pairs."""
    alpha, beta = request.prices.alpha, request.prices.beta
    work = alpha * costs.received + beta * costs.accepted
    wanted = (alpha + beta) * costs.wanted
    flooding_excess = (alpha + beta) * (costs.receivers * costs.sent - costs.wanted)
    return {
        "valid": True,  # told by the replay: everything wanted is served, or the run fails
        "receivers": len(plan.receivers),
        "flows": len(plan.flows),
        "sessions": plan.n_sessions,
        "groups": plan.n_groups,
        "filtering": {
            "session_cost": alpha * costs.received,
            "flow_cost": beta * costs.accepted,
            "work": work,
            "wanted_work": wanted,
            "excess": work - wanted,
            "flooding_excess": flooding_excess,
            "relative_excess": (work - wanted) / flooding_excess if flooding_excess else 0.0,
        },
        "channel": {
            "cost": costs.received + costs.sent,
            "received": costs.received,
            "sent": costs.sent,
            "lower_bound": costs.wanted + costs.sent,
            "flooding": costs.sent * (1 + costs.receivers),
        },
    }


# --- proof and tables ----------------------------------------------------------------------------


def _replayed(
    spark: SparkSession,
    inputs: _Inputs,
    after: PlanTables,
    before: PlanTables | None,
    folder: Path,
) -> tuple[dict[str, Any], Any, Any]:
    """The log run through the plan, and through what it is compared with."""
    _say(spark, "replaying the log")
    log = _staged(activity(inputs.used), folder / ".work" / "activity")
    ours = replay(log, after, inputs.interest, DataFrame.persist)
    minutes = ours.minutes.toArrow().sort_by("minute")
    receivers = ours.receivers.toArrow().sort_by("receiver")
    _write_arrow(minutes, folder / "replay" / "minutes.parquet")
    _write_arrow(receivers, folder / "replay" / "receivers.parquet")
    totals: dict[str, Any] = {"plan": _totals(minutes)}
    totals |= references(ours, inputs.told["interest"]["receivers"])
    if before is not None:
        _say(spark, "replaying the log through the previous plan")
        totals["previous"] = replay(log, before, inputs.interest).totals()
    return totals, minutes, receivers


def _totals(minutes: Any) -> dict[str, Any]:
    return {
        name: sum(value or 0 for value in minutes[name].to_pylist())
        for name in minutes.column_names
        if name != "minute"
    }


def _check_replay(totals: Mapping[str, Any], folder: Path) -> None:
    """Nobody misses anything in the log that the plan was made from."""
    if totals["unserved"]:
        missed = f"{totals['unserved']:,} wanted messages of the log reach nobody"
        raise PlanError((missed,), path=str(folder / "plan"))


def _diffed(
    spark: SparkSession, before: PlanTables, after: PlanTables, folder: Path
) -> dict[str, int]:
    """What changes, as tables; they are no larger than the two plans, which the driver holds."""
    _say(spark, "comparing with the previous plan")
    diff = plan_diff(before, after)
    counts: dict[str, int] = {}
    to_do: set[str] = set()
    for name, kinds in DIFF_KINDS.items():
        table = getattr(diff, name).toArrow()
        table = table.sort_by([(column, "ascending") for column in table.column_names])
        _write_arrow(table, folder / "diff" / f"{name}.parquet")
        happened = Counter(table[table.column_names[-1]].to_pylist())
        counts |= {kind: happened[kind] for kind in kinds}
        if name in ("subscriptions", "unicast"):
            to_do |= set(table["receiver"].to_pylist())
    return {**counts, "receivers": len(to_do)}


# --- files ---------------------------------------------------------------------------------------


def _say(spark: SparkSession, step: str) -> None:
    spark.sparkContext.setJobDescription(step)


def _staged(frame: DataFrame, path: Path) -> DataFrame:
    """The frame as a Parquet folder for this run: made once, whoever reads it how often."""
    frame.write.parquet(str(path))
    return frame.sparkSession.read.parquet(str(path))


def _write_parts(frame: DataFrame, path: Path, key: str, *more: str) -> DataFrame:
    """Write a table sorted, in files that depend on its rows alone and not on the partitioning."""
    spark = frame.sparkSession
    staged = path.parent / ".work" / f"unsorted-{path.parent.name}-{path.name}"
    rows = _staged(frame, staged)
    _sorted_parts(rows, rows.count(), key, *more).parquet(str(path))
    shutil.rmtree(staged)
    return spark.read.parquet(str(path))


def _sorted_parts(frame: DataFrame, rows: int, key: str, *more: str) -> DataFrameWriter:
    parts = max(1, -(-rows // _ROWS_PER_FILE))
    name = F.coalesce(F.col(key), F.lit("")).cast("binary")
    part = F.pmod(F.crc32(name), F.lit(parts)).cast("int")
    ordered = frame.repartitionById(parts, part).sortWithinPartitions(key, *more)
    return ordered.write


def _write_arrow(table: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_batches(table.to_batches(), table.schema), path)


def _tidy(folder: Path) -> None:
    """Leave what is for readers: Spark's marks go, and part files get plain names."""
    shutil.rmtree(folder / ".work", ignore_errors=True)
    for file in folder.rglob("*"):
        if file.name.endswith(".crc") or file.name == "_SUCCESS":
            file.unlink()
    for parent in {file.parent for file in folder.rglob("part-*")}:
        for number, file in enumerate(sorted(parent.glob("part-*"))):
            file.rename(parent / f"part-{number:05d}.parquet")


def _write_json(path: Path, document: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
