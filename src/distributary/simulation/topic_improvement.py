"""Our own way to cluster topics, at the same scale and by the same rules as Tamara's.

Members tell their clusters of every change, so clusters know exact counts and survey nobody. They
change if what they save within a horizon is more than the messages for it. Subscribers move only
where they save by it. New clusters come as proposals, now and then, from all interests; a cluster
comes about if those who are invited save more by it than it costs.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from distributary.cost.updates import Channel, toll
from distributary.model import IntArray
from distributary.model.topics import BoolArray
from distributary.planning.topic_answers import Answers
from distributary.planning.topics import Planner, Proposal, planned
from distributary.simulation.topic_rounds import TopicRounds

__all__ = ["ImprovedRounds"]

PLAN = 2
_MOST_STEPS = 8  # of one subscriber who looks for better channels


@dataclass(slots=True)
class ImprovedRounds(TopicRounds):
    """`TopicRounds` with exact counts, subscribers that choose, and proposals.

    Proposals come every `plan_every` intervals, of at most `budget` moves each time.
    """

    plan_every: float = 240.0
    budget: int = 20_000
    planner: Planner = field(default_factory=Planner)

    def __post_init__(self) -> None:
        TopicRounds.__post_init__(self)
        self._after(self.plan_every, PLAN, 0)

    def due(self, kind: int, number: int) -> None:
        """It is time for proposals."""
        if kind == PLAN:
            self.plan()
            self._after(self.plan_every, PLAN, 0)

    # --- subscribers ---------------------------------------------------------------------------

    def want(self, subscriber: int, topic: int) -> None:
        """Have the topic the cheapest way, and tell all clusters one is on."""
        state = self.clustering
        self.messages["subscribe"] += 2
        if not state.copies[subscriber, topic]:
            state.follow(subscriber, topic)
            self.messages["subscribe"] += 2
        state.want(subscriber, topic)
        self.improve(subscriber)
        for cluster in np.flatnonzero(state.member[subscriber]):
            self.messages["tell"] += 1
            if state.direct[subscriber, topic] and state.alive[cluster]:
                self._reconsider_adding(int(cluster), topic)

    def unwant(self, subscriber: int, topic: int) -> None:
        """Give the topic up, leave what does not pay any more, and tell the clusters that stay."""
        state = self.clustering
        state.unwant(subscriber, topic)
        if state.direct[subscriber, topic]:
            state.unfollow(subscriber, topic)
            self.messages["subscribe"] += 2
        self.improve(subscriber)
        for cluster in np.flatnonzero(state.member[subscriber]):
            self.messages["tell"] += 1
            if state.alive[cluster] and state.carries[cluster, topic]:
                self._reconsider(int(cluster))

    def improve(self, subscriber: int) -> None:
        """Join the cluster that saves most and leave those that do not pay, while that helps."""
        state = self.clustering
        for _ in range(_MOST_STEPS):
            changed = False
            for cluster in np.flatnonzero(state.member[subscriber]):
                changed |= self.part(subscriber, int(cluster))
            joined = self._best_to_join(subscriber)
            if joined is not None:
                state.join(subscriber, joined)
                self.messages["move"] += 2
                self.shed(np.array([subscriber]), joined)
            elif not changed:
                return

    def _best_to_join(self, subscriber: int) -> int | None:
        state = self.clustering
        direct = state.direct[subscriber]
        if not direct.any():
            return None
        topics = np.flatnonzero(direct)
        saving = state.carries[:, topics] @ self.topic_toll[topics] - self.cluster_toll
        saving[state.member[subscriber]] = -1.0
        best = int(np.argmax(saving))
        return best if saving[best] > 1e-9 else None

    def settle_members(self, cluster: int) -> None:
        """All members of a cluster reconsider: leave it where its topics alone cost less."""
        state = self.clustering
        members, topics = np.flatnonzero(state.member[:, cluster]), state.topics_of(cluster)
        needed = state.needed(cluster)
        alone = needed @ self.topic_toll[topics]
        going = alone < toll(self.policy.prices, self.cluster(cluster), joining=False)
        for column, topic in enumerate(topics):
            state.follow(members[going & needed[:, column]], int(topic))
        state.leave(members[going], cluster)
        self.messages["move"] += 2 * int(going.sum()) + 2 * int(needed[going].sum())
        self._end_if_empty(cluster)

    def invite(self, who: IntArray, cluster: int) -> None:
        """Those on own channels of a cluster's topics join if they save by it."""
        state = self.clustering
        who = who[~state.member[who, cluster]]
        topics = state.topics_of(cluster)
        self.messages["move"] += len(who)
        saved = state.direct[np.ix_(who, topics)] @ self.topic_toll[topics]
        joining = who[saved > toll(self.policy.prices, self.cluster(cluster))]
        state.join(joining, cluster)
        self.messages["move"] += 2 * len(joining)
        self.shed(joining, cluster)

    # --- clusters ------------------------------------------------------------------------------

    def _reconsider_adding(self, cluster: int, topic: int) -> None:
        members = np.flatnonzero(self.clustering.member[:, cluster])
        self._try_adding(cluster, topic, members)

    def _reconsider(self, cluster: int) -> None:
        members = np.flatnonzero(self.clustering.member[:, cluster])
        if not len(members) or self._try_destroying(cluster, members):
            return
        self._try_removing(cluster, self.clustering.topics_of(cluster).tolist(), members)

    def add(self, cluster: int, topic: int) -> None:
        """Take a topic up; members and those on the topic's own channel choose."""
        TopicRounds.add(self, cluster, topic)
        self.invite(np.flatnonzero(self.clustering.direct[:, topic]), cluster)
        self.settle_members(cluster)

    # --- proposals -----------------------------------------------------------------------------

    def plan(self) -> None:
        """Ask for proposals; a new cluster stays if enough of those invited save by it."""
        state = self.clustering
        self.reconsider_all()
        for proposal in planned(state.wants, state, self.frequency, self.budget, self.planner):
            self.messages["advice"] += 1
            self.offer(proposal)
        self.reconsider_all()
        self.retire()

    def reconsider_all(self) -> None:
        """Every cluster looks at itself; it knows its members' needs, so that takes no message."""
        for cluster in self.clustering.clusters:
            if self.clustering.alive[cluster]:
                self._reconsider(int(cluster))

    def retire(self) -> None:
        """A small cluster asks its members what they would do without it, and ends if that pays."""
        state = self.clustering
        sizes = state.cluster_size[state.clusters]
        for cluster in state.clusters[np.argsort(sizes, kind="stable")]:
            if not state.alive[cluster] or 2 * state.cluster_size[cluster] > sizes.mean():
                continue
            clusters, before = state.clusters, self.ledger.cost
            who = np.flatnonzero(state.member[:, cluster])
            current, at = self._answers(who), int(np.searchsorted(clusters, cluster))
            member = state.member[np.ix_(who, clusters)]
            _, target, change = current.without(state.carries[clusters], member, at)
            self.messages["survey"] += 2 * len(who)
            if self.policy.pays(change, 6.0 * len(who)):
                self._announce(int(cluster))
                self._change_over(who, clusters, np.insert(target, at, False, axis=1))
                self._done("retire", before)

    def offer(self, proposal: Proposal) -> None:
        """A new cluster: whoever is invited joins if that saves, with what it can leave then."""
        state, before = self.clustering, self.ledger.cost
        who = np.asarray(proposal.invited, np.int64)
        current = self._answers(who)
        present = state.carries[state.clusters]
        mine = state.member[np.ix_(who, state.clusters)]
        carries = np.vstack((present, np.isin(np.arange(state.n_topics), proposal.topics)))
        tried = np.hstack((mine, np.ones((len(who), 1), bool)))
        target = current.responded(carries, tried)
        saved = current.paid(present, mine) - current.paid(carries, target)
        joining = target[:, -1] & (saved > 1e-9)
        self.messages["advice"] += len(who)
        if float(saved[joining].sum()) <= current.fixed(carries[-1]):
            return  # the channel asked, and counted
        clusters = state.clusters
        new = state.form(proposal.topics)
        self.messages["announce"] += 4 * len(proposal.topics) + 1
        self._change_over(who[joining], np.append(clusters, new), target[joining])
        self._done("form", before)

    def _answers(self, who: IntArray) -> Answers:
        kept = toll(self.policy.prices, Channel(1, 0.0))
        sent = toll(self.policy.prices, Channel(1, 1.0)) - kept
        return Answers(self.clustering.wants[who], self.frequency, (kept, sent))

    def _change_over(self, who: IntArray, clusters: IntArray, target: BoolArray) -> None:
        """Bring subscriptions to clusters to what is aimed at: join first, leave after."""
        state, moves = self.clustering, 0
        mine = state.member[np.ix_(who, clusters)]
        for column, cluster in enumerate(clusters):
            state.join(who[target[:, column] & ~mine[:, column]], int(cluster))
        covered = (target.astype(np.int16) @ state.carries[clusters].astype(np.int16)) > 0
        alone = state.wants[who] & ~covered
        for topic in np.flatnonzero((alone | state.direct[who]).any(axis=0)):
            rows = who[alone[:, topic] & ~state.direct[who, topic]]
            state.follow(rows, int(topic))
            moves += len(rows)
        for column, cluster in enumerate(clusters):
            state.leave(who[mine[:, column] & ~target[:, column]], int(cluster))
            self._end_if_empty(int(cluster))
        for topic in np.flatnonzero((state.direct[who] & covered).any(axis=0)):
            rows = who[state.direct[who, topic] & covered[:, topic]]
            state.unfollow(rows, int(topic))
            moves += len(rows)
        self.messages["move"] += 2 * (moves + int((mine != target).sum()))
