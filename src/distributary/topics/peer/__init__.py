"""Topics without a centre: a peer hosts the channels whose keys it is nearest to, without I/O."""

from distributary.topics.peer.machine import TopicPeer
from distributary.topics.peer.parameters import LIVE_OVERLAY, PeerParameters

__all__ = ["LIVE_OVERLAY", "PeerParameters", "TopicPeer"]
