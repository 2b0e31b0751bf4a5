"""Pastry: every key belongs to the peer nearest to it, reachable from any peer in a few hops.

Leaf sets hold the ring together: each period, a peer sends its leaves a keep-alive with its own
leaves. A peer never becomes a leaf by hearsay: peers that others name are probed first, and only
those that answer are added, so that dead peers do not come back. Routing table entries are not
monitored. Each hop of a message is acknowledged; a hop that does not answer is removed, a
replacement for its slot is requested from its row, and the message is routed around it.

Deviations from the paper: proximity is ignored; each keep-alive carries the leaf set, so that it
repairs itself even if a repair message is lost.

Reference: A. Rowstron, P. Druschel, "Pastry: Scalable, decentralized object location and routing
for large-scale peer-to-peer systems" (2001).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set

from distributary.topics.overlay.effects import Effects
from distributary.topics.overlay.identifiers import Peer, count_shared_digits, distance
from distributary.topics.overlay.leafset import LeafSet
from distributary.topics.overlay.messages import (
    Announce,
    EntryAnswer,
    EntryRequest,
    KeepAlive,
    LivenessProbe,
    OverlayJoin,
    OverlayLeave,
    ProbeAnswer,
    Routable,
    Route,
    RouteAck,
    Welcome,
)
from distributary.topics.overlay.parameters import OverlayParameters
from distributary.topics.overlay.routing_table import RoutingTable

__all__ = ["Pastry"]

_SOUGHT = 2  # lost peers that are looked for in each period
_MOST_LOST = 64
_SLOW_TIMES = 4  # a leaf that sends other messages may owe an answer for so many times the patience

Arrive = Callable[[Routable, float], None]
Change = Callable[[float], None]


class Pastry:
    """One peer's part of the ring.

    `arrive` is called with messages whose key belongs to this peer, `change` whenever routes from
    here may have changed. `active` tells whether this peer is part of the ring.
    """

    def __init__(
        self,
        own: Peer,
        parameters: OverlayParameters,
        effects: Effects,
        *,
        arrive: Arrive,
        change: Change,
    ) -> None:
        self.own = own
        self.leaves = LeafSet(own, parameters.leaf_set)
        self.table = RoutingTable(own)
        self.active = False
        self._parameters = parameters
        self._effects = effects
        self._arrive = arrive
        self._change = change
        self._heard: dict[str, float] = {}
        self._said: dict[str, dict[str, Peer]] = {}
        self._failed: dict[str, float] = {}
        self._lost: dict[str, tuple[Peer, float]] = {}  # by name; those to look for, and since when
        self._probing: set[Peer] = set()
        self._passing: dict[int, tuple[Peer, Route, float]] = {}  # and when each was sent
        self._passed = 0
        self._through: tuple[Peer, ...] = ()
        self._tries = 0

    # Routing.

    def next_hop(self, key: int) -> Peer | None:
        """The next hop to a key; None if the key belongs to this peer."""
        if self.leaves.covers(key) or self._knows_all():
            nearest = self.leaves.nearest(key)
            return None if nearest == self.own else nearest
        slot = self.table.slot(key)
        return self.table.entry(slot) or self._find_nearer(key, slot[0])

    def _knows_all(self) -> bool:
        """Whether the leaves seem to be all peers of the ring."""
        leaves = self.leaves
        return leaves.is_short and all(peer.name in leaves.members for peer in self.table)

    def _find_nearer(self, key: int, row: int) -> Peer | None:
        """The rare case: the known peer nearest to the key that shares as many digits with it."""
        known = [
            peer
            for peer in (*self.leaves.members.values(), *self.table)
            if count_shared_digits(key, peer.identifier) >= row
        ]
        nearest = min((self.own, *known), key=lambda peer: distance(key, peer.identifier))
        return None if nearest == self.own else nearest

    def route(self, key: int, payload: Routable, now: float, hops: int = 0) -> None:
        """Route a message towards the peer nearest to the key."""
        if isinstance(payload, OverlayJoin):
            shared = count_shared_digits(self.own.identifier, key)
            known = (*payload.known, self.own, *self.table.rows(shared))
            payload = OverlayJoin(payload.peer, known)
        hop = self.next_hop(key)
        if hop is None:
            self._deliver(payload, now)
        elif hops >= self._parameters.max_hops:
            self._effects.count("too many hops")
        else:
            self.pass_to(hop, key, payload, now, hops)

    def pass_to(
        self,
        hop: Peer,
        key: int,
        payload: Routable,
        now: float,
        hops: int = 0,
    ) -> None:
        """Send a message to this hop; route around it if it does not answer."""
        self._passed += 1
        route = Route(key, self._passed, payload, hops + 1)
        self._passing[self._passed] = hop, route, now
        self._effects.send(hop.name, route)
        self._effects.deadlines.set(("route", self._passed), now + self._parameters.patience)

    def _deliver(self, payload: Routable, now: float) -> None:
        if isinstance(payload, OverlayJoin):
            known = dict.fromkeys((*payload.known, *self.leaves.members.values()))
            known.pop(payload.peer, None)
            self._effects.send(payload.peer.name, Welcome(tuple(known)))
        else:
            self._arrive(payload, now)

    def on_route(self, sender: str, message: Route, now: float) -> None:
        """Forward a message; a peer that is not part of the ring stays silent."""
        if self.active:
            self._effects.send(sender, RouteAck(message.number))
            self.route(message.key, message.payload, now, message.hops)

    def on_route_ack(self, sender: str, message: RouteAck, now: float) -> None:
        """The next hop has received the message."""
        self._passing.pop(message.number, None)
        self._effects.deadlines.drop(("route", message.number))

    def on_route_overdue(self, number: int, now: float) -> None:
        """The next hop does not answer: try another."""
        hop, route, since = self._passing[number]
        if (until := self.bear_with(hop, since, now)) is not None:
            self._effects.deadlines.set(("route", number), until)
            return
        del self._passing[number]
        self.suspect(hop, now)
        if self.active:
            self.route(route.key, route.payload, now, route.hops - 1)

    # Joining and leaving.

    def start(self, through: tuple[Peer, ...], now: float) -> None:
        """Join through these peers; without any, this peer is part of the ring as it is."""
        self._through = through
        if through:
            self._try_to_join(now)
        else:
            self._become_active(now)

    def _try_to_join(self, now: float) -> None:
        through = self._through[self._tries % len(self._through)]
        self._tries += 1
        self.pass_to(through, self.own.identifier, OverlayJoin(self.own), now)
        self._effects.deadlines.set("join", now + 5 * self._parameters.patience)

    def on_join_overdue(self, now: float) -> None:
        """No welcome yet: ask another peer."""
        if not self.active:
            self._try_to_join(now)

    def on_welcome(self, message: Welcome, now: float) -> None:
        """Peers near this one's place: those that answer become its leaves."""
        if self.active or self._probing:
            return
        for peer in message.known:
            self.table.add(peer)
        likely = LeafSet(self.own, self._parameters.leaf_set, message.known)
        self.consider(likely.members.values(), now)
        self._activate_if_ready(now)  # those who knew it before its restart may be leaves already

    def _become_active(self, now: float) -> None:
        self.active = True
        parameters, deadlines = self._parameters, self._effects.deadlines
        deadlines.drop("join")
        self._heard = dict.fromkeys(self.leaves.members, now)
        # Spread the keep-alives of peers that start at the same time.
        phase = self.own.identifier % 997 / 997
        self._effects.set_timer("leaves", now + phase * parameters.leaf_period)
        message = Announce(self.own, self.leaves.members)
        if self._through:
            known = dict.fromkeys((*self.leaves.members.values(), *self.table))
            for peer in known:
                self._effects.send(peer.name, message)
        self._change(now)

    def leave(self) -> None:
        """Tell all known peers that this peer leaves."""
        message = OverlayLeave(self.own, self.leaves.members)
        for peer in dict.fromkeys((*self.leaves.members.values(), *self.table)):
            self._effects.send(peer.name, message)
        self.active = False

    def on_announce(self, message: Announce, now: float) -> None:
        """A new peer has become active; tell it of others that are near it."""
        self.hear(message.peer, now)
        self.consider(message.leaves.values(), now)
        if message.peer.name in self.leaves.members:
            self._effects.send(message.peer.name, ProbeAnswer(self.own, self.leaves.members))

    def on_leave(self, message: OverlayLeave, now: float) -> None:
        """A peer leaves and names candidates for its place."""
        self.suspect(message.peer, now)
        self._lost.pop(message.peer.name, None)
        self.consider(message.leaves.values(), now)

    # Failure detection.

    def note(self, sender: str, now: float) -> None:
        """A message of any kind has arrived: a leaf that sends something is alive."""
        if sender in self._heard:
            self._heard[sender] = now

    def bear_with(self, peer: Peer, since: float, now: float) -> float | None:
        """Until when to wait for a peer that owes an answer since then; None if it counts as dead.

        A peer that has much to do still sends messages. To take it for dead would give it, and all
        others, more to do.
        """
        patience = self._parameters.patience
        until = self._heard.get(peer.name, since) + patience
        return until if until > now and now - since < _SLOW_TIMES * patience else None

    def on_tick(self, now: float) -> None:
        """Once per period: suspect silent leaves and send keep-alives."""
        parameters = self._parameters
        oldest = now - parameters.misses * parameters.leaf_period
        forgotten = min(oldest, now - parameters.give_up)
        for name, peer in self.leaves.members.items():
            if self._heard.get(name, now) < oldest:
                self.suspect(peer, now)
        for name in [name for name, at in self._failed.items() if at < forgotten]:
            del self._failed[name]
        self._seek(now)
        if self.leaves.is_short:  # peers of the table that are alive are leaves too
            self._probe([peer for peer in self.table if peer.name not in self.leaves.members], now)
        message = KeepAlive(self.own, self.leaves.members)
        for name in self.leaves.members:
            self._effects.send(name, message)
        self._effects.set_timer("leaves", now + parameters.leaf_period)

    def seek(self, peers: Iterable[Peer], now: float) -> None:
        """Look for peers of the ring as it was, as for those that were lost just now."""
        for peer in peers:
            if peer != self.own and peer.name not in self.leaves.members:
                self._lost[peer.name] = peer, now

    def _seek(self, now: float) -> None:
        """Look for lost peers, a few in turn: a part of the ring may have been cut off."""
        parameters = self._parameters
        remembered = max(parameters.seek_for, parameters.give_up)
        for name, (_, since) in [*self._lost.items()]:
            if now - since > remembered:
                del self._lost[name]
        for name in [*self._lost][: _SOUGHT if parameters.seek_for else 0]:
            peer, since = self._lost.pop(name)
            self._effects.send(name, LivenessProbe(self.own, self.active))
            self._lost[name] = peer, since  # the last in turn

    def on_keep_alive(self, message: KeepAlive, now: float) -> None:
        """A peer that has this one as a leaf is alive; tell it if that is not mutual."""
        name = message.peer.name
        if name in self._heard and self._said.get(name) == message.leaves:
            self._heard[name] = now  # nothing new: by far the most frequent case
            return
        self.hear(message.peer, now)
        self.consider(message.leaves.values(), now)
        if name in self.leaves.members:
            self._said[name] = message.leaves
        else:
            self._effects.send(name, ProbeAnswer(self.own, self.leaves.members))

    def on_probe(self, message: LivenessProbe, now: float) -> None:
        """Answer a probe."""
        if message.active:
            self.hear(message.peer, now)
        self._effects.send(message.peer.name, ProbeAnswer(self.own, self.leaves.members))

    def on_answer(self, message: ProbeAnswer, now: float) -> None:
        """A probed peer is alive."""
        self.hear(message.peer, now)
        self.consider(message.leaves.values(), now)
        self._activate_if_ready(now)

    def on_probe_overdue(self, peer: Peer, now: float) -> None:
        """A probed peer does not answer."""
        self._probing.discard(peer)
        self._said.clear()  # others may have been left out in its favour
        self.suspect(peer, now)
        self._activate_if_ready(now)

    def _activate_if_ready(self, now: float) -> None:
        if not self.active and not self._probing and self.leaves.members:
            self._become_active(now)

    def hear(self, peer: Peer, now: float) -> None:
        """A peer that is part of the ring has sent something."""
        self._failed.pop(peer.name, None)
        self._lost.pop(peer.name, None)
        self._probing.discard(peer)
        self._effects.deadlines.drop(("probe", peer))
        if peer.name in self._heard:
            self._heard[peer.name] = now
            return
        changed = self.table.add(peer)
        if self.leaves.add(peer):
            self._follow_leaves(now)
            changed = True
        if changed and self.active:
            self._change(now)

    def _follow_leaves(self, now: float) -> None:
        """Track only leaves, and look at their leaf sets again."""
        self._heard = {name: self._heard.get(name, now) for name in self.leaves.members}
        self._said.clear()

    def consider(self, peers: Iterable[Peer], now: float) -> None:
        """Probe the peers that would be leaves if they and all peers being probed are alive."""
        failed, leaves = self._failed, self.leaves
        fit = [peer for peer in peers if leaves.fits(peer) and peer.name not in failed]
        if fit:
            likely = (*leaves.members.values(), *self._probing, *fit)
            self._probe(LeafSet(self.own, leaves.size, set(likely)).members.values(), now)

    def _probe(self, peers: Iterable[Peer], now: float) -> None:
        for peer in peers:
            if peer.name not in self.leaves.members and peer not in self._probing:
                self._ask(peer, now)

    def _ask(self, peer: Peer, now: float) -> None:
        self._probing.add(peer)
        self._effects.send(peer.name, LivenessProbe(self.own, self.active))
        self._effects.deadlines.set(("probe", peer), now + self._parameters.patience)

    def suspect(self, peer: Peer, now: float) -> None:
        """Treat a peer as dead until it is heard again, and look for a replacement."""
        parameters, is_news = self._parameters, peer.name not in self._failed
        self._failed[peer.name] = now
        if is_news and peer.name not in self._lost and (parameters.seek_for or parameters.give_up):
            self._lost[peer.name] = peer, now
            if len(self._lost) > _MOST_LOST:
                del self._lost[next(iter(self._lost))]
        was_entry = self.table.remove(peer)
        was_leaf = self.leaves.remove(peer.name)
        if was_entry:
            self._ask_for_entry(peer)
        if was_leaf:
            self._follow_leaves(now)
            self._ask_for_leaves(now)
        if (was_entry or was_leaf) and self.active:
            self._change(now)

    def _ask_for_leaves(self, now: float) -> None:
        """Probe the farthest leaf of each side, which knows the next peers."""
        leaves = self.leaves
        for side in (leaves.before, leaves.after):
            if side and side[-1] not in self._probing:
                self._ask(side[-1], now)

    def _ask_for_entry(self, peer: Peer) -> None:
        """Ask a peer of the same row, whose table has the same slot."""
        slot = self.table.slot(peer.identifier)
        for other in self.table.row(slot[0]):
            self._effects.send(other.name, EntryRequest(slot))
            return

    def on_entry_request(self, sender: str, message: EntryRequest, now: float) -> None:
        """Name a peer for a slot, if there is one."""
        entry = self.table.entry(message.slot)
        if entry is not None and entry.name not in self._failed:
            self._effects.send(sender, EntryAnswer(entry))

    def on_entry_answer(self, message: EntryAnswer, now: float) -> None:
        """Add the peer without a probe: if it is dead, using it will show."""
        if message.entry.name not in self._failed and self.table.add(message.entry):
            self._change(now)

    def excuse(self, now: float) -> None:
        """No peer is dead because this one could not receive."""
        self._heard = dict.fromkeys(self._heard, now)

    def list_lost(self, since: float) -> list[Peer]:
        """The peers that were lost since a time and not heard again; not those that have left."""
        return [peer for peer, at in self._lost.values() if at >= since]

    def list_missing(self) -> Set[str]:
        """The names of all that were lost and are still looked for: they may be cut off."""
        return self._lost.keys()

    @property
    def is_settling(self) -> bool:
        """Whether probes are outstanding that may change the leaf set."""
        return bool(self._probing)

    def converge(self, leaves: Iterable[Peer], entries: Iterable[Peer]) -> None:
        """Know these peers as if all had been heard."""
        self.leaves = LeafSet(self.own, self._parameters.leaf_set, leaves)
        self.table = RoutingTable(self.own, entries)
