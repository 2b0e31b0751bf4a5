"""The interactive charts, as Plotly figures in plain dictionaries.

The page sets the colours of text, grid and background, since it knows whether it is dark.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from distributary.cost import Loads
from distributary.model import FloatArray, IntArray
from distributary.planning import CurvePoint
from distributary.report.palette import ACCENTS, FLOW_DROPPED, MISSED, SESSION_DROPPED, WANTED
from distributary.report.wording import number

__all__ = [
    "Chart",
    "curve_chart",
    "group_chart",
    "intake_chart",
    "round_digits",
    "spread_chart",
]

# Plotly's own JSON: {"data": [...], "layout": {...}}.
Chart = dict[str, Any]

_MOST_BARS = 150
_MOST_STEPS = 500


def round_digits(value: float) -> float:
    """Round to six significant digits: all that a chart shows, in half the bytes."""
    return float(f"{value:.6g}")


def group_chart(loads: Loads) -> Chart:
    """Chart the rate and the members of each group, the heaviest first."""
    order = np.argsort(-loads.group_rate, kind="stable")
    x = list(range(1, len(order) + 1))
    names = [f"group {group}" for group in order]
    panels = (
        ("messages/s", loads.group_rate[order], "y", ACCENTS[2], "%{y:,.4~g} messages/s"),
        ("members", loads.group_members[order], "y2", ACCENTS[3], "%{y:,} members"),
    )
    data = [
        {
            "type": "bar",
            "x": x,
            "y": _round_all(values),
            "yaxis": axis,
            "name": title,
            "text": names,
            "textposition": "none",
            "marker": {"color": colour},
            "hovertemplate": f"%{{text}}<br>{hover}<extra></extra>",
        }
        for title, values, axis, colour, hover in panels
    ]
    layout = {
        "height": 380,
        "margin": _MARGIN,
        "showlegend": False,
        "bargap": 0.15 if len(order) <= 200 else 0,
        "xaxis": {**_count_axis("groups, heaviest first", len(order)), "anchor": "y2"},
        "yaxis": {"title": {"text": "messages/s"}, "domain": [0.54, 1], **_FROM_ZERO},
        "yaxis2": {"title": {"text": "members"}, "domain": [0, 0.46], **_FROM_ZERO},
    }
    return {"data": data, "layout": layout}


def spread_chart(loads: Loads) -> Chart:
    """Chart the distribution over receivers of the wanted, accepted and received rates."""
    lines = (
        ("wanted", loads.wanted, WANTED, "solid"),
        ("accepted", loads.accepted, FLOW_DROPPED, "dash"),
        ("received", loads.received, SESSION_DROPPED, "solid"),
    )
    data = []
    for title, values, colour, dash in lines:
        x, share = _ecdf(values)
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": title,
                "x": _round_all(x),
                "y": _round_all(share),
                "line": {"color": colour, "dash": dash, "width": 2.5, "shape": "hv"},
                "hovertemplate": "%{y:.1%} of receivers: at most %{x:,.4~g} messages/s"
                f"<extra>{title}</extra>",
            }
        )
    every = np.concatenate([values for _, values, _, _ in lines])
    layout = {
        "height": 380,
        "margin": _MARGIN,
        "legend": _LEGEND,
        "xaxis": {"title": {"text": "messages/s per receiver"}, **_logarithmic_if_wide(every)},
        "yaxis": {
            "title": {"text": "share of receivers"},
            "tickformat": ".0%",
            "range": [0, 1.02],
            "automargin": True,
        },
    }
    return {"data": data, "layout": layout}


def intake_chart(loads: Loads, delivered: FloatArray) -> Chart:
    """Chart what becomes of the messages of each receiver, the most loaded first.

    More than 150 receivers are drawn as 100 equal parts, each by its mean.
    """
    order = np.argsort(-loads.received, kind="stable")
    parts = [order[[at]] for at in range(len(order))]
    if len(order) > _MOST_BARS:
        parts = np.array_split(order, 100)
    layers = (
        ("wanted", delivered, WANTED),
        ("flow filter drops", loads.accepted - delivered, FLOW_DROPPED),
        ("session filter drops", loads.received - loads.accepted, SESSION_DROPPED),
    )
    single = len(parts) == len(order)
    data = [
        {
            "type": "bar",
            "name": title,
            "x": list(range(1, len(parts) + 1)),
            # Differences of sums may be slightly below 0 by rounding.
            "y": _round_all(np.array([max(float(values[part].mean()), 0.0) for part in parts])),
            "marker": {"color": colour, "line": {"width": 0}},
            "hovertemplate": "%{y:,.4~g} messages/s",
        }
        for title, values, colour in layers
    ]
    title = "receivers, most loaded first" + ("" if single else " (hundredths, by their mean)")
    layout = {
        "height": 380,
        "margin": _MARGIN,
        "legend": _LEGEND,
        "barmode": "stack",
        "bargap": 0.1 if len(parts) <= 40 else 0,
        "hovermode": "x unified",
        "xaxis": _count_axis(title, len(parts)),
        "yaxis": {"title": {"text": "messages/s"}, **_FROM_ZERO},
    }
    return {"data": data, "layout": layout}


def curve_chart(curve: Sequence[CurvePoint], chosen: CurvePoint) -> Chart:
    """Chart the excess by the number of groups, a line for each number of sessions."""
    data: list[dict[str, Any]] = []
    for nth, (title, points) in enumerate(_lines(curve).items()):
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": title,
                "x": [point.groups for point in points],
                "y": _round_all(np.array([point.relative_excess for point in points])),
                "text": [f"{point.sessions:,} sessions" for point in points],
                "line": {"color": ACCENTS[nth % len(ACCENTS)], "width": 2.5},
                "marker": {"size": 7},
                "hovertemplate": "%{x:,} groups, %{text}<br>Cx/Cf %{y:.3f}<extra></extra>",
            }
        )
    data.append(
        {
            "type": "scatter",
            "mode": "markers",
            "name": "this plan",
            "x": [chosen.groups],
            "y": [round_digits(chosen.relative_excess)],
            "marker": {"symbol": "diamond", "size": 14, "color": MISSED},
            "hovertemplate": f"this plan: %{{x:,}} groups, {chosen.sessions:,} sessions"
            "<br>Cx/Cf %{y:.3f}<extra></extra>",
        }
    )
    groups = sorted({chosen.groups, *(point.groups for point in curve)})
    wide = groups[-1] > 8 * groups[0]
    layout = {
        "height": 400,
        "margin": _MARGIN,
        "legend": _LEGEND,
        "xaxis": {
            "title": {"text": "groups"},
            "type": "log" if wide else "linear",
            "tickvals": groups if len(groups) <= 12 else None,
            "automargin": True,
        },
        "yaxis": {
            "title": {"text": "excess, of flooding’s (Cx/Cf)"},
            "tickformat": ".0%",
            **_FROM_ZERO,
        },
    }
    return {"data": data, "layout": layout}


_MARGIN = {"l": 64, "r": 16, "t": 16, "b": 48}
_LEGEND = {"traceorder": "normal", "orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"}
_FROM_ZERO = {"rangemode": "tozero", "automargin": True}


def _count_axis(title: str, count: int) -> dict[str, Any]:
    """An axis of ranks: whole numbers from 1."""
    return {
        "title": {"text": title},
        "range": [0.4, count + 0.6],
        "tickvals": list(range(1, count + 1)) if count <= 12 else None,
        "tickformat": ",d",
        "automargin": True,
        "showgrid": False,
    }


def _lines(curve: Sequence[CurvePoint]) -> dict[str, list[CurvePoint]]:
    """Group the points into lines by sessions, or by sessions per group if that gives fewer."""
    ordered = sorted(curve, key=lambda point: (point.sessions, point.groups))
    by_sessions: dict[str, list[CurvePoint]] = {}
    by_ratio: dict[str, list[CurvePoint]] = {}
    for point in ordered:
        by_sessions.setdefault(f"{point.sessions:,} sessions", []).append(point)
    for point in sorted(ordered, key=lambda point: (point.sessions / point.groups, point.groups)):
        ratio = f"{point.sessions / point.groups:.3g}"
        ratio += f" session{'' if ratio == '1' else 's'} per group"
        by_ratio.setdefault(ratio, []).append(point)
    return by_sessions if len(by_sessions) <= len(by_ratio) else by_ratio


def _ecdf(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The steps of the empirical distribution function, thinned out for drawing."""
    ordered, n = np.sort(values), len(values)
    at = np.unique(np.linspace(0, n - 1, min(n, _MOST_STEPS)).round().astype(np.int64))
    return np.r_[ordered[0], ordered[at]], np.r_[0.0, (at + 1) / n]


def _logarithmic_if_wide(values: FloatArray) -> dict[str, Any]:
    if values.min() > 0 and values.max() > 50 * values.min():
        ticks = [
            step * 10.0**power
            for power in range(-12, 13)
            for step in (1, 2, 5)
            if 0.5 * values.min() <= step * 10.0**power <= 2 * values.max()
        ]
        if len(ticks) > 12:
            ticks = [tick for tick in ticks if f"{tick:e}".startswith("1")]
        return {
            "type": "log",
            "automargin": True,
            "tickvals": ticks,
            "ticktext": [number(tick) for tick in ticks],
        }
    return {"range": [0, 1.05 * float(values.max())], "automargin": True}


def _round_all(values: FloatArray | IntArray) -> list[float]:
    return [round_digits(value) for value in values.tolist()]
