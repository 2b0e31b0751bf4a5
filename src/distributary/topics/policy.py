"""The settings of channels and subscribers: those of the paper's Tamara, and ours."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from math import ceil, inf, log1p
from sys import maxsize

import numpy as np

from distributary.cost import OperatingPrices

__all__ = ["OURS", "TAMARA", "Policy", "coin", "derive_generator", "invert_coin", "sample_size"]

_LEAST_DRAW = 1e-15  # below it, the coin wins with any number of subscribers


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings of all channels and subscribers of one system; times in seconds.

    A change is made if it `pays`: if it saves more than `margin` per maintenance interval, and more
    within `horizon` intervals than the messages it takes.
    """

    prices: OperatingPrices = field(default_factory=OperatingPrices)
    interval: float = 360.0  # M
    phi: float = 0.99  # the probability that a coin wins before the subscribers have doubled
    sample: float = 384.0  # survey size for a large population; smaller for a small one
    survey_every: float = 86_400.0  # inf: no regular surveys
    adds: bool = True  # a survey also considers adding a topic without all of its subscribers
    prunes: bool = True  # a cluster's survey reconsiders its topics and the cluster itself
    tells: bool = False  # members report every change, so that clusters know exact counts
    announces_to_all: bool = True  # all members confirm a new topic, not only those concerned told
    obeys: bool = True  # subscribers follow every suggestion, whatever it costs them
    horizon: float = inf
    margin: float = 0.0
    answer_within: float = 5.0
    retry: float = 1.0
    lock_for: float = 60.0
    refresh: float = 30.0  # period of a subscriber's requests for missed events
    history: int = 1_000  # events that a topic's channel keeps for repair
    history_bytes: int = 1 << 24  # of their payloads; the last event is always kept
    most_topics: int = maxsize  # of one cluster
    remember: float = 600.0  # departures: no message may be late for longer

    def pays(self, change: float, messages: float) -> bool:
        """Whether a change of OC is worth the messages it takes."""
        if change >= -self.margin:
            return False
        return self.horizon == inf or -change * self.horizon > messages


TAMARA = Policy(announces_to_all=False)
OURS = Policy(survey_every=inf, tells=True, obeys=False, horizon=240.0)


def coin(phi: float, subscribers: int) -> float:
    """Omega: the chance per toss such that one of `subscribers` tosses wins with chance `phi`.

    Reference: section 3.1.
    """
    return 1.0 if subscribers <= 1 else 1.0 - (1.0 - phi) ** (1.0 / subscribers)


def invert_coin(phi: float, draw: float) -> int:
    """The largest number of subscribers whose `coin` the draw from [0, 1) wins; at least 1."""
    if phi <= 0.0:
        return 1
    if phi >= 1.0 or draw < _LEAST_DRAW:
        return maxsize
    return max(1, int(log1p(-phi) / log1p(-draw)))


def sample_size(population: int, sample: float) -> int:
    """The sample of a finite population that is as precise as `sample` of an infinite one."""
    if population <= 0:
        return 0
    return min(population, ceil(sample / (1.0 + (sample - 1.0) / population)))


def derive_generator(seed: int, name: str) -> np.random.Generator:
    """A random generator for a name, independent of those of other names."""
    words = np.frombuffer(blake2b(name.encode(), digest_size=16).digest(), np.uint32)
    return np.random.default_rng([seed, *words.tolist()])
