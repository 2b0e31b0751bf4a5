"""State machines without I/O: an input and the time in, actions out."""

from distributary.protocol.actions import Action, Deliver, Machine, Save, Send, SetTimer, Work
from distributary.protocol.forwarding import Broker
from distributary.protocol.messages import Event, Forward, Publish, Subscribe, Unsubscribe
from distributary.protocol.policies import POLICIES, LinkSearch, Policy

__all__ = [
    "POLICIES",
    "Action",
    "Broker",
    "Deliver",
    "Event",
    "Forward",
    "LinkSearch",
    "Machine",
    "Policy",
    "Publish",
    "Save",
    "Send",
    "SetTimer",
    "Subscribe",
    "Unsubscribe",
    "Work",
]
