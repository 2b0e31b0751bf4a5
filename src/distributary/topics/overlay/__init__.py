"""Pastry and Scribe without I/O: a ring of peers, with a multicast tree for each group."""

from distributary.topics.overlay.converged import Ring, TreeSizes, converged_ring, tree_sizes
from distributary.topics.overlay.identifiers import Peer, identifier, peer_named
from distributary.topics.overlay.messages import DISSEMINATION, MAINTENANCE
from distributary.topics.overlay.parameters import OverlayParameters
from distributary.topics.overlay.peer import OverlayPeer

__all__ = [
    "DISSEMINATION",
    "MAINTENANCE",
    "OverlayParameters",
    "OverlayPeer",
    "Peer",
    "Ring",
    "TreeSizes",
    "converged_ring",
    "identifier",
    "peer_named",
    "tree_sizes",
]
