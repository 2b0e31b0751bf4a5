"""The policy of channels on NATS, and the prices of that broker."""

from __future__ import annotations

from dataclasses import dataclass, replace

from distributary.cost import OperatingPrices
from distributary.topics import OURS, Policy

__all__ = ["LIVE", "NATS_PRICES", "live_policy", "price_channels"]


def price_channels(notify: float = 0.0, associate: float = 0.0) -> OperatingPrices:
    """The prices of channels on NATS, in messages: of an event per channel, of a cluster's topic.

    By default both are free. The server sends an event once to each subscriber of a channel.
    Receiving it, once per channel with subscribers, is not counted: it costs the same for a topic
    alone and in a cluster. Channels exchange messages inside the service.
    """
    return OperatingPrices(associate=_PerTopic(associate), notify=notify)


@dataclass(frozen=True, slots=True)
class _PerTopic:
    price: float

    def __call__(self, topics: int) -> float:
        return self.price * topics


NATS_PRICES = price_channels()

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
    survey_every: float | None = None,
    prices: OperatingPrices = NATS_PRICES,
) -> Policy:
    """A policy with the prices of NATS and time-outs for live operation.

    A policy that surveys does so every `survey_every` seconds, or once per interval.

    Keeping a subscription costs as much as one message per `interval` seconds. The longer the
    interval, the cheaper are subscriptions, and the less it pays to send clients unwanted events so
    that they need fewer subscriptions.
    """
    return replace(
        base,
        prices=prices,
        interval=interval,
        history=history,
        history_bytes=history_bytes,
        survey_every=base.survey_every if base.tells else survey_every or interval,
        answer_within=LIVE.answer_within,
        lock_for=LIVE.lock_for,
        refresh=LIVE.refresh,
        most_topics=LIVE.most_topics,
    )
