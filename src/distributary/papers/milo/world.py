"""Topics, users and their requests in the paper's experiments.

Reference: Milo et al. (2007), section 5.2 and Table 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from distributary.model import FloatArray
from distributary.model.topics import BoolArray
from distributary.topics.rounds import Requests

__all__ = [
    "DAYS",
    "INTERVALS_PER_DAY",
    "MODELS",
    "World",
    "frequencies",
    "growth",
    "in_order",
    "interests",
    "shift",
]

INTERVALS_PER_DAY = 240  # of six minutes
DAYS: Mapping[str, int] = {"two months": 60, "two weeks": 14, "one day": 1}

# Table 1: (lowest and highest events per interval, share of topics). The first row of (a) is
# printed 0.6-0.6; the shares of (c) are completed to 1.
MODELS: Mapping[str, tuple[tuple[float, float, float], ...]] = {
    "Average": (
        (0.4, 0.6, 0.15),
        (0.2, 0.4, 0.05),
        (0.1, 0.2, 0.25),
        (0.02, 0.1, 0.45),
        (0.002, 0.02, 0.10),
    ),
    "Frequent": (
        (1.0, 3.0, 0.05),
        (0.5, 1.0, 0.20),
        (0.1, 0.5, 0.50),
        (0.01, 0.1, 0.20),
        (0.001, 0.01, 0.05),
    ),
    "Infrequent": ((0.1, 0.2, 0.10), (0.01, 0.1, 0.40), (0.001, 0.01, 0.50)),
}


@dataclass(frozen=True, slots=True)
class World:
    """The sizes of an experiment; by default those of the paper's sample."""

    users: int = 3_000
    topics: int = 120
    natural: int = 10  # clusters of topics
    homes: int = 2  # home clusters per user
    want_home: float = 0.9
    mean_wanted: float = 80 / 3
    span: float = 0.2  # the share of the run in which a user makes all its requests
    uniform: bool = False  # no natural clusters

    def home_of(self) -> BoolArray:
        """Which topics each natural cluster has (clusters x topics)."""
        of_topic = np.arange(self.topics) * self.natural // self.topics
        found: BoolArray = of_topic == np.arange(self.natural)[:, None]
        return found


def frequencies(model: str, topics: int, rng: np.random.Generator) -> FloatArray:
    """Events per interval of each topic: exact shares per class, in random order."""
    bounds = MODELS[model]
    edges = np.rint(np.cumsum([0.0, *(share for *_, share in bounds)]) * topics).astype(int)
    found = np.concatenate(
        [
            rng.uniform(low, high, size=b - a)
            for (low, high, _), a, b in zip(bounds, edges[:-1], edges[1:], strict=True)
        ]
    )
    return rng.permutation(found)


def interests(world: World, rng: np.random.Generator) -> BoolArray:
    """Who wants what (users x topics)."""
    if world.uniform:
        return rng.random((world.users, world.topics)) < world.mean_wanted / world.topics
    homes = np.argsort(rng.random((world.users, world.natural)), axis=1)[:, : world.homes]
    at_home = world.home_of()[homes].any(axis=1)
    inside = world.homes * world.topics / world.natural
    outside = world.topics - inside  # 0 in worlds so small that everything is at home
    elsewhere = (world.mean_wanted - world.want_home * inside) / outside if outside else 0.0
    odds = np.where(at_home, world.want_home, max(elsewhere, 0.0))
    return rng.random((world.users, world.topics)) < odds


def growth(wants: BoolArray, duration: float, span: float, rng: np.random.Generator) -> Requests:
    """The requests from nothing to these interests; each user's fall within a share of the run."""
    users, topics = np.nonzero(wants)
    start = rng.uniform(0.0, 1.0 - span, size=len(wants))
    time = duration * (start[users] + span * rng.random(len(users)))
    return in_order(time, users, topics, np.ones(len(users), bool))


def shift(
    before: BoolArray, after: BoolArray, duration: float, span: float, rng: np.random.Generator
) -> Requests:
    """The requests from some interests to others; each user's fall within a share of the run."""
    users, topics = np.nonzero(before != after)
    start = rng.uniform(0.0, 1.0 - span, size=len(before))
    time = duration * (start[users] + span * rng.random(len(users)))
    return in_order(time, users, topics, after[users, topics])


def in_order(
    time: FloatArray,
    users: np.ndarray[tuple[int], np.dtype[np.intp]],
    topics: np.ndarray[tuple[int], np.dtype[np.intp]],
    wanted: BoolArray,
) -> Requests:
    """The requests sorted by time."""
    order = np.argsort(time, kind="stable")
    return Requests(
        time[order], users[order].astype(np.int64), topics[order].astype(np.int64), wanted[order]
    )
