"""The policy of channels between peers."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from operator import mul

from distributary.cost import OperatingPrices
from distributary.topics.policy import TAMARA, Policy

__all__ = ["LIVE_PEERS", "live_peer_policy"]

# The paper's policy: with ours, somebody has to see all channels to propose clusters.
LIVE_PEERS = replace(
    TAMARA,
    interval=60.0,
    survey_every=60.0,
    answer_within=2.0,
    lock_for=15.0,
    refresh=30.0,
    most_topics=256,  # messages list a cluster's topics, and each of these topics stores the list
)


def live_peer_policy(
    *,
    interval: float = LIVE_PEERS.interval,
    survey_every: float | None = None,
    phi: float = LIVE_PEERS.phi,
    sample: float = LIVE_PEERS.sample,
    notify_price: float = 1.0,
    associate_price: float = 1.0,
    history: int = LIVE_PEERS.history,
    history_bytes: int = LIVE_PEERS.history_bytes,
) -> Policy:
    """A policy for live operation; channels survey their subscribers once per interval by default.

    Keeping a subscription costs as much as one message per `interval` seconds. The prices, in
    messages, are those of handing an event to a channel, and of a topic of a cluster per interval;
    by default the paper's.
    """
    return replace(
        LIVE_PEERS,
        prices=OperatingPrices(associate=partial(mul, associate_price), notify=notify_price),
        interval=interval,
        survey_every=survey_every or interval,
        phi=phi,
        sample=sample,
        history=history,
        history_bytes=history_bytes,
    )
