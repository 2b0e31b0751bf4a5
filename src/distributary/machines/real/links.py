"""Links between processes over TCP: listeners, dialers that reconnect, and their connections.

`Links` carries messages and knows nothing of what they mean. Each connection begins with a
handshake: the side that connects greets, the other side answers, and the first side confirms by an
empty frame, so that neither side takes a connection for open that the other has refused. What a
greeting and an answer contain, and whether they are acceptable, is decided by functions of the
owner; the same functions can be run without a network.

Connections are bounded in number, above all those whose peers have not proved yet who they are, and
each has a bounded queue. Nothing that a peer sends raises: the connection is cut and counted.
"""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import ssl
import time
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any, Protocol, Self

from distributary.machines.real.addresses import (
    AddressError,
    NetworkAddress,
    check_encryption,
    resolve,
)
from distributary.machines.real.connection import (
    LINGER,
    Codec,
    ConnectionLimits,
    Ending,
    LinkConnection,
    Stream,
    open_stream,
)
from distributary.machines.real.frames import FrameTooLongError
from distributary.machines.real.liveness import BackOff
from distributary.machines.real.tasks import own_tasks
from distributary.machines.real.tls import Proof

__all__ = ["Admission", "ConnectionStatistics", "Dialer", "LinkOwner", "Links", "Rejection"]

_BACKLOG = 256
_SPARE_FILES = 64  # descriptors that connections leave for everything else
_ACCEPT_PAUSE = 0.1  # seconds after the system has refused to accept
_LOOK_AGAIN = 0.5  # seconds between looks at whether a connection is wanted
_SHUTDOWN = 1.0  # seconds for the last words of TLS


@dataclass(frozen=True, slots=True)
class Admission:
    """A handshake succeeds: who the peer is, and how its messages are coded.

    `reply` is the answer to a greeting. Frames of the peer may have up to `longest` bytes, and ours
    up to `longest_sent`, which is the same unless given.
    """

    peer: Any
    codec: Codec
    longest: int
    reply: bytes = b""
    longest_sent: int | None = None


@dataclass(frozen=True, slots=True)
class Rejection:
    """A handshake fails, for a reason in words; `reply`, unless empty, tells the peer."""

    reason: str
    reply: bytes = b""


class LinkOwner(Protocol):
    """Whoever gets the messages of all connections."""

    async def on_open(self, connection: LinkConnection) -> None:
        """Take a new connection, before its first message."""
        ...

    async def on_message(self, connection: LinkConnection, message: Any) -> None:
        """Take a message; the connection is not read while this waits."""
        ...

    def on_close(self, connection: LinkConnection) -> None:
        """Forget a connection, after its last message; `connection.reason` says why it closed."""
        ...


# Judges a greeting; called with its bytes and what the connection proves.
Judge = Callable[[bytes, Proof], Admission | Rejection]


@dataclass(frozen=True, slots=True)
class Dialer:
    """A peer to connect to, or to stay connected to.

    `greet` makes the greeting once it is known what the connection proves, and may reject the peer
    before; `judge` judges the answer. While `wanted` returns False nobody connects. `report` gets
    the reason of each failed attempt; one that repeats is reported once.
    """

    address: NetworkAddress
    greet: Callable[[Proof], bytes | Rejection]
    judge: Judge
    tls: ssl.SSLContext | None = None
    insecure: bool = False
    wanted: Callable[[], bool] = lambda: True
    report: Callable[[str], None] = lambda reason: None


@dataclass(frozen=True, slots=True)
class ConnectionStatistics:
    """What happened on all connections since the start, and how things are now.

    Frames do not include keep-alives.
    """

    open: int  # connections
    handshakes: int  # that are going on
    queued_bytes: int  # that wait to be sent, on all connections
    opened: int = 0
    rejected: int = 0  # by the handshake
    failed_handshakes: int = 0  # handshakes that took too long, broke or were pushed out by others
    turned_away: int = 0  # because there were too many connections
    broken_rules: int = 0  # connections cut for what they sent
    silent: int = 0  # connections cut because nothing came
    full: int = 0  # connections cut because the peer did not read
    unsent: int = 0  # messages for connections that had closed
    received_frames: int = 0
    sent_frames: int = 0
    received_bytes: int = 0
    sent_bytes: int = 0


@dataclass(slots=True)
class _Counts:
    opened: int = 0
    rejected: int = 0
    failed_handshakes: int = 0
    turned_away: int = 0
    unsent: int = 0
    endings: dict[Ending, int] = field(default_factory=lambda: dict.fromkeys(Ending, 0))
    # Of connections that have closed.
    received_frames: int = 0
    sent_frames: int = 0
    received_bytes: int = 0
    sent_bytes: int = 0


class Links:
    """All connections of a process.

    `async with links:` owns the tasks of listeners, dialers and connections. At the end of the
    block all connections are closed, and peers that do not read have a second for what is queued;
    after a failure they are cut. If a call of the owner fails, the block fails.
    """

    def __init__(
        self,
        owner: LinkOwner,
        limits: ConnectionLimits | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        rng: Random | None = None,
    ) -> None:
        self.limits = limits or ConnectionLimits()
        self._owner = owner
        self._clock = clock
        self._rng = rng or Random()
        self._numbers = count(1)
        self._open: dict[int, LinkConnection] = {}
        self._handshakes: dict[int, asyncio.Task[Any]] = {}  # of peers that came, oldest first
        self._counts = _Counts()
        self._closing = False
        self._all_closed = asyncio.Event()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self._start = await self._stack.enter_async_context(own_tasks())
        return self

    async def __aexit__(self, *raised: Any) -> bool | None:
        self._closing = True
        for connection in [*self._open.values()]:
            connection.close("this process stops")
        if self._open and raised[0] is None:
            self._all_closed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(LINGER):
                    await self._all_closed.wait()
        return await self._stack.__aexit__(*raised)

    # --- sending ---------------------------------------------------------------------------------

    def find(self, number: int) -> LinkConnection | None:
        """The open connection of that number."""
        return self._open.get(number)

    async def send(self, messages: Iterable[tuple[int, Any]]) -> None:
        """Send messages over connections, by their numbers; those of closed ones are dropped.

        The messages of one connection are sent in order and at once; one that goes over several
        connections in succession is encoded once. Waits only if the policy for
        full queues is to wait.
        """
        bodies: dict[LinkConnection, list[bytes]] = {}
        last: tuple[Any, Codec | None, bytes] = (None, None, b"")
        for number, message in messages:
            connection = self._open.get(number)
            if connection is None or not connection.is_open:
                self._counts.unsent += 1
            else:
                if message is not last[0] or connection.codec is not last[1]:
                    last = message, connection.codec, connection.codec.encode(message)
                bodies.setdefault(connection, []).append(last[2])
        for connection, frames in bodies.items():
            connection.send(frames)
        for connection in bodies:
            await connection.wait_for_room()

    def close(self, number: int, reason: str) -> None:
        """Close a connection, after what is queued was sent."""
        if (connection := self._open.get(number)) is not None:
            connection.close(reason)

    # --- listening -------------------------------------------------------------------------------

    async def listen(
        self,
        address: NetworkAddress,
        judge: Judge,
        *,
        tls: ssl.SSLContext | None = None,
        insecure: bool = False,
    ) -> NetworkAddress:
        """Accept connections until the block ends; returns the address, with its port if it was 0.

        An address outside this machine needs TLS, or `insecure`.
        """
        found = await resolve(address)
        hosts = [host for _, (host, _) in found]
        check_encryption(address, hosts, encrypted=tls is not None, insecure=insecure)
        port = address.port
        for family, (host, _) in found:
            listening = _open_listener(address, family, host, port)
            self._stack.callback(listening.close)
            port = listening.getsockname()[1]
            self._start(self._accept(listening, judge, tls))
        return NetworkAddress(address.host, port)

    async def _accept(
        self, listening: socket.socket, judge: Judge, tls: ssl.SSLContext | None
    ) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(listening)
            except OSError:  # too many open files, or the peer has gone again
                self._counts.turned_away += 1
                await asyncio.sleep(_ACCEPT_PAUSE)
                continue
            if self._make_room():
                self._start(self._serve(accepted, judge, tls))
            else:
                accepted.close()
                self._counts.turned_away += 1
            await asyncio.sleep(0)  # many who come must not block others

    def _make_room(self) -> bool:
        """Make room for one more handshake, by ending the oldest one if there are many."""
        full = len(self._open) + len(self._handshakes) >= self._most_connections()
        if self._closing or (full and not self._handshakes):
            return False
        if full or len(self._handshakes) >= self.limits.handshakes:
            oldest = next(iter(self._handshakes))
            self._handshakes.pop(oldest).cancel()
        return True

    def _most_connections(self) -> int:
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return min(self.limits.connections, max(1, files - _SPARE_FILES))

    async def _serve(
        self, accepted: socket.socket, judge: Judge, tls: ssl.SSLContext | None
    ) -> None:
        number = next(self._numbers)
        task = asyncio.current_task()
        assert task is not None
        self._handshakes[number] = task
        try:
            greeted = await self._greet_back(accepted, judge, tls)
        except asyncio.CancelledError:
            self._counts.failed_handshakes += 1
            raise
        finally:
            self._handshakes.pop(number, None)
        if greeted is not None:
            await self._run(number, *greeted)

    async def _greet_back(
        self, accepted: socket.socket, judge: Judge, tls: ssl.SSLContext | None
    ) -> tuple[Stream, Admission] | None:
        """Do the handshake with a peer that came; None if it fails."""
        stream: Stream | None = None
        admitted = False
        try:
            async with asyncio.timeout(self.limits.handshake_within):
                stream = await self._wrap(accepted, tls)
                verdict = await _answer(stream, judge)
            if isinstance(verdict, Admission):
                admitted = True
                return stream, verdict
            self._counts.rejected += 1
            await stream.close()
        except (OSError, TimeoutError, FrameTooLongError):
            self._counts.failed_handshakes += 1
        finally:
            if stream is None:
                accepted.close()
            elif not admitted:
                stream.abort()
        return None

    async def _wrap(self, accepted: socket.socket, tls: ssl.SSLContext | None) -> Stream:
        loop = asyncio.get_running_loop()
        accepted.setblocking(False)
        times = _tls_times(tls, self.limits)
        return await open_stream(
            lambda protocol: loop.connect_accepted_socket(protocol, accepted, ssl=tls, **times),
            self.limits.longest_hello,
        )

    # --- dialing ---------------------------------------------------------------------------------

    def dial(self, dialer: Dialer) -> None:
        """Stay connected to a peer until the block ends; reconnect with growing pauses."""
        self._start(self._dial(dialer))

    def connect(self, dialer: Dialer, ended: Callable[[str, bool], None]) -> None:
        """Connect once. `ended` is told why it ended, and whether the handshake had succeeded."""
        self._start(self._connect_once(dialer, ended))

    async def _connect_once(self, dialer: Dialer, ended: Callable[[str, bool], None]) -> None:
        reason, opened = ("this process stops", False)
        if not self._closing:
            reason, opened = await self._connect(dialer)
        ended(reason, opened)

    async def _dial(self, dialer: Dialer) -> None:
        back_off = BackOff(self._rng)
        reported = ""
        while not self._closing:
            if not dialer.wanted():
                await asyncio.sleep(_LOOK_AGAIN)
                continue
            began = self._clock()
            reason, opened = await self._connect(dialer)
            if not opened and reason != reported:
                dialer.report(reason)
            reported = "" if opened else reason
            await asyncio.sleep(back_off.pause(self._clock() - began if opened else 0.0))

    async def _connect(self, dialer: Dialer) -> tuple[str, bool]:
        """Connect once, and return why it ended and whether the handshake had succeeded."""
        stream: Stream | None = None
        admitted = False
        try:
            async with asyncio.timeout(self.limits.handshake_within):
                stream = await self._reach(dialer)
                verdict = await _greet(stream, dialer)
            if isinstance(verdict, Admission):
                admitted = True
                return await self._run(next(self._numbers), stream, verdict), True
            await stream.close()
        except TimeoutError:
            return f"no answer within {self.limits.handshake_within:g} s", False
        except (OSError, FrameTooLongError, AddressError) as error:
            return _describe(error, encrypted=dialer.tls is not None), False
        finally:
            if stream is not None and not admitted:
                stream.abort()
        return verdict.reason, False

    async def _reach(self, dialer: Dialer) -> Stream:
        """Connect to the first address of the host that answers."""
        loop = asyncio.get_running_loop()
        found = await resolve(dialer.address)
        hosts = [host for _, (host, _) in found]
        tls = dialer.tls
        check_encryption(dialer.address, hosts, encrypted=tls is not None, insecure=dialer.insecure)
        times = _tls_times(tls, self.limits)
        if tls is not None:
            times["server_hostname"] = dialer.address.host
        failure: OSError | None = None
        for host in hosts:
            try:
                return await open_stream(
                    lambda protocol, host=host: loop.create_connection(  # type: ignore[misc]
                        protocol, host, dialer.address.port, ssl=tls, **times
                    ),
                    self.limits.longest_hello,
                )
            except OSError as error:
                failure = error
        raise failure or OSError("the host has no address")

    # --- connections -----------------------------------------------------------------------------

    async def _run(self, number: int, stream: Stream, admission: Admission) -> str:
        """Run a connection until it ends, and return why it did."""
        connection = LinkConnection(
            number,
            stream,
            admission.peer,
            admission.codec,
            longest=admission.longest,
            longest_sent=admission.longest_sent,
            limits=self.limits,
            clock=self._clock,
        )
        self._open[number] = connection
        self._counts.opened += 1
        try:
            await self._owner.on_open(connection)
            await connection.run(self._owner.on_message)
        finally:
            connection.cut("closed")
            del self._open[number]
            self._count_ended(connection)
            self._owner.on_close(connection)
            if not self._open:
                self._all_closed.set()
        return connection.reason

    def _count_ended(self, connection: LinkConnection) -> None:
        counts = self._counts
        counts.endings[connection.ending] += 1
        counts.received_frames += connection.received
        counts.sent_frames += connection.sent
        counts.received_bytes += connection.received_bytes
        counts.sent_bytes += connection.sent_bytes

    def statistics(self) -> ConnectionStatistics:
        """A snapshot of all connections."""
        counts, found = self._counts, [*self._open.values()]
        return ConnectionStatistics(
            open=len(found),
            handshakes=len(self._handshakes),
            queued_bytes=sum(each.queued for each in found),
            opened=counts.opened,
            rejected=counts.rejected,
            failed_handshakes=counts.failed_handshakes,
            turned_away=counts.turned_away,
            broken_rules=counts.endings[Ending.BROKEN_RULE],
            silent=counts.endings[Ending.SILENT],
            full=counts.endings[Ending.FULL],
            unsent=counts.unsent,
            received_frames=counts.received_frames + sum(each.received for each in found),
            sent_frames=counts.sent_frames + sum(each.sent for each in found),
            received_bytes=counts.received_bytes + sum(each.received_bytes for each in found),
            sent_bytes=counts.sent_bytes + sum(each.sent_bytes for each in found),
        )


def _open_listener(
    address: NetworkAddress, family: socket.AddressFamily, host: str, port: int
) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setblocking(False)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family is socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind((host, port))
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        reason = (error.strerror or str(error)).lower()
        raise AddressError(
            str(address), f"cannot be listened on ({reason})", "choose another address or port"
        ) from error
    return listening


async def _greet(stream: Stream, dialer: Dialer) -> Admission | Rejection:
    """The handshake of the side that connects."""
    greeting = dialer.greet(stream.proof)
    if isinstance(greeting, Rejection):
        return greeting
    stream.write(greeting)
    verdict = dialer.judge(await stream.read(), stream.proof)
    if isinstance(verdict, Admission):
        stream.confirm()
    elif verdict.reply:
        stream.write(verdict.reply)
    return verdict


async def _answer(stream: Stream, judge: Judge) -> Admission | Rejection:
    """The handshake of the side that accepts."""
    verdict = judge(await stream.read(), stream.proof)
    if verdict.reply:
        stream.write(verdict.reply)
    if isinstance(verdict, Admission) and await stream.read() != b"":
        return Rejection("the peer has refused the answer")
    return verdict


def _tls_times(tls: ssl.SSLContext | None, limits: ConnectionLimits) -> dict[str, Any]:
    if tls is None:
        return {}
    return {
        "ssl_handshake_timeout": limits.handshake_within,
        "ssl_shutdown_timeout": _SHUTDOWN,
    }


def _describe(error: Exception, *, encrypted: bool) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message})"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed ({(error.reason or str(error)).replace('_', ' ').lower()})"
    if isinstance(error, AddressError):
        return error.reason
    if isinstance(error, ConnectionResetError) and (encrypted or not error.errno):
        guess = "be without TLS, or want another certificate" if encrypted else "want TLS"
        return f"it closed the connection during the handshake, and may {guess}"
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno).lower()  # asyncio adds the address to its own text
    return str(error).lower()
