"""A subscriber: which channels it is on so that it has every topic it wants, in order and once.

It joins first and leaves after: a channel is left only once everything wanted from it comes by
another that has confirmed. Events have numbers per topic; what comes twice is dropped, what is
missing is asked for at the topic's own channel.

Reference: Milo et al. (2007), section 4.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from distributary.protocol.actions import Action, Deliver, Message, Send, SetTimer
from distributary.protocol.topics.choice import Choice, best_cluster, cheapest_cover, widest_cluster
from distributary.protocol.topics.messages import (
    Answer,
    Change,
    Event,
    Inquire,
    Invite,
    Join,
    Joined,
    Leave,
    Left,
    Offer,
    Quote,
    Repair,
    Settled,
    Suggest,
    Survey,
    Tell,
    TopicFlow,
    Unwant,
    Want,
)
from distributary.protocol.topics.names import is_cluster, topic_channel, topic_of
from distributary.protocol.topics.policy import Policy

__all__ = ["Attendance", "Subscriber"]

_MOST_INVITATIONS = 20
_MESSAGES_PER_MOVE = 3.0


@dataclass(slots=True)
class Attendance:
    """A channel that the subscriber is on, or on its way to or from."""

    version: int
    topics: dict[str, float]  # carried, with events per interval
    toll: float
    joined: bool = False  # confirmed
    leaving: bool = False  # said so, not confirmed
    parting: bool = False  # to be left as soon as it is safe
    carry_version: int = -1
    owes: int | None = None  # the cluster waits for our word on this version


@dataclass(slots=True)
class Wanted:
    """A wanted topic: the number of the next event, and later ones that came early."""

    expected: int | None = None
    early: dict[int, Event] = field(default_factory=dict)
    flow: float = 0.0


class Subscriber:
    """The `Machine` of one subscriber; the application says `Want` and `Unwant` to it."""

    def __init__(self, name: str, policy: Policy) -> None:
        self.name = name
        self.policy = policy
        self.wanted: dict[str, Wanted] = {}
        self.on: dict[str, Attendance] = {}
        self._tolls: dict[str, float] = {}  # of topics' own channels, when we last heard
        self._invitations: dict[str, Quote] = {}  # not taken so far: they may pay together
        self._news: set[str] = set()  # topics to tell clusters of once their channel has confirmed
        self._version = 0

    # --- what holds --------------------------------------------------------------------------

    def covered(self, topic: str) -> bool:
        """Whether a topic comes by a channel that has confirmed and that we are not leaving.

        Before its channel has told the number of the next event, none could be delivered.
        """
        wanted = self.wanted.get(topic)
        if wanted is None or wanted.expected is None:
            return False
        return any(
            held.joined and not held.leaving and topic in held.topics for held in self.on.values()
        )

    def needs(self, channel: str) -> tuple[str, ...]:
        """The wanted topics that come by no cluster but this channel.

        A topic's own channel does not count: it is left as soon as a cluster brings the topic.
        """
        others = set().union(
            *(
                held.topics
                for name, held in self.on.items()
                if is_cluster(name) and name != channel and held.joined and not held.leaving
            )
        )
        topics = self.on[channel].topics
        return tuple(topic for topic in topics if topic in self.wanted and topic not in others)

    def channels(self) -> tuple[str, ...]:
        """The channels we are on."""
        return tuple(name for name, held in self.on.items() if held.joined and not held.leaving)

    # --- inputs ------------------------------------------------------------------------------

    def on_message(self, sender: str, message: Message, now: float) -> list[Action]:
        """Take in what the application and channels say."""
        match message:
            case Event():
                return self._event(message, now)
            case Want(topic):
                if topic in self.wanted:
                    return []
                self.wanted[topic] = Wanted()
                return [Send(topic_channel(topic), Inquire()), self._later(now)]
            case Unwant(topic):
                return self._unwant(topic, now)
            case Offer():
                return self._offered(topic_of(sender), message, now)
            case Joined():
                return self._joined(sender, message, now)
            case Left(version):
                held = self.on.get(sender)
                if held is not None and held.leaving and held.version == version:
                    del self.on[sender]
                return self._settle(now)
            case Change():
                return self._changed(sender, message, now)
            case Suggest(quote):
                return self._suggested(quote, now)
            case Invite(quote):
                return self._invited(quote, now)
            case Survey(number):
                return self._answer(sender, number)
        raise TypeError(f"a subscriber does not understand {message!r}")

    def on_timer(self, name: str, now: float) -> list[Action]:
        """Say unheard things again, or ask for events that may have been missed."""
        if name == "retry":
            return self._again(now)
        if name == "refresh":
            asks = [
                Send(topic_channel(topic), Repair(wanted.expected))
                for topic, wanted in self.wanted.items()
                if wanted.expected is not None
            ]
            return [*asks, SetTimer("refresh", now + self.policy.refresh)] if asks else []
        raise ValueError(f"there is no timer {name!r}")

    # --- events ------------------------------------------------------------------------------

    def takes(self, event: Event) -> bool | None:
        """Take an event in if that is all there is to do: whether to hand it over, None if not.

        It is, if the event is the next of its topic and none waits behind it, or is not wanted.
        """
        wanted = self.wanted.get(event.topic)
        if wanted is None or wanted.expected is None or event.number < wanted.expected:
            return False  # the local filter
        if event.number > wanted.expected or wanted.early:
            return None
        wanted.expected += 1
        return True

    def _event(self, event: Event, now: float) -> list[Action]:
        wanted = self.wanted.get(event.topic)
        if wanted is None or wanted.expected is None or event.number < wanted.expected:
            return []  # the local filter
        if event.number > wanted.expected:
            first = not wanted.early
            wanted.early[event.number] = event
            ask = Send(topic_channel(event.topic), Repair(wanted.expected))
            return [ask] if first else []
        actions: list[Action] = []
        found: Event | None = event
        while found is not None:
            actions.append(Deliver(self.name, found, now))
            wanted.expected += 1
            found = wanted.early.pop(wanted.expected, None)
        return actions

    # --- interests ---------------------------------------------------------------------------

    def _offered(self, topic: str, offer: Offer, now: float) -> list[Action]:
        wanted = self.wanted.get(topic)
        if wanted is None:
            return []
        self._tolls[topic] = offer.quote.toll
        fresh = wanted.expected is None
        if fresh:
            wanted.expected = offer.next_number
            wanted.flow = offer.quote.topics[0].flow
        actions: list[Action] = [SetTimer("refresh", now + self.policy.refresh)] if fresh else []
        if self._provided(topic):
            return [*actions, *self._settle(now), *self._tell(topic, True)]
        choose = widest_cluster if self.policy.obeys else best_cluster
        chosen = choose(topic, offer.clusters, self._choice())
        if chosen is None:
            self._news.add(topic)
        return [*actions, *self._come(chosen or offer.quote, now), *self._settle(now)]

    def _unwant(self, topic: str, now: float) -> list[Action]:
        wanted = self.wanted.pop(topic, None)
        if wanted is None:
            return []
        self._news.discard(topic)
        flow = TopicFlow(topic, wanted.flow)
        sources = [
            name for name, held in self.on.items() if is_cluster(name) and topic in held.topics
        ]
        self._improve(sources)
        return [*self._settle(now), *self._tell(topic, False, flow, sources)]

    def _improve(self, clusters: list[str]) -> None:
        """Part from clusters that cost more than the topics still needed of them would."""
        for name in clusters:
            held = self.on[name]
            if held.joined and not held.leaving and not held.parting:
                wanted = (topic for topic in held.topics if topic in self.wanted)
                alone = sum(self._toll(t) for t in wanted if not self._elsewhere(t, name))
                held.parting = alone < held.toll

    def _toll(self, topic: str) -> float:
        """What the topic's own channel would cost; what it was when we last heard."""
        return self._tolls.get(topic, 1.0)

    def _choice(self) -> Choice:
        direct = {
            topic_of(name)
            for name, held in self.on.items()
            if not is_cluster(name) and not held.leaving
        }
        return Choice(direct, self._toll)

    def _tell(
        self,
        topic: str,
        wanted: bool,
        flow: TopicFlow | None = None,
        sources: list[str] | None = None,
    ) -> list[Action]:
        """Tell clusters what changed: all of them, or the one with most that we throw away."""
        on = [n for n in self.channels() if is_cluster(n) and not self.on[n].parting]
        if not self.policy.tells:
            on = [n for n in on if sources is None or n in sources]
            on = sorted(on, key=lambda n: (-len(self.on[n].topics.keys() - self.wanted), n))[:1]
        if flow is None:
            flow = TopicFlow(topic, self.wanted[topic].flow)
        mine = self.channels()
        return [Send(n, Tell(flow, wanted, self.needs(n), mine)) for n in on]

    def _answer(self, channel: str, number: int) -> list[Action]:
        """Say what we need a channel for; nothing if we do not know yet what it carries."""
        held = self.on.get(channel)
        if held is None or not held.joined:
            return []
        needs = self.needs(channel)
        return [Send(channel, Answer(number, held.carry_version, needs, self.channels()))]

    # --- channels ----------------------------------------------------------------------------

    def _come(self, quote: Quote, now: float) -> list[Action]:
        """Begin to join a channel."""
        held = self.on.get(quote.channel)
        if held is not None and not held.leaving:
            held.parting = False
            return []
        topics = {found.topic: found.flow for found in quote.topics}
        self._version += 1
        self.on[quote.channel] = Attendance(self._version, topics, quote.toll)
        return [self._join(quote.channel), self._later(now)]

    def _join(self, channel: str) -> Action:
        held = self.on[channel]
        needs = tuple(topic for topic in held.topics if topic in self.wanted)
        return Send(channel, Join(held.version, needs, self.channels()))

    def _joined(self, channel: str, message: Joined, now: float) -> list[Action]:
        held = self.on.get(channel)
        if held is None:  # a word of ours from long ago has brought us back there
            return [Send(channel, Leave(message.version))]
        if held.leaving or held.version != message.version:
            return []
        held.joined = True
        self._carries(held, message.carry_version, message.topics, message.toll)
        if not self.policy.obeys:  # what is new may make something old needless
            self._improve([name for name in self.on if is_cluster(name) and name != channel])
        news = [topic for topic in held.topics if topic in self._news]
        self._news.difference_update(news)
        return [*self._settle(now), *(said for topic in news for said in self._tell(topic, True))]

    def _changed(self, channel: str, message: Change, now: float) -> list[Action]:
        held = self.on.get(channel)
        if held is None or held.leaving:
            return [Send(channel, Settled(message.carry_version))]
        before = set(held.topics)
        self._carries(held, message.carry_version, message.topics, message.toll)
        held.owes = max(message.carry_version, held.owes or 0)
        actions: list[Action] = []
        if message.successor is not None and not message.topics:
            topics = tuple(
                TopicFlow(topic, self.wanted[topic].flow) for topic in before & set(self.wanted)
            )
            if topics and self.policy.obeys:
                actions = self._come(Quote(message.successor, topics, held.toll), now)
        if not self.policy.obeys:
            self._improve([channel])
        return [*actions, *self._settle(now)]

    def _carries(
        self, held: Attendance, version: int, topics: tuple[TopicFlow, ...], toll: float
    ) -> None:
        if version >= held.carry_version:
            held.carry_version = version
            held.topics = {found.topic: found.flow for found in topics}
            held.toll = toll

    def _suggested(self, quote: Quote, now: float) -> list[Action]:
        carried = {found.topic for found in quote.topics}
        if not carried & set(self.wanted):
            return []
        if self.policy.obeys or self._choice().saving(quote) > 0:
            return [*self._come(quote, now), *self._settle(now)]
        return []

    def _invited(self, quote: Quote, now: float) -> list[Action]:
        """Change over to the cheapest cover by clusters one is on or invited to, if it is worth it.

        Clusters that it is without are left as soon as everything comes from elsewhere.
        """
        self._invitations[quote.channel] = quote
        while len(self._invitations) > _MOST_INVITATIONS:
            del self._invitations[next(iter(self._invitations))]
        staying = {n: h for n, h in self.on.items() if not (h.leaving or h.parting)}
        mine = [
            Quote(name, tuple(TopicFlow(t, f) for t, f in held.topics.items()), held.toll)
            for name, held in staying.items()
            if is_cluster(name)
        ]
        new = [q for name, q in self._invitations.items() if name not in self.on]
        cover, cost = min(  # new clusters may replace an old one only together
            (cheapest_cover(self.wanted.keys(), q, self._toll) for q in ([*mine, *new], new)),
            key=lambda found: found[1],
        )
        now_paid = sum(held.toll for held in staying.values())
        names = {found.channel for found in cover}
        moves = len(names ^ {found.channel for found in mine})
        if not self.policy.pays(cost - now_paid, _MESSAGES_PER_MOVE * moves):
            return []
        actions: list[Action] = []
        for found in cover:
            self._invitations.pop(found.channel, None)
            actions += self._come(found, now)
        for found in mine:
            self.on[found.channel].parting = found.channel not in names
        return [*actions, *self._settle(now)]

    def _provided(self, topic: str) -> bool:
        """Whether a topic comes, or will once a channel has confirmed."""
        return any(
            topic in held.topics and not held.leaving and not held.parting
            for held in self.on.values()
        )

    def _settle(self, now: float) -> list[Action]:
        """Bring what we are on in line with what we want: join first, leave after."""
        actions: list[Action] = []
        for topic, wanted in self.wanted.items():
            if wanted.expected is not None and not self._provided(topic):
                flows = (TopicFlow(topic, wanted.flow),)
                actions += self._come(Quote(topic_channel(topic), flows, self._toll(topic)), now)
        missing = any(
            wanted.expected is not None and not self.covered(topic)
            for topic, wanted in self.wanted.items()
        )
        for name, held in self.on.items():
            if held.owes is not None and not missing:
                actions.append(Send(name, Settled(held.owes, self.needs(name), self.channels())))
                held.owes = None
        for name in [*self.on]:
            if self._spare(name):
                actions += self._go(name, now)
        return actions

    def _spare(self, name: str) -> bool:
        """Whether a channel can be left now, and should."""
        held = self.on[name]
        if not held.joined or held.leaving or held.owes is not None:
            return False  # while it waits for our word it brings what it carries no more
        if any(topic in self.wanted for topic in held.topics):
            useless = held.parting or not is_cluster(name)
            return useless and all(
                self._elsewhere(topic, name) for topic in held.topics if topic in self.wanted
            )
        return True

    def _elsewhere(self, topic: str, channel: str) -> bool:
        """Whether a topic comes by another channel that we mean to stay on."""
        return any(
            held.joined and not held.leaving and not held.parting and topic in held.topics
            for name, held in self.on.items()
            if name != channel
        )

    def _go(self, channel: str, now: float) -> list[Action]:
        held = self.on[channel]
        self._version += 1
        held.version, held.leaving, held.owes = self._version, True, None
        return [Send(channel, Leave(held.version)), self._later(now)]

    # --- saying it until it is heard ---------------------------------------------------------

    def _again(self, now: float) -> list[Action]:
        actions: list[Action] = [
            Send(topic_channel(topic), Inquire())
            for topic, wanted in self.wanted.items()
            if wanted.expected is None
        ]
        for name, held in self.on.items():
            if held.leaving:
                actions.append(Send(name, Leave(held.version)))
            elif not held.joined:
                actions.append(self._join(name))
        return [*actions, self._later(now)] if actions else []

    def _later(self, now: float) -> Action:
        return SetTimer("retry", now + self.policy.retry)
