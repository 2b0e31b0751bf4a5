"""`distributary demo`: the whole job once, on a generated day of trading-floor logs."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from distributary import planning
from distributary.cli.console import results
from distributary.cli.generate import Messages, Receivers, workload_option, write_day
from distributary.cli.option_groups import takes_groups
from distributary.cli.options import (
    LIMITS,
    OUTPUT,
    OutputFormat,
    Seed,
    SparkOptions,
    option,
    reject_bad_values,
)
from distributary.cli.pipeline import print_run, run_job
from distributary.cli.planner_options import Groups
from distributary.cli.stages import View
from distributary.workloads import DayParams, TradingFloor

__all__ = ["demo"]

BAD_ROWS = 0.0005  # so that the quarantine is not empty


@dataclass(frozen=True, slots=True, kw_only=True)
class FloorSize:
    """The size of the generated day."""

    symbols: Annotated[int, workload_option("Number of symbols; each is a flow.", 100)] = 20_000
    receivers: Receivers = 500
    messages: Messages = 1_000_000


@takes_groups
def demo(
    size: FloorSize,
    out: Annotated[Path, option("Folder for all output.", OUTPUT)] = Path("demo"),
    groups: Groups = 50,
    sessions: Annotated[
        int, option("Maximum number of sessions in the plan.", LIMITS, min=1)
    ] = 500,
    seed: Seed = 0,
) -> None:
    """Generate a day of trading-floor logs, plan from them on Spark, replay them and report."""
    from distributary.pipeline import Job

    with reject_bad_values():
        floor = TradingFloor(symbols=size.symbols, receivers=size.receivers)
        request = planning.Request(groups=groups, sessions=sessions, seed=seed, budget_s=10)
        day = DayParams(messages=size.messages)
    subscriptions, publications = write_day(
        floor, day, BAD_ROWS, seed, out / "logs", OutputFormat.PARQUET
    )
    run_folder = out / "run"
    job = Job(
        out=run_folder,
        subscriptions=str(subscriptions),
        publications=str(publications),
        request=request,
    )
    outcome = run_job(job, SparkOptions(), View(), compare=True)
    for page in ("report.html", "plan.html"):
        shutil.copy(run_folder / page, out / page)
    print_run(outcome)
    results.print(f"report: {out / 'report.html'}", markup=False)
    results.print(
        f"next:   {sys.argv[0]} pipeline run --subscriptions {subscriptions} --publications "
        f"{publications} --groups {groups} --sessions {2 * sessions} --out {run_folder}",
        markup=False,
    )
