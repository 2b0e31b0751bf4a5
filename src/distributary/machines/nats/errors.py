"""Errors of connections to NATS servers.

    DistributaryError
    └── LiveError
        ├── ServerAwayError     no NATS server answers at an address
        │   └── JetStreamAwayError  the server answers, but its JetStream does not
        ├── ServerRefusedError  the server rejects the credentials
        └── ServerStartError    the embedded server does not start

Each message says what happened, with which value, and what to do next.
"""

from __future__ import annotations

import re

from distributary.errors import LiveError

__all__ = [
    "JetStreamAwayError",
    "ServerAwayError",
    "ServerRefusedError",
    "ServerStartError",
    "hide_secrets",
]

# Up to the last @, because a password may contain any character.
_SECRET = re.compile(r"^((?:nats|tls|wss?|https?)://)?.*@", re.DOTALL)


def hide_secrets(url: str) -> str:
    """Remove users, passwords and tokens from one or several addresses, for display."""
    return _SECRET.sub(r"\1***@", url)


class ServerAwayError(LiveError):
    """No NATS server answers at `url`."""

    def __init__(self, url: str, reason: str) -> None:
        self.url = hide_secrets(url)
        self.reason = reason
        super().__init__(
            f"{self.url}: no NATS server answers ({reason}); start one, or check the address"
        )


class JetStreamAwayError(ServerAwayError):
    """The server at `url` answers, but does not say whether it has JetStream."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(url, reason)
        self.args = (
            f"{self.url}: JetStream does not answer ({reason}); start all servers of the cluster, "
            "or let these credentials publish to $JS.API.>",
        )


class ServerRefusedError(LiveError):
    """The server at `url` rejects the credentials."""

    def __init__(self, url: str, reason: str) -> None:
        self.url = hide_secrets(url)
        self.reason = reason
        super().__init__(
            f"{self.url}: the NATS server refused the connection ({reason}); check the credentials"
        )


class ServerStartError(LiveError):
    """The embedded server does not start."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(
            f"the embedded NATS server does not start: {reason}; "
            "or use --nats with a server of your own"
        )
