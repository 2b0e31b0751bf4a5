"""What content brokers tell each other, and what clients tell their broker besides filters.

A *statement* is about a subscription or an advertisement. Each has a name that no other ever had:
who subscribes again, or at another broker, gets a new one, so a late message about the old
subscription can never be taken for one about the new.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from distributary.model import Filter
from distributary.protocol.messages import Event

__all__ = [
    "EVERYWHERE",
    "Advertise",
    "Advertised",
    "Detach",
    "Echo",
    "Name",
    "Packed",
    "Probe",
    "Prune",
    "Publication",
    "PublishUnder",
    "Refused",
    "Statement",
    "Subscribed",
    "Unadvertise",
    "Unadvertised",
    "Unsubscribed",
]


class Name(NamedTuple):
    """Of a subscription or advertisement: the broker where it began, and a number there."""

    broker: str
    number: int


# --- from clients; `Subscribe` and `Unsubscribe` are those of `protocol.messages` -----------------


@dataclass(frozen=True, slots=True)
class Advertise:
    """A client is going to publish events that match a filter."""

    client: str
    number: int
    filter: Filter


@dataclass(frozen=True, slots=True)
class Unadvertise:
    """A client will publish no more under an advertisement."""

    client: str
    number: int


@dataclass(frozen=True, slots=True)
class PublishUnder:
    """A client publishes an event under one of its advertisements, which the event must match."""

    client: str
    number: int
    event: Event


@dataclass(frozen=True, slots=True)
class Detach:
    """A client leaves: all its subscriptions and advertisements end."""

    client: str


@dataclass(frozen=True, slots=True)
class Refused:
    """To a client: what it asked for was not done, and why."""

    number: int
    reason: str


# --- between brokers ------------------------------------------------------------------------------

# How far an unsubscription goes: so many more hops towards each advertisement. An advertisement
# that is not listed is where it has gone far enough.
Prune = tuple[tuple[Name, float], ...]
EVERYWHERE = None


@dataclass(frozen=True, slots=True)
class Advertised:
    """Events that match will come from here."""

    name: Name
    filter: Filter


@dataclass(frozen=True, slots=True)
class Unadvertised:
    """They will not any more."""

    name: Name


@dataclass(frozen=True, slots=True)
class Subscribed:
    """Send what matches this way; `triggered` if not a new wish but one that another had hidden."""

    name: Name
    filter: Filter
    triggered: bool = False


@dataclass(frozen=True, slots=True)
class Unsubscribed:
    """Do not send it for this one's sake any more; as far as `prune` says."""

    name: Name
    prune: Prune | None = EVERYWHERE


Statement = Advertised | Unadvertised | Subscribed | Unsubscribed


@dataclass(frozen=True, slots=True)
class Packed:
    """Several statements in one message, to be taken in their order."""

    statements: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Publication:
    """An event on its way; numbers grow from each publication of an advertisement to its next.

    `distance` is how many hops back the last broker was at which somebody else wants the event,
    without end if there was none; `count` is how many others want it that were seen on the way.
    """

    event: Event
    advertisement: Name
    number: int
    distance: float = float("inf")
    count: int = 0


@dataclass(frozen=True, slots=True)
class Probe:
    """Say when you have come to this: all that was sent before is done then."""

    number: int


@dataclass(frozen=True, slots=True)
class Echo:
    """I have come to your probe."""

    number: int
