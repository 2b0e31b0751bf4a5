"""Topics, the clusters they share, and who is on which channel.

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
    """Hears which channel changed: its subscribers, or what it carries."""

    def topic_changed(self, topic: int) -> None:
        """A topic's own channel has other subscribers than before."""
        ...

    def cluster_changed(self, cluster: int) -> None:
        """A cluster is new, gone, or has other subscribers or topics than before."""
        ...


class Clustering:
    """Who wants what, which topics share a channel, and who is on which channel.

    Nobody is ever without a wanted topic: a change that would leave someone so is refused with a
    ValueError, so whoever moves a subscriber joins first and leaves after. Clusters may overlap.
    What a cluster carries that a member does not want, the member's filter throws away.

    The arrays are for reading. `wants`, `direct` and `copies` (through how many channels a topic
    comes) are subscribers x topics, `member` is subscribers x clusters, `carries` clusters x
    topics. A cluster is known by its row there, which is given away again once it is gone.
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
        """How many subscribers there can be; those who want nothing are on no channel."""
        return self.wants.shape[0]

    @property
    def n_topics(self) -> int:
        """How many topics there are."""
        return self.wants.shape[1]

    @property
    def clusters(self) -> IntArray:
        """The clusters there are."""
        return np.flatnonzero(self.alive)

    @property
    def filtered(self) -> BoolArray:
        """What each subscriber gets and throws away (subscribers x topics)."""
        return (self.copies > 0) & ~self.wants

    def topics_of(self, cluster: int) -> IntArray:
        """What a cluster carries."""
        return np.flatnonzero(self.carries[cluster])

    def clusters_with(self, topic: int) -> IntArray:
        """The clusters that carry a topic."""
        return np.flatnonzero(self.carries[:, topic])

    def needed(self, cluster: int) -> BoolArray:
        """Which members (rows) want which topics (columns) that only this cluster brings them."""
        members, topics = np.flatnonzero(self.member[:, cluster]), self.topics_of(cluster)
        at = np.ix_(members, topics)
        needed: BoolArray = self.wants[at] & (self.copies[at] == 1)
        return needed

    def watch(self, watcher: Watcher) -> None:
        """Tell somebody of every change from now on."""
        self._watchers.append(watcher)

    # --- interests ---------------------------------------------------------------------------

    def want(self, who: Who, topic: int) -> None:
        """Take up an interest in what one gets already."""
        rows = _rows(who)
        if (self.copies[rows, topic] == 0).any():
            raise ValueError(f"somebody is to want topic {topic} but is on no channel with it")
        self.wants[rows, topic] = True

    def unwant(self, who: Who, topic: int) -> None:
        """Give up an interest; the channel stays."""
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
            raise ValueError(f"somebody who wants topic {topic} has it from no other channel")
        self._move(rows, topic, False)

    def _move(self, who: Who, topic: int, on: bool) -> None:
        rows = _rows(who)
        rows = rows[self.direct[rows, topic] != on]
        self.direct[rows, topic] = on
        step = len(rows) if on else -len(rows)
        self.copies[rows, topic] += 1 if on else -1
        self.topic_size[topic] += step
        if step:
            self._topic_changed(topic)

    def join(self, who: Who, cluster: int) -> None:
        """Subscribe to a cluster."""
        self._must_live(cluster)
        rows = _rows(who)
        rows = rows[~self.member[rows, cluster]]
        self.member[rows, cluster] = True
        self.copies[np.ix_(rows, self.topics_of(cluster))] += 1
        self.cluster_size[cluster] += len(rows)
        if len(rows):
            self._cluster_changed(cluster)

    def leave(self, who: Who, cluster: int) -> None:
        """Unsubscribe from a cluster."""
        self._must_live(cluster)
        rows = _rows(who)
        rows = rows[self.member[rows, cluster]]
        at = np.ix_(rows, self.topics_of(cluster))
        if (self.wants[at] & (self.copies[at] == 1)).any():
            raise ValueError(f"somebody has a wanted topic from no other channel than {cluster}")
        self.member[rows, cluster] = False
        self.copies[at] -= 1
        self.cluster_size[cluster] -= len(rows)
        if len(rows):
            self._cluster_changed(cluster)

    # --- clusters ----------------------------------------------------------------------------

    def form(self, topics: Sequence[int] | IntArray) -> int:
        """Make a cluster, with nobody on it yet."""
        free = np.flatnonzero(~self.alive)
        if not len(free):
            self._grow()
            free = np.flatnonzero(~self.alive)
        cluster = int(free[0])
        self.alive[cluster] = True
        self.carries[cluster, np.asarray(topics, np.int64)] = True
        self._cluster_changed(cluster)
        return cluster

    def add(self, cluster: int, topic: int) -> None:
        """Let a cluster carry one more topic."""
        self._must_live(cluster)
        if self.carries[cluster, topic]:
            raise ValueError(f"cluster {cluster} carries topic {topic} already")
        self.carries[cluster, topic] = True
        self.copies[self.member[:, cluster], topic] += 1
        self._cluster_changed(cluster)

    def drop(self, cluster: int, topic: int) -> None:
        """Let a cluster carry a topic no more."""
        self._must_live(cluster)
        if not self.carries[cluster, topic]:
            raise ValueError(f"cluster {cluster} does not carry topic {topic}")
        members = self.member[:, cluster]
        if (members & self.wants[:, topic] & (self.copies[:, topic] == 1)).any():
            raise ValueError(f"somebody has topic {topic} from no other channel than {cluster}")
        self.carries[cluster, topic] = False
        self.copies[members, topic] -= 1
        self._cluster_changed(cluster)

    def dissolve(self, cluster: int) -> None:
        """End a cluster that nobody is on."""
        self._must_live(cluster)
        if self.cluster_size[cluster]:
            raise ValueError(f"{self.cluster_size[cluster]} are still on cluster {cluster}")
        self.carries[cluster] = False
        self.alive[cluster] = False
        self._cluster_changed(cluster)

    def check(self) -> None:
        """Raise a ValueError unless everything here agrees and nobody lacks a wanted topic."""
        copies = self.direct + self.member.astype(np.int16) @ self.carries.astype(np.int16)
        for says, holds in (
            ("somebody lacks a wanted topic", not (self.wants & (copies == 0)).any()),
            ("copies are wrong", np.array_equal(copies, self.copies)),
            ("topic sizes are wrong", np.array_equal(self.direct.sum(0), self.topic_size)),
            ("cluster sizes are wrong", np.array_equal(self.member.sum(0), self.cluster_size)),
            ("a cluster is gone and not empty", not self.member[:, ~self.alive].any()),
            ("a cluster is gone and carries", not self.carries[~self.alive].any()),
        ):
            if not holds:
                raise ValueError(says)

    def _must_live(self, cluster: int) -> None:
        if not self.alive[cluster]:
            raise ValueError(f"there is no cluster {cluster}")

    def _grow(self) -> None:
        more = len(self.alive)
        self.member = np.pad(self.member, ((0, 0), (0, more)))
        self.carries = np.pad(self.carries, ((0, more), (0, 0)))
        self.alive = np.pad(self.alive, (0, more))
        self.cluster_size = np.pad(self.cluster_size, (0, more))

    def _topic_changed(self, topic: int) -> None:
        for watcher in self._watchers:
            watcher.topic_changed(topic)

    def _cluster_changed(self, cluster: int) -> None:
        for watcher in self._watchers:
            watcher.cluster_changed(cluster)


def _rows(who: Who) -> IntArray:
    return np.atleast_1d(np.asarray(who, np.int64))
