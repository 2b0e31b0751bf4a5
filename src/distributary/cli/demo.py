"""`distributary demo`: the whole job once, on a generated trading floor."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from distributary import cost, planning
from distributary.cli.console import notes, results, shown_progress
from distributary.cli.generate import write_workload
from distributary.cli.options import Format, Seed
from distributary.cli.report import CURVE_GROUPS, write_report
from distributary.cli.summary import cost_table, headline
from distributary.files import plan_document, read_demand, write_plan
from distributary.report import Report, compare_algorithms, cost_curve
from distributary.workloads import TradingFloor, trading_floor

__all__ = ["demo"]


def demo(
    out: Annotated[Path, typer.Option(help="The folder for everything it writes.")] = Path("demo"),
    symbols: Annotated[int, typer.Option(min=100)] = 20_000,
    receivers: Annotated[int, typer.Option(min=1)] = 500,
    groups: Annotated[int, typer.Option(min=1)] = 50,
    sessions: Annotated[int, typer.Option(min=1)] = 500,
    seed: Seed = 0,
) -> None:
    """Generate a trading floor, plan it, compare the plan with the papers' and write a report."""
    try:
        floor = TradingFloor(symbols=symbols, receivers=receivers)
        request = planning.Request(groups=groups, sessions=sessions, seed=seed, budget_s=10)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    workload = trading_floor(floor, np.random.default_rng(seed))
    interest_path, rates_path = write_workload(*workload, out, Format.PARQUET)

    inputs = read_demand(interest_path, rates_path)
    demand = inputs.demand
    with shown_progress() as progress:
        began = time.perf_counter()
        solution = planning.plan(demand, request, progress)
        seconds = time.perf_counter() - began
        evaluation = cost.evaluate(solution.plan, demand, request.prices)
        metadata = plan_document(request, inputs.fingerprints, evaluation, solution)
        write_plan(solution.plan, metadata, out / "plan")
        page = Report(
            title="A trading floor",
            demand=demand,
            plan=solution.plan,
            evaluation=evaluation,
            algorithm=request.solver.label,
            seed=seed,
            seconds=seconds,
            filtering_prices=request.prices,
            comparison=compare_algorithms(demand, request, progress),
            curve=cost_curve(demand, request, CURVE_GROUPS, progress),
            parameters={"symbols": f"{symbols:,}", "receivers": f"{receivers:,}"},
            command=f"distributary demo --seed {seed}",
        )
        write_report(page, out / "report.html")

    results.print(headline(evaluation))
    results.print(cost_table(evaluation))
    notes.print()
    results.print(f"report: {out / 'report.html'}", markup=False)
    results.print(f"saved:  {1 - evaluation.filtering.relative_excess:.1%} of flooding's waste")
    results.print(
        f"next:   {sys.argv[0]} plan --interest {interest_path} --rates {rates_path} "
        f"--groups {groups} --sessions {2 * sessions} --out {out / 'plan'}",
        markup=False,
    )
