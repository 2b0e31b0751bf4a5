"""The page's tables: costs, distributions, groups and the most loaded receivers."""

from __future__ import annotations

from html import escape

import numpy as np

from distributary.cost import Evaluation, Loads
from distributary.model import FloatArray, Plan
from distributary.report.deliveries import Wasted
from distributary.report.results import Report, comparison_rows
from distributary.report.wording import name, number, percent, seconds, table

__all__ = ["comparison_table", "cost_terms", "group_table", "receiver_table", "spread_table"]

MOST_GROUP_ROWS = 1_000
MOST_RECEIVER_ROWS = 20


def comparison_table(report: Report) -> str:
    """Flooding, unicast and every plan side by side; ours is marked."""
    rows = comparison_rows(report)
    most = max(row.sent_rate for row in rows)
    marked = []
    for row in rows:
        label = escape(row.name) + (' <span class="mark">this plan</span>' if row.chosen else "")
        marked.append(
            [
                label,
                number(row.sessions),
                number(row.groups),
                _bar(row.relative_excess, 1.0, f"{row.relative_excess:.3f}"),
                number(row.work),
                _bar(row.sent_rate, most, number(row.sent_rate)),
                number(row.channel_cost),
                seconds(row.seconds),
            ]
        )
    columns = [
        "",
        "sessions",
        "groups",
        "excess, of flooding’s<br>Cx/Cf",
        "filtering work/s<br>Cw",
        "sender puts out<br>messages/s",
        "channel cost/s<br>C",
        "planned in",
    ]
    return table(columns, marked, kind="comparison")


def cost_terms(report: Report) -> str:
    """Each cost in one sentence, with this plan's figure."""
    evaluation = report.evaluation
    filtering, channel, operating = evaluation.filtering, evaluation.channel, evaluation.operating
    prices = report.filtering_prices
    terms = (
        (
            "C1",
            filtering.session_cost,
            f"Session filter: every message that arrives costs α = {prices.alpha:g}, because "
            "a receiver gets all that its groups carry.",
        ),
        (
            "C2",
            filtering.flow_cost,
            f"Flow filter: every message of a subscribed session costs β = {prices.beta:g} "
            "more, wanted or not.",
        ),
        ("Cw", filtering.work, "All filtering work together: C1 + C2."),
        (
            "Cx",
            filtering.excess,
            "Excess: the part of Cw spent on messages their receiver did not ask for; the wanted "
            f"ones alone would cost {number(filtering.wanted_work)}.",
        ),
        (
            "Cf",
            filtering.flooding_excess,
            "Flooding’s excess: what Cx would be if everybody received everything.",
        ),
        (
            "Cx/Cf",
            filtering.relative_excess,
            "The measure of a plan: 0 is perfect, 1 is no better than flooding.",
        ),
        (
            "C",
            channel.cost,
            "Channel cost: what is received plus what is sent, each at its price; with a group for "
            f"every flow {number(channel.lower_bound)}, the least there is, and when flooding "
            f"{number(channel.flooding)}.",
        ),
        (
            "OC",
            operating.cost,
            "A topic broker’s operating cost, were each group a cluster: maintenance "
            f"{number(operating.maintenance)} and dissemination {number(operating.dissemination)}; "
            f"{number(operating.unclustered)} with a channel for every flow.",
        ),
    )
    return (
        '<dl class="terms">'
        + "".join(
            f'<div><dt>{term}</dt><dd class="figure">{number(value)}</dd>'
            f"<dd>{sentence}</dd></div>\n"
            for term, value, sentence in terms
        )
        + "</dl>"
    )


def spread_table(loads: Loads, delivered: FloatArray) -> str:
    """Percentiles over the receivers."""
    rows = (
        ("received, messages/s", loads.received),
        ("accepted by the session filter, messages/s", loads.accepted),
        ("wanted, messages/s", loads.wanted),
        ("thrown away, messages/s", np.maximum(loads.received - delivered, 0)),
        ("groups joined", loads.receiver_groups),
        ("sessions subscribed to", loads.receiver_sessions),
    )
    columns = ["per receiver", "min", "p10", "median", "mean", "p90", "p99", "max"]
    return table(
        columns,
        [
            [
                title,
                *(number(float(value)) for value in np.percentile(values, (0, 10, 50))),
                number(float(values.mean())),
                *(number(float(value)) for value in np.percentile(values, (90, 99, 100))),
            ]
            for title, values in rows
        ],
    )


def group_table(loads: Loads, wasted: Wasted) -> str:
    """Every group, heaviest first."""
    order = np.argsort(-loads.group_rate, kind="stable")
    rows = [
        [
            f"group {group}",
            number(int(loads.group_sessions[group])),
            number(int(loads.group_flows[group])),
            number(float(loads.group_rate[group])),
            number(int(loads.group_members[group])),
            percent(float(wasted.group[group])),
        ]
        for group in order[:MOST_GROUP_ROWS].tolist()
    ]
    columns = ["", "sessions", "flows", "messages/s", "members", "not asked for"]
    return table(columns, rows) + _more(len(order) - len(rows), "lighter groups")


def receiver_table(plan: Plan, evaluation: Evaluation, delivered: FloatArray) -> str:
    """The receivers that carry the most."""
    loads = evaluation.loads
    order = np.argsort(-loads.received, kind="stable")
    rows = [
        [
            name(plan.receivers[receiver]),
            number(float(loads.received[receiver])),
            number(float(loads.accepted[receiver])),
            number(float(loads.wanted[receiver])),
            percent(_share(float(delivered[receiver]), float(loads.received[receiver]))),
            number(int(loads.receiver_groups[receiver])),
            number(int(loads.receiver_sessions[receiver])),
        ]
        for receiver in order[:MOST_RECEIVER_ROWS].tolist()
    ]
    columns = ["", "received/s", "accepted/s", "wanted/s", "goodput", "groups", "sessions"]
    return table(columns, rows) + _more(len(order) - len(rows), "less loaded receivers")


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0


def _bar(value: float, most: float, text: str) -> str:
    width = 100 * min(max(_share(value, most), 0.0), 1.0)
    return f'<span class="bar"><i style="width:{width:.1f}%"></i></span>{text}'


def _more(count: int, what: str) -> str:
    return f'<p class="note">Not listed: {count:,} {what}.</p>' if count > 0 else ""
