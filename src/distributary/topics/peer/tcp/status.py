"""The status of a peer: the ring as it sees it, the channels whose root it is, copies, clients."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from typing import Any

import msgspec

from distributary.machines.real import LinkConnection, Links
from distributary.topics.cluster import ClusterChannel
from distributary.topics.host import TopicHost
from distributary.topics.overlay.messages import MAINTENANCE
from distributary.topics.peer.machine import TopicPeer
from distributary.topics.peer.tcp.dialing import CLIENT_LIMITS, PeerOptions, make_client_dialer
from distributary.topics.peer.tcp.errors import PeerAwayError, PeerRefusedError
from distributary.topics.peer.tcp.greeting import Hello

__all__ = ["STATUS", "HostedCluster", "HostedTopic", "PeerStatus", "describe_peer", "fetch_status"]


class HostedTopic(msgspec.Struct, frozen=True):
    """A topic whose root is this peer."""

    topic: str
    subscribers: int  # on its own channel; others get it by clusters
    events: int  # accepted so far
    flow: float  # events per interval


class HostedCluster(msgspec.Struct, frozen=True):
    """A cluster whose root is this peer."""

    name: str
    topics: list[str]
    members: int
    flow: float


class PeerStatus(msgspec.Struct, frozen=True):
    """One peer. Counts are since its start."""

    name: str
    uptime: float
    active: bool  # part of a ring
    copies: int  # of a channel, this peer's own included
    neighbours: list[str]  # peers that are nearest on the ring
    links: list[str]  # peers with an open connection
    clients: list[str]
    topics: list[HostedTopic]
    clusters: list[HostedCluster]
    kept: int  # copies of channels, as root or for another root
    stored_bytes: int
    accepted: int  # events
    repeated: int
    found_dead: int
    dropped: int  # messages to peers that could not be reached
    messages: dict[str, int]  # to other peers, by kind

    @property
    def maintenance(self) -> int:
        """Messages that maintain the ring and the trees when nobody publishes."""
        return sum(n for kind, n in self.messages.items() if kind in MAINTENANCE)

    def document(self) -> dict[str, Any]:
        """The status as plain values."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


def describe_peer(
    peer: TopicPeer,
    now: float,
    *,
    uptime: float,
    clients: tuple[str, ...],
    links: tuple[str, ...],
    counts: dict[str, int],
    dropped: int,
    stored: int,
) -> PeerStatus:
    """Take a snapshot of a peer."""
    hosts = [*peer.hosting.hosts().values()]
    roots, pastry = peer.overlay.scribe.roots, peer.overlay.pastry
    return PeerStatus(
        name=peer.own.name,
        uptime=uptime,
        active=pastry.active,
        copies=peer.parameters.overlay.replicas + 1,
        neighbours=sorted(pastry.leaves.members),
        links=sorted(links),
        clients=sorted(clients),
        topics=sorted(_list_topics(hosts, now), key=lambda one: one.topic),
        clusters=sorted(_list_clusters(hosts), key=lambda one: one.name),
        kept=sum(1 for _ in roots.groups()),
        stored_bytes=stored,
        accepted=sum(host.counts.accepted for host in hosts),
        repeated=sum(host.counts.repeated for host in hosts),
        found_dead=sum(host.counts.found_dead for host in hosts),
        dropped=dropped,
        messages=dict(sorted(counts.items())),
    )


def _list_topics(hosts: list[TopicHost], now: float) -> Iterator[HostedTopic]:
    for host in hosts:
        for name, machine in host.topics.items():
            state = machine.state
            events, flow = state.next_number - 1, host.flow(name, now)
            yield HostedTopic(state.topic, len(state.members), events, flow)


def _list_clusters(hosts: list[TopicHost]) -> Iterator[HostedCluster]:
    for host in hosts:
        for name, machine in host.clusters.items():
            if not machine.finished:
                yield _describe_cluster(name, machine)


def _describe_cluster(name: str, machine: ClusterChannel) -> HostedCluster:
    topics = sorted(machine.state.topics)
    return HostedCluster(name, topics, machine.size, machine.measure().flow)


# --- over a connection ---------------------------------------------------------------------------


class _StatusCodec:
    """The only message of a connection that asks for the status."""

    def __init__(self) -> None:
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(PeerStatus)

    def encode(self, message: PeerStatus) -> bytes:
        """Encode a status."""
        return self._encoder.encode(message)

    def decode(self, body: bytes) -> PeerStatus:
        """Decode a status."""
        return self._decoder.decode(body)


STATUS = _StatusCodec()


async def fetch_status(options: PeerOptions, *, within: float = 10.0) -> PeerStatus:
    """Ask a peer for its status; the first of several that answers."""
    await options.check_addresses()
    asking = _Asking()
    async with Links(asking, CLIENT_LIMITS) as links:
        for address in options.addresses:
            links.dial(
                make_client_dialer(
                    address,
                    options,
                    hello=Hello("client", options.name, secrets.token_hex(8), wants_status=True),
                    codec=STATUS,
                    on_refused=lambda error: asking.fail(error),
                    on_trouble=lambda reason: setattr(asking, "trouble", reason),
                )
            )
        try:
            async with asyncio.timeout(within):
                return await asking.answer
        except TimeoutError:
            raise PeerAwayError(str(options), asking.trouble) from None


class _Asking:
    """Takes the first answer."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[PeerStatus] = asyncio.get_running_loop().create_future()
        self.trouble = "it did not answer"

    def fail(self, error: PeerRefusedError) -> None:
        """End with an error."""
        if not self.answer.done():
            self.answer.set_exception(error)

    async def on_open(self, connection: LinkConnection) -> None:
        """Wait for the answer."""

    async def on_message(self, connection: LinkConnection, message: Any) -> None:
        """Take the answer."""
        if not self.answer.done():
            self.answer.set_result(message)

    def on_close(self, connection: LinkConnection) -> None:
        """Wait for the next connection."""
        self.trouble = connection.reason
