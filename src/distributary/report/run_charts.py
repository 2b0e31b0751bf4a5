"""The charts of a run: messages minute by minute, and the share that receivers discard."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from distributary.model import FloatArray
from distributary.report.charts import Chart, round_digits
from distributary.report.palette import ACCENTS, FLOW_DROPPED, SESSION_DROPPED, WANTED
from distributary.report.wording import NARROW_SPACE

__all__ = ["Bins", "bin_minutes", "minutes_chart", "numbers", "shares_chart"]

MOST_BINS = 300

_PARTS = {
    "wanted": ("wanted", WANTED),
    "dropped_by_flow": ("flow filter drops", FLOW_DROPPED),
    "dropped_by_session": ("session filter drops", SESSION_DROPPED),
}
_BIN_MINUTES = (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720)
_DAY = 24 * 60
_MARGIN = {"l": 64, "r": 16, "t": 16, "b": 48}
_COUNTS = {
    "rangemode": "tozero",
    "automargin": True,
    "separatethousands": True,
    "exponentformat": "none",
}


def numbers(rows: pa.Table, column: str) -> FloatArray:
    """A column of numbers; 0 for missing values or a missing column."""
    if column not in rows.column_names:
        return np.zeros(rows.num_rows)
    return np.asarray(rows[column].cast(pa.float64()).fill_null(0).to_numpy(), np.float64)


@dataclass(frozen=True, slots=True)
class Bins:
    """The span of a log in equal steps, each part in messages per minute."""

    step: int  # minutes
    starts: list[str]
    end: str
    length: int  # minutes from the first message to the last, both included
    parts: dict[str, FloatArray]


def bin_minutes(minutes: pa.Table) -> Bins:
    """Bin the minutes of a replay, of which there is at least one, into few enough steps."""
    kind = pa.timestamp("us", tz=minutes["minute"].type.tz)
    at = minutes["minute"].cast(kind).cast(pa.int64()).to_numpy() // 60_000_000
    first, last = int(at.min()), int(at.max())
    step = _choose_step(first, last)
    bins = np.arange(first // step, last // step + 1)
    # The first and last bins may extend beyond the log; their means count only its minutes.
    covered = np.minimum(last + 1, (bins + 1) * step) - np.maximum(first, bins * step)
    parts = {
        part: np.bincount(at // step - bins[0], numbers(minutes, part), len(bins)) / covered
        for part in _PARTS
    }
    starts = [str(start) for start in (bins * step).astype("datetime64[m]")]
    end = str(np.datetime64(int(bins[-1] + 1) * step, "m"))
    return Bins(step, starts, end, last - first + 1, parts)


def _choose_step(first: int, last: int) -> int:
    """The shortest round step that gives few enough bars."""
    for step in _BIN_MINUTES:
        if last // step - first // step < MOST_BINS:
            return step
    days = -(-(last - first + 1) // _DAY)
    return _DAY * -(-days // (MOST_BINS - 1))


def minutes_chart(bins: Bins, flooding: float | None) -> Chart:
    """Chart messages received per minute, wanted or dropped, and flooding's mean if given."""
    data: list[dict[str, Any]] = [
        {
            "type": "bar",
            "name": label,
            "x": bins.starts,
            "y": [round_digits(value) for value in bins.parts[part].tolist()],
            "offset": 0,
            "width": bins.step * 60_000,
            "marker": {"color": colour, "line": {"width": 0}},
            "hovertemplate": "%{y:,.4~r} a minute",
        }
        for part, (label, colour) in _PARTS.items()
    ]
    if flooding is not None:
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": "flooding, on average",
                "x": [bins.starts[0], bins.end],
                "y": [round_digits(flooding)] * 2,
                "line": {"color": ACCENTS[3], "dash": "dash", "width": 2},
                "hoverinfo": "skip",
            }
        )
    layout = {
        "height": 380,
        "margin": _MARGIN,
        "legend": {
            "traceorder": "normal",
            "orientation": "h",
            "x": 0,
            "y": 1.02,
            "yanchor": "bottom",
        },
        "barmode": "stack",
        "hovermode": "x unified",
        "xaxis": {"type": "date", "range": [bins.starts[0], bins.end], "automargin": True},
        "yaxis": {"title": {"text": "messages a minute"}, **_COUNTS},
    }
    return {"data": data, "layout": layout}


def shares_chart(shares: FloatArray) -> Chart:
    """Chart how many receivers discard which share, in steps of 5 %."""
    counts, edges = np.histogram(shares, bins=20, range=(0.0, 1.0))
    data = [
        {
            "type": "bar",
            "x": [round_digits(edge) for edge in edges[:-1].tolist()],
            "y": counts.tolist(),
            "offset": 0,
            "width": 0.05,
            "text": [f"{5 * nth} to {5 * nth + 5}{NARROW_SPACE}%" for nth in range(20)],
            "textposition": "none",
            "marker": {"color": ACCENTS[2]},
            "hovertemplate": "%{y:,} receivers discard %{text}<extra></extra>",
        }
    ]
    layout = {
        "height": 300,
        "margin": _MARGIN,
        "showlegend": False,
        "bargap": 0,
        "xaxis": {
            "title": {"text": "share of received messages that is discarded"},
            "range": [0, 1.005],
            "tickformat": ".0%",
            "tickvals": [tenth / 10 for tenth in range(11)],
            "automargin": True,
        },
        "yaxis": {"title": {"text": "receivers"}, **_COUNTS},
    }
    return {"data": data, "layout": layout}
