"""The periods and time-outs of peers that host topics."""

from __future__ import annotations

from dataclasses import dataclass

from distributary.topics.overlay.parameters import OverlayParameters

__all__ = ["LIVE_OVERLAY", "PeerParameters"]

# For rings of processes: a crash is noticed within six seconds, and three peers keep a channel.
LIVE_OVERLAY = OverlayParameters(
    leaf_period=2.0,
    tree_period=2.0,
    misses=3,
    refresh_every=5,
    patience=1.5,
    replicas=2,
    give_up=30.0,
    seek_for=3_600.0,
    window=64,
    per_neighbour=True,
)


@dataclass(frozen=True, slots=True)
class PeerParameters:
    """All times are in seconds.

    - `overlay`: the ring and the trees. `overlay.replicas` peers besides the root keep a channel.
    - `dead_after`: a client that no peer has vouched for for so long is removed from all channels.
    - `forget_after`: what is kept of a client or of a removed topic is forgotten then.
    - `vouch_every`: period in which a peer tells roots which of their subscribers it serves.
    - `house_every`: period of looking for the dead and the ended; also of noticing suspensions.
    - `longest_event`: the largest payload in bytes.
    """

    overlay: OverlayParameters = LIVE_OVERLAY
    dead_after: float = 10.0
    forget_after: float = 86_400.0
    vouch_every: float = 2.0
    house_every: float = 0.5
    longest_event: int = 1 << 20
