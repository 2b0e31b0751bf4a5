"""Business workflows on a network of brokers: subscriptions that cover one another, and events.

A *root* is a subscription that no other covers; its children are narrower ones, each covered by it
alone. When a root ends, all its children become roots, and the cost of that is the paper's subject.
Events are steps of workflows. A root wants a range of the values of one workflow, its children
parts of that range. The paper gives counts and the covering degree; ranges and widths are ours.

Reference: Chen et al., Congestion avoidance with selective filter aggregation, section V.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from distributary.model import (
    Attribute,
    AttributeKind,
    Box,
    Filter,
    FloatArray,
    IntArray,
    Key,
    Schema,
    Topology,
    Values,
)
from distributary.model.event import after, key_of

__all__ = [
    "LINK_DELAY",
    "Clusters",
    "Event",
    "Subscription",
    "Workflows",
    "WorkflowsParams",
    "draw_events",
    "edge_clusters",
    "range_filter",
    "source_edges",
    "subscriber_edges",
    "workflow_topology",
    "workflows",
]

Event = tuple[Key | None, ...]
# The client, its broker, and its filter.
Subscription = tuple[str, str, Filter]

LINK_DELAY = 0.001
CORE = "ABCDE"
_INNER = 18
_EDGES = 29
_SOURCES = 3
_MOST_IN_CLUSTER = 4
# Each probe is the best of this many events.
_POOL = 50
_WIDEST_ROOT = 0.8


# --- the network ---------------------------------------------------------------------------------


def workflow_topology() -> Topology:
    """The 55 brokers of Fig. 6: five in a chain, 18 more inside, 32 at the edge.

    The text lacks the drawing. Here A to D have four or five inner brokers each; these have one or
    two edge brokers each, 29 in all, where the subscribers are. The publishers' three, "source-1"
    to "source-3", are on E, which has no others: all subscriptions reach it through D.
    """
    links = list(pairwise(CORE))
    links += [(CORE[_core_of(at)], f"inner-{at + 1:02}") for at in range(_INNER)]
    links += [(f"inner-{_inner_of(at) + 1:02}", edge) for at, edge in enumerate(subscriber_edges())]
    links += [("E", source) for source in source_edges()]
    return Topology(dict.fromkeys(links, LINK_DELAY))


def subscriber_edges() -> tuple[str, ...]:
    """The edge brokers with subscribers; adjacent ones are near each other in the network."""
    return tuple(f"edge-{at + 1:02}" for at in range(_EDGES))


def source_edges() -> tuple[str, ...]:
    """The edge brokers with publishers."""
    return tuple(f"source-{at + 1}" for at in range(_SOURCES))


class Clusters(Enum):
    """The brokers that share subscriptions which cover one another: 2 to 4 adjacent ones.

    Edge brokers are adjacent only to their inner broker: with it they are 2 or 3. `ROW` instead
    takes 2 to 4 edge brokers behind one core broker.
    """

    INNER = "an inner broker and its edge brokers"
    ROW = "edge brokers in a row"


def edge_clusters(clusters: Clusters) -> tuple[tuple[str, ...], ...]:
    """The subscribers' edge brokers by cluster."""
    found: list[tuple[str, ...]] = []
    edges = subscriber_edges()
    if clusters is Clusters.INNER:
        inner = [_inner_of(at) for at in range(_EDGES)]
        return tuple(
            tuple(edge for edge, of in zip(edges, inner, strict=True) if of == each)
            for each in range(_INNER)
        )
    for core in range(len(CORE) - 1):
        own = [edge for at, edge in enumerate(edges) if _core_of(_inner_of(at)) == core]
        parts = np.array_split(np.arange(len(own)), -(-len(own) // _MOST_IN_CLUSTER))
        found += [tuple(own[at] for at in part) for part in parts]
    return tuple(found)


def _core_of(inner: int) -> int:
    """The core broker of an inner broker, both by index: evenly over all but the last."""
    return inner * (len(CORE) - 1) // _INNER


def _inner_of(edge: int) -> int:
    """The inner broker of an edge broker, both by index: as evenly as 29 fit on 18."""
    return edge * _INNER // _EDGES


# --- subscriptions -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WorkflowsParams:
    """The parameters; by default those of section V-A.

    A root's children are on its edge broker's cluster if there are `clusters`, else anywhere.
    `overlap` is the approximate number of roots that want an event. Children are `narrowest` to
    `widest` times as wide as their root, or wider if they would otherwise be covered by a second
    root, and lie within a share `held` of it. With two `dimensions`, events have a load as well.
    """

    subscriptions: int = 30_000
    degree: int = 30
    clusters: Clusters | None = None
    dimensions: int = 1
    workflows: int = 100
    overlap: float = 2.0
    held: float = 1.0
    narrowest: float = 0.2
    widest: float = 0.5

    def __post_init__(self) -> None:
        if self.degree < 1 or self.subscriptions <= self.degree or self.workflows < 1:
            raise ValueError("there must be at least one workflow, and one root with its children")
        if self.dimensions not in (1, 2):
            raise ValueError(f"events have 1 or 2 dimensions, not {self.dimensions}")
        if not (0 < self.narrowest <= self.widest <= self.held <= 1 and self.overlap > 0):
            raise ValueError(
                "parameters must satisfy 0 < narrowest <= widest <= held <= 1 and overlap > 0"
            )

    @property
    def roots(self) -> int:
        """The number of roots."""
        return max(1, round(self.subscriptions / (self.degree + 1)))

    @property
    def schema(self) -> Schema:
        """The schema of the events."""
        numbers = ("value", "load")[: self.dimensions]
        return Schema(
            (
                Attribute("workflow", AttributeKind.TEXT),
                *(Attribute(name, AttributeKind.FLOAT) for name in numbers),
            )
        )


@dataclass(frozen=True, slots=True, eq=False)
class Workflows:
    """Subscriptions in the order of issue, and generators of events.

    `root_of[i]` is the subscription drawn as the root of the i-th; a root is its own.
    `workflow[i]`, `low[i]` and `high[i]` are the i-th filter as numbers.
    """

    params: WorkflowsParams
    schema: Schema
    subscriptions: tuple[Subscription, ...]
    root_of: IntArray
    workflow: IntArray
    low: FloatArray  # subscriptions x dimensions
    high: FloatArray

    @property
    def roots(self) -> tuple[int, ...]:
        """The indices of the roots."""
        own = self.root_of == np.arange(len(self.root_of))
        return tuple(np.flatnonzero(own).tolist())

    def events(self, n: int, rng: np.random.Generator) -> list[Event]:
        """n random events, as keys of the schema."""
        return draw_events(n, self.params.workflows, self.params.dimensions, rng)

    def probes(self, n: int, rng: np.random.Generator) -> list[Event]:
        """n events wanted at as many edge brokers as possible, chosen from many more."""
        workflow, points = _draw(n * _POOL, self.params.workflows, self.params.dimensions, rng)
        reached = self._count_edges(workflow, points)
        best = np.sort(np.argsort(-reached, kind="stable")[:n])
        return _keys(workflow[best], points[best])

    def _wants(self, points: FloatArray, near: IntArray) -> NDArray[np.bool_]:
        """Which subscriptions to one workflow want which of its events."""
        inside = (self.low[near] <= points[:, None]) & (points[:, None] < self.high[near])
        return np.asarray(inside.all(axis=2))

    def _count_edges(self, workflow: IntArray, points: FloatArray) -> IntArray:
        """The number of brokers at which somebody wants each event."""
        brokers = np.unique([broker for _, broker, _ in self.subscriptions], return_inverse=True)[1]
        at_broker = np.eye(brokers.max() + 1, dtype=np.int32)[brokers]
        reached = np.zeros(len(workflow), np.int64)
        for number in range(self.params.workflows):
            events = np.flatnonzero(workflow == number)
            near = np.flatnonzero(self.workflow == number)
            wanted = self._wants(points[events], near).astype(np.int32) @ at_broker[near]
            reached[events] = (wanted > 0).sum(axis=1)
        return reached


def workflows(params: WorkflowsParams, rng: np.random.Generator) -> Workflows:
    """Draw roots and children, assign them to edge brokers, and shuffle the order of issue."""
    owner, workflow, low, high = _draw_families(params, rng)
    brokers = _draw_brokers(owner, params, rng)
    order = rng.permutation(len(owner))
    issued = np.empty_like(order)
    issued[order] = np.arange(len(order))
    workflow, low, high = workflow[order], low[order], high[order]
    width = len(str(len(order)))
    schema = params.schema
    return Workflows(
        params,
        schema,
        tuple(
            (f"client-{at + 1:0{width}}", brokers[one], range_filter(schema, int(w), a, b))
            for at, (one, w, a, b) in enumerate(
                zip(order.tolist(), workflow, low.tolist(), high.tolist(), strict=True)
            )
        ),
        issued[owner[order]],
        workflow,
        low,
        high,
    )


def _draw_families(
    params: WorkflowsParams, rng: np.random.Generator
) -> tuple[IntArray, IntArray, FloatArray, FloatArray]:
    """Each subscription's root, workflow and range ends; children follow their root."""
    sizes = np.full(params.roots, params.subscriptions // params.roots)
    sizes[: params.subscriptions % params.roots] += 1
    workflow = np.arange(params.roots) % params.workflows
    low = np.empty((params.subscriptions, params.dimensions))
    high = np.empty_like(low)
    first = np.cumsum(sizes) - sizes
    for number in range(min(params.workflows, params.roots)):
        own = np.flatnonzero(workflow == number)
        starts, ends = _draw_root_ranges(len(own), params, rng)
        for at, root in enumerate(own):
            left = ends[at - 1] if at else starts[at]
            right = starts[at + 1] if at + 1 < len(own) else ends[at]
            here = slice(first[root], first[root] + sizes[root])
            low[here, 0], high[here, 0] = _draw_children(
                (starts[at], ends[at]), (left, right), int(sizes[root]) - 1, params, rng
            )
            if params.dimensions == 2:
                low[here, 1], high[here, 1] = _draw_loads(int(sizes[root]) - 1, rng)
    return np.repeat(first, sizes), np.repeat(workflow, sizes), low, high


def _draw_root_ranges(
    n: int, params: WorkflowsParams, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Sorted ranges of values of which none contains another.

    Starts and ends are sorted separately: a later range then starts later and ends later, and no
    range becomes wider than the widest or narrower than the narrowest was.
    """
    width = min(params.overlap / n, _WIDEST_ROOT) * rng.uniform(0.8, 1.2, n)
    start = (np.arange(n) + rng.random(n)) / n * (1 - width)
    return np.sort(start), np.sort(start + width)


def _draw_children(
    root: tuple[float, float],
    others: tuple[float, float],
    n: int,
    params: WorkflowsParams,
    rng: np.random.Generator,
) -> tuple[FloatArray, FloatArray]:
    """The ends of a root and of n children, none within another or within another root.

    The previous root ends at `others[0]` and the next one starts at `others[1]`: a child that ends
    after the former and starts before the latter is in neither, nor in any farther root.
    """
    (begin, end), (left, right) = root, others
    whole = end - begin
    low = begin + rng.random() * (1 - params.held) * whole
    high = low + params.held * whole
    if low >= right or high <= left:
        low, high = begin, end
    least = max(left - right, 0.0)
    slack = high - low - least
    most = least + 0.9 * slack
    narrowest = min(max(params.narrowest * whole, least + 0.1 * slack), most)
    widest = min(max(params.widest * whole, narrowest), most)
    width = rng.uniform(narrowest, widest, n)
    first, last = np.maximum(low, left - width), np.minimum(high - width, right)
    start = first + (np.arange(n) + rng.uniform(0.1, 0.9, n)) / n * (last - first)
    return np.append(begin, np.sort(start)), np.append(end, np.sort(start + width))


def _draw_loads(n: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """The ends of a root's range of loads, and of n parts of it."""
    whole = rng.uniform(0.5, 1.0)
    begin = rng.random() * (1 - whole)
    width = rng.uniform(0.5, 0.95, n) * whole
    start = begin + rng.random(n) * (whole - width)
    return np.append(begin, start), np.append(begin + whole, start + width)


def _draw_brokers(owner: IntArray, params: WorkflowsParams, rng: np.random.Generator) -> list[str]:
    """Each subscription's edge broker: any, or one of the cluster drawn for its root."""
    if params.clusters is None:
        edges = subscriber_edges()
        return [edges[at] for at in rng.integers(len(edges), size=len(owner))]
    clusters = edge_clusters(params.clusters)
    chosen = rng.integers(len(clusters), size=len(owner))[owner]
    share = rng.random(len(owner))
    return [
        clusters[cluster][int(part * len(clusters[cluster]))]
        for cluster, part in zip(chosen, share, strict=True)
    ]


def range_filter(schema: Schema, workflow: int, low: list[float], high: list[float]) -> Filter:
    """A filter on one workflow, by its number, and a range of each number of its events."""
    name = _name(workflow)
    tests = [(0, Values(((name, after(name)),)))]
    for at, (start, end) in enumerate(zip(low, high, strict=True), 1):
        found = (key_of(start, AttributeKind.FLOAT), key_of(end, AttributeKind.FLOAT))
        tests.append((at, Values((found,))))
    return Filter(schema, (Box(tuple(tests)),))


def draw_events(n: int, workflows: int, dimensions: int, rng: np.random.Generator) -> list[Event]:
    """Uniformly distributed events of the given workflows, as keys."""
    return _keys(*_draw(n, workflows, dimensions, rng))


def _draw(
    n: int, workflows: int, dimensions: int, rng: np.random.Generator
) -> tuple[IntArray, FloatArray]:
    return rng.integers(workflows, size=n), rng.random((n, dimensions))


def _keys(workflow: IntArray, points: FloatArray) -> list[Event]:
    return [
        (_name(number), *(key_of(value, AttributeKind.FLOAT) for value in point))
        for number, point in zip(workflow.tolist(), points.tolist(), strict=True)
    ]


def _name(workflow: int) -> str:
    return f"workflow-{workflow + 1:03}"
