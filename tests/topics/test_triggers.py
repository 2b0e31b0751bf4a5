"""When a cluster asks again about a topic that it did not take up."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from distributary.cost import OperatingPrices
from distributary.cost.topics import CostLedger
from distributary.cost.updates import Channel, estimate_addition
from distributary.model.topics import Clustering
from distributary.topics import TAMARA
from distributary.topics.rounds import TopicRounds
from distributary.topics.triggers import Thresholds, Watches, find_thresholds

LINEAR = OperatingPrices()


@st.composite
def refusals(draw: st.DrawFn) -> tuple[Channel, Channel, int]:
    """A cluster, a topic and their common subscribers, with whom adding the topic does not pay."""
    size, topic = draw(st.integers(1, 60)), draw(st.integers(0, 60))
    common = draw(st.integers(0, min(size, topic)))
    cluster = Channel(size, draw(st.floats(0.0, 3.0)), draw(st.integers(1, 9)))
    own = Channel(topic, draw(st.floats(1e-6, 3.0)))
    assume(estimate_addition(LINEAR, cluster, own, common) >= 1e-9)
    return cluster, own, common


@given(refusals())
def test_the_size_threshold_is_the_largest_size_at_which_adding_would_pay(
    refusal: tuple[Channel, Channel, int],
) -> None:
    cluster, own, common = refusal
    pays = [
        size
        for size in range(common, cluster.size + 1)
        if estimate_addition(LINEAR, replace(cluster, size=size), own, common) < 0.0
    ]
    assert find_thresholds(LINEAR, cluster, own, common).size == max(pays, default=-1)


@given(refusals())
def test_adding_pays_below_the_flow_threshold_and_not_above_it(
    refusal: tuple[Channel, Channel, int],
) -> None:
    cluster, own, common = refusal
    limit = find_thresholds(LINEAR, cluster, own, common).flow
    assert limit <= own.flow

    def change(flow: float) -> float:
        return estimate_addition(LINEAR, cluster, replace(own, flow=flow), common)

    if limit < 0.0:
        assert change(0.0) >= 0.0
    else:
        assert change(0.99 * limit) < 1e-9
        assert change(1.01 * limit + 1e-9) > -1e-9


@given(
    st.lists(
        st.one_of(
            st.tuples(st.integers(0, 4), st.integers(-1, 9), st.floats(-1.0, 1.0)),
            st.integers(0, 9),
            st.tuples(st.integers(0, 4), st.floats(0.0, 1.0)),
        ),
        max_size=30,
    )
)
def test_watches_do_what_a_plain_search_through_all_thresholds_does(steps: list[object]) -> None:
    watches, plain = Watches[int](), dict[int, Thresholds]()
    for step in steps:
        match step:
            case (int(topic), int(size), float(flow)):
                plain[topic] = Thresholds(size, flow)
                watches.watch(topic, plain[topic])
            case (int(topic), float(flow)):
                reached = [topic] if topic in plain and flow <= plain[topic].flow else []
                assert watches.take_reached_by_flow(topic, flow) == reached
                for each in reached:
                    del plain[each]
            case int(size):
                reached = [topic for topic, found in plain.items() if size <= found.size]
                assert sorted(watches.take_reached_by_size(size)) == sorted(reached)
                for each in reached:
                    del plain[each]


# --- rounds --------------------------------------------------------------------------------------

MEMBERS, COMMON = 30, 10
FLOW = 0.5  # of the third topic: ten of at most 27 subscribers pay for it


def refused(*, watches: bool) -> TopicRounds:
    """Thirty subscribers of two topics in a cluster, ten of whom follow a third topic."""
    state = Clustering(MEMBERS, 3)
    cluster, everybody = state.form([0, 1]), np.arange(MEMBERS)
    state.join(everybody, cluster)
    for topic in (0, 1):
        state.want(everybody, topic)
    state.follow(everybody[:COMMON], 2)
    state.want(everybody[:COMMON], 2)
    settings = replace(TAMARA, survey_every=inf, sample=1e9, phi=0.0, prunes=False)
    flows = np.array([0.01, 0.01, FLOW])
    rounds = TopicRounds(state, flows, settings, np.random.default_rng(0), watches_falls=watches)
    rounds._try_adding(cluster, 2, everybody)
    assert not state.carries[cluster, 2]
    return rounds


def lose_members(rounds: TopicRounds, n: int) -> None:
    for subscriber in range(MEMBERS - n, MEMBERS):
        for topic in (0, 1):
            rounds.unwant(subscriber, topic)
        rounds._reconsider_fallen()


@pytest.mark.parametrize("watches", [True, False])
def test_a_cluster_takes_up_a_topic_once_it_has_lost_enough_members(watches: bool) -> None:
    rounds = refused(watches=watches)
    lose_members(rounds, 2)
    assert rounds.updates["add"] == 0
    lose_members(rounds, 12)
    (cluster,) = rounds.clustering.clusters
    assert bool(rounds.clustering.carries[cluster, 2]) is watches
    assert rounds.updates["add"] == watches
    rounds.clustering.check()


@pytest.mark.parametrize("watches", [True, False])
def test_a_cluster_takes_up_a_topic_whose_events_have_become_rare(watches: bool) -> None:
    rounds = refused(watches=watches)
    given_to_us = rounds.frequency
    rounds.change_frequency(2, 0.49)
    assert rounds.updates["add"] == 0
    rounds.change_frequency(2, 0.2)
    (cluster,) = rounds.clustering.clusters
    assert bool(rounds.clustering.carries[cluster, 2]) is watches
    assert given_to_us[2] == FLOW  # others may use the same numbers
    again = CostLedger(rounds.clustering, rounds.frequency)
    assert rounds.ledger.cost == again.cost


def test_a_topic_that_a_cluster_carries_is_repriced_with_its_events() -> None:
    rounds = refused(watches=True)
    rounds.change_frequency(0, 2.0)
    again = CostLedger(rounds.clustering, rounds.frequency)
    assert rounds.ledger.cost == again.cost
    assert rounds.topic_toll[0] == pytest.approx(3.0)
