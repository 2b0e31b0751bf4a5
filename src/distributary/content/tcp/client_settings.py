"""The settings of a client of content brokers, and its counts."""

from __future__ import annotations

from dataclasses import dataclass, field

from distributary.content.client_actions import ClientParams

__all__ = ["ContentClientSettings", "ContentClientStatistics"]


@dataclass(frozen=True, slots=True)
class ContentClientSettings:
    """The settings of a client; times in seconds.

    `subscribe` and `advertise` wait `settle_within` until all brokers know the filter; a broker
    that is away learns it later. Up to `window` events, and `window_bytes` bytes of payload, are on
    their way to the broker; `publish` waits for room. `session` says what brokers keep for the
    client.
    """

    connect_within: float = 10.0
    timeout: float = 30.0  # of requests
    settle_within: float = 5.0
    window: int = 1_000
    window_bytes: int = 32 << 20
    session: ClientParams = field(default_factory=ClientParams)


@dataclass(frozen=True, slots=True)
class ContentClientStatistics:
    """A client's counts so far, and how things are now."""

    broker: str
    is_connected: bool
    moving: str  # the step of a move that is under way, or empty
    connections: int
    published: int
    unstored: int  # events that no broker is known to have stored
    delivered: int
    duplicates: int  # events that came twice and were dropped
    losses: int  # reports of missing events
    subscriptions: int
