"""Whether a cluster that takes up a topic takes all of its subscribers, on the smallest systems."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.cost import OperatingPrices
from distributary.cost.topics import CostLedger
from distributary.cost.updates import Channel
from distributary.machines.actions import Action, Send
from distributary.model.topics import Clustering
from distributary.topics import (
    TAMARA,
    ClusterChannel,
    ClusterState,
    TopicChannel,
    TopicState,
    derive_generator,
)
from distributary.topics.addition import choose_addition
from distributary.topics.messages import (
    Accept,
    Carried,
    Carry,
    Found,
    Join,
    Propose,
    Suggest,
    TopicFlow,
)
from distributary.topics.rounds import TopicRounds

FLOWS = st.floats(0.0, 2.0)
A, B = TopicFlow("a", 0.4), TopicFlow("b", 0.4)


def root(n: int) -> float:
    """A price at which a large channel is cheap: all subscribers may better move together."""
    return 4.0 * float(np.sqrt(n))


PRICES = [OperatingPrices(), OperatingPrices(maintain=root), OperatingPrices(root, root, 0.5, root)]


@st.composite
def systems(draw: st.DrawFn) -> tuple[Clustering, np.ndarray]:
    """A cluster of some topics, its members, and subscribers of one more topic."""
    users, carried = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    state = Clustering(users, carried + 1)
    cluster = state.form(list(range(carried)))
    for user in range(users):
        wanted = draw(st.lists(st.booleans(), min_size=carried + 1, max_size=carried + 1))
        if any(wanted[:carried]):
            state.join(user, cluster)
        if wanted[carried]:
            state.follow(user, carried)
        for topic in np.flatnonzero(wanted):
            state.want(user, int(topic))
    return state, np.array(draw(st.lists(FLOWS, min_size=carried + 1, max_size=carried + 1)))


def price_both(
    state: Clustering, flows: np.ndarray, prices: OperatingPrices
) -> tuple[float, float]:
    """OC after adding the last topic and after absorbing it, recomputed from who is where."""
    topic, costs = state.n_topics - 1, []
    for absorbs in (False, True):
        after = Clustering(state.n_subscribers, state.n_topics)
        cluster = after.form(list(range(state.n_topics)))
        for user in range(state.n_subscribers):
            direct, member = bool(state.direct[user, topic]), bool(state.member[user].any())
            if member or (absorbs and direct):
                after.join(user, cluster)
            elif direct:
                after.follow(user, topic)
        costs.append(CostLedger(after, flows, prices).cost)
    return costs[0], costs[1]


@given(systems(), st.sampled_from(PRICES))
def test_the_cheaper_way_is_the_one_that_recomputing_everything_finds(
    system: tuple[Clustering, np.ndarray], prices: OperatingPrices
) -> None:
    state, flows = system
    topic = state.n_topics - 1
    before = CostLedger(state, flows, prices).cost
    add, absorb = (cost - before for cost in price_both(state, flows, prices))
    (number,) = state.clusters
    known = Channel(int(state.cluster_size[number]), float(flows[:topic].sum()), topic)
    own = Channel(int(state.topic_size[topic]), float(flows[topic]))
    common = int((state.direct[:, topic] & state.member[:, number]).sum())
    way = choose_addition(replace(TAMARA, prices=prices), known, own, common)
    assert way.change == pytest.approx(min(add, absorb), abs=1e-9)
    if abs(add - absorb) > 1e-6:
        assert way.recruit == (absorb < add)
    old = choose_addition(replace(TAMARA, prices=prices, adds=False), known, own, common)
    assert old.recruit
    assert old.change == pytest.approx(absorb, abs=1e-9)


@given(systems())
def test_with_linear_prices_nobody_moves_who_does_not_have_to(
    system: tuple[Clustering, np.ndarray],
) -> None:
    add, absorb = price_both(*system, OperatingPrices())
    assert add <= absorb + 1e-9


@given(systems(), st.sampled_from(PRICES), st.booleans())
def test_a_survey_of_everybody_never_raises_the_cost(
    system: tuple[Clustering, np.ndarray], prices: OperatingPrices, of_topic: bool
) -> None:
    state, flows = system
    policy = replace(TAMARA, prices=prices, sample=1e9)
    rounds = TopicRounds(state, flows, policy, np.random.default_rng(0))
    before = rounds.ledger.cost
    if of_topic:
        rounds.survey_topic(state.n_topics - 1)
    else:
        rounds.survey_cluster(int(state.clusters[0]))
    state.check()
    assert rounds.ledger.cost <= before + 1e-9


# --- channels ------------------------------------------------------------------------------------


def test_clusters_of_the_same_topics_merge_though_nobody_is_on_both() -> None:
    state, everybody = Clustering(40, 2), np.arange(40)
    for half in (everybody[:20], everybody[20:]):
        state.join(half, state.form([0, 1]))
    for topic in range(2):
        state.want(everybody, topic)
    rounds = TopicRounds(state, np.array([0.1, 0.1]), TAMARA, np.random.default_rng(0))
    rounds.survey_cluster(int(state.clusters[0]))
    assert [int(state.cluster_size[c]) for c in state.clusters] == [40]
    assert rounds.updates == {"merge": 1, "raised": 0}


def sent(actions: list[Action], to: str) -> list[object]:
    return [action.message for action in actions if isinstance(action, Send) and action.to == to]


def topic(members: int) -> TopicChannel:
    machine = TopicChannel(TAMARA, derive_generator(0, "t"), TopicState.new("t", 0.01))
    for at in range(members):
        machine.on_message(f"s{at}", Join(1), 0.0)
    return machine


@pytest.mark.parametrize("adds", [True, False])
def test_a_topic_says_whether_its_subscribers_should_move(adds: bool) -> None:
    machine = topic(10)
    machine.policy = replace(TAMARA, adds=adds)
    propose = Propose(1, (A, B), 9, 9)  # one of the ten does not want a and b
    (accept,) = sent(machine.on_message("cluster/1/a", propose, 0.0), "cluster/1/a")
    assert isinstance(accept, Accept)
    assert accept.recruit is not adds


@pytest.mark.parametrize("recruit", [True, False])
def test_a_cluster_recruits_only_if_the_topic_said_so(recruit: bool) -> None:
    machine = ClusterChannel("cluster/1/a", TAMARA, derive_generator(0, "c"), ClusterState())
    machine.on_message("topic/a", Found(("a", "b")), 0.0)
    for name in "ab":
        machine.on_message(f"topic/{name}", Carried(1, 0.4, 5, 1.0, ()), 0.0)
    machine._release()
    machine._lock_with("topic/t", 7, 0.0)
    machine.on_message("topic/t", Accept(7, (TopicFlow("t", 0.01),), 10, recruit), 0.0)
    actions = machine.on_message("topic/t", Carried(machine.state.version, 0.01, 10, 1.0, ()), 0.0)
    (carry,) = sent(actions, "topic/t")
    assert isinstance(carry, Carry)
    assert carry.recruit is recruit


def test_a_topic_that_was_added_is_free_again_and_suggests_nothing() -> None:
    machine = topic(10)
    machine.on_message("cluster/1/a", Propose(1, (A, B), 9, 9), 0.0)
    machine.on_message("cluster/1/a", Carry(3, (A, B), 1.0), 0.0)  # the request
    assert machine.lock is not None
    carries = Carry(4, (A, B, TopicFlow("t", 0.01)), 1.0)
    actions = machine.on_message("cluster/1/a", carries, 0.0)
    assert machine.lock is None
    assert not any(isinstance(a.message, Suggest) for a in actions if isinstance(a, Send))
