"""The page about a plan: its sections, in reading order."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass

import numpy as np

from distributary import __version__
from distributary.extras import require
from distributary.planning import CurvePoint
from distributary.report.charts import (
    Chart,
    curve_chart,
    group_chart,
    intake_chart,
    spread_chart,
)
from distributary.report.deliveries import (
    Deliveries,
    delivered_share,
    plan_deliveries,
    wasted_shares,
)
from distributary.report.picture import (
    HEIGHT,
    WIDTH,
    PlanPicture,
    picture_by_name,
    picture_by_plan,
)
from distributary.report.rendering import render_page
from distributary.report.results import Report
from distributary.report.tables import (
    comparison_table,
    cost_terms,
    group_table,
    limit_table,
    receiver_table,
    spread_table,
)
from distributary.report.tiles import list_tiles
from distributary.report.tree import plan_tree
from distributary.report.wording import (
    SAVING_EXPLAINED,
    headline,
    number,
    percent,
    plural,
    prices_in_words,
)

__all__ = ["render_report"]


def render_report(report: Report) -> str:
    """Render one self-contained HTML page; the same report gives the same text."""
    require("report")
    plan, demand, evaluation = report.plan, report.demand, report.evaluation
    loads = evaluation.loads
    deliveries = plan_deliveries(plan, demand)
    wasted = wasted_shares(plan, demand, loads, deliveries)
    tree = plan_tree(plan, demand, loads, deliveries, wasted)
    by_plan = picture_by_plan(plan, demand.interest, deliveries.pair_served)
    return render_page(
        "plan.html",
        kind="plan report",
        title=report.title,
        headline=headline(evaluation.filtering, valid=evaluation.valid),
        lead=_lead(report, deliveries),
        problems=evaluation.problems,
        tiles=list_tiles(report, deliveries),
        interest_lead=_interest_lead(report),
        matrix_by_name=_matrix_by_name(report),
        plan_picture_lead=_plan_picture_lead(report),
        matrix_by_plan=_matrix_by_plan(report, by_plan),
        comparison=comparison_table(report),
        cost_terms=cost_terms(report),
        tree=tree,
        groups=group_table(loads, wasted, report.evaluation.byte_loads),
        groups_lead=_groups_lead(report),
        group_chart=group_chart(loads),
        limits=limit_table(report) if report.limits else None,
        receivers_lead=_receivers_lead(report),
        spread_chart=spread_chart(loads),
        intake_chart=intake_chart(loads, deliveries.delivered),
        spread=spread_table(loads, deliveries.delivered, report.evaluation.byte_loads),
        receivers=receiver_table(plan, evaluation, deliveries.delivered),
        curve_chart=_curve(report),
        facts=_facts(report),
        command=report.command,
    )


@dataclass(frozen=True, slots=True)
class _Bar:
    """A group in the strip below the picture: its first column, and its number of flows."""

    at: int
    flows: int
    title: str


@dataclass(frozen=True, slots=True)
class _Matrix:
    """The interest matrix as a picture, and how its rows and columns are ordered."""

    png: str  # base64
    receivers: int
    flows: int
    rows: str
    columns: str
    key: tuple[tuple[str, str], ...]  # colours of the page, and what they mean
    bars: tuple[_Bar, ...] = ()
    width: int = WIDTH
    height: int = HEIGHT


def _lead(report: Report, deliveries: Deliveries) -> str:
    evaluation = report.evaluation
    by_unicast = evaluation.unicast_flows
    unicast = f"sends {plural(by_unicast, 'flow')} by unicast and " if by_unicast else ""
    others = "the others" if by_unicast else "them"
    return (
        f"{SAVING_EXPLAINED} The {report.algorithm} plan carries "
        f"{plural(evaluation.flows, 'flow')} to {plural(evaluation.receivers, 'receiver')}: it "
        f"{unicast}puts {others} into "
        f"{plural(evaluation.sessions, 'session')} and those into "
        f"{plural(evaluation.groups, 'group')}. "
        f"Of what receivers receive, {percent(delivered_share(evaluation.loads, deliveries))} is "
        f"wanted; with flooding it would be {percent(evaluation.flooding_goodput)}."
    )


def _interest_lead(report: Report) -> str:
    interest = report.demand.interest
    return (
        f"{plural(interest.pairs, 'wanted pair')} of {plural(len(interest.receivers), 'receiver')} "
        f"and {plural(len(interest.flows), 'flow')}: {percent(interest.density)} of all possible "
        "pairs. On average a receiver wants "
        f"{plural(interest.pairs / len(interest.receivers), 'flow')} and a flow has "
        f"{plural(interest.pairs / len(interest.flows), 'receiver')}. "
        "The first picture shows the matrix by name."
    )


def _plan_picture_lead(report: Report) -> str:
    copies = report.evaluation.duplicated_flows
    note = (
        f" {plural(copies, 'flow')} in several sessions: drawn in the first of them."
        if copies
        else ""
    )
    return (
        "The second picture shows the same matrix in the order of the plan: flows by group and "
        "session, receivers by the groups they join. The tinted background is what arrives without "
        f"being wanted; the strip below shows where each group begins and ends.{note}"
    )


def _matrix_by_name(report: Report) -> _Matrix:
    interest = report.demand.interest
    return _Matrix(
        png=b64encode(picture_by_name(interest)).decode(),
        receivers=len(interest.receivers),
        flows=len(interest.flows),
        rows="name",
        columns="name",
        key=(("wanted", "wanted"),),
    )


def _matrix_by_plan(report: Report, picture: PlanPicture) -> _Matrix:
    interest = report.demand.interest
    key = [
        ("wanted", "wanted"),
        ("flow-dropped", "dropped by the flow filter"),
        ("session-dropped", "dropped by the session filter"),
    ]
    if not report.evaluation.valid:
        key.append(("missed", "wanted, but not served"))
    return _Matrix(
        png=b64encode(picture.png).decode(),
        receivers=len(interest.receivers),
        flows=len(interest.flows),
        rows="the groups they join",
        columns="group and session",
        key=tuple(key),
        bars=_bars(picture),
    )


def _bars(picture: PlanPicture) -> tuple[_Bar, ...]:
    """The bars below the picture, one for each group."""
    bars, at = [], 0
    for group, flows in picture.groups:
        bars.append(_Bar(at, flows, f"group {group}" if group >= 0 else "in no session"))
        at += flows
    return tuple(bars)


def _groups_lead(report: Report) -> str:
    loads = report.evaluation.loads
    total = float(loads.group_rate.sum())
    top = float(loads.group_rate.max())
    return (
        f"The heaviest group carries {number(top)} messages/s, "
        f"{percent(top / total if total else 0.0)} of all traffic; the median group "
        f"{number(float(np.median(loads.group_rate)))}. The largest has "
        f"{plural(int(loads.group_members.max()), 'member')}, the median group "
        f"{number(float(np.median(loads.group_members)))}."
    )


def _receivers_lead(report: Report) -> str:
    loads = report.evaluation.loads
    return (
        f"The mean receiver receives {number(float(loads.received.mean()))} messages/s to get the "
        f"{number(float(loads.wanted.mean()))} it wants, from "
        f"{plural(float(loads.receiver_groups.mean()), 'group')} and "
        f"{plural(float(loads.receiver_sessions.mean()), 'session')}."
    )


def _curve(report: Report) -> Chart | None:
    if not report.curve:
        return None
    evaluation = report.evaluation
    chosen = CurvePoint(
        evaluation.groups, evaluation.sessions, evaluation.filtering.relative_excess
    )
    return curve_chart(report.curve, chosen)


def _facts(report: Report) -> dict[str, str]:
    demand, prices = report.demand, report.filtering_prices
    return {
        "distributary": __version__,
        "algorithm": report.algorithm,
        "seed": "–" if report.seed is None else str(report.seed),
        "receivers": f"{len(demand.interest.receivers):,}",
        "flows": f"{len(demand.interest.flows):,}",
        "wanted pairs": f"{demand.interest.pairs:,}",
        "messages/s of all flows": number(float(demand.rate.sum())),
        **(
            {}
            if demand.size is None
            else {"bytes/s of all flows": number(float(demand.count_in("bytes").rate.sum()))}
        ),
        "costs count": report.evaluation.count,
        "filtering prices": prices_in_words(prices),
        "channel prices": f"received {report.channel_prices.received:g}, "
        f"sent {report.channel_prices.sent:g}",
        **report.parameters,
    }
