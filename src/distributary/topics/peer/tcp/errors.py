"""Errors of clients of peers.

DistributaryError
└── LiveError
    ├── PeerAwayError     no peer answers
    ├── PeerRefusedError  a peer, or the client, refuses the connection
    └── TopicWaitsError   the client's peer runs, but a topic does not answer
"""

from __future__ import annotations

from distributary.errors import LiveError

__all__ = ["PeerAwayError", "PeerRefusedError", "TopicWaitsError"]


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


class TopicWaitsError(LiveError):
    """The client is connected to `peer`, but `topic` did not answer within `waited` seconds."""

    def __init__(self, peer: str, topic: str, waited: float) -> None:
        self.peer = peer
        self.topic = topic
        self.waited = waited
        super().__init__(
            f"{topic!r} did not answer within {waited:g} s, though the peer {peer} runs: a topic "
            "waits while most of the peers that keep it, or would keep a new one, are dead or cut "
            f"off; see `distributary topics status --peer {peer}`, and try again"
        )
