"""Delivery over multicast without I/O: a sender, receivers, and the packets between them."""

from distributary.protocol.multicast.actions import (
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
from distributary.protocol.multicast.receiver import Receiver, ReceiverStatistics
from distributary.protocol.multicast.receiver_params import ReceiverParams
from distributary.protocol.multicast.routes import (
    CONTROL_GROUP,
    SENDER,
    fingerprint_of,
    group_name,
    wanted_flows,
)
from distributary.protocol.multicast.sender import FullError, Sender, SenderStatistics
from distributary.protocol.multicast.sender_params import SenderParams

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
