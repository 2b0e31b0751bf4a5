"""The JSON documents about a plan: the keys of `--json` and of `plan.json`."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from distributary import __version__
from distributary.cost import (
    ChannelCost,
    ChannelPrices,
    Evaluation,
    FilteringCost,
    Loads,
    PacketPrices,
    Prices,
    Totals,
)
from distributary.files.limits import limits_document
from distributary.model import Constraints, Plan
from distributary.planning import MadePlan, Request

__all__ = [
    "evaluation_document",
    "packing_document",
    "plan_document",
    "price_document",
    "solver_document",
    "totals_document",
]


def evaluation_document(evaluation: Evaluation) -> dict[str, Any]:
    """The evaluation as JSON. Keys never change or disappear; new ones may be added."""
    operating = evaluation.operating
    return {
        "valid": evaluation.valid,
        "problems": list(evaluation.problems),
        "receivers": evaluation.receivers,
        "flows": evaluation.flows,
        "sessions": evaluation.sessions,
        "groups": evaluation.groups,
        "duplicated_flows": evaluation.duplicated_flows,
        "duplication_saving": evaluation.duplication_saving,
        "count": evaluation.count,
        **_cost_documents(evaluation.filtering, evaluation.channel),
        "operating": {
            "cost": operating.cost,
            "maintenance": operating.maintenance,
            "dissemination": operating.dissemination,
            "unclustered": operating.unclustered,
        },
        "unicast_copies": evaluation.unicast_copies,
        "goodput": evaluation.goodput,
        "flooding_goodput": evaluation.flooding_goodput,
        "unicast": {
            "flows": evaluation.unicast_flows,
            "links": evaluation.unicast_links,
            "rate": evaluation.loads.unicast_rate,
            "extra_rate": evaluation.loads.unicast_extra_rate,
            "saving": evaluation.unicast_saving,
        },
        "rates": {
            "messages": _rate_sums(evaluation.loads),
            **(
                {}
                if evaluation.byte_loads is None
                else {"bytes": _rate_sums(evaluation.byte_loads)}
            ),
        },
    }


def _rate_sums(loads: Loads) -> dict[str, float]:
    """What is sent, and what all receivers together receive, accept and want, per second."""
    return {
        "sent": float(loads.session_rate.sum()) + loads.unicast_rate,
        "received": float(loads.received.sum()),
        "accepted": float(loads.accepted.sum()),
        "wanted": float(loads.wanted.sum()),
    }


def totals_document(plan: Plan, totals: Totals, prices: Prices) -> dict[str, Any]:
    """Those keys of `evaluation_document` that follow from five sums."""
    return {
        "valid": True,  # the replay fails the run otherwise
        "receivers": len(plan.receivers),
        "flows": len(plan.flows),
        "sessions": plan.n_sessions,
        "groups": plan.n_groups,
        **_cost_documents(totals.filtering(prices), totals.channel()),
    }


def plan_document(made: MadePlan, fingerprints: dict[str, str]) -> dict[str, Any]:
    """The content of `plan.json`: enough to make the same plan again, and no date or machine."""
    request, evaluation = made.request, made.evaluation
    costs = evaluation_document(evaluation)
    search, terms, max_moves = request.search, request.terms, request.change.max_moves
    if not evaluation.unicast_flows:
        del costs["unicast"]
    return {
        "distributary": __version__,
        **solver_document(made),
        "parameters": {
            "groups": request.size.groups,
            "sessions": request.size.sessions,
            "objective": search.objective,
            **({} if evaluation.count == "messages" else {"count": evaluation.count}),
            **price_document(request.prices, request.channel),
            **packing_document(request),
            "budget_s": search.budget_s,
            **({} if terms.max_sent is None else {"max_sent": terms.max_sent}),
            **({} if max_moves is None else {"max_moves": max_moves}),
            **({} if terms.unicast is None else {"unicast": asdict(terms.unicast)}),
            **({"constraints": _constraints_json(terms.constraints)} if terms.constraints else {}),
            **(
                {"receiver_weights": dict(sorted(terms.receiver_weights.items()))}
                if terms.receiver_weights
                else {}
            ),
        },
        "inputs": fingerprints,
        "costs": costs,
    }


def price_document(prices: Prices, channel: ChannelPrices) -> dict[str, Any]:
    """The prices: those that differ from the default, and always alpha and beta.

    Where packets have prices of their own, alpha and beta are those of a message in a full packet.
    """
    document: dict[str, Any] = {"alpha": prices.alpha, "beta": prices.beta}
    if isinstance(prices, PacketPrices):
        own = asdict(prices)
        del own["messages_per_packet"], own["delay_s"]
        document["packet_prices"] = own
    if channel != ChannelPrices():
        document |= {"received_price": channel.received, "sent_price": channel.sent}
    return document


def packing_document(request: Request) -> dict[str, Any]:
    """How the sender is to fill its packets, if the request says so."""
    if not isinstance(request.prices, PacketPrices) and request.terms.packing is None:
        return {}
    return asdict(request.packing)


def solver_document(made: MadePlan) -> dict[str, Any]:
    """The solver, whether the time budget ended its search, and what it proved.

    `bound` is by the objective: no plan costs less. `gap` is how far the plan is above it, as a
    share; null if the bound is 0.
    """
    request, solution = made.request, made.solution
    facts: dict[str, Any] = {
        "algorithm": request.solver.name,
        "seed": request.search.seed,
        "cut_short": solution.cut_short,
    }
    if solution.channel_lower_bound is not None:
        facts |= {"proven": solution.proven, "proven_lower_bound": solution.channel_lower_bound}
    if made.bound is not None and made.gap is not None:
        gap = made.gap if math.isfinite(made.gap) else None
        facts["bound"] = {"cost": made.bound.value, "how": made.bound.how, "gap": gap}
    return facts


def _cost_documents(filtering: FilteringCost, channel: ChannelCost) -> dict[str, Any]:
    return {
        "filtering": {
            "session_cost": filtering.session_cost,
            "flow_cost": filtering.flow_cost,
            "work": filtering.work,
            "wanted_work": filtering.wanted_work,
            "excess": filtering.excess,
            "flooding_excess": filtering.flooding_excess,
            "relative_excess": filtering.relative_excess,
        },
        "channel": {
            "cost": channel.cost,
            "received": channel.received,
            "sent": channel.sent,
            "lower_bound": channel.lower_bound,
            "flooding": channel.flooding,
        },
    }


def _constraints_json(constraints: Constraints) -> dict[str, Any]:
    limits = constraints.limits
    return {
        "group_rate": limits.group_rate,
        "receiver_rate": dict(limits.receiver_rates),
        "limits": limits_document(limits),
        "pinned": dict(constraints.pinned),
        "together": sorted(sorted(names) for names in constraints.together),
        "apart": sorted(sorted(names) for names in constraints.apart),
    }
