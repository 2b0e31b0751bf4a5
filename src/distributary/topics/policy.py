"""How eager channels and subscribers are: Tamara's way, and ours."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from math import ceil, inf, log1p
from sys import maxsize

import numpy as np

from distributary.cost import OperatingPrices

__all__ = ["OURS", "TAMARA", "Policy", "coin", "derive_generator", "most_winning", "sample_size"]

_LEAST_DRAW = 1e-15  # below it, more subscribers would win than there can be


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings of all channels and subscribers of one system; times in seconds.

    A change is made if it `pays`: if what it saves within `horizon` maintenance intervals is more
    than the messages it takes, and more than `margin` in every interval.
    """

    prices: OperatingPrices = field(default_factory=OperatingPrices)
    interval: float = 360.0  # M
    phi: float = 0.99  # how surely a coin is won before twice as many subscribers came
    sample: float = 384.0  # asked in a survey of very many; fewer where there are few
    survey_every: float = 86_400.0  # inf: never without a reason
    prunes: bool = True  # a cluster's survey reconsiders its topics and the cluster itself
    tells: bool = False  # members tell their clusters every change, which then know exact counts
    obeys: bool = True  # subscribers move where channels suggest, whatever it costs them
    horizon: float = inf
    margin: float = 0.0
    answer_within: float = 5.0
    retry: float = 1.0
    lock_for: float = 60.0
    refresh: float = 30.0  # a subscriber asks for events it may have missed
    history: int = 1_000  # events that a topic's channel keeps for repair
    history_bytes: int = 1 << 24  # of their payloads; the last event is kept at any rate
    most_topics: int = maxsize  # of one cluster
    remember: float = 600.0  # who left: no message is on its way for longer than that

    def pays(self, change: float, messages: float) -> bool:
        """Whether a change of OC is worth its messages."""
        if change >= -self.margin:
            return False
        return self.horizon == inf or -change * self.horizon > messages


TAMARA = Policy()
OURS = Policy(survey_every=inf, tells=True, obeys=False, horizon=240.0)


def coin(phi: float, subscribers: int) -> float:
    """Omega: so likely that one of so many tosses wins with probability `phi` (section 3.1)."""
    return 1.0 if subscribers <= 1 else 1.0 - (1.0 - phi) ** (1.0 / subscribers)


def most_winning(phi: float, draw: float) -> int:
    """Up to how many subscribers a draw from [0, 1) wins their coin; with one it always does."""
    if phi <= 0.0:
        return 1
    if phi >= 1.0 or draw < _LEAST_DRAW:
        return maxsize
    return max(1, int(log1p(-phi) / log1p(-draw)))


def sample_size(population: int, sample: float) -> int:
    """How many of a finite population to ask for the precision of `sample` out of very many."""
    if population <= 0:
        return 0
    return min(population, ceil(sample / (1.0 + (sample - 1.0) / population)))


def derive_generator(seed: int, name: str) -> np.random.Generator:
    """A generator of its own for everything with a name; names may be any text."""
    words = np.frombuffer(blake2b(name.encode(), digest_size=16).digest(), np.uint32)
    return np.random.default_rng([seed, *_whole(words)])


def _whole(words: Iterable[np.integer]) -> list[int]:
    return [int(word) for word in words]
