"""The key figures at the top of the page."""

from __future__ import annotations

from distributary.report.deliveries import Deliveries, delivered_share
from distributary.report.rendering import Tile, show_name
from distributary.report.results import Report
from distributary.report.wording import number, percent

__all__ = ["list_tiles"]


def list_tiles(report: Report, deliveries: Deliveries) -> list[Tile]:
    """List six figures: savings, goodput, the sender's copies, receivers, and validity."""
    from markupsafe import Markup

    evaluation, demand = report.evaluation, report.demand
    loads, filtering = evaluation.loads, evaluation.filtering
    sent_once = float(demand.rate.sum())
    sent = float(loads.session_rate.sum()) + loads.unicast_rate
    worst = int(loads.received.argmax())
    problems = len(evaluation.problems)
    complete = bool(deliveries.pair_served.all())
    return [
        Tile(
            "Excess saved",
            percent(1 - filtering.relative_excess) if complete else "–",
            f"of flooding’s; Cx/Cf is {filtering.relative_excess:.3f}, 0 would be perfect"
            if complete
            else "unknown while wanted flows are missing",
        ),
        Tile(
            "Goodput",
            percent(delivered_share(loads, deliveries)),
            f"of what arrives is wanted; {percent(evaluation.flooding_goodput)} with flooding",
        ),
        Tile(
            "Sender’s copies",
            number(sent / sent_once),
            f"of each message; {number(evaluation.unicast_copies)} with unicast",
        ),
        Tile(
            "Mean receiver",
            number(float(loads.received.mean())),
            f"messages/s; wants {number(float(loads.wanted.mean()))}, flooding brings "
            f"{number(sent_once)}",
        ),
        Tile(
            "Worst receiver",
            number(float(loads.received[worst])),
            Markup("messages/s; {} wants {}").format(
                show_name(report.plan.receivers[worst]), number(float(loads.wanted[worst]))
            ),
        ),
        Tile(
            "Valid",
            "no" if problems else "yes",
            f"{problems} problem{'' if problems == 1 else 's'}, listed above"
            if problems
            else "every wanted flow is delivered",
            "bad" if problems else "good",
        ),
    ]
