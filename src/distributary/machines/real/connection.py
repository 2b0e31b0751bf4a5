"""One connection to a peer: messages in frames, keep-alives, and a bounded queue of what to send.

The queue is the buffer of the transport. A machine that has messages in flight without an answer
should limit them itself; the bound of the queue is for peers that do not read although they send.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from distributary.machines.real.frames import (
    KEEP_ALIVE,
    FrameSplitter,
    FrameTooLongError,
    join_frames,
)
from distributary.machines.real.liveness import Liveness, Verdict
from distributary.machines.real.tls import Proof, read_proof

__all__ = [
    "Codec",
    "ConnectionLimits",
    "Ending",
    "FullQueue",
    "LinkConnection",
    "Stream",
    "open_stream",
]

_CHUNK = 1 << 18  # bytes that are read at once
LINGER = 1.0  # seconds that a closed connection has to send what is queued


class Codec(Protocol):
    """How the messages of a connection become bytes; `decode` may raise whatever it likes."""

    def encode(self, message: Any) -> bytes:
        """Encode a message of ours."""
        ...

    def decode(self, body: bytes) -> Any:
        """Decode a message of the peer."""
        ...


class FullQueue(StrEnum):
    """What happens to a connection whose queue is full."""

    CUT = "cut"  # at once
    WAIT = "wait"  # after `patience` seconds, in which the sender waits


class Ending(StrEnum):
    """Why a connection ended, for the statistics."""

    CLOSED = "closed"  # by either side, on purpose or because the network broke
    SILENT = "silent"  # nothing arrived for too long
    FULL = "full"  # the peer does not read
    BROKEN_RULE = "broken-rule"  # the peer sent what is no valid frame or message


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The bounds of all connections of a process; times in seconds, sizes in bytes.

    `handshakes` bounds the connections whose peers have not proved yet who they are; when there are
    more, the oldest of them is closed. A frame in a handshake has at most `longest_hello` bytes.
    Both ends should have the same `keep_alive` and `dead_after`.
    """

    connections: int = 4_096
    handshakes: int = 256
    handshake_within: float = 10.0
    longest_hello: int = 1 << 20
    queue: int = 64 << 20
    when_full: FullQueue = FullQueue.CUT
    patience: float = 1.0
    keep_alive: float = 2.0
    dead_after: float = 10.0

    def __post_init__(self) -> None:
        for name in ("connections", "handshakes", "longest_hello", "queue"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if not (self.handshake_within > 0 and self.patience > 0):
            raise ValueError(
                f"times must be positive, not handshake_within={self.handshake_within}, "
                f"patience={self.patience}"
            )
        if not 0 < self.keep_alive < self.dead_after:
            raise ValueError(
                f"keep_alive must be positive and less than dead_after, not {self.keep_alive} and "
                f"{self.dead_after}"
            )


class _StreamProtocol(asyncio.StreamReaderProtocol):
    """Knows when the connection is lost: asyncio's transports cannot be aborted after that."""

    lost = False

    def connection_lost(self, exc: Exception | None) -> None:
        """Remember it."""
        self.lost = True
        super().connection_lost(exc)


class Stream:
    """A socket before and during the handshake: one frame at a time."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        protocol: _StreamProtocol,
        longest: int,
    ) -> None:
        self.reader = reader
        self.writer = writer
        self._protocol = protocol
        self.splitter = FrameSplitter(longest)

    @property
    def proof(self) -> Proof:
        """What the connection proves about its peer."""
        found: ssl.SSLObject | None = self.writer.get_extra_info("ssl_object")
        peer = self.writer.get_extra_info("peername") or ("unknown", 0)
        return read_proof(f"{peer[0]}:{peer[1]}", found)

    async def read(self) -> bytes:
        """Wait for one frame; an `OSError` or `FrameTooLongError` if none comes."""
        while (body := self.splitter.pop_any()) is None:
            data = await self.reader.read(_CHUNK)
            if not data:
                raise ConnectionResetError("the peer closed during the handshake")
            self.splitter.feed(data)
        return body

    def write(self, body: bytes) -> None:
        """Queue one frame."""
        self.writer.write(join_frames([body]))

    def confirm(self) -> None:
        """Queue the empty frame that ends a handshake."""
        self.writer.write(KEEP_ALIVE)

    async def close(self) -> None:
        """Send what is queued if the peer reads it soon, and close."""
        self.writer.close()
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(LINGER):
                await self.writer.wait_closed()
        self.abort()

    def abort(self) -> None:
        """Close at once; does nothing if it is closed already."""
        if not self._protocol.lost:
            self.writer.transport.abort()


async def open_stream(
    connect: Callable[[Callable[[], asyncio.Protocol]], Awaitable[tuple[Any, Any]]], longest: int
) -> Stream:
    """Open a stream over a connection that `connect` makes for a protocol."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_CHUNK, loop=loop)
    protocol = _StreamProtocol(reader, loop=loop)
    transport, _ = await connect(lambda: protocol)
    writer = asyncio.StreamWriter(transport, protocol, reader, loop)
    return Stream(reader, writer, protocol, longest)


Deliver = Callable[["LinkConnection", Any], Awaitable[None]]


class LinkConnection:
    """A connection whose handshake has succeeded; `peer` is what the handshake found out.

    `number` is unique in the process. `reason` says why the connection was closed, and is empty
    while it is open.
    """

    def __init__(
        self,
        number: int,
        stream: Stream,
        peer: Any,
        codec: Codec,
        *,
        longest: int,
        longest_sent: int | None = None,
        limits: ConnectionLimits,
        clock: Callable[[], float],
    ) -> None:
        self.number = number
        self.peer = peer
        self.codec = codec
        self.longest_sent = longest if longest_sent is None else longest_sent
        self.reason = ""
        self.ending = Ending.CLOSED
        self.received = self.sent = 0  # frames
        self.received_bytes = self.sent_bytes = 0
        self.last_size = 0  # bytes of the message that was received last
        self._stream = stream
        self._transport = stream.writer.transport
        self._limits = limits
        self._clock = clock
        self._liveness = Liveness(
            clock(), keep_alive=limits.keep_alive, dead_after=limits.dead_after
        )
        self._delivering = False
        self._timer: asyncio.TimerHandle | None = None
        stream.splitter.longest = longest
        self._transport.set_write_buffer_limits(high=limits.queue)

    @property
    def queued(self) -> int:
        """The bytes that wait to be sent."""
        return self._transport.get_write_buffer_size()

    @property
    def is_open(self) -> bool:
        """Whether messages can be sent."""
        return not self.reason

    # --- sending ---------------------------------------------------------------------------------

    def send(self, bodies: Iterable[bytes]) -> None:
        """Queue encoded messages; ignored once the connection is closed."""
        if self.reason:
            return
        frames = [*bodies]
        long = max(map(len, frames), default=0)
        if long > self.longest_sent:
            most = self.longest_sent
            self.cut(f"a message of {long:,} bytes is longer than the {most:,} allowed")
            return
        data = join_frames(frames)
        self._transport.write(data)
        self._liveness.send(self._clock())
        self.sent += len(frames)
        self.sent_bytes += len(data)
        if self._limits.when_full is FullQueue.CUT and self.queued > self._limits.queue:
            self._overflow()

    async def wait_for_room(self) -> None:
        """Wait while the queue is full, if that is the policy; cut a peer that does not read.

        If cancelled, what was queued stays queued.
        """
        if self._limits.when_full is FullQueue.CUT or self.queued <= self._limits.queue:
            return
        try:
            async with asyncio.timeout(self._limits.patience):
                await self._stream.writer.drain()
        except TimeoutError:
            self._overflow()
        except OSError:
            pass  # the connection broke: its reader says so

    def _overflow(self) -> None:
        self.cut(f"the peer does not read: {self.queued:,} bytes are queued", Ending.FULL)

    # --- closing ---------------------------------------------------------------------------------

    def close(self, reason: str) -> None:
        """Close, after what is queued was sent; a peer that does not read it has a second."""
        if not self.reason:
            self.reason = reason
            self._stop_timer()
            self._transport.close()
            asyncio.get_running_loop().call_later(LINGER, self._stream.abort)

    def cut(self, reason: str, ending: Ending = Ending.CLOSED) -> None:
        """Close at once, and drop what is queued."""
        if not self.reason:
            self.reason = reason
            self.ending = ending
        self._stop_timer()
        self._stream.abort()

    # --- receiving -------------------------------------------------------------------------------

    async def run(self, deliver: Deliver) -> None:
        """Read messages until the connection ends; `deliver` slows the peer down by waiting."""
        self._watch()
        try:
            await self._read(deliver)
            self.cut("closed by the peer")
        except OSError as error:  # includes those of TLS
            self.cut(f"the connection broke ({(error.strerror or str(error)).lower()})")
        except FrameTooLongError as error:
            self.cut(str(error), Ending.BROKEN_RULE)
        finally:
            self.cut("closed")

    async def _read(self, deliver: Deliver) -> None:
        splitter, reader = self._stream.splitter, self._stream.reader
        while not self.reason:
            while (body := splitter.pop()) is not None:
                self.received += 1
                self.last_size = len(body)
                try:
                    message = self.codec.decode(body)
                except Exception as error:  # whatever it is: a peer must not make us fail
                    what = str(error) or type(error).__name__
                    self.cut(f"the peer sent no valid message ({what})", Ending.BROKEN_RULE)
                    return
                self._delivering = True
                await deliver(self, message)
                self._delivering = False
                if self.reason:
                    return
            data = await reader.read(_CHUNK)
            if not data:
                return
            self._liveness.hear(self._clock())
            self.received_bytes += len(data)
            splitter.feed(data)

    # --- keep-alives -----------------------------------------------------------------------------

    def _watch(self) -> None:
        """Send a keep-alive or cut a silent peer, as due, and look again in time."""
        if self.reason:
            return
        now = self._clock()
        if self._delivering:  # we do not read, so we cannot hear
            self._liveness.hear(now)
        match self._liveness.check(now):
            case Verdict.DEAD:
                silent = self._limits.dead_after
                self.cut(f"the peer has been silent for {silent:g} s", Ending.SILENT)
                return
            case Verdict.SEND:
                self._transport.write(KEEP_ALIVE)
        delay = max(0.0, self._liveness.next_check - now)
        self._timer = asyncio.get_running_loop().call_later(delay, self._watch)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
