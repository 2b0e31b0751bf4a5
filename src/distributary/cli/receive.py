"""`distributary receive`: packets in, messages out as JSON lines."""

from __future__ import annotations

import asyncio
import sys
from contextlib import ExitStack
from io import FileIO
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from distributary.cli.console import notes, print_json
from distributary.cli.interest_lines import can_read_stdin, read_interest_lines
from distributary.cli.multicast_options import (
    GroupBase,
    GroupSource,
    InterfaceName,
    KeyFile,
    LargestPacket,
    MetricsAddress,
    MetricsPort,
    Pairs,
    Port,
    key_from,
    metrics_page,
    network_from,
    run_until_signal,
    tell_fault,
)
from distributary.cli.multicast_table import show_live, statistics_table
from distributary.cli.options import INPUT, OUTPUT
from distributary.errors import OutputError

if TYPE_CHECKING:
    from distributary.cli.multicast_lines import LineWriter
    from distributary.delivery.udp import Receiver, Report

__all__ = ["receive"]

_NAMED = 10  # flows that are named where many are at fault
_PATIENCE = 1.0  # seconds of writing at the end after which the user hears of it


def receive(
    plan: Annotated[
        Path | None,
        typer.Option(
            help="The sender's plan folder; not needed where flows are named.",
            rich_help_panel=INPUT,
        ),
    ] = None,
    name: Annotated[
        str,
        typer.Option(
            "--as",
            help="The receiver, by its name in the plan; needed unless there is a --flow or a "
            "--filter.",
            rich_help_panel=INPUT,
        ),
    ] = "",
    interest: Annotated[
        Path | None,
        typer.Option(
            help="Who wants what: receiver, flow; read again when it changes. Without it: all "
            "that a plan brings.",
            rich_help_panel=INPUT,
        ),
    ] = None,
    flow: Annotated[
        list[str] | None, typer.Option(help="A wanted flow; repeatable.", rich_help_panel=INPUT)
    ] = None,
    content: Annotated[
        Path | None,
        typer.Option(
            help="Receive events by what they say: the folder `content` beside the plan.",
            rich_help_panel=INPUT,
        ),
    ] = None,
    condition: Annotated[
        list[str] | None,
        typer.Option(
            "--filter",
            help="With --content: an SQL condition on events, in place of the receiver's own "
            "filters; repeatable.",
            rich_help_panel=INPUT,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Write to this file instead of stdout.", rich_help_panel=OUTPUT),
    ] = None,
    count: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="End after this many messages; without it, with Ctrl-C.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    history: Annotated[
        bool,
        typer.Option(
            "--history",
            help="Ask the sender for the earlier messages that it still has.",
            rich_help_panel=INPUT,
        ),
    ] = False,
    group_base: GroupBase = "239.192.77.0",
    port: Port = 7702,
    interface: InterfaceName = "",
    pairs: Pairs = False,
    group_source: GroupSource = "",
    largest_packet: LargestPacket = 9_216,
    key_file: KeyFile = None,
    metrics: MetricsPort = None,
    metrics_address: MetricsAddress = "127.0.0.1",
    as_document: Annotated[
        bool,
        typer.Option(
            "--json",
            help="With --out: print statistics as JSON at the end.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
) -> None:
    """Receive wanted flows, each message once and in its flow's order.

    The sender says where they travel. Without --flow and --interest it takes the sender's plan to
    say which they are. Lines on stdin change the wanted flows while it runs: +NAME subscribes,
    -NAME unsubscribes.
    """
    from distributary.cli.multicast_lines import LineWriter, MessageLines
    from distributary.cli.wanted_events import WantedEvents
    from distributary.delivery import ReceiverParams
    from distributary.delivery.udp import Receiver, snapshot_document
    from distributary.machines.real import own_tasks

    if as_document and out is None:
        raise typer.BadParameter("--json needs --out: messages go to stdout")
    if interest is not None and flow:
        raise typer.BadParameter("--flow and --interest exclude each other")
    _check_wanted(name, plan, content, condition, flow or [], interest)
    name = name or "anonymous"
    wanted = None
    if content is not None and plan is not None:
        wanted = WantedEvents(content, plan, name, condition or ())
    with ExitStack() as stack:
        file = None if out is None else stack.enter_context(_open_output(out))
        stop = asyncio.Event()
        writer: LineWriter
        lines = MessageLines(
            lambda found: writer.put(found), count, stop, None if wanted is None else wanted.find
        )

        def report(found: Report) -> None:
            lines.report(found)
            _tell_report(found, name, plan, fixed=wanted is not None)

        receiver = Receiver(
            plan if wanted is None else wanted.plan,
            (flow or interest) if wanted is None else wanted.flows,
            name=name,
            network=network_from(
                group_base, port, interface, 1, largest_packet, pairs, group_source
            ),
            params=ReceiverParams(history=history),
            key=key_from(key_file),
            on_messages=lines.take,
            on_report=report,
            on_fault=tell_fault,
        )
        if not receiver.flows:
            raise typer.BadParameter(
                f"{name!r} wants nothing that is known of: check the name, or name flows"
            )

        async def work(signalled: asyncio.Event) -> dict[str, Any]:
            nonlocal writer
            writer = LineWriter(
                sys.stdout.fileno() if file is None else file.fileno(),
                "stdout" if out is None else str(out),
                on_full=receiver.pause,
                on_room=receiver.resume,
                on_end=stop.set,
            )
            async with receiver, own_tasks() as start, show_live(lambda: receiver.statistics):
                if wanted is None:
                    start(_follow_stdin(receiver))
                with metrics_page(lambda: receiver.statistics, metrics, metrics_address):
                    await _first_of(receiver.wait(), signalled.wait(), stop.wait())
                    told = snapshot_document(receiver.statistics)
            await _finish(writer)
            return told

        told = run_until_signal(work)
    if as_document:
        print_json(told)
    else:
        notes.print(statistics_table(told))


def _check_wanted(
    name: str,
    plan: Path | None,
    content: Path | None,
    condition: list[str] | None,
    flow: list[str],
    interest: Path | None,
) -> None:
    if not name and not condition and not flow:
        raise typer.BadParameter(
            "name the receiver with --as, or what it wants with --flow or --filter"
        )
    if condition and content is None:
        raise typer.BadParameter("--filter needs --content, which has the attributes of events")
    if content is not None and (flow or interest):
        raise typer.BadParameter("--content excludes --flow and --interest")
    if plan is None and (content is not None or not (flow or interest)):
        raise typer.BadParameter(
            "name the sender's plan with --plan, or what is wanted with --flow or --interest"
        )


async def _follow_stdin(receiver: Receiver) -> None:
    """Subscribe and unsubscribe as the lines on stdin say."""
    from distributary.delivery.udp.records import feed_chunks

    if not can_read_stdin():
        return
    async for lines in feed_chunks(read_interest_lines()):
        for wanted, run in groupby(lines, lambda line: line.wanted):
            found = list(run)
            if wanted:
                receiver.want_also(line.flow for line in found)
            elif wanted is False:
                receiver.unsubscribe(line.flow for line in found)
            else:
                for line in found:
                    said = f"line {line.row} of stdin is neither +NAME nor -NAME: {line.text!r}"
                    notes.print(f"[bold yellow]note:[/] {escape(said)}")


def _tell_report(report: Report, name: str, plan: Path | None, *, fixed: bool) -> None:
    """Tell the user about reports that need a person; the rest is in the output.

    With `fixed` the receiver does not look for other plans.
    """
    from distributary.delivery import NeedPlan, Rival, Unserved

    match report:
        case Unserved(_, ()):
            said = "all wanted flows come again"
        case Unserved(version, flows):
            named = ", ".join(repr(flow) for flow in flows[:_NAMED])
            more = f" and {len(flows) - _NAMED:,} more" if len(flows) > _NAMED else ""
            which = f"version {version} of the sender's plan" if version else str(plan)
            said = f"{which} brings {name!r} nothing of {named}{more}, and only another plan can"
        case Rival(followed, incarnation, address):
            said = f"another sender answers at {address}: {incarnation}, and {followed} is followed"
        case NeedPlan():
            said = f"the sender's plan is not the one in {plan}; put the sender's plan there"
            said += ", and its content beside it, and start again" if fixed else ""
        case _:
            return
    notes.print(f"[bold yellow]note:[/] {escape(said)}")


async def _finish(writer: LineWriter) -> None:
    """Write what was received; a second Ctrl-C drops the rest and says how much that is."""
    try:
        try:
            async with asyncio.timeout(_PATIENCE):
                await writer.finish()
        except TimeoutError:
            notes.print(f"writing {writer.waiting:,} bytes more; Ctrl-C leaves them out")
            await writer.finish()
    except asyncio.CancelledError:
        notes.print(f"[bold yellow]left out:[/] {writer.waiting:,} bytes that nobody read")
        raise
    if writer.failure is not None:
        raise writer.failure


def _open_output(out: Path) -> FileIO:
    try:
        return out.open("wb", buffering=0)
    except OSError as error:
        raise OutputError(error.strerror or str(error), path=str(out)) from None


async def _first_of(*works: Any) -> None:
    """Wait for one of them to end, or to fail."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
