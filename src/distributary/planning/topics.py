"""What clusters a broker should form, from who wants what: few changes that save much.

Channels improve their clusters by themselves, one topic and one subscriber at a time. What they
cannot see from where they are is a whole new set of clusters. That is proposed here, with full
knowledge: clusters for groups of subscribers with like interests, and clusters of topics with like
subscribers, whichever costs less after both sides have answered each other for a while.

Subscribers x topics are dense arrays here: for thousands of each.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from distributary.cost import OperatingPrices
from distributary.cost.updates import Channel, toll
from distributary.model import FloatArray, Interest, Rates
from distributary.model.topics import BoolArray, Clustering
from distributary.planning.topic_answers import Answers

__all__ = ["Planner", "Proposal", "planned", "proposals"]


@dataclass(frozen=True, slots=True)
class Proposal:
    """Form a cluster of these topics and offer it to those subscribers.

    `saving` is the OC per interval that all of them save together by changing over, `moves` how
    many subscriptions change for it.
    """

    topics: tuple[int, ...]
    invited: tuple[int, ...]
    saving: float
    moves: int


@dataclass(frozen=True, slots=True)
class Planner:
    """How hard to look, and what makes a change worth its while.

    All proposals together must save the share `least_gain` of OC, and each must save more within
    `horizon` intervals than the messages of its moves, `per_move` each.
    """

    prices: OperatingPrices = field(default_factory=OperatingPrices)
    horizon: float = 240.0
    per_move: float = 3.0
    least_gain: float = 0.003
    subscriber_groups: tuple[int, ...] = (1, 8, 24, 60)
    topic_groups: tuple[int, ...] = (10,)
    sample: int = 600  # subscribers that decide on topics; all of them choose in the end
    passes: int = 6
    seed: int = 0


def proposals(
    interest: Interest,
    rates: Rates,
    clustering: Clustering,
    budget: int,
    planner: Planner | None = None,
) -> list[Proposal]:
    """The best changes to a clustering, best first, of at most `budget` moves together.

    The clustering's subscribers and topics are the receivers and flows of the interest, in their
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
    return planned(wants, clustering, frequency, budget, planner or Planner())


def planned(
    wants: BoolArray,
    clustering: Clustering,
    frequency: FloatArray,
    budget: int,
    planner: Planner,
) -> list[Proposal]:
    """The same from arrays."""
    active = np.flatnonzero(wants.any(axis=1))
    if len(active) < 2:
        return []
    answers = Answers(wants[active], frequency, _slopes(clustering, frequency, planner.prices))
    clusters = clustering.clusters
    present = clustering.carries[clusters]
    member = clustering.member[np.ix_(active, clusters)].copy()
    before = answers.cost(present, member)
    carries, after = _best_clusters(answers, present, planner)
    if after > (1.0 - planner.least_gain) * before:
        return []
    found = _invitations(answers, carries, present, member, planner)
    chosen, left = [], budget
    for proposal in found:
        if proposal.moves <= left:
            invited = tuple(int(active[at]) for at in proposal.invited)
            chosen.append(Proposal(proposal.topics, invited, proposal.saving, proposal.moves))
            left -= proposal.moves
    return chosen


def _slopes(
    clustering: Clustering, frequency: FloatArray, prices: OperatingPrices
) -> tuple[float, float]:
    """What one subscriber costs in a typical channel: to keep there, and to send an event to."""
    sizes = np.concatenate((clustering.topic_size, clustering.cluster_size[clustering.alive]))
    size = max(1, round(float(sizes[sizes > 0].mean()))) if (sizes > 0).any() else 1
    kept = toll(prices, Channel(size, 0.0))
    return kept, toll(prices, Channel(size, 1.0)) - kept


def _best_clusters(
    answers: Answers, present: BoolArray, planner: Planner
) -> tuple[BoolArray, float]:
    """The cheapest of several sets of clusters, one of them grown from what there is."""
    rng = np.random.default_rng(planner.seed)
    some = answers.sample(planner.sample, rng)
    starts = [some.by_subscribers(n, rng) for n in planner.subscriber_groups]
    starts += [some.by_topics(n, rng) for n in planner.topic_groups]
    starts += [present.copy()] if len(present) else []
    best: tuple[BoolArray, float] | None = None
    for start in starts:
        carries = some.refined(start, planner.passes)
        cost = answers.cost(carries, answers.responded(carries))
        if best is None or cost < best[1]:
            best = carries, cost
    assert best is not None
    return best


def _invitations(
    answers: Answers,
    carries: BoolArray,
    present: BoolArray,
    member: BoolArray,
    planner: Planner,
) -> list[Proposal]:
    """Each new cluster with those who would be on it, and what changing over saves them."""
    target = answers.responded(carries)
    paid_before = answers.paid(present, member)
    paid_after = answers.paid(carries, target)
    share = np.maximum(target.sum(axis=1), 1)
    gain = (paid_before - paid_after) / share
    leaves = member.sum(axis=1) + (answers.wants & ~answers.covered(present, member)).sum(axis=1)
    known = {row.tobytes() for row in present}
    found = []
    for cluster in range(len(carries)):
        who = np.flatnonzero(target[:, cluster] & (gain > 0))
        if carries[cluster].tobytes() in known or not len(who):
            continue
        saving = float(gain[who].sum()) - answers.fixed(carries[cluster])
        moves = int(np.ceil((1 + leaves[who] / share[who]).sum()))
        if saving > 0 and saving * planner.horizon > planner.per_move * moves:
            topics = tuple(int(t) for t in np.flatnonzero(carries[cluster]))
            found.append(Proposal(topics, tuple(int(w) for w in who), saving, moves))
    return sorted(found, key=lambda p: (-p.saving, p.topics))
