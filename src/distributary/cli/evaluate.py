"""`distributary evaluate`: check a plan and compute its costs from the files alone."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from distributary import cost
from distributary.cli.console import notes, print_json, results
from distributary.cli.constraints import LimitOptions
from distributary.cli.intake import DemandFiles, intake_document, print_intake
from distributary.cli.option_groups import takes_groups
from distributary.cli.options import Json
from distributary.cli.plan import print_extensions
from distributary.cli.price_options import OwnPrices
from distributary.cli.summary import cost_table, details_as_json, headline, limit_table, load_tables
from distributary.errors import LimitError, PlanError
from distributary.files import evaluation_document, price_document, read_plan, read_stored_terms
from distributary.model import LimitUse, broken_limits, limit_uses, weigh_receivers
from distributary.report.wording import prices_in_words

__all__ = ["evaluate"]


@takes_groups
def evaluate(
    plan: Annotated[Path, typer.Argument(help="Plan folder.")],
    files: DemandFiles,
    own: OwnPrices,
    network: LimitOptions,
    as_document: Json = False,
) -> None:
    """Check that a plan misses nobody, and compute what it costs and wastes.

    If the plan is not valid or breaks a limit, the command prints everything and then exits with 1.
    """
    terms = read_stored_terms(plan)
    prices, channel = own.choose(terms), own.choose_channel(terms)
    inputs = files.read(usual_count=terms.count)
    stored = read_plan(plan, inputs.demand.interest)
    interest = inputs.demand.interest
    given = network.read_receivers(interest.receivers).weights
    weights = weigh_receivers(interest, given) if given else terms.weigh(interest)
    evaluation = cost.evaluate(stored.plan, inputs.demand, prices, channel, weights=weights)
    limits = network.read_limits(interest.receivers, inputs.demand.unit)
    packing = own.choose_packing(terms)
    broken = broken_limits(stored.plan, inputs.demand, limits, packing)
    uses = limit_uses(stored.plan, inputs.demand, limits, packing)
    same_inputs = stored.metadata.get("inputs") == inputs.fingerprints
    if as_document:
        details = details_as_json(
            evaluation, stored.plan.receivers, stored.plan.session_group.astype("int64")
        )
        print_json(
            {
                **evaluation_document(evaluation),
                "prices": price_document(prices, channel),
                "made_from_these_inputs": same_inputs,
                "intake": intake_document(inputs),
                **(_limits_document(uses, broken) if network.are_given else {}),
                **details,
            }
        )
    else:
        print_intake(inputs)
        if not same_inputs:
            notes.print("the plan was made from other interest or rates than these")
        results.print(headline(evaluation))
        results.print(f"prices: {prices_in_words(prices, 'alpha', 'beta')}", highlight=False)
        results.print(cost_table(evaluation))
        for table in load_tables(evaluation):
            results.print(table)
        print_extensions(evaluation)
        if limits:
            results.print(limit_table(uses))
            _print_broken(broken)
    if not evaluation.valid:
        raise PlanError(evaluation.problems, path=str(plan))
    if broken:
        raise LimitError(broken, path=str(plan))


def _limits_document(uses: tuple[LimitUse, ...], broken: tuple[str, ...]) -> dict[str, Any]:
    return {"limits": [asdict(use) for use in uses], "broken_limits": list(broken)}


def _print_broken(broken: tuple[str, ...]) -> None:
    """Print every limit that the plan breaks, by group, receiver or switch."""
    if not broken:
        results.print("the plan breaks no limit")
    for sentence in broken:
        results.print(f"broken: {sentence}", markup=False, soft_wrap=True)
