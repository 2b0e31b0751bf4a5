"""`distributary receive`: print the messages of a plan's flows as JSON lines."""

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
    PlanFolder,
    Port,
    make_network,
    read_key_file,
    run_until_signal,
    serve_metrics_page,
    warn_of_fault,
)
from distributary.cli.multicast_table import show_live, statistics_table
from distributary.cli.options import INPUT, OUTPUT
from distributary.errors import OutputError

if TYPE_CHECKING:
    from distributary.cli.multicast_lines import LineWriter
    from distributary.delivery.udp import Receiver, Report

__all__ = ["receive"]

_NAMED = 10  # flows to name if many are at fault
_PATIENCE = 1.0  # seconds of writing at the end before the user is statistics


def receive(
    plan: PlanFolder,
    name: Annotated[
        str,
        typer.Option(
            "--as",
            help="Name of this receiver in the plan; required unless --filter is given.",
            rich_help_panel=INPUT,
        ),
    ] = "",
    interest: Annotated[
        Path | None,
        typer.Option(
            help="Table of who wants which flow, with columns receiver, flow; read again when it "
            "changes.",
            show_default="all flows that the plan brings to this receiver",
            rich_help_panel=INPUT,
        ),
    ] = None,
    flow: Annotated[
        list[str] | None, typer.Option(help="Flow to receive; repeatable.", rich_help_panel=INPUT)
    ] = None,
    content: Annotated[
        Path | None,
        typer.Option(
            help="Receive events by their content: the `content` folder beside the plan.",
            rich_help_panel=INPUT,
        ),
    ] = None,
    condition: Annotated[
        list[str] | None,
        typer.Option(
            "--filter",
            help="With --content: receive events that match this SQL filter, instead of the "
            "receiver's own filters; repeatable.",
            rich_help_panel=INPUT,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="File to write the messages to.", show_default="stdout", rich_help_panel=OUTPUT
        ),
    ] = None,
    count: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Exit after this many messages.",
            show_default="run until Ctrl-C",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    history: Annotated[
        bool,
        typer.Option(
            "--history",
            help="First ask the sender for the earlier messages that it still has.",
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
            help="With --out: print the statistics as one JSON document at the end.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
) -> None:
    """Receive flows over IP multicast as a plan says: each message once, each flow in order.

    Lines on stdin change the wanted flows while the command runs: +NAME subscribes to a flow,
    -NAME unsubscribes.
    """
    from distributary.cli.multicast_lines import LineWriter, MessageLines
    from distributary.cli.wanted_events import WantedEvents
    from distributary.delivery import ReceiverParams
    from distributary.delivery.udp import Receiver, snapshot_document
    from distributary.machines.real import own_tasks

    if as_document and out is None:
        raise typer.BadParameter("--json needs --out, since messages go to stdout otherwise")
    if interest is not None and flow:
        raise typer.BadParameter("give --flow or --interest, not both")
    _check_content(name, content, condition, flow or interest)
    name = name or "filter"
    wanted = None if content is None else WantedEvents(content, plan, name, condition or ())
    with ExitStack() as stack:
        file = None if out is None else stack.enter_context(_open_output(out))
        stop = asyncio.Event()
        writer: LineWriter
        lines = MessageLines(
            lambda found: writer.put(found), count, stop, None if wanted is None else wanted.find
        )

        def report(found: Report) -> None:
            lines.report(found)
            _warn_of_report(found, name, plan, fixed=wanted is not None)

        receiver = Receiver(
            plan if wanted is None else wanted.plan,
            (flow or interest) if wanted is None else wanted.flows,
            name=name,
            network=make_network(
                group_base, port, interface, 1, largest_packet, pairs, group_source
            ),
            params=ReceiverParams(history=history),
            key=read_key_file(key_file),
            on_messages=lines.take,
            on_report=report,
            on_fault=warn_of_fault,
        )
        if not receiver.flows:
            raise typer.BadParameter(
                f"no flow is known that {name!r} wants: check --as, or give --flow or --interest"
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
                with serve_metrics_page(lambda: receiver.statistics, metrics, metrics_address):
                    await _wait_for_first(receiver.wait(), signalled.wait(), stop.wait())
                    statistics = snapshot_document(receiver.statistics)
            await _finish(writer)
            return statistics

        statistics = run_until_signal(work)
    if as_document:
        print_json(statistics)
    else:
        notes.print(statistics_table(statistics))


def _check_content(
    name: str, content: Path | None, condition: list[str] | None, flows: object
) -> None:
    if not name and not condition:
        raise typer.BadParameter("give the receiver's name with --as, or a condition with --filter")
    if condition and content is None:
        raise typer.BadParameter("--filter needs --content")
    if content is not None and flows:
        raise typer.BadParameter("give --content, or --flow or --interest, not both")


async def _follow_stdin(receiver: Receiver) -> None:
    """Subscribe and unsubscribe according to the lines on stdin."""
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
                    note = f"line {line.row} of stdin is neither +NAME nor -NAME: {line.text!r}"
                    notes.print(f"[bold yellow]note:[/] {escape(note)}")


def _warn_of_report(report: Report, name: str, plan: Path, *, fixed: bool) -> None:
    """Print a note about reports that the user should act on; the others are in the output.

    With `fixed` the receiver does not follow new plans in the folder.
    """
    from distributary.delivery import NeedPlan, Rival, Unserved

    match report:
        case Unserved(_, ()):
            note = "all wanted flows are served again"
        case Unserved(version, flows):
            named = ", ".join(repr(flow) for flow in flows[:_NAMED])
            more = f" and {len(flows) - _NAMED:,} more" if len(flows) > _NAMED else ""
            which = f"version {version} of the sender's plan" if version else str(plan)
            note = f"{which} does not bring {named}{more} to {name!r}; make a plan that does"
        case Rival(followed, incarnation, address):
            note = (
                f"another sender, {incarnation}, answers at {address}; still following {followed}"
            )
        case NeedPlan():
            note = f"the sender's plan is not the one in {plan}; put the sender's plan there"
            note += " and its content beside it, and restart" if fixed else ""
        case _:
            return
    notes.print(f"[bold yellow]note:[/] {escape(note)}")


async def _finish(writer: LineWriter) -> None:
    """Write what was received; a second Ctrl-C drops the rest and prints how much that is."""
    try:
        try:
            async with asyncio.timeout(_PATIENCE):
                await writer.finish()
        except TimeoutError:
            notes.print(f"{writer.waiting:,} bytes remain to be written; Ctrl-C drops them")
            await writer.finish()
    except asyncio.CancelledError:
        notes.print(f"[bold yellow]dropped:[/] {writer.waiting:,} bytes that nobody read")
        raise
    if writer.failure is not None:
        raise writer.failure


def _open_output(out: Path) -> FileIO:
    try:
        return out.open("wb", buffering=0)
    except OSError as error:
        raise OutputError(error.strerror or str(error), path=str(out)) from None


async def _wait_for_first(*works: Any) -> None:
    """Wait until one of the coroutines ends or fails; cancel the others."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
