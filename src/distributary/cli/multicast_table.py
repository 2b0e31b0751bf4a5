"""The live statistics of a publisher or a receiver: totals, and rates per second."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from rich.live import Live
from rich.markup import escape
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
    "kernel_stamps": "packets stamped by the kernel",
}
# What a member of a control plane shows of its seat there, by the words for it.
_SEAT = {
    "version of the control plane's plan": "version",
    "reports stored there": "reports",
    "messages not yet in a report": "kept_messages",
}
_GAUGES = (
    *("plan_version", "joined_groups", "waiting", "held_packets", "missing_ranges"),
    *(words for words in _SEAT if words != "reports stored there"),
)


def statistics_table(
    statistics: dict[str, Any], before: dict[str, Any] | None = None, seconds: float = 1.0
) -> Table:
    """Make a table of statistics; with `before`, also the change per second since then."""
    table = Table(box=None)
    table.add_column()
    table.add_column("so far", justify="right")
    if before is not None:
        table.add_column("per second", justify="right")
    latencies = statistics.get("latencies", ())
    statistics = _flatten(statistics)
    before = None if before is None else _flatten(before)
    for name, value in statistics.items():
        cells = [_WORDS.get(name, name.replace("_", " ")), _format(value)]
        if before is not None:
            changes = name not in _GAUGES and not name.endswith("silent_seconds")
            cells.append(_format((value - before[name]) / seconds) if changes else "")
        table.add_row(*cells)
    for found in latencies:
        for words, cell in _describe_latencies(found):
            table.add_row(words, cell)
    return table


def _describe_latencies(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What a table says of one publisher's latencies."""
    for kind, words in (("", "latency"), ("repair_", "latency with repair")):
        if found[f"{kind}median_seconds"] is not None:
            parts = (found[f"{kind}{part}_seconds"] for part in ("median", "p99", "largest"))
            shown = " / ".join(_format_time(part) for part in parts)
            yield f"{words} from {escape(found['publisher'])}: median / 99 % / largest", shown
    if found["clock_offset_seconds"] is not None:
        shown = _format_time(found["clock_offset_seconds"])
        shown += " ± " + _format_time(found["clock_uncertainty_seconds"])
        corrects = "latencies are corrected" if found["corrected"] else "no correction"
        yield f"clock offset of {escape(found['publisher'])} ({corrects})", shown
    for name in ("unsaid", "negative", "absurd"):
        if found[name]:
            yield f"packets without a latency, send time {name}", _format(found[name])


def _format_time(seconds: float) -> str:
    """Seconds in a unit that suits them."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if abs(seconds) >= size:
            return f"{seconds / size:,.2f} {unit}"
    return f"{seconds * 1e6:,.1f} µs"


def _flatten(statistics: dict[str, Any]) -> dict[str, Any]:
    """Move the statistics of lines A and B to the top level, each named by its line."""
    nested = ("lines", "publishers", "latencies", "control")
    flat = {name: value for name, value in statistics.items() if name not in nested}
    for line in statistics.get("lines", ()):
        for name, value in line.items():
            if name != "line":
                flat[f"line_{line['line']}_{name}"] = value
    seat = statistics.get("control", {})
    return flat | {words: seat[name] for words, name in _SEAT.items() if name in seat}


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
