"""Delivery over multicast without I/O: a sender, receivers, and the packets between them."""

from distributary.delivery._wire_kernels import PacketBatch
from distributary.delivery.actions import (
    Back,
    Brought,
    Claimed,
    Contested,
    Gap,
    Gone,
    HandedOver,
    JoinGroup,
    LeaveGroup,
    Left,
    Message,
    Messages,
    Missing,
    MulticastAction,
    NeedPlan,
    Refused,
    Released,
    Report,
    Restarted,
    Rival,
    Subscribed,
    Unfollowed,
    Unserved,
)
from distributary.delivery.latency import LatencyStatistics
from distributary.delivery.lines import LineStatistics
from distributary.delivery.receiver import ReceiverMachine
from distributary.delivery.receiver_params import ReceiverParams
from distributary.delivery.receiver_statistics import FollowedStatistics, ReceiverMachineStatistics
from distributary.delivery.routes import (
    CONTROL_GROUP,
    SENDER,
    fingerprint_of,
    group_name,
    wanted_flows,
)
from distributary.delivery.sender import FullError, SenderMachine
from distributary.delivery.sender_params import SenderParams
from distributary.delivery.sender_statistics import SenderMachineStatistics

__all__ = [
    "CONTROL_GROUP",
    "SENDER",
    "Back",
    "Brought",
    "Claimed",
    "Contested",
    "FollowedStatistics",
    "FullError",
    "Gap",
    "Gone",
    "HandedOver",
    "JoinGroup",
    "LatencyStatistics",
    "LeaveGroup",
    "Left",
    "LineStatistics",
    "Message",
    "Messages",
    "Missing",
    "MulticastAction",
    "NeedPlan",
    "PacketBatch",
    "ReceiverMachine",
    "ReceiverMachineStatistics",
    "ReceiverParams",
    "Refused",
    "Released",
    "Report",
    "Restarted",
    "Rival",
    "SenderMachine",
    "SenderMachineStatistics",
    "SenderParams",
    "Subscribed",
    "Unfollowed",
    "Unserved",
    "fingerprint_of",
    "group_name",
    "wanted_flows",
]
