"""`distributary pipeline`: plan from logs, replay logs and propose topics, on Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any

import typer

from distributary import planning
from distributary.cli.console import notes, print_json, results
from distributary.cli.inspection import pipeline_inspect
from distributary.cli.log_shapes import ShapeOptions
from distributary.cli.option_groups import takes_groups
from distributary.cli.options import (
    INPUT,
    LIMITS,
    OUTPUT,
    SEARCH,
    SPARK,
    Json,
    Moment,
    OutFolder,
    ProgressFile,
    Publications,
    SparkOptions,
    duration_option,
    moment_option,
    option,
    reject_bad_values,
    share_option,
)
from distributary.cli.planner_options import AlgorithmName, PlannerOptions
from distributary.cli.quantities import ByteCount, Seconds, Share
from distributary.cli.report import CURVE_GROUPS
from distributary.cli.stages import Shown, View, call_on_spark, print_address
from distributary.cli.stream import pipeline_stream
from distributary.cli.summary import cost_table, headline, saving_lines
from distributary.cli.topic_proposals import pipeline_topics
from distributary.extras import require
from distributary.model import Unit
from distributary.planning import compare_algorithms, cost_curve
from distributary.report import Report, render_report, render_run
from distributary.report.wording import stored_headline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from distributary.pipeline.job import Job, Outcome
    from distributary.pipeline.steps import StepWatch

__all__ = ["app", "print_run", "run_job"]

PLAN_PAGE = "plan.html"

OutTable = Annotated[
    str | None,
    option(
        "Also write tables of Spark's catalog: DB.NAME_interest, DB.NAME_rates and so on.",
        OUTPUT,
        metavar="DB.NAME",
    ),
]

app = typer.Typer(
    no_args_is_help=True, help="Plan from logs, replay logs and propose topics, on Spark."
)
app.command("inspect")(pipeline_inspect)
app.command("stream")(pipeline_stream)
app.command("topics")(pipeline_topics)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions(ShapeOptions):
    """The logs to plan from, and how they are read."""

    publications: Publications
    subscriptions: Annotated[
        str | None,
        option("Subscription log: a file, a folder, or a table in Spark's catalogue.", INPUT),
    ] = None
    filters: Annotated[
        str | None,
        option(
            "Table of SQL filters, with columns receiver, filter, instead of --subscriptions.",
            INPUT,
        ),
    ] = None
    since: Annotated[Moment, moment_option("Quarantine publications before this moment.")] = None
    until: Annotated[Moment, moment_option("Quarantine rows at or after this moment.")] = None
    rate_half_life: Annotated[
        Seconds | None,
        duration_option("Time after which a message counts half towards its flow's rate.", INPUT),
    ] = None
    presence_half_life: Annotated[
        Seconds | None,
        duration_option(
            "Forget receivers not seen for 3.3 times this (presence below 10%).", INPUT
        ),
    ] = None
    floor: Annotated[
        float | None,
        option(
            "Messages/s for wanted flows without a message in the log.",
            INPUT,
            show_default="one message per window",
        ),
    ] = None
    plan_on_peak: Annotated[
        Seconds | None,
        duration_option("Plan on each flow's busiest period of this length, such as 1m.", INPUT),
    ] = None
    count: Annotated[
        Unit,
        option("What rates, costs and caps count: messages, or bytes by their mean size.", INPUT),
    ] = "messages"
    max_flows: Annotated[
        int, option("With --filters: maximum number of flows to make of them.", INPUT, min=1)
    ] = 1_000
    max_bad: Annotated[
        Share,
        share_option("Fail if more than this share of a log cannot be used, such as 1%.", INPUT),
    ] = Share("100%")


@dataclass(frozen=True, kw_only=True)
class RunPlanner(PlannerOptions):
    """How the plan is made, and from which."""

    algorithm: AlgorithmName = planning.DEFAULT_ALGORITHM
    previous: Annotated[
        str | None,
        option(
            "Plan folder to compare with, and with --max-moves to start from.",
            SEARCH,
            "--from",
            show_default="the plan in --out",
            metavar="PATH|URI",
        ),
    ] = None
    max_moves: Annotated[
        int | None,
        option(
            "Start from the plan of --from, and move at most this many flows.",
            LIMITS,
            min=0,
            show_default="plan anew",
        ),
    ] = None
    restarts: Annotated[
        int,
        option(
            "Number of seeds to plan with in parallel on executors; the best plan is kept.",
            SEARCH,
            min=1,
        ),
    ] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpark(SparkOptions):
    """Where Spark runs, and what the driver does itself."""

    driver_limit: Annotated[
        ByteCount,
        option(
            "Memory to plan with on the driver; larger jobs plan on executors.",
            SPARK,
            parser=ByteCount,
            metavar="SIZE",
        ),
    ] = ByteCount("4GiB")
    shared: Annotated[
        Path | None,
        option(
            "Folder that all machines have mounted, for planning on executors.",
            SPARK,
            show_default="the folder that --out is in",
        ),
    ] = None


@app.command("run")
@takes_groups
def pipeline_run(
    logs: LogOptions,
    planner: RunPlanner,
    out: OutFolder,
    spark: RunSpark,
    out_table: OutTable = None,
    as_document: Json = False,
    events: ProgressFile = None,
) -> None:
    """Make a plan from logs, and replay the logs through it.

    The output folder appears complete or not at all: plan, interest, rates, quarantine, replay and
    an HTML report.
    """
    from distributary.pipeline.ingest import TimeWindow
    from distributary.pipeline.job import Job

    with reject_bad_values():
        job = Job(
            out=out,
            publications=logs.publications,
            subscriptions=logs.subscriptions,
            filters=logs.filters,
            request=planner.read_request(logs.count, algorithm=planner.algorithm),
            shapes=logs.read_shapes(),
            window=TimeWindow(since=logs.since, until=logs.until),
            rate_half_life=_to_timedelta(logs.rate_half_life),
            presence_half_life=_to_timedelta(logs.presence_half_life),
            floor=logs.floor,
            peak_window=_to_timedelta(logs.plan_on_peak),
            count=logs.count,
            max_flows=logs.max_flows,
            max_bad=float(logs.max_bad),
            previous=planner.previous,
            out_table=out_table,
            shared=spark.shared,
            max_moves=planner.max_moves,
            restarts=planner.restarts,
            driver_limit=int(spark.driver_limit),
        )
    outcome = run_job(job, spark, View(events))
    if as_document:
        print_json(_document(outcome.manifest))
        return
    print_run(outcome)
    _note_tables(out_table, outcome.manifest.get("run", ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedLog(ShapeOptions):
    """The log to replay, and which part of it."""

    publications: Publications
    since: Annotated[Moment, moment_option("Leave out publications before this moment.")] = None
    until: Annotated[Moment, moment_option("Leave out publications at or after this moment.")] = (
        None
    )


@app.command("replay")
@takes_groups
def pipeline_replay(
    plan: Annotated[str, typer.Argument(help="Plan folder.", metavar="PATH|URI")],
    log: ReplayedLog,
    spark: SparkOptions,
    interest: Annotated[
        str, option("Table of who wants which flow, with columns receiver, flow.", INPUT)
    ],
    out: Annotated[
        str | None,
        option("Folder for the tables per minute and per receiver.", OUTPUT, metavar="PATH|URI"),
    ] = None,
    out_table: OutTable = None,
    as_document: Json = False,
    events: ProgressFile = None,
) -> None:
    """Replay a publication log through a plan: what each receiver would have received."""
    from distributary.pipeline.ingest import TimeWindow
    from distributary.pipeline.run import replay_plan

    window, shape = TimeWindow(since=log.since, until=log.until), log.read_shapes().publications
    document = call_on_spark(
        spark,
        View(events),
        lambda running, _: replay_plan(
            running, plan, log.publications, interest, window, out, out_table, shape
        ),
    )
    if as_document:
        print_json(document)
        return
    _print_replay(document["replay"])
    _print_log_counts("publications", document["publications"])
    if out is not None:
        results.print(f"per minute and per receiver: {document['folder']}", markup=False)
    _note_tables(out_table, document.get("run", ""))


def run_job(job: Job, options: SparkOptions, view: View, *, compare: bool = False) -> Outcome:
    """Start Spark, run the job, show its progress and write its pages.

    With `compare` the plan's page also compares other algorithms, which takes longer.
    """
    from distributary.pipeline import run

    require("report")

    def finish(outcome: Outcome, folder: Path, watch: StepWatch) -> None:
        page = _render_plan_page(outcome, job, compare, watch.report)
        if page is not None:
            (folder / PLAN_PAGE).write_text(page, encoding="utf-8")
        title = f"The run into {_name_of(job.out)}"
        rest = outcome.minutes, outcome.receivers, title, PLAN_PAGE if page else None
        facts = {**outcome.manifest, "stages": watch.summarize().document()}
        page = render_run(facts, *rest)
        (folder / "report.html").write_text(page, encoding="utf-8")

    def work(spark: SparkSession, shown: Shown) -> Outcome:
        print_address(spark)
        watch = shown.watch
        return run(spark, job, lambda made, place: finish(made, place, watch), watch)

    return call_on_spark(options, view, work)


def _render_plan_page(
    outcome: Outcome, job: Job, compare: bool, progress: planning.Progress
) -> str | None:
    """Render the page about the plan; None if the plan was made on executors."""
    if outcome.demand is None or outcome.evaluation is None:
        return None
    page = Report(
        title=f"The plan in {_name_of(job.out)}",
        demand=outcome.demand,
        plan=outcome.plan,
        evaluation=outcome.evaluation,
        algorithm=job.request.solver.label,
        seed=outcome.manifest["plan"]["seed"],
        filtering_prices=job.request.prices,
        parameters={"interest and rates": "of the logs"},
    )
    if compare:
        page = replace(
            page,
            comparison=compare_algorithms(outcome.demand, job.request, progress),
            curve=cost_curve(outcome.demand, job.request, CURVE_GROUPS, progress),
        )
    return render_report(page)


def print_run(outcome: Outcome) -> None:
    """Print what the plan saves and costs, which rows were used, and the replay."""
    manifest = outcome.manifest
    if outcome.evaluation is not None:
        results.print(headline(outcome.evaluation))
    else:
        results.print(saving_lines(stored_headline(manifest["plan"])))
    for name in ("subscriptions", "filters", "publications"):
        if name in manifest:
            _print_log_counts(name, manifest[name])
    rates = manifest["rates"]
    if rates["silent"]:
        notes.print(
            f"{rates['silent']:,} wanted flows have no messages; they are planned at "
            f"{rates['floor']:.3g} messages/s"
        )
    if rates["unwanted"]:
        notes.print(
            f"{rates['unwanted']:,} flows with {rates['unwanted_messages']:,} messages are left "
            "out, since nobody wants them"
        )
    if outcome.evaluation is not None:
        results.print(cost_table(outcome.evaluation))
    else:
        excess = manifest["plan"]["filtering"]["relative_excess"]
        results.print(f"planned on executors: Cx/Cf {excess:.4f}")
    _print_replay(manifest["replay"])
    if manifest["diff"] is not None:
        diff = manifest["diff"]
        results.print(
            f"against the previous plan: {diff['moved']:,} flows move, {diff['new']:,} are new, "
            f"{diff['gone']:,} gone; {diff['join']:,} joins and {diff['leave']:,} leaves of groups"
        )
    out = outcome.folder
    results.print(f"plan: {out}/plan   report: {out}/report.html", markup=False)


def _note_tables(prefix: str | None, run: str) -> None:
    if prefix is not None:
        results.print(f"tables: {prefix}_*   run: {run}", markup=False)


def _name_of(out: Path | str) -> str:
    return PurePosixPath(out).name


def _print_log_counts(name: str, counts: Mapping[str, Any]) -> None:
    results.print(
        f"{name}: {counts['read']:,} rows = {counts['used']:,} used + {counts['duplicates']:,} "
        f"duplicates + {counts['quarantined']:,} quarantined"
    )
    for reason, number in counts["reasons"].items():
        results.print(f"  {number:,} x {reason}", markup=False)


def _print_replay(replays: Mapping[str, Mapping[str, Any]]) -> None:
    for name, totals in replays.items():
        share = totals["wanted"] / totals["received"] if totals["received"] else 1.0
        results.print(
            f"replay, {name}: {totals['received']:,} received, {totals['wanted']:,} wanted "
            f"({share:.1%}), {totals['dropped_by_session']:,} dropped by session, "
            f"{totals['dropped_by_flow']:,} by flow; {totals['sent']:,} sent"
        )


def _document(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON output: the counts of the logs, the keys of `plan --json`, and the replay."""
    rest = {key: value for key, value in manifest.items() if key not in ("plan", "replay")}
    replays = manifest["replay"]
    against = {name: totals for name, totals in replays.items() if name != "plan"}
    return {**rest, **manifest["plan"], "replay": {**replays["plan"], "against": against}}


def _to_timedelta(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)
