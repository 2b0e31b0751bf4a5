"""What peers of the overlay say to each other, and what is asked of them from outside.

Each message has a kind, by which it is counted when it is sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from distributary.protocol.overlay.identifiers import Peer

__all__ = [
    "DISSEMINATION",
    "MAINTENANCE",
    "Accepted",
    "Announce",
    "Answer",
    "Bequest",
    "Create",
    "Depart",
    "EntryAnswer",
    "EntryRequest",
    "Events",
    "Join",
    "KeepAlive",
    "Leave",
    "Listen",
    "Lost",
    "Orphan",
    "Probe",
    "Publication",
    "Publish",
    "Received",
    "Recover",
    "Recovered",
    "Refresh",
    "Refused",
    "Replicate",
    "Replicated",
    "Route",
    "RouteAck",
    "Say",
    "Silence",
    "Start",
    "Subscribe",
    "Subscribed",
    "TreeKeepAlive",
    "Unsubscribe",
    "Welcome",
]

# What keeps the ring and the trees up, with nobody publishing; what carries events.
MAINTENANCE = frozenset({"keep-alive", "probe", "repair", "tree-keep-alive", "refresh", "recover"})
DISSEMINATION = frozenset({"publish", "replicate", "accept", "event", "catch-up"})

# A claim to be the root of a group; of two the higher one holds. Round and identifier.
Ballot = tuple[int, int]


# From outside: what the application at a peer wants.


@dataclass(frozen=True, slots=True)
class Start:
    """Come up: through one of these peers that are there already, or as things stand."""

    through: tuple[Peer, ...] = ()


@dataclass(frozen=True, slots=True)
class Depart:
    """Go, and tell the others."""


@dataclass(frozen=True, slots=True)
class Listen:
    """Subscribe the application to a group."""

    group: int


@dataclass(frozen=True, slots=True)
class Silence:
    """Unsubscribe the application from a group."""

    group: int


@dataclass(frozen=True, slots=True)
class Say:
    """Publish to a group."""

    group: int
    payload: Any


class Publication(NamedTuple):
    """An event, the how manieth of its publisher in this group it is, and since when it exists."""

    publisher: Peer
    number: int
    payload: Any
    since: float


@dataclass(frozen=True, slots=True)
class Received:
    """Handed to the application: the event that the root gave this number."""

    group: int
    sequence: int
    publication: Publication


@dataclass(frozen=True, slots=True)
class Lost:
    """Handed to the application: events from `first` up to before `end` are nowhere any more."""

    group: int
    first: int
    end: int


# Pastry.


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """I am alive, and these are my leaves."""

    kind: ClassVar[str] = "keep-alive"
    peer: Peer
    leaves: dict[str, Peer]


@dataclass(frozen=True, slots=True)
class Probe:
    """Are you alive? An inactive peer is on its way in, and not to be sent anything else."""

    kind: ClassVar[str] = "probe"
    peer: Peer
    active: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """I am alive: the answer to a probe, and to a keep-alive of one who is not my leaf."""

    kind: ClassVar[str] = "probe"
    peer: Peer
    leaves: dict[str, Peer]


@dataclass(frozen=True, slots=True)
class Route:
    """Pass a message on to the peer nearest to the key. `number` is the hop's, for its answer."""

    key: int
    number: int
    payload: Join | Publish | Create
    hops: int

    @property
    def kind(self) -> str:
        """The kind of what is passed on."""
        return self.payload.kind


@dataclass(frozen=True, slots=True)
class RouteAck:
    """The message came to the next hop."""

    kind: ClassVar[str] = "acknowledge"
    number: int


@dataclass(frozen=True, slots=True)
class Join:
    """A new peer looks for its place; on the way it is told of peers."""

    kind: ClassVar[str] = "join"
    peer: Peer
    known: tuple[Peer, ...] = ()


@dataclass(frozen=True, slots=True)
class Welcome:
    """The answer to a new peer, from the one nearest to it."""

    kind: ClassVar[str] = "join"
    known: tuple[Peer, ...]


@dataclass(frozen=True, slots=True)
class Announce:
    """I am active now."""

    kind: ClassVar[str] = "join"
    peer: Peer
    leaves: dict[str, Peer]


@dataclass(frozen=True, slots=True)
class Leave:
    """I go; these were my leaves."""

    kind: ClassVar[str] = "leave"
    peer: Peer
    leaves: dict[str, Peer]


@dataclass(frozen=True, slots=True)
class EntryRequest:
    """Do you know a peer for this slot of my table, which is one of yours too?"""

    kind: ClassVar[str] = "repair"
    slot: tuple[int, int]


@dataclass(frozen=True, slots=True)
class EntryAnswer:
    """This one."""

    kind: ClassVar[str] = "repair"
    entry: Peer


# Scribe: the tree.


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Be my parent in this tree, and send me everything from `start` on; None: from now on."""

    kind: ClassVar[str] = "subscribe"
    group: int
    peer: Peer
    start: int | None


@dataclass(frozen=True, slots=True)
class Subscribed:
    """I am your parent. You get everything from `start` on; None: I have yet to find out.

    There is nothing before `floor` any more.
    """

    kind: ClassVar[str] = "subscribe"
    group: int
    peer: Peer
    start: int | None
    floor: int


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """I am no longer your child."""

    kind: ClassVar[str] = "unsubscribe"
    group: int


@dataclass(frozen=True, slots=True)
class Orphan:
    """I am no longer your parent; if `gone`, I go altogether."""

    kind: ClassVar[str] = "unsubscribe"
    group: int
    peer: Peer
    gone: bool


@dataclass(frozen=True, slots=True)
class TreeKeepAlive:
    """Your parent in these trees is alive; each group, and the number that comes next in it."""

    kind: ClassVar[str] = "tree-keep-alive"
    groups: tuple[tuple[int, int | None], ...]


@dataclass(frozen=True, slots=True)
class Refresh:
    """Your child in this tree is alive."""

    kind: ClassVar[str] = "refresh"
    group: int


@dataclass(frozen=True, slots=True)
class Events:
    """Events that follow each other, the first of this number; `again` to one who missed them."""

    group: int
    first: int
    publications: tuple[Publication, ...]
    again: bool = False

    @property
    def kind(self) -> str:
        """An event on its way down the tree, or one that is sent again."""
        return "catch-up" if self.again else "event"


# Scribe: the root.


@dataclass(frozen=True, slots=True)
class Create:
    """There is such a group; asked of a peer from outside too."""

    kind: ClassVar[str] = "subscribe"
    group: int


@dataclass(frozen=True, slots=True)
class Publish:
    """Number these events, which follow each other at their publisher, and pass them on."""

    kind: ClassVar[str] = "publish"
    group: int
    publications: tuple[Publication, ...]


@dataclass(frozen=True, slots=True)
class Accepted:
    """Your events up to this number of yours will not be lost; I am the root."""

    kind: ClassVar[str] = "accept"
    group: int
    number: int
    root: Peer


@dataclass(frozen=True, slots=True)
class Replicate:
    """Keep a copy of these events; with `numbers` of their last ones by publisher it is a whole."""

    kind: ClassVar[str] = "replicate"
    group: int
    ballot: Ballot
    first: int
    publications: tuple[Publication, ...]
    numbers: dict[str, int] | None


@dataclass(frozen=True, slots=True)
class Replicated:
    """I have everything before `end`; None: send the whole."""

    kind: ClassVar[str] = "replicate"
    group: int
    ballot: Ballot
    peer: Peer
    end: int | None


@dataclass(frozen=True, slots=True)
class Recover:
    """I am to be the root: what do you have? And accept nothing from a lower ballot."""

    kind: ClassVar[str] = "recover"
    group: int
    ballot: Ballot
    peer: Peer


@dataclass(frozen=True, slots=True)
class Recovered:
    """What I have was last written by the root of the ballot `written`."""

    kind: ClassVar[str] = "recover"
    group: int
    ballot: Ballot
    peer: Peer
    leaves: dict[str, Peer]
    written: Ballot
    first: int
    publications: tuple[Publication, ...]
    numbers: dict[str, int]


@dataclass(frozen=True, slots=True)
class Bequest:
    """I go: what I have of the group's log, so that a copy less by leaving is none."""

    kind: ClassVar[str] = "leave"
    group: int
    written: Ballot
    first: int
    publications: tuple[Publication, ...]
    numbers: dict[str, int]


@dataclass(frozen=True, slots=True)
class Refused:
    """Somebody with a higher ballot is the root."""

    kind: ClassVar[str] = "recover"
    group: int
    ballot: Ballot
