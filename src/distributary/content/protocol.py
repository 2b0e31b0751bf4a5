"""The messages between a broker and its clients, and the handshake of every connection.

A connection begins with a handshake. The side that connects sends `Hello`; the other side answers
`Welcome` or `Refusal` and, after a refusal, closes. A broker that connects judges the `Welcome` in
the same way, and sends `Refusal` before it closes. `content.handshake` decides.

Between brokers a connection then carries `Packet` (in `content.connections`), whose messages are in
`content.messages` and `content.resync`, and `LinksKnown`.

A client then sends `OpenSession`, and the broker answers `SessionOpened`. A *session* belongs to
the name that the client proved, and outlives connections: a broker has at most one session of a
name, and at most one connection for it; the newest connection wins and the older one is closed.

- The client chooses the numbers of its subscriptions and of its advertisements. The broker answers
  each `Subscribe` and `Advertise` with `Accepted` once it is saved, or with `Refused`, and each
  `Unsubscribe` and `Unadvertise` with `Ended`. A repeated request is answered again, so a client
  repeats after a reconnect what was not answered.
- The client numbers its publications 1, 2, 3, ... in its session. The broker answers `Stored` once
  they are saved, and ignores numbers that it has stored before. A client that reconnects repeats
  all publications above `SessionOpened.published`, in order. A publication that is refused counts
  as handled: its number is used up.
- The broker numbers deliveries 1, 2, 3, ... in the session. `Event` has the delivery number, and
  `Dropped` a range of them. The client acknowledges cumulatively. After a reconnect the broker
  sends everything above the last acknowledged number again, in order.

Everything here is a plain frozen dataclass; `content.codec` translates it to bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Literal, NamedTuple

from distributary.content.connections import Packet

__all__ = [
    "WIRE_VERSIONS",
    "Accepted",
    "Acknowledge",
    "Advertise",
    "AskStatus",
    "BrokerMessage",
    "ClientMessage",
    "CloseSession",
    "Cut",
    "Dropped",
    "Ended",
    "Event",
    "Goodbye",
    "Hello",
    "Identity",
    "LinkFact",
    "LinksKnown",
    "OpenSession",
    "Peer",
    "Publish",
    "Refusal",
    "Refused",
    "ReplyToClient",
    "RequestKind",
    "Role",
    "SendFrame",
    "SessionClosed",
    "SessionOpened",
    "Status",
    "Stored",
    "Subscribe",
    "Unadvertise",
    "Unsubscribe",
    "Welcome",
    "WhenFull",
]

# The oldest and the newest wire version that this release speaks.
WIRE_VERSIONS = (1, 1)

Role = Literal["broker", "client"]
# What happens when a client's outbox is full: publications for it wait, which slows publishers
# down, unless it is away for too long; the oldest are dropped and reported; or its session ends.
WhenFull = Literal["wait", "drop-oldest", "disconnect"]
RequestKind = Literal["subscription", "advertisement", "publication", "session"]
AttributeValue = str | int | float | bool | Decimal | datetime | date | None


# --- handshake ------------------------------------------------------------------------------------


class LinkFact(NamedTuple):
    """What is known of one link of the overlay: its ends, `low` < `high`, and whether it exists.

    Each change of a link has a higher `change` number than the one before.
    """

    low: str
    high: str
    change: int
    exists: bool


@dataclass(frozen=True, slots=True)
class Identity:
    """Who this process is, for the handshake; `links` are all links of the overlay it knows of."""

    role: Role
    name: str
    incarnation: int = 0
    schema: str = ""
    links: tuple[LinkFact, ...] = ()
    versions: tuple[int, int] = WIRE_VERSIONS


@dataclass(frozen=True, slots=True)
class Hello:
    """The first message of the side that connects.

    `token` proves the name where names have tokens; with TLS the certificate does. `schema` is the
    fingerprint of the schema; a client may leave it empty and learn the schema by `Welcome`.
    Clients have incarnation 0 and no links.
    """

    role: Role
    name: str
    versions: tuple[int, int]
    schema: str = ""
    incarnation: int = 0
    links: tuple[LinkFact, ...] = ()
    token: str = ""


@dataclass(frozen=True, slots=True)
class Welcome:
    """A broker accepts a connection; `version` is the wire version of all further messages.

    `attributes` are the names and kinds of the schema's attributes, by `handshake.describe_schema`.
    """

    name: str
    version: int
    schema: str
    incarnation: int
    attributes: tuple[tuple[str, str], ...]
    links: tuple[LinkFact, ...] = ()
    token: str = ""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The connection is refused, and will be as long as nothing changes; `reason` is for people.

    If `is_final`, the one who connects is not who it says or may not be, and should not try again.
    Otherwise the other side may change, for example be upgraded.
    """

    reason: str
    is_final: bool = False


@dataclass(frozen=True, slots=True)
class Goodbye:
    """The last message before a broker closes a connection for good, and why.

    The peer must not connect again by itself. A broker that stops, to be started again, closes its
    connections without it.
    """

    reason: str


# --- from a client --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OpenSession:
    """Resume the session of this client, or begin one.

    `session` is the number of the session that the client had at this broker, 0 if it does not
    know, and `received` the last delivery number that it has processed in that session; it counts
    as an acknowledgement. An `ephemeral` session keeps nothing: it ends with the connection. Other
    sessions end when the client has been away for `lease` seconds. None and 0 mean the broker's
    defaults; the broker may allow less than the client asks for. A session that is resumed is kept
    as this asks for.
    """

    session: int = 0
    received: int = 0
    ephemeral: bool = False
    lease: float | None = None
    when_full: WhenFull = "wait"
    most_events: int = 0
    most_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Ask for the events that match a filter, in SQL; replaces the subscription of that number."""

    number: int
    filter: str


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """End a subscription."""

    number: int


@dataclass(frozen=True, slots=True)
class Advertise:
    """Announce events that match a filter, in SQL; replaces the advertisement of that number.

    A client that publishes without an advertisement gets one for all events, with the number 0; the
    first one of its own replaces that.
    """

    number: int
    filter: str


@dataclass(frozen=True, slots=True)
class Unadvertise:
    """Withdraw an advertisement, once everything published under it has been delivered."""

    number: int


@dataclass(frozen=True, slots=True)
class Publish:
    """Publish an event; it must match an advertisement of the client if the client has any."""

    number: int
    attributes: Mapping[str, AttributeValue]
    payload: bytes = b""


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """The client has processed all deliveries up to this number."""

    delivery: int


@dataclass(frozen=True, slots=True)
class CloseSession:
    """End the session for good.

    With `drain`, for a client that moves: the broker first waits until everything published before
    has arrived and is acknowledged, and everything that the client published is delivered. Then it
    answers `SessionClosed`. The client gets and acknowledges events until then.
    """

    drain: bool = False


@dataclass(frozen=True, slots=True)
class AskStatus:
    """Ask for `Status`; needs no session."""


# --- to a client ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SessionOpened:
    """The session is open.

    If `resumed`, the session existed: the client's subscriptions and advertisements with these
    numbers are in place and need not be repeated; `published` is the last number that is stored. If
    not, the session is new, nothing is in place, and publications and deliveries count from 1.
    `window` is as in `Stored`. `refused` are the numbers up to `published` that were refused, as
    far back as a window: their `Refused` may have been lost with a connection. `waiting` is the
    number of events that the broker has for the client.
    """

    session: int
    resumed: bool
    published: int
    window: int
    subscriptions: tuple[int, ...] = ()
    advertisements: tuple[int, ...] = ()
    refused: tuple[int, ...] = ()
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class Accepted:
    """A request of that kind and number is saved.

    If `settled`, the subscription or advertisement is also known to every broker that has to know
    it: every event published from now on is delivered. For a new subscription or advertisement the
    broker sends `Accepted` twice, first unsettled; settling waits for brokers that are away. The
    second one may cross the client's request to end it.
    """

    kind: RequestKind
    number: int
    settled: bool


@dataclass(frozen=True, slots=True)
class Ended:
    """A subscription, or an advertisement and the delivery of everything under it, has ended."""

    kind: RequestKind
    number: int


@dataclass(frozen=True, slots=True)
class Refused:
    """A request was refused, and why. A refused publication is not delivered to anybody."""

    kind: RequestKind
    number: int
    reason: str


@dataclass(frozen=True, slots=True)
class Stored:
    """All publications up to `published` are stored; nothing of them is lost from now on.

    The client may send publications up to the number `published + window`. The window shrinks, down
    to 0, while the broker has no room; another `Stored` says when there is room again.
    """

    published: int
    window: int


@dataclass(frozen=True, slots=True)
class Event:
    """An event for this client, delivered because of these subscriptions of it.

    `publisher` is the name of the client that published it at the broker `broker`. `number` is
    given by that broker and never used again there: `broker` and `number` identify the event, and
    numbers ascend per `broker` and `publisher` in the order of publishing. A client with sessions
    at two brokers gets the event from both, and drops one. `published` is the time of publishing,
    in seconds since 1970.
    """

    delivery: int
    subscriptions: tuple[int, ...]
    broker: str
    publisher: str
    number: int
    attributes: Mapping[str, AttributeValue]
    payload: bytes
    published: float


@dataclass(frozen=True, slots=True)
class Dropped:
    """The deliveries from `first` to `last` were dropped, for the reason given; none of them comes.

    To be acknowledged as if they were delivered.
    """

    first: int
    last: int
    reason: str


@dataclass(frozen=True, slots=True)
class SessionClosed:
    """The session has ended, at the client's request; the client may close the connection."""


@dataclass(frozen=True, slots=True)
class Status:
    """The broker's statistics and the network as seen from it: plain values, lists and mappings."""

    status: Mapping[str, Any]


# --- between brokers ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LinksKnown:
    """All links of the overlay that the sender knows of; sent when they change."""

    links: tuple[LinkFact, ...]


ClientMessage = (
    OpenSession
    | Subscribe
    | Unsubscribe
    | Advertise
    | Unadvertise
    | Publish
    | Acknowledge
    | CloseSession
    | AskStatus
)
ReplyToClient = (
    SessionOpened
    | Accepted
    | Ended
    | Refused
    | Stored
    | Event
    | Dropped
    | SessionClosed
    | Status
    | Goodbye
)
BrokerMessage = Packet | LinksKnown | Goodbye


# --- between the machine of a broker and its shell ------------------------------------------------


@dataclass(frozen=True, slots=True)
class Peer:
    """A connection after the handshake: who is at the other end, as proven.

    `connection` is a number that the shell gives, ascending, and never uses again in this process.
    `links` are those of the peer's `Hello` or `Welcome`.
    """

    connection: int
    role: Role
    name: str
    incarnation: int = 0
    version: int = WIRE_VERSIONS[1]
    links: tuple[LinkFact, ...] = ()


@dataclass(frozen=True, slots=True)
class SendFrame:
    """Send a message over a connection; dropped silently if the connection has closed."""

    connection: int
    message: Any


@dataclass(frozen=True, slots=True)
class Cut:
    """Send `Goodbye` with the reason, then close the connection.

    The machine has forgotten the connection; no call about it may follow, though one does no harm.
    """

    connection: int
    reason: str
