"""Errors of clients of peers.

DistributaryError
└── LiveError
    ├── PeerAwayError     no peer answers
    └── PeerRefusedError  a peer, or the client, refuses the connection
"""

from __future__ import annotations

from distributary.errors import LiveError

__all__ = ["PeerAwayError", "PeerRefusedError"]


class PeerAwayError(LiveError):
    """No peer answers at any of the addresses `peers`."""

    def __init__(self, peers: str, reason: str) -> None:
        self.peers = peers
        self.reason = reason
        super().__init__(
            f"{peers}: no peer answers ({reason}); start one with `distributary topics peer`, or "
            "check the address"
        )


class PeerRefusedError(LiveError):
    """The connection to `peer` was refused."""

    def __init__(self, peer: str, reason: str) -> None:
        self.peer = peer
        self.reason = reason
        super().__init__(f"{peer}: the connection was refused ({reason}); check name and token")
