"""`distributary topics`: topics on NATS that share channels where that saves."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from enum import StrEnum
from threading import Semaphore, Thread
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from distributary.cli.console import notes, print_json, results
from distributary.cli.nats_options import SERVER, ServerChoice, takes_server
from distributary.cli.options import OUTPUT, Json, Seed, duration_option
from distributary.cli.quantities import Seconds

if TYPE_CHECKING:
    from distributary.topics.messages import Event
    from distributary.topics.nats import ServiceSettings, TopicClient, TopicService

__all__ = ["app"]

T = TypeVar("T")

CHANNELS, KEEPING = "Channels", "Keeping"
Timeout = Annotated[Seconds, duration_option("How long to wait for an answer.", SERVER)]

app = typer.Typer(
    help="Topics on a NATS server that share channels where that saves.", no_args_is_help=True
)


class PolicyName(StrEnum):
    """Who decides what on clusters."""

    OURS = "ours"
    TAMARA = "tamara"


def serve(
    server: ServerChoice,
    policy: Annotated[
        PolicyName, typer.Option(help="How channels decide.", rich_help_panel=CHANNELS)
    ] = PolicyName.OURS,
    interval: Annotated[
        Seconds,
        duration_option("A subscription costs as much as one message in this time.", CHANNELS),
    ] = Seconds("1m"),
    plan_every: Annotated[
        Seconds, duration_option("How often to look for new clusters.", CHANNELS)
    ] = Seconds("1m"),
    history: Annotated[
        int,
        typer.Option(
            min=1,
            help="Events of each topic to keep for clients that were away.",
            rich_help_panel=KEEPING,
        ),
    ] = 1_000,
    history_bytes: Annotated[
        int,
        typer.Option(
            min=0,
            help="The most bytes of each topic to keep; its last event always stays.",
            rich_help_panel=KEEPING,
        ),
    ] = 1 << 24,
    dead_after: Annotated[
        Seconds, duration_option("Silence after which a client counts as dead.", CHANNELS)
    ] = Seconds("10s"),
    fsync: Annotated[
        bool,
        typer.Option(
            "--fsync",
            help="Confirm events only when they are safely on disk.",
            rich_help_panel=KEEPING,
        ),
    ] = False,
    monitor: Annotated[
        bool,
        typer.Option(
            "--monitor",
            help="Let every local user see the embedded server's numbers.",
            rich_help_panel=SERVER,
        ),
    ] = False,
    seed: Seed = 0,
) -> None:
    """Run the channel service, with a NATS server of its own unless --nats names one.

    End it with Ctrl-C (exit 0) or in any other way, and start it again with the same --state: every
    event that it has confirmed is delivered, once and in order.
    """
    from distributary.topics import TAMARA
    from distributary.topics.nats import LIVE, ServiceSettings, live_policy

    if server.state is None:
        raise typer.BadParameter("name a folder for its state", param_hint="'--state'")
    base = LIVE if policy is PolicyName.OURS else TAMARA
    settings = ServiceSettings(
        server.state,
        policy=live_policy(
            base,
            interval=float(interval),
            history=history,
            history_bytes=history_bytes,
        ),
        prefix=server.prefix,
        seed=seed,
        sync=fsync,
        dead_after=float(dead_after),
        plan_every=float(plan_every),
    )
    _run(_serve(server, settings, monitor))


def create(
    server: ServerChoice,
    topics: Annotated[list[str], typer.Argument(help="Any text.")],
    timeout: Timeout = Seconds("30s"),
    as_document: Json = False,
) -> None:
    """Create topics; those that exist already stay as they are."""

    async def work() -> list[str]:
        async with _client(server, float(timeout)) as client:
            return await _create_all(client, topics)

    new = _run(work())
    if as_document:
        print_json({"topics": list(dict.fromkeys(topics)), "created": new})
    else:
        for topic in dict.fromkeys(topics):
            said = "created" if topic in new else "there already"
            results.print(f"{topic}: {said}", markup=False)


def publish(
    server: ServerChoice,
    topic: Annotated[str, typer.Argument(help="Any text.")],
    payload: Annotated[
        str | None, typer.Argument(help="One event; without it every line of stdin is one.")
    ] = None,
    create: Annotated[
        bool,
        typer.Option(
            "--create", help="Create the topic if it does not exist.", rich_help_panel=CHANNELS
        ),
    ] = False,
    timeout: Timeout = Seconds("30s"),
    as_document: Json = False,
) -> None:
    """Publish events; ends when all of them are confirmed."""
    lines: Iterable[bytes] = sys.stdin.buffer if payload is None else [payload.encode()]

    async def work() -> int:
        async with _client(server, float(timeout)) as client:
            if create:
                await client.create(topic)
            return await _publish_all(client, topic, lines)

    published = _run(work())
    if as_document:
        print_json({"topic": topic, "published": published})
    else:
        events = "event" if published == 1 else "events"
        results.print(f"{published:,} {events} published", markup=False)


def subscribe(
    server: ServerChoice,
    topics: Annotated[list[str], typer.Argument(help="Any text.")],
    count: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="End after this many events; without it, with Ctrl-C.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    create: Annotated[
        bool,
        typer.Option("--create", help="Create topics that do not exist.", rich_help_panel=CHANNELS),
    ] = False,
    timeout: Timeout = Seconds("30s"),
    as_document: Annotated[
        bool,
        typer.Option(
            "--json", help="Print one JSON object a line for each event.", rich_help_panel=OUTPUT
        ),
    ] = False,
) -> None:
    """Print the events of topics as they come, each once and in order.

    What was published before is not printed: subscribe first, then publish.
    """

    async def work() -> None:
        async with _client(server, float(timeout)) as client:
            if create:
                await _create_all(client, topics)
            await _print_events(client, dict.fromkeys(topics), count, as_document)

    _run(work())


def status(
    server: ServerChoice,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch", help="Keep the table up to date until Ctrl-C.", rich_help_panel=OUTPUT
        ),
    ] = False,
    every: Annotated[Seconds, duration_option("With --watch: how often to ask.", OUTPUT)] = Seconds(
        "2s"
    ),
    monitor: Annotated[
        str | None,
        typer.Option(
            help="The server's monitoring pages, as http://HOST:8222.", rich_help_panel=SERVER
        ),
    ] = None,
    as_document: Json = False,
) -> None:
    """Show the clusters, what they save and what they cost in messages."""
    from distributary.cli.topics_status import show_once, watch_status

    options, known = server.find()
    pages = monitor or known
    if watch:
        _run(watch_status(options, server.prefix, pages, float(every), as_document))
    else:
        _run(show_once(options, server.prefix, pages, as_document))


for _command in (serve, create, publish, subscribe, status):
    app.command(_command.__name__)(takes_server(_command))


# --- serving -------------------------------------------------------------------------------------


async def _serve(server: ServerChoice, settings: ServiceSettings, monitor: bool) -> None:
    """Serve until SIGINT or SIGTERM."""
    from distributary.machines.real.store import Store
    from distributary.topics.nats import TopicService, run_embedded_server

    work = asyncio.current_task()
    service: TopicService | None = None

    def stop() -> None:
        if service is not None and service.started.is_set():
            service.stop()
        elif work is not None:
            work.cancel()  # nothing was begun yet that should be finished

    with _on_signals(stop), suppress(asyncio.CancelledError):
        async with AsyncExitStack() as stack:
            # Locked before anything else: who is refused here has touched nothing of another's.
            store = stack.enter_context(Store(settings.folder, sync=settings.sync))
            options = server.own
            if options is None:
                embedded = await stack.enter_async_context(
                    run_embedded_server(settings.folder, monitor=monitor, on_restart=_warn)
                )
                options = embedded.options
            service = TopicService(options, settings, store=store)
            where = options.address if server.own else f"{options.address} (embedded)"
            await _run_service(service, f"serving topics on {where}, state in {settings.folder}")


async def _run_service(service: TopicService, said_when_started: str) -> None:
    running = asyncio.create_task(service.run())
    starting = asyncio.create_task(service.started.wait())
    try:
        await asyncio.wait((running, starting), return_when=asyncio.FIRST_COMPLETED)
        for report in service.reports:
            _warn(report)
        if service.started.is_set():
            notes.print(said_when_started, markup=False)
        await running
    finally:
        starting.cancel()
        running.cancel()
        # One that fails at the very moment it is ended has nobody to tell that to.
        await asyncio.gather(running, return_exceptions=True)


def _warn(what: str) -> None:
    notes.print(f"warning: {what}", markup=False)


class _on_signals:  # noqa: N801 - reads as a verb where it is used
    """Call a function on SIGINT and SIGTERM while the block runs."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call

    def __enter__(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._call)

    def __exit__(self, *_: object) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().remove_signal_handler(number)


# --- clients -------------------------------------------------------------------------------------


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine; of an exception group raise the first error."""
    try:
        return asyncio.run(work)
    except BaseExceptionGroup as failed:
        first: BaseException = failed
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from None


@asynccontextmanager
async def _client(server: ServerChoice, timeout: float) -> AsyncIterator[TopicClient]:
    from distributary.topics.nats import ClientSettings, TopicClient

    settings = ClientSettings(
        prefix=server.prefix, timeout=timeout, connect_within=min(timeout, 10.0)
    )
    async with TopicClient(server.options(), settings, name="cli") as client:
        yield client


async def _create_all(client: TopicClient, topics: Iterable[str]) -> list[str]:
    """Create topics and return those that are new."""
    return [topic for topic in dict.fromkeys(topics) if await client.create(topic)]


async def _publish_all(client: TopicClient, topic: str, lines: Iterable[bytes]) -> int:
    """Publish every line; as many at a time as the client's window allows."""
    published = 0
    room = asyncio.Semaphore(client.settings.window)

    async def one(line: bytes) -> None:
        nonlocal published
        await client.publish(topic, line)
        published += 1
        room.release()

    async with asyncio.TaskGroup() as group:
        async for line in _read(lines):
            await room.acquire()
            group.create_task(one(line))
    return published


async def _read(lines: Iterable[bytes]) -> AsyncIterator[bytes]:
    """Yield lines without line ends. A daemon thread reads them: input may never come."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[bytes | None] = asyncio.Queue()
    room = Semaphore(1_000)

    def feed() -> None:
        with suppress(RuntimeError):  # the command was ended
            for line in lines:
                room.acquire()
                loop.call_soon_threadsafe(queue.put_nowait, line.rstrip(b"\r\n"))
            loop.call_soon_threadsafe(queue.put_nowait, None)

    Thread(target=feed, daemon=True).start()
    while (line := await queue.get()) is not None:
        room.release()
        yield line


async def _print_events(
    client: TopicClient, topics: Iterable[str], count: int | None, as_document: bool
) -> None:
    from distributary.topics.nats import EventsLostError

    printed = 0

    async def follow(topic: str) -> None:
        nonlocal printed
        subscription = await client.subscribe(topic)
        while True:
            try:
                event = await subscription.get()
            except EventsLostError as lost:
                notes.print(f"warning: {lost}", markup=False)
                continue
            if event is None:
                return
            print(_line(event, as_document), flush=True)
            printed += 1
            if printed == count:
                await client.close()

    async with asyncio.TaskGroup() as group:
        for topic in topics:
            group.create_task(follow(topic))


def _line(event: Event, as_document: bool) -> str:
    text = event.payload.decode(errors="replace")
    if as_document:
        return json.dumps(
            {"topic": event.topic, "number": event.number, "payload": text}, ensure_ascii=False
        )
    return f"{event.topic} {event.number}: {text}"
