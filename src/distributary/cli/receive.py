"""`distributary receive`: print the messages of a plan's flows as JSON lines."""

from __future__ import annotations

import asyncio
import sys
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from io import FileIO
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from distributary.cli.console import notes, print_json
from distributary.cli.control_choice import ControlMember
from distributary.cli.interest_lines import can_read_stdin, read_interest_lines
from distributary.cli.log_lines import LogOptions
from distributary.cli.multicast_options import LineOptions, MetricsOptions, run_until_signal
from distributary.cli.multicast_table import show_live
from distributary.cli.option_groups import takes_groups
from distributary.cli.options import INPUT, NETWORK, OUTPUT, option
from distributary.cli.report_notes import describe_member_report, describe_report
from distributary.errors import OutputError

if TYPE_CHECKING:
    from distributary.cli.multicast_lines import LineWriter
    from distributary.cli.wanted_events import WantedEvents
    from distributary.delivery.udp import NetworkOptions, Receiver, Report

__all__ = ["receive"]

_PATIENCE = 1.0  # seconds of writing at the end before the user is told
_HELD_EVERY = 0.2  # seconds between looks whether the content of messages has come


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedOptions:
    """Who receives what."""

    name: Annotated[
        str,
        option(
            "Name of this receiver in the plan, or in the control plane; required unless --flow or "
            "--filter is given.",
            INPUT,
            "--as",
        ),
    ] = ""
    interest: Annotated[
        Path | None,
        option(
            "Table of who wants which flow, with columns receiver, flow; read again when it "
            "changes.",
            INPUT,
            show_default="all flows that the plan brings to this receiver",
        ),
    ] = None
    flow: Annotated[list[str] | None, option("Flow to receive; repeatable.", INPUT)] = None
    content: Annotated[
        Path | None,
        option("Receive events by their content: the `content` folder beside the plan.", INPUT),
    ] = None
    condition: Annotated[
        list[str] | None,
        option(
            "With --content: receive events that match this SQL filter, instead of the "
            "receiver's own filters; repeatable.",
            INPUT,
            "--filter",
        ),
    ] = None
    subscription_log: Annotated[
        Path | None,
        option(
            "Log what this receiver subscribes to and unsubscribes from, for the pipeline to plan "
            "by: a folder (for `pipeline stream`) or a .jsonl file to append to.",
            INPUT,
        ),
    ] = None
    history: Annotated[
        bool,
        option(
            "First ask the sender for the earlier messages that it still has.", INPUT, "--history"
        ),
    ] = False

    def check(self, plan: Path | None) -> None:
        """Reject options that do not go together."""
        if self.interest is not None and self.flow:
            raise typer.BadParameter("give --flow or --interest, not both")
        if not self.name and not self.condition and not self.flow:
            raise typer.BadParameter(
                "give the receiver's name with --as, or what it wants with --flow or --filter"
            )
        if self.condition and self.content is None:
            raise typer.BadParameter("--filter needs --content")
        if self.content is not None and (self.flow or self.interest):
            raise typer.BadParameter("give --content, or --flow or --interest, not both")
        if self.subscription_log is not None and (self.content is not None or not self.name):
            raise typer.BadParameter(
                "--subscription-log needs the receiver's name in --as, and no --content: a plan of "
                "filters is made from the table of filters"
            )
        if plan is None and self.content is not None:
            raise typer.BadParameter("--content needs the plan beside it, in --plan")

    @property
    def receiver(self) -> str:
        """The name to receive under."""
        return self.name or "anonymous"

    def open_events(self, plan: Path | None) -> WantedEvents | None:
        """Open what is wanted of events, if they are received by their content."""
        from distributary.cli.wanted_events import WantedEvents

        if self.content is None or plan is None:
            return None
        return WantedEvents(self.content, self.receiver, self.condition or ())


@dataclass(frozen=True, slots=True, kw_only=True)
class LineOutput:
    """Where messages go, and when to end."""

    out: Annotated[
        Path | None, option("File to write the messages to.", OUTPUT, show_default="stdout")
    ] = None
    count: Annotated[
        int | None,
        option("Exit after this many messages.", OUTPUT, min=1, show_default="run until Ctrl-C"),
    ] = None
    as_document: Annotated[
        bool,
        option(
            "With --out: print the statistics as one JSON document at the end.", OUTPUT, "--json"
        ),
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiverLine(LineOptions):
    """Where packets come from."""

    largest_packet: Annotated[
        int, option("Maximum size of received packets, in bytes.", NETWORK, min=512, max=65_507)
    ] = 9_216

    def make_network(self) -> NetworkOptions:
        """Make the network settings of the options."""
        from distributary.delivery.udp import NetworkOptions

        return NetworkOptions(
            self.make_groups(), self.interface, 1, largest_packet=self.largest_packet
        )


@takes_groups
def receive(
    wanted: WantedOptions,
    member: ControlMember,
    output: LineOutput,
    line: ReceiverLine,
    metrics: MetricsOptions,
    logs: LogOptions,
    plan: Annotated[
        Path | None,
        option(
            "The sender's plan folder, or a copy; without it the sender says what its plan brings.",
            INPUT,
            "--plan",
        ),
    ] = None,
) -> None:
    """Receive flows over IP multicast: each message once, each flow in order.

    The sender says where flows travel and, without --flow and --interest, which flows its plan
    brings to this receiver. With --control the wanted flows are written down in a control plane,
    whose publishers then carry them, and nothing else is wanted.

    Lines on stdin change the wanted flows while the command runs: +NAME subscribes to a flow,
    -NAME unsubscribes.
    """
    if output.as_document and output.out is None:
        raise typer.BadParameter("--json needs --out, since messages go to stdout otherwise")
    wanted.check(plan)
    member.check(wanted.name, plan, content=wanted.content)
    line.check_control(member.control)
    events = wanted.open_events(plan)
    with ExitStack() as stack:
        file = None if output.out is None else stack.enter_context(_open_output(output.out))
        reception = _Reception(plan, wanted, member, events, line, output.count, logs)
        statistics = run_until_signal(lambda signalled: reception.run(file, metrics, signalled))
    if output.as_document:
        print_json(statistics)
    if logs.log_json or not output.as_document:
        logs.end(statistics)


class _Reception:
    """A receiver whose messages become lines of the output."""

    def __init__(
        self,
        plan: Path | None,
        wanted: WantedOptions,
        member: ControlMember,
        events: WantedEvents | None,
        line: ReceiverLine,
        count: int | None,
        logs: LogOptions,
    ) -> None:
        from distributary.cli.multicast_lines import MessageLines
        from distributary.delivery import ReceiverParams
        from distributary.delivery.udp import Receiver

        self._plan, self._name, self._logs = plan, wanted.receiver, logs
        self._is_member = member.control is not None
        self._events = events
        self._unserved: tuple[str, ...] = ()  # flows with events, as last reported
        self._stop = asyncio.Event()
        self._writer: LineWriter
        self._lines = MessageLines(
            lambda found: self._writer.put(found),
            count,
            self._stop,
            None if events is None else events.find,
        )
        self._receiver = Receiver(
            plan,
            (wanted.flow or wanted.interest) if events is None else events.choose,
            name=self._name,
            control=member.join(self._name),
            network=line.make_network(),
            params=ReceiverParams(history=wanted.history),
            key=line.read_key(),
            subscription_log=wanted.subscription_log,
            on_messages=self._lines.take,
            on_report=self._report,
            on_fault=logs.tell_fault,
        )
        if events is not None:
            events.on_unknown = self._receiver.look_for_plan
        if plan is not None and not self._receiver.flows:
            raise typer.BadParameter(
                f"no flow is known that {self._name!r} wants: check --as, or give --flow or "
                "--interest"
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
            if self._events is None:
                start(_follow_stdin(receiver, self._logs))
            else:
                start(self._print_held(self._events))
            with metrics.serve(lambda: receiver.statistics):
                await _wait_for_first(receiver.wait(), signalled.wait(), self._stop.wait())
                statistics = snapshot_document(receiver.statistics)
        await _finish(self._writer)
        return statistics

    def _report(self, found: Report) -> None:
        from distributary.delivery import Unserved

        if self._events is not None and isinstance(found, Unserved):
            # While the content changes, flows of both contents are wanted: only one plan has them.
            flows = tuple(flow for flow in found.flows if flow in self._events.unserved)
            if flows == self._unserved:
                return
            self._unserved, found = flows, Unserved(found.version, flows)
        self._lines.report(found)
        self._warn_of_report(found)

    def _warn_of_report(self, found: Report) -> None:
        """Say what the user should act on; other reports are in the output alone."""
        what, note = type(found).__name__, ""
        if self._is_member:
            note = describe_member_report(found)
        note = note or describe_report(
            found, self._name, self._plan, by_content=self._events is not None
        )
        if note:
            self._logs.tell(what, note, asdict(found))

    async def _print_held(self, events: WantedEvents) -> None:
        """Print events that waited for their content, also if no message follows them."""
        while True:
            await asyncio.sleep(_HELD_EVERY)
            if events.waiting:
                self._lines.write(events.find_held())
                self._receiver.look_for_plan()


async def _follow_stdin(receiver: Receiver, logs: LogOptions) -> None:
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
                    logs.tell("stdin", note, {"row": line.row})


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
