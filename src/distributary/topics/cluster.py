"""The channel of a cluster: which topics it carries, and whether it should.

Reference: Milo et al. (2007), section 3.
"""

from __future__ import annotations

import numpy as np

from distributary.cost.updates import (
    Channel,
    estimate_absorption,
    estimate_addition,
    estimate_dissolution,
    estimate_merge,
    estimate_removal,
    has_enough_common,
)
from distributary.machines.actions import Action, Message, Send, SetTimer
from distributary.topics.carriage import Carrier, ClusterState
from distributary.topics.census import Census, Views
from distributary.topics.channel import Lock, Poll
from distributary.topics.messages import (
    Accept,
    Advise,
    Carried,
    Dropped,
    Event,
    Found,
    Invite,
    More,
    News,
    Propose,
    Refuse,
    Settled,
    Tell,
    TopicFlow,
)
from distributary.topics.names import is_cluster, members_of, topic_channel, topic_of
from distributary.topics.policy import Policy, most_winning

__all__ = ["ClusterChannel"]


class ClusterChannel(Carrier):
    """The `Machine` of one cluster; the first message to its name makes it.

    Once it is `finished` it can be thrown away: a late message to its name makes one that knows
    nothing, carries nothing, and is finished again.
    """

    def __init__(
        self, name: str, policy: Policy, rng: np.random.Generator, state: ClusterState
    ) -> None:
        super().__init__(name, policy, rng, state)
        self._absorbs: Lock | None = None  # answer this proposal when its topics are carried

    def on_message(self, sender: str, message: Message, now: float) -> list[Action]:
        """Take in what subscribers and other channels say."""
        match message:
            case Event(topic):
                known = topic in self.state.topics or topic in self.state.dropping
                return [Send(members_of(self.name), message)] if known and self.size else []
            case Settled():
                return self._take_settled(sender, message, now)
            case Tell() | More():
                return self._take_news(sender, message, now)
            case Found(topics, invited):
                self.state.invited = invited
                return self._take_up(topics, now, recruit=not invited)
            case Carried():
                return self._take_carried(sender, message, now)
            case Dropped():
                return self._take_dropped(sender, message, now)
        return super().on_message(sender, message, now)

    def on_timer(self, name: str, now: float) -> list[Action]:
        """Survey, count the answers, say unheard things again, or give a lock up."""
        match name:
            case "survey":
                return [*self._next_survey(now), *(self._ask(now) if self._free() else ())]
            case "answers":
                return self._count(now)
            case "retry":
                return self._advance(now)
            case "lock":
                self.lock = None
                return []
            case "idle":
                return self._idle(now)
        raise ValueError(f"there is no timer {name!r}")

    def _idle(self, now: float) -> list[Action]:
        """Some time after its last change: end if nobody came, or if those who came do not pay."""
        if not self.size and not self.state.adding:
            return self._end(None, now)
        return self._prune(self.census, now) if self.policy.tells and self._free() else []

    # --- a topic in or out ---------------------------------------------------------------------

    def _take_news(self, sender: str, message: Tell | More, now: float) -> list[Action]:
        """Reconsider topics that a member has taken up or given up, by a survey or at once."""
        member = self.state.members.get(sender)
        if member is None:
            return []
        before = member.views if isinstance(message, More) else Views()
        self._see(member, before.with_more(message.needs, message.channels))
        actions: list[Action] = []
        for news in message.news:
            if not self._free():
                break
            actions += self._weigh(news, now)
        return actions

    def _weigh(self, news: News, now: float) -> list[Action]:
        if self.policy.tells:
            return self._reconsider(self.census, now, news.topic)
        if news.wanted == (news.topic.topic in self.state.topics):
            return []
        most = most_winning(self.policy.phi, float(self._rng.random()))
        topic = self._topic(news.topic)
        if not has_enough_common(self.policy.prices, self.measure(), topic, most):
            return []
        return self._ask(now, news.topic)

    def conclude(self, poll: Poll, now: float) -> list[Action]:
        """A survey about one topic decides on it; a regular one on everything."""
        if not self._free():
            return []
        census = Census.of(poll.answers.values())
        if poll.about is not None:
            return self._reconsider(census, now, poll.about)
        if self.policy.prunes and (changes := self._prune(census, now)):
            return changes
        own = {topic_channel(topic) for topic in self.state.topics} | {self.name}
        other = census.nearest(name for name in census.channels if name not in own)
        return self._offer(other, census, now) if other is not None else []

    def _reconsider(self, census: Census, now: float, about: TopicFlow) -> list[Action]:
        """Take the topic up, or give it up, if that pays."""
        if about.topic not in self.state.topics:
            return self._try_adding(census, now, about)
        if self.policy.tells:
            return self._prune(census, now)
        return self._give_up(self._find_useless(census, [about.topic]), now)

    def _try_adding(self, census: Census, now: float, about: TopicFlow) -> list[Action]:
        if about.topic in self.state.dropping or not self.state.topics or not self._has_room(1):
            return []
        topic = self._topic(about)
        common = census.on(topic_channel(about.topic), self.size)
        topic = Channel(max(topic.size, common), topic.flow)
        change = estimate_addition(self.policy.prices, self.measure(), topic, common)
        messages = 2.0 * self.size + 2.0 * common
        if not self.policy.pays(change, messages):
            return []
        return self._take_up((about.topic,), now, recruit=self.policy.tells)

    def _prune(self, census: Census, now: float) -> list[Action]:
        """End the cluster, or give up the topics that do not pay."""
        needs = [
            (Channel(held.size, held.flow), census.need(topic, self.size))
            for topic, held in self.state.topics.items()
        ]
        change = estimate_dissolution(self.policy.prices, self.measure(), needs)
        if self.policy.pays(change, 2.0 * self.size + 2.0 * sum(n for _, n in needs)):
            return self._end(None, now)
        return self._give_up(self._find_useless(census, list(self.state.topics)), now)

    def _find_useless(self, census: Census, topics: list[str]) -> list[str]:
        cluster, found = self.measure(), []
        for topic in topics:
            held = self.state.topics[topic]
            need = census.need(topic, self.size)
            change = estimate_removal(
                self.policy.prices, cluster, Channel(held.size, held.flow), need
            )
            if self.policy.pays(change, 2.0 * self.size + 2.0 * need):
                found.append(topic)
        return found

    def _has_room(self, topics: int) -> bool:
        return len(self.state.topics) + topics <= self.policy.most_topics

    def _topic(self, about: TopicFlow) -> Channel:
        held = self.state.topics.get(about.topic)
        return Channel(held.size, held.flow) if held else Channel(self.size, about.flow)

    # --- merging -------------------------------------------------------------------------------

    def follow_advice(self, message: Advise, now: float) -> list[Action]:
        """Offer a merge to the partner; without one, see whether the cluster still pays."""
        if not self._free() or message.partner == self.name:
            return []
        if message.partner is not None:
            return self._offer(message.partner, self.census, now)
        return self._prune(self.census, now) if self.policy.tells else self._ask(now)

    def _offer(self, other: str, census: Census, now: float) -> list[Action]:
        if not self._has_room(1):
            return []
        number, common = self._number(), census.on(other, self.size)
        propose = Propose(number, self.flows(), self.size, common)
        return [*self._hold(other, number, now), Send(other, propose)]

    def consider_proposal(self, sender: str, message: Propose, now: float) -> list[Action]:
        """Take up what the other carries, if the merge pays."""
        known = {found.topic for found in message.topics} & set(self.state.topics)
        if not self._free() or (known and not is_cluster(sender)):
            return [Send(sender, Refuse(message.number))]
        change, messages = self._merge_change(sender, message)
        fits = self._has_room(len(message.topics) - len(known))
        if not fits or not self.policy.pays(change, messages):
            return [Send(sender, Refuse(message.number))]
        actions = self._hold(sender, message.number, now)
        accept = Accept(message.number, self.flows(), self.size)
        new = tuple(found.topic for found in message.topics if found.topic not in known)
        if not is_cluster(sender):
            return [*actions, Send(sender, accept), *self._take_up(new, now, recruit=True)]
        self._absorbs = self.lock
        return actions + self._take_up(new, now)

    def _merge_change(self, sender: str, message: Propose) -> tuple[float, float]:
        """What the merge does to OC, and the messages it takes."""
        prices, known = self.policy.prices, self.measure()
        common = min(message.common, message.size, self.size)
        flow = sum(found.flow for found in message.topics)
        if not is_cluster(sender):
            change = estimate_absorption(prices, known, Channel(message.size, flow), common)
            return change, 2.0 * self.size + 5.0 * message.size
        shared = [found for found in message.topics if found.topic in self.state.topics]
        both = Channel(0, sum(found.flow for found in shared), len(shared))
        other = Channel(message.size, flow, len(message.topics))
        change = estimate_merge(prices, known, other, common, both)
        return change, 2.0 * self.size + 6.0 * message.size

    def complete_merge(self, sender: str, message: Accept, now: float) -> list[Action]:
        """End in favour of another cluster, or take the other's topic up."""
        if self.lock != Lock(sender, message.number) or self.state.ended:
            return [Send(sender, Refuse(message.number))]
        if is_cluster(sender):
            return self._end(sender, now)
        return self._take_up((topic_of(sender),), now, recruit=True)

    def complete_carriage(self, now: float) -> list[Action]:
        """What was asked for is carried: the merge that it was for can go on."""
        idle = SetTimer("idle", now + self.policy.lock_for)
        if self._absorbs is None:
            return [*self._release(), *self._invitations(), idle]
        accept, self._absorbs = self._absorbs, None
        if self.lock != accept:
            return []
        return [Send(accept.partner, Accept(accept.number, self.flows(), self.size))]

    def _invitations(self) -> list[Action]:
        """Said once: whoever does not hear of it stays where it is, which costs only a saving."""
        invited, self.state.invited = self.state.invited, ()
        return [Send(name, Invite(self.quote())) for name in invited]
