"""What channels of topics and of clusters share: members, surveys and locks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import numpy as np

from distributary.cost.updates import Channel, toll
from distributary.machines.actions import Action, Message, Send, SetTimer
from distributary.topics.census import Census, Views
from distributary.topics.departures import Departure, depart, last_version
from distributary.topics.messages import (
    Accept,
    Advise,
    Answer,
    Gone,
    Join,
    Leave,
    Left,
    Propose,
    Quote,
    Refuse,
    Survey,
    TopicFlow,
)
from distributary.topics.policy import Policy, sample_size

__all__ = ["ChannelMachine", "ChannelState", "Lock", "Member", "Poll"]


@dataclass(slots=True)
class Member:
    """A subscriber as its channel knows it."""

    version: int  # of its last join or leave
    settled: int = 0  # it relies only on topics carried at this version of the channel
    views: Views = field(default_factory=Views)


@dataclass(slots=True)
class ChannelState:
    """The durable state of a channel."""

    members: dict[str, Member] = field(default_factory=dict)
    departed: dict[str, Departure] = field(default_factory=dict)  # in the order of leaving
    counter: int = 0  # the last number given to a survey, a proposal or a cluster
    version: int = 0  # of what it carries


@dataclass(frozen=True, slots=True)
class Lock:
    """Reserves a channel for one merge: while it is held, the channel joins no other."""

    partner: str
    number: int


@dataclass(slots=True)
class Poll:
    """A survey in progress: about some topics, about a cluster of topics, or the whole channel.

    It concerns what the channel carries at `version`. All answers are discarded once the channel
    has changed again, and so are those of members that have not been told of this version where
    all should have been.
    """

    number: int
    version: int
    about: tuple[TopicFlow, ...] = ()
    topics: tuple[TopicFlow, ...] | None = None
    answers: dict[str, Views] = field(default_factory=dict)


class ChannelMachine(ABC):
    """The part of a channel's `Machine` that topics and clusters share.

    `state` is durable: the host records its changes before it performs the actions, and recreates
    the machine from it. Surveys and locks are volatile.
    """

    def __init__(
        self, name: str, policy: Policy, rng: np.random.Generator, state: ChannelState
    ) -> None:
        self.name = name
        self.policy = policy
        self.lock: Lock | None = None
        self.census = Census.of(member.views for member in state.members.values())
        self._rng = rng
        self._members = state
        self._poll: Poll | None = None

    # --- implemented by topics and clusters ----------------------------------------------------

    @abstractmethod
    def measure(self) -> Channel:
        """The size and the rate of the channel, from which costs are estimated."""

    @abstractmethod
    def flows(self) -> tuple[TopicFlow, ...]:
        """The topics that the channel carries, with their events per interval."""

    @abstractmethod
    def conclude(self, poll: Poll, now: float) -> list[Action]:
        """Act on the answers to a finished survey."""

    @abstractmethod
    def welcome(self, subscriber: str, version: int) -> Action:
        """Confirm that a subscriber has joined."""

    def lose_member(self, subscriber: str, now: float) -> list[Action]:
        """Act on the departure of a subscriber."""
        return []

    @abstractmethod
    def consider_proposal(self, sender: str, message: Propose, now: float) -> list[Action]:
        """Answer another channel that proposes to merge."""

    @abstractmethod
    def complete_merge(self, sender: str, message: Accept, now: float) -> list[Action]:
        """Carry out a merge that the other channel has accepted."""

    @abstractmethod
    def follow_advice(self, message: Advise, now: float) -> list[Action]:
        """Act on the advice of a planner."""

    # --- inputs --------------------------------------------------------------------------------

    def on_message(self, sender: str, message: Message, now: float) -> list[Action]:
        """Handle messages to channels of any kind."""
        match message:
            case Join():
                return self._join(sender, message)
            case Leave():
                return self._leave(sender, message, now)
            case Gone():
                return self._remove_dead(message, now)
            case Answer():
                return self.take_answer(sender, message)
            case Propose():
                return self.consider_proposal(sender, message, now)
            case Accept():
                return self.complete_merge(sender, message, now)
            case Refuse():
                return self.take_refusal(sender, message)
            case Advise():
                return self.follow_advice(message, now)
        raise TypeError(f"{self.name} does not understand {message!r}")

    # --- subscribers ---------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """The number of subscribers on this channel."""
        return len(self._members.members)

    def toll(self) -> float:
        """The marginal cost of one more subscriber."""
        return toll(self.policy.prices, self.measure())

    def quote(self) -> Quote:
        """The channel with its topics and its marginal cost."""
        return Quote(self.name, self.flows(), self.toll(), self._members.version)

    def _join(self, subscriber: str, message: Join) -> list[Action]:
        held = self._members.members.get(subscriber)
        last = self._last_version(subscriber)
        if message.version < last or (held is None and message.version == last):
            return []  # outdated: a later join or leave has arrived before
        if held is None:
            held = self._members.members[subscriber] = Member(message.version)
            held.settled = self._members.version
            self.census.add(held.views)
            self._members.departed.pop(subscriber, None)
        held.version = message.version
        self._update_views(held, Views(message.needs, message.channels))
        return [self.welcome(subscriber, message.version)]

    def _leave(self, subscriber: str, message: Leave, now: float) -> list[Action]:
        if message.version < self._last_version(subscriber):
            return []
        left = Send(subscriber, Left(message.version))
        return [left, *self._forget(subscriber, message.version, now)]

    def _remove_dead(self, message: Gone, now: float) -> list[Action]:
        held = self._members.members.get(message.subscriber)
        return self._forget(message.subscriber, held.version, now) if held else []

    def _forget(self, subscriber: str, version: int, now: float) -> list[Action]:
        held = self._members.members.pop(subscriber, None)
        last = Departure(version, now)
        depart(self._members.departed, subscriber, last, self.policy.remember)
        if held is None:
            return []
        self.census.remove(held.views)
        return self.lose_member(subscriber, now)

    def _last_version(self, subscriber: str) -> int:
        held = self._members.members.get(subscriber)
        return held.version if held else last_version(self._members.departed, subscriber)

    def _update_views(self, member: Member, views: Views) -> None:
        self.census.remove(member.views)
        member.views = views
        self.census.add(views)

    # --- surveys -------------------------------------------------------------------------------

    def start(self, now: float) -> list[Action]:
        """Start the machine, new or restored."""
        return self._next_survey(now, 0.0, 1.0)

    def _next_survey(self, now: float, least: float = 0.75, most: float = 1.25) -> list[Action]:
        """Set the timer of the next survey, after a random share of the period.

        The period is randomised because two channels that survey in step would propose to each
        other and refuse each other for ever.
        """
        every = self.policy.survey_every
        if every == float("inf"):
            return []
        return [SetTimer("survey", now + every * float(self._rng.uniform(least, most)))]

    def _start_poll(
        self,
        now: float,
        about: tuple[TopicFlow, ...] = (),
        topics: tuple[TopicFlow, ...] | None = None,
    ) -> list[Action]:
        """Survey a random sample of the members, unless another survey is in progress."""
        if self._poll is not None or not self.size:
            return []
        names = sorted(self._members.members)
        n = sample_size(len(names), self.policy.sample)
        chosen = self._rng.choice(len(names), size=n, replace=False)
        self._poll = Poll(self._next_counter(), self._members.version, about, topics)
        return [
            *(Send(names[at], Survey(self._poll.number)) for at in sorted(chosen.tolist())),
            SetTimer("answers", now + self.policy.answer_within),
        ]

    def take_answer(self, subscriber: str, message: Answer) -> list[Action]:
        """Keep the answer to a survey in progress."""
        poll = self._poll
        if poll is None or poll.number != message.number:
            return []
        if self.policy.announces_to_all and message.carry_version < poll.version:
            return []
        before = poll.answers.get(subscriber, Views())
        poll.answers[subscriber] = before.with_more(message.needs, message.channels)
        return []

    def _conclude_poll(self, now: float) -> list[Action]:
        poll, self._poll = self._poll, None
        if poll is None or not poll.answers or poll.version != self._members.version:
            return []
        return self.conclude(poll, now)

    def take_refusal(self, sender: str, message: Refuse) -> list[Action]:
        """Give up the merge that the other channel has refused."""
        return self._release() if self.lock == Lock(sender, message.number) else []

    # --- locks ---------------------------------------------------------------------------------

    def _lock_with(self, partner: str, number: int, now: float) -> list[Action]:
        self.lock = Lock(partner, number)
        return [SetTimer("lock", now + self.policy.lock_for)]

    def _release(self) -> list[Action]:
        if self.lock is None:
            return []
        self.lock = None
        return [SetTimer("lock", None)]

    def _next_counter(self) -> int:
        self._members.counter += 1
        return self._members.counter
