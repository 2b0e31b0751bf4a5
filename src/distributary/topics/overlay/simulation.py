"""A ring of overlay peers in virtual time, for tests, benchmarks and fault schedules."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any, Self

import numpy as np

from distributary.machines.virtual.engine import Simulation
from distributary.machines.virtual.network import Link, VirtualNetwork
from distributary.topics.overlay.converged import build_ring
from distributary.topics.overlay.identifiers import Peer, identifier, make_peer
from distributary.topics.overlay.messages import (
    CreateGroup,
    Depart,
    Listen,
    ReceivedEvent,
    Say,
    Silence,
    StartPeer,
)
from distributary.topics.overlay.parameters import DEFAULT_PARAMETERS, OverlayParameters
from distributary.topics.overlay.peer import OverlayPeer

__all__ = ["DEFAULT_LINK", "OverlayNetwork"]

DEFAULT_LINK = Link(0.05, jitter=0.05)
_OUTSIDE = "outside"


class OverlayNetwork:
    """Peers and groups by name. Requests to a peer happen at the current time.

    `peers` holds those that have neither crashed nor been asked to leave.
    """

    def __init__(
        self,
        rng: np.random.Generator,
        parameters: OverlayParameters = DEFAULT_PARAMETERS,
        *,
        link: Link = DEFAULT_LINK,
    ) -> None:
        self.simulation = Simulation(VirtualNetwork({}, rng, default=link))
        self.parameters = parameters
        self.peers: dict[str, OverlayPeer] = {}

    @classmethod
    def build_converged(
        cls,
        names: Iterable[str],
        rng: np.random.Generator,
        parameters: OverlayParameters = DEFAULT_PARAMETERS,
        *,
        link: Link = DEFAULT_LINK,
    ) -> Self:
        """A network in which every peer already knows its correct neighbours."""
        network = cls(rng, parameters, link=link)
        known = sorted(make_peer(name) for name in names)
        places = [peer.identifier for peer in known]
        ring = build_ring(places, rng, leaf_set=parameters.leaf_set)
        for place, own in enumerate(known):
            peer = OverlayPeer(own, parameters)
            peer.pastry.converge(
                [known[at] for at in ring.leaves(place)], [known[at] for at in ring.entries(place)]
            )
            network._add(peer, StartPeer())
        return network

    def join(self, name: str, through: Iterable[str] = ()) -> None:
        """Start a peer that joins through one of these peers, tried in turn."""
        self._add(
            OverlayPeer(make_peer(name), self.parameters),
            StartPeer(tuple(make_peer(other) for other in through)),
        )

    def _add(self, peer: OverlayPeer, start: StartPeer) -> None:
        self.peers[peer.own.name] = peer
        self.simulation.add(peer.own.name, peer)
        self._ask(peer.own.name, start)

    def crash(self, name: str) -> None:
        """Stop a peer without notice."""
        del self.peers[name]
        self.simulation.crash(name)

    def leave(self, name: str) -> None:
        """Let a peer announce that it leaves, and stop it."""
        self._ask(name, Depart())
        del self.peers[name]

    def create(self, name: str, group: str) -> None:
        """Let a peer create a group."""
        self._ask(name, CreateGroup(identifier(group)))

    def subscribe(self, name: str, group: str) -> None:
        """Subscribe a peer to a group."""
        self._ask(name, Listen(identifier(group)))

    def unsubscribe(self, name: str, group: str) -> None:
        """Unsubscribe a peer from a group."""
        self._ask(name, Silence(identifier(group)))

    def publish(self, name: str, group: str, payload: Any) -> None:
        """Let a peer publish to a group."""
        self._ask(name, Say(identifier(group), payload))

    def _ask(self, name: str, message: Any) -> None:
        self.simulation.post(self.simulation.clock.now, name, message, sender=_OUTSIDE)

    def run(self, seconds: float) -> int:
        """Run for some seconds; returns the number of events."""
        return self.simulation.run(until=self.simulation.clock.now + seconds)

    def count_messages(self) -> Counter[str]:
        """The number of messages sent so far by kind, and other counts."""
        found: Counter[str] = Counter()
        for (_, kind), units in self.simulation.record.units.items():
            found[kind] += int(units)
        return found

    def collect_received(self, group: str) -> dict[str, list[ReceivedEvent]]:
        """The events that each subscriber of a group has received so far, in order."""
        key, found = identifier(group), defaultdict(list)
        for _, _, client, _, message in self.simulation.record.delivered:
            if isinstance(message, ReceivedEvent) and message.group == key:
                found[client].append(message)
        return dict(found)

    def owner(self, group: str) -> str:
        """The peer to which a message to the group is routed now."""
        key = identifier(group)
        at = next(iter(self.peers.values()))
        for _ in range(self.parameters.max_hops):
            hop = at.pastry.next_hop(key)
            if hop is None:
                break
            at = self.peers[hop.name]
        return at.own.name

    def tree(self, group: str) -> dict[str, Peer | None]:
        """The parent of each peer in the tree of a group; the root has none."""
        key = identifier(group)
        found = {}
        for name, peer in self.peers.items():
            place = peer.scribe.place(key)
            if place is not None:
                found[name] = place[0]
        return found
