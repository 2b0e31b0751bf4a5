"""`distributary publish`: send messages over multicast as a plan says."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from distributary.cli.console import notes, print_json, results
from distributary.cli.control_choice import ControlMember
from distributary.cli.event_intake import EventIntake
from distributary.cli.log_lines import LogOptions
from distributary.cli.multicast_options import (
    LineOptions,
    MetricsOptions,
    PlanFolder,
    run_until_signal,
)
from distributary.cli.multicast_table import show_live
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
from distributary.cli.price_options import MOST_MESSAGES, delay_option
from distributary.cli.quantities import ByteCount, Delay, Seconds, Share
from distributary.errors import InputError, LiveError
from distributary.files import read_stored_terms
from distributary.model import Packing

if TYPE_CHECKING:
    from distributary.delivery import Refused, SenderParams
    from distributary.delivery.udp import NetworkOptions, Publisher
    from distributary.delivery.udp.records import Record

__all__ = ["publish"]

INTERRUPTED = 130
SENDING = "Sending"
_NAMED = 10  # flows to name if many are at fault


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageOptions:
    """The messages to publish."""

    source: Annotated[
        str,
        option(
            "Messages to publish: Parquet, JSON lines, or lines of FLOW, tab, PAYLOAD. With "
            "--content also CSV. - is stdin.",
            INPUT,
            "--from",
        ),
    ] = "-"
    content: Annotated[
        Path | None,
        option("Publish events by their content: the `content` folder beside the plan.", INPUT),
    ] = None
    max_bad: Annotated[
        Share,
        share_option("With --content: leave out bad events, up to this share.", INPUT),
    ] = Share("0%")

    def open_events(self) -> EventIntake | None:
        """Open the intake of events, if events are published by their content."""
        if self.content is not None:
            return EventIntake(self.content, float(self.max_bad))
        if self.max_bad:
            raise typer.BadParameter(
                "--max-bad needs --content; a bad message always ends the command"
            )
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderLine(LineOptions):
    """Where packets go, and how far."""

    ttl: Annotated[
        int,
        option(
            "Time to live of multicast packets: 0 stays on this machine, 1 on this link.",
            NETWORK,
            min=0,
            max=255,
        ),
    ] = 1

    def check_control(self, control: str | None) -> None:
        """Refuse what a control plane decides for all of its members."""
        LineOptions.check_control(self, control)
        if control is not None and self.ttl != 1:
            raise typer.BadParameter("--ttl is that of the control plane; leave it out")

    def make_network(self) -> NetworkOptions:
        """Make the network settings of the options."""
        from distributary.delivery.udp import NetworkOptions

        return NetworkOptions(self.make_groups(), self.interface, self.ttl)


@dataclass(frozen=True, slots=True, kw_only=True)
class SendingOptions:
    """How fast and in what packets to send."""

    rate: Annotated[
        float | None,
        option(
            "Messages/s to publish.",
            SENDING,
            min=0.001,
            show_default="the pace of the ts column, or at once",
        ),
    ] = None
    bandwidth: Annotated[
        ByteCount,
        option(
            "Maximum bytes per second to send, repairs included.",
            SENDING,
            parser=ByteCount,
            metavar="SIZE",
        ),
    ] = ByteCount("100MB")
    messages_per_packet: Annotated[
        int | None,
        option(
            "Maximum messages per packet (h).",
            SENDING,
            min=1,
            max=MOST_MESSAGES,
            show_default="that of plan.json, or 8",
        ),
    ] = None
    delay: Annotated[
        Delay | None,
        delay_option(
            "How long a message may wait for others to fill its packet.",
            SENDING,
            "that of plan.json, or 1ms",
        ),
    ] = None
    packet_size: Annotated[
        int, option("Maximum UDP payload, in bytes.", SENDING, min=1_100, max=65_507)
    ] = 1_400
    stay: Annotated[
        Seconds,
        duration_option(
            "At the end, keep repairing until no receiver has asked for this long.", SENDING
        ),
    ] = Seconds("500ms")

    def make_params(self, plan: Path | None) -> SenderParams:
        """Make the sender's settings; what is not given is as the plan was made for."""
        from distributary.delivery import SenderParams

        messages, delay = self.messages_per_packet, self.delay
        packing = Packing()
        if plan is not None and (messages is None or delay is None):
            packing = read_stored_terms(plan).packing or packing
        with reject_bad_values():
            return SenderParams(
                packet_size=self.packet_size,
                messages_per_packet=int(packing.messages_per_packet)
                if messages is None
                else messages,
                max_age=packing.delay_s if delay is None else float(delay),
                rate=float(self.bandwidth),
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityOptions:
    """Who publishes which flows, where a plan has several publishers."""

    name: Annotated[
        str,
        option(
            "Name of this publisher, if the plan has several.",
            INPUT,
            "--as",
            show_default="publisher",
        ),
    ] = ""
    flow: Annotated[
        list[str] | None,
        option("Flow that this publisher has; repeatable.", INPUT, show_default="all of the plan"),
    ] = None


@takes_groups
def publish(
    messages: MessageOptions,
    identity: IdentityOptions,
    member: ControlMember,
    line: SenderLine,
    sending: SendingOptions,
    metrics: MetricsOptions,
    logs: LogOptions,
    plan: PlanFolder = None,
    as_document: Json = False,
) -> None:
    """Publish messages over IP multicast as a plan says, and repair losses.

    The plan is that of a folder (--plan), or of a control plane (--control), which also learns how
    much there is of each flow. It carries what somebody wants; other messages are dropped.

    Several publishers may share a plan, each with a name (--as) and flows (--flow) of its own. A
    flow that another publisher has ends the command.
    """
    from distributary.delivery import Refused
    from distributary.delivery.udp import Publisher, snapshot_document

    if plan is None and member.control is None:
        raise typer.BadParameter("give a plan's folder with --plan, or a --control plane")
    member.check(identity.name, plan, content=messages.content)
    line.check_control(member.control)
    params = sending.make_params(plan)
    events = messages.open_events()
    refused: list[Refused] = []
    refusal = asyncio.Event()

    def report(found: object) -> None:
        if isinstance(found, Refused):
            refused.append(found)
            refusal.set()

    publisher = Publisher(
        plan,
        line.make_network(),
        control=member.join(identity.name),
        name=identity.name or "publisher",
        flows=identity.flow,
        params=params,
        key=line.read_key(),
        stay=float(sending.stay),
        prepare=(lambda plan: None) if events is None else events.prepare,
        on_report=report,
        on_fault=logs.tell_fault,
    )

    async def work(stop: asyncio.Event) -> tuple[bool, dict[str, Any]]:
        async with publisher, show_live(lambda: publisher.statistics):
            with metrics.serve(lambda: publisher.statistics):
                if events is None:
                    publishing = _publish_records(publisher, messages.source, sending.rate)
                else:
                    publishing = events.publish(publisher, messages.source, sending.rate)
                done = await _run_until(publishing, stop, refusal)
                if not refused:
                    await publisher.drain()
        if refused:  # only now, so that receivers heard that this publisher has left
            raise _refused_error(refused[0])
        return done, snapshot_document(publisher.statistics)

    done, statistics = run_until_signal(work)
    unplanned = publisher.unplanned
    by_content = {} if events is None else {"content": events.document()}
    if logs.log_json or not as_document:
        logs.end(statistics)
    if as_document:
        print_json(
            {**statistics, **by_content, "unplanned_flows": unplanned, "interrupted": not done}
        )
    else:
        results.print(f"{statistics['messages']:,} messages published", markup=False)
    if events is not None:
        events.print_notes()
        if done:
            events.check()
    if plan is not None and unplanned:
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


def _refused_error(refused: Refused) -> LiveError:
    """Make the error that names the flows of another publisher."""
    from distributary.delivery.errors import NotHeldError

    if len(refused.flows) == 1:
        return NotHeldError(refused.flows[0], refused.holder)
    named = ", ".join(repr(flow) for flow in refused.flows[:_NAMED])
    more = f" and {len(refused.flows) - _NAMED:,} more" if len(refused.flows) > _NAMED else ""
    return LiveError(
        f"flows {named}{more} are published by {refused.holder!r}; name others with --flow"
    )


async def _publish_records(publisher: Publisher, source: str, rate: float | None) -> None:
    from distributary.delivery.udp.records import feed_chunks, publish_records

    await publish_records(publisher, feed_chunks(_read_chunks(source)), rate)


async def _run_until(work: Coroutine[Any, Any, None], *stops: asyncio.Event) -> bool:
    """Publish until the input ends (True) or a stop event is set (False)."""
    publishing = asyncio.ensure_future(work)
    stopping = [asyncio.ensure_future(stop.wait()) for stop in stops]
    try:
        await asyncio.wait((publishing, *stopping), return_when=asyncio.FIRST_COMPLETED)
        if publishing.done():
            publishing.result()
            return True
        return False
    finally:
        for task in (publishing, *stopping):
            task.cancel()
        await asyncio.wait((publishing, *stopping))
