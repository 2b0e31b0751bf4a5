"""Subscribers and clusters that answer each other: who joins what, and what carries which topic.

With costs that grow by the same slope in every channel OC splits by subscriber: each pays for the
clusters it joins and for the topics it takes alone, so each buys a cheap cover of its interests.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from distributary.model import FloatArray
from distributary.model.topics import BoolArray

__all__ = ["Answers"]

_MOST_ANSWERS = 12  # joins and leaves of one subscriber in a row
_EPSILON = 1e-6
_TOPIC_STARTS = 8  # few topics: trying often is cheap, and single runs differ much

Single = npt.NDArray[np.float32]


@dataclass(slots=True)
class Answers:
    """Interests and frequencies, and what one subscriber costs to keep and per event.

    Clusters are given by `carries` (clusters x topics), subscriptions by `member` (subscribers x
    clusters); arrays handed in are not changed.
    """

    wants: BoolArray
    frequency: FloatArray
    slopes: tuple[float, float] = (1.0, 1.0)
    toll: FloatArray = field(init=False)  # of each topic's own channel
    scale: float = 1.0  # how many subscribers each one here stands for
    _value: Single = field(init=False)

    def __post_init__(self) -> None:
        kept, sent = self.slopes
        self.toll = kept + sent * self.frequency
        self._value = (self.wants * self.toll).astype(np.float32)

    def sample(self, n: int, rng: np.random.Generator) -> Answers:
        """So many of the subscribers, drawn at random, in place of all."""
        if n >= len(self.wants):
            return self
        rows = np.sort(rng.choice(len(self.wants), n, replace=False))
        return Answers(self.wants[rows], self.frequency, self.slopes, scale=len(self.wants) / n)

    # --- prices --------------------------------------------------------------------------------

    def tolls(self, carries: BoolArray) -> FloatArray:
        """What one subscriber pays on each cluster."""
        kept, sent = self.slopes
        return kept + sent * (carries @ self.frequency)

    def fixed(self, carried: BoolArray) -> float:
        """What a cluster costs with nobody on it."""
        return float(carried.sum() + self.frequency[carried].sum())

    def covered(self, carries: BoolArray, member: BoolArray) -> BoolArray:
        """What comes by clusters (subscribers x topics)."""
        return self._copies(carries, member) > 0

    def paid(self, carries: BoolArray, member: BoolArray) -> FloatArray:
        """What each subscriber pays."""
        alone = self.wants & ~self.covered(carries, member)
        return member @ self.tolls(carries) + alone @ self.toll

    def cost(self, carries: BoolArray, member: BoolArray) -> float:
        """OC, but for what topics cost with nobody on them."""
        fixed = sum(self.fixed(carried) for carried in carries)
        return self.scale * float(self.paid(carries, member).sum()) + fixed

    def _copies(self, carries: BoolArray, member: BoolArray) -> Single:
        return member.astype(np.float32) @ carries.astype(np.float32)

    # --- subscribers answer --------------------------------------------------------------------

    def responded(
        self,
        carries: BoolArray,
        member: BoolArray | None = None,
        *,
        closed: BoolArray | None = None,
    ) -> BoolArray:
        """Subscriptions after everybody joined and left clusters as long as it saved something.

        Nobody joins what is `closed` to it (subscribers x clusters).
        """
        n, clusters = len(self.wants), len(carries)
        found = np.zeros((n, clusters), bool) if member is None else member.copy()
        if not clusters:
            return found
        tolls, topics = self.tolls(carries), carries.astype(np.float32).T
        rows = np.arange(n)
        for _ in range(_MOST_ANSWERS):
            if not len(rows):
                break
            value, mine = self._value[rows], found[rows]
            copies = self._copies(carries, mine)
            left = self._leave(mine, tolls - (value * (copies == 1)) @ topics)
            copies = self._copies(carries, mine)
            barred = mine if closed is None else mine | closed[rows]
            joined = self._join(mine, barred, (value * (copies == 0)) @ topics - tolls)
            found[rows] = mine
            rows = rows[left | joined]
        return found

    def _leave(self, mine: BoolArray, saving: FloatArray) -> BoolArray:
        return _flip(mine, np.where(mine, saving, -1.0), False)

    def _join(self, mine: BoolArray, barred: BoolArray, saving: FloatArray) -> BoolArray:
        return _flip(mine, np.where(barred, -1.0, saving), True)

    # --- clusters answer -----------------------------------------------------------------------

    def refined(self, carries: BoolArray, passes: int) -> BoolArray:
        """Clusters after topics came and went, and clusters ended, as members made it pay."""
        carries = carries.copy()
        member = self.responded(carries)
        for _ in range(passes):
            changed = self._exchange_topics(carries, member)
            member = self.responded(carries, member)
            used = (member.sum(axis=0) > 0) & (carries.sum(axis=1) > 1)
            carries, member = carries[used], member[:, used]
            if not changed and used.all():
                break
        return self._thinned(carries, member)

    def _thinned(self, carries: BoolArray, member: BoolArray) -> BoolArray:
        """Clusters without those whose members do about as well elsewhere; the smallest first."""
        for _ in range(len(carries)):
            for cluster in np.argsort(member.sum(axis=0), kind="stable"):
                rows, target, change = self.without(carries, member, int(cluster))
                if change < -_EPSILON:
                    member = np.delete(member, cluster, axis=1)
                    member[rows] = target
                    carries = np.delete(carries, cluster, axis=0)
                    break
            else:
                break
        return carries

    def without(
        self, carries: BoolArray, member: BoolArray, cluster: int
    ) -> tuple[npt.NDArray[np.intp], BoolArray, float]:
        """What if a cluster ended: its members, where they would go, and the change of OC."""
        rows = np.flatnonzero(member[:, cluster])
        some = Answers(self.wants[rows], self.frequency, self.slopes, scale=self.scale)
        rest = np.delete(carries, cluster, axis=0)
        target = some.responded(rest, np.delete(member[rows], cluster, axis=1))
        paid = some.paid(rest, target).sum() - some.paid(carries, member[rows]).sum()
        return rows, target, self.scale * float(paid) - self.fixed(carries[cluster])

    def _exchange_topics(self, carries: BoolArray, member: BoolArray) -> bool:
        """For each topic, the one removal and the one addition that save most (in place)."""
        size = self.scale * member.sum(axis=0)
        weight = self.scale * member.astype(np.float32).T
        kept = 1.0 + self.frequency * (1.0 + self.slopes[1] * size[:, None])
        needed = weight @ (self.wants & (self._copies(carries, member) == 1))
        removal = np.where(carries, self.toll * needed - kept, 0.0)
        removed = _best_of_each(removal, carries, False)
        common = weight @ (self.wants & (self._copies(carries, member) == 0))
        addition = np.where(carries, 0.0, kept - self.toll * common)
        return removed | _best_of_each(addition, carries, True)

    # --- starts --------------------------------------------------------------------------------

    def by_subscribers(self, groups: int, rng: np.random.Generator) -> BoolArray:
        """Clusters of the topics that pay for groups of subscribers with like interests."""
        wants = self.wants.astype(np.float32)
        group = _lloyd(wants, min(groups, len(wants)), rng)
        sizes = np.bincount(group, minlength=groups)
        counts = np.zeros((groups, wants.shape[1]), np.float32)
        np.add.at(counts, group, wants)
        kept = 1.0 + self.frequency * (1.0 + self.slopes[1] * self.scale * sizes[:, None])
        found = self.scale * self.toll * counts > kept
        several: BoolArray = found[found.sum(axis=1) > 1]
        return several

    def by_topics(self, groups: int, rng: np.random.Generator) -> BoolArray:
        """Clusters of topics with like subscribers: plain K-means."""
        n_topics = self.wants.shape[1]
        points = self.wants.T.astype(np.float32)
        group = min(
            (_lloyd(points, min(groups, n_topics), rng) for _ in range(_TOPIC_STARTS)),
            key=lambda found: _spread(points, found),
        )
        found = group == np.arange(groups)[:, None]
        several: BoolArray = found[found.sum(axis=1) > 1]
        return several


def _flip(mine: BoolArray, saving: FloatArray, on: bool) -> BoolArray:
    """Each subscriber's best single change, where it saves something (in place)."""
    best = saving.argmax(axis=1)
    rows = np.arange(len(mine))
    pays: BoolArray = saving[rows, best] > _EPSILON
    mine[rows[pays], best[pays]] = on
    return pays


def _best_of_each(change: FloatArray, carries: BoolArray, on: bool) -> bool:
    """For each topic the cluster where the change saves most, if any does (in place)."""
    if not len(carries):
        return False
    best = change.argmin(axis=0)
    topics = np.flatnonzero(change[best, np.arange(change.shape[1])] < -_EPSILON)
    carries[best[topics], topics] = on
    return bool(len(topics))


def _lloyd(
    points: Single, groups: int, rng: np.random.Generator, passes: int = 12
) -> npt.NDArray[np.intp]:
    """The group of each point after a few passes of K-means from points drawn at random."""
    centres = points[rng.choice(len(points), groups, replace=False)].copy()
    group = np.zeros(len(points), np.intp)
    for _ in range(passes):
        distance = (centres**2).sum(axis=1) - 2.0 * points @ centres.T
        nearest = distance.argmin(axis=1)
        if np.array_equal(nearest, group):
            break
        group = nearest
        for at in range(groups):
            if (group == at).any():
                centres[at] = points[group == at].mean(axis=0)
    return group


def _spread(points: Single, group: npt.NDArray[np.intp]) -> float:
    """The squared distances of points to the centres of their groups."""
    total = 0.0
    for at in np.unique(group):
        mine = points[group == at]
        total += float(((mine - mine.mean(axis=0)) ** 2).sum())
    return total
