"""The parts of a run's page about its replay: in all, over time, and by receiver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from distributary.model import FloatArray
from distributary.report.charts import Chart
from distributary.report.rendering import PageTable, draw_bar, mark, show_name
from distributary.report.run_charts import (
    Bins,
    bin_minutes,
    minutes_chart,
    numbers,
    shares_chart,
)
from distributary.report.run_facts import (
    Facts,
    count_wasted,
    get_amount,
    show_bytes,
    show_count,
    show_plural,
)
from distributary.report.wording import number, percent, plural

__all__ = ["PLANS", "describe_minutes", "describe_receivers", "describe_replay"]

WORST_RECEIVERS = 10
PLANS = {
    "plan": "Plan",
    "previous": "Previous plan",
    "flooding": "Flooding",
    "unicast": "Unicast",
}


# --- the replay ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _ReplaySection:
    sentence: str = ""
    messages: PageTable | None = None
    bytes: PageTable | None = None


def describe_replay(replays: Mapping[str, Facts]) -> _ReplaySection:
    """Describe what receivers would have received with each plan, in messages and in bytes."""
    shown = {key: totals for key, totals in replays.items() if totals}
    if not shown:
        return _ReplaySection()
    columns = ["received", "wanted", "dropped_by_session", "dropped_by_flow", "sent"]
    if any(totals.get("unserved") for totals in shown.values()):
        columns.append("unserved")
    heads = [column.replace("_", " ").replace("unserved", "missed") for column in columns]
    names = {**PLANS, "plan": mark(PLANS["plan"], "this run")}
    messages = [
        [names[key], *(show_count(totals.get(column)) for column in columns), _goodput(totals)]
        for key, totals in shown.items()
    ]
    sizes = [
        [
            names[key],
            *(show_bytes(totals.get(f"{column}_bytes")) for column in columns),
            _goodput(totals, "_bytes"),
        ]
        for key, totals in shown.items()
    ]
    has_sizes = any(totals.get("received_bytes") for totals in shown.values())
    return _ReplaySection(
        _replay_sentence(replays["plan"], replays["flooding"]),
        PageTable(["messages", *heads, "goodput"], messages),
        PageTable(["bytes", *heads, "goodput"], sizes) if has_sizes else None,
    )


def _goodput(totals: Facts, unit: str = "") -> str:
    received, wanted = totals.get(f"received{unit}"), totals.get(f"wanted{unit}")
    if not received or wanted is None:
        return "–"
    return draw_bar(wanted / received, percent(wanted / received))


def _replay_sentence(plan: Facts, flooding: Facts) -> str:
    """Say what the replay shows about the messages that receivers discard."""
    received, wasted = get_amount(plan, "received"), count_wasted(plan)
    if not received:
        if get_amount(plan, "unserved"):
            return "This plan delivers nothing of what was published"
        return "Nothing that anybody wants was published"
    if not wasted:
        return "Receivers discard nothing: they want every message they receive"
    flooded = count_wasted(flooding)
    if flooded <= 0:
        return f"Receivers discard {percent(wasted / received)} of the messages they receive"
    share = "as much as" if wasted == flooded else f"{percent(wasted / flooded)} of what they would"
    wanted = _wanted_sentence(received, received - wasted)
    return f"Receivers discard {share} with flooding; {wanted}"


def _wanted_sentence(received: float, wanted: float) -> str:
    if not wanted:
        return "they want none of the messages they receive"
    if received >= 2 * wanted:
        return f"they want 1 in {_ratio(received / wanted)} messages they receive"
    return f"they want {percent(wanted / received)} of the messages they receive"


def _ratio(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0") if value < 10 else f"{value:,.0f}"


# --- minutes -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _MinutesSection:
    each: str
    flooding: str
    chart: Chart


def describe_minutes(minutes: pa.Table, flooding: Facts) -> _MinutesSection | None:
    """Describe what was received over time; None if nothing was published."""
    if not minutes.num_rows:
        return None
    bins = bin_minutes(minutes)
    each = "Each bar is a minute"
    if bins.step > 1:
        each = (
            f"The log spans {bins.length:,} minutes: each bar is {_step(bins.step)}, by its mean "
            "minute"
        )
    sentence, line = _flooding_line(bins, flooding)
    return _MinutesSection(each, sentence, minutes_chart(bins, line))


def _flooding_line(bins: Bins, flooding: Facts) -> tuple[str, float | None]:
    """Show flooding's mean as a line if it fits the chart, otherwise as a sentence."""
    if not (received := get_amount(flooding, "received")):
        return "", None
    mean = received / bins.length
    totals = np.sum([*bins.parts.values()], axis=0)
    if mean <= 2 * totals.max():
        return " The dashed line is what flooding would bring, on average.", mean
    return (
        f" Flooding would bring {number(mean)} a minute on average, which is beyond this chart.",
        None,
    )


def _step(minutes: int) -> str:
    for length, noun in ((24 * 60, "day"), (60, "hour")):
        if minutes % length == 0:
            return plural(minutes // length, noun)
    return plural(minutes, "minute")


# --- receivers -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _WorstReceivers:
    lead: str
    table: PageTable


@dataclass(frozen=True, slots=True)
class _ReceiversSection:
    """What receivers discard; `chart` and `worst` are None if nothing was received."""

    notes: list[str]
    none: bool = False
    chart: Chart | None = None
    median: float = 0.0
    p90: float = 0.0
    worst: _WorstReceivers | None = None


def describe_receivers(receivers: pa.Table) -> _ReceiversSection:
    """Describe what receivers discard, and which of them discard most."""
    if not receivers.num_rows:
        return _ReceiversSection([], none=True)
    received = numbers(receivers, "received")
    wasted = received - numbers(receivers, "wanted")
    busy = received > 0
    notes = _receiver_notes(receivers, int((~busy).sum()))
    if not busy.any():
        return _ReceiversSection(notes)
    shares = np.clip(wasted[busy] / received[busy], 0, 1)
    return _ReceiversSection(
        notes,
        chart=shares_chart(shares),
        median=float(np.median(shares)),
        p90=float(np.percentile(shares, 90)),
        worst=_worst(receivers, wasted),
    )


def _receiver_notes(receivers: pa.Table, idle: int) -> list[str]:
    unserved = int((numbers(receivers, "unserved") > 0).sum())
    cases = (
        (idle, "without any message: the log has none of the flows that reach them"),
        (_missing(receivers, "planned"), "with interest but not in the plan"),
        (_missing(receivers, "interested"), "in the plan but without interest"),
        (unserved, "without some of the messages they want"),
    )
    return [f"{show_plural(count, 'receiver')} {what}" for count, what in cases if count]


def _missing(receivers: pa.Table, column: str) -> int:
    if column not in receivers.column_names:
        return 0
    return int((numbers(receivers, column) == 0).sum())


def _worst(receivers: pa.Table, wasted: FloatArray) -> _WorstReceivers | None:
    order = np.argsort(-wasted, kind="stable")[:WORST_RECEIVERS]
    order = order[wasted[order] > 0]
    if not len(order):
        return None
    columns = ("received", "wanted", "dropped_by_session", "dropped_by_flow")
    picked = receivers.take(pa.array(order))
    cells = zip(*(numbers(picked, column).tolist() for column in columns), strict=True)
    rows = [
        [
            show_name(str(receiver)),
            *(show_count(int(value)) for value in values),
            percent(lost / values[0]),
        ]
        for receiver, values, lost in zip(
            picked["receiver"].to_pylist(), cells, wasted[order].tolist(), strict=True
        )
    ]
    share = percent(float(wasted[order].sum() / wasted.sum()))
    what = f"the {len(rows)} that discard most" if len(rows) > 1 else "one receiver"
    heads = ["", *(column.replace("_", " ") for column in columns), "discarded"]
    lead = f"Of all that receivers discard, {share} falls on {what}:"
    return _WorstReceivers(lead, PageTable(heads, rows))
