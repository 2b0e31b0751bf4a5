"""A peer: a place on the ring, the channels that it is root of, copies of others, and its clients.

A `Machine` whose inputs are messages of other peers and timers; the process that runs it also calls
`start`, `on_client`, `detach`, `leave`, and after the inputs of each turn `finish`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distributary.machines.actions import Action
from distributary.topics.overlay.identifiers import Peer
from distributary.topics.peer.parameters import PeerParameters
from distributary.topics.policy import Policy

__all__ = ["TopicPeer"]


class TopicPeer:
    """The state of one peer.

    Actions: `Send(to, message)` to the peer of that name; `Deliver(client, message, since)` to a
    client that is attached here; `Append(record)` to the peer's log, before anything that follows
    in the same turn is sent; `SetTimer`; `Work` (counts, by kind).
    """

    def __init__(
        self, own: Peer, policy: Policy, parameters: PeerParameters, *, seed: int = 0
    ) -> None:
        self.own = own
        self.policy = policy
        self.parameters = parameters

    def start(self, through: Sequence[str], now: float) -> list[Action]:
        """Join the ring through one of these peers; without any, be the first."""
        raise NotImplementedError

    def leave(self, now: float) -> list[Action]:
        """Hand copies on and leave the ring; nothing is accepted afterwards."""
        raise NotImplementedError

    def on_message(self, sender: str, message: Any, now: float) -> list[Action]:
        """Handle a message of another peer."""
        raise NotImplementedError

    def on_client(self, client: str, message: Any, now: float) -> list[Action]:
        """Handle a message of a client; the first one attaches it."""
        raise NotImplementedError

    def detach(self, client: str, now: float) -> list[Action]:
        """The connection to a client has ended; it may come back, here or at another peer."""
        raise NotImplementedError

    def on_timer(self, name: str, now: float) -> list[Action]:
        """Handle an expired timer."""
        raise NotImplementedError

    def finish(self, now: float) -> list[Action]:
        """Do once what follows from all inputs of a turn: replicate, and pass events on."""
        raise NotImplementedError
