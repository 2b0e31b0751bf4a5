"""Messages between content brokers, and the requests of clients to their broker.

A *statement* concerns a subscription or an advertisement, identified by a name that is never
reused. Subscribing again, or at another broker, creates a new name, so a late message about the old
subscription cannot be mistaken for one about the new.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from distributary.content.events import ContentEvent
from distributary.model import Filter

__all__ = [
    "EVERYWHERE",
    "AdvertiseRequest",
    "AdvertiseStatement",
    "Barrier",
    "BarrierPassed",
    "Detach",
    "Echo",
    "Name",
    "Packed",
    "Probe",
    "Prune",
    "Publication",
    "PublishUnder",
    "RequestRefused",
    "Statement",
    "SubscribeStatement",
    "UnadvertiseRequest",
    "UnadvertiseStatement",
    "UnsubscribeStatement",
]


class Name(NamedTuple):
    """The name of a subscription or advertisement: the broker where it originated, and a number."""

    broker: str
    number: int


# --- from clients; subscription requests are in `content.events` ----------------------------------


@dataclass(frozen=True, slots=True)
class AdvertiseRequest:
    """A client announces that it will publish events matching a filter."""

    client: str
    number: int
    filter: Filter


@dataclass(frozen=True, slots=True)
class UnadvertiseRequest:
    """A client withdraws an advertisement."""

    client: str
    number: int


@dataclass(frozen=True, slots=True)
class PublishUnder:
    """A client publishes an event under one of its advertisements; the event must match it."""

    client: str
    number: int
    event: ContentEvent


@dataclass(frozen=True, slots=True)
class Detach:
    """A client leaves; all its subscriptions and advertisements end."""

    client: str


@dataclass(frozen=True, slots=True)
class RequestRefused:
    """Tells a client that its request was refused, and why."""

    number: int
    reason: str


# --- between brokers ------------------------------------------------------------------------------

# How far an unsubscription travels: the remaining hops towards each advertisement. It goes no
# further towards an advertisement that is not listed.
Prune = tuple[tuple[Name, float], ...]
EVERYWHERE = None


@dataclass(frozen=True, slots=True)
class AdvertiseStatement:
    """Events that match the filter will come from the sender."""

    name: Name
    filter: Filter


@dataclass(frozen=True, slots=True)
class UnadvertiseStatement:
    """Withdraws an advertisement."""

    name: Name


@dataclass(frozen=True, slots=True)
class SubscribeStatement:
    """Asks for matching events; `triggered` if the subscription existed but was hidden before."""

    name: Name
    filter: Filter
    triggered: bool = False


@dataclass(frozen=True, slots=True)
class UnsubscribeStatement:
    """Withdraws a subscription, as far as `prune` says."""

    name: Name
    prune: Prune | None = EVERYWHERE


Statement = AdvertiseStatement | UnadvertiseStatement | SubscribeStatement | UnsubscribeStatement


@dataclass(frozen=True, slots=True)
class Packed:
    """Several statements in one message, to be applied in order."""

    statements: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Publication:
    """An event in transit, numbered in ascending order per advertisement.

    `distance` is the number of hops since the last broker at which another subscriber wanted the
    event, infinite if there was none; `count` is the number of other subscribers seen on the way
    that want it.
    """

    event: ContentEvent
    advertisement: Name
    number: int
    distance: float = float("inf")
    count: int = 0


@dataclass(frozen=True, slots=True)
class Probe:
    """Asks for an `Echo` once everything sent before has been processed."""

    number: int


@dataclass(frozen=True, slots=True)
class Echo:
    """The answer to a `Probe`."""

    number: int


@dataclass(frozen=True, slots=True)
class Barrier:
    """Goes to all brokers behind everything said and published before, and comes back.

    Every broker passes it on and answers `BarrierPassed` when all those behind it have. By then the
    sender has everything that they said in reply, and every publication that was on its way. Until
    then publications under these new advertisements go wherever the barrier has gone: some of those
    who want them may not have been heard of yet. The barrier of the same broker that it `replaces`
    is not answered any more.
    """

    name: Name
    advertisements: tuple[Name, ...] = ()
    replaces: Name | None = None


@dataclass(frozen=True, slots=True)
class BarrierPassed:
    """The answer to a `Barrier`."""

    name: Name
