"""The periods and time-outs of peers that host topics."""

from __future__ import annotations

from dataclasses import dataclass, field

from distributary.topics.overlay.parameters import OverlayParameters

__all__ = ["PeerParameters"]


@dataclass(frozen=True, slots=True)
class PeerParameters:
    """All times are in seconds.

    - `overlay`: the ring and the trees. `overlay.replicas` peers besides the root keep a channel.
    - `dead_after`: a client that no peer has vouched for for so long is removed from all channels.
    - `forget_after`: what is kept of a client or of a removed topic is forgotten then.
    - `vouch_every`: period in which a peer tells roots which of their subscribers it serves.
    - `longest_event`: the largest payload in bytes.
    """

    overlay: OverlayParameters = field(default_factory=OverlayParameters)
    dead_after: float = 10.0
    forget_after: float = 86_400.0
    vouch_every: float = 2.0
    longest_event: int = 1 << 20
