"""Delivery over multicast without I/O: a sender, receivers, and the packets between them."""

from distributary.delivery.actions import (
    Gap,
    Join,
    Leave,
    Message,
    Messages,
    Missing,
    MulticastAction,
    NeedPlan,
    Report,
    Restarted,
    Rival,
    Unserved,
)
from distributary.delivery.receiver import Receiver, ReceiverStatistics
from distributary.delivery.receiver_params import ReceiverParams
from distributary.delivery.routes import (
    CONTROL_GROUP,
    SENDER,
    fingerprint_of,
    group_name,
    wanted_flows,
)
from distributary.delivery.sender import FullError, Sender, SenderStatistics
from distributary.delivery.sender_params import SenderParams

__all__ = [
    "CONTROL_GROUP",
    "SENDER",
    "FullError",
    "Gap",
    "Join",
    "Leave",
    "Message",
    "Messages",
    "Missing",
    "MulticastAction",
    "NeedPlan",
    "Receiver",
    "ReceiverParams",
    "ReceiverStatistics",
    "Report",
    "Restarted",
    "Rival",
    "Sender",
    "SenderParams",
    "SenderStatistics",
    "Unserved",
    "fingerprint_of",
    "group_name",
    "wanted_flows",
]
