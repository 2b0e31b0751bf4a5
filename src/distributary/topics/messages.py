"""What subscribers, topic channels and cluster channels say to each other.

All but `Publish` and `Event` is overhead: messages that a broker without clusters would not send.
Everything is made to be sent again: a receiver that has acted on a message already only answers.
"""

from __future__ import annotations

from dataclasses import dataclass

from distributary.topics.numbers import Cost, Count, Flow

__all__ = [
    "OVERHEAD",
    "Accept",
    "Advise",
    "Answer",
    "Carried",
    "Carry",
    "Change",
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
    "Refuse",
    "Repair",
    "Settled",
    "Suggest",
    "Survey",
    "Tell",
    "TopicFlow",
    "Unwant",
    "Want",
]


@dataclass(frozen=True, slots=True)
class TopicFlow:
    """A topic and how many events it has in an interval."""

    topic: str
    flow: Flow


@dataclass(frozen=True, slots=True)
class Quote:
    """A channel as it offers itself: what it carries, and what one more subscriber costs."""

    channel: str
    topics: tuple[TopicFlow, ...]
    toll: Cost


# --- an application and its subscriber -----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Want:
    """The application wants a topic from now on."""

    topic: str


@dataclass(frozen=True, slots=True)
class Unwant:
    """The application wants a topic no more."""

    topic: str


# --- events --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Publish:
    """A publisher hands an event to the channel of its topic."""

    payload: bytes


@dataclass(frozen=True, slots=True)
class Event:
    """The event of that number of a topic; numbers start at 1 and leave none out.

    A service that has lost its latest events gives their numbers again, in another epoch: each of
    its starts is one.
    """

    topic: str
    number: Count
    payload: bytes
    epoch: Count = 0


@dataclass(frozen=True, slots=True)
class Repair:
    """A subscriber asks a topic's channel for every event from a number on that there is.

    It has all before, as of that epoch.
    """

    first: Count
    epoch: Count = 0


# --- a subscriber and a channel ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Inquire:
    """A subscriber asks a topic's channel how the topic can be had."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A topic's channel answers: itself, the clusters with the topic, the next event's number."""

    quote: Quote
    clusters: tuple[Quote, ...]
    next_number: Count
    epoch: Count = 0


@dataclass(frozen=True, slots=True)
class Join:
    """A subscriber comes, for these of the channel's topics; it is on those other channels."""

    version: Count
    needs: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Joined:
    """The subscriber is on the channel, which carries this as of that version of its own."""

    version: Count
    carry_version: Count
    topics: tuple[TopicFlow, ...]
    toll: Cost


@dataclass(frozen=True, slots=True)
class Leave:
    """A subscriber goes."""

    version: Count


@dataclass(frozen=True, slots=True)
class Left:
    """The subscriber is not on the channel, as of that version of the subscriber's."""

    version: Count


@dataclass(frozen=True, slots=True)
class Change:
    """A cluster tells a member what it carries now, and who took over if that is nothing."""

    carry_version: Count
    topics: tuple[TopicFlow, ...]
    toll: Cost
    successor: str | None = None


@dataclass(frozen=True, slots=True)
class Settled:
    """A member relies on nothing that the cluster did not carry at that version any more.

    It says too what it needs of the cluster now, and which channels it is on.
    """

    carry_version: Count
    needs: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Suggest:
    """A channel tells a subscriber that a cluster would be the better place."""

    quote: Quote


@dataclass(frozen=True, slots=True)
class Invite:
    """A new cluster tells a subscriber that was named to it how it offers itself."""

    quote: Quote


@dataclass(frozen=True, slots=True)
class News:
    """A topic that a subscriber took up, or gave up."""

    topic: TopicFlow
    wanted: bool


@dataclass(frozen=True, slots=True)
class Tell:
    """A subscriber's news for a cluster, what it needs of it now, and which channels it is on."""

    news: tuple[News, ...]
    needs: tuple[str, ...]
    channels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class More:
    """Adds to what a subscriber has just said, where that is too long for one message."""

    needs: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()
    news: tuple[News, ...] = ()


@dataclass(frozen=True, slots=True)
class Survey:
    """A channel asks a subscriber where else it is and what it needs the channel for."""

    number: Count


@dataclass(frozen=True, slots=True)
class Answer:
    """A subscriber's answer: the topics it has from the asking channel only, and its channels.

    Several with the same number together are one.

    It knows what the asking channel carried at `carry_version`, and answers for that.
    """

    number: Count
    carry_version: Count
    needs: tuple[str, ...]
    channels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Gone:
    """Whoever runs the channels has found a subscriber dead."""

    subscriber: str


# --- channels among themselves -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Propose:
    """A channel with so many subscribers, so many of them common, offers to merge."""

    number: Count
    topics: tuple[TopicFlow, ...]
    size: Count
    common: Count


@dataclass(frozen=True, slots=True)
class Accept:
    """The other channel agrees and has locked itself for this merge."""

    number: Count
    topics: tuple[TopicFlow, ...]
    size: Count


@dataclass(frozen=True, slots=True)
class Refuse:
    """One of the two takes no part in this merge, or no more: no gain, or another lock."""

    number: Count


@dataclass(frozen=True, slots=True)
class Found:
    """A topic's channel starts a cluster: the first message to that cluster's name.

    Subscribers named here are invited; if there are none, those on the topics' own channels are.
    """

    topics: tuple[str, ...]
    invited: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Carry:
    """A cluster asks a topic's channel to send it the topic, or tells it what else it carries."""

    version: Count
    topics: tuple[TopicFlow, ...]
    toll: Cost
    recruit: bool = False


@dataclass(frozen=True, slots=True)
class Carried:
    """A topic's channel sends its events to the cluster."""

    version: Count
    flow: Flow
    size: Count
    toll: Cost
    clusters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Drop:
    """A cluster needs a topic no more."""

    version: Count


@dataclass(frozen=True, slots=True)
class Dropped:
    """A topic's channel sends its events to the cluster no more."""

    version: Count


@dataclass(frozen=True, slots=True)
class Advise:
    """A planner's advice: to a topic, found a cluster of these; to a cluster, merge with that.

    A topic's channel that is told whom to invite founds the cluster at once: those invited decide.
    Otherwise it asks its own subscribers first. A cluster that is advised no partner looks whether
    it still pays: it gives topics up, or ends, by its own estimate.
    """

    topics: tuple[TopicFlow, ...] = ()
    partner: str | None = None
    invited: tuple[str, ...] = ()


OVERHEAD = (
    *(Inquire, Offer, Join, Joined, Leave, Left, Change, Settled, Suggest, Tell, More),
    *(Survey, Answer),
    *(Propose, Accept, Refuse, Found, Carry, Carried, Drop, Dropped, Advise, Invite),
)
