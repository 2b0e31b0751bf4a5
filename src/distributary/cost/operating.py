"""The cost for a topic broker of maintaining channels and of sending events through them.

Reference: T. Milo, T. Zur, E. Verbin, "Boosting Topic-Based Publish-Subscribe Systems with Dynamic
Clustering" (2007), section 2: OC = MC + DC.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from distributary.cost.loads import plan_loads
from distributary.model import Demand, FloatArray, IntArray, Plan

__all__ = [
    "Cluster",
    "OperatingCost",
    "OperatingPrices",
    "operating_cost",
    "plan_operating_cost",
]


def _linear(n: int) -> float:
    return float(n)


@dataclass(frozen=True, slots=True)
class OperatingPrices:
    """The four cost functions; by default the paper's: cost_n = 1 and the others linear."""

    maintain: Callable[[int], float] = _linear
    associate: Callable[[int], float] = _linear
    notify: float = 1.0
    disseminate: Callable[[int], float] = _linear


@dataclass(frozen=True, slots=True)
class Cluster:
    """A virtual topic: the topics that share its channel, and its number of subscribers."""

    topics: tuple[int, ...]
    subscribers: int


@dataclass(frozen=True, slots=True)
class OperatingCost:
    """MC and DC, and the cost with a separate channel for every topic."""

    maintenance: float
    dissemination: float
    unclustered: float

    @property
    def cost(self) -> float:
        """OC = MC + DC."""
        return self.maintenance + self.dissemination


def operating_cost(
    frequency: FloatArray,
    direct: IntArray,
    clusters: Sequence[Cluster],
    audience: IntArray,
    prices: OperatingPrices,
) -> OperatingCost:
    """Price topics and their clusters.

    For each topic, `frequency` is its events per interval, `direct` the number of subscribers on
    its own channel and `audience` the number of all who want it: its direct subscribers if there
    were no clusters.
    """
    return OperatingCost(
        maintenance=sum(prices.maintain(int(n)) for n in direct)
        + sum(prices.maintain(c.subscribers) + prices.associate(len(c.topics)) for c in clusters),
        dissemination=_disseminate(frequency, direct, prices)
        + sum(
            float(frequency[list(c.topics)].sum())
            * (prices.notify + prices.disseminate(c.subscribers))
            for c in clusters
        ),
        unclustered=sum(prices.maintain(int(n)) for n in audience)
        + _disseminate(frequency, audience, prices),
    )


def plan_operating_cost(plan: Plan, demand: Demand, prices: OperatingPrices) -> OperatingCost:
    """Price a plan as a topic broker would: each group is a cluster of all its members.

    Every topic keeps its own channel, which passes events to the clusters, and to direct
    subscribers only if the plan sends the flow by unicast.
    """
    group = plan.session_group[plan.placement_session]
    # A flow in two sessions of one group is sent there twice, so the cluster lists it twice.
    order = np.argsort(group, kind="stable")
    topics = np.split(
        plan.placement_flow[order], np.cumsum(np.bincount(group, minlength=plan.n_groups))[:-1]
    )
    members = plan_loads(plan, demand).group_members
    return operating_cost(
        demand.rate,
        np.bincount(plan.unicast_flow, minlength=len(demand.rate)),
        [
            Cluster(tuple(int(t) for t in flows), int(size))
            for flows, size in zip(topics, members, strict=True)
        ],
        demand.interest.audience,
        prices,
    )


def _disseminate(frequency: FloatArray, subscribers: IntArray, prices: OperatingPrices) -> float:
    return sum(
        float(freq) * (prices.notify + prices.disseminate(int(n)))
        for freq, n in zip(frequency, subscribers, strict=True)
    )
