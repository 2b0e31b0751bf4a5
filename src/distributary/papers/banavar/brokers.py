"""The paper's network with all subscriptions in place, as brokers that forward events.

All brokers hold the same subscriptions, so they share one search tree; each annotates it for its
own links. Events come from a pool known beforehand, and a broker searches for the whole pool at
once: the cost of an event does not depend on how often or how fast it comes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa

from distributary.content import (
    POLICIES,
    Broker,
    ContentEvent,
    Forward,
    ForwardingPolicy,
    PublishEvent,
)
from distributary.machines import Action, Deliver, Send, Work
from distributary.matching import SearchTree, TreeOptions
from distributary.matching.axes import Axes, CodeArray
from distributary.matching.trits import Annotation, as_mask, as_words
from distributary.model import Filter, Key, Topology
from distributary.workloads import ContentWorld, broker_trees, region_of

__all__ = [
    "FACTORED",
    "NETWORK",
    "PUBLISHERS",
    "TREE",
    "ClientFilters",
    "Pool",
    "PoolSearch",
    "Visit",
    "build_brokers",
    "subscription_count",
    "visits",
]

NETWORK = broker_trees()

# P1, P2 and P3, one at the edge of each region, so that the longest of their paths visits six
# brokers: as many as the paper has curves.
PUBLISHERS = ("0.0.0", "1.0.0", "2.0.0")
TREE = TreeOptions(factoring=False, trivial_tests=True, delayed_branching=False)
FACTORED = TreeOptions(factoring=True, trivial_tests=True, delayed_branching=False)

Keys = tuple[Key | None, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ClientFilters:
    """Filters, the client of each, and the search tree of all."""

    filters: Sequence[Filter]
    clients: Sequence[str]
    axes: Axes
    tree: SearchTree

    @classmethod
    def draw(
        cls,
        world: ContentWorld,
        topology: Topology,
        per_client: int,
        rng: np.random.Generator,
        options: TreeOptions = TREE,
    ) -> ClientFilters:
        """Draw `per_client` filters for each client by the preferences of its region."""
        homes = sorted(topology.clients.items())
        filters = [
            found for _, home in homes for found in world.filters(per_client, region_of(home), rng)
        ]
        boxes = [box for found in filters for box in found.boxes]
        axes = Axes.of(boxes, world.schema)
        clients = [client for client, _ in homes for _ in range(per_client)]
        return cls(filters, clients, axes, SearchTree.of(boxes, axes, options))

    def with_tree(self, options: TreeOptions) -> ClientFilters:
        """The same filters in another tree."""
        return replace(self, tree=SearchTree(self.tree.boxes, options))


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """The events of each publisher, published cyclically in this order."""

    events: Mapping[str, Sequence[Keys]]
    table: pa.Table

    @classmethod
    def draw(cls, world: ContentWorld, n: int, rng: np.random.Generator) -> Pool:
        """Draw n events for each publisher by the preferences of its region."""
        tables = {at: world.events(n, region_of(at), rng) for at in PUBLISHERS}
        schema = world.schema
        events = {
            at: [schema.keys(event) for event in table.to_pylist()] for at, table in tables.items()
        }
        return cls(events, pa.concat_tables(tables.values()))


def subscription_count(per_client: int) -> int:
    """The number of subscriptions in the network with `per_client` for each client."""
    return per_client * len(NETWORK.clients)


class PoolSearch:
    """A `LinkSearch` for fixed subscriptions and events of a pool."""

    def __init__(self, annotation: Annotation, codes: CodeArray, places: Mapping[Keys, int]):
        self.steps = 0
        self._annotation = annotation
        self._codes = codes
        self._places = places
        self._answers: dict[int, list[tuple[int, int]]] = {}

    def add(self, filter: Filter, link: int) -> int:
        """Not supported."""
        raise TypeError("the subscriptions are fixed")

    def remove(self, handle: int) -> None:
        """Not supported."""
        raise TypeError("the subscriptions are fixed")

    def links(self, keys: Sequence[Key | None], mask: int) -> int:
        """The links of `mask` that need the event."""
        if mask not in self._answers:
            self._answers[mask] = self._search(mask)
        found, steps = self._answers[mask][self._places[tuple(keys)]]
        self.steps += steps
        return found

    def _search(self, mask: int) -> list[tuple[int, int]]:
        """The links that need each event of the pool, and the steps."""
        masks = np.tile(as_words(mask, self._annotation.n_links), (len(self._codes), 1))
        found, steps = self._annotation.search(self._codes, masks)
        return list(zip(map(as_mask, found), steps.tolist(), strict=True))


def build_brokers(
    policy: str, topology: Topology, subscriptions: ClientFilters, pool: Pool
) -> dict[str, Broker]:
    """Brokers that know all subscriptions, as if these had spread long ago."""
    codes = subscriptions.axes.codes(pool.table)
    places = {
        keys: at for at, keys in enumerate(keys for each in pool.events.values() for keys in each)
    }
    brokers = {}
    for name in topology.brokers:
        chosen = POLICIES[policy](name, topology, None)  # publishers may be anywhere
        annotation = _annotate(subscriptions, chosen)
        matcher = PoolSearch(annotation, codes, places)
        brokers[name] = Broker(name, topology, chosen, partial(_return_search, matcher))
    return brokers


def _return_search(matcher: PoolSearch, n_links: int) -> PoolSearch:
    return matcher


def _annotate(subscriptions: ClientFilters, policy: ForwardingPolicy) -> Annotation:
    link = {client: policy.link(client) for client in set(subscriptions.clients)}
    links = [-1 if link[client] is None else link[client] for client in subscriptions.clients]
    return Annotation(subscriptions.tree, np.array(links, np.int32), policy.n_links)


@dataclass(frozen=True, slots=True)
class Visit:
    """What one broker did with an event, and the steps taken up to there."""

    broker: str
    hops: int  # brokers from the first to this one, both included
    actions: Sequence[Action]
    steps: float  # matching steps at all of these brokers

    @property
    def receivers(self) -> list[str]:
        """The clients of this broker that receive the event."""
        return [found.client for found in self.actions if isinstance(found, Deliver)]

    def work(self, kind: str) -> float:
        """The work of a kind done here."""
        return _work(self.actions, kind)


def visits(brokers: Mapping[str, Broker], root: str, keys: Keys) -> Iterator[Visit]:
    """Publish an event at a broker and follow it through the network."""
    waiting: list[tuple[str, PublishEvent | Forward, int, float]] = [
        (root, PublishEvent(ContentEvent(0, keys, 0.0)), 1, 0.0)
    ]
    while waiting:
        name, message, hops, before = waiting.pop()
        actions = brokers[name].on_message("", message, 0.0)
        steps = before + _work(actions, "match")
        yield Visit(name, hops, actions, steps)
        waiting += [
            (found.to, found.message, hops + 1, steps)
            for found in actions
            if isinstance(found, Send)
        ]


def _work(actions: Sequence[Action], kind: str) -> float:
    return sum(found.units for found in actions if isinstance(found, Work) and found.kind == kind)
