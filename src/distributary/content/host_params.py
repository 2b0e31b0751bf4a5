"""The limits of a broker process."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from distributary.content.connections import Timing
from distributary.content.link_queue import LinkLimits

__all__ = ["DEFAULT_PARAMS", "HostParams"]

# Links over TCP lose nothing while they are up, and a broker retries at once when one comes up.
TCP_TIMING = Timing(resend=2.0, longest=30.0, answer=0.01)


@dataclass(frozen=True, slots=True)
class HostParams:
    """Limits of a broker; times in seconds, sizes in bytes.

    `lease` is how long an absent client's session lasts at most. `outbox_events` and `outbox_bytes`
    bound what waits for one client, unless the client asks for less; `deliveries` of them are under
    way at a time. With the policy `wait`, publishers wait for a client that has no room; once it is
    away for `patience`, its oldest events are dropped instead, and reported to it. A client may
    have `publications` under way that are not stored. `kept_events` and `kept_bytes` bound the
    publications of this broker's own clients that are not finished: beyond them publishers wait,
    and are refused while a neighbour that is needed is away.
    """

    lease: float = 7 * 86_400.0
    patience: float = 60.0
    outbox_events: int = 10_000
    outbox_bytes: int = 64 << 20
    deliveries: int = 256
    publications: int = 256
    kept_events: int = 100_000
    kept_bytes: int = 256 << 20
    payload: int = 1 << 20
    filter_length: int = 1 << 16
    sessions: int = 100_000
    subscriptions: int = 100_000
    advertisements: int = 1_000
    links: LinkLimits = field(default_factory=LinkLimits)
    timing: Timing = TCP_TIMING

    def __post_init__(self) -> None:
        if not 0 < self.lease < inf:
            raise ValueError(f"the lease must be above 0 and finite, not {self.lease}")
        if not 0 <= self.patience < inf:
            raise ValueError(f"the patience must be at least 0 and finite, not {self.patience}")
        for name in ("outbox_events", "outbox_bytes", "deliveries", "publications", "kept_events"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")


DEFAULT_PARAMS = HostParams()
