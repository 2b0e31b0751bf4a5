"""Fetch and print the status of a peer: the ring as it sees it, and what it hosts."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from distributary.cli.console import print_json, results

if TYPE_CHECKING:
    from distributary.topics.peer.tcp import PeerOptions, PeerStatus

__all__ = ["draw_peer", "show_peer"]

_SHOWN = 20  # rows of a table
_NAMED = 4  # topics of a cluster


async def show_peer(options: PeerOptions, every: float | None, as_document: bool) -> None:
    """Fetch the status and print it: once, or again and again."""
    from distributary.topics.peer.tcp import fetch_status

    found = await fetch_status(options)
    if every is None:
        if as_document:
            print_json(found.document())
        else:
            results.print(draw_peer(found))
        return
    if as_document:
        while True:
            print(json.dumps(found.document()), flush=True)
            await asyncio.sleep(every)
            found = await fetch_status(options)
    with Live(draw_peer(found), console=results, auto_refresh=False) as shown:
        while True:
            await asyncio.sleep(every)
            found = await fetch_status(options)
            shown.update(draw_peer(found), refresh=True)


def draw_peer(found: PeerStatus) -> Group:
    """Make the tables."""
    parts: list[RenderableType] = [_summary(found)]
    if found.topics:
        parts.append(_topics(found))
    if found.clusters:
        parts.append(_clusters(found))
    return Group(*parts)


def _summary(found: PeerStatus) -> Table:
    events = max(found.accepted, 1)
    sent = sum(found.messages.values())
    state = "part of a ring" if found.active else "looking for the ring"
    rows = [
        ("peer", f"{found.name}, {state}"),
        ("neighbours on the ring", _list(found.neighbours)),
        ("links", _list(found.links)),
        ("clients", f"{len(found.clients):,}"),
        ("root of", f"{len(found.topics):,} topics, {len(found.clusters):,} clusters"),
        ("copies of channels", f"{found.kept:,} ({found.copies} of each in the ring)"),
        ("state", f"{found.stored_bytes / 1e6:,.1f} MB"),
        ("events accepted", f"{found.accepted:,}"),
        ("messages to peers", f"{sent:,}, {sent / events:.3g} per event accepted here"),
        ("of these for maintenance", f"{found.maintenance:,}"),
        ("clients found dead", f"{found.found_dead:,}"),
    ]
    table = Table(show_header=False, box=None)
    for name, value in rows:
        table.add_row(name, escape(value))
    return table


def _topics(found: PeerStatus) -> Table:
    table = Table("topic", "subscribers", "events", "events / interval")
    for one in found.topics[:_SHOWN]:
        table.add_row(
            escape(one.topic), f"{one.subscribers:,}", f"{one.events:,}", f"{one.flow:,.1f}"
        )
    if len(found.topics) > _SHOWN:
        table.add_row(f"and {len(found.topics) - _SHOWN:,} more")
    return table


def _clusters(found: PeerStatus) -> Table:
    table = Table("cluster", "topics", "members", "events / interval")
    for one in found.clusters[:_SHOWN]:
        named = ", ".join(one.topics[:_NAMED]) + (", …" if len(one.topics) > _NAMED else "")
        table.add_row(
            escape(one.name),
            f"{len(one.topics):,}: {escape(named)}",
            f"{one.members:,}",
            f"{one.flow:,.1f}",
        )
    if len(found.clusters) > _SHOWN:
        table.add_row(f"and {len(found.clusters) - _SHOWN:,} more")
    return table


def _list(names: list[str]) -> str:
    shown = ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
    return f"{len(names):,}: {shown}" if names else "none"
