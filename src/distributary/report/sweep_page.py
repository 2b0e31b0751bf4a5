"""The page about a sweep, with its sentences and charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from distributary import __version__
from distributary.extras import require
from distributary.planning.sweep import SweepCurve, SweepPoint, SweepResult
from distributary.report.charts import Chart, round_digits
from distributary.report.palette import ACCENTS, MISSED, SESSION_DROPPED
from distributary.report.rendering import PageTable, draw_bar, mark, render_page
from distributary.report.wording import NARROW_SPACE, number, percent, plural, prices_in_words

__all__ = ["knee_sentence", "notes_on", "render_sweep", "sweep_chart"]


def render_sweep(
    result: SweepResult, title: str, parameters: Mapping[str, str], command: str
) -> str:
    """Render one HTML page about a sweep that has points; the same result gives the same text.

    Measured seconds are left out, so that a repeated run gives the same page.
    """
    require("report")
    return render_page(
        "sweep.html",
        kind="sweep",
        title=title,
        headline=_headline(result.curves),
        lead=_lead(result),
        panels=_panels(result.curves),
        curves=[
            {"name": _name(result, curve), "knee": knee_sentence(curve), "table": _table(curve)}
            for curve in result.curves
        ],
        notes=notes_on(result),
        facts=_facts(result, parameters),
        command=command,
    )


def knee_sentence(curve: SweepCurve) -> str:
    """Say where the knee of a curve is and what it means, or why there is none."""
    first, last, knee = curve.points[0], curve.points[-1], curve.knee
    if len(curve.points) < 3:
        return "no knee: finding one takes at least 3 numbers of groups"
    if knee is None:
        saved = first.relative_excess - min(point.relative_excess for point in curve.points)
        return (
            f"no knee: all groups from {first.groups:,} to {last.groups:,} together save "
            f"{_share(saved)} of what flooding wastes, and the first of them save hardly more than "
            "the last"
        )
    step = 10 if last.groups - knee.groups >= 10 else 1
    more = "ten more groups save" if step == 10 else "one more group saves"
    messages = number(step * knee.share_after * first.flooding_excess)
    saving = (
        f"at most {_share(step * knee.share_after)} of what flooding wastes ({messages} messages/s)"
        if knee.share_after > 0
        else "nothing"
    )
    return (
        f"from {knee.groups:,} groups on, {more} {saving}; up to there "
        f"{'ten' if step == 10 else 'one'} saved {_share(step * knee.share_before)}"
    )


def notes_on(result: SweepResult) -> list[str]:
    """List which combinations were not planned as asked, and which points need a caveat."""
    worse = sum(point.worse for point in result.points)
    idle = sum(point.used_sessions < point.sessions for point in result.points)
    cut_short = sum(point.cut_short for point in result.points)
    cases = (
        (
            result.capped,
            f"with more groups or sessions than the {result.flows:,} flows: reduced",
        ),
        (result.repeated, "that repeat another: planned once"),
        (result.skipped, "with fewer sessions than groups: skipped"),
    )
    notes = [f"{count:,} of {result.asked:,} combinations {what}" for count, what in cases if count]
    notes += [
        f"with {point.groups:,} groups and {point.sessions:,} sessions there is no plan: "
        f"{point.reason}"
        for point in result.infeasible
    ]
    if worse:
        are = "1 point is" if worse == 1 else f"{worse:,} points are"
        notes.append(
            f"{are} worse than one with fewer groups: the algorithm missed the better plan, since "
            "a plan for fewer groups can always be used"
        )
    if idle:
        notes.append(f"at {plural(idle, 'point')} the plan has fewer sessions than allowed")
    if cut_short:
        notes.append(
            f"the search was cut short at {plural(cut_short, 'point')}: a longer budget may save "
            "more, and another run may give another plan"
        )
    return notes


def sweep_chart(curves: Sequence[SweepCurve], highest: float) -> Chart:
    """Chart the curves of one pair of prices; `highest` is the common scale of all charts."""
    data: list[dict[str, Any]] = [_line(nth, curve) for nth, curve in enumerate(curves)]
    knees = [
        point
        for curve in curves
        for point in curve.points
        if curve.knee and point.groups == curve.knee.groups
    ]
    worse = [point for curve in curves for point in curve.points if point.worse]
    data.append(_marks("knee", knees, {"symbol": "diamond", "size": 14, "color": MISSED}))
    cross = {"symbol": "x", "size": 11, "color": SESSION_DROPPED}
    data.append(_marks("worse than fewer groups", worse, cross))
    groups = sorted({point.groups for curve in curves for point in curve.points})
    # The knee is found on a linear axis; on a logarithmic one it may not look like a knee.
    wide = groups[-1] > 50 * groups[0]
    layout = {
        "height": 420,
        "margin": {"l": 64, "r": 16, "t": 16, "b": 48},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        "xaxis": {
            "title": {"text": "groups"},
            "type": "log" if wide else "linear",
            "tickvals": groups if wide and len(groups) <= 12 else None,
            "automargin": True,
        },
        "yaxis": {
            "title": {"text": "excess, of flooding’s (Cx/Cf)"},
            "tickformat": ".0%",
            "range": [0, round_digits(1.06 * highest) or 1],
            "automargin": True,
        },
    }
    return {"data": data, "layout": layout}


def _line(nth: int, curve: SweepCurve) -> dict[str, Any]:
    dash = ("solid", "dash", "dot")[nth // len(ACCENTS) % 3]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": curve.limit.label,
        "line": {"color": ACCENTS[nth % len(ACCENTS)], "width": 2.5, "dash": dash},
        "marker": {"size": 7},
        **_places(curve.points),
    }


def _marks(name: str, points: Sequence[SweepPoint], marker: dict[str, Any]) -> dict[str, Any]:
    """Mark points to look at; the page's text explains the marks."""
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "showlegend": False,
        "marker": marker,
        **_places(points),
    }


def _places(points: Sequence[SweepPoint]) -> dict[str, Any]:
    return {
        "x": [point.groups for point in points],
        "y": [round_digits(point.relative_excess) for point in points],
        "text": [f"{point.sessions:,} sessions" for point in points],
        "hovertemplate": "%{x:,} groups, %{text}<br>Cx/Cf %{y:.4f}<extra></extra>",
    }


def _panels(curves: Sequence[SweepCurve]) -> list[dict[str, Any]]:
    """A chart for each pair of prices."""
    highest = max(point.relative_excess for curve in curves for point in curve.points)
    return [
        {"prices": prices_in_words(prices), "chart": sweep_chart([*panel], highest)}
        for prices, panel in groupby(curves, key=lambda curve: curve.prices)
    ]


def _table(curve: SweepCurve) -> PageTable:
    columns = [
        "groups",
        "sessions",
        "excess, of flooding’s\nCx/Cf",
        "saved, of flooding’s",
        "excess, messages/s\nat their prices",
        "each added group saved\nmessages/s at their prices",
        "\nof flooding’s",
    ]
    return PageTable(columns, [_row(curve, point) for point in curve.points])


def _row(curve: SweepCurve, point: SweepPoint) -> list[str]:
    groups = f"{point.groups:,}"
    if curve.knee and point.groups == curve.knee.groups:
        groups = mark(groups, "knee")
    if point.worse:
        groups = mark(groups, f"worse than {point.compared_with:,}", kind="note")
    if point.used_groups < point.groups:
        groups = mark(groups, f"uses {point.used_groups:,}", kind="note")
    share = point.saved_share_per_group
    return [
        groups,
        f"{point.sessions:,}",
        draw_bar(point.relative_excess, f"{point.relative_excess:.4f}"),
        percent(1 - point.relative_excess),
        number(point.excess),
        number(point.saved_per_group),
        "–" if share is None else _share(share),
    ]


def _headline(curves: Sequence[SweepCurve]) -> str:
    knees = sorted({curve.knee.groups for curve in curves if curve.knee})
    groups = sorted({point.groups for curve in curves for point in curve.points})
    if len(knees) > 1:
        return f"The knee is between {knees[0]:,} and {knees[-1]:,} groups, by sessions and prices"
    if knees:
        return f"The knee is at {knees[0]:,} groups: beyond it, each group saves less than average"
    if len(groups) == 1:
        return f"Only {plural(groups[0], 'group')}: nothing to compare it with"
    return f"No knee between {groups[0]:,} and {groups[-1]:,} groups"


def _lead(result: SweepResult) -> str:
    points = result.points
    lead = (
        f"{plural(result.flows, 'flow')} to {plural(result.receivers, 'receiver')}, planned "
        f"{plural(len(points), 'time')} by the algorithm {result.algorithm}."
    )
    if _several_prices(result):
        return lead
    best = min(points, key=lambda point: (point.relative_excess, point.groups, point.sessions))
    return (
        f"{lead} At best, with {plural(best.groups, 'group')} and "
        f"{plural(best.sessions, 'session')}, receivers waste {percent(best.relative_excess)} of "
        "what they would with flooding."
    )


def _name(result: SweepResult, curve: SweepCurve) -> str:
    prices = f", {prices_in_words(curve.prices)}" if _several_prices(result) else ""
    return f"{curve.limit.label}{prices}"


def _several_prices(result: SweepResult) -> bool:
    return len({curve.prices for curve in result.curves}) > 1


def _share(share: float) -> str:
    """A share of flooding's excess as a percentage, precise enough for a single group."""
    return f"{number(100 * share)}{NARROW_SPACE}%"


def _facts(result: SweepResult, parameters: Mapping[str, str]) -> dict[str, str]:
    return {
        "distributary": __version__,
        "algorithm": result.algorithm,
        "seed": str(result.seed),
        "receivers": f"{result.receivers:,}",
        "flows": f"{result.flows:,}",
        **parameters,
    }
