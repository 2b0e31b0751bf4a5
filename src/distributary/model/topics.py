"""Topics, the clusters that share a channel, and the subscribers of each channel.

Reference: T. Milo, T. Zur, E. Verbin, "Boosting Topic-Based Publish-Subscribe Systems with Dynamic
Clustering" (2007), section 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from distributary.model.interest import IntArray

__all__ = ["BoolArray", "Clustering", "Watcher"]

BoolArray = npt.NDArray[np.bool_]
Who = int | Sequence[int] | npt.NDArray[np.integer]


class Watcher(Protocol):
    """Is notified when a channel's subscribers or topics change."""

    def on_topic_change(self, topic: int) -> None:
        """The subscribers of a topic's own channel have changed."""
        ...

    def on_cluster_change(self, cluster: int) -> None:
        """A cluster was formed or dissolved, or its subscribers or topics have changed."""
        ...


class Clustering:
    """Who wants what, which topics share a channel, and who is on which channel.

    Every subscriber always gets every topic it wants. A change that would break this raises a
    ValueError, so a caller who moves a subscriber joins the new channel before leaving the old one.
    Clusters may overlap. A member filters out topics of its clusters that it does not want.

    The arrays are read-only for callers. `wants`, `direct` and `copies` (the number of channels
    that bring a topic) are subscribers x topics, `member` is subscribers x clusters, `carries`
    clusters x topics. A cluster is identified by its row, which is reused after the cluster is
    dissolved.
    """

    def __init__(self, n_subscribers: int, n_topics: int) -> None:
        self.wants = np.zeros((n_subscribers, n_topics), bool)
        self.direct = np.zeros((n_subscribers, n_topics), bool)
        self.copies = np.zeros((n_subscribers, n_topics), np.int16)
        self.member = np.zeros((n_subscribers, 8), bool)
        self.carries = np.zeros((8, n_topics), bool)
        self.alive = np.zeros(8, bool)
        self.topic_size: IntArray = np.zeros(n_topics, np.int64)
        self.cluster_size: IntArray = np.zeros(8, np.int64)
        self._watchers: list[Watcher] = []

    @property
    def n_subscribers(self) -> int:
        """The capacity for subscribers; those who want nothing are on no channel."""
        return self.wants.shape[0]

    @property
    def n_topics(self) -> int:
        """The number of topics."""
        return self.wants.shape[1]

    @property
    def clusters(self) -> IntArray:
        """The rows of the existing clusters."""
        return np.flatnonzero(self.alive)

    @property
    def filtered(self) -> BoolArray:
        """The topics that each subscriber receives without wanting them (subscribers x topics)."""
        return (self.copies > 0) & ~self.wants

    def topics_of(self, cluster: int) -> IntArray:
        """The topics that a cluster carries."""
        return np.flatnonzero(self.carries[cluster])

    def clusters_with(self, topic: int) -> IntArray:
        """The clusters that carry a topic."""
        return np.flatnonzero(self.carries[:, topic])

    def dependencies(self, cluster: int) -> BoolArray:
        """Which members (rows) want which topics (columns) that only this cluster brings them."""
        members, topics = np.flatnonzero(self.member[:, cluster]), self.topics_of(cluster)
        at = np.ix_(members, topics)
        needed: BoolArray = self.wants[at] & (self.copies[at] == 1)
        return needed

    def watch(self, watcher: Watcher) -> None:
        """Notify a watcher of every change from now on."""
        self._watchers.append(watcher)

    # --- interests ---------------------------------------------------------------------------

    def want(self, who: Who, topic: int) -> None:
        """Add an interest in a topic that the subscriber already receives."""
        rows = _rows(who)
        if (self.copies[rows, topic] == 0).any():
            raise ValueError(f"a subscriber cannot want topic {topic}: no channel brings it")
        self.wants[rows, topic] = True

    def unwant(self, who: Who, topic: int) -> None:
        """Remove an interest; the subscriber stays on the channel."""
        self.wants[_rows(who), topic] = False

    # --- subscriptions -----------------------------------------------------------------------

    def follow(self, who: Who, topic: int) -> None:
        """Subscribe to a topic's own channel."""
        self._move(who, topic, True)

    def unfollow(self, who: Who, topic: int) -> None:
        """Unsubscribe from a topic's own channel."""
        rows = _rows(who)
        lost = self.direct[rows, topic] & self.wants[rows, topic] & (self.copies[rows, topic] == 1)
        if lost.any():
            raise ValueError(f"a subscriber who wants topic {topic} has no other channel for it")
        self._move(rows, topic, False)

    def _move(self, who: Who, topic: int, on: bool) -> None:
        rows = _rows(who)
        rows = rows[self.direct[rows, topic] != on]
        self.direct[rows, topic] = on
        step = len(rows) if on else -len(rows)
        self.copies[rows, topic] += 1 if on else -1
        self.topic_size[topic] += step
        if step:
            self._notify_topic(topic)

    def join(self, who: Who, cluster: int) -> None:
        """Subscribe to a cluster."""
        self._require_cluster(cluster)
        rows = _rows(who)
        rows = rows[~self.member[rows, cluster]]
        self.member[rows, cluster] = True
        self.copies[np.ix_(rows, self.topics_of(cluster))] += 1
        self.cluster_size[cluster] += len(rows)
        if len(rows):
            self._notify_cluster(cluster)

    def leave(self, who: Who, cluster: int) -> None:
        """Unsubscribe from a cluster."""
        self._require_cluster(cluster)
        rows = _rows(who)
        rows = rows[self.member[rows, cluster]]
        at = np.ix_(rows, self.topics_of(cluster))
        if (self.wants[at] & (self.copies[at] == 1)).any():
            raise ValueError(f"a member has no channel but cluster {cluster} for a wanted topic")
        self.member[rows, cluster] = False
        self.copies[at] -= 1
        self.cluster_size[cluster] -= len(rows)
        if len(rows):
            self._notify_cluster(cluster)

    # --- clusters ----------------------------------------------------------------------------

    def form(self, topics: Sequence[int] | IntArray) -> int:
        """Create a cluster without members and return its row."""
        free = np.flatnonzero(~self.alive)
        if not len(free):
            self._grow()
            free = np.flatnonzero(~self.alive)
        cluster = int(free[0])
        self.alive[cluster] = True
        self.carries[cluster, np.asarray(topics, np.int64)] = True
        self._notify_cluster(cluster)
        return cluster

    def add(self, cluster: int, topic: int) -> None:
        """Add a topic to a cluster."""
        self._require_cluster(cluster)
        if self.carries[cluster, topic]:
            raise ValueError(f"cluster {cluster} carries topic {topic} already")
        self.carries[cluster, topic] = True
        self.copies[self.member[:, cluster], topic] += 1
        self._notify_cluster(cluster)

    def drop(self, cluster: int, topic: int) -> None:
        """Remove a topic from a cluster."""
        self._require_cluster(cluster)
        if not self.carries[cluster, topic]:
            raise ValueError(f"cluster {cluster} does not carry topic {topic}")
        members = self.member[:, cluster]
        if (members & self.wants[:, topic] & (self.copies[:, topic] == 1)).any():
            raise ValueError(f"a member has no channel but cluster {cluster} for topic {topic}")
        self.carries[cluster, topic] = False
        self.copies[members, topic] -= 1
        self._notify_cluster(cluster)

    def dissolve(self, cluster: int) -> None:
        """Remove a cluster that has no members."""
        self._require_cluster(cluster)
        if self.cluster_size[cluster]:
            raise ValueError(f"cluster {cluster} still has {self.cluster_size[cluster]} members")
        self.carries[cluster] = False
        self.alive[cluster] = False
        self._notify_cluster(cluster)

    def check(self) -> None:
        """Raise a ValueError unless the arrays agree and everybody gets every wanted topic."""
        copies = self.direct + self.member.astype(np.int16) @ self.carries.astype(np.int16)
        for says, holds in (
            ("a subscriber lacks a wanted topic", not (self.wants & (copies == 0)).any()),
            ("copies are wrong", np.array_equal(copies, self.copies)),
            ("topic sizes are wrong", np.array_equal(self.direct.sum(0), self.topic_size)),
            ("cluster sizes are wrong", np.array_equal(self.member.sum(0), self.cluster_size)),
            ("a dissolved cluster has members", not self.member[:, ~self.alive].any()),
            ("a dissolved cluster carries topics", not self.carries[~self.alive].any()),
        ):
            if not holds:
                raise ValueError(says)

    def _require_cluster(self, cluster: int) -> None:
        if not self.alive[cluster]:
            raise ValueError(f"there is no cluster {cluster}")

    def _grow(self) -> None:
        more = len(self.alive)
        self.member = np.pad(self.member, ((0, 0), (0, more)))
        self.carries = np.pad(self.carries, ((0, more), (0, 0)))
        self.alive = np.pad(self.alive, (0, more))
        self.cluster_size = np.pad(self.cluster_size, (0, more))

    def _notify_topic(self, topic: int) -> None:
        for watcher in self._watchers:
            watcher.on_topic_change(topic)

    def _notify_cluster(self, cluster: int) -> None:
        for watcher in self._watchers:
            watcher.on_cluster_change(cluster)


def _rows(who: Who) -> IntArray:
    return np.atleast_1d(np.asarray(who, np.int64))
