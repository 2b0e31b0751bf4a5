"""Estimates of the change in OC when a cluster is updated, from the few numbers that channels know.

Every estimate is OC after the update minus OC before it: a negative estimate means that the update
pays. With exact numbers each is exact, except `estimate_merge`, which is an upper bound because
members may leave other channels as well.

Reference: Milo et al. (2007), sections 3 and 4. When a channel's topics change, so does what it
sends; the formulas printed in 3.1 and 4 omit that term, their examples include it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from distributary.cost.operating import OperatingPrices

__all__ = [
    "Channel",
    "estimate_absorption",
    "estimate_addition",
    "estimate_dissolution",
    "estimate_formation",
    "estimate_merge",
    "estimate_pairing",
    "estimate_removal",
    "has_enough_common",
    "toll",
]


@dataclass(frozen=True, slots=True)
class Channel:
    """A channel's subscribers, events per interval, and topics (0: a topic's own channel)."""

    size: int
    flow: float
    topics: int = 0


def toll(prices: OperatingPrices, channel: Channel, *, joining: bool = True) -> float:
    """The cost of one more subscriber on a channel, or the saving when one leaves."""
    after = channel.size + 1 if joining else max(channel.size, 1)
    before = after - 1
    return (
        prices.maintain(after)
        - prices.maintain(before)
        + channel.flow * (prices.disseminate(after) - prices.disseminate(before))
    )


def estimate_addition(
    prices: OperatingPrices, cluster: Channel, topic: Channel, common: int
) -> float:
    """A cluster adds a topic; the `common` subscribers of both leave the topic's channel."""
    return (
        _price(prices, Channel(topic.size - common, topic.flow))
        - _price(prices, topic)
        + _price(prices, Channel(cluster.size, cluster.flow + topic.flow, cluster.topics + 1))
        - _price(prices, cluster)
    )


def estimate_removal(
    prices: OperatingPrices, cluster: Channel, topic: Channel, needed: int
) -> float:
    """A cluster drops a topic; `needed` members get it from nowhere else and join its channel."""
    return (
        _price(prices, Channel(topic.size + needed, topic.flow))
        - _price(prices, topic)
        + _price(prices, Channel(cluster.size, cluster.flow - topic.flow, cluster.topics - 1))
        - _price(prices, cluster)
    )


def estimate_pairing(prices: OperatingPrices, one: Channel, other: Channel, common: int) -> float:
    """Two topics form a cluster, and all their subscribers move there."""
    together = Channel(one.size + other.size - common, one.flow + other.flow, 2)
    left = sum(_price(prices, Channel(0, topic.flow)) for topic in (one, other))
    return _price(prices, together) + left - _price(prices, one) - _price(prices, other)


def estimate_absorption(
    prices: OperatingPrices, cluster: Channel, topic: Channel, common: int
) -> float:
    """A cluster adds a topic, and all subscribers of the topic's channel move there."""
    after = Channel(
        cluster.size + topic.size - common, cluster.flow + topic.flow, cluster.topics + 1
    )
    return (
        _price(prices, after)
        - _price(prices, cluster)
        + _price(prices, Channel(0, topic.flow))
        - _price(prices, topic)
    )


def estimate_merge(
    prices: OperatingPrices, one: Channel, other: Channel, common: int, shared: Channel
) -> float:
    """Two clusters become one with all members; of `shared` only topics and flow matter."""
    together = Channel(
        one.size + other.size - common,
        one.flow + other.flow - shared.flow,
        one.topics + other.topics - shared.topics,
    )
    return _price(prices, together) - _price(prices, one) - _price(prices, other)


def estimate_formation(prices: OperatingPrices, cluster: Channel, saved: float) -> float:
    """A cluster is formed, and its subscribers save `saved` on channels they leave."""
    return _price(prices, cluster) - saved


def estimate_dissolution(
    prices: OperatingPrices, cluster: Channel, needed: Iterable[tuple[Channel, int]]
) -> float:
    """A cluster is dissolved; `needed` has each topic's channel and how many members join it."""
    back = sum(
        _price(prices, Channel(topic.size + n, topic.flow)) - _price(prices, topic)
        for topic, n in needed
    )
    return back - _price(prices, cluster)


def has_enough_common(
    prices: OperatingPrices, cluster: Channel, topic: Channel, common: int
) -> bool:
    """Whether `common` shared subscribers would make adding a topic pay.

    The saving on the topic's channel is computed from a full channel, as if all of its subscribers
    were common: this is a threshold for tossing coins, not a decision.
    """
    most = cluster.size + 2
    size = max(topic.size, most)
    return (
        common >= most or estimate_addition(prices, cluster, Channel(size, topic.flow), common) < 0
    )


def _price(prices: OperatingPrices, channel: Channel) -> float:
    """One channel's part of MC and DC."""
    kept = prices.associate(channel.topics) if channel.topics else 0.0
    sent = channel.flow * (prices.notify + prices.disseminate(channel.size))
    return prices.maintain(channel.size) + kept + sent
