"""`distributary topics`: run and use topics, on NATS or between peers."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from threading import Semaphore, Thread
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from distributary.cli.console import notes, print_json, results
from distributary.cli.nats_options import SERVER, CarrierChoice, ServerChoice
from distributary.cli.option_groups import takes_groups
from distributary.cli.options import OUTPUT, Json, duration_option, option, seed_option
from distributary.cli.quantities import Seconds
from distributary.cli.topics_peer import peer

if TYPE_CHECKING:
    from distributary.topics import Policy
    from distributary.topics.messages import Event
    from distributary.topics.nats import ServiceSettings, TopicClient, TopicService

__all__ = ["app"]

T = TypeVar("T")

CHANNELS, STORAGE = "Channels", "Storage"
Timeout = Annotated[Seconds, duration_option("How long to wait for an answer.", SERVER)]

app = typer.Typer(
    help="Serve topics on NATS or between peers; topics with the same readers share channels.",
    no_args_is_help=True,
)


class PolicyName(StrEnum):
    """The policies that decide which topics form a cluster."""

    OURS = "ours"
    TAMARA = "tamara"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelOptions:
    """How channels decide."""

    policy: Annotated[
        PolicyName,
        option("Policy that decides which topics share a channel: ours, or the paper's.", CHANNELS),
    ] = PolicyName.OURS
    interval: Annotated[
        Seconds,
        duration_option(
            "Price of a subscription: it costs as much as one message per this time.", CHANNELS
        ),
    ] = Seconds("1m")
    phi: Annotated[
        float | None,
        option(
            "With tamara: the chance that a cluster notices in time that a topic now pays.",
            CHANNELS,
            min=0.0,
            max=1.0,
            show_default="0.99",
        ),
    ] = None
    sample: Annotated[
        int | None,
        option(
            "With tamara: subscribers that a survey asks of a large channel.",
            CHANNELS,
            min=1,
            show_default="384",
        ),
    ] = None
    survey_every: Annotated[
        Seconds | None,
        option(
            "With tamara: how often a channel surveys its subscribers.",
            CHANNELS,
            parser=Seconds,
            metavar="TIME",
            show_default="--interval",
        ),
    ] = None
    notify_price: Annotated[
        float,
        option("Price of handing an event to a channel, in messages.", CHANNELS, min=0.0),
    ] = 0.0
    associate_price: Annotated[
        float,
        option("Price of a topic of a cluster, in messages per --interval.", CHANNELS, min=0.0),
    ] = 0.0
    plan_every: Annotated[Seconds, duration_option("How often to plan new clusters.", CHANNELS)] = (
        Seconds("1m")
    )
    dead_after: Annotated[
        Seconds, duration_option("Silence after which a client is considered dead.", CHANNELS)
    ] = Seconds("10s")


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageOptions:
    """How much the service stores, and how safely."""

    history: Annotated[
        int, option("Events per topic to keep for clients that were away.", STORAGE, min=1)
    ] = 1_000
    history_bytes: Annotated[
        int,
        option("Maximum bytes per topic to keep; the last event is always kept.", STORAGE, min=0),
    ] = 1 << 24
    fsync: Annotated[
        bool, option("Confirm events only once they are on disk (fsync).", STORAGE, "--fsync")
    ] = False


def serve(
    channels: ChannelOptions,
    storage: StorageOptions,
    monitor: Annotated[
        bool,
        option(
            "Serve the embedded server's monitoring pages, to every local user.",
            SERVER,
            "--monitor",
        ),
    ] = False,
    seed: Annotated[int, seed_option(CHANNELS)] = 0,
    *,
    server: ServerChoice,
) -> None:
    """Run the topic service, with an embedded NATS server unless --nats is given.

    Stop it with Ctrl-C (exit 0) or kill it; started again, it delivers every event that it has
    confirmed, once and in order. On a server with JetStream a second service stands by, and goes on
    within seconds when the first one ends.
    """
    from distributary.topics.nats import ServiceSettings

    if server.state is None and server.nats is None:
        raise typer.BadParameter("give a folder for its state", param_hint="'--state'")
    settings = ServiceSettings(
        server.state,
        policy=_choose_policy(channels, storage),
        prefix=server.prefix,
        seed=seed,
        sync=storage.fsync,
        dead_after=float(channels.dead_after),
        plan_every=float(channels.plan_every),
    )
    _run(_serve(server, settings, monitor))


def create(
    topics: Annotated[list[str], typer.Argument(help="Names of topics; any text.")],
    timeout: Timeout = Seconds("30s"),
    as_document: Json = False,
    *,
    server: CarrierChoice,
) -> None:
    """Create topics; existing ones stay as they are."""

    async def work() -> list[str]:
        async with _client(server, float(timeout)) as client:
            return await _create_all(client, topics)

    new = _run(work())
    if as_document:
        print_json({"topics": list(dict.fromkeys(topics)), "created": new})
    else:
        for topic in dict.fromkeys(topics):
            outcome = "created" if topic in new else "exists already"
            results.print(f"{topic}: {outcome}", markup=False)


def remove(
    topics: Annotated[list[str], typer.Argument(help="Names of topics.")],
    timeout: Timeout = Seconds("30s"),
    as_document: Json = False,
    *,
    server: CarrierChoice,
) -> None:
    """Remove topics with their events and subscriptions; their subscribers get an error."""

    async def work() -> list[str]:
        async with _client(server, float(timeout)) as client:
            return [topic for topic in dict.fromkeys(topics) if await client.remove(topic)]

    gone = _run(work())
    if as_document:
        print_json({"topics": list(dict.fromkeys(topics)), "removed": gone})
    else:
        for topic in dict.fromkeys(topics):
            outcome = "removed" if topic in gone else "does not exist"
            results.print(f"{topic}: {outcome}", markup=False)


def publish(
    topic: Annotated[str, typer.Argument(help="Name of the topic; any text.")],
    payload: Annotated[
        str | None,
        typer.Argument(help="Payload of one event.", show_default="one event per line of stdin"),
    ] = None,
    create: Annotated[
        bool, option("Create the topic if it does not exist.", CHANNELS, "--create")
    ] = False,
    timeout: Timeout = Seconds("30s"),
    as_document: Json = False,
    *,
    server: CarrierChoice,
) -> None:
    """Publish events; exits when all of them are confirmed."""
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
    topics: Annotated[list[str], typer.Argument(help="Names of topics; any text.")],
    count: Annotated[
        int | None,
        option("Exit after this many events.", OUTPUT, min=1, show_default="run until Ctrl-C"),
    ] = None,
    create: Annotated[
        bool, option("Create topics that do not exist.", CHANNELS, "--create")
    ] = False,
    timeout: Timeout = Seconds("30s"),
    as_document: Annotated[
        bool, option("Print one JSON object per line for each event.", OUTPUT, "--json")
    ] = False,
    *,
    server: CarrierChoice,
) -> None:
    """Print the events of topics as they arrive, each once and in order.

    Events published before the subscription are not printed.
    """

    async def work() -> None:
        async with _client(server, float(timeout)) as client:
            if create:
                await _create_all(client, topics)
            await _print_events(client, dict.fromkeys(topics), count, as_document)

    _run(work())


def status(
    watch: Annotated[
        bool, option("Keep the table up to date until Ctrl-C.", OUTPUT, "--watch")
    ] = False,
    every: Annotated[
        Seconds, duration_option("With --watch: how often to update.", OUTPUT)
    ] = Seconds("2s"),
    monitor: Annotated[
        str | None,
        option("Address of the server's monitoring pages, such as http://HOST:8222.", SERVER),
    ] = None,
    as_document: Json = False,
    *,
    server: CarrierChoice,
) -> None:
    """Show the clusters, what they save, and what they cost in messages; or a peer and its ring."""
    from distributary.cli.topics_peer_status import show_peer
    from distributary.cli.topics_status import show_once, watch_status

    peer = server.find_peer()
    if peer is not None:
        _run(show_peer(peer, float(every) if watch else None, as_document))
        return
    options, known = server.find()
    pages = monitor or known
    if watch:
        _run(watch_status(options, server.prefix, pages, float(every), as_document))
    else:
        _run(show_once(options, server.prefix, pages, as_document))


for _command in (serve, peer, create, remove, publish, subscribe, status):
    app.command(_command.__name__)(takes_groups(_command))


def _choose_policy(channels: ChannelOptions, storage: StorageOptions) -> Policy:
    from distributary.topics import TAMARA
    from distributary.topics.nats import LIVE, live_policy, price_channels

    base = LIVE
    if channels.policy is PolicyName.TAMARA:
        base = replace(
            TAMARA,
            phi=TAMARA.phi if channels.phi is None else channels.phi,
            sample=float(channels.sample or TAMARA.sample),
        )
    else:
        for name in ("phi", "sample", "survey_every"):
            if getattr(channels, name) is not None:
                hint = f"'--{name.replace('_', '-')}'"
                raise typer.BadParameter("only --policy tamara surveys", param_hint=hint)
    return live_policy(
        base,
        interval=float(channels.interval),
        history=storage.history,
        history_bytes=storage.history_bytes,
        survey_every=None if channels.survey_every is None else float(channels.survey_every),
        prices=price_channels(channels.notify_price, channels.associate_price),
    )


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
            work.cancel()  # nothing has begun that would have to finish

    with _on_signals(stop), suppress(asyncio.CancelledError):
        async with AsyncExitStack() as stack:
            store = None
            if settings.folder is not None:
                # Take the lock first: a second service must not touch anything of the first.
                store = stack.enter_context(Store(settings.folder, sync=settings.sync))
            options = server.own
            if options is None:
                embedded = await stack.enter_async_context(
                    run_embedded_server(
                        settings.folder, monitor=monitor, sync=settings.sync, on_restart=_warn
                    )
                )
                options = embedded.options
            service = TopicService(options, settings, store=store, report=_note)
            await service.run()


def _note(what: str) -> None:
    notes.print(what, markup=False)


def _warn(what: str) -> None:
    _note(f"warning: {what}")


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
    """Run a coroutine; raise the first error of an exception group."""
    try:
        return asyncio.run(work)
    except BaseExceptionGroup as failed:
        first: BaseException = failed
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from None


@asynccontextmanager
async def _client(server: CarrierChoice, timeout: float) -> AsyncIterator[TopicClient]:
    from distributary.topics.nats import ClientSettings, TopicClient

    settings = ClientSettings(
        prefix=server.prefix, timeout=timeout, connect_within=min(timeout, 10.0)
    )
    async with TopicClient(server.find_carrier(), settings, name="cli") as client:
        yield client


async def _create_all(client: TopicClient, topics: Iterable[str]) -> list[str]:
    """Create topics and return those that are new."""
    return [topic for topic in dict.fromkeys(topics) if await client.create(topic)]


async def _publish_all(client: TopicClient, topic: str, lines: Iterable[bytes]) -> int:
    """Publish every line, as many at a time as the client's window allows."""
    published = 0
    room = asyncio.Semaphore(client.settings.window)

    async def one(line: bytes) -> None:
        nonlocal published
        await client.publish(topic, line)
        published += 1
        room.release()

    async with asyncio.TaskGroup() as group:
        async for line in _read_lines(lines):
            await room.acquire()
            group.create_task(one(line))
    return published


async def _read_lines(lines: Iterable[bytes]) -> AsyncIterator[bytes]:
    """Yield lines without line ends. A daemon thread reads them, since a read may never return."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[bytes | None] = asyncio.Queue()
    room = Semaphore(1_000)

    def feed() -> None:
        with suppress(RuntimeError):  # the event loop was closed
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
            print(_event_line(event, as_document), flush=True)
            printed += 1
            if printed == count:
                await client.close()

    async with asyncio.TaskGroup() as group:
        for topic in topics:
            group.create_task(follow(topic))


def _event_line(event: Event, as_document: bool) -> str:
    text = event.payload.decode(errors="replace")
    if as_document:
        return json.dumps(
            {"topic": event.topic, "number": event.number, "payload": text}, ensure_ascii=False
        )
    return f"{event.topic} {event.number}: {text}"
