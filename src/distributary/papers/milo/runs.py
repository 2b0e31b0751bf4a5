"""One experiment of the paper: a system that grows or whose interests shift, per algorithm."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np

from distributary.cost import OperatingPrices
from distributary.model import FloatArray
from distributary.model.topics import BoolArray
from distributary.papers.milo.algorithms import (
    AS_READ,
    PRICES,
    AlgorithmOutcome,
    CostChange,
    Outcomes,
    Reading,
    RoundsPolicy,
    play,
    price_change,
    rounds_of,
    summarise,
    tree_prices,
)
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
from distributary.topics.rounds import Requests

__all__ = [
    "FULL",
    "QUICK",
    "Case",
    "ClusteringCase",
    "Scale",
    "outcomes",
    "run_growth",
    "run_shift",
    "single_starts",
]


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
class ClusteringCase:
    """One experiment with one seed: interests that grow, or that shift."""

    model: str
    scale: Scale
    seed: int
    algorithms: tuple[str, ...]
    shifts: bool = False
    uniform: bool = False  # interests shift to uniform ones
    trees: bool = False  # decide by the cost of Scribe's trees with helper peers
    reading: Reading = AS_READ

    def run(self) -> Outcomes:
        """Run all algorithms."""
        course = self.course()
        prices = tree_prices(self.scale.world.users) if self.trees else PRICES
        return {
            name: _run(RoundsPolicy(name, self.reading, prices), course, self.scale, self.seed)
            for name in self.algorithms
        }

    def course(self) -> Course:
        """What happens in the run."""
        if self.shifts:
            return _shift_course(self.model, self.scale, self.seed, uniform=self.uniform)
        return _growth_course(self.model, self.scale, self.seed)

    @property
    def is_large(self) -> bool:
        """Whether it is worth a process of its own."""
        return self.scale.world.users * self.scale.days >= FULL.world.users

    def parts(self) -> list[ClusteringCase]:
        """The same case split into one per algorithm."""
        return [replace(self, algorithms=(name,)) for name in self.algorithms]


class Case(Protocol):
    """One experiment with one seed; equal cases have equal outcomes."""

    @property
    def is_large(self) -> bool:
        """Whether it is worth a process of its own."""

    def run(self) -> Outcomes:
        """Run all algorithms."""

    def parts(self) -> Sequence[Case]:
        """The same case split into one per algorithm."""


_found: dict[Case, Outcomes] = {}  # a cache: tables and figures share runs


def outcomes(cases: Sequence[Case], progress: Progress) -> list[Outcomes]:
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


def _run_all(cases: Sequence[Case]) -> Generator[tuple[Case, Outcomes], None, None]:
    if not any(case.is_large for case in cases):
        return ((case, case.run()) for case in cases)
    return run_apart(_run_case, cases)


def _run_case(case: Case) -> Outcomes:
    return case.run()


def run_growth(
    model: str,
    scale: Scale,
    seed: int,
    algorithms: Sequence[str],
    *,
    prices: OperatingPrices = PRICES,
) -> Outcomes:
    """Run a system that starts empty and that users join one after the other."""
    course = _growth_course(model, scale, seed)
    return {
        name: _run(RoundsPolicy(name, prices=prices), course, scale, seed) for name in algorithms
    }


def run_shift(
    model: str, scale: Scale, seed: int, algorithms: Sequence[str], *, uniform: bool = False
) -> Outcomes:
    """Run a system whose interests all change, starting from clusters that fit the old ones."""
    course = _shift_course(model, scale, seed, uniform=uniform)
    return {name: _run(RoundsPolicy(name), course, scale, seed) for name in algorithms}


class Course(NamedTuple):
    """What happens in a run: interests before and after, clusters at the start, and requests."""

    before: BoolArray
    after: BoolArray
    start: BoolArray | None
    frequency: FloatArray
    requests: Requests


def _growth_course(model: str, scale: Scale, seed: int) -> Course:
    rng = np.random.default_rng([seed, 1])
    world = scale.world
    frequency, wants = frequencies(model, world.topics, rng), interests(world, rng)
    duration = float(scale.days * INTERVALS_PER_DAY)
    requests = growth(wants, duration, world.span, rng)
    return Course(np.zeros_like(wants), wants, None, frequency, requests)


def _shift_course(model: str, scale: Scale, seed: int, *, uniform: bool) -> Course:
    rng = np.random.default_rng([seed, 2])
    world = scale.world
    frequency, before = frequencies(model, world.topics, rng), interests(world, rng)
    mixed = rng.permutation(world.topics)
    after = interests(replace(world, uniform=uniform), rng)[:, mixed]
    duration = float(scale.days * INTERVALS_PER_DAY)
    requests = shift(before, after, duration, world.span, rng)
    return Course(before, after, world.home_of(), frequency, requests)


def _run(policy: RoundsPolicy, course: Course, scale: Scale, seed: int) -> AlgorithmOutcome:
    frequency = course.frequency
    if policy.name == "K-means":
        rng = np.random.default_rng([seed, 3])
        found = kmeans_clustering(course.after, scale.world.natural, rng)
        return summarise((), found, frequency, 0.0, {})
    state = starting_clustering(course.before, course.start, frequency, policy.prices)
    rounds = rounds_of(policy, state, frequency, scale.days, scale.plans, seed)
    return play(rounds, course.requests, float(scale.days * INTERVALS_PER_DAY), scale.moments)


def single_starts(case: ClusteringCase, starts: int) -> list[CostChange]:
    """What K-means finds from each of several starts, each by itself as a single run would."""
    course = case.course()
    found = []
    for start in range(starts):
        rng = np.random.default_rng([case.seed, 6, start])
        state = kmeans_clustering(course.after, case.scale.world.natural, rng, starts=1)
        found.append(price_change(state, course.frequency, 0.0, PRICES))
    return found
