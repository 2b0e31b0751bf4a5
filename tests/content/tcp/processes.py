"""Brokers as processes of their own, to be killed, stopped and started again."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

SERVE = [sys.executable, "-m", "distributary", "broker", "serve"]
PATIENCE = 120.0  # seconds that nothing here takes, on however slow a machine
SCHEMA = {"symbol": "string", "price": "double", "size": "int"}


def find_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nobody uses now, all different."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


class BrokerProcess:
    """`distributary broker serve`, with a state folder and a port that it keeps.

    `state` is another folder than the one with its name, `before` are words before the command.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        port: int,
        links: Sequence[str] = (),
        *options: str,
        state: Path | None = None,
        before: Sequence[str] = (),
    ) -> None:
        self.name = name
        self._folder = folder
        self._before = before
        self.address = f"127.0.0.1:{port}"
        self.notes: list[str] = []
        schema = folder / "schema.json"
        if not schema.exists():
            schema.write_text(json.dumps(SCHEMA))
        self._words = [
            *("--name", name, "--listen", self.address, "--state", str(state or folder / name)),
            *("--schema", str(schema)),
            *(word for link in links for word in ("--link", link)),
            *options,
        ]
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None

    @property
    def process(self) -> asyncio.subprocess.Process:
        assert self._process is not None
        return self._process

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Start it, and wait until it serves."""
        self._process = await asyncio.create_subprocess_exec(
            *self._before,
            *SERVE,
            *self._words,
            cwd=self._folder,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        serving = asyncio.Event()
        self._reading = asyncio.create_task(self._read(self._process, serving))
        async with asyncio.timeout(PATIENCE):
            await serving.wait()
        assert self._process.returncode is None, self.notes

    async def _read(self, process: asyncio.subprocess.Process, serving: asyncio.Event) -> None:
        assert process.stderr is not None
        async for line in process.stderr:
            self.notes.append(line.decode().rstrip())
            if line.startswith(b"broker "):
                serving.set()
        await process.wait()
        serving.set()

    async def end(self, number: signal.Signals = signal.SIGKILL) -> int:
        """Send a signal that ends it; returns the exit status."""
        self.process.send_signal(number)
        return await self.wait()

    async def wait(self) -> int:
        """Wait until it has ended; returns the exit status."""
        async with asyncio.timeout(PATIENCE):
            await self.process.wait()
            if self._reading is not None:
                await self._reading
        return self.process.returncode or 0

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)


@asynccontextmanager
async def run_brokers(
    folder: Path, links: Mapping[str, Sequence[str]], *options: str
) -> AsyncIterator[dict[str, BrokerProcess]]:
    """Brokers by name, each with the names of those that it connects to; killed in the end."""
    ports = dict(zip(links, find_ports(len(links)), strict=True))
    brokers = {
        name: BrokerProcess(
            name,
            folder,
            ports[name],
            [f"{other}=127.0.0.1:{ports[other]}" for other in others],
            *options,
        )
        for name, others in links.items()
    }
    try:
        await asyncio.gather(*(each.start() for each in brokers.values()))
        yield brokers
    finally:
        for each in brokers.values():
            if each.is_running:
                each.signal(signal.SIGCONT)
                await each.end()
