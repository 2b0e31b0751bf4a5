"""The channel of a cluster: decides which topics it carries and whether it should exist.

Reference: Milo et al. (2007), section 3.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from distributary.cost.updates import (
    Channel,
    estimate_addition,
    estimate_dissolution,
    estimate_merge,
    estimate_removal,
    has_enough_common,
)
from distributary.machines.actions import Action, Message, Send, SetTimer
from distributary.topics.addition import Addition, choose_addition
from distributary.topics.announcement import count_addition_notices, count_removal_notices
from distributary.topics.carriage import Carrier, ClusterState
from distributary.topics.census import Census, Views
from distributary.topics.channel import Lock, Poll
from distributary.topics.messages import (
    Accept,
    Advise,
    Await,
    Carried,
    Dropped,
    Event,
    Found,
    Invite,
    More,
    News,
    Propose,
    Rarer,
    Refuse,
    Settled,
    Tell,
    TopicFlow,
)
from distributary.topics.names import is_cluster, is_topic, members_of, topic_channel, topic_of
from distributary.topics.policy import Policy, invert_coin
from distributary.topics.triggers import Thresholds, Watches, find_thresholds

__all__ = ["ClusterChannel"]


class ClusterChannel(Carrier):
    """The `Machine` of one cluster, created by the first message to its name.

    Once it is `finished` it can be removed. A late message to its name then creates an empty one
    that is finished at once.
    """

    def __init__(
        self, name: str, policy: Policy, rng: np.random.Generator, state: ClusterState
    ) -> None:
        super().__init__(name, policy, rng, state)
        self._absorbs: Lock | None = None  # the proposal to accept once its topics are carried
        self._watches = Watches[str]()  # topics that it did not take up
        self._rates: dict[str, float] = {}  # the last known events per interval of these
        self._fallen: dict[str, None] = {}  # those that reached a threshold: an ordered set

    def start(self, now: float) -> list[Action]:
        """Start the machine, new or at another host, where the last one looked for members."""
        return [*super().start(now), self._look_later(now)]

    def _look_later(self, now: float) -> SetTimer:
        """Look for members once they had time to come."""
        return SetTimer("idle", now + self.policy.lock_for)

    def on_message(self, sender: str, message: Message, now: float) -> list[Action]:
        """Handle messages of subscribers and of other channels."""
        match message:
            case Event(topic):
                known = topic in self.state.topics or topic in self.state.dropping
                return [Send(members_of(self.name), message)] if known and self.size else []
            case Settled():
                return self._on_settled(sender, message, now)
            case Tell() | More():
                return self._on_news(sender, message, now)
            case Found(topics, invited):
                self.state.invited = invited
                return self._start_carrying(topics, now, recruit=not invited)
            case Carried():
                return self._on_carried(sender, message, now)
            case Dropped():
                return self._on_dropped(sender, message, now)
            case Rarer(flow) if is_topic(sender):
                return self._on_rarer(topic_of(sender), flow, now)
        return super().on_message(sender, message, now)

    def on_timer(self, name: str, now: float) -> list[Action]:
        """Run surveys, repeat unconfirmed messages, release the lock, or check for members."""
        return [*self._handle_timer(name, now), *self._reconsider_fallen(now)]

    def _handle_timer(self, name: str, now: float) -> list[Action]:
        match name:
            case "survey":
                return [
                    *self._next_survey(now),
                    *(self._start_poll(now) if self._is_free() else ()),
                ]
            case "answers":
                return self._conclude_poll(now)
            case "retry":
                return self._advance(now)
            case "lock":
                self.lock = None
                return []
            case "idle":
                return self._on_idle(now)
        raise ValueError(f"there is no timer {name!r}")

    def _on_idle(self, now: float) -> list[Action]:
        """End a cluster that nobody joined some time after its last change, or prune it."""
        if not self.size and not self.state.adding:
            return self._end_cluster(None, now)
        return self._prune(self.census, now) if self.policy.tells and self._is_free() else []

    # --- a topic in or out ---------------------------------------------------------------------

    def _on_news(self, sender: str, message: Tell | More, now: float) -> list[Action]:
        """Reconsider topics that a member started or stopped wanting, by a survey or at once."""
        member = self.state.members.get(sender)
        if member is None:
            return []
        before = member.views if isinstance(message, More) else Views()
        self._update_views(member, before.with_more(message.needs, message.channels))
        actions: list[Action] = []
        for news in message.news:
            if not self._is_free():
                break
            actions += self._consider_news(news, now)
        return actions

    def _consider_news(self, news: News, now: float) -> list[Action]:
        if self.policy.tells:
            return self._reconsider(self.census, now, news.topic)
        if news.wanted == (news.topic.topic in self.state.topics):
            return []
        most = invert_coin(self.policy.phi, float(self._rng.random()))
        topic = self._measure_topic(news.topic)
        if not has_enough_common(self.policy.prices, self.measure(), topic, most):
            return []
        return self._start_poll(now, (news.topic,))

    def conclude(self, poll: Poll, now: float) -> list[Action]:
        """Decide on the surveyed topic; after a regular survey, on the whole cluster."""
        if not self._is_free():
            return []
        census = Census.of(poll.answers.values())
        if poll.about:
            return [
                action for about in poll.about for action in self._reconsider(census, now, about)
            ]
        if self.policy.prunes and (changes := self._prune(census, now)):
            return changes
        own = {topic_channel(topic) for topic in self.state.topics} | {self.name}
        other = census.find_nearest(name for name in census.channels if name not in own)
        other = other or self._find_most_alike()
        return self._propose_merge(other, census, now) if other is not None else []

    def _find_most_alike(self) -> str | None:
        """The cluster that carries most of this one's topics, by the lists of section 3.2.

        Two clusters that share no subscriber never meet by surveys, even with the same topics.
        """
        common = Counter(name for held in self.state.topics.values() for name in held.others)
        return max(sorted(common), key=common.__getitem__, default=None)

    def _reconsider(self, census: Census, now: float, about: TopicFlow) -> list[Action]:
        """Add the topic, or drop it, if that pays; later if another change is in progress."""
        if not self._is_free():
            self._fallen[about.topic] = None
            self._rates[about.topic] = about.flow
            return []
        if about.topic not in self.state.topics:
            return self._try_adding(census, now, about)
        if self.policy.tells:
            return self._prune(census, now)
        return self._stop_carrying(self._find_unprofitable(census, [about.topic]), now)

    def _try_adding(self, census: Census, now: float, about: TopicFlow) -> list[Action]:
        if about.topic in self.state.dropping or not self.state.topics or not self._has_room(1):
            return []
        topic = self._measure_topic(about)
        common = census.on(topic_channel(about.topic), self.size)
        topic = Channel(max(topic.size, common), topic.flow)
        cluster = self.measure()
        change = estimate_addition(self.policy.prices, cluster, topic, common)
        notices = count_addition_notices(self.policy, cluster, topic, common)
        if not self.policy.pays(change, notices + 2.0 * common):
            return self._watch(about.topic, topic, common)
        return self._start_carrying((about.topic,), now, recruit=self.policy.tells)

    def _prune(self, census: Census, now: float) -> list[Action]:
        """End the cluster, or drop the topics that do not pay."""
        needs = [
            (Channel(held.size, held.flow), census.need(topic, self.size))
            for topic, held in self.state.topics.items()
        ]
        change = estimate_dissolution(self.policy.prices, self.measure(), needs)
        if self.policy.pays(change, 2.0 * self.size + 2.0 * sum(n for _, n in needs)):
            return self._end_cluster(None, now)
        return self._stop_carrying(self._find_unprofitable(census, list(self.state.topics)), now)

    def _find_unprofitable(self, census: Census, topics: list[str]) -> list[str]:
        cluster, found = self.measure(), []
        for topic in topics:
            held = self.state.topics[topic]
            need = census.need(topic, self.size)
            change = estimate_removal(
                self.policy.prices, cluster, Channel(held.size, held.flow), need
            )
            notices = count_removal_notices(self.policy, cluster, need)
            if self.policy.pays(change, notices + 2.0 * need):
                found.append(topic)
        return found

    def _has_room(self, topics: int) -> bool:
        return len(self.state.topics) + topics <= self.policy.most_topics

    def _measure_topic(self, about: TopicFlow) -> Channel:
        held = self.state.topics.get(about.topic)
        return Channel(held.size, held.flow) if held else Channel(self.size, about.flow)

    # --- falling sizes and frequencies (section 3.1) -------------------------------------------

    def _watch(self, name: str, topic: Channel, common: int) -> list[Action]:
        """Wait until fewer members or rarer events could make an addition pay."""
        if self.policy.tells:
            return []  # members report every change, and rates are told by the planner
        limits = find_thresholds(self.policy.prices, self.measure(), topic, common)
        self._watches.watch(name, limits)
        self._rates[name] = topic.flow
        return [Send(topic_channel(name), Await(limits.flow))] if limits.flow >= 0.0 else []

    def _watch_proposal(self, sender: str, message: Propose) -> list[Action]:
        if is_cluster(sender):
            return []
        common = min(message.common, message.size, self.size)
        flow = sum(found.flow for found in message.topics)
        return self._watch(topic_of(sender), Channel(message.size, flow), common)

    def take_refusal(self, sender: str, message: Refuse) -> list[Action]:
        """Give up a merge; a topic's channel says with how few members it would pay."""
        if self.lock == Lock(sender, message.number) and message.size and is_topic(sender):
            topic = topic_of(sender)
            self._watches.watch(topic, Thresholds(message.size, -1.0))
            self._rates[topic] = message.flow
        return super().take_refusal(sender, message)

    def lose_member(self, subscriber: str, now: float) -> list[Action]:
        """End the cluster after its last member, or reconsider topics with fewer members."""
        return [*super().lose_member(subscriber, now), *self._reconsider_fallen(now)]

    def _on_rarer(self, topic: str, flow: float, now: float) -> list[Action]:
        if topic not in self._rates:
            return []  # nobody waits for it any more
        self._watches.forget(topic)
        self._rates[topic], self._fallen[topic] = flow, None
        return self._reconsider_fallen(now)

    def _reconsider_fallen(self, now: float) -> list[Action]:
        """Survey the members about the topics of which a threshold is reached."""
        if not self._is_free() or self._poll is not None or not self.size:
            return []
        self._fallen |= dict.fromkeys(self._watches.take_reached_by_size(self.size))
        fallen, self._fallen = self._fallen, {}
        rates = {topic: self._rates.pop(topic, None) for topic in fallen}
        about = tuple(
            TopicFlow(topic, flow)
            for topic, flow in rates.items()
            if flow is not None and topic not in self.state.topics
        )
        return self._start_poll(now, about) if about else []

    # --- merging -------------------------------------------------------------------------------

    def follow_advice(self, message: Advise, now: float) -> list[Action]:
        """Propose a merge to the advised partner; without one, check whether it still pays."""
        if not self._is_free() or message.partner == self.name:
            return []
        if message.partner is not None:
            return self._propose_merge(message.partner, self.census, now)
        return self._prune(self.census, now) if self.policy.tells else self._start_poll(now)

    def _propose_merge(self, other: str, census: Census, now: float) -> list[Action]:
        if not self._has_room(1):
            return []
        number, common = self._next_counter(), census.on(other, self.size)
        propose = Propose(number, self.flows(), self.size, common)
        return [*self._lock_with(other, number, now), Send(other, propose)]

    def consider_proposal(self, sender: str, message: Propose, now: float) -> list[Action]:
        """Start to carry the other channel's topics, if the merge pays."""
        known = {found.topic for found in message.topics} & set(self.state.topics)
        if not self._is_free() or (known and not is_cluster(sender)):
            return [Send(sender, Refuse(message.number))]
        way = self._estimate_merge(sender, message)
        fits = self._has_room(len(message.topics) - len(known))
        if not fits or not self.policy.pays(way.change, way.messages):
            watching = self._watch_proposal(sender, message) if fits else []
            return [Send(sender, Refuse(message.number)), *watching]
        actions = self._lock_with(sender, message.number, now)
        accept = Accept(message.number, self.flows(), self.size)
        new = tuple(found.topic for found in message.topics if found.topic not in known)
        if not is_cluster(sender):
            carrying = self._start_carrying(new, now, recruit=way.recruit)
            return [*actions, Send(sender, accept), *carrying]
        self._absorbs = self.lock
        return actions + self._start_carrying(new, now)

    def _estimate_merge(self, sender: str, message: Propose) -> Addition:
        known = self.measure()
        common = min(message.common, message.size, self.size)
        flow = sum(found.flow for found in message.topics)
        if not is_cluster(sender):
            return choose_addition(self.policy, known, Channel(message.size, flow), common)
        shared = [found for found in message.topics if found.topic in self.state.topics]
        both = Channel(0, sum(found.flow for found in shared), len(shared))
        other = Channel(message.size, flow, len(message.topics))
        change = estimate_merge(self.policy.prices, known, other, common, both)
        return Addition(change, 2.0 * self.size + 6.0 * message.size, recruit=True)

    def complete_merge(self, sender: str, message: Accept, now: float) -> list[Action]:
        """End in favour of the other cluster, or start to carry the other channel's topic."""
        if self.lock != Lock(sender, message.number) or self.state.ended:
            return [Send(sender, Refuse(message.number))]
        if is_cluster(sender):
            return self._end_cluster(sender, now)
        return self._start_carrying((topic_of(sender),), now, recruit=message.recruit)

    def complete_carriage(self, now: float) -> list[Action]:
        """All requested topics are carried: go on with the merge that needed them."""
        if self._absorbs is None:
            return [*self._release(), *self._send_invitations(), self._look_later(now)]
        accept, self._absorbs = self._absorbs, None
        if self.lock != accept:
            return []
        return [Send(accept.partner, Accept(accept.number, self.flows(), self.size))]

    def _send_invitations(self) -> list[Action]:
        """Invite each subscriber once; if the message is lost, only a saving is lost."""
        invited, self.state.invited = self.state.invited, ()
        return [Send(name, Invite(self.quote())) for name in invited]
