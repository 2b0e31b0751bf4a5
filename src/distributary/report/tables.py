"""The page's tables: costs, distributions, groups and the most loaded receivers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from distributary.cost import Evaluation, Loads, PacketPrices
from distributary.model import FloatArray, Plan
from distributary.report.deliveries import Wasted
from distributary.report.rendering import PageTable, draw_bar, mark, show_name
from distributary.report.results import Report, comparison_rows
from distributary.report.wording import number, percent, seconds

__all__ = [
    "CostTerm",
    "comparison_table",
    "cost_terms",
    "group_table",
    "limit_table",
    "receiver_table",
    "spread_table",
]

MOST_GROUP_ROWS = 1_000
MOST_RECEIVER_ROWS = 20


@dataclass(frozen=True, slots=True)
class CostTerm:
    """A figure of the cost model, and what it means."""

    symbol: str
    value: float
    sentence: str


def comparison_table(report: Report) -> PageTable:
    """Compare flooding, unicast and all plans; the report's own plan is marked."""
    rows = comparison_rows(report)
    most = max(row.sent_rate for row in rows)
    cells = [
        [
            mark(row.name, "this plan") if row.chosen else row.name,
            number(row.sessions),
            number(row.groups),
            draw_bar(row.relative_excess, f"{row.relative_excess:.3f}"),
            number(row.work),
            draw_bar(_share(row.sent_rate, most), number(row.sent_rate)),
            number(row.channel_cost),
            seconds(row.seconds),
        ]
        for row in rows
    ]
    columns = [
        "",
        "sessions",
        "groups",
        "excess, of flooding’s\nCx/Cf",
        "filtering work/s\nCw",
        "sender sends\nmessages/s",
        "channel cost/s\nC",
        "planning time",
    ]
    return PageTable(columns, cells, kind="comparison")


def cost_terms(report: Report) -> list[CostTerm]:
    """List each cost with a sentence that explains it."""
    evaluation = report.evaluation
    filtering, channel, operating = evaluation.filtering, evaluation.channel, evaluation.operating
    terms = (
        (
            "C1",
            filtering.session_cost,
            f"Session filter: {_price_sentence(report, 'α')} of what arrives, because a receiver "
            "gets all that its groups carry.",
        ),
        (
            "C2",
            filtering.flow_cost,
            f"Flow filter: {_price_sentence(report, 'β')} of subscribed sessions, wanted or not.",
        ),
        ("Cw", filtering.work, "All filtering work together: C1 + C2."),
        (
            "Cx",
            filtering.excess,
            "Excess: the part of Cw spent on messages that the receiver does not want; the wanted "
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
            "Channel cost: what is received plus what is sent, each at its price. With a group for "
            f"every flow it would be {number(channel.lower_bound)}, the lower bound; with flooding "
            f"{number(channel.flooding)}.",
        ),
        (
            "OC",
            operating.cost,
            "A topic broker’s operating cost if each group were a cluster: maintenance "
            f"{number(operating.maintenance)} and dissemination {number(operating.dissemination)}; "
            f"{number(operating.unclustered)} with a channel for every flow.",
        ),
    )
    return [CostTerm(*term) for term in terms]


def _price_sentence(report: Report, symbol: str) -> str:
    """'every message costs α = 1', or what a message and a packet cost."""
    prices = report.filtering_prices
    at_first = symbol == "α"
    if isinstance(prices, PacketPrices):
        message, packet = (
            (prices.alpha0, prices.alpha1) if at_first else (prices.beta0, prices.beta1)
        )
        beats = ", heartbeats included," if at_first else ""
        return f"every message costs {message:.3g} and every packet{beats} {packet:.3g}"
    unit = "message" if report.evaluation.count == "messages" else "byte"
    return f"every {unit} costs {symbol} = {prices.alpha if at_first else prices.beta:g}"


def spread_table(loads: Loads, delivered: FloatArray, in_bytes: Loads | None = None) -> PageTable:
    """Percentiles over the receivers; also in bytes, if `in_bytes` has the loads in these."""
    rows = [
        ("received, messages/s", loads.received),
        ("accepted by the session filter, messages/s", loads.accepted),
        ("wanted, messages/s", loads.wanted),
        ("discarded, messages/s", np.maximum(loads.received - delivered, 0)),
        ("groups joined", loads.receiver_groups),
        ("sessions subscribed to", loads.receiver_sessions),
    ]
    if in_bytes is not None:
        rows += [
            ("received, bytes/s", in_bytes.received),
            ("accepted by the session filter, bytes/s", in_bytes.accepted),
            ("wanted, bytes/s", in_bytes.wanted),
        ]
    columns = ["per receiver", "min", "p10", "median", "mean", "p90", "p99", "max"]
    return PageTable(
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


def group_table(loads: Loads, wasted: Wasted, in_bytes: Loads | None = None) -> PageTable:
    """Every group, heaviest first; also in bytes, if `in_bytes` has the loads in these."""
    order = np.argsort(-loads.group_rate, kind="stable")
    rows = [
        [
            f"group {group}",
            number(int(loads.group_sessions[group])),
            number(int(loads.group_flows[group])),
            number(float(loads.group_rate[group])),
            *([] if in_bytes is None else [number(float(in_bytes.group_rate[group]))]),
            number(int(loads.group_members[group])),
            percent(float(wasted.group[group])),
        ]
        for group in order[:MOST_GROUP_ROWS].tolist()
    ]
    rates = ["messages/s"] if in_bytes is None else ["messages/s", "bytes/s"]
    columns = ["", "sessions", "flows", *rates, "members", "unwanted"]
    return PageTable(
        columns, rows, left_out=_describe_left_out(len(order) - len(rows), "lighter groups")
    )


def limit_table(report: Report) -> PageTable:
    """What the plan uses of each limit, where it uses most."""
    return PageTable(
        ["limit", "used", "allowed", "share", "where"],
        [
            [
                use.limit,
                number(use.used),
                number(use.allowed),
                draw_bar(min(use.share, 1.0), percent(use.share)),
                show_name(use.where),
            ]
            for use in report.limits
        ],
    )


def receiver_table(plan: Plan, evaluation: Evaluation, delivered: FloatArray) -> PageTable:
    """The receivers that receive the most."""
    loads = evaluation.loads
    order = np.argsort(-loads.received, kind="stable")
    rows = [
        [
            show_name(plan.receivers[receiver]),
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
    return PageTable(
        columns, rows, left_out=_describe_left_out(len(order) - len(rows), "less loaded receivers")
    )


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0


def _describe_left_out(count: int, what: str) -> str:
    return f"{count:,} {what}" if count > 0 else ""
