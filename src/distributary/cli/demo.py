"""`distributary demo`: the whole job once, on a generated day of a trading floor."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from distributary import planning
from distributary.cli.console import results
from distributary.cli.generate import Messages, Receivers, workload_option, write_day
from distributary.cli.options import LIMITS, OUTPUT, Format, Groups, Seed, reject_bad_values
from distributary.cli.pipeline import run_job, tell_run
from distributary.workloads import DayParams, TradingFloor

__all__ = ["demo"]

BAD_ROWS = 0.0005  # so that there is something to put aside


def demo(
    out: Annotated[
        Path, typer.Option(help="The folder for everything it writes.", rich_help_panel=OUTPUT)
    ] = Path("demo"),
    symbols: Annotated[
        int, workload_option("The number of symbols; each is a flow.", 100)
    ] = 20_000,
    receivers: Receivers = 500,
    messages: Messages = 1_000_000,
    groups: Groups = 50,
    sessions: Annotated[
        int,
        typer.Option(
            min=1, help="The most sessions that the plan may use.", rich_help_panel=LIMITS
        ),
    ] = 500,
    seed: Seed = 0,
) -> None:
    """Generate a day of a trading floor's logs, plan from them on Spark, replay them, report."""
    from distributary.pipeline import Job

    with reject_bad_values():
        floor = TradingFloor(symbols=symbols, receivers=receivers)
        request = planning.Request(groups=groups, sessions=sessions, seed=seed, budget_s=10)
        day = DayParams(messages=messages)
    subscriptions, publications = write_day(
        floor, day, BAD_ROWS, seed, out / "logs", Format.PARQUET
    )
    job = Job(
        out=out / "run",
        subscriptions=str(subscriptions),
        publications=str(publications),
        request=request,
    )
    outcome = run_job(job, compare=True)
    for page in ("report.html", "plan.html"):
        shutil.copy(job.out / page, out / page)
    tell_run(outcome, job.out)
    excess = outcome.manifest["plan"]["filtering"]["relative_excess"]
    results.print(f"report: {out / 'report.html'}", markup=False)
    results.print(f"saved:  {1 - excess:.1%} of flooding's waste")
    results.print(
        f"next:   {sys.argv[0]} pipeline run --subscriptions {subscriptions} --publications "
        f"{publications} --groups {groups} --sessions {2 * sessions} --out {job.out}",
        markup=False,
    )
