"""What `distributary control` shows on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from distributary.control.status import (
        AuditEntry,
        ControlStatus,
        ProposalStatus,
        PublisherStatus,
        ReceiverStatus,
        StreamStatus,
        Waste,
    )

__all__ = ["render_changes", "render_proposal", "render_status"]

_SHOWN = 30  # rows of a table
_NAMED = 3  # flows in a cell
_TOUCHED = 10  # receivers of a proposal


def render_status(found: ControlStatus) -> Group:
    """Make a summary, and tables of alarms, publishers and receivers."""
    parts: list[RenderableType] = [_list_pairs(_summarize(found))]
    if found.alarms:
        parts.append(
            _make_table(
                "alarms",
                ("what", "who", "since", "says"),
                (
                    (alarm.what, alarm.who, _show_age(found.now - alarm.since), alarm.says)
                    for alarm in found.alarms
                ),
                len(found.alarms),
                style="yellow",
            )
        )
    if found.publishers:
        parts.append(_list_publishers(found.publishers, found.now))
    if found.receivers:
        parts.append(_list_receivers(found.receivers, found.now))
    return Group(*parts)


def _summarize(found: ControlStatus) -> Iterator[tuple[str, str]]:
    service, force = found.service, found.force
    stand_bys = f"{service.stand_bys:,} standing by"
    since = _show_age(found.now - service.since)
    yield "service", f"{service.where}, for {since}, {stand_bys}"
    if force is None:
        yield "plan", "none yet: nobody wants anything"
    else:
        age = _show_age(found.now - force.at)
        yield "plan", f"version {force.version} ({force.kind}), {age} old: {force.why}"
        groups = f"{force.groups:,} of {found.group_limit:,} groups"
        sessions = f"{force.sessions:,} of {found.session_limit:,} sessions"
        yield "size", f"{force.flows:,} flows, {sessions}, {groups}"
    yield "measured", _show_waste(found.waste)
    if found.predicted is not None:
        yield "predicted", _show_waste(found.predicted)
    yield "approval", _show_mode(found)
    limits = "set" if found.limits else "none"
    yield "limits", f"{limits}; {len(found.pins):,} flows pinned"
    yield "spark", _show_stream(found.stream)


def _show_mode(found: ControlStatus) -> str:
    if found.proposal is None:
        return found.mode
    saves = f"{found.proposal.saves_per_hour:,.0f} messages an hour"
    return f"{found.mode}; proposal {found.proposal.number} waits, which saves {saves}"


def _show_stream(stream: StreamStatus) -> str:
    parts: list[str] = [stream.state]
    if stream.batch >= 0:
        took = "" if stream.batch_seconds is None else f" in {stream.batch_seconds:.1f} s"
        if stream.planning_seconds is not None:
            took += f" ({stream.planning_seconds:.1f} s of it planning)"
        parts.append(f"batch {stream.batch:,}{took}")
    if stream.drift is not None:
        parts.append(f"drift {stream.drift:+.1%}")
    if stream.behind_rows:
        parts.append(f"{stream.behind_rows:,} rows behind for {_show_age(stream.behind_s)}")
    quarantined = sum(stream.quarantined.values())
    if quarantined:
        parts.append(f"{quarantined:,} rows put aside")
    if stream.restarts:
        parts.append(f"{stream.restarts:,} restarts; it last {stream.last_error}")
    if stream.refused:
        parts.append(f"no plan keeps the terms: {stream.refused}")
    return ", ".join(parts)


def _list_publishers(publishers: Sequence[PublisherStatus], now: float) -> Table:
    rows = (
        (
            one.name,
            _show_life(one.alive, one.heard_at, now),
            "all" if one.flows is None else f"{one.flows:,}",
            f"{one.rate:,.1f}",
            f"{one.unplanned:,}",
            f"{one.plan_version:,}" + (f" ({one.behind:,} behind)" if one.behind else ""),
            one.where,
        )
        for one in sorted(publishers, key=lambda one: (one.alive, one.name))
    )
    columns = ("publisher", "alive", "flows", "messages/s", "unplanned", "version", "where")
    return _make_table("publishers", columns, rows, len(publishers))


def _list_receivers(receivers: Sequence[ReceiverStatus], now: float) -> Table:
    rows = (
        (
            one.name,
            _show_life(one.alive, one.heard_at, now),
            f"{one.wants:,}",
            f"{one.waste.wanted:,.1f}",
            f"{one.waste.dropped_first:,.1f}",
            f"{one.waste.dropped_second:,.1f}",
            f"{one.groups:,}",
            f"{one.missing:,}",
            f"{one.repairs:,}",
            f"{one.cpu_share:.1%}",
            _name_some(one.unserved),
        )
        for one in sorted(receivers, key=lambda one: (one.alive, -_sum_drops(one.waste), one.name))
    )
    columns = (
        *("receiver", "alive", "wants", "wanted/s", "dropped 1/s", "dropped 2/s", "groups"),
        *("missing", "repairs", "CPU", "unserved"),
    )
    return _make_table("receivers, worst first", columns, rows, len(receivers))


def render_proposal(found: ControlStatus) -> Group:
    """Make a summary of the pending proposal, and a table of what moves."""
    force, proposal = found.force, found.proposal
    version = "no plan is in force" if force is None else f"version {force.version} is in force"
    if proposal is None:
        return Group(Text(f"no plan waits for approval; {version}"))
    age = _show_age(found.now - proposal.at)
    pairs = [
        ("proposal", f"{proposal.number}, {age} old; {version}"),
        ("saves", f"{proposal.saves_per_hour:,.0f} messages an hour that receivers drop now"),
        ("moves", f"{proposal.moves:,} flows"),
        ("touches", _show_touched(proposal)),
        ("before", _show_waste(proposal.before)),
        ("after", _show_waste(proposal.after)),
    ]
    parts: list[RenderableType] = [_list_pairs(pairs)]
    if proposal.moved:
        rows = (
            (
                move.flow,
                _show_place(move.from_session, move.from_group),
                _show_place(move.to_session, move.to_group),
                f"{move.receivers:,}",
            )
            for move in proposal.moved
        )
        columns = ("flow", "from", "to", "receivers")
        parts.append(_make_table("", columns, rows, proposal.moves))
    return Group(*parts)


def _show_touched(proposal: ProposalStatus) -> str:
    named, number = proposal.touched[:_TOUCHED], proposal.receivers_touched
    more = ", …" if number > len(named) else ""
    return f"{number:,} receivers" + (f": {', '.join(named)}{more}" if named else "")


def render_changes(found: Sequence[AuditEntry]) -> RenderableType:
    """Make a table of the log of changes."""
    if not found:
        return Text("nothing has changed yet")
    rows = (
        (
            f"{entry.number:,}",
            _show_moment(entry.at),
            entry.who,
            entry.what,
            "" if entry.version is None else f"{entry.version:,}",
            f"{entry.moves:,}" if entry.moves else "",
            "" if entry.predicted is None else f"{_sum_drops(entry.predicted):,.1f}",
            "" if entry.measured is None else f"{_sum_drops(entry.measured):,.1f}",
            "" if entry.lost is None else f"{entry.lost:,}",
            entry.why,
        )
        for entry in found
    )
    columns = (
        *("", "when (UTC)", "who", "what", "version", "moves", "predicted/s", "measured/s"),
        *("missing", "why"),
    )
    return _make_table("", columns, rows, len(found), shown=len(found))


# --- cells ----------------------------------------------------------------------------------------


def _list_pairs(pairs: Iterable[tuple[str, str]]) -> Table:
    table = Table(show_header=False, box=None)
    for name, value in pairs:
        table.add_row(name, escape(value))
    return table


_WORDS = ("", "publisher", "receiver", "alive", "who", "what", "where", "when (UTC)", "says", "why")
_MORE_WORDS = ("flow", "from", "to", "since", "unserved")


def _make_table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    count: int,
    *,
    shown: int = _SHOWN,
    style: str = "",
) -> Table:
    """Make a table of the first rows of so many."""
    table = Table(
        box=None, header_style="bold", title=title or None, title_justify="left", style=style
    )
    for column in columns:
        is_text = column in _WORDS or column in _MORE_WORDS
        table.add_column(column, justify="left" if is_text else "right")
    printed = 0
    for row in rows:
        if printed == shown:
            break
        table.add_row(*map(escape, row))
        printed += 1
    if count > printed:
        table.add_row(f"and {count - printed:,} more")
    return table


def _show_waste(waste: Waste) -> str:
    return (
        f"{waste.wanted:,.1f}/s wanted, {_sum_drops(waste):,.1f}/s dropped "
        f"({waste.dropped_first:,.1f} by session, {waste.dropped_second:,.1f} by flow)"
    )


def _sum_drops(waste: Waste) -> float:
    return waste.dropped_first + waste.dropped_second


def _show_place(session: int | None, group: int | None) -> str:
    return "-" if session is None else f"session {session}, group {group}"


def _show_life(alive: bool, heard_at: float, now: float) -> str:
    if alive:
        return "yes"
    return f"silent for {_show_age(now - heard_at)}" if heard_at else "not heard yet"


def _name_some(flows: Sequence[str]) -> str:
    named = ", ".join(flows[:_NAMED])
    return f"{named}, …" if len(flows) > _NAMED else named


def _show_moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _show_age(seconds: float) -> str:
    """A time in the unit that suits it."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {unit}"
    return f"{max(seconds, 0.0):,.0f} s"
