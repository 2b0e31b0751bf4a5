"""Messages between subscribers, topic channels and cluster channels.

All but `Publish` and `Event` are overhead: a broker without clusters would not send them. Every
request is idempotent: a receiver that has already acted on it only answers again.
"""

from __future__ import annotations

from dataclasses import dataclass

from distributary.topics.numbers import Cost, Count, Flow

__all__ = [
    "OVERHEAD",
    "OVERHEAD_KINDS",
    "Accept",
    "Advise",
    "Answer",
    "Await",
    "CarriageChange",
    "Carried",
    "Carry",
    "Drop",
    "Dropped",
    "Event",
    "Found",
    "Gone",
    "Inquire",
    "Invite",
    "Join",
    "Joined",
    "Leave",
    "Left",
    "More",
    "News",
    "Offer",
    "Propose",
    "Publish",
    "Quote",
    "Rarer",
    "Refuse",
    "Repair",
    "Settled",
    "Suggest",
    "Survey",
    "Tell",
    "TopicFlow",
    "Unwant",
    "Want",
    "kind_of",
]


@dataclass(frozen=True, slots=True)
class TopicFlow:
    """A topic and its events per interval."""

    topic: str
    flow: Flow


@dataclass(frozen=True, slots=True)
class Quote:
    """A channel, the topics it carries, and its toll: the marginal cost of one more subscriber.

    It carries them as of its own version `carry_version`.
    """

    channel: str
    topics: tuple[TopicFlow, ...]
    toll: Cost
    carry_version: Count = 0


# --- an application and its subscriber -----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Want:
    """The application subscribes to a topic."""

    topic: str


@dataclass(frozen=True, slots=True)
class Unwant:
    """The application unsubscribes from a topic."""

    topic: str


# --- events --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Publish:
    """A publisher hands an event to the channel of its topic."""

    payload: bytes


@dataclass(frozen=True, slots=True)
class Event:
    """An event with its number within its topic; numbers start at 1 and have no gaps.

    Each start of the service is a new epoch. A service that has lost its latest events assigns
    their numbers again, in a later epoch.
    """

    topic: str
    number: Count
    payload: bytes
    epoch: Count = 0


@dataclass(frozen=True, slots=True)
class Repair:
    """A subscriber requests all available events of a topic from number `first` on.

    It has all earlier events, as of that epoch.
    """

    first: Count
    epoch: Count = 0


# --- a subscriber and a channel ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Inquire:
    """A subscriber asks a topic's channel which channels carry the topic."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A topic's channel answers: itself, the clusters with the topic, the next event's number."""

    quote: Quote
    clusters: tuple[Quote, ...]
    next_number: Count
    epoch: Count = 0


@dataclass(frozen=True, slots=True)
class Join:
    """A subscriber joins a channel for the topics `needs`; it is also on `channels`."""

    version: Count
    needs: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Joined:
    """Confirms a join; the channel carries `topics` as of its own version `carry_version`."""

    version: Count
    carry_version: Count
    topics: tuple[TopicFlow, ...]
    toll: Cost


@dataclass(frozen=True, slots=True)
class Leave:
    """A subscriber leaves a channel."""

    version: Count


@dataclass(frozen=True, slots=True)
class Left:
    """Confirms that the subscriber is not on the channel, as of the subscriber's version."""

    version: Count


@dataclass(frozen=True, slots=True)
class CarriageChange:
    """A cluster tells a member what it carries now; one that ends may name its successor."""

    carry_version: Count
    topics: tuple[TopicFlow, ...]
    toll: Cost
    successor: str | None = None


@dataclass(frozen=True, slots=True)
class Settled:
    """A member no longer relies on topics that the cluster does not carry at that version.

    It also reports what it needs of the cluster now, and which channels it is on.
    """

    carry_version: Count
    needs: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Suggest:
    """A channel suggests a cluster to a subscriber.

    Unless it recruits, this is only for those who are on the cluster already: what it carries.
    """

    quote: Quote
    recruit: bool = True


@dataclass(frozen=True, slots=True)
class Invite:
    """A new cluster invites a subscriber."""

    quote: Quote


@dataclass(frozen=True, slots=True)
class News:
    """A topic that a subscriber has started or stopped wanting."""

    topic: TopicFlow
    wanted: bool


@dataclass(frozen=True, slots=True)
class Tell:
    """A subscriber reports changed interests to a cluster, with its needs and its channels."""

    news: tuple[News, ...]
    needs: tuple[str, ...]
    channels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class More:
    """Continues the previous message of a subscriber, which was too long for one message."""

    needs: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()
    news: tuple[News, ...] = ()


@dataclass(frozen=True, slots=True)
class Survey:
    """A channel asks a subscriber which channels it is on and what it needs this one for."""

    number: Count


@dataclass(frozen=True, slots=True)
class Answer:
    """Answers a survey: the topics that come from the asking channel only, and all channels.

    The answer refers to what the asking channel carried at `carry_version`. A long answer comes in
    several messages with the same number.
    """

    number: Count
    carry_version: Count
    needs: tuple[str, ...]
    channels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Gone:
    """The host has declared a subscriber dead."""

    subscriber: str


# --- channels among themselves -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Propose:
    """A channel with `size` subscribers, `common` of them shared, proposes a merge."""

    number: Count
    topics: tuple[TopicFlow, ...]
    size: Count
    common: Count


@dataclass(frozen=True, slots=True)
class Accept:
    """The other channel accepts and is locked for this merge.

    A topic's channel says whether all of its subscribers should move to the proposing cluster.
    """

    number: Count
    topics: tuple[TopicFlow, ...]
    size: Count
    recruit: bool = True


@dataclass(frozen=True, slots=True)
class Refuse:
    """One of the two channels refuses or abandons this merge.

    A topic's channel tells a cluster its events per interval, and with how many subscribers of the
    cluster the merge would pay; 0 if with none.
    """

    number: Count
    size: Count = 0
    flow: Flow = 0.0


@dataclass(frozen=True, slots=True)
class Await:
    """A cluster asks a topic's channel to report when it has only so many events per interval."""

    flow: Flow


@dataclass(frozen=True, slots=True)
class Rarer:
    """A topic's channel reports that its events have become as rare as the cluster asked."""

    flow: Flow


@dataclass(frozen=True, slots=True)
class Found:
    """A topic's channel founds a cluster: the first message to that cluster's name.

    The cluster invites the subscribers named here; if there are none, the topics' own channels
    suggest it to theirs.
    """

    topics: tuple[str, ...]
    invited: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Carry:
    """A cluster asks a topic's channel for its events, or announces what else it carries.

    The channel suggests the cluster to its subscribers, to all of them or to members of the
    cluster only.
    """

    version: Count
    topics: tuple[TopicFlow, ...]
    toll: Cost
    recruit: bool = False
    tell: bool = False


@dataclass(frozen=True, slots=True)
class Carried:
    """A topic's channel confirms that it sends its events to the cluster."""

    version: Count
    flow: Flow
    size: Count
    toll: Cost
    clusters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Drop:
    """A cluster no longer needs a topic."""

    version: Count


@dataclass(frozen=True, slots=True)
class Dropped:
    """A topic's channel confirms that it no longer sends its events to the cluster."""

    version: Count


@dataclass(frozen=True, slots=True)
class Advise:
    """A planner's advice: a topic should found a cluster, or a cluster should merge.

    A topic's channel founds the cluster at once if subscribers are invited, since these decide for
    themselves; otherwise it surveys its own subscribers first. A cluster without an advised partner
    checks whether it still pays, and drops topics or ends by its own estimate.
    """

    topics: tuple[TopicFlow, ...] = ()
    partner: str | None = None
    invited: tuple[str, ...] = ()


OVERHEAD = (
    *(Inquire, Offer, Join, Joined, Leave, Left, CarriageChange, Settled, Suggest, Tell, More),
    *(Survey, Answer),
    *(Propose, Accept, Refuse, Await, Rarer),
    *(Found, Carry, Carried, Drop, Dropped, Advise, Invite),
)
_WIRE_NAMES: dict[type, str] = {CarriageChange: "Change"}


def kind_of(message_type: type) -> str:
    """The name of a message type on the wire and in counts; most are called so here, too."""
    return _WIRE_NAMES.get(message_type, message_type.__name__)


OVERHEAD_KINDS = frozenset(map(kind_of, OVERHEAD))
