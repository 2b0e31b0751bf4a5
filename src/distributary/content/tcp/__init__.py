"""Content brokers and their clients as processes, over TCP and TLS."""

from distributary.extras import require

require("live")  # before the imports that need it

from distributary.content.client_actions import ReceivedEvent
from distributary.content.tcp.client import ContentClient
from distributary.content.tcp.client_settings import (
    ContentClientSettings,
    ContentClientStatistics,
)
from distributary.content.tcp.dialing import Credentials
from distributary.content.tcp.status import fetch_status
from distributary.content.tcp.subscription import ContentSubscription

__all__ = [
    "ContentClient",
    "ContentClientSettings",
    "ContentClientStatistics",
    "ContentSubscription",
    "Credentials",
    "ReceivedEvent",
    "fetch_status",
]
