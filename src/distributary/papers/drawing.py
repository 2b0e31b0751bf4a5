"""Charts as SVG text: one look for all figures, one colour and marker per algorithm.

The same data gives the same bytes: identifiers are salted with the figure's name and no date is
written. Text is drawn as shapes, so that a chart looks the same wherever it is opened.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from distributary.model import FloatArray

if TYPE_CHECKING:  # Matplotlib is slow to load, so only `draw_chart` imports it
    from matplotlib.axes import Axes

__all__ = [
    "COLOURS",
    "INK",
    "MARKS",
    "QUIET",
    "Sheet",
    "draw_chart",
    "draw_curves",
    "draw_dots",
    "draw_legend",
    "draw_stars",
]

INK = "#22272e"
QUIET = "#8b9299"
MOST_IN_A_ROW = 8  # of a legend; it has two rows from there on

COLOURS: Mapping[str, str] = {
    "FBM": "#2f74c0",
    "UBM": "#cf8417",
    "RAN": "#8b9299",
    "RSE": "#a5549b",
    "RRE": "#2a9179",
    "OCC": "#22272e",
    "OCA": "#d1361c",
    "SF": "#cf8417",
    "GF": "#2f74c0",
    "IT": "#2a9179",
    "RRA": "#a5549b",
    "best": "#8f1d14",
}
MARKS: Mapping[str, str] = {
    "FBM": "o",
    "UBM": "s",
    "RAN": "x",
    "RSE": "^",
    "RRE": "v",
    "OCC": "+",
    "OCA": "_",
    "SF": "s",
    "GF": "o",
    "IT": "v",
    "RRA": "D",
    "best": "*",
}

_STYLE = {
    "font.size": 9.5,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.edgecolor": QUIET,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e7ea",
    "grid.linewidth": 0.7,
    "text.color": INK,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "lines.linewidth": 1.6,
    "lines.markersize": 4,
    "legend.frameon": False,
    "figure.constrained_layout.w_pad": 0.09,  # inches
    "figure.constrained_layout.h_pad": 0.09,
    "svg.fonttype": "path",
}


@dataclass(frozen=True, slots=True)
class Sheet:
    """The panels to paint on, row by row."""

    panels: list[Axes]


def draw_chart(
    name: str,
    title: str,
    size: tuple[float, float],
    paint: Callable[[Sheet], None],
    *,
    shape: tuple[int, int] = (1, 1),
    heights: Sequence[float] | None = None,
) -> str:
    """Draw a chart of the given size (inches) and shape (rows x columns) as SVG, with `paint`."""
    import matplotlib.style
    from matplotlib.figure import Figure

    with matplotlib.style.context(["default", {**_STYLE, "svg.hashsalt": name}]):
        drawing = Figure(figsize=size, layout="constrained")
        panels = drawing.subplots(*shape, squeeze=False, height_ratios=heights)
        paint(Sheet(list(panels.flat)))
        file = io.StringIO()
        drawing.savefig(
            file, format="svg", metadata={"Date": None, "Creator": None, "Title": title}
        )
    return file.getvalue()


def draw_curves(
    axes: Axes, x: Sequence[float], lines: Mapping[str, FloatArray], title: str = ""
) -> None:
    """Draw one line per algorithm, in its colour and with its marker."""
    for algorithm, y in lines.items():
        axes.plot(x, y, color=COLOURS[algorithm], marker=MARKS[algorithm], label=algorithm)
    axes.set_title(title)


def draw_dots(axes: Axes, algorithm: str, x: FloatArray, y: FloatArray) -> None:
    """Draw one hollow marker per point, in the algorithm's colour."""
    mark, colour = MARKS[algorithm], COLOURS[algorithm]
    axes.plot(
        x,
        y,
        linestyle="none",
        marker=mark,
        markersize=5 if mark in "osv^D" else 7,
        markeredgewidth=1.1,
        markeredgecolor=colour,
        markerfacecolor="none",
        label=algorithm,
    )


def draw_stars(axes: Axes, algorithm: str, x: Sequence[float], y: FloatArray) -> None:
    """Draw single points of an algorithm that is not on the whole curve, large enough to see."""
    colour, mark = COLOURS[algorithm], MARKS[algorithm]
    axes.plot(x, y, color=colour, marker=mark, linestyle="none", markersize=9, label=algorithm)


def draw_legend(sheet: Sheet, at: int = 0, columns: int = 0) -> None:
    """Draw one legend for the whole sheet, with the labels of one of its panels."""
    panel = sheet.panels[at]
    handles, labels = panel.get_legend_handles_labels()
    if not columns:
        columns = len(labels) if len(labels) < MOST_IN_A_ROW else -(-len(labels) // 2)
    panel.figure.legend(handles, labels, loc="outside upper center", ncols=columns)
