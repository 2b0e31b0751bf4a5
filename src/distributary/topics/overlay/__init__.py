"""Pastry and Scribe without I/O: a ring of peers, with a multicast tree for each group."""

from distributary.topics.overlay.converged import Ring, TreeSizes, build_ring, measure_trees
from distributary.topics.overlay.identifiers import Peer, identifier, make_peer
from distributary.topics.overlay.messages import MAINTENANCE
from distributary.topics.overlay.parameters import OverlayParameters
from distributary.topics.overlay.peer import OverlayPeer

__all__ = [
    "MAINTENANCE",
    "OverlayParameters",
    "OverlayPeer",
    "Peer",
    "Ring",
    "TreeSizes",
    "build_ring",
    "identifier",
    "make_peer",
    "measure_trees",
]
