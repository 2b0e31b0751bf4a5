"""Delivery over real multicast: publishers and receivers by a plan, on UDP sockets."""

from distributary.live.multicast.addresses import DEFAULT_BASE, DEFAULT_PORT, GroupAddresses
from distributary.live.multicast.errors import KeyFileError, NetworkError
from distributary.live.multicast.faults import Loss
from distributary.live.multicast.keys import read_key
from distributary.live.multicast.network import NetworkOptions
from distributary.live.multicast.publisher import Publisher
from distributary.live.multicast.statistics import (
    PublisherStatistics,
    SubscriberStatistics,
    document,
    served_metrics,
)
from distributary.live.multicast.subscriber import Receiver
from distributary.protocol.multicast import Report, wanted_flows

__all__ = [
    "DEFAULT_BASE",
    "DEFAULT_PORT",
    "GroupAddresses",
    "KeyFileError",
    "Loss",
    "NetworkError",
    "NetworkOptions",
    "Publisher",
    "PublisherStatistics",
    "Receiver",
    "Report",
    "SubscriberStatistics",
    "document",
    "read_key",
    "served_metrics",
    "wanted_flows",
]
