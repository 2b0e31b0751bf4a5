"""One run of the pipeline as one self-contained page: what the log shows about the plan.

Counts are written out to the message, so that a reader can add them up; bytes and means are
rounded. The manifest says what a run knows, and that differs: parts that are missing are left out
or shown as a dash.
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
from distributary.report.rendering import PageTable, Tile, render_page
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
    """One HTML page about a run: the same input gives the same text.

    `minutes` and `receivers` are the tables of the plan's replay; `plan_page` is the file name of
    the plan's own report, where there is one beside this page.
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
        # Quoted, no name can become an address elsewhere.
        plan_page=None if plan_page is None else quote(plan_page),
        replay=describe_replay(replays),
        minutes=describe_minutes(minutes, replays["flooding"]),
        receivers=describe_receivers(receivers),
        aside=_aside(manifest),
        changes=_changes(manifest.get("diff")),
        facts=_facts(manifest),
        command=_command(manifest),
    )


# --- the point -----------------------------------------------------------------------------------


def _lead(manifest: Facts, replays: Mapping[str, Facts]) -> str:
    plan, flooding, previous = (replays[key] for key in ("plan", "flooding", "previous"))
    window = get_part(manifest, "window")
    when = ""
    if "since" in window and "until" in window:
        when = f" from {show_moment(window['since'])} to {show_moment(window['until'])}"
    lead = (
        f"{SAVING_EXPLAINED} "
        f"The log has {show_plural(plan.get('messages'), 'usable message')}{when}. "
        f"With this plan receivers together take in {show_count(plan.get('received'))} to get the "
        f"{show_count(plan.get('wanted'))} they asked for."
    )
    if flooding:
        lead += f" Flooding would make it {show_count(flooding.get('received'))}" + (
            f"; the previous plan {show_count(previous.get('received'))}." if previous else "."
        )
    return lead


def _problems(manifest: Facts, plan: Facts) -> list[str] | None:
    """What is wrong with the plan; None where it is valid."""
    found = get_part(manifest, "plan")
    problems = [str(problem) for problem in found.get("problems") or ()]
    if missed := get_amount(plan, "unserved"):
        problems.insert(0, f"{missed:,} wanted messages do not reach who asked for them")
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
            f"{show_count(facts.get('duplicates', 0))} repeated + "
            f"{show_count(facts.get('quarantined', 0))} put aside",
        )
        for log in _LOGS
        if (facts := get_part(manifest, log))
    )
    return [
        *logs,
        Tile(
            "Receivers",
            show_count(plan.get("receivers", interest.get("receivers"))),
            f"want something: {show_plural(interest.get('pairs'), 'pair')} of a receiver and a "
            "flow that it asked for",
        ),
        Tile(
            "Flows",
            show_count(plan.get("flows", interest.get("flows"))),
            "kinds of message that somebody asked for"
            + (f"; {alone:,} go by unicast, to each receiver alone" if alone else ""),
        ),
        Tile(
            "Groups",
            show_count(plan.get("groups")),
            "multicast addresses: who joins one gets all it carries. In them "
            f"{show_plural(plan.get('sessions'), 'session')}, bundles of flows",
        ),
        Tile(
            "Cx/Cf",
            "–" if excess is None else f"{excess:.3f}",
            "of flooding’s wasted filtering work is left, by the rates planned with: 0 is "
            "perfect, 1 is flooding",
        ),
    ]


# --- what was put aside, what changes ------------------------------------------------------------


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
    """What the logs have and the plan does not count as they have it."""
    rates, content = get_part(manifest, "rates"), get_part(manifest, "content")
    repeated = sum(get_amount(get_part(manifest, log), "duplicates") for log in _LOGS)
    forgotten = get_amount(get_part(manifest, "interest"), "forgotten_receivers")
    cases = (
        (repeated, "row", "with an id that came before: counted once"),
        (
            get_amount(rates, "silent"),
            "flow",
            f"asked for but silent: planned at {show_rate(rates.get('floor'))}, the least "
            "that a flow is taken to send",
        ),
        (
            get_amount(rates, "unwanted"),
            "flow",
            "that nobody wants, with "
            f"{show_plural(rates.get('unwanted_messages'), 'message')}: sent to nobody",
        ),
        (
            forgotten,
            "receiver",
            "not heard of for so long that the plan leaves them out",
        ),
        (get_amount(content, "unwanted"), "message", "that no filter matches: sent to nobody"),
        (
            get_amount(content, "folded"),
            "message",
            "whose set of filters is too rare for a flow of its own: they travel with the nearest "
            f"of the {show_plural(content.get('sets'), 'set')}",
        ),
    )
    return [f"{show_plural(count, noun)} {what}" for count, noun, what in cases if count]


def _changes(diff: Any) -> list[tuple[str, str]] | None:
    """What changes and how often; None for a first plan."""
    if not isinstance(diff, Mapping):
        return None
    cases = (
        ("receivers", "receiver", "with something to do; all others go on as they are"),
        ("moved", "move", "of a flow to another session, or with its session to another group"),
        ("new", "place", "in a session for flows that are new"),
        ("gone", "place", "in a session given up by flows that are gone"),
        ("added", "further place", "in a session for flows that keep the ones they had"),
        ("removed", "place", "in a session given up by flows that keep others"),
        ("subscribe", "subscription", "to a session to be made"),
        ("unsubscribe", "subscription", "to a session to be ended"),
        ("join", "time", "a receiver joins a group: this is what the network sees"),
        ("leave", "time", "a receiver leaves a group"),
        ("start", "flow", "to be sent to a receiver alone, by unicast, from now on"),
        ("stop", "flow", "no longer to be sent to a receiver alone"),
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
