"""Peers that host topics, and their clients, as processes over TCP and TLS."""

from distributary.topics.peer.tcp.dialing import PeerOptions
from distributary.topics.peer.tcp.errors import PeerAwayError, PeerRefusedError, TopicWaitsError
from distributary.topics.peer.tcp.policy import LIVE_PEERS, live_peer_policy
from distributary.topics.peer.tcp.service import PeerService, PeerSettings
from distributary.topics.peer.tcp.status import PeerStatus, fetch_status

__all__ = [
    "LIVE_PEERS",
    "PeerAwayError",
    "PeerOptions",
    "PeerRefusedError",
    "PeerService",
    "PeerSettings",
    "PeerStatus",
    "TopicWaitsError",
    "fetch_status",
    "live_peer_policy",
]
