"""A subscriber: joins the channels that bring every topic it wants, in order and exactly once.

It joins before it leaves: it leaves a channel only once everything it wants from it comes by
another channel that has confirmed. Events are numbered per topic; the subscriber drops duplicates
and requests missing events from the topic's own channel.

The cost of a message does not depend on the number of wanted topics: only topics that the message
touches are examined. A subscriber that the service has declared dead comes back: see `_rejoin`.

Reference: Milo et al. (2007), section 4.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from distributary.machines.actions import Action, Message, Send, SetTimer
from distributary.topics.attendance import Attendance, Attendances, AttendanceState, Wanted
from distributary.topics.choice import (
    Choice,
    Invitations,
    choose_best_cluster,
    choose_widest_cluster,
)
from distributary.topics.codec import Expired, Forgotten, Missed, Pulse, Resume
from distributary.topics.messages import (
    Answer,
    CarriageChange,
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

_MESSAGES_PER_MOVE = 3.0
_SOON = 0.1  # seconds
_MANY_TRIES = 2


class Subscriber(EventSequencer):
    """The `Machine` of one subscriber; the application sends it `Want` and `Unwant`."""

    def __init__(self, name: str, policy: Policy) -> None:
        super().__init__(name, policy)
        self.on = Attendances()
        self.generation = 0  # how often the service has declared it dead
        self._epoch = 0  # the latest known epoch of the service
        self.secured: set[str] = set()  # newly covered topics, for the caller to take
        self._tolls: dict[str, float] = {}  # last known, of the topics' own channels
        self._invitations = Invitations()
        self._news: set[str] = set()  # topics to report once their channel has confirmed
        self._untold: dict[str, dict[str, News]] = {}  # unsent reports by cluster and topic
        self._tell_at = 0.0  # the next reports may be sent then
        self._retry_at: float | None = None
        self._uncovered: set[str] = set()  # wanted topics that no channel brings yet
        self._owing: dict[str, None] = {}  # clusters that await a `Settled`
        self._version = 0

    # --- inspection --------------------------------------------------------------------------

    def is_covered(self, topic: str) -> bool:
        """Whether the topic's events come by a channel that has confirmed and is not being left.

        They can be delivered only once the topic's channel has told the next event's number.
        """
        wanted = self.wanted.get(topic)
        if wanted is None or wanted.expected is None:
            return False
        return any(held.brings for held in self.on.sources(topic).values())

    def needs(self, channel: str) -> tuple[str, ...]:
        """The wanted topics that no other cluster brings.

        A topic's own channel does not count, because it is left as soon as a cluster brings the
        topic.
        """
        return self.on.find_needed(channel, self.wanted)

    def _topics_of(self, channel: str) -> Iterable[str]:
        held = self.on.get(channel)
        return held.topics if held is not None else ()

    def channels(self) -> tuple[str, ...]:
        """The channels that have confirmed and are not being left."""
        return tuple(name for name, held in self.on.items() if held.brings)

    # --- inputs ------------------------------------------------------------------------------

    def on_message(self, sender: str, message: Message, now: float) -> list[Action]:
        """Handle messages of the application, of channels and of the service."""
        match message:
            case Event():
                return self._on_event(message, now)
            case Want(topic):
                return self._want(topic, now)
            case Unwant(topic):
                return self._unwant(topic, now)
            case Offer():
                return self._on_offer(topic_of(sender), message, now)
            case Joined():
                return self._on_joined(sender, message, now)
            case Left(version):
                held = self.on.get(sender)
                if held is not None and held.is_leaving and held.version == version:
                    self.on.remove(sender)
                return self._settle(now)
            case CarriageChange():
                return self._on_change(sender, message, now)
            case Suggest(quote, recruit):
                return self._on_suggestion(quote, recruit, now)
            case Invite(quote):
                return self._on_invitation(quote, now)
            case Survey(number):
                return self._answer_survey(sender, number)
            case Resume():
                return self._resume(message, now)
            case Expired():
                return self._skip(message, now)
            case Pulse():
                return self._adopt_policy(message, now)
            case Forgotten(generation):
                if sender in self.on:
                    return self._rejoin_channel(sender, now)
                return self._rejoin(generation, now)
            case Missed():
                return self._request_repairs(self._topics_of(sender))
        raise TypeError(f"a subscriber does not understand {message!r}")

    def on_timer(self, name: str, now: float) -> list[Action]:
        """Repeat unanswered requests, send reports, or request events that may have been missed."""
        if name == "retry":
            return self._retry(now)
        if name == "tell":
            return self._send_news(now)
        if name == "chase":
            return self._chase_all(now)
        if name == "refresh":
            asks = self._request_repairs(self.wanted)
            return [*asks, SetTimer("refresh", now + self.policy.refresh)] if asks else []
        raise ValueError(f"there is no timer {name!r}")

    # --- interests ---------------------------------------------------------------------------

    def _want(self, topic: str, now: float) -> list[Action]:
        if topic in self.wanted:
            return []
        self.wanted[topic] = Wanted(again_at=now + self.policy.retry)
        return [Send(topic_channel(topic), Inquire()), *self._set_retry(now)]

    def _on_offer(self, topic: str, offer: Offer, now: float) -> list[Action]:
        wanted = self.wanted.get(topic)
        if wanted is None:
            return []
        self._tolls[topic] = offer.quote.toll
        fresh = wanted.expected is None
        if fresh:
            wanted.expected, wanted.epoch = offer.next_number, offer.epoch
            wanted.flow = offer.quote.topics[0].flow
            self.on.touched[topic] = None
        for quote in offer.clusters:
            self._learn(quote)
        actions: list[Action] = [SetTimer("refresh", now + self.policy.refresh)] if fresh else []
        if self.on.is_provided(topic):
            return [
                *actions,
                *self._settle(now),
                *self._report_news(News(self._flow(topic), True), now),
            ]
        choose = choose_widest_cluster if self.policy.obeys else choose_best_cluster
        chosen = choose(topic, offer.clusters, self._build_choice())
        if chosen is None:
            self._news.add(topic)
        return [*actions, *self._start_joining(chosen or offer.quote, now), *self._settle(now)]

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
        return [*self._settle(now), *self._report_news(news, now, sources)]

    def _improve(self, clusters: list[str]) -> None:
        """Mark clusters for leaving that cost more than the topics needed from them alone."""
        for name in clusters:
            held = self.on[name]
            if held.brings and not held.parting:
                wanted = (topic for topic in held.topics if topic in self.wanted)
                alone = sum(self._toll(t) for t in wanted if not self.on.comes_elsewhere(t, name))
                self.on.set_parting(name, alone < held.toll)

    def _flow(self, topic: str) -> TopicFlow:
        return TopicFlow(topic, self.wanted[topic].flow)

    def _toll(self, topic: str) -> float:
        """The last known toll of the topic's own channel."""
        return self._tolls.get(topic, 1.0)

    def _build_choice(self) -> Choice:
        return Choice(self._is_direct, self._toll)

    def _is_direct(self, topic: str) -> bool:
        held = self.on.get(topic_channel(topic))
        return held is not None and not held.is_leaving

    def _report_news(
        self, news: News, now: float, sources: list[str] | None = None
    ) -> list[Action]:
        """Report a change to all own clusters, or to the one that sends most unwanted topics."""
        on = [n for n, held in self.on.clusters.items() if held.brings and not held.parting]
        if not self.policy.tells:
            on = [n for n in on if sources is None or n in sources]
            on = sorted(on, key=lambda n: (-len(self.on[n].topics.keys() - self.wanted), n))[:1]
        for name in on:
            self._untold.setdefault(name, {})[news.topic.topic] = news
        if not self._untold:
            return []
        if now < self._tell_at:  # limit the rate, since reports are long
            return [SetTimer("tell", self._tell_at)]
        return self._send_news(now)

    def _send_news(self, now: float) -> list[Action]:
        """Send each cluster its reports, with everything needed of it and all own channels."""
        self._tell_at = now + self.policy.retry
        untold, self._untold = self._untold, {}
        mine = self.channels()
        return [
            Send(name, Tell(tuple(news.values()), self.needs(name), mine))
            for name, news in untold.items()
            if name in self.on and self.on[name].brings
        ]

    def _answer_survey(self, channel: str, number: int) -> list[Action]:
        """Answer a survey, unless it is not known yet what the channel carries."""
        held = self.on.get(channel)
        if held is None or held.state is AttendanceState.JOINING:
            return []
        needs = self.needs(channel)
        return [Send(channel, Answer(number, held.carry_version, needs, self.channels()))]

    # --- channels ----------------------------------------------------------------------------

    def _start_joining(self, quote: Quote, now: float) -> list[Action]:
        """Start to join a channel, or cancel the decision to leave it."""
        held = self.on.get(quote.channel)
        if held is not None and not held.is_leaving:
            self.on.set_parting(quote.channel, False)
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
            return Send(channel, Join(held.version))  # it brings just its own topic
        needs = tuple(topic for topic in held.topics if topic in self.wanted)
        return Send(channel, Join(held.version, needs, self.channels()))

    def _on_joined(self, channel: str, message: Joined, now: float) -> list[Action]:
        held = self.on.get(channel)
        if held is None:  # an old join has arrived late; undo it
            return [Send(channel, Leave(message.version))]
        if held.is_leaving or held.version != message.version:
            return []
        held.state = AttendanceState.JOINED
        self._update_carriage(channel, message.carry_version, message.topics, message.toll)
        self.on.touch(channel)
        if not self.policy.obeys:  # the new channel may replace others
            near = dict.fromkeys(n for topic in held.topics for n in self.on.sources(topic))
            self._improve([name for name in near if is_cluster(name) and name != channel])
        fresh = [topic for topic in held.topics if topic in self._news]
        self._news.difference_update(fresh)
        news = [News(self._flow(topic), True) for topic in fresh]
        return [
            *self._settle(now),
            *(said for each in news for said in self._report_news(each, now)),
        ]

    def _on_change(self, channel: str, message: CarriageChange, now: float) -> list[Action]:
        held = self.on.get(channel)
        if held is None or held.is_leaving:
            return [Send(channel, Settled(message.carry_version))]
        before = set(held.topics)
        self._update_carriage(channel, message.carry_version, message.topics, message.toll)
        held.owes = max(message.carry_version, held.owes or 0)
        self._owing[channel] = None
        actions: list[Action] = []
        if message.successor is not None and not message.topics:
            topics = tuple(self._flow(topic) for topic in before & self.wanted.keys())
            if topics and self.policy.obeys:
                actions = self._start_joining(Quote(message.successor, topics, held.toll), now)
        if not self.policy.obeys:
            self._improve([channel])
        return [*actions, *self._settle(now)]

    def _update_carriage(
        self, channel: str, version: int, topics: tuple[TopicFlow, ...], toll: float
    ) -> None:
        held = self.on[channel]
        if version >= held.carry_version:
            held.carry_version = version
            held.toll = toll
            self.on.carry(channel, topics)

    def _on_suggestion(self, quote: Quote, recruit: bool, now: float) -> list[Action]:
        carried = {found.topic for found in quote.topics}
        self._learn(quote)
        if not recruit:
            return self._settle(now)
        if not carried & set(self.wanted):
            return self._settle(now)
        if self.policy.obeys or self._build_choice().estimate_saving(quote) > 0:
            return [*self._start_joining(quote, now), *self._settle(now)]
        return self._settle(now)

    def _learn(self, quote: Quote) -> None:
        """Take note of what an own cluster carries, unless something later is known already."""
        held = self.on.get(quote.channel)
        if held is not None and held.brings and quote.carry_version > held.carry_version:
            self._update_carriage(quote.channel, quote.carry_version, quote.topics, quote.toll)

    def _on_invitation(self, quote: Quote, now: float) -> list[Action]:
        """Move to the cheapest cover by own clusters and invitations, if the move pays.

        Clusters outside of the cover are left as soon as everything comes from elsewhere.
        """
        self._invitations.add(quote)
        staying = {n: h for n, h in self.on.items() if h.stays}
        mine = [
            Quote(name, tuple(TopicFlow(t, f) for t, f in held.topics.items()), held.toll)
            for name, held in self.on.clusters.items()
            if name in staying
        ]
        cover, cost = self._invitations.find_cover(self.wanted.keys(), mine, self.on, self._toll)
        now_paid = sum(held.toll for held in staying.values())
        names = {found.channel for found in cover}
        moves = len(names ^ {found.channel for found in mine})
        if not self.policy.pays(cost - now_paid, _MESSAGES_PER_MOVE * moves):
            return []
        actions: list[Action] = []
        for found in cover:
            self._invitations.drop(found.channel)
            actions += self._start_joining(found, now)
        for found in mine:
            self.on.set_parting(found.channel, found.channel not in names)
        return [*actions, *self._settle(now)]

    def _settle(self, now: float) -> list[Action]:
        """Match the channels with what is wanted: join first, leave afterwards.

        Only topics and channels that were touched are examined, since nothing else can have
        changed.
        """
        actions: list[Action] = []
        touched, self.on.touched = self.on.touched, {}
        channels, self.on.changed = self.on.changed, {}
        for topic in touched:
            actions += self._ensure_covered(topic, now)
            channels |= dict.fromkeys(self.on.sources(topic))
        if not self._uncovered:
            channels |= self._owing
            actions += self._send_settled()
        for name in channels:
            if self.on.can_leave(name, self.wanted):
                actions += self._start_leaving(name, now)
        return actions

    def _send_settled(self) -> list[Action]:
        """Confirm their last change to the clusters that wait for it."""
        owing, self._owing = self._owing, {}
        actions: list[Action] = []
        for name in owing:
            held = self.on[name]
            assert held.owes is not None
            actions.append(Send(name, Settled(held.owes, self.needs(name), self.channels())))
            held.owes = None
        return actions

    def _ensure_covered(self, topic: str, now: float) -> list[Action]:
        """Join the topic's own channel unless the topic comes or will come by another."""
        wanted = self.wanted.get(topic)
        if wanted is None or wanted.expected is None:
            self._uncovered.discard(topic)
            return []
        actions: list[Action] = []
        if not self.on.is_provided(topic):
            own = Quote(topic_channel(topic), (self._flow(topic),), self._toll(topic))
            actions = self._start_joining(own, now)
        if self.is_covered(topic):
            self._uncovered.discard(topic)
            self.secured.add(topic)
        else:
            self._uncovered.add(topic)
        return actions

    def _start_leaving(self, channel: str, now: float) -> list[Action]:
        held = self.on[channel]
        self._version += 1
        held.version, held.state, held.owes = self._version, AttendanceState.LEAVING, None
        held.tries, held.again_at = 0, now + self.policy.retry
        self._owing.pop(channel, None)
        self.on.touch(channel)
        return [Send(channel, Leave(held.version)), *self._set_retry(now)]

    def _adopt_policy(self, pulse: Pulse, now: float) -> list[Action]:
        """Follow the service's policy; after a restart of the service, request missed events."""
        self.policy = replace(
            self.policy, tells=pulse.tells, obeys=pulse.obeys, refresh=pulse.refresh
        )
        if pulse.epoch == self._epoch:
            return []
        self._epoch = pulse.epoch
        return [SetTimer("refresh", now + _SOON)]

    def _rejoin(self, generation: int, now: float) -> list[Action]:
        """Join all channels again after the service has declared this subscriber dead."""
        if generation < self.generation:
            return []  # already done
        self.generation = generation + 1
        for name, held in [*self.on.items()]:
            if held.is_leaving:
                self.on.remove(name)
                continue
            self._version += 1
            held.version, held.state = self._version, AttendanceState.JOINING
            held.carry_version = -1
            held.owes, held.tries, held.again_at = None, 0, now
            self.on.touch(name)
        self._owing.clear()
        return [*self._retry(now), SetTimer("refresh", now + self.policy.retry)]

    def _rejoin_channel(self, channel: str, now: float) -> list[Action]:
        """Join a channel again that does not know this subscriber, unless that is under way.

        A join that is not confirmed for long may be taken for one of before its death.
        """
        held = self.on[channel]
        if held.is_leaving or (not held.brings and held.tries < _MANY_TRIES):
            return []
        self._version += 1
        held.version, held.state = self._version, AttendanceState.JOINING
        held.carry_version = -1
        held.owes, held.tries, held.again_at = None, 0, now + self.policy.retry
        self._owing.pop(channel, None)
        self.on.touch(channel)
        return [
            self._join(channel),
            *self._request_repairs(held.topics),
            *self._set_retry(now),
            SetTimer("refresh", now + self.policy.retry),
        ]

    # --- repeating until confirmed -----------------------------------------------------------

    def _retry(self, now: float) -> list[Action]:
        """Repeat the unconfirmed requests that are due."""
        self._retry_at = None
        actions: list[Action] = []
        waiting = False
        for topic, wanted in self.wanted.items():
            if wanted.expected is None:
                waiting = True
                if wanted.is_due(now, self.policy.retry):
                    actions.append(Send(topic_channel(topic), Inquire()))
        for name, held in self.on.items():
            if held.state is not AttendanceState.JOINED:
                waiting = True
                if held.is_due(now, self.policy.retry):
                    leave = Send(name, Leave(held.version))
                    actions.append(leave if held.is_leaving else self._join(name))
        return [*actions, *self._set_retry(now)] if waiting else []

    def _set_retry(self, now: float) -> list[Action]:
        if self._retry_at is not None:
            return []
        self._retry_at = now + self.policy.retry
        return [SetTimer("retry", self._retry_at)]
