"""Our own clustering policy, at the same scale and by the same rules as Tamara's.

Members report every change to their clusters, so clusters know exact counts and need no surveys. A
cluster changes if the savings within a horizon exceed the messages for the change. Subscribers move
only if they save by it. Periodically a planner proposes new clusters from all interests; a cluster
is formed if the invited subscribers save more by it than it costs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from sys import maxsize

import numpy as np

from distributary.cost.updates import toll
from distributary.model import IntArray
from distributary.model.topics import BoolArray
from distributary.planning.topic_answers import Answers
from distributary.planning.topic_prices import Tariff
from distributary.planning.topics import Planner, Proposal, plan_proposals
from distributary.topics.rounds import TopicRounds

__all__ = ["ImprovedRounds"]

PLAN = 2
_NEWS_SHARE = 25  # a cluster reconsiders itself after reports from one in 25 members
_LEAST_NEWS = 10
_MESSAGES_PER_MOVE = 3.0
_FIRST_ASKED = 100  # members in the first estimate, before all are considered
_MOST_STEPS = 8  # of one subscriber's search for better channels


@dataclass(slots=True)
class ImprovedRounds(TopicRounds):
    """`TopicRounds` with exact counts, subscribers that choose, and proposals.

    Proposals come every `plan_every` intervals, with at most `budget` moves each time; there is no
    limit unless one is given, as a cluster for all may need more moves than any fixed number. Each
    proposal must save more than its moves cost.
    """

    plan_every: float = 240.0
    budget: int = maxsize
    planner: Planner = field(default_factory=Planner)
    _news: Counter[int] = field(init=False, default_factory=Counter)
    _tariff: Tariff = field(init=False)

    def __post_init__(self) -> None:
        TopicRounds.__post_init__(self)
        self._tariff = Tariff(self.policy.prices, self.clustering.n_subscribers)
        self._schedule_in(self.plan_every / 2, PLAN, 0)

    def on_due(self, kind: int, number: int) -> None:
        """Plan, if the planner is due."""
        if kind == PLAN:
            self.plan()
            self._schedule_in(self.plan_every, PLAN, 0)

    # --- subscribers ---------------------------------------------------------------------------

    def want(self, subscriber: int, topic: int) -> None:
        """Get the topic in the cheapest way, and report it to all clusters of the subscriber."""
        state = self.clustering
        self.messages["subscribe"] += 2
        if not state.copies[subscriber, topic]:
            self.ask_offered(topic)
            state.follow(subscriber, topic)
            self.messages["subscribe"] += 2
        state.want(subscriber, topic)
        self.improve(subscriber)
        for cluster in np.flatnonzero(state.member[subscriber]):
            self.messages["tell"] += 1
            if state.direct[subscriber, topic] and state.alive[cluster]:
                self._reconsider_adding(int(cluster), topic)

    def unwant(self, subscriber: int, topic: int) -> None:
        """Drop the topic, leave what no longer pays, and report it to the remaining clusters."""
        state = self.clustering
        self._end_interest(subscriber, topic)
        self.improve(subscriber)
        for cluster in np.flatnonzero(state.member[subscriber]):
            self.messages["tell"] += 1
            if state.alive[cluster] and state.carries[cluster, topic]:
                self._on_unwant(int(cluster), topic)

    def improve(self, subscriber: int) -> None:
        """Join the cluster that saves most and leave those that do not pay, while that helps."""
        state = self.clustering
        for _ in range(_MOST_STEPS):
            changed = False
            for cluster in np.flatnonzero(state.member[subscriber]):
                changed |= self.leave_if_cheaper(subscriber, int(cluster))
            joined = self._find_best_to_join(subscriber)
            if joined is not None:
                state.join(subscriber, joined)
                self.messages["move"] += 2
                self.leave_covered_topics(np.array([subscriber]), joined)
            elif not changed:
                return

    def _find_best_to_join(self, subscriber: int) -> int | None:
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
        """Let all members leave a cluster if its topics cost them less on their own channels."""
        state = self.clustering
        members, topics = np.flatnonzero(state.member[:, cluster]), state.topics_of(cluster)
        needed = state.dependencies(cluster)
        alone = needed @ self.topic_toll[topics]
        going = alone < toll(self.policy.prices, self.cluster(cluster), joining=False)
        for column, topic in enumerate(topics):
            state.follow(members[going & needed[:, column]], int(topic))
        state.leave(members[going], cluster)
        self.messages["move"] += 2 * int(going.sum()) + 2 * int(needed[going].sum())
        self._end_if_empty(cluster)

    def invite(self, who: IntArray, cluster: int) -> None:
        """Let subscribers of the topics' own channels join a cluster if they save by it."""
        state = self.clustering
        who = who[~state.member[who, cluster]]
        topics = state.topics_of(cluster)
        self.messages["move"] += len(who)
        saved = state.direct[np.ix_(who, topics)] @ self.topic_toll[topics]
        joining = who[saved > toll(self.policy.prices, self.cluster(cluster))]
        state.join(joining, cluster)
        self.messages["move"] += 2 * len(joining)
        self.leave_covered_topics(joining, cluster)

    # --- clusters ------------------------------------------------------------------------------

    def _reconsider_adding(self, cluster: int, topic: int) -> None:
        members = np.flatnonzero(self.clustering.member[:, cluster])
        self._try_adding(cluster, topic, members)

    def _on_unwant(self, cluster: int, topic: int) -> None:
        """A member dropped a topic: reconsider that topic, and sometimes the whole cluster."""
        self._news[cluster] += 1
        size = int(self.clustering.cluster_size[cluster])
        if self._news[cluster] >= max(_LEAST_NEWS, size // _NEWS_SHARE):
            self._reconsider(cluster)
        else:
            members = np.flatnonzero(self.clustering.member[:, cluster])
            self._try_removing(cluster, [topic], members)

    def _reconsider(self, cluster: int) -> None:
        self._news[cluster] = 0
        members = np.flatnonzero(self.clustering.member[:, cluster])
        if not len(members) or self._try_destroying(cluster, members):
            return
        self._try_removing(cluster, self.clustering.topics_of(cluster).tolist(), members)

    def add(self, cluster: int, topic: int) -> None:
        """Add a topic; members and subscribers of the topic's own channel choose."""
        TopicRounds.add(self, cluster, topic)
        self.invite(np.flatnonzero(self.clustering.direct[:, topic]), cluster)
        self.settle_members(cluster)

    # --- proposals -----------------------------------------------------------------------------

    def plan(self) -> None:
        """Ask for proposals and form the clusters that save enough for those invited."""
        state = self.clustering
        self.reconsider_all()
        self.offer(plan_proposals(state.wants, state, self.frequency, self.budget, self.planner))
        self.reconsider_all()
        self.retire()
        self._news.clear()

    def reconsider_all(self) -> None:
        """Let every cluster reconsider itself, which takes no message as its counts are exact."""
        for cluster in self.clustering.clusters:
            if self.clustering.alive[cluster]:
                self._reconsider(int(cluster))

    def retire(self) -> None:
        """Dissolve clusters without which their members do about as well, smallest first.

        The planner sees this from all interests and advises the cluster, which surveys its members.
        """
        state = self.clustering
        sizes = state.cluster_size[state.clusters]
        for cluster in state.clusters[np.argsort(sizes, kind="stable")]:
            if not state.alive[cluster]:
                continue
            who = np.flatnonzero(state.member[:, cluster])
            some = who[:: max(1, len(who) // _FIRST_ASKED)]
            _, likely = self._estimate_without(int(cluster), some, len(who) / max(len(some), 1))
            if likely > 0.0:
                continue
            target, change = self._estimate_without(int(cluster), who, 1.0)
            if self.policy.pays(change, 9.0 * len(who)):
                before = self.ledger.cost
                self.messages["advice"] += 1
                self.messages["survey"] += 2 * len(who)
                carried = int(state.carries[cluster].sum())
                self._announce(int(cluster), 2 * len(who), carried)
                self._change_over(who, state.clusters, target)
                self._record_update("retire", before)

    def _estimate_without(
        self, cluster: int, who: IntArray, share: float
    ) -> tuple[BoolArray, float]:
        """The memberships of some members without a cluster, and the change in OC.

        Each of them stands for `share` members.
        """
        state, clusters = self.clustering, self.clustering.clusters
        present, gone = state.carries[clusters], clusters == cluster
        mine = state.member[np.ix_(who, clusters)]
        answers, rest = self._answers(who), self._rest(who, clusters)
        closed = np.broadcast_to(gone, mine.shape)
        target = answers.respond(present, mine & ~gone, closed=closed, rest=rest)
        if share == 1.0:
            change = answers.cost(present, target, rest) - answers.cost(present, mine, rest)
            return target, change - self._price_empty(cluster)
        loss = float(
            (
                answers.subscriber_costs(present, target, rest)
                - answers.subscriber_costs(present, mine, rest)
            ).sum()
        )
        return target, share * loss - float(answers.fixed_costs(present, mine, rest)[gone][0])

    def _price_empty(self, cluster: int) -> float:
        """The cost of a cluster without members."""
        known, prices = self.cluster(cluster), self.policy.prices
        sent = known.flow * (prices.notify + prices.disseminate(0))
        return prices.maintain(0) + prices.associate(known.topics) + sent

    def offer(self, proposals: Sequence[Proposal]) -> None:
        """Invite all subscribers of all proposals at once, since clusters may pay only together.

        Each invited subscriber compares what it has with the cheapest cover of its interests by the
        old clusters and those it is invited to. A cluster is formed if those who would join save
        more by it than it costs; the others are withdrawn and everybody compares again.
        """
        if not proposals:
            return
        state, before = self.clustering, self.ledger.cost
        self.messages["advice"] += sum(1 + len(p.invited) for p in proposals)
        who = np.unique(np.concatenate([p.invited for p in proposals])).astype(np.int64)
        clusters = state.clusters
        offered = np.array([np.isin(np.arange(state.n_topics), p.topics) for p in proposals])
        closed = np.array([~np.isin(who, p.invited) for p in proposals]).T
        target, founded = self._decide_offer(who, clusters, offered, closed)
        if not founded.any():
            return
        new = [state.form(np.flatnonzero(offered[at])) for at in np.flatnonzero(founded)]
        self.messages["announce"] += 4 * int(offered[founded].sum()) + len(new)
        self._change_over(who, np.append(clusters, new), target)
        self._record_update("form", before)

    def _decide_offer(
        self, who: IntArray, clusters: IntArray, offered: BoolArray, closed: BoolArray
    ) -> tuple[BoolArray, BoolArray]:
        """The memberships of those invited (old clusters, then new), and which new ones pay."""
        state, answers = self.clustering, self._answers(who)
        present, mine = state.carries[clusters], state.member[np.ix_(who, clusters)]
        rest = self._rest(who, clusters)
        before = answers.cost(present, mine, rest)
        founded = np.ones(len(offered), bool)
        while founded.any():
            n = int(founded.sum())
            carries, on = np.vstack((present, offered[founded])), np.append(rest, np.zeros(n, int))
            start = np.hstack((mine, np.zeros((len(who), n), bool)))
            least = _MESSAGES_PER_MOVE / self.policy.horizon
            target, saved = answers.choose_moves(carries, start, closed[:, founded], least, on)
            coming = target[:, len(clusters) :]
            own = (saved / np.maximum(coming.sum(axis=1), 1)) @ coming
            own -= answers.fixed_costs(carries, target, on)[len(clusters) :]
            beyond = before - answers.cost(carries, target, on) - float(own.sum())
            pays = own + max(beyond, 0.0) * coming.sum(axis=0) / max(int(coming.sum()), 1) > 0.0
            if pays.all() and beyond + own.sum() > 0.0:
                return target, founded
            given_up = own == own.min() if pays.all() else ~pays
            founded[np.flatnonzero(founded)[given_up]] = False
        return mine, founded

    def _answers(self, who: IntArray) -> Answers:
        """The given subscribers, with all others as background load."""
        state = self.clustering
        others = state.topic_size - state.direct[who].sum(axis=0)
        return Answers(state.wants[who], self.frequency, self._tariff, others=others)

    def _rest(self, who: IntArray, clusters: IntArray) -> IntArray:
        """The number of other members of each cluster."""
        state = self.clustering
        here: IntArray = state.member[np.ix_(who, clusters)].sum(axis=0)
        return state.cluster_size[clusters] - here

    def _change_over(self, who: IntArray, clusters: IntArray, target: BoolArray) -> None:
        """Move subscribers to their target clusters, joining before leaving."""
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
