"""Real time: the machines of the protocols on real networks."""

from distributary.live.embedded import EmbeddedServer, embedded_server
from distributary.live.errors import (
    ClientClosedError,
    EventsForgottenError,
    EventsLostError,
    LiveError,
    NotConfirmedError,
    PayloadTooLargeError,
    ServerAwayError,
    ServerRefusedError,
    ServerStartError,
    ServiceAwayError,
    ServiceReplacedError,
    ServiceRunningError,
    StateError,
    TopicNameError,
    UnknownTopicError,
)
from distributary.live.nats import NatsOptions
from distributary.live.subscription import TopicSubscription, WhenFull
from distributary.live.topic_client import ClientSettings, ClientStatistics, TopicClient
from distributary.live.topic_policy import LIVE, live_policy
from distributary.live.topic_service import ServiceSettings, TopicService
from distributary.live.topic_status import TopicStatus

__all__ = [
    "LIVE",
    "ClientClosedError",
    "ClientSettings",
    "ClientStatistics",
    "EmbeddedServer",
    "EventsForgottenError",
    "EventsLostError",
    "LiveError",
    "NatsOptions",
    "NotConfirmedError",
    "PayloadTooLargeError",
    "ServerAwayError",
    "ServerRefusedError",
    "ServerStartError",
    "ServiceAwayError",
    "ServiceReplacedError",
    "ServiceRunningError",
    "ServiceSettings",
    "StateError",
    "TopicClient",
    "TopicNameError",
    "TopicService",
    "TopicStatus",
    "TopicSubscription",
    "UnknownTopicError",
    "WhenFull",
    "embedded_server",
    "live_policy",
]
