"""`distributary receive`: packets in, messages out as JSON lines."""

from __future__ import annotations

import asyncio
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from io import FileIO
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from distributary.cli.console import notes, print_json
from distributary.cli.interest_lines import can_read_stdin, read_interest_lines
from distributary.cli.multicast_options import (
    LineOptions,
    MetricsOptions,
    PlanFolder,
    run_until_signal,
    tell_fault,
)
from distributary.cli.multicast_table import show_live, statistics_table
from distributary.cli.option_groups import takes_groups
from distributary.cli.options import INPUT, NETWORK, OUTPUT, option
from distributary.errors import OutputError

if TYPE_CHECKING:
    from distributary.cli.multicast_lines import LineWriter
    from distributary.cli.wanted_events import WantedEvents
    from distributary.delivery.udp import NetworkOptions, Receiver, Report

__all__ = ["receive"]

_NAMED = 10  # flows that are named where many are at fault
_PATIENCE = 1.0  # seconds of writing at the end after which the user hears of it


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedOptions:
    """Who receives what."""

    name: Annotated[
        str,
        option(
            "The receiver, by its name in the plan; needed unless there is a --filter.",
            INPUT,
            "--as",
        ),
    ] = ""
    interest: Annotated[
        Path | None,
        option(
            "Who wants what: receiver, flow; read again when it changes. Without it: all "
            "that a plan brings.",
            INPUT,
        ),
    ] = None
    flow: Annotated[list[str] | None, option("A wanted flow; repeatable.", INPUT)] = None
    content: Annotated[
        Path | None,
        option("Receive events by what they say: the folder `content` beside the plan.", INPUT),
    ] = None
    condition: Annotated[
        list[str] | None,
        option(
            "With --content: an SQL condition on events, in place of the receiver's own "
            "filters; repeatable.",
            INPUT,
            "--filter",
        ),
    ] = None
    history: Annotated[
        bool,
        option("Ask the sender for the earlier messages that it still has.", INPUT, "--history"),
    ] = False

    def check(self) -> None:
        """Refuse options that do not go together."""
        if self.interest is not None and self.flow:
            raise typer.BadParameter("--flow and --interest exclude each other")
        if not self.name and not self.condition:
            raise typer.BadParameter("name the receiver with --as, or what it wants with --filter")
        if self.condition and self.content is None:
            raise typer.BadParameter("--filter needs --content, which has the attributes of events")
        if self.content is not None and (self.flow or self.interest):
            raise typer.BadParameter("--content excludes --flow and --interest")

    @property
    def receiver(self) -> str:
        """The name to receive under."""
        return self.name or "filter"

    def open_events(self, plan: Path) -> WantedEvents | None:
        """Open what is wanted of events, if they are received by what they say."""
        from distributary.cli.wanted_events import WantedEvents

        if self.content is None:
            return None
        return WantedEvents(self.content, plan, self.receiver, self.condition or ())


@dataclass(frozen=True, slots=True, kw_only=True)
class LineOutput:
    """Where messages go, and when to end."""

    out: Annotated[Path | None, option("Write to this file instead of stdout.", OUTPUT)] = None
    count: Annotated[
        int | None, option("End after this many messages; without it, with Ctrl-C.", OUTPUT, min=1)
    ] = None
    as_document: Annotated[
        bool, option("With --out: print statistics as JSON at the end.", OUTPUT, "--json")
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiverLine(LineOptions):
    """Where packets come from."""

    largest_packet: Annotated[
        int, option("The longest packet to accept, in bytes.", NETWORK, min=512, max=65_507)
    ] = 9_216

    def make_network(self) -> NetworkOptions:
        """Make the network that the options describe."""
        from distributary.delivery.udp import NetworkOptions

        return NetworkOptions(
            self.make_groups(), self.interface, 1, largest_packet=self.largest_packet
        )


@takes_groups
def receive(
    plan: PlanFolder,
    wanted: WantedOptions,
    output: LineOutput,
    line: ReceiverLine,
    metrics: MetricsOptions,
) -> None:
    """Receive the wanted flows of a plan, each message once and in its flow's order.

    Lines on stdin change the wanted flows while it runs: +NAME subscribes, -NAME unsubscribes.
    """
    if output.as_document and output.out is None:
        raise typer.BadParameter("--json needs --out: messages go to stdout")
    wanted.check()
    events = wanted.open_events(plan)
    with ExitStack() as stack:
        file = None if output.out is None else stack.enter_context(_open_output(output.out))
        reception = _Reception(plan, wanted, events, line, output.count)
        told = run_until_signal(lambda signalled: reception.run(file, metrics, signalled))
    if output.as_document:
        print_json(told)
    else:
        notes.print(statistics_table(told))


class _Reception:
    """A receiver whose messages become lines of the output."""

    def __init__(
        self,
        plan: Path,
        wanted: WantedOptions,
        events: WantedEvents | None,
        line: ReceiverLine,
        count: int | None,
    ) -> None:
        from distributary.cli.multicast_lines import MessageLines
        from distributary.delivery import ReceiverParams
        from distributary.delivery.udp import Receiver

        self._plan, self._name = plan, wanted.receiver
        self._by_content = events is not None
        self._stop = asyncio.Event()
        self._writer: LineWriter
        self._lines = MessageLines(
            lambda found: self._writer.put(found),
            count,
            self._stop,
            None if events is None else events.find,
        )
        self._receiver = Receiver(
            plan if events is None else events.plan,
            (wanted.flow or wanted.interest) if events is None else events.flows,
            name=self._name,
            network=line.make_network(),
            params=ReceiverParams(history=wanted.history),
            key=line.read_key(),
            on_messages=self._lines.take,
            on_report=self._report,
            on_fault=tell_fault,
        )
        if not self._receiver.flows:
            raise typer.BadParameter(
                f"{self._name!r} wants nothing that is known of: check the name, or name flows"
            )

    async def run(
        self, file: FileIO | None, metrics: MetricsOptions, signalled: asyncio.Event
    ) -> dict[str, Any]:
        """Receive and write until a signal or the end; return the statistics."""
        from distributary.cli.multicast_lines import LineWriter
        from distributary.delivery.udp import snapshot_document
        from distributary.machines.real import own_tasks

        receiver = self._receiver
        self._writer = LineWriter(
            sys.stdout.fileno() if file is None else file.fileno(),
            "stdout" if file is None else str(file.name),
            on_full=receiver.pause,
            on_room=receiver.resume,
            on_end=self._stop.set,
        )
        async with receiver, own_tasks() as start, show_live(lambda: receiver.statistics):
            if not self._by_content:
                start(_follow_stdin(receiver))
            with metrics.serve(lambda: receiver.statistics):
                await _first_of(receiver.wait(), signalled.wait(), self._stop.wait())
                told = snapshot_document(receiver.statistics)
        await _finish(self._writer)
        return told

    def _report(self, found: Report) -> None:
        self._lines.report(found)
        _tell_report(found, self._name, self._plan, fixed=self._by_content)


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


def _tell_report(report: Report, name: str, plan: Path, *, fixed: bool) -> None:
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
