"""State machines without I/O: inputs and the time in, actions out."""

from distributary.protocol.actions import Action, Deliver, Machine, Save, Send, SetTimer, Work
from distributary.protocol.forwarding import Broker
from distributary.protocol.messages import (
    ContentEvent,
    Forward,
    PublishEvent,
    Subscribe,
    Unsubscribe,
)
from distributary.protocol.policies import POLICIES, ForwardingPolicy, LinkSearch

__all__ = [
    "POLICIES",
    "Action",
    "Broker",
    "ContentEvent",
    "Deliver",
    "Forward",
    "ForwardingPolicy",
    "LinkSearch",
    "Machine",
    "PublishEvent",
    "Save",
    "Send",
    "SetTimer",
    "Subscribe",
    "Unsubscribe",
    "Work",
]
