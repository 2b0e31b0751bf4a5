"""Broker processes of a network, and proxies that cut or freeze its connections."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

HOST = "127.0.0.1"
# Below the ports that the kernel gives to outgoing connections: while a broker is dead, nobody
# takes its port.
_PORTS = range(20_000, 32_000)


class Proxy:
    """Forwards connections to a port; it can cut them, or hold them without a word."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._pairs: set[asyncio.Task[None]] = set()
        self._passing = asyncio.Event()
        self._passing.set()
        self._is_cut = False

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, HOST, 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.cut()
        self._server.close()
        await asyncio.gather(*self._pairs, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def address(self) -> str:
        """Where to connect to."""
        return f"{HOST}:{self.port}"

    def cut(self) -> None:
        """Break all connections, and let nobody through."""
        self._is_cut = True
        for pair in self._pairs:
            pair.cancel()

    def freeze(self) -> None:
        """Forward nothing; the connections stay."""
        self._passing.clear()

    def mend(self) -> None:
        """Forward again."""
        self._is_cut = False
        self._passing.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._pairs.add(task)
        try:
            with suppress(OSError, asyncio.CancelledError):
                if not self._is_cut:
                    await self._join(reader, writer)
        finally:
            self._pairs.discard(task)
            writer.transport.abort()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(HOST, self._target)
        try:
            tasks = [
                asyncio.create_task(self._pump(reader, far_writer)),
                asyncio.create_task(self._pump(far_reader, writer)),
            ]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            far_writer.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            await self._passing.wait()
            writer.write(data)
            await writer.drain()


class BrokerProcess:
    """`distributary broker serve` as a process that can be killed, stopped and started again."""

    def __init__(self, name: str, port: int, folder: Path, links: dict[str, str]) -> None:
        self.name = name
        self.port = port
        self._folder = folder
        self._log = folder / f"{name}.log"
        options = ["--name", name, "--listen", f"{HOST}:{port}", "--state", str(folder / name)]
        options += ["--schema", str(folder / "schema.json")]
        for neighbour, address in links.items():
            options += ["--link", f"{neighbour}={address}"]
        self._command = [sys.executable, "-m", "distributary", "broker", "serve", *options]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, or start it again with the state that it has."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def kill(self) -> None:
        """End it with SIGKILL."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None

    def pause(self) -> None:
        """Stop it with SIGSTOP."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on with SIGCONT."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def check(self) -> None:
        """Raise if it has ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            status = self._process.returncode
            raise AssertionError(f"broker {self.name} ended with {status}: {self.last_words()}")

    def last_words(self) -> str:
        """The end of what it wrote."""
        with suppress(OSError):
            return self._log.read_text(errors="replace")[-2_000:]
        return ""

    def end(self) -> None:
        """End it, in whatever state it is."""
        if self._process is not None:
            self.kill()


class BrokerNetwork:
    """A tree of brokers: each but the first is linked, through a proxy, with the one above it.

    Clients connect through a proxy of each broker.
    """

    def __init__(self) -> None:
        self.brokers: list[BrokerProcess] = []
        self.links: list[Proxy] = []
        self.doors: list[Proxy] = []

    def check(self) -> None:
        """Raise if a broker has ended by itself."""
        for broker in self.brokers:
            broker.check()


@asynccontextmanager
async def run_network(
    folder: Path, n_brokers: int, schema: dict[str, str], rng: random.Random
) -> AsyncIterator[BrokerNetwork]:
    """Run a network of broker processes; all of them are ended at the end of the block."""
    (folder / "schema.json").write_text(json.dumps(schema))
    network = BrokerNetwork()
    ports = find_ports(n_brokers, rng)
    async with AsyncExitStack() as stack:
        for at, port in enumerate(ports):
            links = {}
            if at:
                above = (at - 1) // 2
                proxy = await stack.enter_async_context(Proxy(ports[above]))
                network.links.append(proxy)
                links[f"b{above}"] = proxy.address
            network.doors.append(await stack.enter_async_context(Proxy(port)))
            network.brokers.append(BrokerProcess(f"b{at}", port, folder, links))
        for broker in network.brokers:
            broker.start()
            stack.callback(broker.end)
        yield network


def find_ports(count: int, rng: random.Random) -> list[int]:
    """Find ports that are free now."""
    found: list[int] = []
    while len(found) < count:
        port = rng.choice(_PORTS)
        with socket.socket() as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind((HOST, port))
            except OSError:
                continue
        if port not in found:
            found.append(port)
    return found
