"""`distributary evaluate`: what a plan costs, recomputed from the files alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from distributary import cost
from distributary.cli.console import notes, print_json, results
from distributary.cli.intake import intake_document, read_inputs, tell_intake
from distributary.cli.options import (
    Alpha,
    Beta,
    Floor,
    InterestFile,
    Json,
    MaxBad,
    Quarantine,
    RatesFile,
    filtering_prices,
)
from distributary.cli.plan import tell_extensions
from distributary.cli.summary import cost_table, details_as_json, headline, load_table
from distributary.errors import PlanError
from distributary.files import evaluation_document, read_plan

__all__ = ["evaluate"]


def evaluate(
    plan: Annotated[Path, typer.Argument(help="A plan folder.")],
    interest: InterestFile,
    rates: RatesFile,
    alpha: Alpha = 1.0,
    beta: Beta = 1.0,
    max_bad: MaxBad = "0%",
    floor: Floor = None,
    quarantine: Quarantine = None,
    as_document: Json = False,
) -> None:
    """Check a plan and price it: is anybody missed, what is wasted, who carries how much.

    Fails (exit 1) if the plan is not valid, after telling all it found.
    """
    prices = filtering_prices(alpha, beta)
    inputs = read_inputs(interest, rates, max_bad, floor, quarantine)
    stored = read_plan(plan, inputs.demand.interest)
    evaluation = cost.evaluate(stored.plan, inputs.demand, prices)
    same_inputs = stored.metadata.get("inputs") == inputs.fingerprints
    if as_document:
        details = details_as_json(
            evaluation, stored.plan.receivers, stored.plan.session_group.astype("int64")
        )
        print_json(
            {
                **evaluation_document(evaluation),
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
        results.print(cost_table(evaluation))
        results.print(load_table(evaluation))
        tell_extensions(evaluation)
    if not evaluation.valid:
        raise PlanError(evaluation.problems, path=str(plan))
