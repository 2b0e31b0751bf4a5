"""`distributary evaluate`: what a plan costs, recomputed from the files alone."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from distributary import cost
from distributary.cli.console import notes, print_json, results
from distributary.cli.intake import intake_document, read_inputs, tell_intake
from distributary.cli.options import (
    PRICES,
    Floor,
    InterestFile,
    Json,
    MaxBad,
    Quarantine,
    RatesFile,
    filtering_prices,
)
from distributary.cli.plan import tell_extensions
from distributary.cli.quantities import Share
from distributary.cli.summary import cost_table, details_as_json, headline, load_table
from distributary.cost import FilteringPrices
from distributary.errors import PlanError
from distributary.files import StoredPlan, evaluation_document, read_plan, stored_prices

__all__ = ["PlansAlpha", "PlansBeta", "choose_prices", "evaluate"]

PlansAlpha = Annotated[
    float | None,
    typer.Option(
        "--alpha",
        help="Price of a message at the session filter; the plan's own without it.",
        rich_help_panel=PRICES,
    ),
]
PlansBeta = Annotated[
    float | None,
    typer.Option(
        "--beta",
        help="Price of a message at the flow filter; the plan's own without it.",
        rich_help_panel=PRICES,
    ),
]


def evaluate(
    plan: Annotated[Path, typer.Argument(help="A plan folder.")],
    interest: InterestFile,
    rates: RatesFile,
    alpha: PlansAlpha = None,
    beta: PlansBeta = None,
    max_bad: MaxBad = Share("0%"),
    floor: Floor = None,
    quarantine: Quarantine = None,
    as_document: Json = False,
) -> None:
    """Check a plan and price it: is anybody missed, what is wasted, who carries how much.

    Fails (exit 1) if the plan is not valid, after telling all it found.
    """
    inputs = read_inputs(interest, rates, max_bad, floor, quarantine)
    stored = read_plan(plan, inputs.demand.interest)
    prices = choose_prices(stored, plan, alpha, beta)
    evaluation = cost.evaluate(stored.plan, inputs.demand, prices)
    same_inputs = stored.metadata.get("inputs") == inputs.fingerprints
    if as_document:
        details = details_as_json(
            evaluation, stored.plan.receivers, stored.plan.session_group.astype("int64")
        )
        print_json(
            {
                **evaluation_document(evaluation),
                "prices": asdict(prices),
                "made_from_these_inputs": same_inputs,
                "intake": intake_document(inputs),
                **details,
            }
        )
    else:
        tell_intake(inputs)
        if not same_inputs:
            notes.print("the plan was made from other inputs than these")
        results.print(headline(evaluation))
        results.print(f"prices: alpha {prices.alpha:g}, beta {prices.beta:g}")
        results.print(cost_table(evaluation))
        results.print(load_table(evaluation))
        tell_extensions(evaluation)
    if not evaluation.valid:
        raise PlanError(evaluation.problems, path=str(plan))


def choose_prices(
    stored: StoredPlan, folder: Path, alpha: float | None, beta: float | None
) -> FilteringPrices:
    """The prices given; for each that is not, the one that the plan was made with."""
    if alpha is None or beta is None:
        own = stored_prices(stored, folder)
        alpha = own.alpha if alpha is None else alpha
        beta = own.beta if beta is None else beta
    return filtering_prices(alpha, beta)
