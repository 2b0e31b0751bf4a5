"""Brokers, the links between them and their clients: best paths, trees, and downstream brokers.

The best path between two brokers has the least delay; ties are broken by the fewest hops, then by
the names on the path. This order is preserved when paths are concatenated, so every part of a best
path is itself a best path: the trees of all roots and the routing tables of all brokers agree,
whoever computes them. Delays are summed as whole nanoseconds, which is exact in any order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import chain

__all__ = ["LONGEST_DELAY_S", "LinkTable", "SpanningTree", "Topology", "VirtualLink"]

LONGEST_DELAY_S = 1e6


@dataclass(frozen=True, slots=True, eq=False)
class Topology:
    """A connected network: the delay of each link in seconds, and each client's broker."""

    delays: Mapping[tuple[str, str], float]
    clients: Mapping[str, str] = field(default_factory=dict)
    _neighbours: dict[str, dict[str, int]] = field(init=False, repr=False)
    _trees: dict[str, SpanningTree] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        names = sorted({*chain.from_iterable(self.delays), *self.clients.values()})
        if not names:
            raise ValueError("a network needs at least one broker")
        neighbours: dict[str, dict[str, int]] = {name: {} for name in names}
        for (a, b), delay in self.delays.items():
            if a == b or b in neighbours[a]:
                raise ValueError(f"the link from {a!r} to {b!r} is a loop or a duplicate")
            if not 0 <= delay <= LONGEST_DELAY_S:
                raise ValueError(
                    f"the link from {a!r} to {b!r} has a delay of {delay:g} seconds, not one from "
                    f"0 to {LONGEST_DELAY_S:g}"
                )
            neighbours[a][b] = neighbours[b][a] = round(delay * 1e9)
        object.__setattr__(self, "_neighbours", neighbours)
        if both := self.clients.keys() & neighbours.keys():
            raise ValueError(f"{min(both)!r} is a client and a broker")
        if apart := neighbours.keys() - self.tree(names[0]).parents.keys() - {names[0]}:
            raise ValueError(f"there is no path from {names[0]!r} to {min(apart)!r}")

    @property
    def brokers(self) -> tuple[str, ...]:
        """All brokers, sorted by name."""
        return tuple(self._neighbours)

    def neighbours(self, broker: str) -> tuple[str, ...]:
        """The brokers linked to a broker, sorted by name."""
        return tuple(sorted(self._neighbours[broker]))

    def clients_of(self, broker: str) -> tuple[str, ...]:
        """The clients of a broker, sorted by name."""
        return tuple(sorted(client for client, home in self.clients.items() if home == broker))

    def tree(self, root: str) -> SpanningTree:
        """The best paths from a broker to all others."""
        if root not in self._trees:
            self._trees[root] = SpanningTree(root, _parents(self._neighbours, root))
        return self._trees[root]

    def next_hop(self, at: str, to: str) -> str:
        """The next broker on the best path from one broker to another."""
        return self.tree(at).first[to]

    def links(self, broker: str, roots: Iterable[str] | None = None) -> LinkTable:
        """The links by which a broker forwards events of trees with these roots (default: all)."""
        roots = self.brokers if roots is None else sorted(set(roots))
        return _link_table(self, broker, roots)


@dataclass(frozen=True, slots=True)
class SpanningTree:
    """The spanning tree of a root: each broker's parent, nearest brokers first."""

    root: str
    parents: Mapping[str, str]
    first: Mapping[str, str] = field(init=False, repr=False, compare=False)
    _children: dict[str, list[str]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        first: dict[str, str] = {}
        children: dict[str, list[str]] = defaultdict(list)
        for broker, parent in self.parents.items():
            first[broker] = first.get(parent, broker)
            children[parent].append(broker)
        object.__setattr__(self, "first", first)
        object.__setattr__(self, "_children", dict(children))

    def children(self, broker: str) -> tuple[str, ...]:
        """The children of a broker, nearest to the root first."""
        return tuple(self._children.get(broker, ()))

    def path(self, broker: str) -> tuple[str, ...]:
        """The brokers from the root to a broker, both included."""
        path = [broker]
        while path[-1] != self.root:
            path.append(self.parents[path[-1]])
        return tuple(reversed(path))

    def downstream(self, broker: str) -> frozenset[str]:
        """All descendants of a broker."""
        found = {broker}
        found.update(child for child, parent in self.parents.items() if parent in found)
        return frozenset(found - {broker})


@dataclass(frozen=True, slots=True)
class VirtualLink:
    """Brokers behind one neighbour that are downstream in the same trees: those of `roots`.

    On a network with cycles, some of the brokers reached over a link may be downstream in a tree
    and others not, so "some destination wants it" does not justify using the link. Of a virtual
    link's destinations, either all are downstream or none is.
    """

    neighbour: str
    destinations: frozenset[str]
    roots: frozenset[str]


@dataclass(frozen=True, slots=True)
class LinkTable:
    """The links of a broker by number: its virtual links, then one for each of its clients.

    `masks` has the initialisation mask of each root: bit l is set if an event of that tree may have
    to go along link l (M, "maybe", in the paper) and clear if it never does (N). `numbers` maps
    each client, and each broker that is downstream in some tree, to its link.
    """

    virtual: tuple[VirtualLink, ...]
    clients: tuple[str, ...]
    masks: Mapping[str, int]
    numbers: Mapping[str, int]

    def __len__(self) -> int:
        return len(self.virtual) + len(self.clients)


def _parents(neighbours: Mapping[str, Mapping[str, int]], root: str) -> dict[str, str]:
    """Dijkstra's algorithm, with the whole path as the tie-breaker."""
    parents: dict[str, str] = {}
    done = set()
    heap: list[tuple[int, int, tuple[str, ...]]] = [(0, 0, (root,))]
    while heap:
        delay, hops, path = heappop(heap)
        if path[-1] in done:
            continue
        done.add(path[-1])
        if hops:
            parents[path[-1]] = path[-2]
        for other, more in neighbours[path[-1]].items():
            if other not in done:
                heappush(heap, (delay + more, hops + 1, (*path, other)))
    return parents


def _link_table(topology: Topology, broker: str, roots: Iterable[str]) -> LinkTable:
    downstream = {root: topology.tree(root).downstream(broker) for root in roots}
    alike: dict[tuple[str, tuple[str, ...]], set[str]] = defaultdict(set)
    for to, neighbour in topology.tree(broker).first.items():
        if trees := tuple(root for root, behind in downstream.items() if to in behind):
            alike[neighbour, trees].add(to)
    virtual = tuple(
        VirtualLink(neighbour, frozenset(alike[neighbour, trees]), frozenset(trees))
        for neighbour, trees in sorted(alike)
    )
    clients = topology.clients_of(broker)
    local = ((1 << len(clients)) - 1) << len(virtual)
    return LinkTable(
        virtual,
        clients,
        masks={
            root: local | sum(1 << at for at, link in enumerate(virtual) if root in link.roots)
            for root in downstream
        },
        numbers={
            **{to: at for at, link in enumerate(virtual) for to in link.destinations},
            **{client: at for at, client in enumerate(clients, len(virtual))},
        },
    )
