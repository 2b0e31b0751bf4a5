"""Three ways to get an event to those who want it: link matching, flooding, match-first.

All three send it along the tree of the broker where it was published. They differ in what they
match where, so each numbers the links of a broker's matcher in its own way.

Reference: Banavar et al. (1999).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from distributary.model import Filter, Key, Topology
from distributary.protocol.actions import Work
from distributary.protocol.messages import Forward

__all__ = ["POLICIES", "Flooding", "LinkMatching", "LinkSearch", "MatchFirst", "Policy", "Routed"]


class LinkSearch(Protocol):
    """Filters, each of a numbered link; sets of links are bits of a whole number."""

    steps: int

    def add(self, filter: Filter, link: int) -> int:
        """Add a filter, and get a handle to take it out again."""
        ...

    def remove(self, handle: int) -> None:
        """Take a filter out."""
        ...

    def links(self, keys: Sequence[Key | None], mask: int) -> int:
        """Those of the links of `mask` that have a filter which the event matches."""
        ...


@dataclass(frozen=True, slots=True)
class Routed:
    """What becomes of an event at one broker: to which clients, to which neighbours as what."""

    clients: Sequence[str]
    forwards: Sequence[tuple[str, Forward]]
    work: Sequence[Work]


class Policy(Protocol):
    """What one broker does with events."""

    n_links: int

    def link(self, client: str) -> int | None:
        """The matcher's link for subscriptions of a client; None where they are not needed."""
        ...

    def route(self, message: Forward, matcher: LinkSearch) -> Routed:
        """Decide where an event goes from here."""
        ...


class LinkMatching:
    """Match just enough to know the links: to the next brokers, and to this one's clients."""

    def __init__(self, name: str, topology: Topology, roots: Iterable[str] | None = None) -> None:
        self._homes = topology.clients
        self._name = name
        self._table = topology.links(name, roots)
        self.n_links = len(self._table)

    def link(self, client: str) -> int | None:
        """The client's own link, or the virtual link to its broker."""
        home = self._homes[client]
        return self._table.numbers.get(client if home == self._name else home)

    def route(self, message: Forward, matcher: LinkSearch) -> Routed:
        """One search decides all links; virtual links of one neighbour take one message."""
        found, steps = _matched(matcher, message, self._table.masks[message.root])
        n_virtual = len(self._table.virtual)
        hops = {
            self._table.virtual[at].neighbour: None for at in _bits(found & ((1 << n_virtual) - 1))
        }
        clients = [self._table.clients[at] for at in _bits(found >> n_virtual)]
        sent = Work("send", len(hops) + len(clients))
        return Routed(clients, [(hop, message) for hop in hops], (Work("match", steps), sent))


class Flooding:
    """Send every event everywhere; only its receivers look at what it says.

    A client is sent every event too and throws away what it did not ask for: that work is of the
    kind "filter", and not the broker's.
    """

    def __init__(self, name: str, topology: Topology, roots: Iterable[str] | None = None) -> None:
        self._topology = topology
        self._name = name
        self._clients = topology.clients_of(name)
        self.n_links = len(self._clients)

    def link(self, client: str) -> int | None:
        """The client's own link."""
        return self._clients.index(client) if client in self._clients else None

    def route(self, message: Forward, matcher: LinkSearch) -> Routed:
        """To all brokers next in the tree and all clients."""
        found, steps = _matched(matcher, message, (1 << self.n_links) - 1)
        children = self._topology.tree(message.root).children(self._name)
        return Routed(
            [self._clients[at] for at in _bits(found)],
            [(child, message) for child in children],
            (Work("filter", steps), Work("send", len(children) + self.n_links)),
        )


class MatchFirst:
    """Match against everything where it is published; from there on split the list of receivers."""

    def __init__(self, name: str, topology: Topology, roots: Iterable[str] | None = None) -> None:
        self._topology = topology
        self._name = name
        self._clients = tuple(sorted(topology.clients))
        self._numbers = {client: at for at, client in enumerate(self._clients)}
        self._is_root = roots is None or name in set(roots)
        self.n_links = len(self._clients)

    def link(self, client: str) -> int | None:
        """One for each client of the whole network, where events are published at all."""
        return self._numbers[client] if self._is_root else None

    def route(self, message: Forward, matcher: LinkSearch) -> Routed:
        """Each neighbour gets the part of the list that is behind it."""
        receivers, steps = message.receivers, 0
        if message.root == self._name:
            found, steps = _matched(matcher, message, (1 << self.n_links) - 1)
            receivers = tuple(self._clients[at] for at in _bits(found))
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
        return Routed(clients, forwards, (Work("match", steps), Work("list", len(receivers)), sent))


POLICIES: dict[str, Callable[[str, Topology, Iterable[str] | None], Policy]] = {
    "link-matching": LinkMatching,
    "flooding": Flooding,
    "match-first": MatchFirst,
}


def _matched(matcher: LinkSearch, message: Forward, mask: int) -> tuple[int, int]:
    """The links found, and the steps that it took."""
    before = matcher.steps
    return matcher.links(message.event.keys, mask), matcher.steps - before


def _bits(mask: int) -> Iterator[int]:
    """The places of the bits that are set."""
    while mask:
        yield (mask & -mask).bit_length() - 1
        mask &= mask - 1
