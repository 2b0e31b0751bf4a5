"""Our brokers as processes, and clients of ours under the load."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.brokers_load import SCHEMA, Driven, Load, Readings, Trade, drive
from benchmarks.processes import cpu_of, resident
from distributary.content.codec import Codec
from distributary.content.connections import Packet
from distributary.content.messages import Packed, Statement
from distributary.content.resync import StaleStatements, ToldBuckets
from distributary.content.tcp import (
    ContentClient,
    ContentClientSettings,
    ContentSubscription,
    Credentials,
    fetch_status,
)
from distributary.files.schemas import read_schema

HOST = "127.0.0.1"
_PORTS = range(20_000, 32_000)  # below those of outgoing connections
_WITHIN = 900.0
SETTINGS = ContentClientSettings(connect_within=_WITHIN, timeout=_WITHIN, settle_within=_WITHIN)
SUBSCRIBING = 500  # subscriptions of a client that wait for their answer at a time


@dataclass
class Broker:
    """A broker process."""

    name: str
    port: int
    command: list[str]
    folder: Path
    process: subprocess.Popen[bytes] = field(init=False)

    @property
    def address(self) -> str:
        """Where clients connect to."""
        return f"{HOST}:{self.port}"

    @property
    def log(self) -> Path:
        """What it writes for people."""
        return self.folder.with_suffix(".log")

    def start(self) -> None:
        """Start it, with the state that it has."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def end(self, number: int = signal.SIGTERM) -> None:
        """End it by a signal."""
        self.process.send_signal(number)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def cpu(self) -> float:
        """Its CPU seconds so far."""
        return cpu_of(self.process.pid)

    def memory(self) -> int:
        """Its resident bytes now."""
        return resident(self.process.pid)

    async def status(self) -> Mapping[str, Any]:
        """Its statistics."""
        return await fetch_status(self.address, Credentials("benchmark"), within=_WITHIN)


class LinkCounter:
    """A proxy that counts the statements and bytes of a link, in both directions.

    A statement is a subscription or an advertisement, or the end of one.
    """

    def __init__(self) -> None:
        self.statements = self.bytes = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, target: int, schema: Path) -> int:
        """Forward to a port; returns the port to connect to."""
        self._target = target
        self._codec = Codec(read_schema(schema))
        self._server = await asyncio.start_server(self._accept, HOST, 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def stop(self) -> None:
        """Close all connections."""
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            far_reader, far_writer = await asyncio.open_connection(HOST, self._target)
        except OSError:  # it does not listen yet
            self._tasks.discard(task)
            writer.transport.abort()
            return
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(reader, far_writer))
                group.create_task(self._pump(far_reader, writer))
        except* (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            for each in (writer, far_writer):
                each.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readexactly(4)
            body = await reader.readexactly(int.from_bytes(head, "big"))
            self.statements += self._count_statements(body)
            self.bytes += len(head) + len(body)
            writer.write(head + body)
            await writer.drain()

    def _count_statements(self, body: bytes) -> int:
        message = self._codec.decode(body) if body else None  # a keep-alive is empty
        return sum(map(_count_in, message.messages)) if isinstance(message, Packet) else 0


def _count_in(message: object) -> int:
    if isinstance(message, Packed):
        return len(message.statements)
    if isinstance(message, ToldBuckets):  # instead of statements that waited for too long
        return len(message.told.advertisements) + len(message.told.subscriptions)
    if isinstance(message, StaleStatements):
        return len(message.heard.advertisements) + len(message.heard.subscriptions)
    return isinstance(message, Statement)


@asynccontextmanager
async def run_brokers(
    n_brokers: int,
    *,
    fsync: bool = False,
    policy: str = "merging",
    counters: Sequence[LinkCounter] = (),
) -> AsyncIterator[list[Broker]]:
    """Run a binary tree of brokers on loopback; the last one is a leaf, the first one the root.

    Its links go through the counters, if there are any.
    """
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory(prefix="brokers-"))
        place = Path(folder)
        schema = place / "schema.json"
        schema.write_text(json.dumps(SCHEMA))
        brokers: list[Broker] = []
        for at, port in enumerate(_find_ports(n_brokers)):
            options = ["--name", f"b{at}", "--listen", f"{HOST}:{port}"]
            options += ["--state", f"{folder}/b{at}", "--schema", str(schema)]
            options += ["--policy", policy, *(["--fsync"] if fsync else [])]
            if at:
                above = brokers[(at - 1) // 2]
                port_above = above.port
                if counters:
                    port_above = await counters[at - 1].start(above.port, schema)
                    stack.push_async_callback(counters[at - 1].stop)
                options += ["--link", f"{above.name}={HOST}:{port_above}"]
            command = [sys.executable, "-m", "distributary", "broker", "serve", *options]
            brokers.append(Broker(f"b{at}", port, command, place / f"b{at}"))
        try:
            for broker in brokers:
                broker.start()
            for broker in brokers:
                await wait_until_up(broker)
            yield brokers
        finally:
            started = [broker for broker in brokers if hasattr(broker, "process")]
            await asyncio.gather(*(asyncio.to_thread(each.end) for each in started))


async def wait_until_up(broker: Broker) -> None:
    """Wait until a broker answers."""
    until = time.monotonic() + _WITHIN
    while time.monotonic() < until:
        if broker.process.poll() is not None:
            raise RuntimeError(f"broker {broker.name} ended: {broker.log.read_text()[-1000:]}")
        try:
            _, writer = await asyncio.open_connection(HOST, broker.port)
        except OSError:
            await asyncio.sleep(0.005)
        else:
            writer.close()
            await broker.status()
            return
    raise TimeoutError(f"broker {broker.name} does not answer")


def _find_ports(count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        port = random.choice(_PORTS)
        with socket.socket() as trial, suppress(OSError):
            trial.bind((HOST, port))
            if port not in found:
                found.append(port)
    return found


# --- clients --------------------------------------------------------------------------------------


class Readers:
    """The tasks that read subscriptions; an event that several subscriptions get counts once."""

    def __init__(self, readings: Readings) -> None:
        self._readings = readings
        self._tasks: list[asyncio.Task[None]] = []
        self._seen: set[tuple[int, str, int]] = set()

    def follow(self, client: int, subscription: ContentSubscription) -> None:
        """Read a subscription from now on."""
        self._tasks.append(asyncio.create_task(self._follow(client, subscription)))

    async def _follow(self, client: int, subscription: ContentSubscription) -> None:
        async for event in subscription:
            key = client, event.broker, event.number
            if key not in self._seen:
                self._seen.add(key)
                self._readings.messages += 1
                self._readings.read(client, event.payload)

    async def stop(self) -> None:
        """Cancel all of them; raises what one of them raised."""
        for task in self._tasks:
            task.cancel()
        for result in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result


async def subscribe_all(client: ContentClient, filters: Iterable[str]) -> list[ContentSubscription]:
    """Subscribe to many filters, many at a time; returns when all brokers know them."""
    waiting = asyncio.Semaphore(SUBSCRIBING)

    async def subscribe(text: str) -> ContentSubscription:
        async with waiting:
            made = await client.subscribe(text)
            assert made.is_settled
            return made

    return await asyncio.gather(*(subscribe(text) for text in filters))


@asynccontextmanager
async def open_clients(
    brokers: list[Broker], load: Load, readings: Readings
) -> AsyncIterator[ContentClient]:
    """A publisher at the last broker, and all subscribers in turn at all brokers."""
    places = [("publisher", brokers[-1])]
    places += [(f"client-{at}", brokers[at % len(brokers)]) for at in range(len(load.wanted))]
    async with AsyncExitStack() as stack:
        publisher, *clients = [
            await stack.enter_async_context(
                ContentClient(broker.address, name=name, settings=SETTINGS)
            )
            for name, broker in places
        ]
        readers = Readers(readings)
        stack.push_async_callback(readers.stop)
        for at, (client, wanted) in enumerate(zip(clients, load.wanted, strict=True)):
            for subscription in await subscribe_all(client, (each.sql for each in wanted)):
                readers.follow(at, subscription)
        yield publisher


async def measure_ours(load: Load, n_brokers: int, *, fsync: bool) -> Driven:
    """Drive the load through a network."""
    readings = Readings()
    async with (
        run_brokers(n_brokers, fsync=fsync) as brokers,
        open_clients(brokers, load, readings) as publisher,
    ):
        # The first publication advertises; subscriptions then travel to the publisher.
        await publisher.advertise("price >= 0")

        async def publish(trade: Trade, payload: bytes) -> None:
            await publisher.publish(trade.attributes, payload)

        return await drive(publish, readings, load, [broker.process.pid for broker in brokers])
