"""Propose clusters of topics from subscriptions: few changes that save much.

Channels improve their clusters on their own, by one topic or one subscriber at a time; they cannot
see a completely different set of clusters. This module can, because it knows all subscriptions. It
builds clusters for groups of subscribers with similar interests and clusters of topics with similar
subscribers, improves both, and keeps the cheapest set.

It uses dense arrays of subscribers x topics, for thousands of each. Their products are small and
many. So NumPy's linear algebra runs in one thread: several would wait for each other by spinning,
which on a busy machine takes twenty times as long as the products themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from threadpoolctl import ThreadpoolController

from distributary.cost import OperatingPrices
from distributary.model import FloatArray, IntArray, Interest, Rates
from distributary.model.topics import BoolArray, Clustering
from distributary.planning.topic_answers import Answers
from distributary.planning.topic_prices import Tariff

__all__ = ["Planner", "Proposal", "plan_proposals", "proposals"]


@dataclass(frozen=True, slots=True)
class Proposal:
    """Form a cluster of these topics and invite those subscribers.

    `saving` is the reduction of OC per interval, `moves` the number of subscriptions that change.
    Savings of proposals made together add up to what adopting all of them saves; some of them save
    only in combination.
    """

    topics: tuple[int, ...]
    invited: tuple[int, ...]
    saving: float
    moves: int


@dataclass(frozen=True, slots=True)
class Planner:
    """How thorough the search is, and what makes a change worthwhile.

    All proposals together must save at least the share `least_gain` of OC. Each must save more
    within `horizon` intervals than its moves cost, at `per_move` messages each.
    """

    prices: OperatingPrices = field(default_factory=OperatingPrices)
    horizon: float = 240.0
    per_move: float = 3.0
    least_gain: float = 0.003
    subscriber_groups: tuple[int, ...] = (1, 8, 24, 60)
    topic_groups: tuple[int, ...] = (10,)
    topics_per_group: int = 12  # of one more number of groups, which grows with the topics
    sample: int = 600  # subscribers used to build clusters; all of them choose in the end
    passes: int = 6
    seed: int = 0


def proposals(
    interest: Interest,
    rates: Rates,
    clustering: Clustering,
    budget: int,
    planner: Planner | None = None,
) -> list[Proposal]:
    """Propose the best changes to a clustering, best first, with at most `budget` moves in total.

    The clustering's subscribers and topics are the receivers and flows of the interest, in the same
    order; rates are events per maintenance interval.
    """
    shape = (len(interest.receivers), len(interest.flows))
    if clustering.wants.shape != shape:
        raise ValueError(f"the clustering is for {clustering.wants.shape}, the interest is {shape}")
    index = {name: at for at, name in enumerate(rates.flows)}
    missing = [name for name in interest.flows if name not in index]
    if missing:
        raise ValueError(f"{len(missing)} flows have no rate, such as {missing[0]!r}")
    frequency = rates.rate[[index[name] for name in interest.flows]]
    wants = np.zeros(shape, bool)
    wants[interest.flow_receivers, interest.pair_flows()] = True
    return plan_proposals(wants, clustering, frequency, budget, planner or Planner())


def plan_proposals(
    wants: BoolArray,
    clustering: Clustering,
    frequency: FloatArray,
    budget: int,
    planner: Planner,
) -> list[Proposal]:
    """As `proposals`, from arrays."""
    with ThreadpoolController().limit(limits=1, user_api="blas"):
        return _plan_proposals(wants, clustering, frequency, budget, planner)


def _plan_proposals(
    wants: BoolArray,
    clustering: Clustering,
    frequency: FloatArray,
    budget: int,
    planner: Planner,
) -> list[Proposal]:
    here = _PresentState.of(wants, clustering, frequency, planner)
    if len(here.active) < 2:
        return []
    carries, after = _best_clusters(here, planner)
    if after > (1.0 - planner.least_gain) * here.before:
        return []
    offers = _within(budget, _invitations(here, carries))
    while offers:
        found = _price_offers(here, offers, planner)
        pays = [
            p.saving > 0 and p.saving * planner.horizon > planner.per_move * p.moves for p in found
        ]
        if all(pays):
            return sorted(found, key=lambda p: (-p.saving, p.topics))
        offers = [offer for offer, keep in zip(offers, pays, strict=True) if keep]
    return []


@dataclass(frozen=True, slots=True)
class _Offer:
    """A new cluster, and the rows of the subscribers that are invited."""

    carried: BoolArray
    who: IntArray
    moves: int


@dataclass(frozen=True, slots=True)
class _PresentState:
    """The present state: subscribers that want something, clusters, members, and OC."""

    answers: Answers
    active: IntArray
    present: BoolArray
    member: BoolArray
    direct: BoolArray
    rest: IntArray  # members of each cluster that are not listed here
    before: float

    @classmethod
    def of(
        cls, wants: BoolArray, clustering: Clustering, frequency: FloatArray, planner: Planner
    ) -> _PresentState:
        """Take the state from a clustering."""
        tariff = Tariff(planner.prices, len(wants))
        active, clusters = np.flatnonzero(wants.any(axis=1)), clustering.clusters
        member = clustering.member[np.ix_(active, clusters)]
        direct = clustering.direct[active]
        present, sizes = clustering.carries[clusters], clustering.cluster_size[clusters]
        others = clustering.topic_size - direct.sum(axis=0)
        before = tariff.topics(clustering.topic_size, frequency).sum()
        before += tariff.clusters(sizes, present @ frequency, present).sum()
        answers = Answers(wants[active], frequency, tariff, others=others)
        rest = sizes - member.sum(axis=0)
        return cls(answers, active, present, member, direct, rest, float(before))

    def cost(self, carries: BoolArray, target: BoolArray, moved: BoolArray) -> float:
        """OC after the `moved` subscribers changed clusters; clusters without members are gone."""
        answers, tariff = self.answers, self.answers.tariff
        alone = self.direct.copy()
        alone[moved] = answers.wants[moved] & ~answers.find_covered(carries, target[moved])
        assert answers.others is not None
        topics = answers.others + alone.sum(axis=0)
        sizes = target.sum(axis=0)
        sizes[: len(self.rest)] += self.rest
        bill = tariff.clusters(sizes, carries @ answers.frequency, carries)
        return float(tariff.topics(topics, answers.frequency).sum() + bill[sizes > 0].sum())


def _best_clusters(here: _PresentState, planner: Planner) -> tuple[BoolArray, float]:
    """The cheapest of several sets of clusters; one of them starts from the present clusters."""
    answers, present = here.answers, here.present
    rng = np.random.default_rng(planner.seed)
    some = answers.sample(planner.sample, rng)
    starts = [some.by_subscribers(n, rng) for n in planner.subscriber_groups]
    by_size = answers.wants.shape[1] // planner.topics_per_group
    n_groups = dict.fromkeys((*planner.topic_groups, max(by_size, 2)))
    starts += [some.by_topics(n, rng) for n in n_groups]
    starts += [present.copy()] if len(present) else []
    best: tuple[BoolArray, float] | None = None
    for start in starts:
        carries = some.refine(start, planner.passes)
        cost = answers.cost(carries, answers.respond(carries))
        if best is None or cost < best[1]:
            best = carries, cost
    assert best is not None
    return best


def _invitations(here: _PresentState, carries: BoolArray) -> list[_Offer]:
    """Offer each new cluster to the subscribers that would join it and save, best first."""
    answers, present, member = here.answers, here.present, here.member
    target = answers.respond(carries)
    paid_after = answers.subscriber_costs(carries, target)
    share = np.maximum(target.sum(axis=1), 1)
    gain = (answers.subscriber_costs(present, member, here.rest) - paid_after) / share
    leaves = member.sum(axis=1) + here.direct.sum(axis=1)
    known = {row.tobytes() for row in present}
    found = []
    for cluster in range(len(carries)):
        who = np.flatnonzero(target[:, cluster] & (gain > 0))
        if carries[cluster].tobytes() in known or not len(who):
            continue
        moves = int(np.ceil((1 + leaves[who] / share[who]).sum()))
        found.append((float(gain[who].sum()), _Offer(carries[cluster], who, moves)))
    found.sort(key=lambda each: (-each[0], _by_topics(each[1])))
    return [offer for _, offer in found]


def _within(budget: int, offers: list[_Offer]) -> list[_Offer]:
    """Keep offers that fit the budget, in order; then sort by topics, which decides ties."""
    chosen, left = [], budget
    for offer in offers:
        if offer.moves <= left:
            chosen.append(offer)
            left -= offer.moves
    return sorted(chosen, key=_by_topics)


def _by_topics(offer: _Offer) -> bytes:
    return offer.carried.tobytes()


def _apply_offers(
    here: _PresentState, offers: Sequence[_Offer], planner: Planner
) -> tuple[BoolArray, BoolArray, BoolArray, FloatArray]:
    """Let invited subscribers choose; return clusters, members, who moved, and their savings."""
    answers, shape = here.answers, (len(here.active), len(offers))
    closed = np.ones(shape, bool)
    for at, offer in enumerate(offers):
        closed[offer.who, at] = False
    carries = np.vstack((here.present, *(offer.carried for offer in offers)))
    mine = np.hstack((here.member, np.zeros(shape, bool)))
    asked = ~closed.all(axis=1)
    target, saved = mine.copy(), np.zeros(len(mine))
    rest = np.append(here.rest, np.zeros(len(offers), np.int64))
    some = Answers(answers.wants[asked], answers.frequency, answers.tariff)
    stay = here.direct[~asked].sum(axis=0)
    some.others = stay if answers.others is None else stay + answers.others
    on = rest + mine[~asked].sum(axis=0)
    least = planner.per_move / planner.horizon
    found = some.choose_moves(carries, mine[asked], closed[asked], least, on)
    target[asked], saved[asked] = found
    return carries, target, (target != mine).any(axis=1), saved


def _price_offers(
    here: _PresentState, offers: Sequence[_Offer], planner: Planner
) -> list[Proposal]:
    """Make proposals of offers: their total saving is exact, and shared out by who joins."""
    carries, target, moved, saved = _apply_offers(here, offers, planner)
    new = target[:, len(here.present) :]
    gain = (saved / np.maximum(new.sum(axis=1), 1)) @ new
    rest = np.append(here.rest, np.zeros(len(offers), np.int64))
    own = gain - here.answers.fixed_costs(carries, target, rest)[len(here.present) :]
    beyond = here.before - here.cost(carries, target, moved) - float(own.sum())
    savings = own + beyond * gain / max(float(gain.sum()), 1e-12)
    return [
        Proposal(
            tuple(int(t) for t in np.flatnonzero(offer.carried)),
            tuple(int(who) for who in here.active[offer.who]),
            float(saving),
            offer.moves,
        )
        for offer, saving in zip(offers, savings, strict=True)
    ]
