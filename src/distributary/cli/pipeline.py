"""`distributary pipeline`: plan from logs, replay logs and propose topics, on Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from distributary import planning
from distributary.cli.console import notes, print_json, results
from distributary.cli.options import (
    INPUT,
    LIMITS,
    OUTPUT,
    SEARCH,
    SPARK,
    AlgorithmName,
    Alpha,
    Beta,
    Budget,
    Conf,
    Groups,
    Json,
    Master,
    Moment,
    Seed,
    Sessions,
    duration_option,
    filtering_prices,
    moment_option,
    parse_settings,
    reject_bad_values,
    share_option,
)
from distributary.cli.quantities import ByteCount, Seconds, Share
from distributary.cli.report import CURVE_GROUPS
from distributary.cli.stream import pipeline_stream
from distributary.cli.summary import cost_table, headline, saving_lines
from distributary.extras import require
from distributary.planning import compare_algorithms, cost_curve
from distributary.report import Report, render_report, render_run
from distributary.report.wording import stored_headline

if TYPE_CHECKING:
    from distributary.pipeline.job import Job, Outcome

__all__ = ["app", "print_run", "run_job"]

PLAN_PAGE = "plan.html"

app = typer.Typer(
    no_args_is_help=True, help="Plan from logs, replay logs and propose topics, on Spark."
)
app.command("stream")(pipeline_stream)

Publications = Annotated[
    str,
    typer.Option(
        help="Publication log: a file, a folder, or a table in Spark's catalogue.",
        rich_help_panel=INPUT,
    ),
]


@app.command("run")
def pipeline_run(
    publications: Publications,
    groups: Groups,
    out: Annotated[Path, typer.Option(help="Folder to write or replace.", rich_help_panel=OUTPUT)],
    subscriptions: Annotated[
        str | None,
        typer.Option(
            help="Subscription log: a file, a folder, or a table in Spark's catalogue.",
            rich_help_panel=INPUT,
        ),
    ] = None,
    filters: Annotated[
        str | None,
        typer.Option(
            help="Table of SQL filters, with columns receiver, filter, instead of --subscriptions.",
            rich_help_panel=INPUT,
        ),
    ] = None,
    sessions: Sessions = None,
    algorithm: AlgorithmName = planning.DEFAULT_ALGORITHM,
    alpha: Alpha = 1.0,
    beta: Beta = 1.0,
    budget: Budget = Seconds("30s"),
    since: Annotated[Moment, moment_option("Quarantine publications before this moment.")] = None,
    until: Annotated[Moment, moment_option("Quarantine rows at or after this moment.")] = None,
    rate_half_life: Annotated[
        Seconds | None,
        duration_option("Time after which a message counts half towards its flow's rate.", INPUT),
    ] = None,
    presence_half_life: Annotated[
        Seconds | None,
        duration_option(
            "Forget receivers not seen for 3.3 times this (presence below 10%).", INPUT
        ),
    ] = None,
    floor: Annotated[
        float | None,
        typer.Option(
            help="Messages/s for wanted flows without a message in the log.",
            show_default="one message per window",
            rich_help_panel=INPUT,
        ),
    ] = None,
    plan_on_peak: Annotated[
        Seconds | None,
        duration_option("Plan on each flow's busiest period of this length, such as 1m.", INPUT),
    ] = None,
    max_flows: Annotated[
        int,
        typer.Option(
            min=1,
            help="With --filters: maximum number of flows to make of them.",
            rich_help_panel=INPUT,
        ),
    ] = 1_000,
    max_bad: Annotated[
        Share,
        share_option("Fail if more than this share of a log cannot be used, such as 1%.", INPUT),
    ] = Share("100%"),
    previous: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="Plan folder to compare with, and with --max-moves to start from.",
            show_default="the plan in --out",
            rich_help_panel=SEARCH,
        ),
    ] = None,
    max_moves: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Start from the plan of --from, and move at most this many flows.",
            show_default="plan anew",
            rich_help_panel=LIMITS,
        ),
    ] = None,
    restarts: Annotated[
        int,
        typer.Option(
            min=1,
            help="Number of seeds to plan with in parallel on executors; the best plan is kept.",
            rich_help_panel=SEARCH,
        ),
    ] = 1,
    driver_limit: Annotated[
        ByteCount,
        typer.Option(
            parser=ByteCount,
            metavar="SIZE",
            help="Memory to plan with on the driver; larger jobs plan on executors.",
            rich_help_panel=SPARK,
        ),
    ] = ByteCount("4GiB"),
    master: Master = None,
    conf: Conf = None,
    seed: Seed = 0,
    as_document: Json = False,
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
            publications=publications,
            subscriptions=subscriptions,
            filters=filters,
            request=planning.Request(
                groups=groups,
                sessions=sessions,
                algorithm=algorithm,
                prices=filtering_prices(alpha, beta),
                seed=seed,
                budget_s=float(budget),
            ),
            window=TimeWindow(since=since, until=until),
            rate_half_life=_to_timedelta(rate_half_life),
            presence_half_life=_to_timedelta(presence_half_life),
            floor=floor,
            peak_window=_to_timedelta(plan_on_peak),
            max_flows=max_flows,
            max_bad=float(max_bad),
            previous=previous,
            max_moves=max_moves,
            restarts=restarts,
            driver_limit=int(driver_limit),
        )
    outcome = run_job(job, master, conf)
    if as_document:
        print_json(_document(outcome.manifest))
        return
    print_run(outcome, out)


@app.command("replay")
def pipeline_replay(
    plan: Annotated[Path, typer.Argument(help="Plan folder.")],
    publications: Publications,
    interest: Annotated[
        str,
        typer.Option(
            help="Table of who wants which flow, with columns receiver, flow.",
            rich_help_panel=INPUT,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the tables per minute and per receiver.", rich_help_panel=OUTPUT
        ),
    ] = None,
    since: Annotated[Moment, moment_option("Leave out publications before this moment.")] = None,
    until: Annotated[
        Moment, moment_option("Leave out publications at or after this moment.")
    ] = None,
    master: Master = None,
    conf: Conf = None,
    as_document: Json = False,
) -> None:
    """Replay a publication log through a plan: what each receiver would have received."""
    from distributary.cli.stages import show_stages
    from distributary.pipeline.ingest import TimeWindow
    from distributary.pipeline.interruptible import call_interruptibly
    from distributary.pipeline.run import replay_plan
    from distributary.pipeline.spark import use_spark

    window = TimeWindow(since=since, until=until)

    def work() -> dict[str, Any]:
        with use_spark(master, parse_settings(conf)) as spark, show_stages(spark):
            return replay_plan(spark, plan, publications, interest, window, out)

    document = call_interruptibly(work)
    if as_document:
        print_json(document)
        return
    _print_replay(document["replay"])
    _print_log_counts("publications", document["publications"])
    if out is not None:
        results.print(f"per minute and per receiver: {out}", markup=False)


@app.command("topics")
def pipeline_topics(
    subscriptions: Annotated[
        str,
        typer.Option(
            help="Subscription log: a file, a folder, or a table in Spark's catalogue.",
            rich_help_panel=INPUT,
        ),
    ],
    publications: Publications,
    out: Annotated[Path, typer.Option(help="Folder to write or replace.", rich_help_panel=OUTPUT)],
    budget: Annotated[
        int,
        typer.Option(
            min=0,
            help="Maximum number of subscriptions that all proposals together change.",
            rich_help_panel=LIMITS,
        ),
    ] = 1_000,
    interval: Annotated[
        Seconds,
        duration_option(
            "How often a channel is maintained, such as 30m; costs are per interval.", SEARCH
        ),
    ] = Seconds("1h"),
    clusters: Annotated[
        Path | None,
        typer.Option(
            help="Table of today's clusters, with columns cluster, topic.", rich_help_panel=INPUT
        ),
    ] = None,
    members: Annotated[
        Path | None,
        typer.Option(
            help="Table of their members, with columns cluster, receiver.", rich_help_panel=INPUT
        ),
    ] = None,
    max_bad: Annotated[
        Share, share_option("Fail if more than this share of a log cannot be used.", INPUT)
    ] = Share("1%"),
    master: Master = None,
    conf: Conf = None,
    as_document: Json = False,
) -> None:
    """Propose clusters of topics that should share a channel, from logs."""
    from distributary.cli.stages import show_stages
    from distributary.pipeline.interruptible import call_interruptibly
    from distributary.pipeline.spark import use_spark
    from distributary.pipeline.topics import Clusters, TopicJob, propose

    if (clusters is None) != (members is None):
        raise typer.BadParameter("give both --clusters and --members, or neither")
    job = TopicJob(
        out,
        subscriptions,
        publications,
        budget,
        timedelta(seconds=interval),
        None if clusters is None or members is None else Clusters(clusters, members),
        max_bad=float(max_bad),
    )

    def work() -> dict[str, Any]:
        with use_spark(master, parse_settings(conf)) as spark, show_stages(spark):
            return propose(spark, job)

    document = call_interruptibly(work)
    if as_document:
        print_json(document)
        return
    cost = document["operating_cost"]
    results.print(
        f"{len(document['proposals']):,} clusters of {document['topics']:,} topics would save "
        f"{cost['saving']:,.0f} of {cost['now']:,.0f} messages per interval for "
        f"{document['moves']:,} changed subscriptions: {out}",
        markup=False,
    )


def run_job(
    job: Job, master: str | None = None, conf: list[str] | None = None, *, compare: bool = False
) -> Outcome:
    """Start Spark, run the job, show its progress and write its pages.

    With `compare` the plan's page also compares other algorithms, which takes longer.
    """
    from distributary.cli.stages import show_stages
    from distributary.pipeline import run, use_spark
    from distributary.pipeline.interruptible import call_interruptibly
    from distributary.pipeline.spark import ui_address

    require("report")

    def finish(outcome: Outcome, folder: Path, progress: planning.Progress) -> None:
        page = _render_plan_page(outcome, job, compare, progress)
        if page is not None:
            (folder / PLAN_PAGE).write_text(page, encoding="utf-8")
        title = f"The run into {job.out.name}"
        rest = outcome.minutes, outcome.receivers, title, PLAN_PAGE if page else None
        page = render_run(outcome.manifest, *rest)
        (folder / "report.html").write_text(page, encoding="utf-8")

    def work() -> Outcome:
        with use_spark(master, settings) as spark:
            address = ui_address(spark)
            if address and notes.is_terminal:
                notes.print(f"Spark's web interface is at {address}", markup=False)
            with show_stages(spark) as progress:
                return run(spark, job, lambda made, place: finish(made, place, progress), progress)

    settings = parse_settings(conf)
    return call_interruptibly(work)


def _render_plan_page(
    outcome: Outcome, job: Job, compare: bool, progress: planning.Progress
) -> str | None:
    """Render the page about the plan; None if the plan was made on executors."""
    if outcome.demand is None or outcome.evaluation is None:
        return None
    page = Report(
        title=f"The plan in {job.out.name}",
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


def print_run(outcome: Outcome, out: Path) -> None:
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
    results.print(f"plan: {out / 'plan'}   report: {out / 'report.html'}", markup=False)


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
