"""Tamara at the paper's scale: thousands of subscribers over months, decision by decision.

The decisions and their estimates are those of the machines in `distributary.topics`. What happens
between decisions is not simulated: a survey is a random draw, a move is instantaneous, and the
messages that the machines would send are only counted.

Reference: Milo et al. (2007), sections 3 to 5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

import numpy as np

from distributary.cost.topics import CostLedger, unclustered_cost
from distributary.cost.updates import (
    Channel,
    estimate_addition,
    estimate_dissolution,
    estimate_merge,
    estimate_pairing,
    estimate_removal,
    has_enough_common,
    toll,
)
from distributary.model import FloatArray, IntArray
from distributary.model.topics import BoolArray
from distributary.topics.addition import choose_addition
from distributary.topics.announcement import (
    count_addition_notices,
    count_quotes,
    count_removal_notices,
)
from distributary.topics.policy import invert_coin, sample_size
from distributary.topics.round_updates import RoundUpdates
from distributary.topics.triggers import Watches, find_thresholds

__all__ = ["CostSample", "Requests", "TopicRounds"]

TOPIC, CLUSTER = 0, 1


@dataclass(frozen=True, slots=True)
class Requests:
    """Who wants or stops wanting which topic when, in order; times in maintenance intervals."""

    time: FloatArray
    subscriber: IntArray
    topic: IntArray
    wanted: BoolArray


@dataclass(frozen=True, slots=True)
class CostSample:
    """Costs at a time in messages per interval; overhead is the mean since the last sample."""

    time: float
    scribe: float
    maintenance: float
    dissemination: float
    overhead: float
    clusters: int

    @property
    def cost(self) -> float:
        """OC."""
        return self.maintenance + self.dissemination

    @classmethod
    def mean(cls, samples: Sequence[CostSample]) -> CostSample:
        """The mean of several runs at one time; the clusters are rounded."""
        n = len(samples)
        return cls(
            samples[0].time,
            sum(s.scribe for s in samples) / n,
            sum(s.maintenance for s in samples) / n,
            sum(s.dissemination for s in samples) / n,
            sum(s.overhead for s in samples) / n,
            round(sum(s.clusters for s in samples) / n),
        )


@dataclass(slots=True)
class TopicRounds(RoundUpdates):
    """A clustering that changes by subscriptions and surveys, with its cost.

    `survey_every` is in intervals.
    """

    survey_every: float = 240.0
    watches_falls: bool = True  # of clusters' sizes and of topics' frequencies (section 3.1)
    now: float = 0.0
    _due: list[tuple[float, int, int, int]] = field(init=False, default_factory=list)
    _scheduled: int = field(init=False, default=0)
    _watches: dict[int, Watches[int]] = field(init=False, default_factory=dict)
    _changed: set[int] = field(init=False, default_factory=set)  # watching clusters

    def __post_init__(self) -> None:
        self.ledger = CostLedger(self.clustering, self.frequency, self.policy.prices)
        self.topic_toll = np.zeros(self.clustering.n_topics)
        for topic in range(self.clustering.n_topics):
            self.on_topic_change(topic)
            self._schedule(TOPIC, topic, first=True)
        self.cluster_toll = np.full(len(self.clustering.alive), np.inf)
        for cluster in self.clustering.clusters:
            self.on_cluster_change(int(cluster))
            self._schedule(CLUSTER, int(cluster), first=True)
        self.clustering.watch(self)

    # --- running -------------------------------------------------------------------------------

    def run(self, requests: Requests, duration: float, moments: int) -> list[CostSample]:
        """Run all requests and surveys, and sample the costs `moments` times."""
        found = [self._sample_costs(0.0, 0)]
        at, n = 0, len(requests.time)
        for time in np.linspace(0.0, duration, moments + 1)[1:]:
            before, spent = self.now, self.messages.total()
            while True:
                request = requests.time[at] if at < n else np.inf
                survey = self._due[0][0] if self._due else np.inf
                if min(request, survey) > time:
                    break
                self.now = float(min(request, survey))
                if request <= survey:
                    self._apply_request(requests, at)
                    at += 1
                else:
                    self._run_next()
                self._reconsider_fallen()
            self.now = float(time)
            spent = self.messages.total() - spent
            found.append(self._sample_costs(spent, float(time) - before))
        return found

    def _apply_request(self, requests: Requests, at: int) -> None:
        subscriber, topic = int(requests.subscriber[at]), int(requests.topic[at])
        if requests.wanted[at]:
            self.want(subscriber, topic)
        else:
            self.unwant(subscriber, topic)

    def _run_next(self) -> None:
        _, _, kind, number = heappop(self._due)
        self.on_due(kind, number)

    def on_due(self, kind: int, number: int) -> None:
        """Survey a channel."""
        if kind == TOPIC:
            self.survey_topic(number)
            self._schedule(kind, number)
        elif self.clustering.alive[number]:
            self.survey_cluster(number)
            if self.clustering.alive[number]:
                self._schedule(kind, number)

    def _schedule(self, kind: int, number: int, *, first: bool = False) -> None:
        if self.policy.survey_every == float("inf"):
            return
        self._schedule_in(self.survey_every * (self.rng.random() if first else 1.0), kind, number)

    def _schedule_in(self, wait: float, kind: int, number: int) -> None:
        self._scheduled += 1
        heappush(self._due, (self.now + wait, self._scheduled, kind, number))

    def _sample_costs(self, spent: float, passed: float) -> CostSample:
        audience = self.clustering.wants.sum(axis=0)
        scribe = sum(unclustered_cost(audience, self.frequency, self.policy.prices))
        return CostSample(
            self.now,
            scribe,
            self.ledger.maintenance,
            self.ledger.dissemination,
            spent / passed if passed else 0.0,
            len(self.clustering.clusters),
        )

    def pair(self, one: int, other: int) -> int:
        """Form a cluster of two topics, which is surveyed from now on."""
        cluster = RoundUpdates.pair(self, one, other)
        self._schedule(CLUSTER, cluster, first=True)
        return cluster

    def change_frequency(self, topic: int, frequency: float) -> None:
        """Change a topic's events per interval; clusters reconsider it if they are rare enough."""
        changed = self.frequency.copy()  # others may have been given the same array
        changed[topic] = frequency
        self.frequency = self.ledger.frequency = changed
        carrying = self.clustering.clusters_with(topic).tolist()
        for each in (self.ledger, self):
            each.on_topic_change(topic)
            for cluster in carrying:
                each.on_cluster_change(cluster)
        for cluster in list(self._watches):
            self._survey_again(
                cluster, self._watches[cluster].take_reached_by_flow(topic, frequency)
            )

    # --- subscribers (section 4) ---------------------------------------------------------------

    def want(self, subscriber: int, topic: int) -> None:
        """Subscribe: SUBSCRIBE of the paper."""
        state = self.clustering
        self.messages["subscribe"] += 2  # a request and its answer
        if state.copies[subscriber, topic]:
            state.want(subscriber, topic)
            return
        chosen = self.choose_cluster(subscriber, topic)
        if chosen is None:
            state.follow(subscriber, topic)
            self.messages["subscribe"] += 2
            state.want(subscriber, topic)
            self._report(subscriber, topic)
            return
        state.join(subscriber, chosen)
        state.want(subscriber, topic)
        self.messages["subscribe"] += 2
        self.leave_covered_topics(np.array([subscriber]), chosen)

    def choose_cluster(self, subscriber: int, topic: int) -> int | None:
        """The cluster with the topic that replaces most direct subscriptions, if it pays."""
        state = self.clustering
        offered = self.ask_offered(topic)
        if not len(offered):
            return None
        direct = state.direct[subscriber].copy()
        direct[topic] = True
        replaced = state.carries[offered] & direct
        widest = int(np.argmax(replaced.sum(axis=1)))
        cluster = int(offered[widest])
        saved = float(self.topic_toll[replaced[widest]].sum())
        return cluster if saved > toll(self.policy.prices, self.cluster(cluster)) else None

    def ask_offered(self, topic: int) -> IntArray:
        """The clusters with the topic, and the messages to learn what they carry."""
        offered = self.clustering.clusters_with(topic)
        self.messages["subscribe"] += count_quotes(self.policy, len(offered))
        return offered

    def unwant(self, subscriber: int, topic: int) -> None:
        """Unsubscribe: UNSUBSCRIBE of the paper."""
        state = self.clustering
        self._end_interest(subscriber, topic)
        sources = np.flatnonzero(state.member[subscriber] & state.carries[:, topic])
        for cluster in sources:
            self.leave_if_cheaper(subscriber, int(cluster))
        kept = sources[state.member[subscriber, sources]]
        if len(kept):
            self._report_to(self._find_most_filtered(subscriber, kept), topic)

    def _end_interest(self, subscriber: int, topic: int) -> None:
        """Stop wanting a topic, and leave its own channel."""
        state = self.clustering
        state.unwant(subscriber, topic)
        if state.direct[subscriber, topic]:
            state.unfollow(subscriber, topic)
            self.messages["subscribe"] += 2

    def leave_if_cheaper(self, subscriber: int, cluster: int) -> bool:
        """Leave a cluster if the topics still needed from it cost less on their own channels."""
        state = self.clustering
        needs = state.wants[subscriber] & (state.copies[subscriber] == 1) & state.carries[cluster]
        alone = float(self.topic_toll[needs].sum())
        if alone >= toll(self.policy.prices, self.cluster(cluster), joining=False):
            return False
        for topic in np.flatnonzero(needs):
            state.follow(subscriber, int(topic))
        state.leave(subscriber, cluster)
        self.messages["move"] += 2 + 2 * int(needs.sum())
        self._end_if_empty(cluster)
        return True

    def _find_most_filtered(self, subscriber: int, clusters: IntArray) -> int:
        state = self.clustering
        filtered = (state.carries[clusters] & ~state.wants[subscriber]).sum(axis=1)
        return int(clusters[np.argmax(filtered)])

    def _report(self, subscriber: int, topic: int) -> None:
        mine = np.flatnonzero(self.clustering.member[subscriber])
        if len(mine):
            self._report_to(self._find_most_filtered(subscriber, mine), topic)

    def _report_to(self, cluster: int, topic: int) -> None:
        """Report a changed subscription to a cluster, which tosses the coin of section 3.1."""
        self.messages["tell"] += 1
        known, own = self.cluster(cluster), self.topic(topic)
        most = invert_coin(self.policy.phi, self.rng.random())
        if not has_enough_common(self.policy.prices, known, own, most):
            return
        sample = self._sample(np.flatnonzero(self.clustering.member[:, cluster]))
        if self.clustering.carries[cluster, topic]:
            self._try_removing(cluster, [topic], sample)
        else:
            self._try_adding(cluster, topic, sample)

    # --- surveys (section 3) -------------------------------------------------------------------

    def _sample(self, members: IntArray) -> IntArray:
        n = sample_size(len(members), self.policy.sample)
        self.messages["survey"] += 2 * n
        return members if n == len(members) else self.rng.choice(members, n, replace=False)

    def _try_adding(self, cluster: int, topic: int, sample: IntArray) -> None:
        known, own = self.cluster(cluster), self.topic(topic)
        share = known.size / max(len(sample), 1)
        common = min(round(share * int(self.clustering.direct[sample, topic].sum())), own.size)
        change = estimate_addition(self.policy.prices, known, own, common)
        notices = count_addition_notices(self.policy, known, own, common)
        if self.policy.pays(change, notices + 2.0 * common):
            self.add(cluster, topic)
        else:
            self._watch(cluster, topic, common)

    def _watch(self, cluster: int, topic: int, common: int) -> None:
        """Wait until fewer members or rarer events could make an addition pay."""
        if self.watches_falls and not self.policy.tells:
            limits = find_thresholds(
                self.policy.prices, self.cluster(cluster), self.topic(topic), common
            )
            self._watches.setdefault(cluster, Watches()).watch(topic, limits)

    def on_cluster_change(self, cluster: int) -> None:
        """Update the toll, and remember that the cluster's size may have fallen."""
        RoundUpdates.on_cluster_change(self, cluster)
        if cluster in self._watches:
            self._changed.add(cluster)

    def _reconsider_fallen(self) -> None:
        """Let clusters that have become small enough reconsider topics they did not take up."""
        changed, self._changed = sorted(self._changed), set()
        for cluster in changed:
            if not self.clustering.alive[cluster]:
                self._watches.pop(cluster, None)
                continue
            size = int(self.clustering.cluster_size[cluster])
            self._survey_again(cluster, self._watches[cluster].take_reached_by_size(size))

    def _survey_again(self, cluster: int, topics: list[int]) -> None:
        """Survey a cluster for topics that it may now take up."""
        new = [topic for topic in topics if not self.clustering.carries[cluster, topic]]
        if not (new and self.clustering.alive[cluster]):
            return
        self.updates["fallen"] += 1
        sample = self._sample(np.flatnonzero(self.clustering.member[:, cluster]))
        for topic in new:
            self._try_adding(cluster, topic, sample)

    def _try_removing(self, cluster: int, topics: list[int], sample: IntArray) -> None:
        known = self.cluster(cluster)
        for topic, needed in zip(
            topics, self._count_dependent(cluster, topics, sample), strict=True
        ):
            change = estimate_removal(self.policy.prices, known, self.topic(topic), needed)
            notices = count_removal_notices(self.policy, known, needed)
            if self.policy.pays(change, notices + 2.0 * needed):
                self.drop(cluster, topic)
                known = self.cluster(cluster)

    def _count_dependent(self, cluster: int, topics: list[int], sample: IntArray) -> list[int]:
        """Estimate from a sample how many members get each topic from this cluster alone."""
        state = self.clustering
        share = int(state.cluster_size[cluster]) / max(len(sample), 1)
        if len(topics) == 1:  # the usual case, which is faster without copying rows
            alone = state.wants[sample, topics[0]] & (state.copies[sample, topics[0]] == 1)
            return [round(share * int(np.count_nonzero(alone)))]
        counts = (state.wants[sample] & (state.copies[sample] == 1)).sum(axis=0)[topics]
        return [round(share * count) for count in counts.tolist()]

    def survey_topic(self, topic: int) -> None:
        """Survey a topic's subscribers and merge with the channel that most of them share."""
        state = self.clustering
        sample = self._sample(np.flatnonzero(state.direct[:, topic]))
        if not len(sample):
            return
        kind, other, common = self._find_nearest(
            sample, int(state.topic_size[topic]), np.array([topic]), state.clusters_with(topic)
        )
        if not common:
            return
        self.messages["merge"] += 2
        if kind == TOPIC:
            common = min(common, int(state.topic_size[other]))
            change = estimate_pairing(
                self.policy.prices, self.topic(topic), self.topic(other), common
            )
            if self.policy.pays(change, 4.0 * float(state.topic_size[[topic, other]].sum())):
                self.pair(topic, other)
        else:
            self._try_taking_up(other, topic, common)

    def survey_cluster(self, cluster: int) -> None:
        """Reconsider a cluster and its topics, then merge it with its nearest channel."""
        state = self.clustering
        sample = self._sample(np.flatnonzero(state.member[:, cluster]))
        if not len(sample):
            return
        if self.policy.prunes:
            if self._try_destroying(cluster, sample):
                return
            self._try_removing(cluster, state.topics_of(cluster).tolist(), sample)
            if not state.alive[cluster]:
                return
        size = int(state.cluster_size[cluster])
        carried, own = state.topics_of(cluster), np.array([cluster])
        kind, other, common = self._find_nearest(sample, size, carried, own)
        if not common:
            kind, other = CLUSTER, self._find_most_alike(cluster)
            if other == cluster:
                return
        self.messages["merge"] += 2
        if kind == TOPIC:
            self._try_taking_up(cluster, other, common)
        else:
            self._try_merging(cluster, other, common)

    def _find_nearest(
        self, sample: IntArray, size: int, not_topics: IntArray, not_clusters: IntArray
    ) -> tuple[int, int, int]:
        """The channel with most of the sampled subscribers, and the estimate for all of them."""
        on_topics = self.clustering.direct[sample].sum(axis=0)
        on_clusters = self.clustering.member[sample].sum(axis=0)
        on_topics[not_topics], on_clusters[not_clusters] = 0, 0
        topic, cluster = int(np.argmax(on_topics)), int(np.argmax(on_clusters))
        kind = TOPIC if on_topics[topic] >= on_clusters[cluster] else CLUSTER
        count = on_topics[topic] if kind == TOPIC else on_clusters[cluster]
        return kind, topic if kind == TOPIC else cluster, round(count * size / len(sample))

    def _find_most_alike(self, cluster: int) -> int:
        """The cluster with most topics in common, which needs no common subscriber; or itself."""
        carries = self.clustering.carries
        common = (carries & carries[cluster]).sum(axis=1)
        common[cluster] = 0
        best = int(np.argmax(common))
        return best if common[best] else cluster

    def _try_taking_up(self, cluster: int, topic: int, common: int) -> None:
        known, own = self.cluster(cluster), self.topic(topic)
        common = min(common, known.size, own.size)
        way = choose_addition(self.policy, known, own, common)
        if not self.policy.pays(way.change, way.messages):
            self._watch(cluster, topic, common)
        elif way.recruit:
            self.absorb(cluster, topic)
        else:
            self.add(cluster, topic)

    def _try_merging(self, one: int, other: int, common: int) -> None:
        state = self.clustering
        both = state.carries[one] & state.carries[other]
        shared = Channel(0, float(self.frequency[both].sum()), int(both.sum()))
        first, second = self.cluster(one), self.cluster(other)
        common = min(common, first.size, second.size)
        change = estimate_merge(self.policy.prices, first, second, common, shared)
        if self.policy.pays(change, 2.0 * second.size + 6.0 * first.size):
            self.merge(one, other)

    def _try_destroying(self, cluster: int, sample: IntArray) -> bool:
        state, known = self.clustering, self.cluster(cluster)
        topics = state.topics_of(cluster).tolist()
        needed = self._count_dependent(cluster, topics, sample)
        needs = [(self.topic(t), n) for t, n in zip(topics, needed, strict=True)]
        change = estimate_dissolution(self.policy.prices, known, needs)
        if not self.policy.pays(change, 2.0 * known.size + 2.0 * sum(needed)):
            return False
        self.destroy(cluster)
        return True
