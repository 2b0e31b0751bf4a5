"""A peer: a place on the ring, the channels that it is root of, copies of others, and its clients.

A `Machine` whose inputs are messages of other peers and timers; the process that runs it also calls
`start`, `on_client`, `detach`, `leave`, and after the inputs of each turn `finish`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distributary.machines.actions import Action, Deliver
from distributary.topics.overlay.effects import Effects
from distributary.topics.overlay.identifiers import Peer, identifier, make_peer
from distributary.topics.overlay.messages import Depart, LostEvents, ReceivedEvent, StartPeer
from distributary.topics.overlay.peer import OverlayPeer
from distributary.topics.peer.access import Access
from distributary.topics.peer.copies import PeerState
from distributary.topics.peer.hosting import ChannelHosting
from distributary.topics.peer.messages import ToChannel, ToClient, Vouch, Vouched
from distributary.topics.peer.parameters import PeerParameters
from distributary.topics.policy import Policy

__all__ = ["TopicPeer"]

_HOUSE = "house"
_HOST = "host "
_VOUCH = "vouch"
_AWAY = 4  # a peer without inputs for so many periods of housekeeping was suspended


class TopicPeer:
    """The state of one peer; `state` is durable.

    Actions: `Send(to, message)` to the peer of that name; `Deliver(client, message, since)` to a
    client that is attached here; `Append(record)` to the peer's log, before anything that follows
    in the same turn is sent; `SetTimer`; `Work` (counts, by kind).
    """

    def __init__(
        self,
        own: Peer,
        policy: Policy,
        parameters: PeerParameters,
        *,
        state: PeerState | None = None,
        seed: int = 0,
    ) -> None:
        self.own = own
        self.policy = policy
        self.parameters = parameters
        self.state = PeerState(policy) if state is None else state
        self._effects = Effects()
        self.hosting = ChannelHosting(policy, parameters, self._effects, self.state, own, seed=seed)
        self.overlay = OverlayPeer(
            own, parameters.overlay, effects=self._effects, application=self.hosting
        )
        scribe = self.hosting.scribe = self.overlay.scribe
        scribe.roots.adopt(self.state.logs)
        self.access = Access(own, policy, self._effects, scribe)
        self._neighbours: frozenset[str] = frozenset()
        self._now = 0.0  # of the last input

    # --- inputs of the process -----------------------------------------------------------------

    def start(self, through: Sequence[str], now: float) -> list[Action]:
        """Join the ring through one of these peers; without any, be the first."""
        self._now = now
        self._effects.set_timer(_HOUSE, now + self.parameters.house_every)
        self._effects.set_timer(_VOUCH, now + self.parameters.vouch_every)
        peers = tuple(make_peer(name) for name in through if name != self.own.name)
        return self._give_overlay(self.own.name, StartPeer(peers), now)

    def seek(self, names: Sequence[str], now: float) -> list[Action]:
        """Look for peers that were part of the ring, and join them when one answers."""
        self.overlay.pastry.seek([make_peer(name) for name in names], now)
        return []

    def leave(self, now: float) -> list[Action]:
        """Hand copies on and leave the ring; nothing is accepted afterwards."""
        return self._give_overlay(self.own.name, Depart(), now)

    def on_client(self, client: str, message: Any, now: float) -> list[Action]:
        """Handle a message of a client; the first one attaches it."""
        self._notice(now)
        self.access.on_client(client, message, now)
        return self._settle(now)

    def detach(self, client: str, now: float) -> list[Action]:
        """The connection to a client has ended; it may come back, here or at another peer."""
        self._notice(now)
        self.access.detach(client)
        return self._settle(now)

    # --- inputs of the network -----------------------------------------------------------------

    def on_message(self, sender: str, message: Any, now: float) -> list[Action]:
        """Handle a message of another peer."""
        self._notice(now)
        self.overlay.note(sender, message, now)
        match message:
            case ToClient():
                self.access.on_answer(message, now)
            case Vouch(clients, via):
                strangers, elsewhere = self.hosting.vouch(clients, via, now)
                channels = tuple(name for name in clients if name not in elsewhere)
                answer = Vouched(self.own, channels, strangers, elsewhere)
                self._effects.send(via.name, answer)
            case Vouched():
                self.access.on_vouched(message, now)
            case _ if self.overlay.understands(type(message)):
                self.overlay.handle(sender, message, now)
            case _:
                self._effects.count("refused")
        return self._settle(now)

    def on_timer(self, name: str, now: float) -> list[Action]:
        """Handle an expired timer."""
        self._notice(now)
        if name.startswith(_HOST):
            self.hosting.on_timer(name.removeprefix(_HOST), now)
        elif name == _HOUSE:
            self._effects.set_timer(_HOUSE, now + self.parameters.house_every)
            self.hosting.keep_house(now)
            self._follow_neighbours(now)
        elif name == _VOUCH:
            self._effects.set_timer(_VOUCH, now + self.parameters.vouch_every)
            self._vouch(now, all_of_them=True)
        else:
            self.overlay.handle_timer(name, now)
        return self._settle(now)

    def finish(self, now: float) -> list[Action]:
        """Do once what follows from all inputs of a turn: replicate what they have written."""
        self.overlay.scribe.roots.flush(now)
        self.access.confirm()
        if self.access.has_new_listeners:
            self._vouch(now, all_of_them=False)
        return self._settle(now)

    # --- inside --------------------------------------------------------------------------------

    def _notice(self, now: float) -> None:
        """Notice whether the process was suspended: timers expire all the time otherwise."""
        away, self._now = now - self._now, now
        if away > max(_AWAY * self.parameters.house_every, self.parameters.overlay.patience):
            self.overlay.wake(away, now)
            self.hosting.excuse(now)

    def _give_overlay(self, sender: str, message: Any, now: float) -> list[Action]:
        self.overlay.handle(sender, message, now)
        return self._settle(now)

    def _vouch(self, now: float, *, all_of_them: bool) -> None:
        pastry = self.overlay.pastry
        if not pastry.active:
            return
        for root, vouch in self.access.vouch(all_of_them=all_of_them):
            if root == self.own:
                strangers, elsewhere = self.hosting.vouch(vouch.clients, self.own, now)
                self.access.on_vouched(Vouched(self.own, (), strangers, elsewhere), now)
            elif root is not None:
                self._effects.send(root.name, vouch)
            else:
                (channel,) = vouch.clients
                pastry.route(identifier(channel), vouch, now)

    def _follow_neighbours(self, now: float) -> None:
        found = frozenset(self.overlay.pastry.leaves.members)
        if found != self._neighbours:
            self._neighbours = found
            self.access.tell_neighbours(now)

    def _settle(self, now: float) -> list[Action]:
        """Bring messages between the parts of this peer to their receivers, until none is left."""
        done: list[Action] = []
        while True:
            inside = self._effects.take_part()
            outside = [*self.access.take_outgoing(), *self.hosting.take_outgoing()]
            if not (inside or outside):
                break
            received: dict[int, list[ReceivedEvent | LostEvents]] = {}
            for action in inside:
                if isinstance(action, Deliver) and isinstance(
                    action.message, ReceivedEvent | LostEvents
                ):
                    received.setdefault(action.message.group, []).append(action.message)
                else:
                    done.append(action)
            for group, messages in received.items():
                self.access.on_tree(group, messages)
            for message in outside:
                self._carry(message, now)
        for record in self.state.take():
            self._effects.append(record)
        return [*self._effects.take(), *done]

    def _carry(self, message: ToChannel | ToClient, now: float) -> None:
        if isinstance(message, ToClient):
            self.access.on_answer(message, now)
            return
        pastry, key = self.overlay.pastry, identifier(message.channel)
        if not pastry.active:
            return  # repeated by whoever sent it
        root = self.access.root(message.channel)
        if root is None or root == self.own:
            pastry.route(key, message, now)
        else:
            pastry.pass_to(root, key, message, now)
