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

import pyarrow as pa

from distributary import __version__
from distributary.extras import require
from distributary.report.rendering import PageTable, Tile, draw_bar, render_page
from distributary.report.run_facts import (
    Facts,
    get_amount,
    get_part,
    show_bytes,
    show_count,
    show_moment,
    show_plural,
    show_rate,
)
from distributary.report.run_replay import (
    PLANS,
    describe_minutes,
    describe_receivers,
    describe_replay,
)
from distributary.report.wording import (
    SAVING_EXPLAINED,
    percent,
    plural,
    seconds,
    stored_headline,
)

__all__ = ["render_run"]

MOST_REASONS = 40

_LOGS = ("subscriptions", "filters", "publications")


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
    replays = {key: get_part(get_part(manifest, "replay"), key) for key in PLANS}
    return render_page(
        "run.html",
        kind="pipeline run",
        title=title,
        headline=stored_headline(get_part(manifest, "plan")),
        lead=_lead(manifest, replays),
        problems=_problems(manifest, replays["plan"]),
        tiles=_list_tiles(manifest),
        # Quoted, so that no file name can link elsewhere.
        plan_page=None if plan_page is None else quote(plan_page),
        replay=describe_replay(replays),
        minutes=describe_minutes(minutes, replays["flooding"]),
        receivers=describe_receivers(receivers),
        aside=_aside(manifest),
        changes=_changes(manifest.get("diff")),
        facts=_facts(manifest),
        stages=_tabulate_stages(get_part(manifest, "stages")),
        command=_command(manifest),
    )


# --- the headline --------------------------------------------------------------------------------


def _lead(manifest: Facts, replays: Mapping[str, Facts]) -> str:
    plan, flooding, previous = (replays[key] for key in ("plan", "flooding", "previous"))
    window = get_part(manifest, "window")
    when = ""
    if "since" in window and "until" in window:
        when = f" from {show_moment(window['since'])} to {show_moment(window['until'])}"
    lead = (
        f"{SAVING_EXPLAINED} "
        f"The log has {show_plural(plan.get('messages'), 'usable message')}{when}. "
        f"With this plan all receivers together receive {show_count(plan.get('received'))} to get "
        f"the {show_count(plan.get('wanted'))} they want."
    )
    if flooding:
        lead += f" With flooding it would be {show_count(flooding.get('received'))}" + (
            f", with the previous plan {show_count(previous.get('received'))}." if previous else "."
        )
    return lead


def _problems(manifest: Facts, plan: Facts) -> list[str] | None:
    """What is wrong with the plan; None where it is valid."""
    found = get_part(manifest, "plan")
    problems = [str(problem) for problem in found.get("problems") or ()]
    if missed := get_amount(plan, "unserved"):
        problems.insert(0, f"{missed:,} wanted messages do not reach the receivers that want them")
    return None if not problems and found.get("valid", True) else problems


def _list_tiles(manifest: Facts) -> list[Tile]:
    plan, interest = get_part(manifest, "plan"), get_part(manifest, "interest")
    excess = get_part(plan, "filtering").get("relative_excess")
    alone = get_part(plan, "unicast").get("flows")
    logs = (
        Tile(
            log.capitalize(),
            show_count(facts.get("read")),
            f"rows read = {show_count(facts.get('used'))} used + "
            f"{show_count(facts.get('duplicates', 0))} duplicates + "
            f"{show_count(facts.get('quarantined', 0))} quarantined",
        )
        for log in _LOGS
        if (facts := get_part(manifest, log))
    )
    return [
        *logs,
        Tile(
            "Receivers",
            show_count(plan.get("receivers", interest.get("receivers"))),
            f"with {show_plural(interest.get('pairs'), 'pair')} of a receiver and a flow that it "
            "wants",
        ),
        Tile(
            "Flows",
            show_count(plan.get("flows", interest.get("flows"))),
            "wanted by at least one receiver" + (f"; {alone:,} go by unicast" if alone else ""),
        ),
        Tile(
            "Groups",
            show_count(plan.get("groups")),
            "multicast addresses; a receiver that joins one gets all it carries. They hold "
            f"{show_plural(plan.get('sessions'), 'session')}, which are bundles of flows",
        ),
        Tile(
            "Cx/Cf",
            "–" if excess is None else f"{excess:.3f}",
            "wasted filtering work relative to flooding, at the rates of the plan: 0 is perfect, "
            "1 is flooding",
        ),
    ]


# --- quarantined rows and changes ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _AsideSection:
    faults: PageTable | None
    notes: list[str]


def _aside(manifest: Facts) -> _AsideSection:
    rows = [
        [f"{log}: {reason}", show_count(count), percent(count / facts["read"])]
        for log in _LOGS
        if (facts := get_part(manifest, log)).get("read")
        for reason, count in _most_first(get_part(facts, "reasons"))
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
    rates, content = get_part(manifest, "rates"), get_part(manifest, "content")
    repeated = sum(get_amount(get_part(manifest, log), "duplicates") for log in _LOGS)
    forgotten = get_amount(get_part(manifest, "interest"), "forgotten_receivers")
    cases = (
        (repeated, "row", "with an id that was seen before, counted once"),
        (
            get_amount(rates, "silent"),
            "flow",
            "wanted but without messages, planned at the least rate, "
            f"{show_rate(rates.get('floor'))}",
        ),
        (
            get_amount(rates, "unwanted"),
            "flow",
            "that nobody wants, with "
            f"{show_plural(rates.get('unwanted_messages'), 'message')}, left out of the plan",
        ),
        (
            forgotten,
            "receiver",
            "not seen for so long that the plan leaves them out",
        ),
        (
            get_amount(content, "unwanted"),
            "message",
            "that no filter matches, left out of the plan",
        ),
        (
            get_amount(content, "folded"),
            "message",
            "whose set of filters is too rare for a flow of its own; they travel with the most "
            f"similar of the {show_plural(content.get('sets'), 'set')}",
        ),
    )
    return [f"{show_plural(count, noun)} {what}" for count, noun, what in cases if count]


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
    return [(show_plural(diff[key], noun), what) for key, noun, what in cases if diff.get(key)]


# --- how it was made -----------------------------------------------------------------------------


def _facts(manifest: Facts) -> dict[str, str]:
    plan, window = get_part(manifest, "plan"), get_part(manifest, "window")
    rates, interest = get_part(manifest, "rates"), get_part(manifest, "interest")
    facts = {
        "distributary": manifest.get("distributary", __version__),
        **{log: get_part(manifest, log).get("source") for log in _LOGS},
        "window": None
        if "since" not in window or "until" not in window
        else f"{show_moment(window['since'])} to {show_moment(window['until'])}",
        "length of the window": seconds(window["seconds"]) if "seconds" in window else None,
        "wanted pairs": show_count(interest.get("pairs")),
        "least rate of a flow": show_rate(rates.get("floor")),
        "algorithm": plan.get("algorithm", "–"),
        "seed": plan.get("seed", "–"),
        "planned on": _where(plan),
        "driver’s memory for planning, about": show_bytes(plan.get("driver_need")),
    }
    return {key: str(value) for key, value in facts.items() if value is not None}


def _tabulate_stages(stages: Facts) -> PageTable | None:
    """Tabulate where the time went; None if it was not measured."""
    steps = stages.get("steps")
    if not steps:
        return None
    return PageTable(
        ["step", "time", "share of the run", "rows read"],
        [
            [
                str(step.get("step", "–")),
                seconds(step.get("seconds")),
                draw_bar(share := step.get("share") or 0.0, percent(share)),
                show_count(step.get("rows")),
            ]
            for step in steps
        ],
    )


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
