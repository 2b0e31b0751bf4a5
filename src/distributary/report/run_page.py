"""The page about a run of the pipeline: what the replayed log shows about the plan.

Counts of messages are exact, so that a reader can add them up; bytes and means are rounded. Parts
that the manifest of a run lacks are left out or shown as a dash.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa

from distributary import __version__
from distributary.extras import require
from distributary.model import FloatArray
from distributary.report.charts import Chart
from distributary.report.rendering import PageTable, Tile, draw_bar, mark, render_page, show_name
from distributary.report.run_charts import (
    Bins,
    bin_minutes,
    minutes_chart,
    numbers,
    shares_chart,
)
from distributary.report.wording import (
    NARROW_SPACE,
    SAVING_EXPLAINED,
    number,
    percent,
    plural,
    seconds,
    stored_headline,
)

__all__ = ["render_run"]

Facts = Mapping[str, Any]

MOST_REASONS = 40
WORST_RECEIVERS = 10

_LOGS = ("subscriptions", "filters", "publications")
_PLANS = {
    "plan": "Plan",
    "previous": "Previous plan",
    "flooding": "Flooding",
    "unicast": "Unicast",
}


def render_run(
    manifest: Mapping[str, Any],
    minutes: pa.Table,
    receivers: pa.Table,
    title: str,
    plan_page: str | None = None,
) -> str:
    """Render one HTML page about a run; the same input gives the same text.

    `minutes` and `receivers` are the tables of the plan's replay. `plan_page` is the file name of
    the plan's own report beside this page, if there is one.
    """
    require("report")
    replays = {key: _part(_part(manifest, "replay"), key) for key in _PLANS}
    return render_page(
        "run.html",
        kind="pipeline run",
        title=title,
        headline=stored_headline(_part(manifest, "plan")),
        lead=_lead(manifest, replays),
        problems=_problems(manifest, replays["plan"]),
        tiles=_list_tiles(manifest),
        # Quoted, so that no file name can link elsewhere.
        plan_page=None if plan_page is None else quote(plan_page),
        replay=_replay(replays),
        minutes=_minutes(minutes, replays["flooding"]),
        receivers=_receivers(receivers),
        aside=_aside(manifest),
        changes=_changes(manifest.get("diff")),
        facts=_facts(manifest),
        command=_command(manifest),
    )


# --- the headline --------------------------------------------------------------------------------


def _replay_sentence(plan: Facts, flooding: Facts) -> str:
    """Say what the replay shows about the messages that receivers discard."""
    received, wasted = _amount(plan, "received"), _count_wasted(plan)
    if not received:
        if _amount(plan, "unserved"):
            return "This plan delivers nothing of what was published"
        return "Nothing that anybody wants was published"
    if not wasted:
        return "Receivers discard nothing: they want every message they receive"
    flooded = _count_wasted(flooding)
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


def _lead(manifest: Facts, replays: Mapping[str, Facts]) -> str:
    plan, flooding, previous = (replays[key] for key in ("plan", "flooding", "previous"))
    window = _part(manifest, "window")
    when = ""
    if "since" in window and "until" in window:
        when = f" from {_moment(window['since'])} to {_moment(window['until'])}"
    lead = (
        f"{SAVING_EXPLAINED} The log has {_plural(plan.get('messages'), 'usable message')}{when}. "
        f"With this plan all receivers together receive {_count(plan.get('received'))} to get the "
        f"{_count(plan.get('wanted'))} they want."
    )
    if flooding:
        lead += f" With flooding it would be {_count(flooding.get('received'))}" + (
            f", with the previous plan {_count(previous.get('received'))}." if previous else "."
        )
    return lead


def _problems(manifest: Facts, plan: Facts) -> list[str] | None:
    """What is wrong with the plan; None where it is valid."""
    found = _part(manifest, "plan")
    problems = [str(problem) for problem in found.get("problems") or ()]
    if missed := _amount(plan, "unserved"):
        problems.insert(0, f"{missed:,} wanted messages do not reach the receivers that want them")
    return None if not problems and found.get("valid", True) else problems


def _list_tiles(manifest: Facts) -> list[Tile]:
    plan, interest = _part(manifest, "plan"), _part(manifest, "interest")
    excess = _part(plan, "filtering").get("relative_excess")
    alone = _part(plan, "unicast").get("flows")
    logs = (
        Tile(
            log.capitalize(),
            _count(facts.get("read")),
            f"rows read = {_count(facts.get('used'))} used + "
            f"{_count(facts.get('duplicates', 0))} duplicates + "
            f"{_count(facts.get('quarantined', 0))} quarantined",
        )
        for log in _LOGS
        if (facts := _part(manifest, log))
    )
    return [
        *logs,
        Tile(
            "Receivers",
            _count(plan.get("receivers", interest.get("receivers"))),
            f"with {_plural(interest.get('pairs'), 'pair')} of a receiver and a flow that it wants",
        ),
        Tile(
            "Flows",
            _count(plan.get("flows", interest.get("flows"))),
            "wanted by at least one receiver" + (f"; {alone:,} go by unicast" if alone else ""),
        ),
        Tile(
            "Groups",
            _count(plan.get("groups")),
            "multicast addresses; a receiver that joins one gets all it carries. They hold "
            f"{_plural(plan.get('sessions'), 'session')}, which are bundles of flows",
        ),
        Tile(
            "Cx/Cf",
            "–" if excess is None else f"{excess:.3f}",
            "wasted filtering work relative to flooding, at the rates of the plan: 0 is perfect, "
            "1 is flooding",
        ),
    ]


# --- the replay ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _ReplaySection:
    sentence: str = ""
    messages: PageTable | None = None
    bytes: PageTable | None = None


def _replay(replays: Mapping[str, Facts]) -> _ReplaySection:
    shown = {key: totals for key, totals in replays.items() if totals}
    if not shown:
        return _ReplaySection()
    columns = ["received", "wanted", "dropped_by_session", "dropped_by_flow", "sent"]
    if any(totals.get("unserved") for totals in shown.values()):
        columns.append("unserved")
    heads = [column.replace("_", " ").replace("unserved", "missed") for column in columns]
    names = {**_PLANS, "plan": mark(_PLANS["plan"], "this run")}
    messages = [
        [names[key], *(_count(totals.get(column)) for column in columns), _goodput(totals)]
        for key, totals in shown.items()
    ]
    sizes = [
        [
            names[key],
            *(_bytes(totals.get(f"{column}_bytes")) for column in columns),
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


# --- minutes -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _MinutesSection:
    each: str
    flooding: str
    chart: Chart


def _minutes(minutes: pa.Table, flooding: Facts) -> _MinutesSection | None:
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
    if not (received := _amount(flooding, "received")):
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


def _receivers(receivers: pa.Table) -> _ReceiversSection:
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
    return [f"{_plural(count, 'receiver')} {what}" for count, what in cases if count]


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
            *(_count(int(value)) for value in values),
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


# --- quarantined rows and changes ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _AsideSection:
    faults: PageTable | None
    notes: list[str]


def _aside(manifest: Facts) -> _AsideSection:
    rows = [
        [f"{log}: {reason}", _count(count), percent(count / facts["read"])]
        for log in _LOGS
        if (facts := _part(manifest, log)).get("read")
        for reason, count in _most_first(_part(facts, "reasons"))
    ]
    more = len(rows) - MOST_REASONS
    faults = PageTable(
        ["log and fault", "rows", "of the log"],
        rows[:MOST_REASONS],
        left_out=f"{more:,} more faults" if more > 0 else "",
    )
    return _AsideSection(faults if rows else None, _list_uncounted(manifest))


def _most_first(reasons: Facts) -> list[tuple[str, int]]:
    return sorted(reasons.items(), key=lambda item: (-item[1], item[0]))


def _list_uncounted(manifest: Facts) -> list[str]:
    """List what the logs have but the plan does not count, or counts otherwise."""
    rates, content = _part(manifest, "rates"), _part(manifest, "content")
    repeated = sum(_amount(_part(manifest, log), "duplicates") for log in _LOGS)
    forgotten = _amount(_part(manifest, "interest"), "forgotten_receivers")
    cases = (
        (repeated, "row", "with an id that was seen before, counted once"),
        (
            _amount(rates, "silent"),
            "flow",
            f"wanted but without messages, planned at the least rate, {_rate(rates.get('floor'))}",
        ),
        (
            _amount(rates, "unwanted"),
            "flow",
            "that nobody wants, with "
            f"{_plural(rates.get('unwanted_messages'), 'message')}, left out of the plan",
        ),
        (
            forgotten,
            "receiver",
            "not seen for so long that the plan leaves them out",
        ),
        (_amount(content, "unwanted"), "message", "that no filter matches, left out of the plan"),
        (
            _amount(content, "folded"),
            "message",
            "whose set of filters is too rare for a flow of its own; they travel with the most "
            f"similar of the {_plural(content.get('sets'), 'set')}",
        ),
    )
    return [f"{_plural(count, noun)} {what}" for count, noun, what in cases if count]


def _changes(diff: Any) -> list[tuple[str, str]] | None:
    """List the changes since the previous plan with their numbers; None for a first plan."""
    if not isinstance(diff, Mapping):
        return None
    cases = (
        ("receivers", "receiver", "with a change; all others stay as they are"),
        ("moved", "move", "of a flow to another session, or with its session to another group"),
        ("new", "place", "in a session for flows that are new"),
        ("gone", "place", "in a session freed by flows that are gone"),
        ("added", "further place", "in a session for flows that also keep their places"),
        ("removed", "place", "in a session freed by flows that keep other places"),
        ("subscribe", "subscription", "to a session to be made"),
        ("unsubscribe", "subscription", "to a session to be ended"),
        ("join", "time", "a receiver joins a group"),
        ("leave", "time", "a receiver leaves a group"),
        ("start", "flow", "to be sent to a receiver by unicast from now on"),
        ("stop", "flow", "no longer to be sent to a receiver by unicast"),
    )
    return [(_plural(diff[key], noun), what) for key, noun, what in cases if diff.get(key)]


# --- how it was made -----------------------------------------------------------------------------


def _facts(manifest: Facts) -> dict[str, str]:
    plan, window = _part(manifest, "plan"), _part(manifest, "window")
    rates, interest = _part(manifest, "rates"), _part(manifest, "interest")
    facts = {
        "distributary": manifest.get("distributary", __version__),
        **{log: _part(manifest, log).get("source") for log in _LOGS},
        "window": None
        if "since" not in window or "until" not in window
        else f"{_moment(window['since'])} to {_moment(window['until'])}",
        "length of the window": seconds(window["seconds"]) if "seconds" in window else None,
        "wanted pairs": _count(interest.get("pairs")),
        "least rate of a flow": _rate(rates.get("floor")),
        "algorithm": plan.get("algorithm", "–"),
        "seed": plan.get("seed", "–"),
        "planned on": _where(plan),
        "driver’s memory for planning, about": _bytes(plan.get("driver_need")),
    }
    return {key: str(value) for key, value in facts.items() if value is not None}


def _command(manifest: Facts) -> str:
    command = manifest.get("command") or ""
    if isinstance(command, str):
        return command
    return shlex.join(map(str, command)) if isinstance(command, Sequence) else str(command)


def _where(plan: Facts) -> str:
    if "where" not in plan:
        return "–"
    rounds = plan.get("rounds")
    return f"the {plan['where']}" + ("" if rounds is None else f", in {plural(rounds, 'round')}")


# --- facts that may be missing -------------------------------------------------------------------


def _part(document: Facts, key: str) -> Facts:
    found = document.get(key)
    return found if isinstance(found, Mapping) else {}


def _amount(facts: Facts, key: str) -> int:
    return facts.get(key) or 0


def _count_wasted(totals: Facts) -> int:
    return _amount(totals, "received") - _amount(totals, "wanted")


def _count(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def _plural(value: int | None, noun: str) -> str:
    """As `plural`, with all digits."""
    return f"{_count(value)} {noun}" + ("" if value == 1 else "s")


def _rate(value: float | None) -> str:
    """Format a rate; a low one as one message in so many seconds."""
    if value is None or value >= 0.1:
        return f"{number(value)} messages/s"
    return f"1 message in {number(1 / value)}{NARROW_SPACE}s"


def _bytes(value: float | None) -> str:
    if value is None:
        return "–"
    size, unit = float(value), "B"
    for larger in ("kB", "MB", "GB", "TB", "PB"):
        if size < 999.5:
            break
        size, unit = size / 1000, larger
    return f"{number(size)}{NARROW_SPACE}{unit}"


def _moment(text: Any) -> str:
    """Format an ISO time for readers."""
    return str(text).replace("T", " ").replace("+00:00", " UTC")
