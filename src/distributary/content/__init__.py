"""Content-based routing in a network of brokers: routing, covering, pruning, merging."""

from distributary.content.broker import ContentBroker
from distributary.content.client import Inbox
from distributary.content.events import (
    ContentEvent,
    Forward,
    PublishEvent,
    SubscribeRequest,
    UnsubscribeRequest,
)
from distributary.content.forwarding import Broker
from distributary.content.link_search import POLICIES, ForwardingPolicy, LinkSearch
from distributary.content.messages import (
    AdvertiseRequest,
    Detach,
    Publication,
    PublishUnder,
    RequestRefused,
    UnadvertiseRequest,
)
from distributary.content.policies import COVERING_POLICIES, Covering, Pacing, Pruning

__all__ = [
    "COVERING_POLICIES",
    "POLICIES",
    "AdvertiseRequest",
    "Broker",
    "ContentBroker",
    "ContentEvent",
    "Covering",
    "Detach",
    "Forward",
    "ForwardingPolicy",
    "Inbox",
    "LinkSearch",
    "Pacing",
    "Pruning",
    "Publication",
    "PublishEvent",
    "PublishUnder",
    "RequestRefused",
    "SubscribeRequest",
    "UnadvertiseRequest",
    "UnsubscribeRequest",
]
