"""`distributary publish`: messages in, packets out by a plan."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from distributary.cli.console import notes, print_json, results
from distributary.cli.event_intake import EventIntake
from distributary.cli.multicast_options import (
    LineOptions,
    MetricsOptions,
    PlanFolder,
    run_until_signal,
    tell_fault,
)
from distributary.cli.multicast_table import show_live, statistics_table
from distributary.cli.option_groups import takes_groups
from distributary.cli.options import (
    INPUT,
    NETWORK,
    Json,
    duration_option,
    option,
    reject_bad_values,
    share_option,
)
from distributary.cli.quantities import ByteCount, Seconds, Share
from distributary.errors import InputError

if TYPE_CHECKING:
    from distributary.delivery import SenderParams
    from distributary.delivery.udp import NetworkOptions, Publisher
    from distributary.delivery.udp.records import Record

__all__ = ["publish"]

INTERRUPTED = 130
SENDING = "Sending"
_NAMED = 10  # flows that are named where many are at fault


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageOptions:
    """The messages to publish."""

    source: Annotated[
        str,
        option(
            "Parquet, JSON lines, or lines of FLOW, tab, PAYLOAD; - is stdin. With --content "
            "also CSV.",
            INPUT,
            "--from",
        ),
    ] = "-"
    content: Annotated[
        Path | None,
        option("Publish events by what they say: the folder `content` beside the plan.", INPUT),
    ] = None
    max_bad: Annotated[
        Share,
        share_option("With --content: leave bad events out, up to this share.", INPUT),
    ] = Share("0%")

    def open_events(self, plan: Path) -> EventIntake | None:
        """Open the intake of events, if messages are published by what they say."""
        if self.content is not None:
            return EventIntake(self.content, plan, float(self.max_bad))
        if self.max_bad:
            raise typer.BadParameter("--max-bad needs --content: a bad message ends the command")
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderLine(LineOptions):
    """Where packets go, and how far."""

    ttl: Annotated[
        int, option("How far packets go: 0 this machine, 1 this link.", NETWORK, min=0, max=255)
    ] = 1

    def make_network(self) -> NetworkOptions:
        """Make the network that the options describe."""
        from distributary.delivery.udp import NetworkOptions

        return NetworkOptions(self.make_groups(), self.interface, self.ttl)


@dataclass(frozen=True, slots=True, kw_only=True)
class SendingOptions:
    """How fast and in what packets to send."""

    rate: Annotated[
        float | None,
        option("Messages/s; without it by the ts column, or at once.", SENDING, min=0.001),
    ] = None
    bandwidth: Annotated[
        ByteCount,
        option(
            "The most bytes a second to send, repairs included.",
            SENDING,
            parser=ByteCount,
            metavar="SIZE",
        ),
    ] = ByteCount("100MB")
    messages_per_packet: Annotated[
        int, option("The most messages in a packet (h).", SENDING, min=1, max=65_535)
    ] = 8
    packet_size: Annotated[
        int, option("The longest UDP payload, in bytes.", SENDING, min=1_100, max=65_507)
    ] = 1_400
    stay: Annotated[
        Seconds,
        duration_option("At the end, repair until no receiver asked for this long.", SENDING),
    ] = Seconds("500ms")

    def make_params(self) -> SenderParams:
        """Make the sender's settings."""
        from distributary.delivery import SenderParams

        with reject_bad_values():
            return SenderParams(
                packet_size=self.packet_size,
                messages_per_packet=self.messages_per_packet,
                rate=float(self.bandwidth),
            )


@takes_groups
def publish(
    plan: PlanFolder,
    messages: MessageOptions,
    line: SenderLine,
    sending: SendingOptions,
    metrics: MetricsOptions,
    as_document: Json = False,
) -> None:
    """Publish messages by a plan, over multicast, and repair what is missed."""
    from distributary.delivery.udp import Publisher, snapshot_document

    params = sending.make_params()
    events = messages.open_events(plan)
    publisher = Publisher(
        plan if events is None else events.plan,
        line.make_network(),
        params=params,
        key=line.read_key(),
        stay=float(sending.stay),
        on_fault=tell_fault,
    )

    async def work(stop: asyncio.Event) -> tuple[bool, dict[str, Any]]:
        async with publisher, show_live(lambda: publisher.statistics):
            with metrics.serve(lambda: publisher.statistics):
                source = messages.source
                chunks = _chunks(source) if events is None else events.read(source)
                done = await _publish_until(publisher, chunks, sending.rate, stop)
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
