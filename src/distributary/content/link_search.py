"""Three forwarding policies: link matching, flooding, match-first.

All of them forward an event along the tree of the broker where it was published. They differ in
what is matched where, so each numbers the links of a broker's matcher in its own way.

Reference: Banavar et al. (1999).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from distributary.content.events import Forward
from distributary.machines.actions import Work
from distributary.model import Filter, Key, Topology

__all__ = [
    "POLICIES",
    "Flooding",
    "ForwardingPolicy",
    "LinkMatching",
    "LinkSearch",
    "MatchFirst",
    "RoutingDecision",
]


class LinkSearch(Protocol):
    """An index of filters, each with a numbered link; a set of links is a bit mask."""

    steps: int

    def add(self, filter: Filter, link: int) -> int:
        """Add a filter and return a handle for `remove`."""
        ...

    def remove(self, handle: int) -> None:
        """Remove a filter."""
        ...

    def links(self, keys: Sequence[Key | None], mask: int) -> int:
        """The links of `mask` that have a filter matching the event."""
        ...


@dataclass(frozen=True, slots=True)
class RoutingDecision:
    """The routing decision for an event: receiving clients, and messages to neighbours."""

    clients: Sequence[str]
    forwards: Sequence[tuple[str, Forward]]
    work: Sequence[Work]


class ForwardingPolicy(Protocol):
    """What a broker does with events."""

    n_links: int

    def link(self, client: str) -> int | None:
        """The matcher's link for a client's subscriptions; None if they are not needed."""
        ...

    def route(self, message: Forward, matcher: LinkSearch) -> RoutingDecision:
        """Decide where an event goes from here."""
        ...


class LinkMatching:
    """Matches just enough to decide the links: to the next brokers and to own clients."""

    def __init__(self, name: str, topology: Topology, roots: Iterable[str] | None = None) -> None:
        self._homes = topology.clients
        self._name = name
        self._table = topology.links(name, roots)
        self.n_links = len(self._table)

    def link(self, client: str) -> int | None:
        """The client's own link, or the virtual link to its broker."""
        home = self._homes[client]
        return self._table.numbers.get(client if home == self._name else home)

    def route(self, message: Forward, matcher: LinkSearch) -> RoutingDecision:
        """One search decides all links; virtual links to the same neighbour share one message."""
        found, steps = _match(matcher, message, self._table.masks[message.root])
        n_virtual = len(self._table.virtual)
        hops = {
            self._table.virtual[at].neighbour: None
            for at in _iterate_bits(found & ((1 << n_virtual) - 1))
        }
        clients = [self._table.clients[at] for at in _iterate_bits(found >> n_virtual)]
        sent = Work("send", len(hops) + len(clients))
        return RoutingDecision(
            clients, [(hop, message) for hop in hops], (Work("match", steps), sent)
        )


class Flooding:
    """Sends every event everywhere; only receivers look at its content.

    A client gets every event and discards those that it did not ask for; that work is of the kind
    "filter" and not the broker's.
    """

    def __init__(self, name: str, topology: Topology, roots: Iterable[str] | None = None) -> None:
        self._topology = topology
        self._name = name
        self._clients = topology.clients_of(name)
        self.n_links = len(self._clients)

    def link(self, client: str) -> int | None:
        """The client's own link."""
        return self._clients.index(client) if client in self._clients else None

    def route(self, message: Forward, matcher: LinkSearch) -> RoutingDecision:
        """Forward to all children in the tree and all clients."""
        found, steps = _match(matcher, message, (1 << self.n_links) - 1)
        children = self._topology.tree(message.root).children(self._name)
        return RoutingDecision(
            [self._clients[at] for at in _iterate_bits(found)],
            [(child, message) for child in children],
            (Work("filter", steps), Work("send", len(children) + self.n_links)),
        )


class MatchFirst:
    """Matches everything at the publisher's broker; from there on splits the receiver list."""

    def __init__(self, name: str, topology: Topology, roots: Iterable[str] | None = None) -> None:
        self._topology = topology
        self._name = name
        self._clients = tuple(sorted(topology.clients))
        self._numbers = {client: at for at, client in enumerate(self._clients)}
        self._is_root = roots is None or name in set(roots)
        self.n_links = len(self._clients)

    def link(self, client: str) -> int | None:
        """One link for each client of the network, at brokers where events are published."""
        return self._numbers[client] if self._is_root else None

    def route(self, message: Forward, matcher: LinkSearch) -> RoutingDecision:
        """Each neighbour gets the part of the list that is behind it."""
        receivers, steps = message.receivers, 0
        if message.root == self._name:
            found, steps = _match(matcher, message, (1 << self.n_links) - 1)
            receivers = tuple(self._clients[at] for at in _iterate_bits(found))
        clients, behind = [], defaultdict(list)
        for receiver in receivers:
            home = self._topology.clients[receiver]
            if home == self._name:
                clients.append(receiver)
            else:
                behind[self._topology.next_hop(self._name, home)].append(receiver)
        forwards = [
            (hop, Forward(message.event, message.root, tuple(listed)))
            for hop, listed in behind.items()
        ]
        sent = Work("send", len(forwards) + len(clients))
        return RoutingDecision(
            clients, forwards, (Work("match", steps), Work("list", len(receivers)), sent)
        )


POLICIES: dict[str, Callable[[str, Topology, Iterable[str] | None], ForwardingPolicy]] = {
    "link-matching": LinkMatching,
    "flooding": Flooding,
    "match-first": MatchFirst,
}


def _match(matcher: LinkSearch, message: Forward, mask: int) -> tuple[int, int]:
    """The links found, and the number of steps taken."""
    before = matcher.steps
    return matcher.links(message.event.keys, mask), matcher.steps - before


def _iterate_bits(mask: int) -> Iterator[int]:
    """The positions of the set bits."""
    while mask:
        yield (mask & -mask).bit_length() - 1
        mask &= mask - 1
