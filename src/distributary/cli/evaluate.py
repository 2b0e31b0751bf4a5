"""`distributary evaluate`: check a plan and compute its costs from the files alone."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from distributary import cost
from distributary.cli.console import notes, print_json, results
from distributary.cli.constraints import LimitOptions
from distributary.cli.intake import DemandFiles, intake_document, print_intake
from distributary.cli.option_groups import takes_groups
from distributary.cli.options import PRICES, Json, filtering_prices, option
from distributary.cli.plan import print_extensions
from distributary.cli.summary import cost_table, details_as_json, headline, limit_table, load_table
from distributary.cost import FilteringPrices
from distributary.errors import LimitError, PlanError
from distributary.files import StoredPlan, evaluation_document, read_plan, stored_prices
from distributary.model import LimitUse, broken_limits, limit_uses

__all__ = ["OwnPrices", "evaluate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnPrices:
    """The prices to evaluate a plan at: its own, unless others are given."""

    alpha: Annotated[
        float | None,
        option(
            "Cost of one message at the session filter.", PRICES, show_default="that of plan.json"
        ),
    ] = None
    beta: Annotated[
        float | None,
        option("Cost of one message at the flow filter.", PRICES, show_default="that of plan.json"),
    ] = None

    def choose(self, stored: StoredPlan, folder: Path) -> FilteringPrices:
        """Return the prices given; one that is not given is the one the plan was made with."""
        alpha, beta = self.alpha, self.beta
        if alpha is None or beta is None:
            own = stored_prices(stored, folder)
            alpha = own.alpha if alpha is None else alpha
            beta = own.beta if beta is None else beta
        return filtering_prices(alpha, beta)


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
    inputs = files.read()
    stored = read_plan(plan, inputs.demand.interest)
    prices = own.choose(stored, plan)
    evaluation = cost.evaluate(stored.plan, inputs.demand, prices)
    limits = network.read_limits(inputs.demand.interest.receivers)
    broken = broken_limits(stored.plan, inputs.demand, limits)
    uses = limit_uses(stored.plan, inputs.demand, limits)
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
                **({} if network.limits is None else _limits_document(uses, broken)),
                **details,
            }
        )
    else:
        print_intake(inputs)
        if not same_inputs:
            notes.print("the plan was made from other interest or rates than these")
        results.print(headline(evaluation))
        results.print(f"prices: alpha {prices.alpha:g}, beta {prices.beta:g}")
        results.print(cost_table(evaluation))
        results.print(load_table(evaluation))
        print_extensions(evaluation)
        if network.limits is not None:
            results.print(limit_table(uses))
            _print_broken(network.limits, broken)
    if not evaluation.valid:
        raise PlanError(evaluation.problems, path=str(plan))
    if broken:
        raise LimitError(broken, path=str(plan))


def _limits_document(uses: tuple[LimitUse, ...], broken: tuple[str, ...]) -> dict[str, Any]:
    return {"limits": [asdict(use) for use in uses], "broken_limits": list(broken)}


def _print_broken(limits: str, broken: tuple[str, ...]) -> None:
    """Print every limit that the plan breaks, by group, receiver or switch."""
    if not broken:
        results.print(f"the plan breaks no limit of {limits}", markup=False)
    for sentence in broken:
        results.print(f"broken: {sentence}", markup=False, soft_wrap=True)
