"""Subscribers and clusters that answer each other: who joins what, and what carries which topic.

Each subscriber pays for the clusters it joins and for the topics it takes alone what it adds to
them, so each buys a cheap cover of its interests. With the paper's prices, which grow by the same
slope in every channel, these payments add up to OC but for what channels cost with nobody on them.
With others, such as those of trees with helper peers, they depend on who else is there; what is
chosen in the end is chosen by exact costs.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from distributary.model import FloatArray, IntArray
from distributary.model.topics import BoolArray
from distributary.planning.topic_prices import Tariff

__all__ = ["Answers"]

_MOST_ANSWERS = 12  # joins and leaves of one subscriber in a row
_HOPEFUL_ANSWERS = 3  # of these, while new clusters count as full as they may become
_EPSILON = 1e-6
_TOPIC_STARTS = 8  # few topics: trying often is cheap, and single runs differ much

Single = npt.NDArray[np.float32]


@dataclass(slots=True)
class Answers:
    """Interests, frequencies and prices of some subscribers, each of whom stands for `scale`.

    Clusters are given by `carries` (clusters x topics), subscriptions by `member` (subscribers x
    clusters); arrays handed in are not changed. Subscribers who are not here count by `others`, how
    many of them are on each topic's own channel, and `rest`, how many are on each cluster.
    """

    wants: BoolArray
    frequency: FloatArray
    tariff: Tariff
    scale: float = 1.0
    others: IntArray | None = None
    _wants: Single = field(init=False)

    def __post_init__(self) -> None:
        self._wants = self.wants.astype(np.float32)

    def sample(self, n: int, rng: np.random.Generator) -> Answers:
        """So many of the subscribers, drawn at random, in place of all."""
        if n >= len(self.wants):
            return self
        rows = np.sort(rng.choice(len(self.wants), n, replace=False))
        scale = len(self.wants) / n
        return Answers(self.wants[rows], self.frequency, self.tariff, scale, self.others)

    # --- prices --------------------------------------------------------------------------------

    def covered(self, carries: BoolArray, member: BoolArray) -> BoolArray:
        """What comes by clusters (subscribers x topics)."""
        return self._copies(carries, member) > 0

    def sizes(
        self, carries: BoolArray, member: BoolArray, rest: IntArray | None = None
    ) -> tuple[IntArray, IntArray]:
        """How many are on the topics' own channels, and on the clusters."""
        alone = self.wants & ~self.covered(carries, member)
        return self._full(alone.sum(axis=0), self.others), self._full(member.sum(axis=0), rest)

    def paid(
        self, carries: BoolArray, member: BoolArray, rest: IntArray | None = None
    ) -> FloatArray:
        """What each subscriber adds to the channels it is on."""
        topics, clusters = self.sizes(carries, member, rest)
        alone = self.wants & ~self.covered(carries, member)
        own = self.tariff.leaving(topics, self.frequency)
        return member @ self.tariff.leaving(clusters, carries @ self.frequency) + alone @ own

    def fixed(
        self, carries: BoolArray, member: BoolArray, rest: IntArray | None = None
    ) -> FloatArray:
        """What each cluster costs beyond what its members pay."""
        _, sizes = self.sizes(carries, member, rest)
        flows = carries @ self.frequency
        bill = self.tariff.clusters(sizes, flows, carries)
        return bill - sizes * self.tariff.leaving(sizes, flows)

    def cost(self, carries: BoolArray, member: BoolArray, rest: IntArray | None = None) -> float:
        """OC."""
        topics, clusters = self.sizes(carries, member, rest)
        own = self.tariff.topics(topics, self.frequency).sum()
        shared = self.tariff.clusters(clusters, carries @ self.frequency, carries).sum()
        return float(own + shared)

    def _full(self, counts: npt.NDArray[np.integer] | Single, besides: IntArray | None) -> IntArray:
        found: IntArray = np.rint(self.scale * counts).astype(np.int64)
        return found if besides is None else found + besides

    def _copies(self, carries: BoolArray, member: BoolArray) -> Single:
        return _multiply(member.astype(np.float32), carries.astype(np.float32))

    # --- subscribers answer --------------------------------------------------------------------

    def responded(
        self,
        carries: BoolArray,
        member: BoolArray | None = None,
        *,
        closed: BoolArray | None = None,
        rest: IntArray | None = None,
    ) -> BoolArray:
        """Subscriptions after everybody joined and left clusters as long as it saved something.

        Nobody joins what is `closed` to it (subscribers x clusters).
        """
        n, clusters = len(self.wants), len(carries)
        found = np.zeros((n, clusters), bool) if member is None else member.copy()
        if not clusters:
            return found
        flows, rows = carries @ self.frequency, np.arange(n)
        alone = (self._wants * (self._copies(carries, found) == 0)).sum(axis=0)
        hoped = self._hoped(carries, self._full(alone, self.others), flows, closed)
        for step in range(_MOST_ANSWERS):
            if not len(rows):
                break
            topics = self._full(alone, self.others)
            least = hoped if step < _HOPEFUL_ANSWERS else 0
            on = np.maximum(self._full(found.sum(axis=0), rest), least)
            mine, wants = found[rows], self._wants[rows]
            copies = self._copies(carries, mine)
            alone -= (wants * (copies == 0)).sum(axis=0)
            back = carries * self.tariff.joining(topics, self.frequency)
            saving = self.tariff.leaving(on, flows) - _worth(wants * (copies == 1), back)
            moved = _flip(mine, np.where(mine, saving, -1.0), False)
            away = carries * self.tariff.leaving(topics, self.frequency)
            missed = wants * (self._copies(carries, mine) == 0)
            saving = _worth(missed, away) - self.tariff.joining(on, flows)
            barred = mine if closed is None else mine | closed[rows]
            moved |= _flip(mine, np.where(barred, -1.0, saving), True)
            alone += (wants * (self._copies(carries, mine) == 0)).sum(axis=0)
            found[rows] = mine
            rows = rows[moved]
        return found

    def _hoped(
        self, carries: BoolArray, topics: IntArray, flows: FloatArray, closed: BoolArray | None
    ) -> IntArray:
        """How many would join each cluster were it as cheap as a full one."""
        away = carries * self.tariff.leaving(topics, self.frequency)
        most = np.full(len(carries), self.tariff.most)
        joining: BoolArray = _worth(self._wants, away) > self.tariff.leaving(most, flows)
        if closed is not None:
            joining &= ~closed
        return self._full(joining.sum(axis=0), None)

    def changed_over(
        self,
        carries: BoolArray,
        mine: BoolArray,
        closed: BoolArray,
        least: float,
        rest: IntArray | None = None,
    ) -> tuple[BoolArray, FloatArray]:
        """Each subscriber's clusters, changed where that is worth its moves, and what it saves.

        The last clusters are new: as many as `closed` has columns, which says who is not invited.
        `mine` is what everybody is on before. A move must save the `least` an interval.
        """
        paid = self.paid(carries, mine, rest)
        target, saved = mine.copy(), np.zeros(len(mine))
        shut = np.zeros_like(mine)
        shut[:, mine.shape[1] - closed.shape[1] :] = closed
        invited = mine.copy()
        invited[:, mine.shape[1] - closed.shape[1] :] |= ~closed
        for start in (mine, invited, None):
            found = self.responded(carries, start, closed=shut, rest=rest)
            gain = paid - self.paid(carries, found, rest)
            moves = (found != mine).sum(axis=1)
            better = (gain > saved + 1e-9) & (gain > least * moves)
            target[better], saved[better] = found[better], gain[better]
        return target, saved

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
        topics, clusters = self.sizes(carries, member)
        here = Answers(self.wants[rows], self.frequency, self.tariff, self.scale)
        on_topics, on_clusters = here.sizes(carries, member[rows])
        here.others, rest = topics - on_topics, clusters - on_clusters
        left, kept = np.delete(carries, cluster, axis=0), np.delete(rest, cluster)
        target = here.responded(left, np.delete(member[rows], cluster, axis=1), rest=kept)
        change = here.cost(left, target, kept) - here.cost(carries, member[rows], rest)
        return rows, target, change

    def _exchange_topics(self, carries: BoolArray, member: BoolArray) -> bool:
        """For each topic, the one removal and the one addition that save most (in place)."""
        topics, clusters = self.sizes(carries, member)
        weight, own = member.astype(np.float32).T, self.tariff.topics(topics, self.frequency)
        sent = self._sent(clusters)
        needed = self._full(weight @ (self._wants * (self._copies(carries, member) == 1)), None)
        more = np.minimum(topics + needed, self.tariff.most)
        kept = sent + self._associated(carries, -1)
        change = self.tariff.topics(more, self.frequency) - own - kept
        removed = _best_of_each(np.where(carries, change, 0.0), carries, False)
        topics, _ = self.sizes(carries, member)
        own = self.tariff.topics(topics, self.frequency)
        common = self._full(weight @ (self._wants * (self._copies(carries, member) == 0)), None)
        fewer = np.maximum(topics - common, 0)
        kept = sent + self._associated(carries, 1)
        change = kept + self.tariff.topics(fewer, self.frequency) - own
        return removed | _best_of_each(np.where(carries, 0.0, change), carries, True)

    def _sent(self, sizes: IntArray) -> FloatArray:
        """What it costs to send each topic's events to clusters of these sizes."""
        events = self.tariff.prices.notify + self.tariff.send[sizes]
        return np.multiply.outer(events, self.frequency)

    def _associated(self, carries: BoolArray, step: int) -> FloatArray:
        """What one topic more or less means for keeping a cluster and its topics together."""
        associate = self.tariff.prices.associate
        counts = [int(n) for n in carries.sum(axis=1)]
        found = [step * (associate(max(n + step, 0)) - associate(n)) for n in counts]
        return np.array(found, np.float64)[:, None]

    # --- starts --------------------------------------------------------------------------------

    def by_subscribers(self, groups: int, rng: np.random.Generator) -> BoolArray:
        """Clusters of the topics that pay for groups of subscribers with like interests."""
        wants = self.wants.astype(np.float32)
        group = _lloyd(wants, min(groups, len(wants)), rng)
        sizes = np.bincount(group, minlength=groups)
        counts = np.zeros((groups, wants.shape[1]), np.float32)
        np.add.at(counts, group, wants)
        everybody = self._full(self.wants.sum(axis=0), self.others)
        fewer = np.maximum(everybody - self._full(counts, None), 0)
        own = self.tariff.topics(everybody, self.frequency)
        kept = self._sent(self._full(sizes, None)) + self.tariff.prices.associate(1)
        found = own - self.tariff.topics(fewer, self.frequency) > kept
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


def _multiply(left: Single, right: Single) -> Single:
    """The product of two matrices, without numpy's warning about invalid values.

    Every operand here is finite: 0, 1, means of those, or prices, and `_worth` checks these.
    Fast kernels may still raise the processor's flag, at random, for lanes beyond the edge of a
    small matrix, whose results they throw away.
    """
    with np.errstate(invalid="ignore"):
        found: Single = left @ right
    return found


def _worth(some: Single, value: FloatArray) -> FloatArray:
    """What topics (subscribers x topics) are worth on each cluster (clusters x topics)."""
    found = _multiply(some, value.astype(np.float32).T).astype(np.float64)
    if not np.isfinite(found).all():
        raise FloatingPointError("a price is not a number")
    return found


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
        distance = (centres**2).sum(axis=1) - _multiply(2.0 * points, centres.T)
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
