"""What a client's machine is set up with, gives to the application, and has the shell do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from distributary.content.client_session import RequestKey, TakenFrom
from distributary.content.protocol import AttributeValue, OpenSession, SendFrame, WhenFull
from distributary.machines.actions import SetTimer

__all__ = [
    "ClientAction",
    "ClientParams",
    "Complete",
    "Dial",
    "EndClient",
    "Fail",
    "HandEvent",
    "HandLoss",
    "HangUp",
    "Lapse",
    "LostEvents",
    "ReceivedEvent",
    "Settle",
]


@dataclass(frozen=True, slots=True)
class ClientParams:
    """What a client asks of its brokers, and when it acknowledges; times in seconds.

    `lease`, `when_full`, `most_events` and `most_bytes` are those of `OpenSession`. Processed
    events are acknowledged `acknowledge_every` so many, and `acknowledge_after` so long. The
    subscriptions that an earlier process of this name left behind end `claim_within` that time,
    unless the application subscribes to the same filters again. A move gives up the old broker when
    that is away for `abandon_after`, and reports it.
    """

    ephemeral: bool = False
    lease: float | None = None
    when_full: WhenFull = "wait"
    most_events: int = 0
    most_bytes: int = 0
    acknowledge_every: int = 64
    acknowledge_after: float = 0.05
    claim_within: float = 30.0
    abandon_after: float = 60.0

    def make_opening(self) -> OpenSession:
        """Make the request that opens a session."""
        return OpenSession(
            0,
            0,
            self.ephemeral,
            self.lease,
            self.when_full,
            self.most_events,
            self.most_bytes,
        )


# --- what the application gets --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReceivedEvent:
    """An event as an application gets it.

    `publisher` published it at `broker`, which gave it `number`: both together identify the event,
    and numbers ascend per broker and publisher. `published` is in seconds since 1970.
    """

    attributes: Mapping[str, AttributeValue]
    payload: bytes
    publisher: str
    broker: str
    number: int
    published: float
    taken_from: TakenFrom


@dataclass(frozen=True, slots=True)
class LostEvents:
    """Events that the application misses: `count` of them, None if nobody knows, and why."""

    count: int | None
    reason: str
    taken_from: TakenFrom


# --- actions; also `SendFrame`, whose connection is the place, and `SetTimer` ---------------------


@dataclass(frozen=True, slots=True)
class Dial:
    """Connect to a broker, and again whenever the connection breaks, until `HangUp`."""

    place: int
    broker: str


@dataclass(frozen=True, slots=True)
class HangUp:
    """Close the connection of a place, once all that was sent is written, and stay away."""

    place: int


@dataclass(frozen=True, slots=True)
class HandEvent:
    """Give an event to subscriptions; each of them calls `finish` once."""

    subscriptions: tuple[int, ...]
    event: ReceivedEvent


@dataclass(frozen=True, slots=True)
class HandLoss:
    """Tell subscriptions, at this place among their events, that some are missing."""

    subscriptions: tuple[int, ...]
    loss: LostEvents


@dataclass(frozen=True, slots=True)
class Complete:
    """What a ticket was given for is done."""

    ticket: int


@dataclass(frozen=True, slots=True)
class Fail:
    """What a ticket was given for is refused or, if `is_unknown`, may or may not be done."""

    ticket: int
    reason: str
    is_unknown: bool = False


@dataclass(frozen=True, slots=True)
class Settle:
    """All brokers that have to know a subscription or an advertisement do."""

    key: RequestKey


@dataclass(frozen=True, slots=True)
class Lapse:
    """A subscription or an advertisement is not in place any more: the broker refuses it now."""

    key: RequestKey
    reason: str


@dataclass(frozen=True, slots=True)
class EndClient:
    """The broker has dismissed this client, and why; it must not connect again by itself."""

    reason: str


ClientAction = (
    SendFrame
    | SetTimer
    | Dial
    | HangUp
    | HandEvent
    | HandLoss
    | Complete
    | Fail
    | Settle
    | Lapse
    | EndClient
)
