"""`distributary publish`: send messages over multicast as a plan says."""

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
    make_network,
    read_key_file,
    run_until_signal,
    serve_metrics_page,
    warn_of_fault,
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
_NAMED = 10  # flows to name if many are at fault


def publish(
    plan: PlanFolder,
    source: Annotated[
        str,
        typer.Option(
            "--from",
            help="Messages to publish: Parquet, JSON lines, or lines of FLOW, tab, PAYLOAD. With "
            "--content also CSV. - is stdin.",
            rich_help_panel=INPUT,
        ),
    ] = "-",
    content: Annotated[
        Path | None,
        typer.Option(
            help="Publish events by their content: the `content` folder beside the plan.",
            rich_help_panel=INPUT,
        ),
    ] = None,
    max_bad: Annotated[
        Share,
        share_option("With --content: leave out bad events, up to this share.", INPUT),
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
            help="Messages/s to publish.",
            show_default="the pace of the ts column, or at once",
            rich_help_panel=SENDING,
        ),
    ] = None,
    bandwidth: Annotated[
        ByteCount,
        typer.Option(
            parser=ByteCount,
            metavar="SIZE",
            help="Maximum bytes per second to send, repairs included.",
            rich_help_panel=SENDING,
        ),
    ] = ByteCount("100MB"),
    messages_per_packet: Annotated[
        int,
        typer.Option(
            min=1, max=65_535, help="Maximum messages per packet (h).", rich_help_panel=SENDING
        ),
    ] = 8,
    packet_size: Annotated[
        int,
        typer.Option(
            min=1_100,
            max=65_507,
            help="Maximum UDP payload, in bytes.",
            rich_help_panel=SENDING,
        ),
    ] = 1_400,
    stay: Annotated[
        Seconds,
        duration_option(
            "At the end, keep repairing until no receiver has asked for this long.", SENDING
        ),
    ] = Seconds("500ms"),
    key_file: KeyFile = None,
    metrics: MetricsPort = None,
    metrics_address: MetricsAddress = "127.0.0.1",
    as_document: Json = False,
) -> None:
    """Publish messages over IP multicast as a plan says, and repair losses."""
    from distributary.delivery import SenderParams
    from distributary.delivery.udp import Publisher, snapshot_document

    if max_bad and content is None:
        raise typer.BadParameter("--max-bad needs --content; a bad message always ends the command")
    with reject_bad_values():
        params = SenderParams(
            packet_size=packet_size,
            messages_per_packet=messages_per_packet,
            rate=float(bandwidth),
        )
    events = None if content is None else EventIntake(content, plan, float(max_bad))
    publisher = Publisher(
        plan if events is None else events.plan,
        make_network(group_base, port, interface, ttl, pairs=pairs, group_source=group_source),
        params=params,
        key=read_key_file(key_file),
        stay=float(stay),
        on_fault=warn_of_fault,
    )

    async def work(stop: asyncio.Event) -> tuple[bool, dict[str, Any]]:
        async with publisher, show_live(lambda: publisher.statistics):
            with serve_metrics_page(lambda: publisher.statistics, metrics, metrics_address):
                chunks = _read_chunks(source) if events is None else events.read(source)
                done = await _publish_until(publisher, chunks, rate, stop)
                await publisher.drain()
        return done, snapshot_document(publisher.statistics)

    done, statistics = run_until_signal(work)
    unplanned = publisher.unplanned
    by_content = {} if events is None else {"content": events.document()}
    if as_document:
        print_json(
            {**statistics, **by_content, "unplanned_flows": unplanned, "interrupted": not done}
        )
    else:
        notes.print(statistics_table(statistics))
        results.print(f"{statistics['messages']:,} messages published", markup=False)
    if events is not None:
        events.print_notes()
        if done:
            events.check()
    if unplanned:
        dropped = _unplanned_error(unplanned, statistics["unplanned_messages"], plan)
        if done:
            raise dropped
        notes.print(f"[bold yellow]dropped:[/] {escape(str(dropped))}")
    if not done:
        raise typer.Exit(INTERRUPTED)


def _unplanned_error(unplanned: dict[str, int], messages: int, plan: Path) -> InputError:
    """Make the error that names the flows whose messages were dropped for lack of a plan."""
    most = sorted(unplanned, key=lambda flow: (-unplanned[flow], flow))
    named = ", ".join(f"{flow!r} ({unplanned[flow]:,})" for flow in most[:_NAMED])
    more = f" and {len(most) - _NAMED:,} more" if len(most) > _NAMED else ""
    return InputError(
        f"{messages:,} messages were dropped, since the plan lacks their flows: {named}{more}",
        path=str(plan),
        value=most[0],
        remedy="make a plan with these flows, or do not publish them",
    )


def _read_chunks(source: str) -> Iterator[list[Record]]:
    from distributary.delivery.udp.records import read_lines, read_records

    if source != "-":
        return read_records(source)
    # Not sys.stdin: a thread that still reads it when Python exits would crash the process.
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
