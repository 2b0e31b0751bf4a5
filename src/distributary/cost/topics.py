"""The cost of a changing clustering of topics, updated incrementally.

Reference: Milo et al. (2007), section 2: OC = MC + DC.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import fsum

import numpy as np

from distributary.cost.operating import (
    Cluster,
    OperatingCost,
    OperatingPrices,
    operating_cost,
)
from distributary.model import FloatArray
from distributary.model.topics import Clustering

__all__ = ["CostLedger", "MeasuredCost", "clustering_cost", "unclustered_cost"]


@dataclass(frozen=True, slots=True)
class MeasuredCost:
    """A cost by the number of subscribers, measured at some sizes and interpolated linearly.

    The maintenance of Scribe is the size of a tree with its helper peers; that of a broker is what
    its server was measured to send. Beyond the largest size the last slope continues, below the
    smallest the first.
    """

    sizes: tuple[int, ...]
    costs: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.sizes) < 2 or len(self.sizes) != len(self.costs):
            raise ValueError("a measured cost needs as many costs as sizes, and at least two")
        if any(a >= b for a, b in zip(self.sizes, self.sizes[1:], strict=False)):
            raise ValueError("sizes must be increasing")
        if any(a > b for a, b in zip(self.costs, self.costs[1:], strict=False)):
            raise ValueError("costs must not decrease with size")

    def __call__(self, size: int) -> float:
        """The cost of that many subscribers; 0 for none."""
        if size <= 0:
            return 0.0
        at = min(max(bisect_left(self.sizes, size), 1), len(self.sizes) - 1)
        low, high = self.sizes[at - 1], self.sizes[at]
        slope = (self.costs[at] - self.costs[at - 1]) / (high - low)
        return max(0.0, self.costs[at - 1] + slope * (size - low))


@dataclass(slots=True)
class _Terms:
    """The share of one channel in MC and DC."""

    maintenance: float = 0.0
    dissemination: float = 0.0


@dataclass(slots=True)
class CostLedger:
    """MC, DC and OC of a clustering by channel; each change re-prices only one channel.

    Sums are correctly rounded, so they equal those of a new ledger to the last bit.
    """

    clustering: Clustering
    frequency: FloatArray
    prices: OperatingPrices = field(default_factory=OperatingPrices)
    _topics: list[_Terms] = field(init=False)
    _clusters: dict[int, _Terms] = field(init=False, default_factory=dict)
    _flow: dict[int, float] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._topics = [_Terms() for _ in range(self.clustering.n_topics)]
        for topic in range(self.clustering.n_topics):
            self.on_topic_change(topic)
        for cluster in self.clustering.clusters:
            self.on_cluster_change(int(cluster))
        self.clustering.watch(self)

    @property
    def maintenance(self) -> float:
        """MC, messages per interval."""
        return fsum(t.maintenance for t in (*self._topics, *self._clusters.values()))

    @property
    def dissemination(self) -> float:
        """DC, messages per interval."""
        return fsum(t.dissemination for t in (*self._topics, *self._clusters.values()))

    @property
    def cost(self) -> float:
        """OC = MC + DC."""
        return self.maintenance + self.dissemination

    def flow(self, cluster: int) -> float:
        """F_c: the events per interval of all topics that a cluster carries."""
        return self._flow.get(cluster, 0.0)

    def on_topic_change(self, topic: int) -> None:
        """Re-price one topic's own channel."""
        size = int(self.clustering.topic_size[topic])
        terms = self._topics[topic]
        terms.maintenance = self.prices.maintain(size)
        terms.dissemination = float(self.frequency[topic]) * (
            self.prices.notify + self.prices.disseminate(size)
        )

    def on_cluster_change(self, cluster: int) -> None:
        """Re-price one cluster."""
        if not self.clustering.alive[cluster]:
            self._clusters.pop(cluster, None)
            self._flow.pop(cluster, None)
            return
        carried = self.clustering.carries[cluster]
        size = int(self.clustering.cluster_size[cluster])
        flow = self._flow[cluster] = fsum(self.frequency[carried])
        terms = self._clusters.setdefault(cluster, _Terms())
        terms.maintenance = self.prices.maintain(size) + self.prices.associate(int(carried.sum()))
        terms.dissemination = flow * (self.prices.notify + self.prices.disseminate(size))


def clustering_cost(
    clustering: Clustering, frequency: FloatArray, prices: OperatingPrices
) -> OperatingCost:
    """Price a clustering from its channel memberships alone."""
    return operating_cost(
        frequency,
        clustering.direct.sum(axis=0),
        [
            Cluster(
                tuple(int(t) for t in clustering.topics_of(int(c))),
                int(clustering.member[:, c].sum()),
            )
            for c in clustering.clusters
        ],
        clustering.wants.sum(axis=0),
        prices,
    )


def unclustered_cost(
    audience: Sequence[int] | FloatArray, frequency: FloatArray, prices: OperatingPrices
) -> tuple[float, float]:
    """MC and DC with a channel for every topic and no clusters: plain Scribe."""
    sizes = np.asarray(audience, np.int64)
    maintenance = fsum(prices.maintain(int(n)) for n in sizes)
    dissemination = fsum(
        float(f) * (prices.notify + prices.disseminate(int(n)))
        for f, n in zip(frequency, sizes, strict=True)
    )
    return maintenance, dissemination
