"""What each change of a cluster would do to OC, from the few numbers that channels know.

Every estimate is OC after less OC before: below 0 it pays. Given exact numbers each is exact,
but for `merging`, which never promises more than comes: members may leave other channels too.

Reference: Milo et al. (2007), sections 3 and 4. Where a channel's topics change, so does what it
sends; the print of 3.1 and 4 leaves that term out of the formulas, not out of their examples.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from distributary.cost.operating import OperatingPrices

__all__ = [
    "Channel",
    "absorbing",
    "adding",
    "destroying",
    "enough_common",
    "forming",
    "least_common",
    "merging",
    "pairing",
    "removing",
    "toll",
]


@dataclass(frozen=True, slots=True)
class Channel:
    """What is known of a channel: subscribers, events per interval, topics (0: a topic's own)."""

    size: int
    flow: float
    topics: int = 0


def toll(prices: OperatingPrices, channel: Channel, *, joining: bool = True) -> float:
    """What one more subscriber costs on a channel, or what the last one to leave saves."""
    after = channel.size + 1 if joining else max(channel.size, 1)
    before = after - 1
    return (
        prices.maintain(after)
        - prices.maintain(before)
        + channel.flow * (prices.disseminate(after) - prices.disseminate(before))
    )


def adding(prices: OperatingPrices, cluster: Channel, topic: Channel, common: int) -> float:
    """A cluster takes a topic up; the `common` subscribers of both leave the topic's channel."""
    return (
        _price(prices, Channel(topic.size - common, topic.flow))
        - _price(prices, topic)
        + _price(prices, Channel(cluster.size, cluster.flow + topic.flow, cluster.topics + 1))
        - _price(prices, cluster)
    )


def removing(prices: OperatingPrices, cluster: Channel, topic: Channel, needed: int) -> float:
    """A cluster gives a topic up; the `needed` who have it from nowhere else go to its channel."""
    return (
        _price(prices, Channel(topic.size + needed, topic.flow))
        - _price(prices, topic)
        + _price(prices, Channel(cluster.size, cluster.flow - topic.flow, cluster.topics - 1))
        - _price(prices, cluster)
    )


def pairing(prices: OperatingPrices, one: Channel, other: Channel, common: int) -> float:
    """Two topics make a cluster, and all subscribers of both move there."""
    together = Channel(one.size + other.size - common, one.flow + other.flow, 2)
    left = sum(_price(prices, Channel(0, topic.flow)) for topic in (one, other))
    return _price(prices, together) + left - _price(prices, one) - _price(prices, other)


def absorbing(prices: OperatingPrices, cluster: Channel, topic: Channel, common: int) -> float:
    """A cluster takes a topic up, and all subscribers of the topic's channel move there."""
    after = Channel(
        cluster.size + topic.size - common, cluster.flow + topic.flow, cluster.topics + 1
    )
    return (
        _price(prices, after)
        - _price(prices, cluster)
        + _price(prices, Channel(0, topic.flow))
        - _price(prices, topic)
    )


def merging(
    prices: OperatingPrices, one: Channel, other: Channel, common: int, shared: Channel
) -> float:
    """Two clusters become one with all members; of `shared` only topics and flow matter."""
    together = Channel(
        one.size + other.size - common,
        one.flow + other.flow - shared.flow,
        one.topics + other.topics - shared.topics,
    )
    return _price(prices, together) - _price(prices, one) - _price(prices, other)


def forming(prices: OperatingPrices, cluster: Channel, saved: float) -> float:
    """A new cluster comes about, and its subscribers save that much on channels they leave."""
    return _price(prices, cluster) - saved


def destroying(
    prices: OperatingPrices, cluster: Channel, needed: Iterable[tuple[Channel, int]]
) -> float:
    """A cluster ends; those who need a topic of it, so many each, go to that topic's channel."""
    back = sum(
        _price(prices, Channel(topic.size + n, topic.flow)) - _price(prices, topic)
        for topic, n in needed
    )
    return back - _price(prices, cluster)


def least_common(prices: OperatingPrices, cluster: Channel, topic: Channel) -> int:
    """From how many common subscribers on it pays to add a topic, were there so many.

    What the channel of the topic saves is taken from a full channel on, as if all of its
    subscribers were common: the number is a threshold for tossing coins, not a decision.
    """
    low, high = 0, cluster.size + 2
    size = max(topic.size, high)
    while low < high:
        middle = (low + high) // 2
        if adding(prices, cluster, Channel(size, topic.flow), middle) < 0:
            high = middle
        else:
            low = middle + 1
    return low


def enough_common(prices: OperatingPrices, cluster: Channel, topic: Channel, common: int) -> bool:
    """Whether so many are at least `least_common`, at the price of one estimate."""
    most = cluster.size + 2
    size = max(topic.size, most)
    return common >= most or adding(prices, cluster, Channel(size, topic.flow), common) < 0


def _price(prices: OperatingPrices, channel: Channel) -> float:
    """One channel's part of MC and DC."""
    kept = prices.associate(channel.topics) if channel.topics else 0.0
    sent = channel.flow * (prices.notify + prices.disseminate(channel.size))
    return prices.maintain(channel.size) + kept + sent
