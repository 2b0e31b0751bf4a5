"""`distributary broker publish`: publish events at a content broker."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.live import Live
from rich.markup import escape
from rich.text import Text

from distributary.cli.broker_client import BROKER, BrokerChoice, ClientName
from distributary.cli.console import notes, print_json, results
from distributary.cli.event_intake import open_stdin
from distributary.cli.multicast_options import run_until_signal
from distributary.cli.option_groups import takes_groups
from distributary.cli.options import INPUT, Json, option, share_option
from distributary.cli.quantities import Share
from distributary.cli.start import INTERRUPTED
from distributary.errors import InputError, LiveError

if TYPE_CHECKING:
    from distributary.content.event_form import EventForm
    from distributary.content.tcp import ContentClient
    from distributary.delivery.content import Event

__all__ = ["publish"]

_PAYLOADS = ("payload", "payload_base64")
_AT_ONCE = 1_000  # events on their way to the broker


@dataclass(slots=True)
class _Counts:
    """What became of the events that were read."""

    max_bad: float
    path: str
    published: int = 0
    bad: int = 0
    first_bad: InputError | None = None
    failure: InputError | None = None  # without --max-bad the first bad event ends the command

    @property
    def events(self) -> int:
        return self.published + self.bad

    def note_bad(self, error: InputError) -> None:
        """Count an event that cannot be used."""
        if self.max_bad == 0:
            self.failure = self.failure or error
            return
        self.bad += 1
        self.first_bad = self.first_bad or error

    def check(self) -> None:
        """Raise an error if more events were bad than allowed."""
        if self.failure is not None:
            raise self.failure
        first = self.first_bad
        if first is None or self.bad <= self.max_bad * self.events:
            return
        raise InputError(
            f"{self.bad:,} of {self.events:,} events cannot be used, more than "
            f"{self.max_bad:.2%}; the first: {first.reason}",
            path=first.path,
            row=first.row,
            value=first.value,
            remedy="correct these events, or raise --max-bad",
        )


@takes_groups
def publish(
    choice: BrokerChoice,
    name: ClientName,
    source: Annotated[
        str,
        option(
            "Events to publish: Parquet, CSV or JSON lines (by extension); - is stdin, in JSON "
            "lines. Columns are the attributes, and `payload` the payload.",
            INPUT,
            "--from",
        ),
    ] = "-",
    advertise: Annotated[
        str | None,
        option(
            "SQL filter that all of the events match; spares the network subscriptions to others.",
            BROKER,
            show_default="any event",
        ),
    ] = None,
    max_bad: Annotated[
        Share, share_option("Leave out bad events, up to this share, such as 1%.", INPUT)
    ] = Share("0%"),
    as_document: Json = False,
) -> None:
    """Publish events at a content broker; exits when the broker has stored all of them.

    Whatever happens then, every client that has subscribed to them gets them.
    """
    path = "stdin" if source == "-" else source
    counts = _Counts(float(max_bad), path)

    async def work(stop: asyncio.Event) -> bool:
        async with choice.make_client(name) as client:
            if advertise is not None:
                await client.advertise(advertise)
            with _show_count(counts):
                return await _publish_until(stop, client, source, counts)

    try:
        done = run_until_signal(work)
    except LiveError:
        if counts.published or counts.bad:
            _report(counts, as_document, done=False)
        raise
    _report(counts, as_document, done=done)
    if not done:
        raise typer.Exit(INTERRUPTED)
    counts.check()


def _report(counts: _Counts, as_document: bool, *, done: bool) -> None:
    """Say how many events are stored, and how many were left out."""
    if as_document:
        print_json({"published": counts.published, "bad": counts.bad, "interrupted": not done})
    else:
        results.print(f"{_count_events(counts.published)} published", markup=False)
    if counts.first_bad is not None:
        note = f"{_count_events(counts.bad)} cannot be used, the first: {counts.first_bad}"
        notes.print(f"[bold yellow]left out:[/] {escape(note)}")


def _count_events(count: int) -> str:
    return f"{count:,} {'event' if count == 1 else 'events'}"


async def _publish_until(
    stop: asyncio.Event, client: ContentClient, source: str, counts: _Counts
) -> bool:
    """Publish until the input ends (True), or until the stop event is set (False)."""
    publishing = asyncio.ensure_future(_publish_all(client, source, counts))
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


async def _publish_all(client: ContentClient, source: str, counts: _Counts) -> None:
    """Publish all events in order, many at a time, up to the first that ends the command."""
    room = asyncio.Semaphore(_AT_ONCE)
    try:
        async with asyncio.TaskGroup() as group:
            async for event in _read(source):
                try:
                    values, payload = _prepare(event, client.form, counts.path)
                except InputError as error:
                    counts.note_bad(error)
                else:
                    await room.acquire()
                    work = _publish_one(client, values, payload, event.row or 0, counts, room)
                    group.create_task(work)
                if counts.failure is not None:
                    break
    except BaseExceptionGroup as failed:
        first = failed.exceptions[0]
        raise first from first.__cause__


async def _publish_one(
    client: ContentClient,
    values: Mapping[str, Any],
    payload: bytes,
    row: int,
    counts: _Counts,
    room: asyncio.Semaphore,
) -> None:
    from distributary.content.errors import EventRefusedError

    try:
        await client.publish(values, payload)
    except EventRefusedError as error:
        counts.note_bad(
            InputError(f"the event is refused: {error.reason}", path=counts.path, row=row)
        )
    else:
        counts.published += 1
    finally:
        room.release()


async def _read(source: str) -> AsyncIterator[Event | InputError]:
    from distributary.delivery.udp.events import read_event_lines, read_events
    from distributary.delivery.udp.records import feed_chunks

    stdin = source == "-"
    chunks = read_event_lines(open_stdin(), "stdin") if stdin else read_events(source)
    async for chunk in feed_chunks(chunks):
        for event in chunk:
            yield event


def _prepare(event: Event | InputError, form: EventForm, path: str) -> tuple[dict[str, Any], bytes]:
    """The attributes and the payload of an event as it is read; raises why it cannot be used."""
    from distributary.delivery.content import read_value

    if isinstance(event, InputError):
        raise event
    remedy = "correct the event, or leave bad ones out with --max-bad"
    try:
        values: dict[str, Any] = {}
        for name, value in event.values.items():
            if name in _PAYLOADS:
                continue
            at = form.schema.place(name)
            known = None if at is None else form.schema.attributes[at]
            values[name] = (
                value if known is None else read_value(value, known, is_text=event.is_text)
            )
        payload = _find_payload(event)
        form.check(values, payload)
    except InputError as error:
        raise InputError(
            error.reason, path=path, row=event.row, value=error.value, remedy=remedy
        ) from None
    except ValueError as error:
        raise InputError(str(error), path=path, row=event.row, remedy=remedy) from None
    return values, payload


def _find_payload(event: Event) -> bytes:
    if (encoded := event.values.get("payload_base64")) is not None:
        try:
            return base64.b64decode(str(encoded), validate=True)
        except ValueError:
            raise InputError("payload_base64 is not in base64", value=encoded) from None
    return b"" if event.values.get("payload") is None else event.payload


@contextmanager
def _show_count(counts: _Counts) -> Iterator[None]:
    """Show how many events are published, on a terminal."""
    if not notes.is_terminal:
        yield
        return
    show = lambda: Text(f"{counts.published:,} events published")  # noqa: E731
    with Live(get_renderable=show, console=notes, transient=True, refresh_per_second=4):
        yield
