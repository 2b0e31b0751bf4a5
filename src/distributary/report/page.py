"""The page: its sections in reading order, put into one self-contained file."""

from __future__ import annotations

import json
from base64 import b64encode
from html import escape
from importlib.resources import files
from string import Template

import numpy as np
from plotly.offline import get_plotlyjs

from distributary import __version__
from distributary.report import palette
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
from distributary.report.results import CurvePoint, Report
from distributary.report.tables import (
    comparison_table,
    cost_terms,
    group_table,
    receiver_table,
    spread_table,
)
from distributary.report.tiles import tiles
from distributary.report.tree import plan_tree
from distributary.report.wording import headline, number, percent, plural

__all__ = ["chart_box", "colour_scheme", "render_report", "resource"]


def render_report(report: Report) -> str:
    """One HTML page with everything in it: the same report gives the same text."""
    plan, demand, evaluation = report.plan, report.demand, report.evaluation
    loads = evaluation.loads
    deliveries = plan_deliveries(plan, demand)
    wasted = wasted_shares(plan, demand, loads, deliveries)
    tree = plan_tree(plan, demand, loads, deliveries, wasted)
    by_plan = picture_by_plan(plan, demand.interest, deliveries.pair_served)
    return Template(resource("page.html")).substitute(
        version=escape(__version__),
        title=escape(report.title),
        css=resource("page.css"),
        js=resource("page.js"),
        plotly=get_plotlyjs(),
        colours=colour_scheme(),
        headline=headline(evaluation),
        lead=_lead(report, deliveries),
        problems=_problems(report),
        tiles=tiles(report, deliveries),
        interest_lead=_interest_lead(report),
        picture_by_name=_matrix(report, picture_by_name(demand.interest), "name", "name"),
        plan_picture_lead=_plan_picture_lead(report),
        picture_by_plan=_matrix(
            report, by_plan.png, "the groups they join", "group and session", _strip(by_plan)
        ),
        comparison_table=comparison_table(report),
        cost_terms=cost_terms(report),
        tree_left_out=tree.left_out,
        tree_chart=chart_box(
            "tree", tree.chart, "the plan as a tree of groups, sessions and flows"
        ),
        group_table=group_table(loads, wasted),
        groups_lead=_groups_lead(report),
        group_chart=chart_box("groups", group_chart(loads), "rate and members of each group"),
        receivers_lead=_receivers_lead(report),
        spread_chart=chart_box("spread", spread_chart(loads), "distribution of receiver loads"),
        intake_chart=chart_box(
            "intake", intake_chart(loads, deliveries.delivered), "where the intake goes"
        ),
        spread_table=spread_table(loads, deliveries.delivered),
        receiver_table=receiver_table(plan, evaluation, deliveries.delivered),
        curve=_curve(report),
        provenance=_provenance(report),
    )


def resource(file: str) -> str:
    """The text of a file that is shipped beside this module."""
    return files("distributary.report").joinpath(file).read_text("utf-8")


def colour_scheme() -> str:
    """The palette as CSS, so that page and charts agree."""
    return (
        f":root {{ --wanted: {palette.WANTED}; --flow-dropped: {palette.FLOW_DROPPED}; "
        f"--session-dropped: {palette.SESSION_DROPPED}; --missed: {palette.MISSED}; }}"
    )


def _lead(report: Report, deliveries: Deliveries) -> str:
    evaluation = report.evaluation
    by_unicast = evaluation.unicast_flows
    unicast = f"sends {plural(by_unicast, 'flow')} by unicast and " if by_unicast else ""
    others = "the others" if by_unicast else "the flows"
    return (
        f"The {escape(report.algorithm)} plan {unicast}puts {others} into "
        f"{plural(evaluation.sessions, 'session')} and those into "
        f"{plural(evaluation.groups, 'group')}. "
        f"Of what receivers take in, {percent(delivered_share(evaluation.loads, deliveries))} is "
        f"what they asked for; with flooding it would be {percent(evaluation.flooding_goodput)}."
    )


def _problems(report: Report) -> str:
    if report.evaluation.valid:
        return ""
    listed = "".join(f"<li>{escape(problem)}</li>" for problem in report.evaluation.problems)
    return (
        '<div class="alert" role="alert"><strong>This plan is not valid.</strong> '
        f"Its costs are those of the plan as it is, and may flatter it.<ul>{listed}</ul></div>"
    )


def _interest_lead(report: Report) -> str:
    interest = report.demand.interest
    return (
        f"{plural(interest.pairs, 'wanted pair')} of {plural(len(interest.receivers), 'receiver')} "
        f"and {plural(len(interest.flows), 'flow')}: {percent(interest.density)} of all there "
        "could be. On average a receiver wants "
        f"{plural(interest.pairs / len(interest.receivers), 'flow')} and a flow has "
        f"{plural(interest.pairs / len(interest.flows), 'receiver')}. "
        "First the matrix as it comes, by name."
    )


def _plan_picture_lead(report: Report) -> str:
    copies = report.evaluation.duplicated_flows
    note = (
        f" {plural(copies, 'flow')} in several sessions: drawn in the first of them."
        if copies
        else ""
    )
    return (
        "Then the same matrix as the plan sees it: flows by group and session, receivers by the "
        "groups they join. The tinted ground is what arrives without being wanted; the strip below "
        f"marks where one group ends and the next begins.{note}"
    )


def _matrix(report: Report, png: bytes, rows: str, columns: str, strip: str = "") -> str:
    interest = report.demand.interest
    key = [("wanted", "wanted")]
    if strip:
        key += [("flow-dropped", "dropped by the flow filter")]
        key += [("session-dropped", "dropped by the session filter")]
        if not report.evaluation.valid:
            key += [("missed", "wanted, but not served")]
    keys = "".join(f'<span style="--of:var(--{colour})">{text}</span>' for colour, text in key)
    return (
        f'<figure class="matrix"><span class="rows">{plural(len(interest.receivers), "receiver")}, '
        f"by {rows}</span>"
        f'<img width="{WIDTH}" height="{HEIGHT}" alt="Interest matrix, receivers by {rows}, flows '
        f'by {columns}" src="data:image/png;base64,{b64encode(png).decode()}">{strip}'
        f"<figcaption><span>{plural(len(interest.flows), 'flow')}, by {columns}</span>"
        f'<span class="key">{keys}</span></figcaption></figure>'
    )


def _strip(picture: PlanPicture) -> str:
    """Alternating bars below the picture, one for each group."""
    flows = sum(count for _, count in picture.groups)
    bars, at = [], 0
    for group, count in picture.groups:
        title = f"group {group}" if group >= 0 else "in no session"
        bars.append(
            f'<rect x="{at}" width="{count}" height="1"><title>{title}: {plural(count, "flow")}'
            "</title></rect>"
        )
        at += count
    return (
        f'<svg viewBox="0 0 {flows} 1" preserveAspectRatio="none" role="img" '
        f'aria-label="where the groups begin and end">{"".join(bars)}</svg>'
    )


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
        f"The mean receiver takes in {number(float(loads.received.mean()))} messages/s to get the "
        f"{number(float(loads.wanted.mean()))} it wants, from "
        f"{plural(float(loads.receiver_groups.mean()), 'group')} and "
        f"{plural(float(loads.receiver_sessions.mean()), 'session')}."
    )


def _curve(report: Report) -> str:
    if not report.curve:
        return '<p class="note">No other numbers of groups were tried for this report.</p>'
    evaluation = report.evaluation
    chosen = CurvePoint(
        evaluation.groups, evaluation.sessions, evaluation.filtering.relative_excess
    )
    return (
        "<p>The excess left at each number of groups; lower is better, and 100 % is flooding.</p>"
        + chart_box(
            "curve", curve_chart(report.curve, chosen), "excess against the number of groups"
        )
    )


def _provenance(report: Report) -> str:
    demand, prices = report.demand, report.filtering_prices
    facts = {
        "distributary": __version__,
        "algorithm": report.algorithm,
        "seed": "–" if report.seed is None else str(report.seed),
        "receivers": f"{len(demand.interest.receivers):,}",
        "flows": f"{len(demand.interest.flows):,}",
        "wanted pairs": f"{demand.interest.pairs:,}",
        "messages/s of all flows": number(float(demand.rate.sum())),
        "filtering prices": f"α = {prices.alpha:g}, β = {prices.beta:g}",
        "channel prices": f"received {report.channel_prices.received:g}, "
        f"sent {report.channel_prices.sent:g}",
        **report.parameters,
    }
    listed = "".join(
        f"<div><dt>{escape(key)}</dt><dd>{escape(value)}</dd></div>\n"
        for key, value in facts.items()
    )
    command = f"<pre>{escape(report.command)}</pre>" if report.command else ""
    return f'<dl class="provenance">{listed}</dl>{command}'


def chart_box(name: str, chart: Chart, description: str) -> str:
    """A place for the chart and its data, which page.js brings together."""
    # Inside a script element only "<" can end it; JSON reads \u003c as the same character.
    data = json.dumps(chart, ensure_ascii=True, separators=(",", ":")).replace("<", "\\u003c")
    height = chart["layout"]["height"]
    return (
        f'<div class="chart" id="chart-{name}" style="min-height:{height}px" role="img" '
        f'aria-label="Chart: {description}"></div>'
        f'<script type="application/json" id="chart-{name}-data">{data}</script>'
    )
