"""The broker service: runs a broker's host with its clients and neighbours over TCP.

It can be stopped, killed and started again at any moment without losing what it has confirmed: the
messages of a turn are handled together, what they change is written first, and only then anything
is sent.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from distributary.content.codec import Codec, MessageError
from distributary.content.handshake import find_name_fault
from distributary.content.host import BrokerHost, HostAction, HostParams
from distributary.content.host_statistics import HostStatistics
from distributary.content.policies import COVERING_POLICIES, Covering
from distributary.content.protocol import Cut, Goodbye, Hello, Peer, Refusal, SendFrame, Welcome
from distributary.content.store import BrokerStore
from distributary.content.tcp.trust import EVERYBODY, Trust, check_certificate
from distributary.content.warming import warm_up
from distributary.machines.real import (
    Admission,
    ConnectionLimits,
    ConnectionStatistics,
    Dialer,
    Driver,
    LinkConnection,
    Links,
    NetworkAddress,
    Proof,
    Rejection,
    Store,
    TlsFiles,
)
from distributary.machines.real.addresses import check_local
from distributary.machines.real.clock import make_clock
from distributary.machines.real.collection import collect_rarely, hold_collection
from distributary.model import Schema

__all__ = ["BrokerLink", "BrokerService", "BrokerSettings"]

# Inputs that share one write. More would save little, and peers would have to wait for the whole
# turn instead of working at the same time.
_BATCH = 64
_QUEUE = 10_000  # inputs
_QUEUED_BYTES = 64 << 20
_BROKER_FRAME = 64 << 20
_AROUND_PAYLOAD = 1 << 20  # bytes that the rest of a client's message may have
# More than the host has under way to any peer: unfinished publications or an outbox, and repeats.
_LIMITS = ConnectionLimits(queue=256 << 20)


class BrokerLink(NamedTuple):
    """A neighbour to connect to."""

    name: str
    address: NetworkAddress


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """How a broker works.

    `folder` is its own, with all it must know again. With `sync` a confirmed event also survives a
    power failure. `insecure` allows addresses outside this machine without TLS. `removed` are
    former neighbours that are taken out for good, with whatever is kept for them.
    """

    name: str
    listen: NetworkAddress
    folder: Path
    schema: Schema
    policy: Covering = COVERING_POLICIES["merging"]
    links: tuple[BrokerLink, ...] = ()
    removed: tuple[str, ...] = ()
    tls: TlsFiles | None = None
    trust: Trust = EVERYBODY
    insecure: bool = False
    sync: bool = False
    params: HostParams = field(default_factory=HostParams)
    limits: ConnectionLimits = _LIMITS

    def __post_init__(self) -> None:
        names = [link.name for link in self.links]
        for name in (self.name, *names):
            if fault := find_name_fault(name):
                raise ValueError(fault)
        if self.name in names:
            raise ValueError(f"a broker does not link with itself: {self.name!r}")
        if both := set(names).intersection(self.removed):
            raise ValueError(f"{min(both)!r} cannot be linked with and taken out at once")
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"there is one link with each broker, not two with {twice!r}")


class _Opened(NamedTuple):
    peer: Peer


class _Arrived(NamedTuple):
    connection: int
    message: Any
    size: int


class BrokerService:
    """Runs one broker until it is told to stop.

    `run` may be cancelled at any time: what was confirmed is kept. `report` gets lines for people:
    links that come and go, and why.
    """

    def __init__(
        self, settings: BrokerSettings, *, report: Callable[[str], None] = lambda line: None
    ) -> None:
        self.settings = settings
        self.started = asyncio.Event()
        self.address = settings.listen
        self.reports: list[str] = []  # what of its state could not be brought back
        self._report = report
        self._codec = Codec(settings.schema)
        self._links = Links(self, settings.limits)
        self._linked: Counter[str] = Counter()  # open connections of each neighbour
        self._queued = 0  # bytes of messages that wait for the host
        self._room = asyncio.Event()
        self._driver: Driver[_Opened | _Arrived] = Driver(
            self._take,
            lambda name, now: self.host.on_timer(name, now),
            {SendFrame: self._send, Cut: self._cut},
            clock=make_clock(),
            store=lambda saves: self._store.save(saves),
            capacity=_QUEUE,
            batch=_BATCH,
            finish=lambda now: self.host.finish_turn(now),
        )

    def stop(self) -> None:
        """Finish what was begun, and end."""
        self._driver.stop()

    async def run(self) -> None:
        """Serve until `stop`, or until the state cannot be written."""
        settings = self.settings
        async with AsyncExitStack() as stack:
            stack.enter_context(collect_rarely())
            store = stack.enter_context(Store(settings.folder, sync=settings.sync))
            self._store = BrokerStore(store, settings.name, settings.schema)
            self.reports = self._store.reports
            await stack.enter_async_context(self._driver)
            await stack.enter_async_context(self._links)
            with hold_collection():
                await self._recover()
            for name in settings.removed:
                await self._remove(name)
            warm_up(settings.schema, settings.policy)
            await self._connect()
            self.started.set()
            await self._driver.run()
            self._store.save(self.host.stop())

    async def _recover(self) -> None:
        """Bring the host back to where it was."""
        settings = self.settings
        self.host = BrokerHost(
            settings.name,
            settings.schema,
            settings.policy,
            recovery=self._store.recover(),
            params=settings.params,
        )
        self._driver.call(self.host.start)
        await self._driver.turn()

    async def _remove(self, name: str) -> None:
        """Take a former neighbour out."""
        if name not in self.host.broker.connections:
            self._report(f"there is no link with {name} to take out")
            return
        before = self.host.counts["kept_dropped"]
        self._driver.call(partial(self.host.remove_link, name))
        await self._driver.turn()
        dropped = self.host.counts["kept_dropped"] - before
        self._report(f"took out the link with {name}, and dropped {dropped:,} events kept for it")

    async def _connect(self) -> None:
        settings, tls = self.settings, self.settings.tls
        if not (settings.trust.proves or settings.insecure):
            await check_local(settings.listen)
        serving = dialing = None
        if tls is not None:
            must = settings.trust.certificates and settings.trust.tokens is None
            serving = tls.server_context(require_certificates=must)
            dialing = tls.client_context(check_host=False)
        self.address = await self._links.listen(
            settings.listen, self._judge_hello, tls=serving, insecure=settings.insecure
        )
        for link in settings.links:
            self._links.dial(
                Dialer(
                    link.address,
                    partial(self._greet, link.name),
                    partial(self._judge_answer, link.name),
                    tls=dialing,
                    insecure=settings.insecure,
                    wanted=partial(self._is_unlinked, link.name),
                    report=partial(self._report_link, link),
                )
            )

    def _is_unlinked(self, name: str) -> bool:
        """Whether a neighbour should be connected to; it may have connected to us."""
        return not self._linked[name]

    def _report_link(self, link: BrokerLink, reason: str) -> None:
        self._report(f"link to {link.name} at {link.address}: {reason}")

    # --- handshakes ------------------------------------------------------------------------------

    def _judge_hello(self, greeting: bytes, proof: Proof) -> Admission | Rejection:
        try:
            hello = self._codec.decode(greeting)
        except MessageError as error:
            return self._reject(Refusal(str(error)))
        if not isinstance(hello, Hello):
            return self._reject(Refusal("a connection begins with Hello"))
        trust = self.settings.trust
        if fault := trust.find_fault(hello, proof):
            return self._reject(Refusal(fault, is_final=True))
        verdict = self.host.judge(hello, proven=hello.name if trust.proves else None)
        if isinstance(verdict, Refusal):
            return self._reject(verdict)
        peer = Peer(0, hello.role, hello.name, hello.incarnation, verdict.version, hello.links)
        return self._admit(peer, self._codec.encode(verdict))

    def _reject(self, refusal: Refusal) -> Rejection:
        return Rejection(refusal.reason, self._codec.encode(refusal))

    def _admit(self, peer: Peer, reply: bytes = b"") -> Admission:
        if peer.role == "broker":
            return Admission(peer, self._codec, _BROKER_FRAME, reply)
        longest = self.settings.params.payload + _AROUND_PAYLOAD
        return Admission(peer, self._codec, longest, reply, longest_sent=_BROKER_FRAME)

    def _greet(self, expected: str, proof: Proof) -> bytes | Rejection:
        if proof.encrypted and (fault := check_certificate(proof, "broker", expected)):
            return Rejection(fault)
        mine, tokens = self.host.identity, self.settings.trust.tokens
        token = tokens.find("broker", mine.name) if tokens is not None else None
        hello = Hello(
            mine.role,
            mine.name,
            mine.versions,
            mine.schema,
            mine.incarnation,
            mine.links,
            token or "",
        )
        return self._codec.encode(hello)

    def _judge_answer(self, expected: str, answer: bytes, proof: Proof) -> Admission | Rejection:
        try:
            welcome = self._codec.decode(answer)
        except MessageError as error:
            return Rejection(str(error))
        if isinstance(welcome, Refusal):
            return Rejection(welcome.reason)
        if not isinstance(welcome, Welcome):
            return Rejection("the peer did not answer with Welcome")
        proven = expected if proof.encrypted else None
        refusal = self.host.judge_welcome(welcome, expected, proven=proven)
        if refusal is not None:
            return Rejection(refusal.reason, self._codec.encode(Goodbye(refusal.reason)))
        return self._admit(
            Peer(0, "broker", welcome.name, welcome.incarnation, welcome.version, welcome.links)
        )

    # --- in --------------------------------------------------------------------------------------

    async def on_open(self, connection: LinkConnection) -> None:
        """Tell the host of a new connection."""
        peer: Peer = replace(connection.peer, connection=connection.number)
        if peer.role == "broker":
            self._linked[peer.name] += 1
            self._report(f"linked with {peer.name}")
        await self._driver.put(_Opened(peer))

    async def on_message(self, connection: LinkConnection, message: Any) -> None:
        """Queue a message for the host; wait while too many or too large ones wait."""
        while self._queued > _QUEUED_BYTES:
            self._room.clear()
            await self._room.wait()
        size = connection.last_size
        self._queued += size
        await self._driver.put(_Arrived(connection.number, message, size))

    def on_close(self, connection: LinkConnection) -> None:
        """Tell the host that a connection has closed."""
        peer: Peer = connection.peer
        if peer.role == "broker":
            self._linked[peer.name] -= 1
            self._report(f"link with {peer.name} ended: {connection.reason}")
        self._driver.call(partial(self.host.on_close, connection.number))

    def _take(self, given: _Opened | _Arrived, now: float) -> Iterable[HostAction]:
        if isinstance(given, _Opened):
            return self.host.on_open(given.peer, now)
        self._queued -= given.size
        self._room.set()
        self.host.take_message(given.connection, given.message, now)
        return ()

    # --- out -------------------------------------------------------------------------------------

    async def _send(self, sends: list[SendFrame]) -> None:
        await self._links.send((each.connection, each.message) for each in sends)

    async def _cut(self, cuts: list[Cut]) -> None:
        for each in cuts:
            await self._links.send([(each.connection, Goodbye(each.reason))])
            self._links.close(each.connection, each.reason)

    def statistics(self) -> tuple[HostStatistics, ConnectionStatistics]:
        """Snapshots of the broker and of all its connections."""
        return self.host.statistics(), self._links.statistics()
