"""How a cluster starts and stops carrying topics without any subscriber missing an event.

To start, the cluster asks the topic's channel first and tells its members afterwards. To stop, it
works the other way round: the cluster asks the topic's channel to stop only after every member has
confirmed that it gets the topic elsewhere or no longer wants it. Unconfirmed messages are repeated,
so lost messages and restarts only cost time.

A new topic concerns only members that are on the topic's own channel, since they can leave it.
Unless the policy announces to all, either the members or the subscribers of the topic's channel are
told once, whoever are fewer; who does not hear it is told again when it answers a survey.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from distributary.cost.updates import Channel
from distributary.machines.actions import Action, Send, SetTimer
from distributary.topics.announcement import are_members_fewer
from distributary.topics.census import Views
from distributary.topics.channel import ChannelMachine, ChannelState
from distributary.topics.messages import (
    Answer,
    CarriageChange,
    Carried,
    Carry,
    Drop,
    Dropped,
    Joined,
    Refuse,
    Settled,
    Suggest,
    TopicFlow,
)
from distributary.topics.names import topic_channel, topic_of
from distributary.topics.policy import Policy

__all__ = ["Carriage", "Carrier", "ClusterState"]


@dataclass(frozen=True, slots=True)
class Carriage:
    """A carried topic as its channel last described it."""

    flow: float
    size: int  # subscribers of the topic's own channel
    told: int = -1  # the last version that the topic's channel has confirmed
    recruit: bool = False  # ask its channel to suggest this cluster to its subscribers
    tell: bool = False  # ask its channel to tell those of its subscribers that are members
    since: int = 0  # the first version of the cluster with this topic
    others: tuple[str, ...] = ()  # the other clusters that carry it


@dataclass(slots=True)
class ClusterState(ChannelState):
    """The durable state of a cluster's channel."""

    topics: dict[str, Carriage] = field(default_factory=dict)
    adding: dict[str, bool] = field(default_factory=dict)  # requested topics; whether to recruit
    dropping: dict[str, int] = field(default_factory=dict)  # topics, and since which version
    successor: str | None = None
    ended: bool = False  # it adds no topics any more
    invited: tuple[str, ...] = ()  # to be invited once its first topics are carried


class Carrier(ChannelMachine):
    """The part of a cluster's machine that carries topics; `ClusterChannel` decides which."""

    def __init__(
        self, name: str, policy: Policy, rng: np.random.Generator, state: ClusterState
    ) -> None:
        super().__init__(name, policy, rng, state)
        self.state = state
        self._waiting = self._find_unsettled()  # members that have not confirmed the last change

    @property
    def finished(self) -> bool:
        """Whether the cluster has ended: no topics, no members, no change in progress."""
        state = self.state
        return not (state.topics or state.adding or state.dropping or state.members)

    def measure(self) -> Channel:
        """The members, and the rate and number of the topics."""
        topics = self.state.topics
        return Channel(self.size, sum(held.flow for held in topics.values()), len(topics))

    def flows(self) -> tuple[TopicFlow, ...]:
        """The topics that members can rely on, with their events per interval."""
        return tuple(TopicFlow(topic, held.flow) for topic, held in self.state.topics.items())

    def welcome(self, subscriber: str, version: int) -> Action:
        """Confirm a join, with the topics of this version."""
        return Send(subscriber, Joined(version, self.state.version, self.flows(), self.toll()))

    def start(self, now: float) -> list[Action]:
        """Start the machine, or continue the changes that a restart interrupted."""
        return super().start(now) + self._advance(now)

    def _is_free(self) -> bool:
        """Whether a new change can start now."""
        state = self.state
        return self.lock is None and not (state.ended or state.adding or state.dropping)

    # --- starting to carry ---------------------------------------------------------------------

    def _start_carrying(
        self, topics: Iterable[str], now: float, *, recruit: bool = False
    ) -> list[Action]:
        """Start to carry topics."""
        state = self.state
        if state.ended:
            return []
        new = [t for t in topics if t not in state.topics and t not in state.dropping]
        state.adding |= {topic: recruit for topic in new if topic not in state.adding}
        state.version += bool(new)
        return self._advance(now) if state.adding else self.complete_carriage(now)

    def _on_carried(self, sender: str, message: Carried, now: float) -> list[Action]:
        topic, state = topic_of(sender), self.state
        if topic in state.adding and message.version == state.version:
            recruit = state.adding.pop(topic)
            state.topics[topic] = Carriage(
                message.flow,
                message.size,
                recruit=recruit,
                since=state.version + 1,
                others=message.clusters,
            )
            if state.adding:
                return []
            state.version += 1
            told = self._tell_concerned()
            return [*told, *self._advance(now), *self.complete_carriage(now)]
        held = state.topics.get(topic)
        if held is not None:
            told_at = max(held.told, message.version)
            state.topics[topic] = replace(
                held,
                flow=message.flow,
                size=message.size,
                told=told_at,
                recruit=held.recruit and told_at < state.version,
                tell=held.tell and told_at < state.version,
                others=message.clusters,
            )
            return []
        # An old request of this cluster has arrived late; undo it.
        unknown = topic not in state.adding and topic not in state.dropping
        return [Send(sender, Drop(message.version))] if unknown else []

    @abstractmethod
    def complete_carriage(self, now: float) -> list[Action]:
        """Called when all requested topics are carried."""

    # --- stopping to carry ---------------------------------------------------------------------

    def _stop_carrying(self, topics: Iterable[str], now: float) -> list[Action]:
        """Start to drop topics."""
        state = self.state
        gone = [topic for topic in topics if topic in state.topics]
        if not gone:
            return []
        if len(gone) == len(state.topics):
            state.ended = True
        state.version += 1
        for topic in gone:
            del state.topics[topic]
            state.dropping[topic] = state.version
        return self._advance(now)

    def _end_cluster(self, successor: str | None, now: float) -> list[Action]:
        """Start to drop all topics and end the cluster."""
        self.state.ended = True
        self.state.successor = successor
        return self._stop_carrying(list(self.state.topics), now)

    def _on_settled(self, sender: str, message: Settled, now: float) -> list[Action]:
        member = self.state.members.get(sender)
        if member is None or message.carry_version < member.settled:
            return []
        member.settled = message.carry_version
        self._update_views(member, Views(message.needs, message.channels))
        if member.settled < self._find_last_change():
            return []
        return self._stop_waiting_for(sender, now)

    def _on_dropped(self, sender: str, message: Dropped, now: float) -> list[Action]:
        topic, state = topic_of(sender), self.state
        if message.version >= state.dropping.get(topic, message.version + 1):
            del state.dropping[topic]
        if topic in state.adding and message.version >= state.version:
            del state.adding[topic]  # it knows a later version than we do: start over
            state.ended = not (state.adding or state.topics)
        elif topic in state.topics and message.version >= state.version:
            return self._stop_carrying([topic], now)  # the topic was removed
        if not self.finished or self.lock is None:
            return []
        refuse = Refuse(self.lock.number)
        return [Send(self.lock.partner, refuse), *self._release()]

    def lose_member(self, subscriber: str, now: float) -> list[Action]:
        """End the cluster after its last member, unless it is still being formed."""
        if not self.state.members and not self.state.adding:
            self.state.ended = True
            return self._stop_carrying(list(self.state.topics), now)
        return self._stop_waiting_for(subscriber, now)

    def _stop_waiting_for(self, subscriber: str, now: float) -> list[Action]:
        """Ask topics' channels to stop once the last member has confirmed the change."""
        if subscriber not in self._waiting:
            return []
        self._waiting.discard(subscriber)
        if self._waiting or not self.state.dropping:
            return []
        return [*self._request_drops(), SetTimer("retry", now + self.policy.retry)]

    def _find_unsettled(self) -> set[str]:
        last = self._find_last_change()
        return {name for name, held in self.state.members.items() if held.settled < last}

    def _find_last_change(self) -> int:
        """The last version that every member has to confirm."""
        if self.policy.announces_to_all:
            return self.state.version
        return max(self.state.dropping.values(), default=0)

    # --- telling those concerned ---------------------------------------------------------------

    def _tell_concerned(self) -> list[Action]:
        """Tell members of the topics that the last change has brought, or let others tell them."""
        if self.policy.announces_to_all or not self.size:
            return []
        topics, version = self.state.topics, self.state.version
        new = {topic: held for topic, held in topics.items() if held.since == version}
        unknown = {topic: held for topic, held in new.items() if not held.recruit}  # else all know
        if not any(held.size for held in unknown.values()):
            return []
        if are_members_fewer(self.size, (held.size for held in unknown.values())):
            return [Send(name, self._describe()) for name in self.state.members]
        topics |= {topic: replace(held, tell=held.size > 0) for topic, held in unknown.items()}
        return []

    def take_answer(self, subscriber: str, message: Answer) -> list[Action]:
        """Keep the answer to a survey; tell the member what it should know and does not.

        It will need what it now gets from a topic's own channel.
        """
        member = self.state.members.get(subscriber)
        if self.policy.announces_to_all or member is None:
            return super().take_answer(subscriber, message)
        late = self._find_unknown(message)
        kept = super().take_answer(subscriber, replace(message, needs=(*message.needs, *late)))
        views = self._poll.answers.get(subscriber) if self._poll is not None else None
        if views is not None and views != member.views:
            self._update_views(member, views)
        return [*kept, Send(subscriber, self._describe())] if late else kept

    def _find_unknown(self, message: Answer) -> tuple[str, ...]:
        """The topics that a member could get here, and gets from their own channels."""
        if message.carry_version >= self.state.version:
            return ()
        on = set(message.channels)
        return tuple(
            topic
            for topic, held in self.state.topics.items()
            if held.since > message.carry_version and topic_channel(topic) in on
        )

    def _describe(self) -> Suggest:
        return Suggest(self.quote(), recruit=False)

    # --- repeating until confirmed -------------------------------------------------------------

    def _advance(self, now: float) -> list[Action]:
        """Repeat all unconfirmed messages, and set the timer of the next repetition."""
        self._waiting = self._find_unsettled()
        actions = [
            *self._request_topics(),
            *self._announce_to_members(),
            *self._announce_to_topics(),
        ]
        return [*actions, SetTimer("retry", now + self.policy.retry)] if actions else []

    def _request_topics(self) -> list[Action]:
        message = Carry(self.state.version, self.flows(), self.toll())
        return [Send(topic_channel(topic), message) for topic in self.state.adding]

    def _announce_to_members(self) -> list[Action]:
        if self.state.adding:
            return []  # the version changes again as soon as all are carried
        change = CarriageChange(self.state.version, self.flows(), self.toll(), self.state.successor)
        return [Send(name, change) for name in self.state.members if name in self._waiting]

    def _announce_to_topics(self) -> list[Action]:
        state = self.state
        if state.adding:
            return []
        news = Carry(state.version, self.flows(), self.toll())
        told = [
            Send(topic_channel(topic), replace(news, recruit=held.recruit, tell=held.tell))
            for topic, held in state.topics.items()
            if held.told < state.version
        ]
        return [*told, *(() if self._waiting else self._request_drops())]

    def _request_drops(self) -> list[Action]:
        message = Drop(self.state.version)
        return [Send(topic_channel(topic), message) for topic in self.state.dropping]
