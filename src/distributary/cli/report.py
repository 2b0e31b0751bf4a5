"""`distributary report`: a plan as an HTML page, compared with other plans."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from distributary import cost, planning
from distributary.cli.console import results, show_progress
from distributary.cli.intake import DemandFiles, print_intake
from distributary.cli.option_groups import takes_groups
from distributary.cli.options import OUTPUT, option, reject_bad_values
from distributary.cli.planner_options import TermOptions
from distributary.cli.price_options import OwnPrices
from distributary.extras import require
from distributary.files import read_plan, read_stored_terms, replace_file
from distributary.model import Demand, limit_uses, weigh_receivers
from distributary.planning import compare_algorithms, cost_curve
from distributary.report import Report, render_report

__all__ = ["CURVE_GROUPS", "report", "write_report"]

CURVE_GROUPS = (5, 10, 20, 50, 100, 200)


@takes_groups
def report(
    plan: Annotated[Path, typer.Argument(help="Plan folder.")],
    files: DemandFiles,
    own: OwnPrices,
    within: TermOptions,
    out: Annotated[Path, option("HTML file to write.", OUTPUT)] = Path("report.html"),
    compare: Annotated[
        bool,
        option(
            "Also plan with other algorithms and numbers of groups, to compare (slower).", OUTPUT
        ),
    ] = True,
) -> None:
    """Write a self-contained HTML page about a plan.

    The plans that it is compared with for other numbers of groups keep the terms given; those of
    other algorithms know none.
    """
    require("report")
    terms = read_stored_terms(plan)
    prices, channel = own.choose(terms), own.choose_channel(terms)
    settings = within.read_terms(files.count or terms.count)
    settings["receiver_weights"] = settings["receiver_weights"] or terms.receiver_weights
    inputs = files.read(usual_count=terms.count)
    interest = inputs.demand.interest
    within.check_receivers(inputs.demand)
    stored = read_plan(plan, interest)
    weights = weigh_receivers(interest, settings["receiver_weights"])
    print_intake(inputs)
    algorithm = str(stored.metadata.get("algorithm", "a plan from elsewhere"))
    seed = stored.metadata.get("seed")
    page = Report(
        title=f"The plan in {plan.name}",
        demand=inputs.demand.count_in("messages"),
        plan=stored.plan,
        evaluation=cost.evaluate(stored.plan, inputs.demand, prices, channel, weights=weights),
        algorithm=algorithm,
        seed=seed if isinstance(seed, int) else None,
        filtering_prices=prices,
        channel_prices=channel,
        parameters={"interest": str(files.interest), "rates": str(files.rates)},
    )
    if limits := settings["constraints"].limits:
        packing = own.choose_packing(terms)
        page = replace(page, limits=limit_uses(stored.plan, inputs.demand, limits, packing))
    if compare:
        page = _add_comparison(page, inputs.demand, settings)
    write_report(page, out)
    results.print(f"the report is {out}", markup=False)


def write_report(page: Report, out: Path) -> None:
    """Render a report and write it whole or not at all."""
    with replace_file(out) as file:
        file.write(render_report(page).encode())


def _add_comparison(page: Report, demand: Demand, terms: planning.RequestSettings) -> Report:
    known = page.algorithm in planning.ALGORITHMS
    settings: planning.RequestSettings = {
        "algorithm": page.algorithm if known else planning.DEFAULT_ALGORITHM,
        "prices": page.filtering_prices,
        "channel": page.channel_prices,
        "seed": page.seed or 0,
        **terms,
    }
    with reject_bad_values():
        request = planning.Request(page.evaluation.groups, page.evaluation.sessions, **settings)
    with show_progress() as progress:
        return replace(
            page,
            comparison=compare_algorithms(demand, request, progress),
            curve=cost_curve(demand, request, CURVE_GROUPS, progress),
        )
