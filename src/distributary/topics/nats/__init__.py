"""Topics on a NATS server: the channel service, its clients, and an embedded server."""

from distributary.machines.nats.embedded import EmbeddedServer, run_embedded_server
from distributary.machines.nats.options import NatsOptions
from distributary.topics.errors import (
    ClientClosedError,
    EventsForgottenError,
    EventsLostError,
    NoStateError,
    NotConfirmedError,
    PayloadTooLargeError,
    ServerAwayError,
    ServerRefusedError,
    ServerStartError,
    ServiceAwayError,
    ServiceReplacedError,
    ServiceRunningError,
    SubjectDeniedError,
    TopicNameError,
    UnknownTopicError,
)
from distributary.topics.live.client import ClientSettings, ClientStatistics, TopicClient
from distributary.topics.live.subscription import TopicSubscription, WhenFull
from distributary.topics.nats.policy import LIVE, live_policy, price_channels
from distributary.topics.nats.service import ServiceSettings, TopicService
from distributary.topics.status import TopicStatus

__all__ = [
    "LIVE",
    "ClientClosedError",
    "ClientSettings",
    "ClientStatistics",
    "EmbeddedServer",
    "EventsForgottenError",
    "EventsLostError",
    "NatsOptions",
    "NoStateError",
    "NotConfirmedError",
    "PayloadTooLargeError",
    "ServerAwayError",
    "ServerRefusedError",
    "ServerStartError",
    "ServiceAwayError",
    "ServiceReplacedError",
    "ServiceRunningError",
    "ServiceSettings",
    "SubjectDeniedError",
    "TopicClient",
    "TopicNameError",
    "TopicService",
    "TopicStatus",
    "TopicSubscription",
    "UnknownTopicError",
    "WhenFull",
    "live_policy",
    "price_channels",
    "run_embedded_server",
]
