"""The plan as a tree: groups, the sessions in them, the flows in those."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

import numpy as np
import numpy.typing as npt

from distributary.cost import Loads
from distributary.model import Demand, FloatArray, IntArray, Plan
from distributary.report.charts import Chart, round_digits
from distributary.report.deliveries import Deliveries, Wasted
from distributary.report.palette import FLOW_DROPPED, WANTED
from distributary.report.wording import number, percent, plural, shorten

__all__ = ["Tree", "plan_tree"]

# A browser draws a few thousand rectangles without delay; nobody reads more.
MOST_GROUPS, MOST_SESSIONS, MOST_FLOWS = 200, 1_000, 3_000
MOST_FLOWS_PER_SESSION = 12


@dataclass(frozen=True, slots=True)
class Tree:
    """The treemap, and a sentence about what it leaves out, or an empty one."""

    chart: Chart
    left_out: str


@dataclass(frozen=True, slots=True)
class _Node:
    """One rectangle. The area of a leaf is its rate; a branch has rate 0 and that of its leaves.

    `tile` is the text on the rectangle, `label` its full name; both are escaped.
    """

    id: str
    parent: str
    label: str
    tile: str
    rate: float
    wasted: float
    hover: str


def plan_tree(
    plan: Plan, demand: Demand, loads: Loads, deliveries: Deliveries, wasted: Wasted
) -> Tree:
    """Draw the heaviest groups, sessions and flows; the rest become leaves with their number."""
    groups = _heaviest(np.zeros(plan.n_groups, np.int64), loads.group_rate, MOST_GROUPS)
    sessions = _heaviest(
        plan.session_group, loads.session_rate, max(1, MOST_SESSIONS // len(groups.kept))
    ).inside(groups, plan.session_group)
    placements = _heaviest(
        plan.placement_session,
        demand.rate[plan.placement_flow],
        min(MOST_FLOWS_PER_SESSION, max(1, MOST_FLOWS // len(sessions.kept))),
    ).inside(sessions, plan.placement_session)
    root = _Node("plan", "", "all groups", "", 0.0, wasted.overall, plural(plan.n_groups, "group"))
    nodes = [
        root,
        *_group_nodes(groups, loads, wasted),
        *_session_nodes(sessions, plan, loads, wasted),
        *_flow_nodes(placements, plan, demand, loads, deliveries, wasted),
    ]
    return Tree(
        _treemap(nodes),
        _describe_left_out(
            (len(groups.kept), plan.n_groups, "group"),
            (len(sessions.kept), plan.n_sessions, "session"),
            (len(placements.kept), len(plan.placement_flow), "flow"),
        ),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Heaviest:
    """The heaviest children of each parent; of the others the number and the rate."""

    kept: IntArray
    rest: dict[int, tuple[int, float]]

    def inside(self, parents: _Heaviest, parent: npt.NDArray[np.integer]) -> _Heaviest:
        """Keep only children whose parent is kept."""
        known = set(parents.kept.tolist())
        return _Heaviest(
            self.kept[np.isin(parent[self.kept], parents.kept)],
            {at: rest for at, rest in self.rest.items() if at in known},
        )


def _heaviest(parent: npt.NDArray[np.integer], rate: FloatArray, most: int) -> _Heaviest:
    order = np.lexsort((-rate, parent))
    parents = parent[order]
    nth = np.arange(len(order)) - np.searchsorted(parents, parents)
    others = order[nth >= most]
    counts = np.bincount(parent[others])
    rates = np.bincount(parent[others], weights=rate[others])
    return _Heaviest(
        kept=order[nth < most],
        rest={int(at): (int(counts[at]), float(rates[at])) for at in np.flatnonzero(counts)},
    )


def _group_nodes(groups: _Heaviest, loads: Loads, wasted: Wasted) -> Iterator[_Node]:
    for group in groups.kept.tolist():
        rate = number(float(loads.group_rate[group]))
        yield _Node(
            f"g{group}",
            "plan",
            f"group {group}",
            f"group {group}",
            0.0,
            float(wasted.group[group]),
            f"{plural(int(loads.group_sessions[group]), 'session')}, "
            f"{plural(int(loads.group_flows[group]), 'flow')}<br>{rate} messages/s<br>"
            f"{plural(int(loads.group_members[group]), 'member')}, who do not want "
            f"{percent(float(wasted.group[group]))} of it",
        )
    for count, rest in groups.rest.values():
        yield _more("plan", count, "group", rest, wasted.overall)


def _session_nodes(
    sessions: _Heaviest, plan: Plan, loads: Loads, wasted: Wasted
) -> Iterator[_Node]:
    for session in sessions.kept.tolist():
        yield _Node(
            f"s{session}",
            f"g{plan.session_group[session]}",
            f"session {session}",
            f"s{session}",
            0.0,
            float(wasted.session[session]),
            f"{plural(int(loads.session_flows[session]), 'flow')}<br>"
            f"{number(float(loads.session_rate[session]))} messages/s<br>"
            f"{plural(int(loads.session_subscribers[session]), 'subscriber')}, who do not "
            f"want {percent(float(wasted.session[session]))} of it",
        )
    for group, (count, rate) in sessions.rest.items():
        yield _more(f"g{group}", count, "session", rate, float(wasted.group[group]))


def _flow_nodes(
    placements: _Heaviest,
    plan: Plan,
    demand: Demand,
    loads: Loads,
    deliveries: Deliveries,
    wasted: Wasted,
) -> Iterator[_Node]:
    for placement in placements.kept.tolist():
        session, flow = plan.placement_session[placement], plan.placement_flow[placement]
        label = escape(shorten(plan.flows[flow]))
        yield _Node(
            f"s{session}/{flow}",
            f"s{session}",
            label,
            label,
            float(demand.rate[flow]),
            float(wasted.placement[placement]),
            f"{number(float(demand.rate[flow]))} messages/s<br>"
            f"wanted by {int(deliveries.placement_audience[placement]):,} of "
            f"{plural(int(loads.session_subscribers[session]), 'subscriber')}",
        )
    for session, (count, rate) in placements.rest.items():
        yield _more(f"s{session}", count, "flow", rate, float(wasted.session[session]))


def _more(parent: str, count: int, noun: str, rate: float, wasted: float) -> _Node:
    label = f"{count:,} more {noun}{'' if count == 1 else 's'}"
    hover = f"not drawn<br>{number(rate)} messages/s"
    return _Node(f"{parent}/more", parent, label, label, rate, wasted, hover)


def _treemap(nodes: list[_Node]) -> Chart:
    trace = {
        "type": "treemap",
        "ids": [node.id for node in nodes],
        "parents": [node.parent for node in nodes],
        "labels": [node.label for node in nodes],
        "text": [node.tile for node in nodes],
        "values": [round_digits(node.rate) for node in nodes],
        "branchvalues": "remainder",
        "hovertext": [f"<b>{node.label}</b><br>{node.hover}" for node in nodes],
        "hovertemplate": "%{hovertext}<extra></extra>",
        "textinfo": "text",
        # Flows are shown on a click, unless there is room for them at once.
        "maxdepth": 3 if len(nodes) > 150 else 4,
        "marker": {
            "colors": [round(node.wasted, 4) for node in nodes],
            # The whole range, so that the colours of two reports can be compared.
            "cmin": 0,
            "cmax": 1,
            "colorscale": [[0, WANTED], [0.5, "#d9d3c5"], [1, FLOW_DROPPED]],
            "showscale": True,
            "colorbar": {
                "title": {"text": "unwanted", "side": "right"},
                "tickformat": ".0%",
                "thickness": 10,
                "len": 0.6,
                "outlinewidth": 0,
            },
            "pad": {"t": 20, "l": 2, "r": 2, "b": 2},
        },
        "tiling": {"pad": 3},
        "pathbar": {"side": "top"},
    }
    layout = {
        "height": 640,
        "margin": {"l": 0, "r": 0, "t": 28, "b": 0},
        "uniformtext": {"minsize": 9, "mode": "hide"},
    }
    return {"data": [trace], "layout": layout}


def _describe_left_out(*levels: tuple[int, int, str]) -> str:
    short = [
        f"the {drawn:,} heaviest of {plural(all_, noun)}"
        for drawn, all_, noun in levels
        if drawn < all_
    ]
    return f"It shows {', '.join(short)}; the rest are “n more” leaves." if short else ""
