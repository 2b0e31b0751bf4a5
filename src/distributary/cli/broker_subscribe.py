"""`distributary broker subscribe`: print the events that match a filter."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from distributary.cli.broker_client import BrokerChoice, ClientName
from distributary.cli.console import notes, warn
from distributary.cli.multicast_options import run_until_signal
from distributary.cli.option_groups import takes_groups
from distributary.cli.options import OUTPUT, duration_option, option
from distributary.cli.quantities import Seconds
from distributary.cli.start import INTERRUPTED
from distributary.errors import OutputError

if TYPE_CHECKING:
    from distributary.content.client_actions import ClientParams
    from distributary.content.errors import EventsMissedError
    from distributary.content.tcp import ContentClient, ContentSubscription, ReceivedEvent

__all__ = ["subscribe"]

SESSION = "Session"


class WhenFullName(StrEnum):
    """What the broker does when it keeps too many events for a client."""

    WAIT = "wait"
    DROP_OLDEST = "drop-oldest"
    DISCONNECT = "disconnect"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """What the broker keeps for the client while it is away."""

    ephemeral: Annotated[
        bool,
        option(
            "Keep nothing: events while this command does not run are missed.",
            SESSION,
            "--ephemeral",
        ),
    ] = False
    lease: Annotated[
        Seconds | None,
        duration_option(
            "How long the broker keeps events for this client while it is away.", SESSION
        ),
    ] = None
    when_full: Annotated[
        WhenFullName,
        option(
            "When the broker keeps too many events for this client: wait slows publishers down "
            "(if it is away, for a minute, then as drop-oldest), drop-oldest drops and reports, "
            "disconnect ends the session.",
            SESSION,
        ),
    ] = WhenFullName.WAIT

    def make_params(self) -> ClientParams:
        """Make the settings of the session."""
        from distributary.content.client_actions import ClientParams

        lease = None if self.lease is None else float(self.lease)
        return ClientParams(ephemeral=self.ephemeral, lease=lease, when_full=self.when_full.value)


@takes_groups
def subscribe(
    filter: Annotated[
        str, typer.Argument(help="SQL filter, such as \"symbol = 'IBM' AND price > 120\".")
    ],
    choice: BrokerChoice,
    name: ClientName,
    session: SessionOptions,
    count: Annotated[
        int | None,
        option("Exit after this many events.", OUTPUT, min=1, show_default="run until Ctrl-C"),
    ] = None,
    as_document: Annotated[
        bool, option("Print one JSON object per line for each event.", OUTPUT, "--json")
    ] = False,
) -> None:
    """Print the events that match a filter as they arrive, each once, publishers in order.

    The broker keeps events while this command does not run, for the next one with the same name and
    filter. An event counts as taken when it is printed.
    """
    printer = _Printer(count, as_document)

    async def work(stop: asyncio.Event) -> bool:
        async with choice.make_client(name, session.make_params()) as client:
            subscription = await client.subscribe(filter)
            await _end_others(client)
            later = "" if subscription.is_settled else "; some brokers are away and follow later"
            found = _describe_session(client)
            notes.print(f"subscribed as {name!r} at {choice.broker}{found}{later}", markup=False)
            return await _print_until(stop, subscription, printer)

    if not run_until_signal(work):
        raise typer.Exit(INTERRUPTED)


def _describe_session(client: ContentClient) -> str:
    if not client.is_resumed:
        return ", in a new session"
    waiting = f"{client.waiting:,} event{'' if client.waiting == 1 else 's'}"
    return f", in the session from before, with {waiting} waiting"


async def _end_others(client: ContentClient) -> None:
    ended = await client.end_unclaimed()
    if ended:
        note = f"ended {ended:,} other filters of earlier commands with this name"
        notes.print(f"[bold yellow]note:[/] {escape(note)}")


async def _print_until(
    stop: asyncio.Event, subscription: ContentSubscription, printer: _Printer
) -> bool:
    """Print until there are enough (True), or until the stop event is set (False)."""
    printing = asyncio.ensure_future(printer.print_all(subscription))
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((printing, stopping), return_when=asyncio.FIRST_COMPLETED)
        if printing.done():
            printing.result()
            return True
        return False
    finally:
        for task in (printing, stopping):
            task.cancel()
        await asyncio.wait((printing, stopping))


class _Printer:
    """Writes events to stdout from a thread, so that a slow reader does not stop the client."""

    def __init__(self, count: int | None, as_document: bool) -> None:
        self._left = count
        self._as_document = as_document

    async def print_all(self, subscription: ContentSubscription) -> None:
        """Print events until there are enough, or nobody reads them."""
        from distributary.content.errors import EventsMissedError

        while self._left != 0:
            try:
                events = await subscription.get_some(min(self._left or 1_000, 1_000))
            except EventsMissedError as missed:
                lines = self._describe_loss(missed)
            else:
                if not events:
                    return
                lines = "".join(self._describe(event) + "\n" for event in events)
                if self._left is not None:
                    self._left -= len(events)
            try:
                await asyncio.to_thread(_write, lines)
            except BrokenPipeError:  # the reader has enough
                return
        subscription.acknowledge()

    def _describe(self, event: ReceivedEvent) -> str:
        from distributary.cli.multicast_lines import describe_payload

        if self._as_document:
            return _to_json(
                {
                    "event": event.attributes,
                    **describe_payload(event.payload),
                    "broker": event.broker,
                    "number": event.number,
                    "publisher": event.publisher,
                }
            )
        payload = event.payload.decode(errors="replace")
        text = f"{event.broker} {event.number}: {_to_json(event.attributes)}"
        return f"{text} {payload}" if payload else text

    def _describe_loss(self, missed: EventsMissedError) -> str:
        warn(str(missed))
        if not self._as_document:
            return ""
        report = {"report": "missed", "events": missed.count, "reason": missed.reason}
        return _to_json(report) + "\n"


def _to_json(value: Any) -> str:
    import msgspec

    return msgspec.json.encode(value).decode()


def _write(lines: str) -> None:
    try:
        sys.stdout.write(lines)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(error.strerror or str(error), path="stdout") from None
