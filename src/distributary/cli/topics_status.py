"""Fetch and print the status of a topic service: clusters, what they save, what they cost."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from distributary.cli.console import print_json, results

if TYPE_CHECKING:
    from distributary.topics.nats import NatsOptions, TopicStatus
    from distributary.topics.nats.status import ServerStatus

__all__ = ["show_once", "watch_status"]

_SHOWN = 20  # clusters


async def show_once(options: NatsOptions, prefix: str, monitor: str, as_document: bool) -> None:
    """Fetch the status once, and print it."""
    from distributary.machines.nats.options import connect_to_server

    async with connect_to_server(options, name="distributary topics status") as nc:
        service, server = await _fetch(nc, prefix, monitor)
    if as_document:
        print_json(_document(service, server))
    else:
        results.print(_tables(service, server))


async def watch_status(
    options: NatsOptions, prefix: str, monitor: str, every: float, as_document: bool
) -> None:
    """Keep the table up to date, or print one JSON object per line for each update."""
    from distributary.machines.nats.options import connect_to_server

    async with connect_to_server(options, name="distributary topics status") as nc:
        service, server = await _fetch(nc, prefix, monitor)
        if as_document:
            while True:
                print(json.dumps(_document(service, server)), flush=True)
                await asyncio.sleep(every)
                service, server = await _fetch(nc, prefix, monitor)
        with Live(_tables(service, server), console=results, auto_refresh=False) as shown:
            while True:
                await asyncio.sleep(every)
                service, server = await _fetch(nc, prefix, monitor)
                shown.update(_tables(service, server), refresh=True)


async def _fetch(nc: Any, prefix: str, monitor: str) -> tuple[TopicStatus, ServerStatus | None]:
    from distributary.topics.nats.status import fetch_server_status, fetch_status
    from distributary.topics.nats.subjects import Subjects

    service = await fetch_status(nc, Subjects(prefix))
    return service, await fetch_server_status(monitor) if monitor else None


def _document(service: TopicStatus, server: ServerStatus | None) -> dict[str, Any]:
    return {**service.document(), "server": server.document() if server else None}


def _tables(service: TopicStatus, server: ServerStatus | None) -> Group:
    parts = [_summary(service, server)]
    return Group(*parts, _clusters(service)) if service.n_clusters else Group(*parts)


def _summary(service: TopicStatus, server: ServerStatus | None) -> Table:
    events = max(service.accepted, 1)
    rows = [
        ("topics", f"{service.topics:,}"),
        ("subscribers", f"{service.subscribers:,}"),
        ("subscriptions", f"{service.subscriptions:,} ({service.wanted:,} without clusters)"),
        ("clusters", f"{service.n_clusters:,}"),
        ("operating cost", f"{service.cost:,.1f} ({service.unclustered:,.1f} without clusters)"),
        ("saving", f"{service.saving:.1%}"),
        ("events accepted", f"{service.accepted:,}"),
        ("overhead", f"{service.overhead:,} messages, {service.overhead / events:.3g} per event"),
        ("repairs requested", f"{service.repairs:,}"),
        ("clients found dead", f"{service.found_dead:,}"),
    ]
    if server is not None:
        rows += [
            ("server's subscriptions", f"{server.subscriptions:,}"),
            ("server's bytes", f"{server.in_bytes:,} in, {server.out_bytes:,} out"),
            ("server's memory", f"{server.mem / 1e6:,.1f} MB"),
        ]
    table = Table(show_header=False, box=None)
    for name, value in rows:
        table.add_row(name, value)
    return table


def _clusters(service: TopicStatus) -> Table:
    table = Table("cluster", "topics", "members", "events / interval", "subscriptions saved")
    for one in service.clusters[:_SHOWN]:
        named = ", ".join(one.topics[:4]) + (", …" if one.n_topics > 4 else "")
        table.add_row(
            escape(one.name),
            f"{one.n_topics:,}: {escape(named)}",
            f"{one.members:,}",
            f"{one.flow:,.1f}",
            f"{one.needed - one.members:,}",
        )
    if service.n_clusters > _SHOWN:
        table.add_row(f"and {service.n_clusters - _SHOWN:,} more")
    return table
