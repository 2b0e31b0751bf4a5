"""What a report is about: a plan, what it costs, and what it is held against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from distributary.cost import ChannelPrices, Evaluation, FilteringPrices
from distributary.model import Demand, Plan

__all__ = ["Compared", "CurvePoint", "Report", "comparison_rows"]


@dataclass(frozen=True, slots=True)
class Compared:
    """One row of the comparison: a way to carry the flows, and what it costs.

    `sent_rate` is what the sender puts on the wire, in messages per second, each copy counted.
    `chosen` marks the plan that the report is about.
    """

    name: str
    sessions: int | None
    groups: int | None
    relative_excess: float
    work: float
    channel_cost: float
    sent_rate: float
    seconds: float | None = None
    chosen: bool = False

    @classmethod
    def of(
        cls,
        name: str,
        evaluation: Evaluation,
        *,
        seconds: float | None = None,
        chosen: bool = False,
    ) -> Self:
        """The row of an evaluated plan."""
        return cls(
            name=name,
            sessions=evaluation.sessions,
            groups=evaluation.groups,
            relative_excess=evaluation.filtering.relative_excess,
            work=evaluation.filtering.work,
            channel_cost=evaluation.channel.cost,
            sent_rate=float(evaluation.loads.session_rate.sum()) + evaluation.loads.unicast_rate,
            seconds=seconds,
            chosen=chosen,
        )


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """What a plan with this many groups and sessions wastes (Cx/Cf)."""

    groups: int
    sessions: int
    relative_excess: float


@dataclass(frozen=True, slots=True, eq=False)
class Report:
    """Everything the page shows.

    `evaluation` must be of this plan, for this demand, at these prices. `comparison` holds the
    other algorithms' plans only: the page adds flooding, unicast and this plan by itself.
    `seconds` is how long the planning took; `parameters` and `command` are shown as they are.
    """

    title: str
    demand: Demand
    plan: Plan
    evaluation: Evaluation
    algorithm: str
    seed: int | None = None
    seconds: float | None = None
    filtering_prices: FilteringPrices = field(default_factory=FilteringPrices)
    channel_prices: ChannelPrices = field(default_factory=ChannelPrices)
    comparison: Sequence[Compared] = ()
    curve: Sequence[CurvePoint] = ()
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
        work=filtering.wanted_work + filtering.flooding_excess,
        channel_cost=report.evaluation.channel.flooding,
        sent_rate=float(report.demand.rate.sum()),
    )


def _unicast(report: Report) -> Compared:
    wanted = float(report.evaluation.loads.wanted.sum())
    prices = report.channel_prices
    return Compared(
        name="unicast",
        sessions=None,
        groups=None,
        relative_excess=0.0,
        work=report.evaluation.filtering.wanted_work,
        channel_cost=(prices.received + prices.sent) * wanted,
        sent_rate=wanted,
    )
