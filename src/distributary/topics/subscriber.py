"""A subscriber: which channels it is on so that it has every topic it wants, in order and once.

It joins first and leaves after: a channel is left only once everything wanted from it comes by
another that has confirmed. Events have numbers per topic; what comes twice is dropped, what is
missing is asked for at the topic's own channel.

What one message costs does not depend on how many topics are wanted: only those that it touches are
looked at. It also comes back after the service took it for dead: see `_rejoin`.

Reference: Milo et al. (2007), section 4.
"""

from __future__ import annotations

from dataclasses import replace

from distributary.machines.actions import Action, Message, Send, SetTimer
from distributary.topics.attendance import Attendance, Attendances, Wanted
from distributary.topics.choice import Choice, best_cluster, cheapest_cover, widest_cluster
from distributary.topics.codec import Expired, Forgotten, Pulse, Resume
from distributary.topics.messages import (
    Answer,
    Change,
    Event,
    Inquire,
    Invite,
    Join,
    Joined,
    Leave,
    Left,
    News,
    Offer,
    Quote,
    Settled,
    Suggest,
    Survey,
    Tell,
    TopicFlow,
    Unwant,
    Want,
)
from distributary.topics.names import is_cluster, topic_channel, topic_of
from distributary.topics.policy import Policy
from distributary.topics.sequence import EventSequencer

__all__ = ["Subscriber"]

_MOST_INVITATIONS = 20
_MESSAGES_PER_MOVE = 3.0
_SOON = 0.1  # seconds


class Subscriber(EventSequencer):
    """The `Machine` of one subscriber; the application says `Want` and `Unwant` to it."""

    def __init__(self, name: str, policy: Policy) -> None:
        super().__init__(name, policy)
        self.on = Attendances()
        self.generation = 0  # how often the service took it for dead
        self._epoch = 0  # the last start of the service that we know of
        self.secured: set[str] = set()  # topics found covered, for whoever waits for that
        self._tolls: dict[str, float] = {}  # of topics' own channels, when we last heard
        self._invitations: dict[str, Quote] = {}  # not taken so far: they may pay together
        self._news: set[str] = set()  # topics to tell clusters of once their channel has confirmed
        self._untold: dict[str, dict[str, News]] = {}  # by cluster and topic
        self._tell_at = 0.0  # clusters are told again then, and not before
        self._retry_at: float | None = None
        self._uncovered: set[str] = set()  # wanted, known, and not coming yet
        self._owing: dict[str, None] = {}  # clusters that wait for our word
        self._version = 0

    # --- what holds --------------------------------------------------------------------------

    def is_covered(self, topic: str) -> bool:
        """Whether a topic comes by a channel that has confirmed and that we are not leaving.

        Before its channel has told the number of the next event, none could be delivered.
        """
        wanted = self.wanted.get(topic)
        if wanted is None or wanted.expected is None:
            return False
        return any(held.brings for held in self.on.sources(topic).values())

    def needs(self, channel: str) -> tuple[str, ...]:
        """The wanted topics that come by no cluster but this channel.

        A topic's own channel does not count: it is left as soon as a cluster brings the topic.
        """
        return tuple(
            topic
            for topic in self.on[channel].topics
            if topic in self.wanted
            and not any(
                held.brings and name != channel and is_cluster(name)
                for name, held in self.on.sources(topic).items()
            )
        )

    def channels(self) -> tuple[str, ...]:
        """The channels we are on."""
        return tuple(name for name, held in self.on.items() if held.brings)

    # --- inputs ------------------------------------------------------------------------------

    def on_message(self, sender: str, message: Message, now: float) -> list[Action]:
        """Handle messages of the application, of channels and of the service."""
        match message:
            case Event():
                return self._take_event(message, now)
            case Want(topic):
                return self._want(topic, now)
            case Unwant(topic):
                return self._unwant(topic, now)
            case Offer():
                return self._take_offer(topic_of(sender), message, now)
            case Joined():
                return self._take_joined(sender, message, now)
            case Left(version):
                held = self.on.get(sender)
                if held is not None and held.leaving and held.version == version:
                    self.on.remove(sender)
                return self._settle(now)
            case Change():
                return self._take_change(sender, message, now)
            case Suggest(quote):
                return self._take_suggestion(quote, now)
            case Invite(quote):
                return self._take_invitation(quote, now)
            case Survey(number):
                return self._answer(sender, number)
            case Resume():
                return self._resume(message, now)
            case Expired():
                return self._skip(message, now)
            case Pulse():
                return self._adopt(message, now)
            case Forgotten(generation):
                return self._rejoin(generation, now)
        raise TypeError(f"a subscriber does not understand {message!r}")

    def on_timer(self, name: str, now: float) -> list[Action]:
        """Repeat unanswered messages, or ask for events that may have been missed."""
        if name == "retry":
            return self._retry(now)
        if name == "tell":
            return self._tell_news(now)
        if name == "chase":
            return self._chase_all(now)
        if name == "refresh":
            asks = self._ask_for_all()
            return [*asks, SetTimer("refresh", now + self.policy.refresh)] if asks else []
        raise ValueError(f"there is no timer {name!r}")

    # --- interests ---------------------------------------------------------------------------

    def _want(self, topic: str, now: float) -> list[Action]:
        if topic in self.wanted:
            return []
        self.wanted[topic] = Wanted(again_at=now + self.policy.retry)
        return [Send(topic_channel(topic), Inquire()), *self._set_retry(now)]

    def _take_offer(self, topic: str, offer: Offer, now: float) -> list[Action]:
        wanted = self.wanted.get(topic)
        if wanted is None:
            return []
        self._tolls[topic] = offer.quote.toll
        fresh = wanted.expected is None
        if fresh:
            wanted.expected, wanted.epoch = offer.next_number, offer.epoch
            wanted.flow = offer.quote.topics[0].flow
            self.on.touched[topic] = None
        actions: list[Action] = [SetTimer("refresh", now + self.policy.refresh)] if fresh else []
        if self._is_provided(topic):
            return [*actions, *self._settle(now), *self._tell(News(self._flow(topic), True), now)]
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
        self.secured.discard(topic)
        self.on.touched[topic] = None
        sources = [name for name in self.on.sources(topic) if is_cluster(name)]
        self._improve(sources)
        news = News(TopicFlow(topic, wanted.flow), False)
        return [*self._settle(now), *self._tell(news, now, sources)]

    def _improve(self, clusters: list[str]) -> None:
        """Part from clusters that cost more than the topics still needed of them would."""
        for name in clusters:
            held = self.on[name]
            if held.brings and not held.parting:
                wanted = (topic for topic in held.topics if topic in self.wanted)
                alone = sum(self._toll(t) for t in wanted if not self._comes_elsewhere(t, name))
                self._part(name, alone < held.toll)

    def _part(self, name: str, parting: bool) -> None:
        """Mean to leave a cluster, or to stay."""
        held = self.on[name]
        if held.parting != parting:
            held.parting = parting
            self.on.touch(name)

    def _flow(self, topic: str) -> TopicFlow:
        return TopicFlow(topic, self.wanted[topic].flow)

    def _toll(self, topic: str) -> float:
        """What the topic's own channel would cost; what it was when we last heard."""
        return self._tolls.get(topic, 1.0)

    def _choice(self) -> Choice:
        return Choice(self._is_direct, self._toll)

    def _is_direct(self, topic: str) -> bool:
        held = self.on.get(topic_channel(topic))
        return held is not None and not held.leaving

    def _tell(self, news: News, now: float, sources: list[str] | None = None) -> list[Action]:
        """Tell clusters what changed: all of them, or the one with most that we throw away."""
        on = [n for n, held in self.on.clusters.items() if held.brings and not held.parting]
        if not self.policy.tells:
            on = [n for n in on if sources is None or n in sources]
            on = sorted(on, key=lambda n: (-len(self.on[n].topics.keys() - self.wanted), n))[:1]
        for name in on:
            self._untold.setdefault(name, {})[news.topic.topic] = news
        if not self._untold:
            return []
        if now < self._tell_at:  # all that we need and where we are is long: not that often
            return [SetTimer("tell", self._tell_at)]
        return self._tell_news(now)

    def _tell_news(self, now: float) -> list[Action]:
        """Tell each cluster its news, with all that we need of it and where we are."""
        self._tell_at = now + self.policy.retry
        untold, self._untold = self._untold, {}
        mine = self.channels()
        return [
            Send(name, Tell(tuple(news.values()), self.needs(name), mine))
            for name, news in untold.items()
            if name in self.on and self.on[name].brings
        ]

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
            self._part(quote.channel, False)
            return []
        topics = {found.topic: found.flow for found in quote.topics}
        self._version += 1
        again_at = now + self.policy.retry
        self.on.add(quote.channel, Attendance(self._version, topics, quote.toll, again_at=again_at))
        self._owing.pop(quote.channel, None)
        return [self._join(quote.channel), *self._set_retry(now)]

    def _join(self, channel: str) -> Action:
        held = self.on[channel]
        if not is_cluster(channel):
            return Send(channel, Join(held.version))  # a topic's own channel knows what it is for
        needs = tuple(topic for topic in held.topics if topic in self.wanted)
        return Send(channel, Join(held.version, needs, self.channels()))

    def _take_joined(self, channel: str, message: Joined, now: float) -> list[Action]:
        held = self.on.get(channel)
        if held is None:  # a word of ours from long ago has brought us back there
            return [Send(channel, Leave(message.version))]
        if held.leaving or held.version != message.version:
            return []
        held.joined = True
        self._carries(channel, message.carry_version, message.topics, message.toll)
        self.on.touch(channel)
        if not self.policy.obeys:  # what is new may make something old needless
            near = dict.fromkeys(n for topic in held.topics for n in self.on.sources(topic))
            self._improve([name for name in near if is_cluster(name) and name != channel])
        fresh = [topic for topic in held.topics if topic in self._news]
        self._news.difference_update(fresh)
        news = [News(self._flow(topic), True) for topic in fresh]
        return [*self._settle(now), *(said for each in news for said in self._tell(each, now))]

    def _take_change(self, channel: str, message: Change, now: float) -> list[Action]:
        held = self.on.get(channel)
        if held is None or held.leaving:
            return [Send(channel, Settled(message.carry_version))]
        before = set(held.topics)
        self._carries(channel, message.carry_version, message.topics, message.toll)
        held.owes = max(message.carry_version, held.owes or 0)
        self._owing[channel] = None
        actions: list[Action] = []
        if message.successor is not None and not message.topics:
            topics = tuple(self._flow(topic) for topic in before & self.wanted.keys())
            if topics and self.policy.obeys:
                actions = self._come(Quote(message.successor, topics, held.toll), now)
        if not self.policy.obeys:
            self._improve([channel])
        return [*actions, *self._settle(now)]

    def _carries(
        self, channel: str, version: int, topics: tuple[TopicFlow, ...], toll: float
    ) -> None:
        held = self.on[channel]
        if version >= held.carry_version:
            held.carry_version = version
            held.toll = toll
            self.on.carry(channel, topics)

    def _take_suggestion(self, quote: Quote, now: float) -> list[Action]:
        carried = {found.topic for found in quote.topics}
        if not carried & set(self.wanted):
            return []
        if self.policy.obeys or self._choice().saving(quote) > 0:
            return [*self._come(quote, now), *self._settle(now)]
        return []

    def _take_invitation(self, quote: Quote, now: float) -> list[Action]:
        """Change over to the cheapest cover by clusters one is on or invited to, if it is worth it.

        Clusters that it is without are left as soon as everything comes from elsewhere.
        """
        self._invitations[quote.channel] = quote
        while len(self._invitations) > _MOST_INVITATIONS:
            del self._invitations[next(iter(self._invitations))]
        staying = {n: h for n, h in self.on.items() if not (h.leaving or h.parting)}
        mine = [
            Quote(name, tuple(TopicFlow(t, f) for t, f in held.topics.items()), held.toll)
            for name, held in self.on.clusters.items()
            if name in staying
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
            self._part(found.channel, found.channel not in names)
        return [*actions, *self._settle(now)]

    def _is_provided(self, topic: str) -> bool:
        """Whether a topic comes, or will once a channel has confirmed."""
        return any(not (h.leaving or h.parting) for h in self.on.sources(topic).values())

    def _settle(self, now: float) -> list[Action]:
        """Bring what we are on in line with what we want: join first, leave after.

        Only for what was touched: nothing else can have come out of line.
        """
        actions: list[Action] = []
        touched, self.on.touched = self.on.touched, {}
        channels, self.on.changed = self.on.changed, {}
        for topic in touched:
            actions += self._provide(topic, now)
            channels |= dict.fromkeys(self.on.sources(topic))
        if not self._uncovered:
            channels |= self._owing
            actions += self._give_words()
        for name in channels:
            if self._can_leave(name):
                actions += self._go(name, now)
        return actions

    def _give_words(self) -> list[Action]:
        """Tell the clusters that wait for it that we rely on nothing older any more."""
        owing, self._owing = self._owing, {}
        actions: list[Action] = []
        for name in owing:
            held = self.on[name]
            assert held.owes is not None
            actions.append(Send(name, Settled(held.owes, self.needs(name), self.channels())))
            held.owes = None
        return actions

    def _provide(self, topic: str, now: float) -> list[Action]:
        """See to it that a topic comes, if it is wanted and its channel has told its number."""
        wanted = self.wanted.get(topic)
        if wanted is None or wanted.expected is None:
            self._uncovered.discard(topic)
            return []
        actions: list[Action] = []
        if not self._is_provided(topic):
            own = Quote(topic_channel(topic), (self._flow(topic),), self._toll(topic))
            actions = self._come(own, now)
        if self.is_covered(topic):
            self._uncovered.discard(topic)
            self.secured.add(topic)
        else:
            self._uncovered.add(topic)
        return actions

    def _can_leave(self, name: str) -> bool:
        """Whether a channel can be left now, and should."""
        held = self.on[name]
        if not held.joined or held.leaving or held.owes is not None:
            return False  # while it waits for our word it brings what it carries no more
        if any(topic in self.wanted for topic in held.topics):
            useless = held.parting or not is_cluster(name)
            return useless and all(
                self._comes_elsewhere(topic, name) for topic in held.topics if topic in self.wanted
            )
        return True

    def _comes_elsewhere(self, topic: str, channel: str) -> bool:
        """Whether a topic comes by another channel that we mean to stay on."""
        return any(
            held.brings and not held.parting and name != channel
            for name, held in self.on.sources(topic).items()
        )

    def _go(self, channel: str, now: float) -> list[Action]:
        held = self.on[channel]
        self._version += 1
        held.version, held.leaving, held.owes = self._version, True, None
        held.tries, held.again_at = 0, now + self.policy.retry
        self._owing.pop(channel, None)
        self.on.touch(channel)
        return [Send(channel, Leave(held.version)), *self._set_retry(now)]

    def _adopt(self, pulse: Pulse, now: float) -> list[Action]:
        """Follow the service's policy; after it has started anew, ask for what we missed."""
        self.policy = replace(
            self.policy, tells=pulse.tells, obeys=pulse.obeys, refresh=pulse.refresh
        )
        if pulse.epoch == self._epoch:
            return []
        self._epoch = pulse.epoch
        return [SetTimer("refresh", now + _SOON)]

    def _rejoin(self, generation: int, now: float) -> list[Action]:
        """Join all channels anew, as the service took us for dead; then ask what we missed."""
        if generation < self.generation:
            return []  # we have done so
        self.generation = generation + 1
        for name, held in [*self.on.items()]:
            if held.leaving:
                self.on.remove(name)
                continue
            self._version += 1
            held.version, held.joined, held.carry_version = self._version, False, -1
            held.owes, held.tries, held.again_at = None, 0, now
            self.on.touch(name)
        self._owing.clear()
        return [*self._retry(now), SetTimer("refresh", now + self.policy.retry)]

    # --- saying it until it is heard ---------------------------------------------------------

    def _retry(self, now: float) -> list[Action]:
        """Say what is due once more; what was said just now is given its time."""
        self._retry_at = None
        actions: list[Action] = []
        waiting = False
        for topic, wanted in self.wanted.items():
            if wanted.expected is None:
                waiting = True
                if wanted.is_due(now, self.policy.retry):
                    actions.append(Send(topic_channel(topic), Inquire()))
        for name, held in self.on.items():
            if held.leaving or not held.joined:
                waiting = True
                if held.is_due(now, self.policy.retry):
                    leave = Send(name, Leave(held.version))
                    actions.append(leave if held.leaving else self._join(name))
        return [*actions, *self._set_retry(now)] if waiting else []

    def _set_retry(self, now: float) -> list[Action]:
        if self._retry_at is not None:
            return []
        self._retry_at = now + self.policy.retry
        return [SetTimer("retry", self._retry_at)]
