"""One experiment of the paper: a system that grows or whose interests shift, per algorithm."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

import numpy as np

from distributary.cost import OperatingPrices
from distributary.cost.topics import clustering_cost, unclustered_cost
from distributary.model import FloatArray
from distributary.model.topics import BoolArray, Clustering
from distributary.papers.milo.baselines import kmeans_clustering, starting_clustering
from distributary.papers.milo.world import (
    INTERVALS_PER_DAY,
    World,
    frequencies,
    growth,
    interests,
    shift,
)
from distributary.papers.processes import run_apart
from distributary.planning import Progress, Step
from distributary.planning.topics import Planner
from distributary.topics import OURS, TAMARA
from distributary.topics.improvement import ImprovedRounds
from distributary.topics.overlay.prices import measure_scribe_prices
from distributary.topics.rounds import CostSample, Requests, TopicRounds

__all__ = [
    "FULL",
    "QUICK",
    "AlgorithmOutcome",
    "ClusteringCase",
    "CostChange",
    "Outcomes",
    "RoundsPolicy",
    "Scale",
    "outcomes",
    "play",
    "rounds_of",
    "run_growth",
    "run_shift",
]


PRICES = OperatingPrices()
STATIC_POLICY = replace(TAMARA, survey_every=float("inf"), phi=0.0)


@dataclass(frozen=True, slots=True)
class Scale:
    """The size and number of runs; quick runs are small."""

    world: World
    days: int = 60
    seeds: int = 10
    moments: int = 60
    plans: int = 8


FULL = Scale(World())
QUICK = Scale(World(users=200, topics=60, natural=5), days=8, seeds=1, moments=16, plans=4)


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
class ClusteringCase:
    """One experiment with one seed: interests that grow, or that shift."""

    model: str
    scale: Scale
    seed: int
    algorithms: tuple[str, ...]
    shifts: bool = False
    uniform: bool = False  # interests shift to uniform ones
    trees: bool = False  # decide by the cost of Scribe's trees with helper peers

    def run(self) -> Outcomes:
        """Run all algorithms."""
        model, scale, seed, names = self.model, self.scale, self.seed, self.algorithms
        prices = _tree_prices(scale.world.users) if self.trees else PRICES
        if self.shifts:
            return run_shift(model, scale, seed, names, uniform=self.uniform, prices=prices)
        return run_growth(model, scale, seed, names, prices=prices)

    def parts(self) -> list[ClusteringCase]:
        """The same case split into one per algorithm."""
        return [replace(self, algorithms=(name,)) for name in self.algorithms]


_found: dict[ClusteringCase, Outcomes] = {}  # a cache: tables and figures share runs


def outcomes(cases: Sequence[ClusteringCase], progress: Progress) -> list[Outcomes]:
    """The outcomes of the cases in their order; large ones run two at a time, in processes."""
    wanted = dict.fromkeys(part for case in cases for part in case.parts())
    todo = [part for part in wanted if part not in _found]
    before = len(wanted) - len(todo)
    progress(Step("runs", before, len(wanted)))
    with closing(_run_all(todo)) as ended:
        for done, (part, outcome) in enumerate(ended, before + 1):
            _found[part] = outcome
            progress(Step("runs", done, len(wanted)))
    return [
        {name: outcome for part in case.parts() for name, outcome in _found[part].items()}
        for case in cases
    ]


def _run_all(
    cases: Sequence[ClusteringCase],
) -> Generator[tuple[ClusteringCase, Outcomes], None, None]:
    if all(case.scale.world.users < FULL.world.users for case in cases):
        return ((case, case.run()) for case in cases)
    return run_apart(ClusteringCase.run, cases)


def run_growth(
    model: str,
    scale: Scale,
    seed: int,
    algorithms: Sequence[str],
    *,
    prices: OperatingPrices = PRICES,
) -> Outcomes:
    """Run a system that starts empty and that users join one after the other."""
    rng = np.random.default_rng([seed, 1])
    world = scale.world
    frequency, wants = frequencies(model, world.topics, rng), interests(world, rng)
    duration = float(scale.days * INTERVALS_PER_DAY)
    requests = growth(wants, duration, world.span, rng)
    course = _Course(np.zeros_like(wants), wants, None, frequency, requests)
    return {name: _run(name, course, scale, seed, prices) for name in algorithms}


def run_shift(
    model: str,
    scale: Scale,
    seed: int,
    algorithms: Sequence[str],
    *,
    uniform: bool = False,
    prices: OperatingPrices = PRICES,
) -> Outcomes:
    """Run a system whose interests all change, starting from clusters that fit the old ones."""
    rng = np.random.default_rng([seed, 2])
    world = scale.world
    frequency, before = frequencies(model, world.topics, rng), interests(world, rng)
    mixed = rng.permutation(world.topics)
    after = interests(replace(world, uniform=uniform), rng)[:, mixed]
    duration = float(scale.days * INTERVALS_PER_DAY)
    requests = shift(before, after, duration, world.span, rng)
    course = _Course(before, after, world.home_of(), frequency, requests)
    return {name: _run(name, course, scale, seed, prices) for name in algorithms}


class _Course(NamedTuple):
    """What happens in a run: interests before and after, clusters at the start, and requests."""

    before: BoolArray
    after: BoolArray
    start: BoolArray | None
    frequency: FloatArray
    requests: Requests


def _run(
    name: str, course: _Course, scale: Scale, seed: int, prices: OperatingPrices
) -> AlgorithmOutcome:
    frequency = course.frequency
    if name == "K-means":
        rng = np.random.default_rng([seed, 3])
        found = kmeans_clustering(course.after, scale.world.natural, rng)
        return _outcome((), found, frequency, 0.0, {})
    state = starting_clustering(course.before, course.start, frequency, prices)
    policy = RoundsPolicy(name, prices=prices)
    rounds = rounds_of(policy, state, frequency, scale.days, scale.plans, seed)
    return play(rounds, course.requests, float(scale.days * INTERVALS_PER_DAY), scale.moments)


@dataclass(frozen=True, slots=True)
class RoundsPolicy:
    """An algorithm of a simulation: static clusters, Tamara (pruning or not) or ours."""

    name: str
    prunes: bool = True
    prices: OperatingPrices = PRICES


def rounds_of(
    policy: RoundsPolicy,
    state: Clustering,
    frequency: FloatArray,
    days: float,
    plans: int,
    seed: int,
) -> TopicRounds:
    """The simulation of an algorithm."""
    prices = policy.prices
    rng = np.random.default_rng([seed, 4])
    duration = days * INTERVALS_PER_DAY
    every = min(float(INTERVALS_PER_DAY), duration / 10)
    if policy.name == "ours":
        own, planner = replace(OURS, prices=prices), Planner(prices)
        return ImprovedRounds(
            state, frequency, own, rng, plan_every=duration / plans, planner=planner
        )
    base = STATIC_POLICY if policy.name == "static" else replace(TAMARA, prunes=policy.prunes)
    return TopicRounds(state, frequency, replace(base, prices=prices), rng, survey_every=every)


def play(
    rounds: TopicRounds, requests: Requests, duration: float, moments: int
) -> AlgorithmOutcome:
    """Run a simulation to its end and summarise it."""
    seen = rounds.run(requests, duration, moments)
    spent = sum(m.overhead for m in seen) / max(sum(m.scribe for m in seen), 1e-9)
    return _outcome(tuple(seen), rounds.clustering, rounds.frequency, spent, rounds.updates)


def _outcome(
    moments: tuple[CostSample, ...],
    state: Clustering,
    frequency: FloatArray,
    overhead: float,
    updates: Mapping[str, int],
) -> AlgorithmOutcome:
    return AlgorithmOutcome(
        moments,
        _change(state, frequency, overhead, PRICES),
        dict(updates),
        _change(state, frequency, overhead, _tree_prices(state.n_subscribers)),
    )


@cache
def _tree_prices(peers: int) -> OperatingPrices:
    """Prices of one ring for all runs, so that only the clusters differ."""
    return measure_scribe_prices(peers, np.random.default_rng([peers, 5]))


def _change(
    state: Clustering, frequency: FloatArray, overhead: float, prices: OperatingPrices
) -> CostChange:
    found = clustering_cost(state, frequency, prices)
    maintenance, dissemination = unclustered_cost(state.wants.sum(axis=0), frequency, prices)
    return CostChange(
        found.maintenance / maintenance - 1,
        found.dissemination / dissemination - 1,
        found.cost / (maintenance + dissemination) - 1,
        overhead,
    )
