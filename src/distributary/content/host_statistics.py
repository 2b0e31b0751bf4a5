"""The statistics of a broker process: frozen snapshots of what it counted and of what it holds."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["ClientStatistics", "HostStatistics", "LinkStatistics"]


@dataclass(frozen=True, slots=True)
class LinkStatistics:
    """One link: whether it is up, what it carried, and what waits for the neighbour."""

    neighbour: str
    connected: bool
    complete: bool  # the neighbour's state is known here
    brokers: tuple[str, ...]  # all that are behind it
    forwarded: int
    received: int
    unneeded: int  # received, though nobody here or behind the other links wanted them
    waiting: int  # publications that wait to be sent
    waiting_bytes: int
    unfinished: int  # sent, and not finished
    unfinished_bytes: int
    subscriptions_sent: int
    subscriptions_received: int
    retransmitted: int


@dataclass(frozen=True, slots=True)
class ClientStatistics:
    """One session."""

    client: str
    connected: bool
    ephemeral: bool
    subscriptions: int
    advertisements: int
    published: int
    delivered: int
    outbox: int
    outbox_bytes: int
    dropped: int
    waiting: int  # publications that wait for room in the outbox
    window: int


@dataclass(frozen=True, slots=True)
class HostStatistics:
    """A broker at one moment. Counters count from the start of this process.

    `unneeded` are the publications that came over a link and that nobody wanted here or beyond: the
    unnecessary forwards of the neighbours. `matched` are deliveries into clients' outboxes.
    """

    name: str
    incarnation: int
    policy: str
    network: tuple[tuple[str, str], ...]  # all links of the overlay that are known
    accepted: int
    refused: int
    routed: int
    matched: int
    forwarded: int
    unneeded: int
    acknowledged: int
    dropped: int
    violations: int
    sessions_ended: int
    kept_dropped: int
    subscriptions: int
    boxes: int
    advertisements: int
    kept_events: int
    kept_bytes: int
    sizes: dict[str, int]
    links: tuple[LinkStatistics, ...]
    clients: tuple[ClientStatistics, ...]
    reasons: dict[str, int]  # why peers were cut off, by rule

    def as_mapping(self) -> dict[str, Any]:
        """Plain values, lists and mappings."""
        return {key: _make_plain(value) for key, value in asdict(self).items()}


def _make_plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _make_plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_make_plain(each) for each in value]
    return value


class Counts(Counter[str]):
    """What a host counts while it runs, by name."""
