"""How a cluster takes up a topic: with all of the topic's subscribers, or only those it shares.

Reference: Milo et al. (2007). In section 3.1 only the common subscribers leave the topic's channel
(*add*); in 3.2, where a topic is a cluster of its own, all of its subscribers move (*absorb*).
"""

from __future__ import annotations

from dataclasses import dataclass

from distributary.cost.updates import Channel, estimate_absorption, estimate_addition
from distributary.topics.announcement import count_addition_notices
from distributary.topics.policy import Policy

__all__ = ["Addition", "choose_addition"]

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Addition:
    """A topic taken up by a cluster: the change of OC, and the messages that it takes."""

    change: float
    messages: float
    recruit: bool  # whether all subscribers of the topic's channel move to the cluster


def choose_addition(policy: Policy, cluster: Channel, topic: Channel, common: int) -> Addition:
    """The cheaper of the two ways; of equals, the one that moves fewer subscribers.

    With prices that are linear in the subscribers, moving all of them is never cheaper, because
    those who are not in the cluster would pay for its other topics. A policy that does not weigh
    additions moves all of them.
    """
    absorb = Addition(
        estimate_absorption(policy.prices, cluster, topic, common),
        (2.0 * cluster.size if policy.announces_to_all else 0.0) + 5.0 * topic.size,
        recruit=True,
    )
    if not policy.adds:
        return absorb
    add = Addition(
        estimate_addition(policy.prices, cluster, topic, common),
        count_addition_notices(policy, cluster, topic, common) + 2.0 * common,
        recruit=False,
    )
    return absorb if absorb.change < add.change - _ROUNDING else add
