"""The channel of a topic: numbers its events and forwards them to the clusters that carry it.

Reference: Milo et al. (2007), sections 2 and 3.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from math import exp, inf

import numpy as np

from distributary.cost.updates import (
    Channel,
    estimate_formation,
    estimate_pairing,
    toll,
)
from distributary.machines.actions import Action, Message, Send, SetTimer
from distributary.topics.addition import Addition, choose_addition
from distributary.topics.census import Census
from distributary.topics.channel import ChannelMachine, ChannelState, Lock, Poll
from distributary.topics.departures import Departure, depart, last_version
from distributary.topics.history import TopicHistory
from distributary.topics.messages import (
    Accept,
    Advise,
    Await,
    Carried,
    Carry,
    Drop,
    Dropped,
    Event,
    Found,
    Inquire,
    Joined,
    More,
    Offer,
    Propose,
    Publish,
    Quote,
    Rarer,
    Refuse,
    Repair,
    Suggest,
    Tell,
    TopicFlow,
)
from distributary.topics.names import (
    cluster_channel,
    is_cluster,
    members_of,
    parse_cluster_channel,
    topic_channel,
    topic_of,
)
from distributary.topics.policy import Policy
from distributary.topics.triggers import find_thresholds

__all__ = ["FlowMeter", "TopicChannel", "TopicState"]

_MOST_LISTED = 256  # topics of the clusters in one offer
_MOST_REPAIRED = 200  # events in answer to one request
_MOST_AWAITED = 256  # clusters that wait for a falling rate
_MOST_EPOCHS = 64  # a subscriber that missed more restarts may not be told of lost events


@dataclass(slots=True)
class FlowMeter:
    """Events per interval, as an exponentially weighted mean over about `memory` intervals."""

    count: float = 0.0
    weight: float = 1.0
    at: float = 0.0
    memory: float = 240.0

    def rate(self, now: float, interval: float, *, events: int = 0) -> float:
        """Add events, advance the meter to `now` and return the mean."""
        passed = max(0.0, (now - self.at) / interval)
        keep = exp(-passed / self.memory)
        self.count = self.count * keep + events
        self.weight = self.weight * keep + passed
        self.at = max(self.at, now)
        return self.mean

    @property
    def mean(self) -> float:
        """The mean at the last update."""
        return self.count / max(self.weight, 1e-9)


@dataclass(slots=True)
class _Known:
    """A cluster as it last announced itself."""

    version: int
    quote: Quote
    recruited: int = -1  # the last version that the topic's subscribers were told of


@dataclass(frozen=True, slots=True)
class _Awaited:
    """A cluster that waits until the topic has at most `flow` events per interval."""

    flow: float
    since: float


@dataclass(slots=True)
class TopicState(ChannelState):
    """The durable state of a topic's channel."""

    topic: str = ""
    meter: FlowMeter = field(default_factory=FlowMeter)
    clusters: dict[str, _Known] = field(default_factory=dict)
    dropped: dict[str, Departure] = field(default_factory=dict)  # clusters that ended it
    next_number: int = 1
    epochs: list[tuple[int, int]] = field(default_factory=list)  # (epoch, first event number)
    history: TopicHistory = field(default_factory=TopicHistory)

    @classmethod
    def new(cls, topic: str, flow: float, memory: float = 240.0) -> TopicState:
        """A topic without subscribers, with a first guess of its events per interval."""
        return cls(topic=topic, meter=FlowMeter(flow * memory, memory, 0.0, memory))

    def accept(self, payload: bytes, now: float, policy: Policy, epoch: int) -> Event:
        """Count, number and keep an event; also used to replay the event after a restart."""
        self.meter.rate(now, policy.interval, events=1)
        if epoch and (not self.epochs or self.epochs[-1][0] != epoch):
            self.epochs = [*self.epochs, (epoch, self.next_number)][-_MOST_EPOCHS:]
        event = Event(self.topic, self.next_number, payload, epoch)
        self.next_number += 1
        self.history.append(event, policy.history, policy.history_bytes)
        return event

    def epoch_of(self, number: int) -> int:
        """The epoch in which an event was accepted; 0 if it is older than the recorded epochs."""
        return next((epoch for epoch, first in reversed(self.epochs) if first <= number), 0)

    def first_number_after(self, epoch: int) -> int:
        """The number of the first event accepted after an epoch; the next number if none was.

        A subscriber that has this number or a later one from that epoch, or an earlier epoch, has
        an event that the service has lost.
        """
        later = (first for each, first in self.epochs if each > epoch)
        return next(later, self.next_number)


class TopicChannel(ChannelMachine):
    """The `Machine` of one topic."""

    def __init__(
        self, policy: Policy, rng: np.random.Generator, state: TopicState, *, epoch: int = 0
    ) -> None:
        super().__init__(topic_channel(state.topic), policy, rng, state)
        self.state = state
        self.epoch = epoch
        self._flow = state.meter.rate(state.meter.at, policy.interval)
        self._founded: tuple[Lock, str] | None = None  # the last merge and its new cluster
        self._moving_until = -inf  # until then subscribers may be moving to a cluster
        self._awaited: dict[str, _Awaited] = {}  # by cluster, in the order of asking

    def measure(self) -> Channel:
        """The direct subscribers and the topic's own rate."""
        return Channel(self.size, self._flow)

    def flows(self) -> tuple[TopicFlow, ...]:
        """The topic alone."""
        return (TopicFlow(self.state.topic, self._flow),)

    def welcome(self, subscriber: str, version: int) -> Action:
        """Confirm a join; a topic's own channel always carries the topic, at version 0."""
        return Send(subscriber, Joined(version, 0, self.flows(), self.toll()))

    def on_message(self, sender: str, message: Message, now: float) -> list[Action]:
        """Handle messages of publishers, subscribers and clusters."""
        match message:
            case Publish(payload):
                return self._publish(payload, now)
            case Inquire():
                return [Send(sender, self._offer())]
            case Repair(first):
                missed = self.state.history.since(first, _MOST_REPAIRED)
                return [Send(sender, event) for event in missed]
            case Tell() | More():
                return []  # only clusters use these
            case Carry():
                return self._carry(sender, message, now)
            case Drop():
                return self._drop(sender, message, now)
            case Await(flow) if is_cluster(sender):
                return self._await(sender, flow, now)
        return super().on_message(sender, message, now)

    def on_timer(self, name: str, now: float) -> list[Action]:
        """Start a survey, evaluate its answers, release the lock, or look at the rate."""
        self._flow = self.state.meter.rate(now, self.policy.interval)
        match name:
            case "survey":
                return [
                    *self._next_survey(now),
                    *(self._start_poll(now) if self.lock is None else ()),
                ]
            case "answers":
                return self._conclude_poll(now)
            case "lock":
                self.lock = None
                return []
            case "rate":
                return self._report_rarer(now)
        raise ValueError(f"there is no timer {name!r}")

    def _publish(self, payload: bytes, now: float) -> list[Action]:
        event = self.state.accept(payload, now, self.policy, self.epoch)
        self._flow = self.state.meter.mean
        own = [Send(members_of(self.name), event)] if self.size else []
        return [*own, *(Send(cluster, event) for cluster in self.state.clusters)]

    # --- clusters ------------------------------------------------------------------------------

    def _offer(self) -> Offer:
        """The topic's own channel, and clusters with it: the cheapest ones if they list too much.

        A subscriber of a hundred topics gets a hundred offers. If each listed ten clusters of a
        hundred topics, that would be megabytes.
        """
        quotes = [known.quote for known in self.state.clusters.values()]
        if sum(len(quote.topics) for quote in quotes) > _MOST_LISTED:
            quotes.sort(key=lambda quote: (quote.toll / max(len(quote.topics), 1), quote.channel))
            sums = itertools.accumulate(len(quote.topics) for quote in quotes)
            fitting = sum(1 for listed in sums if listed <= _MOST_LISTED)
            del quotes[max(fitting, 1) :]
        return Offer(self.quote(), tuple(quotes), self.state.next_number, self.epoch)

    def _carry(self, cluster: str, message: Carry, now: float) -> list[Action]:
        dropped = last_version(self.state.dropped, cluster)
        if message.version <= dropped:
            return [Send(cluster, Dropped(dropped))]
        known = self.state.clusters.get(cluster)
        quote = Quote(cluster, message.topics, message.toll, message.version)
        actions: list[Action] = []
        if known is None:
            known = self.state.clusters[cluster] = _Known(message.version, quote)
            self._awaited.pop(cluster, None)
            actions = self._tell_other_clusters(cluster)
        elif message.version >= known.version:
            known.version, known.quote = message.version, quote
        actions.append(self._confirm(cluster, message.version))
        tells = (message.recruit or message.tell) and known.recruited < message.version
        if tells:
            known.recruited = message.version
            self._moving_until = now + self.policy.answer_within
            suggestion = Suggest(quote, message.recruit)
            actions += [Send(name, suggestion) for name in self.state.members]
        if self._is_locked_for(cluster) and (tells or self._is_carried_by(message)):
            self._moving_until = now + self.policy.answer_within
            actions += self._release()
        return actions

    def _confirm(self, cluster: str, version: int) -> Action:
        """Tell a cluster that it gets the topic, and which other clusters do (section 3.2)."""
        others = tuple(name for name in self.state.clusters if name != cluster)
        return Send(cluster, Carried(version, self._flow, self.size, self.toll(), others))

    def _tell_other_clusters(self, changed: str) -> list[Action]:
        return [
            self._confirm(name, known.version)
            for name, known in self.state.clusters.items()
            if name != changed
        ]

    def _is_carried_by(self, message: Carry) -> bool:
        return any(found.topic == self.state.topic for found in message.topics)

    def _is_locked_for(self, cluster: str) -> bool:
        """Whether the merge that holds the lock has produced this cluster."""
        if self.lock is None:
            return False
        if cluster == self.lock.partner or self._founded == (self.lock, cluster):
            return True
        # The proposing topic founds the cluster, with a number above that of its proposal.
        number, founder = parse_cluster_channel(cluster)
        return topic_channel(founder) == self.lock.partner and number > self.lock.number

    def _drop(self, cluster: str, message: Drop, now: float) -> list[Action]:
        known = self.state.clusters.get(cluster)
        actions: list[Action] = []
        if known is None or message.version >= known.version:
            if self.state.clusters.pop(cluster, None) is not None:
                actions = self._tell_other_clusters(cluster)
            self._awaited.pop(cluster, None)
            version = max(message.version, last_version(self.state.dropped, cluster))
            last = Departure(version, now)
            depart(self.state.dropped, cluster, last, self.policy.remember)
        return [*actions, Send(cluster, Dropped(message.version))]

    # --- merging -------------------------------------------------------------------------------

    def conclude(self, poll: Poll, now: float) -> list[Action]:
        """Propose a merge to the channel with most common subscribers, or follow advice."""
        if self.lock is not None or now < self._moving_until:
            return []
        if poll.topics is not None:
            return self._found_cluster_if_it_pays(poll)
        census = Census.of(poll.answers.values())
        own = {self.name, *self.state.clusters}
        other = census.find_nearest(name for name in census.channels if name not in own)
        if other is None:
            return []
        number, common = self._next_counter(), census.on(other, self.size)
        return [
            *self._lock_with(other, number, now),
            Send(other, Propose(number, self.flows(), self.size, common)),
        ]

    def follow_advice(self, message: Advise, now: float) -> list[Action]:
        """Found a cluster for those invited; if none are, survey the own subscribers first."""
        if self.lock is not None or not message.topics:
            return []
        if not message.invited:
            return self._start_poll(now, topics=message.topics)
        return [self._found_cluster(message.topics, message.invited)]

    def _found_cluster(
        self, topics: tuple[TopicFlow, ...], invited: tuple[str, ...] = ()
    ) -> Action:
        name = cluster_channel(self._next_counter(), self.state.topic)
        return Send(name, Found(tuple(found.topic for found in topics), invited))

    def _found_cluster_if_it_pays(self, poll: Poll) -> list[Action]:
        """Found the cluster if the topic's own subscribers alone save enough by it.

        Subscribers of several of the topics would leave these for the one cluster. Subscribers of
        only the other topics can but add to the saving.
        """
        assert poll.topics is not None
        prices = self.policy.prices
        flow = sum(found.flow for found in poll.topics)
        whole = Channel(self.size, flow, len(poll.topics))
        tolls = {
            topic_channel(found.topic): toll(prices, Channel(self.size, found.flow))
            for found in poll.topics
        }
        saved = [
            sum(tolls.get(channel, 0.0) for channel in views.channels)
            for views in poll.answers.values()
        ]
        joining = [each for each in saved if each > toll(prices, whole)]
        share = self.size / len(saved)
        cluster = Channel(round(share * len(joining)), flow, len(poll.topics))
        change = estimate_formation(prices, cluster, share * sum(joining))
        if not self.policy.pays(change, 6.0 * cluster.size + self.size):
            return []
        return [self._found_cluster(poll.topics)]

    def consider_proposal(self, sender: str, message: Propose, now: float) -> list[Action]:
        """Accept a merge if it pays, unless locked or while subscribers are moving."""
        if self.lock is not None or sender in self.state.clusters or now < self._moving_until:
            return [Send(sender, Refuse(message.number))]
        way = self._estimate_proposal(sender, message)
        if not self.policy.pays(way.change, way.messages):
            return self._refuse(sender, message, now)
        accept = Accept(message.number, self.flows(), self.size, way.recruit)
        return [*self._lock_with(sender, message.number, now), Send(sender, accept)]

    def _refuse(self, sender: str, message: Propose, now: float) -> list[Action]:
        """Refuse a merge that does not pay; a cluster learns from what size on it would."""
        if self.policy.tells or not is_cluster(sender):
            return [Send(sender, Refuse(message.number))]
        flow, common = sum(f.flow for f in message.topics), min(message.common, message.size)
        other = Channel(message.size, flow, len(message.topics))
        limits = find_thresholds(self.policy.prices, other, self.measure(), min(common, self.size))
        refuse = Refuse(message.number, max(limits.size, 0), self._flow)
        return [Send(sender, refuse), *self._await(sender, limits.flow, now)]

    # --- falling frequency (section 3.1) -------------------------------------------------------

    def _await(self, cluster: str, flow: float, now: float) -> list[Action]:
        """Look at the rate once per interval until it is as low as a cluster waits for."""
        if flow < 0.0 or cluster in self.state.clusters:
            return []
        timer: list[Action] = (
            [] if self._awaited else [SetTimer("rate", now + self.policy.interval)]
        )
        self._awaited.pop(cluster, None)
        self._awaited[cluster] = _Awaited(flow, now)
        self._forget_awaited(now)
        return timer

    def _forget_awaited(self, now: float) -> None:
        """Forget who asked long ago, and the first of too many.

        Nobody says that a cluster has ended. One that still waits has surveyed its members since,
        and asks again if it still does not take the topic up.
        """
        every = self.policy.survey_every
        keep = max(self.policy.remember, 2.0 * every if every < inf else 0.0)
        for cluster, awaited in [*self._awaited.items()]:
            if len(self._awaited) <= _MOST_AWAITED and now - awaited.since <= keep:
                return
            del self._awaited[cluster]

    def _report_rarer(self, now: float) -> list[Action]:
        self._forget_awaited(now)
        reached = [name for name, held in self._awaited.items() if self._flow <= held.flow]
        for name in reached:
            del self._awaited[name]
        timer = [SetTimer("rate", now + self.policy.interval)] if self._awaited else []
        return [*(Send(name, Rarer(self._flow)) for name in reached), *timer]

    def _estimate_proposal(self, sender: str, message: Propose) -> Addition:
        common = min(message.common, message.size, self.size)
        flow = sum(found.flow for found in message.topics)
        if is_cluster(sender):
            other = Channel(message.size, flow, len(message.topics))
            return choose_addition(self.policy, other, self.measure(), common)
        other = Channel(message.size, flow)
        change = estimate_pairing(self.policy.prices, other, self.measure(), common)
        return Addition(change, 4.0 * (message.size + self.size), recruit=True)

    def complete_merge(self, sender: str, message: Accept, now: float) -> list[Action]:
        """Found the cluster that both channels agreed on."""
        if self.lock != Lock(sender, message.number):
            return [Send(sender, Refuse(message.number))]
        if is_cluster(sender):
            return []  # the cluster will announce that it carries the topic
        cluster = cluster_channel(self._next_counter(), self.state.topic)
        self._founded = (self.lock, cluster)
        return [Send(cluster, Found((self.state.topic, topic_of(sender))))]
