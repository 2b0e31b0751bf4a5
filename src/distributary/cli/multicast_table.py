"""The table of a publisher or a receiver while it runs: totals, and how many a second."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from rich.live import Live
from rich.table import Table

from distributary.cli.console import notes

if TYPE_CHECKING:
    from distributary.delivery.udp.statistics import Snapshot

__all__ = ["show_live", "statistics_table"]

EVERY = 1.0
_WORDS = {
    "messages": "messages wanted",
    "unwanted_packets": "packets dropped by session (stage one)",
    "unwanted_messages": "messages dropped by flow (stage two)",
    "gaps": "gaps given up",
    "missing_messages": "messages missing",
    "missing_ranges": "gaps being repaired",
    "naks": "NAKs",
    "packet_bytes": "bytes in packets",
    "curbed_naks": "NAKs cut short",
    "outranked": "questions of followers of a later sender",
    "strangers": "packets of strangers",
    "unplanned_messages": "messages of flows in no plan",
    "cpu_seconds": "CPU seconds",
}
_GAUGES = ("plan_version", "joined_groups", "waiting", "held_packets", "missing_ranges")


def statistics_table(
    told: dict[str, Any], before: dict[str, Any] | None = None, seconds: float = 1.0
) -> Table:
    """Statistics as rows; beside them what was added in so many seconds."""
    table = Table(box=None)
    table.add_column()
    table.add_column("so far", justify="right")
    if before is not None:
        table.add_column("a second", justify="right")
    for name, value in told.items():
        cells = [_WORDS.get(name, name.replace("_", " ")), _format(value)]
        if before is not None:
            cells.append("" if name in _GAUGES else _format((value - before[name]) / seconds))
        table.add_row(*cells)
    return table


def _format(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


@asynccontextmanager
async def show_live(snapshot: Callable[[], Snapshot]) -> AsyncIterator[None]:
    """Keep a table on stderr up to date, if that is a terminal."""
    from distributary.delivery.udp import snapshot_document
    from distributary.machines.real.tasks import own_tasks

    if not notes.is_terminal:
        yield
        return

    async def refresh(shown: Live) -> None:
        before, then = snapshot_document(snapshot()), time.monotonic()
        while True:
            await asyncio.sleep(EVERY)
            told, now = snapshot_document(snapshot()), time.monotonic()
            shown.update(statistics_table(told, before, now - then), refresh=True)
            before, then = told, now

    with Live(console=notes, auto_refresh=False, transient=True) as shown:
        async with own_tasks() as start:
            start(refresh(shown))
            yield
