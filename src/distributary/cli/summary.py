"""An evaluation as terminal text and as JSON."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.markup import escape
from rich.table import Table

from distributary.cost import Evaluation, Loads
from distributary.model import FloatArray, IntArray, LimitUse
from distributary.report import wording

if TYPE_CHECKING:
    from distributary.planning import MadePlan

__all__ = [
    "cost_table",
    "details_as_json",
    "duplication_sentence",
    "gap_sentence",
    "headline",
    "limit_table",
    "load_tables",
    "saving_lines",
    "unicast_sentence",
]

LARGEST_USEFUL_GAP = 1.0  # a plan that may cost twice the optimum: such a bound helps nobody


def details_as_json(
    evaluation: Evaluation, receivers: tuple[str, ...], session_group: IntArray
) -> dict[str, Any]:
    """List the loads of each group, session and receiver."""
    loads, in_bytes = evaluation.loads, evaluation.byte_loads
    return {
        "per_group": _rows(
            group=np.arange(evaluation.groups),
            sessions=loads.group_sessions,
            flows=loads.group_flows,
            members=loads.group_members,
            rate=loads.group_rate,
            **({} if in_bytes is None else {"byte_rate": in_bytes.group_rate}),
        ),
        "per_session": _rows(
            session=np.arange(evaluation.sessions),
            group=session_group,
            flows=loads.session_flows,
            subscribers=loads.session_subscribers,
            rate=loads.session_rate,
            **({} if in_bytes is None else {"byte_rate": in_bytes.session_rate}),
        ),
        "per_receiver": _rows(
            receiver=receivers,
            groups=loads.receiver_groups,
            sessions=loads.receiver_sessions,
            received=loads.received,
            accepted=loads.accepted,
            wanted=loads.wanted,
            **(
                {}
                if in_bytes is None
                else {
                    "received_bytes": in_bytes.received,
                    "accepted_bytes": in_bytes.accepted,
                    "wanted_bytes": in_bytes.wanted,
                }
            ),
        ),
    }


def headline(evaluation: Evaluation) -> str:
    """The headline of the plan's page, and the size of the plan."""
    return (
        f"{saving_lines(wording.headline(evaluation.filtering, valid=evaluation.valid))}\n"
        f"{evaluation.flows:,} flows to {evaluation.receivers:,} receivers in "
        f"{evaluation.sessions:,} sessions over {evaluation.groups:,} groups"
    )


def saving_lines(headline: str) -> str:
    """A page's headline for the terminal, followed by what it compares."""
    return f"[bold]{headline.replace(wording.NARROW_SPACE, '')}[/]\n{wording.SAVING_EXPLAINED}"


def unicast_sentence(evaluation: Evaluation) -> str:
    """Say how much goes by unicast, what it costs the sender and saves the receivers."""
    loads = evaluation.loads
    return (
        f"{evaluation.unicast_flows:,} flows go by unicast over {evaluation.unicast_links:,} links "
        f"at {_number(loads.unicast_rate)} messages/s, {_number(loads.unicast_extra_rate)} more "
        f"than one copy each; that saves {_number(evaluation.unicast_saving)} of Cx, summed over "
        "the flows one at a time"
    )


def duplication_sentence(evaluation: Evaluation) -> str:
    """Say how many flows travel in several sessions, and what that saves the receivers."""
    return (
        f"{evaluation.duplicated_flows:,} flows travel in several sessions; that saves "
        f"{_number(evaluation.duplication_saving)} of Cx, summed over the flows one at a time"
    )


def gap_sentence(made: MadePlan) -> str:
    """Say how far above the optimum the plan is at most, or that it is the best known.

    The percentage is rounded up, so that it is proven as printed.
    """
    if made.bound is None or made.gap is None or made.gap > LARGEST_USEFUL_GAP:
        return "best known; no useful bound of the optimum"
    cost = made.request.search.objective
    if made.gap == 0:
        return f"optimal: no plan that meets the request has a lower {cost} cost"
    share = math.ceil(made.gap * 1000) / 10
    return f"the {cost} cost is at most {share:.1f} % above the optimum (proven: {made.bound.how})"


def cost_table(evaluation: Evaluation) -> Table:
    """The costs of a plan beside the best possible and those without a plan."""
    filtering, channel, operating = evaluation.filtering, evaluation.channel, evaluation.operating
    table = Table(box=None, padding=(0, 2, 0, 0))
    first = "cost" if evaluation.count == "messages" else "cost, counting bytes"
    for column in (first, "this plan", "lower bound", "without a plan"):
        table.add_column(column, justify="left" if column == first else "right", no_wrap=True)
    table.add_row(
        "filtering work",
        _number(filtering.work),
        _number(filtering.wanted_work),
        f"{_number(filtering.wanted_work + filtering.flooding_excess)} flooding",
    )
    table.add_row(
        "  wasted (Cx)", _number(filtering.excess), "0",
        f"{_number(filtering.flooding_excess)} flooding",
    )  # fmt: skip
    table.add_row("  Cx/Cf", f"{filtering.relative_excess:.4f}", "0", "1")
    table.add_row(
        "channel cost", _number(channel.cost), _number(channel.lower_bound),
        f"{_number(channel.flooding)} flooding",
    )  # fmt: skip
    table.add_row(
        "operating cost", _number(operating.cost), "",
        f"{_number(operating.unclustered)} group per flow",
    )  # fmt: skip
    table.add_row(
        "goodput",
        f"{evaluation.goodput:.1%}",
        "100 %",
        f"{evaluation.flooding_goodput:.1%} flooding",
    )
    table.add_row(
        "copies sent", f"{_copies_sent(evaluation):.2f}", "1",
        f"{evaluation.unicast_copies:.2f} unicast",
    )  # fmt: skip
    return table


def load_tables(evaluation: Evaluation) -> list[Table]:
    """The distribution of load over groups, sessions and receivers, also in bytes where known."""
    in_bytes = evaluation.byte_loads
    return [
        _load_table("messages/s", evaluation.loads),
        *([] if in_bytes is None else [_load_table("bytes/s", in_bytes)]),
    ]


def _load_table(unit: str, loads: Loads) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in (unit, "min", "median", "mean", "90 %", "99 %", "max"):
        left = column == unit
        table.add_column(column, justify="left" if left else "right", no_wrap=True)
    for name, values in (
        ("carried by a group", loads.group_rate),
        ("carried by a session", loads.session_rate),
        ("received by a receiver", loads.received),
        ("  accepted by it", loads.accepted),
        ("  wanted", loads.wanted),
    ):
        table.add_row(name, *(_number(v) for v in _spread(values)))
    return table


def limit_table(uses: tuple[LimitUse, ...]) -> Table:
    """What the plan uses of each limit, where it uses most."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("limit", "used", "allowed", "where"):
        left = column in ("limit", "where")
        table.add_column(column, justify="left" if left else "right", no_wrap=True)
    for use in uses:
        table.add_row(use.limit, _number(use.used), _number(use.allowed), escape(use.where))
    return table


def _spread(values: FloatArray) -> list[float]:
    low, median, high, higher, top = np.quantile(values, [0, 0.5, 0.9, 0.99, 1])
    return [low, median, float(values.mean()), high, higher, top]


def _copies_sent(evaluation: Evaluation) -> float:
    """How often the sender sends a message, on average."""
    loads = evaluation.loads
    once = float(loads.wanted.sum()) / evaluation.unicast_copies
    return (float(loads.session_rate.sum()) + loads.unicast_rate) / once


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.4g}"


def _rows(**columns: Any) -> list[dict[str, Any]]:
    values = [c.tolist() if isinstance(c, np.ndarray) else c for c in columns.values()]
    return [dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)]
