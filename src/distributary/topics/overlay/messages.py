"""Messages between peers of the overlay, and requests of the application at a peer.

Each message has a kind, by which it is counted when sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

from distributary.topics.overlay.identifiers import Peer

__all__ = [
    "MAINTENANCE",
    "NOBODY",
    "NO_MEMBERS",
    "Accepted",
    "Announce",
    "BallotRefused",
    "Bequest",
    "Copied",
    "CreateGroup",
    "Depart",
    "EntryAnswer",
    "EntryRequest",
    "Events",
    "Fetch",
    "GroupPublication",
    "KeepAlive",
    "Listen",
    "LivenessProbe",
    "LostEvents",
    "Members",
    "Orphan",
    "OverlayJoin",
    "OverlayLeave",
    "ProbeAnswer",
    "PublishBatch",
    "ReceivedEvent",
    "Recover",
    "Recovered",
    "Refresh",
    "Release",
    "Replicate",
    "Replicated",
    "Routable",
    "Route",
    "RouteAck",
    "Say",
    "Seat",
    "Seated",
    "Silence",
    "StartPeer",
    "TreeKeepAlive",
    "TreeSubscribe",
    "TreeSubscribed",
    "TreeUnsubscribe",
    "Welcome",
]

# The kinds of messages that maintain the ring and the trees when nobody publishes.
MAINTENANCE = frozenset({"keep-alive", "probe", "repair", "tree-keep-alive", "refresh", "recover"})

# A claim to be the root of a group: round and identifier. The higher ballot wins.
Ballot = tuple[int, int]

# Lower than the ballot of any peer.
NOBODY: Ballot = (0, 0)


class Members(NamedTuple):
    """The root of a group, which is the first, and its replicas; the latest version counts."""

    version: tuple[Ballot, int] = (NOBODY, 0)
    peers: tuple[Peer, ...] = ()


NO_MEMBERS = Members()


class Routable(Protocol):
    """A message that is routed to the peer nearest to a key."""

    @property
    def kind(self) -> str:
        """By which it is counted."""
        ...


# Requests of the application at a peer.


@dataclass(frozen=True, slots=True)
class StartPeer:
    """Start: join through one of these peers, or be part of the ring as it is if there is none."""

    through: tuple[Peer, ...] = ()


@dataclass(frozen=True, slots=True)
class Depart:
    """Leave the ring and tell the others."""


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


class GroupPublication(NamedTuple):
    """An event, its number among its publisher's events in this group, and its time."""

    publisher: Peer
    number: int
    payload: Any
    since: float


@dataclass(frozen=True, slots=True)
class ReceivedEvent:
    """Delivered to the application: the event to which the root assigned this number."""

    group: int
    sequence: int
    publication: GroupPublication


@dataclass(frozen=True, slots=True)
class LostEvents:
    """Delivered to the application: events from `first` up to but excluding `end` are lost."""

    group: int
    first: int
    end: int


# Pastry.


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """The sender is alive; these are its leaves."""

    kind: ClassVar[str] = "keep-alive"
    peer: Peer
    leaves: dict[str, Peer]


@dataclass(frozen=True, slots=True)
class LivenessProbe:
    """Asks whether the receiver is alive. An inactive sender is still joining the ring."""

    kind: ClassVar[str] = "probe"
    peer: Peer
    active: bool


@dataclass(frozen=True, slots=True)
class ProbeAnswer:
    """The sender is alive: answers a probe, or a keep-alive of a peer that is not its leaf."""

    kind: ClassVar[str] = "probe"
    peer: Peer
    leaves: dict[str, Peer]


@dataclass(frozen=True, slots=True)
class Route:
    """Forward a message to the peer nearest to the key; `number` identifies this hop's answer."""

    key: int
    number: int
    payload: Routable
    hops: int

    @property
    def kind(self) -> str:
        """The kind of the payload."""
        return self.payload.kind


@dataclass(frozen=True, slots=True)
class RouteAck:
    """The next hop has received the message."""

    kind: ClassVar[str] = "acknowledge"
    number: int


@dataclass(frozen=True, slots=True)
class OverlayJoin:
    """A new peer looks for its place; the peers on the way add peers that they know."""

    kind: ClassVar[str] = "join"
    peer: Peer
    known: tuple[Peer, ...] = ()


@dataclass(frozen=True, slots=True)
class Welcome:
    """The answer to a new peer, from the peer nearest to it."""

    kind: ClassVar[str] = "join"
    known: tuple[Peer, ...]


@dataclass(frozen=True, slots=True)
class Announce:
    """The sender has become active."""

    kind: ClassVar[str] = "join"
    peer: Peer
    leaves: dict[str, Peer]


@dataclass(frozen=True, slots=True)
class OverlayLeave:
    """The sender leaves; these were its leaves."""

    kind: ClassVar[str] = "leave"
    peer: Peer
    leaves: dict[str, Peer]


@dataclass(frozen=True, slots=True)
class EntryRequest:
    """Asks for a peer for this slot of the sender's table, which the receiver's table has too."""

    kind: ClassVar[str] = "repair"
    slot: tuple[int, int]


@dataclass(frozen=True, slots=True)
class EntryAnswer:
    """The answer to an `EntryRequest`."""

    kind: ClassVar[str] = "repair"
    entry: Peer


# Scribe: the tree.


@dataclass(frozen=True, slots=True)
class TreeSubscribe:
    """Asks the receiver to be the parent and to send everything from `start` on; None: from now."""

    kind: ClassVar[str] = "subscribe"
    group: int
    peer: Peer
    start: int | None


@dataclass(frozen=True, slots=True)
class TreeSubscribed:
    """The sender is the parent and sends everything from `start` on; None: not yet known.

    Events before `floor` no longer exist.
    """

    kind: ClassVar[str] = "subscribe"
    group: int
    peer: Peer
    start: int | None
    floor: int


@dataclass(frozen=True, slots=True)
class TreeUnsubscribe:
    """The sender is no longer a child of the receiver."""

    kind: ClassVar[str] = "unsubscribe"
    group: int


@dataclass(frozen=True, slots=True)
class Orphan:
    """The sender is no longer the receiver's parent; if `gone`, it leaves altogether."""

    kind: ClassVar[str] = "unsubscribe"
    group: int
    peer: Peer
    gone: bool


@dataclass(frozen=True, slots=True)
class TreeKeepAlive:
    """The parent in these trees is alive; for each group, the number of the next event."""

    kind: ClassVar[str] = "tree-keep-alive"
    groups: tuple[tuple[int, int | None], ...]


@dataclass(frozen=True, slots=True)
class Refresh:
    """The child in this tree is alive."""

    kind: ClassVar[str] = "refresh"
    group: int


@dataclass(frozen=True, slots=True)
class Events:
    """Consecutive events from number `first` on; `again` if they are a retransmission."""

    group: int
    first: int
    publications: tuple[GroupPublication, ...]
    again: bool = False

    @property
    def kind(self) -> str:
        """The kind: an event on its way down the tree, or a retransmission."""
        return "catch-up" if self.again else "event"


# Scribe: the root.


@dataclass(frozen=True, slots=True)
class CreateGroup:
    """The group exists; also a request of the application.

    The peer `holder` asks whether its copy of the log is needed.
    """

    kind: ClassVar[str] = "subscribe"
    group: int
    holder: Peer | None = None


@dataclass(frozen=True, slots=True)
class PublishBatch:
    """Asks the root to number and forward these consecutive events of one publisher."""

    kind: ClassVar[str] = "publish"
    group: int
    publications: tuple[GroupPublication, ...]


@dataclass(frozen=True, slots=True)
class Accepted:
    """The root has accepted the publisher's events up to this number; they will not be lost."""

    kind: ClassVar[str] = "accept"
    group: int
    number: int
    root: Peer


@dataclass(frozen=True, slots=True)
class Replicate:
    """Asks for a copy of these entries, from number `first` on.

    With `content`, it is a full copy of everything before number `first`.
    """

    kind: ClassVar[str] = "replicate"
    group: int
    ballot: Ballot
    first: int
    entries: tuple[Any, ...]
    content: Any
    members: Members | None


@dataclass(frozen=True, slots=True)
class Replicated:
    """The sender has everything before `end`; None: it needs a full copy."""

    kind: ClassVar[str] = "replicate"
    group: int
    ballot: Ballot
    peer: Peer
    end: int | None


@dataclass(frozen=True, slots=True)
class Seat:
    """The root names the members of a group; `settled` if enough of the former ones know."""

    kind: ClassVar[str] = "replicate"
    group: int
    ballot: Ballot
    members: Members
    settled: bool


@dataclass(frozen=True, slots=True)
class Seated:
    """The sender knows the members."""

    kind: ClassVar[str] = "replicate"
    group: int
    version: tuple[Ballot, int]
    peer: Peer


@dataclass(frozen=True, slots=True)
class Recover:
    """The sender claims to be the root and asks for versions; lower ballots must be refused."""

    kind: ClassVar[str] = "recover"
    group: int
    ballot: Ballot
    peer: Peer


@dataclass(frozen=True, slots=True)
class Recovered:
    """The version of the sender's copy, last written by the root with the ballot `written`."""

    kind: ClassVar[str] = "recover"
    group: int
    ballot: Ballot
    peer: Peer
    leaves: dict[str, Peer]
    written: Ballot
    end: int
    members: Members
    proposed: Members


@dataclass(frozen=True, slots=True)
class Fetch:
    """A new root asks for the newest copy."""

    kind: ClassVar[str] = "recover"
    group: int
    ballot: Ballot
    peer: Peer


@dataclass(frozen=True, slots=True)
class Copied:
    """The answer to a `Fetch`: the copy, of everything before number `end`."""

    kind: ClassVar[str] = "recover"
    group: int
    ballot: Ballot
    end: int
    content: Any


@dataclass(frozen=True, slots=True)
class Bequest:
    """The leaving sender's copy of the group's log, so that leaving does not reduce the copies."""

    kind: ClassVar[str] = "leave"
    group: int
    written: Ballot
    end: int
    members: Members
    content: Any


@dataclass(frozen=True, slots=True)
class Release:
    """The receiver's copy is not needed: the root has a newer one, with enough replicas."""

    kind: ClassVar[str] = "replicate"
    group: int
    ballot: Ballot


@dataclass(frozen=True, slots=True)
class BallotRefused:
    """The root has a higher ballot."""

    kind: ClassVar[str] = "recover"
    group: int
    ballot: Ballot
