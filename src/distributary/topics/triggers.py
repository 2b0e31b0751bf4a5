"""When a topic that a cluster did not take up is worth another estimate.

Reference: Milo et al. (2007), section 3.1. Three things can make an addition pay later: the topic's
events become rarer, the cluster loses subscribers, or more of them subscribe to the topic. Channels
follow the first two anyway, so thresholds taken from the formula can trigger a new estimate; the
third is the part of the coin.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from distributary.cost import OperatingPrices
from distributary.cost.updates import Channel, estimate_addition

__all__ = ["Thresholds", "Watches", "find_thresholds"]

T = TypeVar("T")  # a topic


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The cluster's size and the topic's events per interval up to which adding it would pay.

    Each with everything else as it was estimated; negative if nothing makes it pay.
    """

    size: int
    flow: float


def find_thresholds(
    prices: OperatingPrices, cluster: Channel, topic: Channel, common: int
) -> Thresholds:
    """The thresholds of an addition that does not pay with this many common subscribers."""

    def pays(size: int) -> bool:
        changed = Channel(size, cluster.flow, cluster.topics)
        return estimate_addition(prices, changed, topic, common) < 0.0

    low, high = common - 1, cluster.size  # pays up to low, as far as known; not at high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if pays(middle) else (low, middle)
    size = low if low >= common and pays(low) else -1
    silent = estimate_addition(prices, cluster, Channel(topic.size, 0.0), common)
    slope = estimate_addition(prices, cluster, topic, common) - silent
    flow = -silent / slope * topic.flow if silent < 0.0 < slope else -1.0
    return Thresholds(size, flow)


@dataclass(slots=True)
class Watches(Generic[T]):
    """The topics that one cluster did not take up, each with its thresholds."""

    _thresholds: dict[T, Thresholds] = field(default_factory=dict)
    _largest: int = -1  # of all sizes

    def watch(self, topic: T, thresholds: Thresholds) -> None:
        """Wait for one of the thresholds, in place of any earlier ones of the topic."""
        self._thresholds[topic] = thresholds
        self._largest = max(self._largest, thresholds.size)

    def take_reached_by_size(self, size: int) -> list[T]:
        """The topics whose threshold the cluster's size has reached; they are no longer watched."""
        if size > self._largest:
            return []
        return self._take(lambda found: found.size >= size)

    def take_reached_by_flow(self, topic: T, flow: float) -> list[T]:
        """The topic, if its flow has reached its threshold; it is no longer watched then."""
        found = self._thresholds.get(topic)
        if found is None or flow > found.flow:
            return []
        del self._thresholds[topic]
        return [topic]

    def forget(self, topic: T) -> None:
        """Stop watching a topic."""
        self._thresholds.pop(topic, None)

    def _take(self, reached: Callable[[Thresholds], bool]) -> list[T]:
        taken = [topic for topic, found in self._thresholds.items() if reached(found)]
        for topic in taken:
            del self._thresholds[topic]
        self._largest = max((found.size for found in self._thresholds.values()), default=-1)
        return taken
