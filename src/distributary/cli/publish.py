"""`distributary publish`: messages in, packets out by a plan."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from distributary.cli.console import notes, print_json, results
from distributary.cli.event_intake import EventIntake
from distributary.cli.multicast_options import (
    GroupBase,
    GroupSource,
    InterfaceName,
    KeyFile,
    MetricsAddress,
    MetricsPort,
    Pairs,
    PlanFolder,
    Port,
    Ttl,
    key_from,
    metrics_page,
    network_from,
    run_until_signal,
    tell_fault,
)
from distributary.cli.multicast_table import show_live, statistics_table
from distributary.cli.options import (
    INPUT,
    Json,
    duration_option,
    reject_bad_values,
    share_option,
)
from distributary.cli.quantities import ByteCount, Seconds, Share
from distributary.errors import InputError

if TYPE_CHECKING:
    from distributary.delivery.udp import Publisher
    from distributary.delivery.udp.records import Record

__all__ = ["publish"]

INTERRUPTED = 130
SENDING = "Sending"
_NAMED = 10  # flows that are named where many are at fault


def publish(
    plan: PlanFolder,
    source: Annotated[
        str,
        typer.Option(
            "--from",
            help="Parquet, JSON lines, or lines of FLOW, tab, PAYLOAD; - is stdin. With --content "
            "also CSV.",
            rich_help_panel=INPUT,
        ),
    ] = "-",
    content: Annotated[
        Path | None,
        typer.Option(
            help="Publish events by what they say: the folder `content` beside the plan.",
            rich_help_panel=INPUT,
        ),
    ] = None,
    max_bad: Annotated[
        Share,
        share_option("With --content: leave bad events out, up to this share.", INPUT),
    ] = Share("0%"),
    group_base: GroupBase = "239.192.77.0",
    port: Port = 7702,
    interface: InterfaceName = "",
    pairs: Pairs = False,
    group_source: GroupSource = "",
    ttl: Ttl = 1,
    rate: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            help="Messages/s; without it by the ts column, or at once.",
            rich_help_panel=SENDING,
        ),
    ] = None,
    bandwidth: Annotated[
        ByteCount,
        typer.Option(
            parser=ByteCount,
            metavar="SIZE",
            help="The most bytes a second to send, repairs included.",
            rich_help_panel=SENDING,
        ),
    ] = ByteCount("100MB"),
    messages_per_packet: Annotated[
        int,
        typer.Option(
            min=1, max=65_535, help="The most messages in a packet (h).", rich_help_panel=SENDING
        ),
    ] = 8,
    packet_size: Annotated[
        int,
        typer.Option(
            min=1_100,
            max=65_507,
            help="The longest UDP payload, in bytes.",
            rich_help_panel=SENDING,
        ),
    ] = 1_400,
    stay: Annotated[
        Seconds,
        duration_option("At the end, repair until no receiver asked for this long.", SENDING),
    ] = Seconds("500ms"),
    key_file: KeyFile = None,
    metrics: MetricsPort = None,
    metrics_address: MetricsAddress = "127.0.0.1",
    as_document: Json = False,
) -> None:
    """Publish messages by a plan, over multicast, and repair what is missed."""
    from distributary.delivery import SenderParams
    from distributary.delivery.udp import Publisher, snapshot_document

    if max_bad and content is None:
        raise typer.BadParameter("--max-bad needs --content: a bad message ends the command")
    with reject_bad_values():
        params = SenderParams(
            packet_size=packet_size,
            messages_per_packet=messages_per_packet,
            rate=float(bandwidth),
        )
    events = None if content is None else EventIntake(content, plan, float(max_bad))
    publisher = Publisher(
        plan if events is None else events.plan,
        network_from(group_base, port, interface, ttl, pairs=pairs, group_source=group_source),
        params=params,
        key=key_from(key_file),
        stay=float(stay),
        on_fault=tell_fault,
    )

    async def work(stop: asyncio.Event) -> tuple[bool, dict[str, Any]]:
        async with publisher, show_live(lambda: publisher.statistics):
            with metrics_page(lambda: publisher.statistics, metrics, metrics_address):
                chunks = _chunks(source) if events is None else events.read(source)
                done = await _publish_until(publisher, chunks, rate, stop)
                await publisher.drain()
        return done, snapshot_document(publisher.statistics)

    done, told = run_until_signal(work)
    unplanned = publisher.unplanned
    by_content = {} if events is None else {"content": events.document()}
    if as_document:
        print_json({**told, **by_content, "unplanned_flows": unplanned, "interrupted": not done})
    else:
        notes.print(statistics_table(told))
        results.print(f"{told['messages']:,} messages published", markup=False)
    if events is not None:
        events.tell()
        if done:
            events.check()
    if unplanned:
        dropped = _name_unplanned(unplanned, told["unplanned_messages"], plan)
        if done:
            raise dropped
        notes.print(f"[bold yellow]dropped:[/] {escape(str(dropped))}")
    if not done:
        raise typer.Exit(INTERRUPTED)


def _name_unplanned(unplanned: dict[str, int], messages: int, plan: Path) -> InputError:
    """Name the flows whose messages were dropped because the plan does not have them."""
    most = sorted(unplanned, key=lambda flow: (-unplanned[flow], flow))
    named = ", ".join(f"{flow!r} ({unplanned[flow]:,})" for flow in most[:_NAMED])
    more = f" and {len(most) - _NAMED:,} more" if len(most) > _NAMED else ""
    return InputError(
        f"{messages:,} messages were dropped, of flows that it does not have: {named}{more}",
        path=str(plan),
        value=most[0],
        remedy="plan these flows too, or leave them out",
    )


def _chunks(source: str) -> Iterator[list[Record]]:
    from distributary.delivery.udp.records import read_lines, read_records

    if source != "-":
        return read_records(source)
    # Past Python's own stdin: a thread that still reads that when we end would crash the process.
    return read_lines(open(0, "rb", buffering=0, closefd=False), "stdin")


async def _publish_until(
    publisher: Publisher, chunks: Iterator[list[Record]], rate: float | None, stop: asyncio.Event
) -> bool:
    """Publish until the input ends (True) or the stop event is set (False)."""
    from distributary.delivery.udp.records import feed_chunks, publish_records

    publishing = asyncio.ensure_future(publish_records(publisher, feed_chunks(chunks), rate))
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((publishing, stopping), return_when=asyncio.FIRST_COMPLETED)
        if publishing.done():
            publishing.result()
            return True
        return False
    finally:
        for task in (publishing, stopping):
            task.cancel()
        await asyncio.wait((publishing, stopping))
