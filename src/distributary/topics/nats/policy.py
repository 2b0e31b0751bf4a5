"""How eager channels are on a real broker, and what that broker asks for."""

from __future__ import annotations

from dataclasses import replace

from distributary.cost import OperatingPrices
from distributary.topics import OURS, Policy

__all__ = ["LIVE", "NATS_PRICES", "live_policy"]


def _in_memory(topics: int) -> float:
    """Channels speak to each other inside the service."""
    del topics
    return 0.0


# The server hands an event out once to everybody on a channel. That it takes it in, once for each
# channel that anybody is on, is left out: it is the same for a topic alone and in a cluster.
NATS_PRICES = OperatingPrices(associate=_in_memory, notify=0.0)

LIVE = replace(
    OURS,
    prices=NATS_PRICES,
    interval=60.0,
    answer_within=1.0,
    lock_for=10.0,
    refresh=60.0,
    most_topics=256,  # what a cluster carries is listed in messages, and kept by each of its topics
)


def live_policy(
    base: Policy = LIVE,
    *,
    interval: float = LIVE.interval,
    history: int = LIVE.history,
    history_bytes: int = LIVE.history_bytes,
) -> Policy:
    """A policy with the prices of NATS, for times in which a person can watch it.

    To keep a subscription costs as much as one message in every `interval` seconds: the longer
    that is, the less is it worth to send somebody what they do not want, so that they have fewer.
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
