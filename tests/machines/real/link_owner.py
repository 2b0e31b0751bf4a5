"""An owner of links for tests: writes down what happens, and greets with a name."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

from distributary.machines.real import Admission, Dialer, NetworkAddress, Proof, Rejection
from distributary.machines.real.connection import LinkConnection
from distributary.machines.real.frames import KEEP_ALIVE, FrameSplitter, join_frames

LONG = 30.0  # seconds that nothing here takes, on however slow a machine
LOCAL = NetworkAddress("127.0.0.1", 0)


class TextCodec:
    """Messages are texts; one that starts with `bad` cannot be decoded."""

    def encode(self, message: Any) -> bytes:
        return str(message).encode()

    def decode(self, body: bytes) -> Any:
        if body.startswith(b"bad"):
            raise RecursionError
        return body.decode()


CODEC = TextCodec()


class Owner:
    """Takes everything, and lets tests wait until something is so."""

    def __init__(self, *, room: asyncio.Event | None = None) -> None:
        self.opened: list[LinkConnection] = []
        self.closed: list[LinkConnection] = []
        self.messages: list[tuple[Any, Any]] = []
        self.reports: list[str] = []
        self.proofs: list[Proof] = []
        self._room = room
        self._changed = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()

    async def on_open(self, connection: LinkConnection) -> None:
        self.opened.append(connection)
        await self._notify()

    async def on_message(self, connection: LinkConnection, message: Any) -> None:
        self.messages.append((connection.peer, message))
        await self._notify()
        if self._room is not None:
            await self._room.wait()

    def on_close(self, connection: LinkConnection) -> None:
        self.closed.append(connection)
        self._notify_soon()

    def report(self, reason: str) -> None:
        self.reports.append(reason)
        self._notify_soon()

    async def until(self, so: Callable[[], Any]) -> None:
        """Wait until something is so; looks again at least every few milliseconds."""
        async with asyncio.timeout(LONG):
            while not so():
                async with self._changed:
                    try:
                        async with asyncio.timeout(0.01):
                            await self._changed.wait()
                    except TimeoutError:
                        pass

    def judge(self, greeting: bytes, proof: Proof) -> Admission | Rejection:
        """Everybody may come but mallory."""
        self.proofs.append(proof)
        name = greeting.decode(errors="replace")
        if name == "mallory":
            return Rejection("mallory may not come", b"no: mallory may not come")
        return Admission(name, CODEC, 1_000_000, reply=b"yes")

    def dialer(self, address: NetworkAddress, name: str, **settings: Any) -> Dialer:
        def judge(answer: bytes, proof: Proof) -> Admission | Rejection:
            self.proofs.append(proof)
            said = answer.decode()
            if said == "yes":
                return Admission("server", CODEC, 1_000_000)
            return Rejection(said)

        return Dialer(address, lambda proof: name.encode(), judge, report=self.report, **settings)

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def _notify_soon(self) -> None:
        task = asyncio.ensure_future(self._notify())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class RawPeer:
    """A socket that speaks frames as it likes."""

    def __init__(self, address: NetworkAddress) -> None:
        self.socket = socket.create_connection((address.host, address.port), timeout=LONG)
        self._splitter = FrameSplitter(1 << 30)

    async def send(self, data: bytes) -> None:
        await asyncio.to_thread(self.socket.sendall, data)

    async def greet(self, name: str) -> bytes | None:
        await self.send(join_frames([name.encode()]))
        answer = await self.read()
        if answer == b"yes":
            await self.send(KEEP_ALIVE)
        return answer

    async def read(self) -> bytes | None:
        """The next frame; None if the other side closes."""
        while (body := self._splitter.pop()) is None:
            data = await self.read_bytes()
            if not data:
                return None
            self._splitter.feed(data)
        return body

    async def read_bytes(self) -> bytes:
        try:
            return await asyncio.to_thread(self.socket.recv, 1 << 16)
        except ConnectionError:
            return b""

    def close(self) -> None:
        self.socket.close()
