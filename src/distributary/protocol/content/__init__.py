"""Content-based routing in a network of brokers: routing, covering, pruning, merging."""

from distributary.protocol.content.broker import ContentBroker
from distributary.protocol.content.client import Inbox
from distributary.protocol.content.messages import (
    Advertise,
    Detach,
    Publication,
    PublishUnder,
    RequestRefused,
    Unadvertise,
)
from distributary.protocol.content.policies import COVERING_POLICIES, Covering, Pacing, Pruning

__all__ = [
    "COVERING_POLICIES",
    "Advertise",
    "ContentBroker",
    "Covering",
    "Detach",
    "Inbox",
    "Pacing",
    "Pruning",
    "Publication",
    "PublishUnder",
    "RequestRefused",
    "Unadvertise",
]
