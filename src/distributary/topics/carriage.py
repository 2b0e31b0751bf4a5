"""How a cluster takes topics up and gives them up without anybody missing an event.

It takes a topic up by asking the topic's channel first and telling its members after. It gives one
up the other way round: every member must have said that it has the topic elsewhere, or wants it no
more, before the topic's channel is told to send it here no longer. What is not confirmed is said
again, so lost messages and restarts only cost time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from distributary.cost.updates import Channel
from distributary.machines.actions import Action, Send, SetTimer
from distributary.topics.census import Views
from distributary.topics.channel import ChannelMachine, ChannelState
from distributary.topics.messages import (
    Carried,
    Carry,
    Change,
    Drop,
    Dropped,
    Joined,
    Refuse,
    Settled,
    TopicFlow,
)
from distributary.topics.names import topic_channel, topic_of
from distributary.topics.policy import Policy

__all__ = ["Carriage", "Carrier", "ClusterState"]


@dataclass(slots=True)
class Carriage:
    """A carried topic as its channel last described it."""

    flow: float
    size: int  # subscribers of the topic's own channel
    told: int = -1  # the version that the topic's channel has confirmed
    recruit: bool = False  # its channel is to suggest this cluster to its subscribers


@dataclass(slots=True)
class ClusterState(ChannelState):
    """What the channel of a cluster must find again after a restart."""

    topics: dict[str, Carriage] = field(default_factory=dict)
    adding: dict[str, bool] = field(default_factory=dict)  # asked for; whether to recruit
    dropping: dict[str, int] = field(default_factory=dict)  # since which version
    successor: str | None = None
    ended: bool = False  # it takes nothing up any more
    invited: tuple[str, ...] = ()  # to be told as soon as its first topics are carried


class Carrier(ChannelMachine):
    """The half of a cluster's machine that carries; the other half decides."""

    def __init__(
        self, name: str, policy: Policy, rng: np.random.Generator, state: ClusterState
    ) -> None:
        super().__init__(name, policy, rng, state)
        self.state = state
        self._waiting = self._find_unsettled()  # members who have not settled for the last change

    @property
    def finished(self) -> bool:
        """Whether the cluster has ended: no topics, no members, nothing under way."""
        state = self.state
        return not (state.topics or state.adding or state.dropping or state.members)

    def measure(self) -> Channel:
        """Members, and the events and number of its topics."""
        topics = self.state.topics
        return Channel(self.size, sum(held.flow for held in topics.values()), len(topics))

    def flows(self) -> tuple[TopicFlow, ...]:
        """The topics that members can rely on, with their events per interval."""
        return tuple(TopicFlow(topic, held.flow) for topic, held in self.state.topics.items())

    def welcome(self, subscriber: str, version: int) -> Action:
        """Confirm a subscriber, with the topics at this version; it relies on nothing older."""
        return Send(subscriber, Joined(version, self.state.version, self.flows(), self.toll()))

    def start(self, now: float) -> list[Action]:
        """Begin, or continue the changes that were under way before a restart."""
        return super().start(now) + self._advance(now)

    def _free(self) -> bool:
        """Whether a change can begin now."""
        state = self.state
        return self.lock is None and not (state.ended or state.adding or state.dropping)

    # --- up ------------------------------------------------------------------------------------

    def _take_up(self, topics: Iterable[str], now: float, *, recruit: bool = False) -> list[Action]:
        """Begin to carry topics."""
        state = self.state
        if state.ended:
            return []
        new = [t for t in topics if t not in state.topics and t not in state.dropping]
        state.adding |= {topic: recruit for topic in new if topic not in state.adding}
        state.version += bool(new)
        return self._advance(now) if state.adding else self.complete_carriage(now)

    def _take_carried(self, sender: str, message: Carried, now: float) -> list[Action]:
        topic, state = topic_of(sender), self.state
        if topic in state.adding and message.version == state.version:
            recruit = state.adding.pop(topic)
            state.topics[topic] = Carriage(message.flow, message.size, recruit=recruit)
            if state.adding:
                return []
            state.version += 1
            return [*self._advance(now), *self.complete_carriage(now)]
        held = state.topics.get(topic)
        if held is not None:
            held.flow, held.size = message.flow, message.size
            held.told = max(held.told, message.version)
            held.recruit = held.recruit and held.told < state.version
            return []
        # Asked for by a word of ours from long ago, which brought us back there.
        unknown = topic not in state.adding and topic not in state.dropping
        return [Send(sender, Drop(message.version))] if unknown else []

    def complete_carriage(self, now: float) -> list[Action]:
        """Act once all topics that were asked for are carried."""
        raise NotImplementedError

    # --- down ----------------------------------------------------------------------------------

    def _give_up(self, topics: Iterable[str], now: float) -> list[Action]:
        """Begin to give up topics."""
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

    def _end(self, successor: str | None, now: float) -> list[Action]:
        """Begin to give up all topics and end the cluster."""
        self.state.ended = True
        self.state.successor = successor
        return self._give_up(list(self.state.topics), now)

    def _take_settled(self, sender: str, message: Settled, now: float) -> list[Action]:
        member = self.state.members.get(sender)
        if member is None or message.carry_version < member.settled:
            return []
        member.settled = message.carry_version
        self._see(member, Views(message.needs, message.channels))
        if member.settled < self.state.version:
            return []
        return self._unwait(sender, now)

    def _take_dropped(self, sender: str, message: Dropped, now: float) -> list[Action]:
        topic, state = topic_of(sender), self.state
        if message.version >= state.dropping.get(topic, message.version + 1):
            del state.dropping[topic]
        if topic in state.adding and message.version >= state.version:
            del state.adding[topic]  # it knows a later word of ours than we do: start over
            state.ended = not (state.adding or state.topics)
        if not self.finished or self.lock is None:
            return []
        refuse = Refuse(self.lock.number)
        return [Send(self.lock.partner, refuse), *self._release()]

    def lose_member(self, subscriber: str, now: float) -> list[Action]:
        """End the cluster after its last member, unless it is still being formed."""
        if not self.state.members and not self.state.adding:
            self.state.ended = True
            return self._give_up(list(self.state.topics), now)
        return self._unwait(subscriber, now)

    def _unwait(self, subscriber: str, now: float) -> list[Action]:
        """Tell topics that they are dropped once the last member has settled."""
        if subscriber not in self._waiting:
            return []
        self._waiting.discard(subscriber)
        if self._waiting or not self.state.dropping:
            return []
        return [*self._drops(), SetTimer("retry", now + self.policy.retry)]

    def _find_unsettled(self) -> set[str]:
        state = self.state
        return {name for name, held in state.members.items() if held.settled < state.version}

    # --- saying it until it is heard -----------------------------------------------------------

    def _advance(self, now: float) -> list[Action]:
        """Repeat all unconfirmed messages, and set the timer for the next time."""
        self._waiting = self._find_unsettled()
        actions = [*self._asks(), *self._tells_members(), *self._tells_topics()]
        return [*actions, SetTimer("retry", now + self.policy.retry)] if actions else []

    def _asks(self) -> list[Action]:
        message = Carry(self.state.version, self.flows(), self.toll())
        return [Send(topic_channel(topic), message) for topic in self.state.adding]

    def _tells_members(self) -> list[Action]:
        if self.state.adding:
            return []  # one more change is coming
        change = Change(self.state.version, self.flows(), self.toll(), self.state.successor)
        return [Send(name, change) for name in self.state.members if name in self._waiting]

    def _tells_topics(self) -> list[Action]:
        state = self.state
        if state.adding:
            return []
        news = Carry(state.version, self.flows(), self.toll())
        recruiting = Carry(state.version, self.flows(), self.toll(), recruit=True)
        told = [
            Send(topic_channel(topic), recruiting if held.recruit else news)
            for topic, held in state.topics.items()
            if held.told < state.version
        ]
        return [*told, *(() if self._waiting else self._drops())]

    def _drops(self) -> list[Action]:
        message = Drop(self.state.version)
        return [Send(topic_channel(topic), message) for topic in self.state.dropping]
