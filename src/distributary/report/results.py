"""The content of a report: a plan, its costs, and the plans it is compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from distributary.cost import ChannelPrices, Evaluation, FilteringPrices, Prices
from distributary.model import Demand, LimitUse, Plan
from distributary.planning import Compared, CurvePoint

__all__ = ["Report", "comparison_rows"]


@dataclass(frozen=True, slots=True, eq=False)
class Report:
    """Everything that the page shows.

    `evaluation` must be of this plan, for this demand, at these prices; the demand is in messages,
    while the costs may count bytes. `comparison` holds the other algorithms' plans only; the page
    itself adds flooding, unicast and this plan. `limits` says how much of each limit the plan uses.
    `seconds` is how long the planning took. `parameters` and `command` are shown unchanged.
    """

    title: str
    demand: Demand
    plan: Plan
    evaluation: Evaluation
    algorithm: str
    seed: int | None = None
    seconds: float | None = None
    filtering_prices: Prices = field(default_factory=FilteringPrices)
    channel_prices: ChannelPrices = field(default_factory=ChannelPrices)
    comparison: Sequence[Compared] = ()
    curve: Sequence[CurvePoint] = ()
    limits: Sequence[LimitUse] = ()
    parameters: Mapping[str, str] = field(default_factory=dict)
    command: str = ""


def comparison_rows(report: Report) -> list[Compared]:
    """Flooding, unicast, then all plans from the most to the least wasteful."""
    chosen = Compared.of(report.algorithm, report.evaluation, seconds=report.seconds, chosen=True)
    plans = sorted([*report.comparison, chosen], key=lambda row: row.relative_excess, reverse=True)
    return [_flooding(report), _unicast(report), *plans]


def _flooding(report: Report) -> Compared:
    filtering = report.evaluation.filtering
    return Compared(
        name="flooding",
        sessions=1,
        groups=1,
        relative_excess=1.0 if filtering.flooding_excess > 0 else 0.0,
        work=filtering.flooding_work,
        channel_cost=report.evaluation.channel.flooding,
        sent_rate=float(report.demand.rate.sum()),
    )


def _unicast(report: Report) -> Compared:
    wanted = float(report.evaluation.loads.wanted.sum())
    return Compared(
        name="unicast",
        sessions=None,
        groups=None,
        relative_excess=0.0,
        work=report.evaluation.filtering.wanted_work,
        channel_cost=report.evaluation.unicast_channel_cost,
        sent_rate=wanted,
    )
