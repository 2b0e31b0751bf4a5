"""The updates of channels that rounds decide on: who moves, and how many messages that takes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from distributary.cost.topics import CostLedger
from distributary.cost.updates import Channel, toll
from distributary.model import FloatArray, IntArray
from distributary.model.topics import Clustering
from distributary.topics.announcement import (
    count_addition_notices,
    count_channel_notices,
    count_removal_notices,
)
from distributary.topics.policy import Policy

__all__ = ["RoundUpdates"]


@dataclass(slots=True)
class RoundUpdates:
    """A clustering with its cost, its tolls and its updates.

    A toll is the price of one more subscriber. `messages` counts overhead messages by purpose;
    `updates` counts the updates of channels, and under "raised" how often an update increased OC
    against its estimate.
    """

    clustering: Clustering
    frequency: FloatArray
    policy: Policy
    rng: np.random.Generator
    messages: Counter[str] = field(default_factory=Counter)
    updates: Counter[str] = field(default_factory=Counter)
    ledger: CostLedger = field(init=False)
    topic_toll: FloatArray = field(init=False)
    cluster_toll: FloatArray = field(init=False)

    def on_topic_change(self, topic: int) -> None:
        """Update the price of one more subscriber on the topic's own channel."""
        self.topic_toll[topic] = toll(self.policy.prices, self.topic(topic))

    def on_cluster_change(self, cluster: int) -> None:
        """Update the price of one more member of a cluster; infinite if it no longer exists."""
        if cluster >= len(self.cluster_toll):
            more = len(self.clustering.alive) - len(self.cluster_toll)
            self.cluster_toll = np.pad(self.cluster_toll, (0, more), constant_values=np.inf)
        alive = self.clustering.alive[cluster]
        self.cluster_toll[cluster] = (
            toll(self.policy.prices, self.cluster(cluster)) if alive else np.inf
        )

    def topic(self, topic: int) -> Channel:
        """The data of a topic's own channel."""
        return Channel(int(self.clustering.topic_size[topic]), float(self.frequency[topic]))

    def cluster(self, cluster: int) -> Channel:
        """The data of a cluster's channel."""
        return Channel(
            int(self.clustering.cluster_size[cluster]),
            self.ledger.flow(cluster),
            int(self.clustering.carries[cluster].sum()),
        )

    def leave_covered_topics(self, who: IntArray, cluster: int) -> None:
        """Leave the own channels of the topics that a cluster brings."""
        state = self.clustering
        for topic in state.topics_of(cluster):
            rows = who[state.direct[who, topic]]
            if len(rows):
                state.unfollow(rows, int(topic))
                self.messages["move"] += 2 * len(rows)

    def add(self, cluster: int, topic: int) -> None:
        """Add a topic to a cluster; members leave the topic's own channel."""
        before = self.ledger.cost
        self.clustering.add(cluster, topic)
        self._announce_additions(cluster, [topic])
        self._list_clusters(topic)
        self.leave_covered_topics(np.flatnonzero(self.clustering.member[:, cluster]), cluster)
        self._record_update("add", before)

    def drop(self, cluster: int, topic: int) -> None:
        """Drop a topic from a cluster; members that need it first join the topic's own channel."""
        state, before = self.clustering, self.ledger.cost
        needing = state.member[:, cluster] & state.wants[:, topic] & (state.copies[:, topic] == 1)
        state.follow(np.flatnonzero(needing), topic)
        state.drop(cluster, topic)
        n = int(needing.sum())
        self.messages["move"] += 2 * n
        self._announce(cluster, count_removal_notices(self.policy, self.cluster(cluster), n), 1)
        self._list_clusters(topic)
        if not state.carries[cluster].any():
            state.leave(np.flatnonzero(state.member[:, cluster]), cluster)
        self._end_if_empty(cluster)
        self._record_update("remove", before)

    def pair(self, one: int, other: int) -> int:
        """Form a cluster of two topics and move all their subscribers to it."""
        state, before = self.clustering, self.ledger.cost
        who = np.flatnonzero(state.direct[:, one] | state.direct[:, other])
        self.messages["merge"] += 6
        self.messages["move"] += int(state.topic_size[[one, other]].sum()) + 2 * len(who)
        cluster = state.form([one, other])
        state.join(who, cluster)
        self._list_clusters(one)
        self._list_clusters(other)
        self.leave_covered_topics(who, cluster)
        self._record_update("pair", before)
        return cluster

    def absorb(self, cluster: int, topic: int) -> None:
        """Add a topic to a cluster and move all subscribers of its own channel there."""
        state, before = self.clustering, self.ledger.cost
        who = np.flatnonzero(state.direct[:, topic])
        state.add(cluster, topic)
        every = self.policy.announces_to_all  # else the topic's subscribers hear it as they move
        self._announce(cluster, 2 * int(state.cluster_size[cluster]) if every else 0, 1)
        self._list_clusters(topic)
        self.messages["move"] += 3 * len(who)
        state.join(who, cluster)
        self.leave_covered_topics(np.flatnonzero(state.member[:, cluster]), cluster)
        self._record_update("absorb", before)

    def merge(self, one: int, other: int) -> None:
        """Merge a cluster with all its members into another."""
        state, before = self.clustering, self.ledger.cost
        who = np.flatnonzero(state.member[:, one])
        self._announce(one, 2 * len(who), int(state.carries[one].sum()))
        new = np.flatnonzero(state.carries[one] & ~state.carries[other]).tolist()
        for topic in new:
            state.add(other, topic)
        self._announce_additions(other, new)
        self._list_all_clusters(one)
        state.join(who, other)
        state.leave(who, one)
        state.dissolve(one)
        self.messages["move"] += 4 * len(who)
        self.leave_covered_topics(np.flatnonzero(state.member[:, other]), other)
        self._record_update("merge", before)

    def destroy(self, cluster: int) -> None:
        """Dissolve a cluster; its members join the own channels of the topics they need."""
        state, before = self.clustering, self.ledger.cost
        members = np.flatnonzero(state.member[:, cluster])
        self._announce(cluster, 2 * len(members), int(state.carries[cluster].sum()))
        self._list_all_clusters(cluster)
        needed = state.dependencies(cluster)
        for column, topic in enumerate(state.topics_of(cluster)):
            state.follow(members[needed[:, column]], int(topic))
        self.messages["move"] += 2 * int(needed.sum()) + 2 * len(members)
        state.leave(members, cluster)
        state.dissolve(cluster)
        self._record_update("destroy", before)

    def _announce(self, cluster: int, notices: int, changed: int) -> None:
        """Count notices to subscribers, and messages to topics' channels; some topics changed."""
        carried = int(self.clustering.carries[cluster].sum())
        self.messages["announce"] += notices + count_channel_notices(self.policy, carried, changed)

    def _announce_additions(self, cluster: int, topics: list[int]) -> None:
        """Count what tells subscribers that a cluster takes up topics; one notice tells of all."""
        known, members = self.cluster(cluster), self.clustering.member[:, cluster]
        counts = [
            count_addition_notices(
                self.policy,
                known,
                self.topic(topic),
                int((members & self.clustering.direct[:, topic]).sum()),
            )
            for topic in topics
        ]
        every = self.policy.announces_to_all
        self._announce(cluster, max(counts, default=0) if every else sum(counts), len(topics))

    def _list_all_clusters(self, cluster: int) -> None:
        for topic in self.clustering.topics_of(cluster).tolist():
            self._list_clusters(topic)

    def _list_clusters(self, topic: int) -> None:
        """Count the messages of a topic's channel to its other clusters about one that changed."""
        self.messages["announce"] += max(0, len(self.clustering.clusters_with(topic)) - 1)

    def _end_if_empty(self, cluster: int) -> None:
        state = self.clustering
        if state.alive[cluster] and not state.cluster_size[cluster]:
            self.messages["announce"] += 2 * int(state.carries[cluster].sum())
            state.dissolve(cluster)

    def _record_update(self, what: str, before: float) -> None:
        self.updates[what] += 1
        self.updates["raised"] += self.ledger.cost > before + 1e-9
