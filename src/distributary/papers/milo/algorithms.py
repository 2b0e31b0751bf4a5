"""The algorithms of the paper's experiments, and what one run of one of them gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import inf

import numpy as np

from distributary.cost import OperatingPrices
from distributary.cost.topics import clustering_cost, unclustered_cost
from distributary.model import FloatArray
from distributary.model.topics import Clustering
from distributary.papers.milo.world import INTERVALS_PER_DAY
from distributary.planning.topics import Planner
from distributary.topics import OURS, TAMARA
from distributary.topics.improvement import ImprovedRounds
from distributary.topics.overlay.prices import measure_scribe_prices
from distributary.topics.policy import Policy
from distributary.topics.rounds import CostSample, Requests, TopicRounds

__all__ = [
    "AS_READ",
    "PRICES",
    "AlgorithmOutcome",
    "CostChange",
    "Outcomes",
    "Reading",
    "RoundsPolicy",
    "play",
    "price_change",
    "rounds_of",
    "summarise",
    "tree_prices",
]

PRICES = OperatingPrices()


@dataclass(frozen=True, slots=True)
class Reading:
    """How Tamara is read where the paper leaves a choice; by default as in the figures."""

    adds: bool = True  # surveys weigh adding a topic (3.1) beside moving all of its subscribers
    prunes: bool = True  # surveys reconsider what the cluster carries, not only unsubscriptions
    watches: bool = True  # falling sizes and frequencies trigger estimates (3.1)
    announces_to_all: bool = False  # every member hears of every change of its cluster


AS_READ = Reading()


@dataclass(frozen=True, slots=True)
class CostChange:
    """MC, DC and OC relative to plain Scribe, and overhead as a share of Scribe's cost."""

    maintenance: float
    dissemination: float
    cost: float
    overhead: float = 0.0

    @classmethod
    def mean(cls, changes: Sequence[CostChange]) -> CostChange:
        """The mean over several seeds."""
        columns = ((c.maintenance, c.dissemination, c.cost, c.overhead) for c in changes)
        return cls(*(float(np.mean(column)) for column in zip(*columns, strict=True)))


@dataclass(frozen=True, slots=True)
class AlgorithmOutcome:
    """The result of one run of one algorithm; `on_trees` also counts Scribe's helper peers."""

    moments: tuple[CostSample, ...]
    change: CostChange
    updates: dict[str, int]
    on_trees: CostChange


Outcomes = dict[str, AlgorithmOutcome]


@dataclass(frozen=True, slots=True)
class RoundsPolicy:
    """An algorithm of a simulation: static clusters, Tamara as it is read, or ours."""

    name: str
    reading: Reading = AS_READ
    prices: OperatingPrices = PRICES

    @property
    def settings(self) -> Policy:
        """The settings of its channels and subscribers."""
        own, read = replace(OURS, prices=self.prices), self.reading
        if self.name == "ours":
            return replace(own, announces_to_all=read.announces_to_all)
        found = replace(
            TAMARA,
            prices=self.prices,
            adds=read.adds,
            prunes=read.prunes,
            announces_to_all=read.announces_to_all,
        )
        return found if self.name == "Tamara" else replace(found, survey_every=inf, phi=0.0)


def rounds_of(
    policy: RoundsPolicy,
    state: Clustering,
    frequency: FloatArray,
    days: float,
    plans: int,
    seed: int,
) -> TopicRounds:
    """The simulation of an algorithm."""
    rng = np.random.default_rng([seed, 4])
    duration = days * INTERVALS_PER_DAY
    if policy.name == "ours":
        planner = Planner(policy.prices)
        return ImprovedRounds(
            state, frequency, policy.settings, rng, plan_every=duration / plans, planner=planner
        )
    every = min(float(INTERVALS_PER_DAY), duration / 10)
    watches = policy.name == "Tamara" and policy.reading.watches
    return TopicRounds(
        state, frequency, policy.settings, rng, survey_every=every, watches_falls=watches
    )


def play(
    rounds: TopicRounds, requests: Requests, duration: float, moments: int
) -> AlgorithmOutcome:
    """Run a simulation to its end and summarise it."""
    seen = rounds.run(requests, duration, moments)
    spent = sum(m.overhead for m in seen) / max(sum(m.scribe for m in seen), 1e-9)
    return summarise(tuple(seen), rounds.clustering, rounds.frequency, spent, rounds.updates)


def summarise(
    moments: tuple[CostSample, ...],
    state: Clustering,
    frequency: FloatArray,
    overhead: float,
    updates: Mapping[str, int],
) -> AlgorithmOutcome:
    """What a run that ended in this clustering gives."""
    return AlgorithmOutcome(
        moments,
        price_change(state, frequency, overhead, PRICES),
        dict(updates),
        price_change(state, frequency, overhead, tree_prices(state.n_subscribers)),
    )


@cache
def tree_prices(peers: int) -> OperatingPrices:
    """Prices of one ring for all runs, so that only the clusters differ."""
    return measure_scribe_prices(peers, np.random.default_rng([peers, 5]))


def price_change(
    state: Clustering, frequency: FloatArray, overhead: float, prices: OperatingPrices
) -> CostChange:
    """MC, DC and OC of a clustering against plain Scribe."""
    found = clustering_cost(state, frequency, prices)
    maintenance, dissemination = unclustered_cost(state.wants.sum(axis=0), frequency, prices)
    return CostChange(
        found.maintenance / maintenance - 1,
        found.dissemination / dissemination - 1,
        found.cost / (maintenance + dissemination) - 1,
        overhead,
    )
