"""`distributary pipeline`: from logs to a plan, its replay and its drift, on Spark."""

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
from distributary.cli.summary import cost_table, headline
from distributary.extras import require
from distributary.planning import compare_algorithms, cost_curve
from distributary.report import Report, render_report, render_run

if TYPE_CHECKING:
    from distributary.pipeline.job import Job, Outcome

__all__ = ["app", "run_job", "tell_run"]

PLAN_PAGE = "plan.html"

app = typer.Typer(no_args_is_help=True, help="From logs to a plan and its replay, on Spark.")
app.command("stream")(pipeline_stream)

Publications = Annotated[
    str,
    typer.Option(
        help="The publication log: a file, a folder, or a table Spark knows.",
        rich_help_panel=INPUT,
    ),
]


@app.command("run")
def pipeline_run(
    publications: Publications,
    groups: Groups,
    out: Annotated[
        Path, typer.Option(help="The folder to write, or to replace.", rich_help_panel=OUTPUT)
    ],
    subscriptions: Annotated[
        str | None,
        typer.Option(
            help="The subscription log: a file, a folder, or a table.", rich_help_panel=INPUT
        ),
    ] = None,
    filters: Annotated[
        str | None,
        typer.Option(
            help="Instead of subscriptions: receivers and SQL conditions on messages.",
            rich_help_panel=INPUT,
        ),
    ] = None,
    sessions: Sessions = None,
    algorithm: AlgorithmName = planning.DEFAULT_ALGORITHM,
    alpha: Alpha = 1.0,
    beta: Beta = 1.0,
    budget: Budget = Seconds("30s"),
    since: Annotated[Moment, moment_option("Put publications before this moment aside.")] = None,
    until: Annotated[Moment, moment_option("Put rows of this moment and later aside.")] = None,
    rate_half_life: Annotated[
        Seconds | None,
        duration_option("Let messages count half as much after each of these.", INPUT),
    ] = None,
    presence_half_life: Annotated[
        Seconds | None,
        duration_option("Forget receivers not seen for 3.3 of these (presence below 10%).", INPUT),
    ] = None,
    floor: Annotated[
        float | None,
        typer.Option(
            help="Messages/s of flows that are wanted but silent; one per window.",
            rich_help_panel=INPUT,
        ),
    ] = None,
    plan_on_peak: Annotated[
        Seconds | None,
        duration_option("Plan on the busiest stretch of this length, such as 1m.", INPUT),
    ] = None,
    max_flows: Annotated[
        int,
        typer.Option(
            min=1, help="With --filters: the most flows to make of them.", rich_help_panel=INPUT
        ),
    ] = 1_000,
    max_bad: Annotated[
        Share, share_option("Fail if a larger share of a log cannot be used, such as 1%.", INPUT)
    ] = Share("100%"),
    previous: Annotated[
        Path | None,
        typer.Option(
            "--from", help="The plan to compare with; else the one in OUT.", rich_help_panel=SEARCH
        ),
    ] = None,
    max_moves: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Start from that plan and move at most so many flows.",
            rich_help_panel=LIMITS,
        ),
    ] = None,
    restarts: Annotated[
        int,
        typer.Option(
            min=1,
            help="Seeds to try side by side on executors; the best is kept.",
            rich_help_panel=SEARCH,
        ),
    ] = 1,
    driver_limit: Annotated[
        ByteCount,
        typer.Option(
            parser=ByteCount,
            metavar="SIZE",
            help="Memory up to which the driver plans; beyond it executors do.",
            rich_help_panel=SPARK,
        ),
    ] = ByteCount("4GiB"),
    master: Master = None,
    conf: Conf = None,
    seed: Seed = 0,
    as_document: Json = False,
) -> None:
    """Read the logs, plan, replay the log through the plan, and publish all of it at once."""
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
            rate_half_life=_duration(rate_half_life),
            presence_half_life=_duration(presence_half_life),
            floor=floor,
            peak_window=_duration(plan_on_peak),
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
    tell_run(outcome, out)


@app.command("replay")
def pipeline_replay(
    plan: Annotated[Path, typer.Argument(help="A plan folder.")],
    publications: Publications,
    interest: Annotated[
        str, typer.Option(help="Who wants what: receiver, flow.", rich_help_panel=INPUT)
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="A folder for the tables per minute and per receiver.", rich_help_panel=OUTPUT
        ),
    ] = None,
    since: Annotated[Moment, moment_option("Leave out what is before this moment.")] = None,
    until: Annotated[Moment, moment_option("Leave out this moment and later.")] = None,
    master: Master = None,
    conf: Conf = None,
    as_document: Json = False,
) -> None:
    """Run a publication log through a plan: what each receiver would have got, and why."""
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
    _tell_replay(document["replay"])
    _tell_log("publications", document["publications"])
    if out is not None:
        results.print(f"per minute and per receiver: {out}", markup=False)


@app.command("topics")
def pipeline_topics(
    subscriptions: Annotated[
        str,
        typer.Option(
            help="The subscription log: a file, a folder, or a table.", rich_help_panel=INPUT
        ),
    ],
    publications: Publications,
    out: Annotated[
        Path, typer.Option(help="The folder to write, or to replace.", rich_help_panel=OUTPUT)
    ],
    budget: Annotated[
        int,
        typer.Option(
            min=0,
            help="How many subscriptions may change for all proposals.",
            rich_help_panel=LIMITS,
        ),
    ] = 1_000,
    interval: Annotated[
        Seconds,
        duration_option("How often a channel is maintained, such as 30m or 1h.", SEARCH),
    ] = Seconds("1h"),
    clusters: Annotated[
        Path | None,
        typer.Option(help="The clusters there are: cluster, topic.", rich_help_panel=INPUT),
    ] = None,
    members: Annotated[
        Path | None, typer.Option(help="Who is on them: cluster, receiver.", rich_help_panel=INPUT)
    ] = None,
    max_bad: Annotated[
        Share, share_option("Fail if a larger share of a log cannot be used.", INPUT)
    ] = Share("1%"),
    master: Master = None,
    conf: Conf = None,
    as_document: Json = False,
) -> None:
    """Propose clusters of topics from logs: few changes that save much."""
    from distributary.cli.stages import show_stages
    from distributary.pipeline.interruptible import call_interruptibly
    from distributary.pipeline.spark import use_spark
    from distributary.pipeline.topics import Clusters, TopicJob, propose

    if (clusters is None) != (members is None):
        raise typer.BadParameter("--clusters and --members belong together: give both or none")
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
        f"{cost['saving']:,.0f} of {cost['now']:,.0f} messages an interval for "
        f"{document['moves']:,} changed subscriptions: {out}",
        markup=False,
    )


def run_job(
    job: Job, master: str | None = None, conf: list[str] | None = None, *, compare: bool = False
) -> Outcome:
    """Start Spark, run the job with its progress shown, write its pages.

    With `compare` the plan's page also holds it against other algorithms, which takes longer.
    """
    from distributary.cli.stages import show_stages
    from distributary.pipeline import run, use_spark
    from distributary.pipeline.interruptible import call_interruptibly
    from distributary.pipeline.spark import ui_address

    require("report")

    def finish(outcome: Outcome, folder: Path, progress: planning.Progress) -> None:
        page = _plan_page(outcome, job, compare, progress)
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
                notes.print(f"Spark shows its work at {address}", markup=False)
            with show_stages(spark) as progress:
                return run(spark, job, lambda made, place: finish(made, place, progress), progress)

    settings = parse_settings(conf)
    return call_interruptibly(work)


def _plan_page(
    outcome: Outcome, job: Job, compare: bool, progress: planning.Progress
) -> str | None:
    """The page about the plan alone, where the driver had all of it."""
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


def tell_run(outcome: Outcome, out: Path) -> None:
    """Say what became of the rows, what the plan costs and what the replay showed."""
    manifest = outcome.manifest
    for name in ("subscriptions", "filters", "publications"):
        if name in manifest:
            _tell_log(name, manifest[name])
    rates = manifest["rates"]
    if rates["silent"]:
        notes.print(f"{rates['silent']:,} wanted flows were silent: {rates['floor']:.3g} msg/s")
    if rates["unwanted"]:
        notes.print(
            f"{rates['unwanted']:,} flows with {rates['unwanted_messages']:,} messages are wanted "
            "by nobody and left out"
        )
    if outcome.evaluation is not None:
        results.print(headline(outcome.evaluation))
        results.print(cost_table(outcome.evaluation))
    else:
        excess = manifest["plan"]["filtering"]["relative_excess"]
        results.print(f"planned on executors: Cx/Cf {excess:.4f}")
    _tell_replay(manifest["replay"])
    if manifest["diff"] is not None:
        diff = manifest["diff"]
        results.print(
            f"against the previous plan: {diff['moved']:,} flows move, {diff['new']:,} are new, "
            f"{diff['gone']:,} gone; {diff['join']:,} joins and {diff['leave']:,} leaves of groups"
        )
    results.print(f"plan: {out / 'plan'}   report: {out / 'report.html'}", markup=False)


def _tell_log(name: str, told: Mapping[str, Any]) -> None:
    results.print(
        f"{name}: {told['read']:,} rows = {told['used']:,} used + {told['duplicates']:,} "
        f"duplicates + {told['quarantined']:,} quarantined"
    )
    for reason, number in told["reasons"].items():
        results.print(f"  {number:,} x {reason}", markup=False)


def _tell_replay(replays: Mapping[str, Mapping[str, Any]]) -> None:
    for name, totals in replays.items():
        share = totals["wanted"] / totals["received"] if totals["received"] else 1.0
        results.print(
            f"replay, {name}: {totals['received']:,} received, {totals['wanted']:,} wanted "
            f"({share:.1%}), {totals['dropped_by_session']:,} dropped by session, "
            f"{totals['dropped_by_flow']:,} by flow; {totals['sent']:,} sent"
        )


def _document(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """What other programs read: the logs' counts, what `plan --json` has, and the replay."""
    rest = {key: value for key, value in manifest.items() if key not in ("plan", "replay")}
    replays = manifest["replay"]
    against = {name: totals for name, totals in replays.items() if name != "plan"}
    return {**rest, **manifest["plan"], "replay": {**replays["plan"], "against": against}}


def _duration(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)
