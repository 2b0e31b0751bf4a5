"""`distributary report`: a plan as one page to read, and held against other plans."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from distributary import cost, planning
from distributary.cli.console import results, show_progress
from distributary.cli.evaluate import PlansAlpha, PlansBeta, choose_prices
from distributary.cli.intake import read_inputs, tell_intake
from distributary.cli.options import OUTPUT, Floor, InterestFile, MaxBad, Quarantine, RatesFile
from distributary.cli.quantities import Share
from distributary.extras import require
from distributary.files import read_plan, replace_file
from distributary.planning import compare_algorithms, cost_curve
from distributary.report import Report, render_report

__all__ = ["CURVE_GROUPS", "report", "write_report"]

CURVE_GROUPS = (5, 10, 20, 50, 100, 200)


def report(
    plan: Annotated[Path, typer.Argument(help="A plan folder.")],
    interest: InterestFile,
    rates: RatesFile,
    out: Annotated[Path, typer.Option(help="The page to write.", rich_help_panel=OUTPUT)] = Path(
        "report.html"
    ),
    compare: Annotated[
        bool,
        typer.Option(
            help="Plan with the other algorithms and numbers of groups too (slower).",
            rich_help_panel=OUTPUT,
        ),
    ] = True,
    alpha: PlansAlpha = None,
    beta: PlansBeta = None,
    max_bad: MaxBad = Share("0%"),
    floor: Floor = None,
    quarantine: Quarantine = None,
) -> None:
    """Write a self-contained HTML page about a plan."""
    require("report")
    inputs = read_inputs(interest, rates, max_bad, floor, quarantine)
    stored = read_plan(plan, inputs.demand.interest)
    prices = choose_prices(stored, plan, alpha, beta)
    tell_intake(inputs)
    algorithm = str(stored.metadata.get("algorithm", "a plan from elsewhere"))
    seed = stored.metadata.get("seed")
    page = Report(
        title=f"The plan in {plan.name}",
        demand=inputs.demand,
        plan=stored.plan,
        evaluation=cost.evaluate(stored.plan, inputs.demand, prices),
        algorithm=algorithm,
        seed=seed if isinstance(seed, int) else None,
        filtering_prices=prices,
        parameters={"interest": str(interest), "rates": str(rates)},
    )
    if compare:
        page = _compared(page)
    write_report(page, out)
    tell_intake(inputs)
    results.print(f"the report is {out}", markup=False)


def write_report(page: Report, out: Path) -> None:
    """Render a report and write it whole or not at all."""
    with replace_file(out) as file:
        file.write(render_report(page).encode())


def _compared(page: Report) -> Report:
    known = page.algorithm in planning.ALGORITHMS
    request = planning.Request(
        groups=page.evaluation.groups,
        sessions=page.evaluation.sessions,
        algorithm=page.algorithm if known else planning.DEFAULT_ALGORITHM,
        prices=page.filtering_prices,
        seed=page.seed or 0,
    )
    with show_progress() as progress:
        return replace(
            page,
            comparison=compare_algorithms(page.demand, request, progress),
            curve=cost_curve(page.demand, request, CURVE_GROUPS, progress),
        )
