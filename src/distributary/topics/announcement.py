"""Whom a change of a cluster's topics concerns, and how many messages telling them takes.

Reference: Milo et al. (2007), section 3.1. When a cluster takes up a topic, its members give up
that topic's own channel, so only those on both channels have something to do; leaving is their
answer. Everybody else filters what it does not want (section 2), and learns from the topic's
channel which clusters carry the topic once it wants it (section 4).
"""

from __future__ import annotations

from collections.abc import Iterable

from distributary.cost.updates import Channel
from distributary.topics.policy import Policy

__all__ = [
    "are_members_fewer",
    "count_addition_notices",
    "count_channel_notices",
    "count_quotes",
    "count_removal_notices",
]


def are_members_fewer(cluster_size: int, topic_sizes: Iterable[int]) -> bool:
    """Whether a cluster that takes up topics tells its members, because the topics have more.

    Otherwise the channels of the topics tell their subscribers.
    """
    return cluster_size <= sum(topic_sizes)


def count_addition_notices(policy: Policy, cluster: Channel, topic: Channel, common: int) -> int:
    """Messages that tell subscribers of a topic that a cluster has taken it up.

    A cluster whose members report every change knows which of them are on the topic's channel;
    otherwise one of the two channels, the one with fewer, tells all its subscribers. A policy that
    announces to all members also waits for a confirmation from each.
    """
    if policy.announces_to_all:
        return 2 * cluster.size
    return common if policy.tells else min(cluster.size, topic.size)


def count_removal_notices(policy: Policy, cluster: Channel, needed: int) -> int:
    """Messages that tell members that a cluster gives up a topic, and their confirmations.

    Whoever needs the topic must join its channel first. A cluster that has asked only a sample does
    not know who that is, and must tell all.
    """
    knows = policy.tells and not policy.announces_to_all
    return 2 * (needed if knows else cluster.size)


def count_channel_notices(policy: Policy, carried: int, changed: int) -> int:
    """Messages between a cluster and the channels of its topics when some of them changed.

    With the confirmations. If all hear of each change, every channel can quote the cluster to its
    subscribers; else a channel knows the names of its clusters alone, as in the paper.
    """
    return 2 * (carried + 1 if policy.announces_to_all else changed)


def count_quotes(policy: Policy, offered: int) -> int:
    """Messages by which a subscriber asks the clusters with a topic what else they carry."""
    return 0 if policy.announces_to_all else 2 * offered
