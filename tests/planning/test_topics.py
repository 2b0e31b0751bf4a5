"""Proposals save what they say, stay within their budget, and find the obvious."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_info, threadpool_limits

from distributary.cost import OperatingPrices
from distributary.cost.topics import MeasuredCost, clustering_cost
from distributary.model import FloatArray, Interest, Rates
from distributary.model.topics import BoolArray, Clustering
from distributary.planning import topics as planning
from distributary.planning.topic_answers import Answers
from distributary.planning.topic_prices import Tariff
from distributary.planning.topics import Planner, plan_proposals, proposals

# The paper's, those of trees with helper peers, and those of a server to which nobody tells events.
_TREES = MeasuredCost((1, 2, 5, 10, 20, 50, 100), (3.7, 6.4, 13.0, 23.0, 40.0, 75.0, 100.0))
PRICES = {
    "linear": OperatingPrices(),
    "helper peers": OperatingPrices(maintain=_TREES, disseminate=_TREES),
    "server": OperatingPrices(maintain=lambda n: 0.4 * n, associate=lambda n: 0.0 * n, notify=0.0),
}
LINEAR = Tariff(OperatingPrices(), 100)


def direct(wants: BoolArray) -> Clustering:
    state = Clustering(*wants.shape)
    for topic in range(state.n_topics):
        rows = np.flatnonzero(wants[:, topic])
        state.follow(rows, topic)
        state.want(rows, topic)
    return state


def blocks(users: int = 40, topics: int = 12, seed: int = 0) -> BoolArray:
    """Two kinds of users, each with topics of its own."""
    rng = np.random.default_rng(seed)
    kind = np.arange(users) % 2
    own = (np.arange(topics) * 2 // topics) == kind[:, None]
    return rng.random((users, topics)) < np.where(own, 0.95, 0.02)


def adopt_all(
    wants: BoolArray,
    clustering: Clustering,
    frequency: FloatArray,
    proposals: Sequence[planning.Proposal],
    planner: Planner,
) -> Clustering:
    """The clustering after each invited subscriber moved to the cheapest cover of its interests.

    Clusters left without members are removed.
    """
    here = planning._PresentState.of(wants, clustering, frequency, planner)
    at = {int(who): row for row, who in enumerate(here.active)}
    offers = [
        planning._Offer(
            np.isin(np.arange(wants.shape[1]), p.topics),
            np.array([at[who] for who in p.invited], np.int64),
            p.moves,
        )
        for p in proposals
    ]
    carries, target, moved, _ = planning._apply_offers(
        here, sorted(offers, key=planning._by_topics), planner
    )
    return move_subscribers(here, clustering, carries, target, moved)


def move_subscribers(
    here: planning._PresentState,
    clustering: Clustering,
    carries: BoolArray,
    target: BoolArray,
    moved: BoolArray,
) -> Clustering:
    """Copy a clustering and move some of its subscribers."""
    found, kept = Clustering(*clustering.wants.shape), clustering.clusters
    who = here.active[moved]
    for at, carried in enumerate(carries):
        rows = here.active[target[:, at]]
        if at < len(kept):
            outside = clustering.member[:, kept[at]].copy()
            outside[here.active] = False
            rows = np.concatenate((rows, np.flatnonzero(outside)))
        if len(rows):
            found.join(rows, found.form(np.flatnonzero(carried)))
    stays = np.ones(clustering.n_subscribers, bool)
    stays[who] = False
    for topic in range(clustering.n_topics):
        found.follow(np.flatnonzero(clustering.direct[:, topic] & stays), topic)
        wanted = np.flatnonzero(clustering.wants[:, topic])
        found.follow(wanted[found.copies[wanted, topic] == 0], topic)
        found.want(wanted, topic)
    return found


def test_two_kinds_of_users_get_a_cluster_each() -> None:
    wants, frequency = blocks(), np.full(12, 0.2)
    found = plan_proposals(wants, direct(wants), frequency, 10_000, Planner())
    assert {p.topics for p in found} == {tuple(range(6)), tuple(range(6, 12))}
    assert all(p.saving > 0 for p in found)


def test_a_search_multiplies_matrices_in_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []
    respond = Answers.respond

    def look(answers: Answers, *given: Any, **named: Any) -> Any:
        threads.extend(
            each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"
        )
        return respond(answers, *given, **named)

    monkeypatch.setattr(Answers, "respond", look)
    with threadpool_limits(2, user_api="blas"):
        plan_proposals(blocks(), direct(blocks()), np.full(12, 0.2), 10_000, Planner())
    assert {*threads} == {1}


def test_a_proposal_saves_what_it_says() -> None:
    wants, frequency, prices = blocks(), np.full(12, 0.2), OperatingPrices()
    state = direct(wants)
    before = clustering_cost(state, frequency, prices).cost
    found = plan_proposals(wants, state, frequency, 10_000, Planner())
    for proposal in found:
        cluster = state.form(proposal.topics)
        state.join(proposal.invited, cluster)
        for topic in proposal.topics:
            rows = np.array(proposal.invited)
            state.unfollow(rows[state.direct[rows, topic]], topic)
    saved = before - clustering_cost(state, frequency, prices).cost
    assert saved == pytest.approx(sum(p.saving for p in found))


def settled(wants: BoolArray, rng: np.random.Generator) -> Clustering:
    """Some clusters of random topics with random members, and whatever that leaves."""
    state = Clustering(*wants.shape)
    for _ in range(int(rng.integers(4))):
        cluster = state.form(np.flatnonzero(rng.random(wants.shape[1]) < 0.5))
        state.join(np.flatnonzero(rng.random(len(wants)) < 0.4), cluster)
    for topic in range(state.n_topics):
        rows = np.flatnonzero(wants[:, topic])
        state.follow(rows[state.copies[rows, topic] == 0], topic)
        state.follow(np.flatnonzero(rng.random(len(wants)) < 0.05), topic)  # for no reason
        state.want(rows, topic)
    return state


@settings(max_examples=150, deadline=None)
@given(
    st.tuples(st.integers(2, 40), st.integers(2, 12)),
    st.integers(0, 10**6),
    st.sampled_from(list(PRICES)),
    st.sampled_from([40, 200, 10_000]),
)
def test_proposals_save_what_a_recomputation_says(
    shape: tuple[int, int], seed: int, kind: str, budget: int
) -> None:
    rng, prices = np.random.default_rng(seed), PRICES[kind]
    wants, frequency = rng.random(shape) < 0.5, rng.uniform(0.001, 0.3, shape[1])
    state, planner = settled(wants, rng), Planner(prices)
    before = clustering_cost(state, frequency, prices).cost
    found = plan_proposals(wants, state, frequency, budget, planner)
    after = adopt_all(wants, state, frequency, found, planner)
    after.check()
    assert np.array_equal(after.wants, wants)
    saved = before - clustering_cost(after, frequency, prices).cost
    if found:
        assert sum(p.saving for p in found) == pytest.approx(saved, abs=1e-6)
    assert all(p.saving > 0 for p in found)
    assert sum(p.moves for p in found) <= budget


@pytest.mark.parametrize("kind", PRICES)
def test_kinds_of_users_get_clusters_at_any_prices(kind: str) -> None:
    wants, planner = blocks(), Planner(PRICES[kind])
    found = plan_proposals(wants, direct(wants), np.full(12, 0.02), 10_000, planner)
    after = adopt_all(wants, direct(wants), np.full(12, 0.02), found, planner)
    alone = clustering_cost(direct(wants), np.full(12, 0.02), PRICES[kind]).cost
    assert clustering_cost(after, np.full(12, 0.02), PRICES[kind]).cost < 0.4 * alone


@pytest.mark.parametrize("budget", [0, 30, 150, 10_000])
def test_moves_stay_within_the_budget(budget: int) -> None:
    wants = blocks(seed=3)
    found = plan_proposals(wants, direct(wants), np.full(12, 0.2), budget, Planner())
    assert sum(p.moves for p in found) <= budget
    assert bool(found) == (budget >= 150)


def test_nothing_is_proposed_where_the_clusters_fit() -> None:
    wants, frequency = blocks(), np.full(12, 0.2)
    state = direct(wants)
    for proposal in plan_proposals(wants, state, frequency, 10_000, Planner()):
        cluster = state.form(proposal.topics)
        state.join(proposal.invited, cluster)
        for topic in proposal.topics:
            rows = np.array(proposal.invited)
            state.unfollow(rows[state.direct[rows, topic]], topic)
    assert plan_proposals(wants, state, frequency, 10_000, Planner()) == []


def test_names_and_rates_are_brought_in_line() -> None:
    wants = blocks()
    pairs = [(f"u{s:02}", f"t{t:02}") for s, t in zip(*np.nonzero(wants), strict=True)]
    interest = Interest.from_pairs(pairs)
    rates = Rates.from_mapping({f"t{t:02}": 0.2 for t in range(12)} | {"unwanted": 1.0})
    named = proposals(interest, rates, direct(wants), 10_000)
    assert named == plan_proposals(wants, direct(wants), np.full(12, 0.2), 10_000, Planner())
    with pytest.raises(ValueError, match=r"1 flows have no rate, such as 't11'"):
        proposals(
            interest, Rates.from_mapping({f"t{t:02}": 1.0 for t in range(11)}), direct(wants), 1
        )
    with pytest.raises(ValueError, match="the clustering is for"):
        proposals(interest, rates, Clustering(2, 2), 1)


# --- subscribers and clusters that answer each other ---------------------------------------------

SHAPES = st.tuples(st.integers(1, 6), st.integers(2, 5), st.integers(1, 3), st.integers(0, 10**6))


@settings(max_examples=80, deadline=None)
@given(SHAPES)
def test_answers_end_where_no_single_step_helps(shape: tuple[int, int, int, int]) -> None:
    users, topics, clusters, seed = shape
    rng = np.random.default_rng(seed)
    wants, carries = rng.random((users, topics)) < 0.6, rng.random((clusters, topics)) < 0.6
    answers = Answers(wants, rng.uniform(0.01, 1.0, size=topics), LINEAR)
    member = answers.respond(carries)
    paid = answers.subscriber_costs(carries, member)
    for user, cluster in itertools.product(range(users), range(clusters)):
        other = member.copy()
        other[user, cluster] ^= True
        assert answers.subscriber_costs(carries, other)[user] >= paid[user] - 1e-4


@settings(max_examples=120, deadline=None)
@given(SHAPES, st.sampled_from(list(PRICES)))
def test_costs_are_those_of_the_clustering(shape: tuple[int, int, int, int], kind: str) -> None:
    prices = PRICES[kind]
    users, topics, clusters, seed = shape
    rng = np.random.default_rng(seed)
    wants, carries = rng.random((users, topics)) < 0.6, rng.random((clusters, topics)) < 0.6
    frequency = rng.uniform(0.01, 1.0, size=topics)
    answers = Answers(wants, frequency, Tariff(prices, users))
    member = answers.respond(carries)
    state = Clustering(users, topics)
    for cluster in range(clusters):
        state.join(np.flatnonzero(member[:, cluster]), state.form(np.flatnonzero(carries[cluster])))
    for topic in range(topics):
        rows = np.flatnonzero(wants[:, topic])
        state.follow(rows[state.copies[rows, topic] == 0], topic)
    found = clustering_cost(state, frequency, prices)
    assert answers.cost(carries, member) == pytest.approx(found.cost)


@settings(max_examples=60, deadline=None)
@given(SHAPES)
def test_refining_never_makes_clusters_worse(shape: tuple[int, int, int, int]) -> None:
    users, topics, clusters, seed = shape
    rng = np.random.default_rng(seed)
    wants, carries = rng.random((users, topics)) < 0.6, rng.random((clusters, topics)) < 0.6
    answers = Answers(wants, rng.uniform(0.01, 0.3, size=topics), LINEAR)
    nothing = answers.cost(carries[:0], np.zeros((users, 0), bool))
    refined = answers.refine(carries, 6)
    assert answers.cost(refined, answers.respond(refined)) <= nothing + 1e-6
