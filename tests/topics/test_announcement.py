"""Who hears of a change of a cluster's topics."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.cost.updates import Channel
from distributary.model.topics import Clustering
from distributary.topics import OURS, TAMARA
from distributary.topics.announcement import count_addition_notices, count_removal_notices
from distributary.topics.policy import Policy
from distributary.topics.rounds import TopicRounds

FEW = {name: replace(p, announces_to_all=False) for name, p in (("T", TAMARA), ("O", OURS))}
ALL = replace(TAMARA, announces_to_all=True)


@given(st.integers(0, 90), st.integers(0, 90), st.integers(0, 90), st.sampled_from(list(FEW)))
def test_telling_those_concerned_reaches_all_of_them_and_never_takes_more(
    members: int, own: int, common: int, name: str
) -> None:
    cluster, topic = Channel(members, 1.0, 3), Channel(own, 0.1)
    common, needed = min(common, members, own), min(common, members)
    few, every = FEW[name], replace(FEW[name], announces_to_all=True)
    told = count_addition_notices(few, cluster, topic, common)
    assert common <= told <= count_addition_notices(every, cluster, topic, common)
    told = count_removal_notices(few, cluster, needed)
    assert 2 * needed <= told <= count_removal_notices(every, cluster, needed)


def rounds_with(policy: Policy, topics: int = 20) -> tuple[TopicRounds, int]:
    """A cluster of all topics but the last, forty members, five of whom follow that one."""
    state, everybody = Clustering(40, topics), np.arange(40)
    cluster = state.form(list(range(topics - 1)))
    state.join(everybody, cluster)
    for topic in range(topics - 1):
        state.want(everybody, topic)
    state.follow(everybody[:5], topics - 1)
    state.want(everybody[:5], topics - 1)
    flows = np.full(topics, 0.01)
    return TopicRounds(state, flows, policy, np.random.default_rng(0)), cluster


@pytest.mark.parametrize(
    ("policy", "added", "dropped"),
    [
        # every member and every channel of a topic, there and back
        (ALL, 2 * (40 + 20 + 1), 2 * (40 + 19 + 1)),
        # five on the topic's channel; to drop it, all members; its channel, there and back
        (FEW["T"], 5 + 2, 2 * 40 + 2),
        (FEW["O"], 5 + 2, 2 * 5 + 2),
    ],
)
def test_messages_of_a_change_are_counted_as_they_are_sent(
    policy: Policy, added: int, dropped: int
) -> None:
    rounds, cluster = rounds_with(policy)
    rounds.add(cluster, 19)
    assert rounds.messages["announce"] == added
    assert rounds.messages["move"] == 2 * 5
    rounds.drop(cluster, 19)
    assert rounds.messages["announce"] == added + dropped
    assert rounds.messages["move"] == 4 * 5


@pytest.mark.parametrize(("policy", "asked"), [(ALL, 0), (FEW["T"], 2), (FEW["O"], 2)])
def test_whoever_looks_for_a_topic_asks_its_clusters_unless_their_topics_are_known(
    policy: Policy, asked: int
) -> None:
    rounds, cluster = rounds_with(policy)
    state = rounds.clustering
    for topic in range(19):  # the last of the members wants nothing any more
        state.unwant(39, topic)
    state.leave(39, cluster)
    rounds.ask_offered(0)
    assert rounds.messages["subscribe"] == asked
    rounds.messages.clear()
    rounds.want(39, 0)  # a request and an answer, and the same to join a channel
    assert rounds.messages["subscribe"] == 4 + asked
