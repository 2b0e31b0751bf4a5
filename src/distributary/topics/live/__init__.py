"""What an application does with topics, whether a NATS server or peers carry them."""

from distributary.topics.live.client import ClientSettings, ClientStatistics, TopicClient
from distributary.topics.live.subscription import TopicSubscription, WhenFull

__all__ = [
    "ClientSettings",
    "ClientStatistics",
    "TopicClient",
    "TopicSubscription",
    "WhenFull",
]
