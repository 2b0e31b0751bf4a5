"""Let subscribers and clusters respond to each other: who joins which, which topics each carries.

Each subscriber pays the costs that it adds to its clusters and to the topics that it follows
directly, so it buys a cheap cover of its interests. With the paper's prices, which grow with the
same slope on every channel, these payments add up to OC less the costs of empty channels. With
other prices, such as those of trees with helper peers, a payment depends on who else is there;
therefore the final choice goes by exact costs.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from distributary.model import FloatArray, IntArray
from distributary.model.topics import BoolArray
from distributary.planning.topic_prices import Tariff

__all__ = ["Answers"]

_MOST_ANSWERS = 12  # joins and leaves of one subscriber in a row, at most
_HOPEFUL_ANSWERS = 3  # the first of these assume that new clusters will fill up
_EPSILON = 1e-6
_TOPIC_STARTS = 8  # topics are few, so starts are cheap, and their results vary much

Single = npt.NDArray[np.float32]


@dataclass(slots=True)
class Answers:
    """Interests, frequencies and prices of some subscribers, each of which stands for `scale`.

    `carries` (clusters x topics) describes clusters, `member` (subscribers x clusters)
    subscriptions; arguments are not changed. Subscribers that are not listed count in `others`, the
    number of them on each topic's own channel, and in `rest`, the number of them on each cluster.
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
        """Draw n of the subscribers at random to stand for all."""
        if n >= len(self.wants):
            return self
        rows = np.sort(rng.choice(len(self.wants), n, replace=False))
        scale = len(self.wants) / n
        return Answers(self.wants[rows], self.frequency, self.tariff, scale, self.others)

    # --- prices --------------------------------------------------------------------------------

    def find_covered(self, carries: BoolArray, member: BoolArray) -> BoolArray:
        """Which topics each subscriber gets from its clusters (subscribers x topics)."""
        return self._copies(carries, member) > 0

    def sizes(
        self, carries: BoolArray, member: BoolArray, rest: IntArray | None = None
    ) -> tuple[IntArray, IntArray]:
        """The number of subscribers on each topic's own channel, and on each cluster."""
        alone = self.wants & ~self.find_covered(carries, member)
        return self._full(alone.sum(axis=0), self.others), self._full(member.sum(axis=0), rest)

    def subscriber_costs(
        self, carries: BoolArray, member: BoolArray, rest: IntArray | None = None
    ) -> FloatArray:
        """The cost that each subscriber adds to its channels."""
        topics, clusters = self.sizes(carries, member, rest)
        alone = self.wants & ~self.find_covered(carries, member)
        own = self.tariff.leaving(topics, self.frequency)
        return member @ self.tariff.leaving(clusters, carries @ self.frequency) + alone @ own

    def fixed_costs(
        self, carries: BoolArray, member: BoolArray, rest: IntArray | None = None
    ) -> FloatArray:
        """The cost of each cluster beyond what its members pay."""
        _, sizes = self.sizes(carries, member, rest)
        flows = carries @ self.frequency
        bill = self.tariff.clusters(sizes, flows, carries)
        return bill - sizes * self.tariff.leaving(sizes, flows)

    def cost(self, carries: BoolArray, member: BoolArray, rest: IntArray | None = None) -> float:
        """OC, exactly."""
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

    def respond(
        self,
        carries: BoolArray,
        member: BoolArray | None = None,
        *,
        closed: BoolArray | None = None,
        rest: IntArray | None = None,
    ) -> BoolArray:
        """Let subscribers join and leave clusters as long as that saves; return the new members.

        Nobody joins a cluster that is `closed` to it (subscribers x clusters).
        """
        n, clusters = len(self.wants), len(carries)
        found = np.zeros((n, clusters), bool) if member is None else member.copy()
        if not clusters:
            return found
        flows, rows = carries @ self.frequency, np.arange(n)
        alone = (self._wants * (self._copies(carries, found) == 0)).sum(axis=0)
        expected = self._expected_members(carries, self._full(alone, self.others), flows, closed)
        for step in range(_MOST_ANSWERS):
            if not len(rows):
                break
            topics = self._full(alone, self.others)
            least = expected if step < _HOPEFUL_ANSWERS else 0
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

    def _expected_members(
        self, carries: BoolArray, topics: IntArray, flows: FloatArray, closed: BoolArray | None
    ) -> IntArray:
        """The number of subscribers that would join each cluster at the price of a full one."""
        away = carries * self.tariff.leaving(topics, self.frequency)
        most = np.full(len(carries), self.tariff.most)
        joining: BoolArray = _worth(self._wants, away) > self.tariff.leaving(most, flows)
        if closed is not None:
            joining &= ~closed
        return self._full(joining.sum(axis=0), None)

    def choose_moves(
        self,
        carries: BoolArray,
        mine: BoolArray,
        closed: BoolArray,
        least: float,
        rest: IntArray | None = None,
    ) -> tuple[BoolArray, FloatArray]:
        """Change each subscriber's clusters where that pays for the moves; return members, savings.

        The last clusters are new: `closed` has a column for each and says who is not invited.
        `mine` are the members before. A move must save at least `least` per interval.
        """
        paid = self.subscriber_costs(carries, mine, rest)
        target, saved = mine.copy(), np.zeros(len(mine))
        shut = np.zeros_like(mine)
        shut[:, mine.shape[1] - closed.shape[1] :] = closed
        invited = mine.copy()
        invited[:, mine.shape[1] - closed.shape[1] :] |= ~closed
        for start in (mine, invited, None):
            found = self.respond(carries, start, closed=shut, rest=rest)
            gain = paid - self.subscriber_costs(carries, found, rest)
            moves = (found != mine).sum(axis=1)
            better = (gain > saved + 1e-9) & (gain > least * moves)
            target[better], saved[better] = found[better], gain[better]
        return target, saved

    # --- clusters answer -----------------------------------------------------------------------

    def refine(self, carries: BoolArray, passes: int) -> BoolArray:
        """Add and remove topics and drop clusters as long as that saves with its members."""
        carries = carries.copy()
        member = self.respond(carries)
        for _ in range(passes):
            changed = self._exchange_topics(carries, member)
            member = self.respond(carries, member)
            used = (member.sum(axis=0) > 0) & (carries.sum(axis=1) > 1)
            carries, member = carries[used], member[:, used]
            if not changed and used.all():
                break
        return self._drop_redundant(carries, member)

    def _drop_redundant(self, carries: BoolArray, member: BoolArray) -> BoolArray:
        """Drop clusters whose members do about as well elsewhere, smallest first."""
        for _ in range(len(carries)):
            for cluster in np.argsort(member.sum(axis=0), kind="stable"):
                rows, target, change = self.end_cluster(carries, member, int(cluster))
                if change < -_EPSILON:
                    member = np.delete(member, cluster, axis=1)
                    member[rows] = target
                    carries = np.delete(carries, cluster, axis=0)
                    break
            else:
                break
        return carries

    def end_cluster(
        self, carries: BoolArray, member: BoolArray, cluster: int
    ) -> tuple[npt.NDArray[np.intp], BoolArray, float]:
        """Price the end of a cluster: its members, their new clusters, and the change of OC."""
        rows = np.flatnonzero(member[:, cluster])
        topics, clusters = self.sizes(carries, member)
        here = Answers(self.wants[rows], self.frequency, self.tariff, self.scale)
        on_topics, on_clusters = here.sizes(carries, member[rows])
        here.others, rest = topics - on_topics, clusters - on_clusters
        left, kept = np.delete(carries, cluster, axis=0), np.delete(rest, cluster)
        target = here.respond(left, np.delete(member[rows], cluster, axis=1), rest=kept)
        change = here.cost(left, target, kept) - here.cost(carries, member[rows], rest)
        return rows, target, change

    def _exchange_topics(self, carries: BoolArray, member: BoolArray) -> bool:
        """Make the best removal and the best addition for each topic (in place)."""
        topics, clusters = self.sizes(carries, member)
        weight, own = member.astype(np.float32).T, self.tariff.topics(topics, self.frequency)
        sent = self._delivery_costs(clusters)
        needed = self._full(weight @ (self._wants * (self._copies(carries, member) == 1)), None)
        more = np.minimum(topics + needed, self.tariff.most)
        kept = sent + self._association_costs(carries, -1)
        change = self.tariff.topics(more, self.frequency) - own - kept
        removed = _best_of_each(np.where(carries, change, 0.0), carries, False)
        topics, _ = self.sizes(carries, member)
        own = self.tariff.topics(topics, self.frequency)
        common = self._full(weight @ (self._wants * (self._copies(carries, member) == 0)), None)
        fewer = np.maximum(topics - common, 0)
        kept = sent + self._association_costs(carries, 1)
        change = kept + self.tariff.topics(fewer, self.frequency) - own
        return removed | _best_of_each(np.where(carries, 0.0, change), carries, True)

    def _delivery_costs(self, sizes: IntArray) -> FloatArray:
        """The cost of sending each topic's events to clusters of these sizes."""
        events = self.tariff.prices.notify + self.tariff.send[sizes]
        return np.multiply.outer(events, self.frequency)

    def _association_costs(self, carries: BoolArray, step: int) -> FloatArray:
        """The change in the cost of tying topics to a cluster when one is added or removed."""
        associate = self.tariff.prices.associate
        counts = [int(n) for n in carries.sum(axis=1)]
        found = [step * (associate(max(n + step, 0)) - associate(n)) for n in counts]
        return np.array(found, np.float64)[:, None]

    # --- starts --------------------------------------------------------------------------------

    def by_subscribers(self, groups: int, rng: np.random.Generator) -> BoolArray:
        """Group subscribers by interests; give each group a cluster of the topics that pay."""
        wants = self.wants.astype(np.float32)
        group = _lloyd(wants, min(groups, len(wants)), rng)
        sizes = np.bincount(group, minlength=groups)
        counts = np.zeros((groups, wants.shape[1]), np.float32)
        np.add.at(counts, group, wants)
        everybody = self._full(self.wants.sum(axis=0), self.others)
        fewer = np.maximum(everybody - self._full(counts, None), 0)
        own = self.tariff.topics(everybody, self.frequency)
        kept = self._delivery_costs(self._full(sizes, None)) + self.tariff.prices.associate(1)
        found = own - self.tariff.topics(fewer, self.frequency) > kept
        several: BoolArray = found[found.sum(axis=1) > 1]
        return several

    def by_topics(self, groups: int, rng: np.random.Generator) -> BoolArray:
        """Cluster topics with similar subscribers by plain K-means."""
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
    """Make each subscriber's best single change if it saves (in place); return who changed."""
    best = saving.argmax(axis=1)
    rows = np.arange(len(mine))
    pays: BoolArray = saving[rows, best] > _EPSILON
    mine[rows[pays], best[pays]] = on
    return pays


def _multiply(left: Single, right: Single) -> Single:
    """Multiply two matrices without numpy's warning about invalid values.

    Every operand here is finite: 0, 1, means of those, or prices, which `_worth` checks. Fast
    kernels may still set the processor's invalid flag, at random, for lanes beyond the edge of a
    small matrix, whose results they discard.
    """
    with np.errstate(invalid="ignore"):
        found: Single = left @ right
    return found


def _worth(some: Single, value: FloatArray) -> FloatArray:
    """The value of topics (subscribers x topics) on each cluster (clusters x topics)."""
    found = _multiply(some, value.astype(np.float32).T).astype(np.float64)
    if not np.isfinite(found).all():
        raise FloatingPointError("a price is not a number")
    return found


def _best_of_each(change: FloatArray, carries: BoolArray, on: bool) -> bool:
    """For each topic, make the change that saves most, if one does (in place)."""
    if not len(carries):
        return False
    best = change.argmin(axis=0)
    topics = np.flatnonzero(change[best, np.arange(change.shape[1])] < -_EPSILON)
    carries[best[topics], topics] = on
    return bool(len(topics))


def _lloyd(
    points: Single, groups: int, rng: np.random.Generator, passes: int = 12
) -> npt.NDArray[np.intp]:
    """Assign points to groups by a few passes of K-means, starting from random points."""
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
    """The sum of squared distances between points and the centres of their groups."""
    total = 0.0
    for at in np.unique(group):
        mine = points[group == at]
        total += float(((mine - mine.mean(axis=0)) ** 2).sum())
    return total
