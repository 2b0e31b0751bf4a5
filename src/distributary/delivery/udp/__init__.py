"""Delivery over real multicast: publishers and receivers by a plan, on UDP sockets."""

from distributary.extras import require

require("live")  # before the imports that need it

from distributary.delivery import Report, wanted_flows
from distributary.delivery.addresses import DEFAULT_BASE, DEFAULT_PORT, GroupAddresses
from distributary.delivery.errors import DirectoryFullError, KeyFileError, NetworkError
from distributary.delivery.udp.faults import Loss
from distributary.delivery.udp.keys import read_key
from distributary.delivery.udp.network import NetworkOptions
from distributary.delivery.udp.publisher import Publisher
from distributary.delivery.udp.receiver import Receiver
from distributary.delivery.udp.statistics import (
    PublisherStatistics,
    ReceiverStatistics,
    serve_metrics,
    snapshot_document,
)

__all__ = [
    "DEFAULT_BASE",
    "DEFAULT_PORT",
    "DirectoryFullError",
    "GroupAddresses",
    "KeyFileError",
    "Loss",
    "NetworkError",
    "NetworkOptions",
    "Publisher",
    "PublisherStatistics",
    "Receiver",
    "ReceiverStatistics",
    "Report",
    "read_key",
    "serve_metrics",
    "snapshot_document",
    "wanted_flows",
]
