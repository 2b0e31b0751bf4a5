"""Where the pages are served, and who may act on them."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address

__all__ = ["SHORTEST_TOKEN", "DashboardSettings"]

SHORTEST_TOKEN = 16


@dataclass(frozen=True, slots=True, repr=False)
class DashboardSettings:
    """`token` lets an operator act; without it the pages are read-only for everybody.

    `names` are further host names that browsers may use for this server, besides `host`,
    localhost and addresses. Port 0 lets the system choose one.
    """

    host: str = "127.0.0.1"
    port: int = 8_088
    token: str = ""
    names: tuple[str, ...] = ()
    every: float = 1.0  # seconds between two looks at the control plane
    look_within: float = 5.0  # seconds to wait for an answer
    most_browsers: int = 200

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65_535:
            raise ValueError(f"{self.port} is not a port from 0 to 65535")
        if self.token and len(self.token) < SHORTEST_TOKEN:
            raise ValueError(
                f"the operator's token has {len(self.token)} characters; give at least "
                f"{SHORTEST_TOKEN}, such as from `head -c 24 /dev/urandom | base64`"
            )

    def __repr__(self) -> str:
        return f"DashboardSettings({self.host!r}, {self.port})"

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the pages."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"
