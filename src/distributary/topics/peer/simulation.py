"""Peers and their clients in virtual time, for tests, benchmarks and fault schedules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from distributary.machines.actions import Action, Append, Deliver, Send
from distributary.machines.virtual.engine import Simulation
from distributary.machines.virtual.network import Link, VirtualNetwork
from distributary.topics.host import TopicHost
from distributary.topics.messages import Unwant, Want
from distributary.topics.overlay.converged import build_ring
from distributary.topics.overlay.identifiers import identifier, make_peer
from distributary.topics.peer.client import (
    ClientParameters,
    CreateTopic,
    PeerClient,
    RemoveTopic,
    Say,
)
from distributary.topics.peer.codec import CLIENT_SIDE, RING
from distributary.topics.peer.copies import PeerState
from distributary.topics.peer.machine import TopicPeer
from distributary.topics.peer.parameters import PeerParameters
from distributary.topics.policy import Policy

__all__ = ["PeerNetwork"]

_OUTSIDE = "application"
_CLIENT = "client/"


class _PeerNode:
    """A peer as a node: clients are nodes, too, and a turn has one input.

    With `encodes`, what it sends is encoded and decoded on the way.
    """

    def __init__(self, peer: TopicPeer, *, encodes: bool = False) -> None:
        self.peer = peer
        self.encodes = encodes

    def on_message(self, sender: str, message: Any, now: float) -> list[Action]:
        take = self.peer.on_client if sender.startswith(_CLIENT) else self.peer.on_message
        return self._turn(take(sender, message, now), now)

    def on_timer(self, name: str, now: float) -> list[Action]:
        return self._turn(self.peer.on_timer(name, now), now)

    def start(self, through: tuple[str, ...], now: float) -> list[Action]:
        return self._turn(self.peer.start(through, now), now)

    def leave(self, now: float) -> list[Action]:
        return self._turn(self.peer.leave(now), now)

    def _turn(self, actions: list[Action], now: float) -> list[Action]:
        """As the driver does it: what is stored comes before what is sent."""
        done = [self._translate(action) for action in [*actions, *self.peer.finish(now)]]
        return sorted(done, key=lambda action: not isinstance(action, Append))

    def _translate(self, action: Action) -> Action:
        match action:
            case Send(to, message) if self.encodes:
                return Send(to, RING.decode(RING.encode(message)))
            case Deliver(client, message, _) if self.encodes:
                return Send(client, CLIENT_SIDE.decode(CLIENT_SIDE.encode(message)))
            case Deliver(client, message, _):
                return Send(client, message)
        return action


class _Links(VirtualNetwork):
    """Links that lose messages between peers only: the connection of a client ends instead."""

    def __init__(self, default: Link, rng: np.random.Generator) -> None:
        super().__init__({}, rng, default=default)
        self._connection = replace(default, loss=0.0)

    def arrivals(self, sender: str, to: str, now: float) -> Iterator[tuple[str, float | None]]:
        if sender.startswith(_CLIENT) or to.startswith(_CLIENT):
            self._links.setdefault((sender, to), self._connection)
        return super().arrivals(sender, to, now)


class PeerNetwork:
    """Peers and clients by name; a client's name begins with `client/`.

    With `encodes`, all that peers send is encoded and decoded on the way.

    `peers` are those that have neither crashed nor been asked to leave. A crashed peer can come
    back with what it has stored.
    """

    def __init__(
        self,
        policy: Policy,
        parameters: PeerParameters,
        *,
        seed: int,
        link: Link | None = None,
        client_parameters: ClientParameters | None = None,
        encodes: bool = False,
    ) -> None:
        self.policy = policy
        self.parameters = parameters
        self.client_parameters = client_parameters or ClientParameters()
        self.seed = seed
        self.rng = np.random.default_rng([seed, 1])
        self.simulation = Simulation(_Links(link or Link(0.01, jitter=0.01), self.rng))
        self.clock = self.simulation.clock
        self.peers: dict[str, TopicPeer] = {}
        self.clients: dict[str, PeerClient] = {}
        self._encodes = encodes
        self._starts = 0

    # --- peers ---------------------------------------------------------------------------------

    def build_converged(self, names: Iterable[str]) -> None:
        """Start peers that already know their correct neighbours."""
        known = sorted(make_peer(name) for name in names)
        leaf_set = self.parameters.overlay.leaf_set
        ring = build_ring([peer.identifier for peer in known], self.rng, leaf_set=leaf_set)
        for place, own in enumerate(known):
            peer = self._make_peer(own.name)
            peer.overlay.pastry.converge(
                [known[at] for at in ring.leaves(place)], [known[at] for at in ring.entries(place)]
            )
            self._add(peer, ())

    def join(self, name: str, through: Iterable[str] = ()) -> None:
        """Start a peer, with what it has stored if it was here before."""
        self._add(self._make_peer(name), tuple(through))
        for client in [client for client in self.clients.values() if client.peer == name]:
            self.simulation.call(client.name, client.lost)  # the connection was to its earlier run

    def _make_peer(self, name: str) -> TopicPeer:
        self._starts += 1
        state = PeerState(self.policy)
        for record in self.simulation.logs[name]:
            state.replay(record)
        seed = self.seed + self._starts
        own = make_peer(name)
        return TopicPeer(own, self.policy, self.parameters, state=state, seed=seed)

    def _add(self, peer: TopicPeer, through: tuple[str, ...]) -> None:
        name, node = peer.own.name, _PeerNode(peer, encodes=self._encodes)
        self.peers[name] = peer
        self.simulation.add(name, node)
        self.simulation.call(name, partial(node.start, through))

    def crash(self, name: str) -> None:
        """Stop a peer without notice."""
        del self.peers[name]
        self.simulation.crash(name)

    def leave(self, name: str, stop_after: float = 1.0) -> None:
        """Let a peer leave in good order, and stop it."""
        peer = self.peers.pop(name)
        self.simulation.call(name, _PeerNode(peer, encodes=self._encodes).leave)
        self.clock.at(self.clock.now + stop_after, partial(self.simulation.crash, name))

    def cut(self, island: str, names: Iterable[str]) -> None:
        """Cut peers, and the clients attached to them, off from all others."""
        names = set(names)
        attached = [name for name, client in self.clients.items() if client.peer in names]
        self.simulation.network.cut(island, [*names, *attached])

    def heal(self, island: str) -> None:
        """Undo a cut."""
        self.simulation.network.heal(island)

    # --- clients -------------------------------------------------------------------------------

    def client(self, name: str, peers: Iterable[str] = ()) -> PeerClient:
        """The client of that name; a new one knows these peers, and attaches to the first."""
        name = f"{_CLIENT}{name}"
        if name not in self.clients:
            client = PeerClient(name, self.policy, [*peers], self.client_parameters)
            self.clients[name] = client
            self.simulation.add(name, client)
            self.simulation.call(name, client.start)
        return self.clients[name]

    def stop_client(self, name: str) -> None:
        """Let a client vanish."""
        name = f"{_CLIENT}{name}"
        peer = self.peers.get(self.clients.pop(name).peer)
        self.simulation.crash(name)
        if peer is not None:
            self.simulation.call(peer.own.name, lambda now: peer.detach(name, now))

    def create(self, client: str, topic: str, flow: float = 0.0) -> None:
        """Let a client create a topic."""
        self._ask(client, CreateTopic(topic, flow))

    def remove(self, client: str, topic: str) -> None:
        """Let a client remove a topic."""
        self._ask(client, RemoveTopic(topic))

    def want(self, client: str, topic: str) -> None:
        """Let a client want a topic."""
        self._ask(client, Want(topic))

    def unwant(self, client: str, topic: str) -> None:
        """Let a client stop wanting a topic."""
        self._ask(client, Unwant(topic))

    def say(self, client: str, topic: str, payload: bytes) -> None:
        """Let a client publish."""
        self._ask(client, Say(topic, payload))

    def _ask(self, client: str, message: Any) -> None:
        self.simulation.post(self.clock.now, f"{_CLIENT}{client}", message, sender=_OUTSIDE)

    def run(self, seconds: float) -> int:
        """Run for some seconds; returns the number of events."""
        return self.simulation.run(until=self.clock.now + seconds)

    # --- inspection ----------------------------------------------------------------------------

    def delivered(self, client: str) -> list[Any]:
        """What a client's application has got so far, in order."""
        name = f"{_CLIENT}{client}"
        return [found[4] for found in self.simulation.record.delivered if found[1] == name]

    def owner(self, channel: str) -> str:
        """The live peer that is nearest to the key of a channel."""
        key = identifier(channel)
        ring = 1 << 64
        far = {name: (identifier(name) - key) % ring for name in self.peers}
        return min(far, key=lambda name: (min(far[name], ring - far[name]), identifier(name)))

    def hosts(self) -> dict[str, list[TopicHost]]:
        """The hosts of each channel; more than one only while the ring changes."""
        found: dict[str, list[TopicHost]] = {}
        for peer in self.peers.values():
            for channel, host in peer.hosting.hosts().items():
                found.setdefault(channel, []).append(host)
        return found

    def count_messages(self) -> Counter[str]:
        """The number of messages that peers have sent to each other so far, by kind."""
        found: Counter[str] = Counter()
        for (name, kind), units in self.simulation.record.units.items():
            if not name.startswith(_CLIENT):
                found[kind] += int(units)
        return found
