"""Peers as processes of their own, to be killed, suspended and started again."""

from __future__ import annotations

import asyncio
import random
import signal
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from distributary.topics.live import ClientSettings, TopicClient
from distributary.topics.peer.tcp import PeerOptions

PEER = [sys.executable, "-m", "distributary", "topics", "peer"]
PATIENCE = 120.0  # seconds that nothing here takes, on however slow a machine
# Below the ports that the kernel gives to outgoing connections: while a peer is dead, nobody takes
# its port.
_PORTS = range(12_000, 20_000)


def find_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nobody uses now, all different."""
    found: list[int] = []
    while len(found) < count:
        port = random.choice(_PORTS)
        with socket.socket() as trial:
            try:
                trial.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in found:
            found.append(port)
    return found


class PeerProcess:
    """`distributary topics peer`, with a state folder and a port that it keeps."""

    def __init__(
        self,
        folder: Path,
        port: int,
        join: Sequence[str] = (),
        *options: str,
        state: Path | None = None,
        before: Sequence[str] = (),
    ) -> None:
        self.address = f"127.0.0.1:{port}"
        self.notes: list[str] = []
        self._folder = folder
        self._words = [
            *before,
            *PEER,
            *("--listen", self.address, "--state", str(state or folder / str(port))),
            *(word for peer in join for word in ("--join", peer)),
            *options,
        ]
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._serving = asyncio.Event()
        self._joined = asyncio.Event()

    @property
    def process(self) -> asyncio.subprocess.Process:
        assert self._process is not None
        return self._process

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self, *, joins: bool = True) -> None:
        """Start it, and wait until it serves, and is part of a ring."""
        self._serving, self._joined = asyncio.Event(), asyncio.Event()
        self._process = await asyncio.create_subprocess_exec(
            *self._words,
            cwd=self._folder,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        self._reading = asyncio.create_task(self._read(self._process))
        async with asyncio.timeout(PATIENCE):
            await (self._joined if joins else self._serving).wait()
        assert self._process.returncode is None, self.notes

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        async for line in process.stderr:
            self.notes.append(line.decode().rstrip())
            if line.startswith(b"peer "):
                self._serving.set()
            if line.startswith((b"in a ring ", b"started a ring")):
                self._joined.set()
        await process.wait()
        self._serving.set()
        self._joined.set()

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
async def run_peers(folder: Path, count: int, *options: str) -> AsyncIterator[list[PeerProcess]]:
    """A ring of peers; killed in the end."""
    ports = find_ports(count)
    first = f"127.0.0.1:{ports[0]}"
    peers = [PeerProcess(folder, ports[0], (), *options)]
    peers += [PeerProcess(folder, port, [first], *options) for port in ports[1:]]
    try:
        await peers[0].start()
        await asyncio.gather(*(each.start() for each in peers[1:]))
        yield peers
    finally:
        for each in peers:
            if each.is_running:
                each.signal(signal.SIGCONT)
                await each.end()


def make_client(peers: Sequence[PeerProcess], *, timeout: float = PATIENCE) -> TopicClient:
    """A client that knows these peers and prefers the first."""
    options = PeerOptions(",".join(each.address for each in peers))
    settings = ClientSettings(timeout=timeout, connect_within=PATIENCE, beat_every=1.0)
    return TopicClient(options, settings)
