"""The policy of channels on NATS, and the prices of that broker."""

from __future__ import annotations

from dataclasses import replace

from distributary.cost import OperatingPrices
from distributary.topics import OURS, Policy

__all__ = ["LIVE", "NATS_PRICES", "live_policy"]


def _in_memory(topics: int) -> float:
    """Channels exchange messages inside the service."""
    del topics
    return 0.0


# The server sends an event once to each subscriber of a channel. Receiving it, once per channel
# with subscribers, is not counted: it costs the same for a topic alone and in a cluster.
NATS_PRICES = OperatingPrices(associate=_in_memory, notify=0.0)

LIVE = replace(
    OURS,
    prices=NATS_PRICES,
    interval=60.0,
    answer_within=1.0,
    lock_for=10.0,
    refresh=60.0,
    most_topics=256,  # messages list a cluster's topics, and each of these topics stores the list
)


def live_policy(
    base: Policy = LIVE,
    *,
    interval: float = LIVE.interval,
    history: int = LIVE.history,
    history_bytes: int = LIVE.history_bytes,
) -> Policy:
    """A policy with the prices of NATS and time-outs for live operation.

    Keeping a subscription costs as much as one message per `interval` seconds. The longer the
    interval, the cheaper are subscriptions, and the less it pays to send clients unwanted events so
    that they need fewer subscriptions.
    """
    return replace(
        base,
        prices=NATS_PRICES,
        interval=interval,
        history=history,
        history_bytes=history_bytes,
        survey_every=base.survey_every if base.tells else interval,
        answer_within=LIVE.answer_within,
        lock_for=LIVE.lock_for,
        refresh=LIVE.refresh,
        most_topics=LIVE.most_topics,
    )
