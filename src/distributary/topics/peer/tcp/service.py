"""The peer service: runs a peer of the ring, with its clients, over TCP.

It can be killed, suspended and started again at any moment without losing what it has confirmed:
the messages of a turn are handled together, what they change is written first, and only then
anything is sent.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from distributary.machines.actions import Action, Append, Deliver, Send, Work
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
    parse_address,
)
from distributary.machines.real.addresses import check_local
from distributary.machines.real.clock import make_clock
from distributary.machines.real.collection import collect_rarely, hold_collection
from distributary.machines.real.connection import Ending
from distributary.machines.real.trust import EVERYBODY, Trust, check_certificate
from distributary.topics.overlay.identifiers import make_peer
from distributary.topics.peer.codec import PEER_SIDE, RING
from distributary.topics.peer.machine import TopicPeer
from distributary.topics.peer.parameters import LIVE_OVERLAY, PeerParameters
from distributary.topics.peer.tcp.greeting import (
    Hello,
    Keeping,
    Refused,
    Welcome,
    client_name,
    find_difference,
    find_fault,
    find_version,
    host_of,
    read_answer,
    read_hello,
    write,
)
from distributary.topics.peer.tcp.outdated import skip_outdated
from distributary.topics.peer.tcp.policy import LIVE_PEERS
from distributary.topics.peer.tcp.ring_links import RingLinks
from distributary.topics.peer.tcp.status import STATUS, PeerStatus, describe_peer
from distributary.topics.peer.tcp.store import PeerStore
from distributary.topics.policy import Policy

__all__ = ["MOST_COPIES", "PeerService", "PeerSettings"]

MOST_COPIES = 9
_BATCH = 256  # inputs that share one write
_QUEUE = 10_000  # inputs
_QUEUED_BYTES = 64 << 20
_RING_FRAME = 256 << 20  # a full copy of a channel
_AROUND_EVENT = 1 << 20  # bytes that the rest of a client's message may have
_HOUSEKEEPING = 0.5  # seconds
_SOON = 0.02  # seconds
_LOOK_FOR = 10.0  # seconds to look for the ring that this peer was part of
_TRY_AGAIN = 1.0  # seconds between two attempts to join
_LAST_WORDS = 3.0  # seconds to hand copies to others
_WILDCARDS = frozenset({"0.0.0.0", "::"})
# A new replica gets full copies of many channels at once. Clients may have less.
_LIMITS = ConnectionLimits(queue=1 << 30)
_CLIENT_QUEUE = 64 << 20


@dataclass(frozen=True, slots=True)
class PeerSettings:
    """How a peer works; times in seconds.

    Others reach it at `advertise`, which is its name; by default that is where it listens. It joins
    the ring of any of the peers at `join`, and starts a new ring if there is none. `folder` is its
    own, with all it must know again. An event is accepted once `copies` peers have it. With `sync`
    it also survives a power failure. `insecure` allows addresses outside this machine without TLS.
    """

    listen: NetworkAddress
    folder: Path
    join: tuple[NetworkAddress, ...] = ()
    advertise: NetworkAddress | None = None
    copies: int = 3
    policy: Policy = LIVE_PEERS
    tls: TlsFiles | None = None
    trust: Trust = EVERYBODY
    insecure: bool = False
    sync: bool = False
    dead_after: float = 10.0
    period: float = 1.0  # between keep-alives; a peer that is silent for three counts as dead
    seed: int = 0
    limits: ConnectionLimits = _LIMITS

    def __post_init__(self) -> None:
        if not 1 <= self.copies <= MOST_COPIES:
            raise ValueError(f"copies must be from 1 to {MOST_COPIES}, not {self.copies}")
        if self.advertise is None and self.listen.host in _WILDCARDS:
            raise ValueError(
                f"other peers cannot reach {self.listen}: say with --advertise where they can"
            )

    def parameters(self) -> PeerParameters:
        """The periods and time-outs of the machine."""
        overlay = replace(
            LIVE_OVERLAY,
            leaf_period=self.period,
            tree_period=self.period,
            patience=self.period,
            replicas=self.copies - 1,
        )
        vouch_every = min(2.0, self.dead_after / 4)
        return PeerParameters(overlay=overlay, dead_after=self.dead_after, vouch_every=vouch_every)


class _Neighbour(NamedTuple):
    """Another peer, at the other end of a connection."""

    name: str
    session: str
    is_active: bool  # part of a ring, when the connection was opened
    keeps: Keeping | None


class _Client(NamedTuple):
    """A client, at the other end of a connection."""

    name: str


class _Observer(NamedTuple):
    """Somebody who asks for the status."""

    name: str


class _Claim(NamedTuple):
    """What a certificate or a token must prove."""

    role: str
    name: str
    token: str


class _Opened(NamedTuple):
    client: str
    connection: int


class _Arrived(NamedTuple):
    connection: LinkConnection
    message: Any
    size: int


class PeerService:
    """Runs one peer until it is told to stop; then it leaves the ring.

    `run` may be cancelled at any time: what was confirmed is kept. `report` gets lines for people:
    links that come and go, and why.
    """

    def __init__(
        self, settings: PeerSettings, *, report: Callable[[str], None] = lambda line: None
    ) -> None:
        self.settings = settings
        self.started = asyncio.Event()
        self.joined = asyncio.Event()  # it is part of a ring
        self.address = settings.listen
        self.name = ""  # known once it listens
        self.reports: list[str] = []  # what of its state could not be brought back
        self.counts: Counter[str] = Counter()  # messages and other work, by kind
        self.peer: TopicPeer
        self._report = report
        self._session = secrets.token_hex(8)
        self._clock = make_clock()
        self._began = self._clock()
        self._links = Links(self, settings.limits)
        self._ring = RingLinks(
            self._links, self._make_dialer, report, clock=self._clock, rng=Random()
        )
        self._clients: dict[str, int] = {}  # their connections
        self._queued = 0  # bytes of messages that wait for the machine
        self._room = asyncio.Event()
        policy = settings.policy
        self._keeps = Keeping(settings.copies, policy.history, policy.history_bytes)
        self._differences: dict[str, str] = {}  # from other peers' options, by name
        self._reached: dict[str, bool] = {}  # connected peers, and whether they were active
        self._is_leaving = self._has_left = False
        self._driver: Driver[_Opened | _Arrived] = Driver(
            self._take,
            lambda name, now: self._count(self.peer.on_timer(name, now)),
            {Send: self._send, Deliver: self._deliver},
            clock=self._clock,
            store=self._write,
            capacity=_QUEUE,
            batch=_BATCH,
            finish=lambda now: self._count(self.peer.finish(now)),
        )

    def stop(self) -> None:
        """Finish what was begun, leave the ring, and end."""
        self._driver.stop()

    async def run(self) -> None:
        """Serve until `stop`, or until the state cannot be written."""
        settings = self.settings
        async with AsyncExitStack() as stack:
            stack.enter_context(collect_rarely())
            store = stack.enter_context(Store(settings.folder, sync=settings.sync))
            await stack.enter_async_context(self._driver)
            await stack.enter_async_context(self._links)
            await self._listen()
            with hold_collection():
                self._recover(store)
            self._driver.start(self._take_place())
            self._driver.start(self._keep_house())
            self.started.set()
            await self._driver.run()
            await self._leave()

    def _recover(self, store: Store) -> None:
        """Bring the machine back to where it was."""
        settings = self.settings
        self._store = PeerStore(store, self.name, settings.policy)
        self.reports = self._store.reports
        self.peer = TopicPeer(
            make_peer(self.name),
            settings.policy,
            settings.parameters(),
            state=self._store.state,
            seed=settings.seed,
        )

    async def _listen(self) -> None:
        settings, tls = self.settings, self.settings.tls
        if not (settings.trust.proves or settings.insecure):
            await check_local(settings.listen)
        serving = self._dialling = None
        if tls is not None:
            must = settings.trust.certificates and settings.trust.tokens is None
            serving = tls.server_context(require_certificates=must)
            self._dialling = tls.client_context(check_host=False)
        self.address = await self._links.listen(
            settings.listen, self._judge_hello, tls=serving, insecure=settings.insecure
        )
        self.name = str(settings.advertise or self.address)

    # --- joining and leaving -------------------------------------------------------------------

    async def _take_place(self) -> None:
        """Become part of a ring."""
        await self._find_ring()
        while not self._is_active:
            await asyncio.sleep(_SOON)
        self.joined.set()

    async def _find_ring(self) -> None:
        """Find a peer of the ring, and join through it.

        Whoever was part of a ring goes on alone if nobody of it answers, and keeps looking. A new
        peer waits for those that it is told to join.
        """
        known = [name for name in self._store.recall() if name != self.name]
        given = [address for address in self.settings.join if str(address) != self.name]
        if not (known or given):
            self._driver.call(partial(self._start, ()))
            return
        for address in dict.fromkeys([*given, *map(parse_address, known)]):
            self._links.dial(self._make_joining_dialer(address))
        alone_at, try_at = self._clock() + _LOOK_FOR, 0.0
        while not self._is_active:
            if known and (self._clock() > alone_at or self._begins_ring()):
                self._report("going on without those that do not answer, and looking for them")
                self._driver.call(partial(self._start, ()))
                self._driver.call(lambda now: self._count(self.peer.seek(known, now)))
                return
            if self._reached and self._clock() >= try_at:
                try_at = self._clock() + _TRY_AGAIN
                self._driver.call(partial(self._start, tuple(self._reached)))
            await asyncio.sleep(_SOON)

    def _begins_ring(self) -> bool:
        """Whether this is the first of some peers that all look for the ring."""
        found = self._reached
        return bool(found) and not any(found.values()) and self.name < min(found)

    def _start(self, through: tuple[str, ...], now: float) -> Iterable[Action]:
        return self._count(self.peer.start(through, now))

    @property
    def _is_active(self) -> bool:
        return self.peer.overlay.pastry.active

    async def _leave(self) -> None:
        """Hand copies to others and leave the ring."""

        def leave(now: float) -> Iterable[Action]:
            self._has_left = True
            return self._count(self.peer.leave(now))

        self._is_leaving = True
        self._driver.call(leave)
        while not self._has_left:
            await self._driver.turn()
        deadline = self._clock() + _LAST_WORDS
        while self._clock() < deadline and (
            self._ring.waiting or self._links.statistics().queued_bytes
        ):
            await asyncio.sleep(0.02)

    async def _keep_house(self) -> None:
        remembered: frozenset[str] = frozenset(self._store.recall())
        while True:
            await asyncio.sleep(_HOUSEKEEPING)
            self._ring.close_idle()
            leaves = frozenset(self.peer.overlay.pastry.leaves.members)
            if leaves and leaves != remembered:
                remembered = leaves
                self._store.remember(leaves)

    # --- handshakes ----------------------------------------------------------------------------

    def _judge_hello(self, greeting: bytes, proof: Proof) -> Admission | Rejection:
        hello = read_hello(greeting)
        if hello is None:
            return _reject(Refused("a connection to a peer begins with a greeting"))
        if fault := find_fault(hello) or self._find_lie(hello, proof):
            return _reject(Refused(fault, is_final=True))
        if self._is_leaving:
            return _reject(Refused("this peer is leaving"))
        if hello.role == "peer" and self._is_taken(hello):
            return _reject(Refused(f"there is another peer {hello.name}"))
        version = find_version(hello.versions)
        assert version is not None
        reply = write(Welcome(self.name, self._session, version, self._is_active, self._keeps))
        if hello.role == "peer":
            found = _Neighbour(hello.name, hello.session, hello.is_active, hello.keeps)
            return Admission(found, RING, _RING_FRAME, reply)
        longest = self.settings.parameters().longest_event + _AROUND_EVENT
        if hello.wants_status:
            return Admission(_Observer(hello.name), STATUS, 1, reply, longest_sent=_RING_FRAME)
        return Admission(
            _Client(client_name(hello)), PEER_SIDE, longest, reply, longest_sent=_RING_FRAME
        )

    def _find_lie(self, hello: Hello, proof: Proof) -> str:
        """Why it is not proven who comes; a peer's certificate names its host."""
        by_token = hello.token and self.settings.trust.tokens is not None
        is_host = hello.role == "peer" and not by_token and proof.has_certificate
        name = host_of(hello.name) if is_host else hello.name
        return self.settings.trust.find_fault(_Claim(hello.role, name, hello.token), proof)

    def _is_taken(self, hello: Hello) -> bool:
        return hello.name == self.name or self._ring.is_taken(hello.name, hello.session)

    def _make_dialer(self, name: str) -> Dialer:
        """To a peer of the ring."""
        return self._make_dialer_to(parse_address(name), name)

    def _make_joining_dialer(self, address: NetworkAddress) -> Dialer:
        """To a peer that may have another name than this address, until the ring is joined."""
        dialer = self._make_dialer_to(address, None)
        return replace(
            dialer,
            wanted=lambda: not self._is_active,
            report=lambda reason: self._report(f"{address} cannot be reached: {reason}"),
        )

    def _make_dialer_to(self, address: NetworkAddress, expected: str | None) -> Dialer:
        tokens = self.settings.trust.tokens
        token = tokens.find("peer", self.name) if tokens is not None else None

        def greet(proof: Proof) -> bytes | Rejection:
            if proof.encrypted and (fault := check_certificate(proof, "peer", address.host)):
                return Rejection(fault)  # before the token is sent
            return write(
                Hello(
                    "peer",
                    self.name,
                    self._session,
                    token=token or "",
                    is_active=self._is_active,
                    keeps=self._keeps,
                )
            )

        def judge(answer: bytes, proof: Proof) -> Admission | Rejection:
            del proof
            found = read_answer(answer)
            if isinstance(found, Refused):
                return Rejection(f"it refuses this peer: {found.reason}")
            if expected is not None and found.name != expected:
                return Rejection(f"the peer there is {found.name}")
            if find_fault(Hello("peer", found.name, found.session)) or found.name == self.name:
                return Rejection(f"there is no other peer, but {found.name!r}")
            neighbour = _Neighbour(found.name, found.session, found.is_active, found.keeps)
            return Admission(neighbour, RING, _RING_FRAME)

        return Dialer(address, greet, judge, tls=self._dialling, insecure=self.settings.insecure)

    # --- in ------------------------------------------------------------------------------------

    async def on_open(self, connection: LinkConnection) -> None:
        """Take a new connection."""
        match connection.peer:
            case _Neighbour(name, _, is_active, keeps):
                self._reached[name] = is_active
                self._warn_if_different(name, keeps)
                await self._ring.on_open(name, connection)
            case _Client(name):
                await self._driver.put(_Opened(name, connection.number))
            case _Observer():
                connection.send([connection.codec.encode(self.status())])

    def _warn_if_different(self, name: str, keeps: Keeping | None) -> None:
        """Warn of a peer with other options, once: each root keeps as much as it was told itself.

        Such peers are let in, so that options can be changed peer by peer.
        """
        difference = find_difference(self._keeps, keeps)
        if self._differences.get(name, "") == difference:
            return
        self._differences[name] = difference
        if difference:
            self._report(f"warning: {name}: {difference}; give all peers of a ring the same")

    async def on_message(self, connection: LinkConnection, message: Any) -> None:
        """Queue a message for the machine; wait while too many or too large ones wait."""
        while self._queued > _QUEUED_BYTES:
            self._room.clear()
            await self._room.wait()
        size = connection.last_size
        self._queued += size
        await self._driver.put(_Arrived(connection, message, size))

    def on_close(self, connection: LinkConnection) -> None:
        """A connection has closed."""
        match connection.peer:
            case _Neighbour(name):
                self._ring.on_close(name, connection)
                self._reached.pop(name, None)
            case _Client(name):
                self._driver.call(partial(self._detach, name, connection.number))

    def _detach(self, client: str, connection: int, now: float) -> Iterable[Action]:
        if self._clients.get(client) != connection:
            return ()  # it has come back over another one
        del self._clients[client]
        return self._count(self.peer.detach(client, now))

    def _take(self, given: _Opened | _Arrived, now: float) -> Iterable[Action]:
        if isinstance(given, _Opened):
            before = self._clients.get(given.client)
            self._clients[given.client] = given.connection
            if before is not None:
                self._links.close(before, "the client has come back")
            return ()
        self._queued -= given.size
        self._room.set()
        return self._count(self._hand_over(given.connection, given.message, now))

    def _hand_over(self, connection: LinkConnection, message: Any, now: float) -> Iterable[Action]:
        match connection.peer:
            case _Neighbour(name):
                return self.peer.on_message(name, message, now)
            case _Client(name) if self._clients.get(name) == connection.number:
                return self.peer.on_client(name, message, now)
        return ()

    def _count(self, actions: Iterable[Action]) -> Iterator[Action]:
        for action in actions:
            if isinstance(action, Work):
                self.counts[action.kind] += int(action.units)
            else:
                yield action

    # --- out -----------------------------------------------------------------------------------

    def _write(self, records: list[Append]) -> None:
        self._store.write([action.record for action in records])

    async def _send(self, sends: list[Send]) -> None:
        needed = skip_outdated(sends)
        self.counts["Taken"] -= len(sends) - len(needed)  # as they were counted
        await self._ring.send((action.to, action.message) for action in needed)

    async def _deliver(self, delivers: list[Deliver]) -> None:
        clients = self._clients
        await self._links.send(
            (clients[action.client], action.message)
            for action in skip_outdated(delivers)
            if action.client in clients
        )
        for client in {action.client for action in delivers} & clients.keys():
            connection = self._links.find(clients[client])
            if connection is not None and connection.queued > _CLIENT_QUEUE:
                connection.cut("the client does not read", Ending.FULL)

    # --- inspection ----------------------------------------------------------------------------

    def status(self) -> PeerStatus:
        """A snapshot of the peer, and of the ring as it sees it."""
        return describe_peer(
            self.peer,
            self._clock(),
            uptime=self._clock() - self._began,
            clients=tuple(self._clients),
            links=self._ring.names(),
            counts=dict(self.counts),
            dropped=self._ring.dropped,
            stored=self._store.size,
        )

    def statistics(self) -> tuple[PeerStatus, ConnectionStatistics]:
        """Snapshots of the peer and of all its connections."""
        return self.status(), self._links.statistics()


def _reject(refused: Refused) -> Rejection:
    return Rejection(refused.reason, write(refused))
