"""The live statistics of a publisher or a receiver: totals, and rates per second."""

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

_REFRESH_S = 1.0
_WORDS = {
    "messages": "messages wanted",
    "unwanted_packets": "packets dropped by session (stage one)",
    "unwanted_messages": "messages dropped by flow (stage two)",
    "gaps": "gaps not repaired",
    "missing_messages": "messages missing",
    "missing_ranges": "gaps being repaired",
    "naks": "NAKs",
    "packet_bytes": "bytes in packets",
    "curbed_naks": "NAKs answered in part",
    "outranked": "requests of receivers that follow a later sender",
    "strangers": "packets from strangers",
    "unplanned_messages": "messages of flows in no plan",
    "cpu_seconds": "CPU seconds",
}
_GAUGES = ("plan_version", "joined_groups", "waiting", "held_packets", "missing_ranges")


def statistics_table(
    statistics: dict[str, Any], before: dict[str, Any] | None = None, seconds: float = 1.0
) -> Table:
    """Make a table of statistics; with `before`, also the change per second since then."""
    table = Table(box=None)
    table.add_column()
    table.add_column("so far", justify="right")
    if before is not None:
        table.add_column("per second", justify="right")
    statistics = _flatten_lines(statistics)
    before = None if before is None else _flatten_lines(before)
    for name, value in statistics.items():
        cells = [_WORDS.get(name, name.replace("_", " ")), _format(value)]
        if before is not None:
            changes = name not in _GAUGES and not name.endswith("silent_seconds")
            cells.append(_format((value - before[name]) / seconds) if changes else "")
        table.add_row(*cells)
    return table


def _flatten_lines(statistics: dict[str, Any]) -> dict[str, Any]:
    """Move the statistics of lines A and B to the top level, each named by its line."""
    flat = {name: value for name, value in statistics.items() if name != "lines"}
    for line in statistics.get("lines", ()):
        for name, value in line.items():
            if name != "line":
                flat[f"line_{line['line']}_{name}"] = value
    return flat


def _format(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


@asynccontextmanager
async def show_live(snapshot: Callable[[], Snapshot]) -> AsyncIterator[None]:
    """Show a live table on stderr while the block runs, if it is a terminal."""
    from distributary.delivery.udp import snapshot_document
    from distributary.machines.real.tasks import own_tasks

    if not notes.is_terminal:
        yield
        return

    async def refresh(shown: Live) -> None:
        before, then = snapshot_document(snapshot()), time.monotonic()
        while True:
            await asyncio.sleep(_REFRESH_S)
            statistics, now = snapshot_document(snapshot()), time.monotonic()
            shown.update(statistics_table(statistics, before, now - then), refresh=True)
            before, then = statistics, now

    with Live(console=notes, auto_refresh=False, transient=True) as shown:
        async with own_tasks() as start:
            start(refresh(shown))
            yield
