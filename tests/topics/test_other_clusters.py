"""Clusters learn from topics' channels which other clusters there are (section 3.2)."""

from __future__ import annotations

from dataclasses import replace

from distributary.machines.actions import Action, Send
from distributary.topics import TAMARA, ClusterChannel, ClusterState, derive_generator
from distributary.topics.messages import (
    Advise,
    Answer,
    Carried,
    Carry,
    Drop,
    Found,
    Join,
    Propose,
    Survey,
)
from distributary.topics.names import topic_channel
from distributary.topics.simulation import TopicSystem
from tests.topics.test_channels import A, B, sent, topic

KEEPING = replace(TAMARA, prunes=False)


def build_cluster(others: dict[str, tuple[str, ...]]) -> ClusterChannel:
    """A cluster of two members; each topic's channel has told which other clusters carry it."""
    machine = ClusterChannel("cluster/1/a", KEEPING, derive_generator(0, "c"), ClusterState())
    machine.on_message("topic/a", Found(tuple(others)), 0.0)
    for name, clusters in others.items():
        version = machine.state.version
        machine.on_message(topic_channel(name), Carried(version, 0.01, 5, 1.0, clusters), 0.0)
    for name in ("s0", "s1"):
        machine.on_message(name, Join(1, tuple(others)), 0.0)
    return machine


def survey(machine: ClusterChannel, channels: tuple[str, ...] = ()) -> dict[str, Propose]:
    """What it proposes to whom after a survey; members need all of its topics."""
    asked = machine.on_timer("survey", 100.0)
    for action in asked:
        if isinstance(action, Send) and isinstance(action.message, Survey):
            number, topics = action.message.number, tuple(machine.state.topics)
            answer = Answer(number, machine.state.version, topics, channels)
            machine.on_message(action.to, answer, 101.0)
    return collect_proposals(machine.on_timer("answers", 110.0))


def collect_proposals(actions: list[Action]) -> dict[str, Propose]:
    return {
        action.to: action.message
        for action in actions
        if isinstance(action, Send) and isinstance(action.message, Propose)
    }


def test_a_cluster_proposes_to_the_cluster_with_most_of_its_topics() -> None:
    """They share no subscriber, so no survey would bring them together."""
    machine = build_cluster({"a": ("cluster/7/x", "cluster/9/b"), "b": ("cluster/9/b",)})
    proposals = survey(machine)
    assert proposals.keys() == {"cluster/9/b"}
    assert proposals["cluster/9/b"].common == 0


def test_a_channel_with_common_subscribers_comes_first() -> None:
    machine = build_cluster({"a": ("cluster/9/b",), "b": ("cluster/9/b",)})
    assert survey(machine, ("topic/z",)).keys() == {"topic/z"}


def test_a_cluster_without_others_proposes_nothing() -> None:
    assert survey(build_cluster({"a": (), "b": ()})) == {}


def test_a_list_that_has_changed_replaces_the_last_one() -> None:
    machine = build_cluster({"a": (), "b": ()})
    for others in (("cluster/9/b",), ("cluster/8/b",)):
        machine.on_message("topic/b", Carried(2, 0.01, 5, 1.0, others), 1.0)
    assert survey(machine).keys() == {"cluster/8/b"}


def test_a_topic_tells_its_clusters_when_another_comes_or_goes() -> None:
    machine = topic()
    first, second = "cluster/1/x", "cluster/2/y"
    (confirmed,) = sent(machine.on_message(first, Carry(1, (A,), 1.0), 0.0), first)
    assert isinstance(confirmed, Carried)
    assert confirmed.clusters == ()
    actions = machine.on_message(second, Carry(1, (A, B), 1.0), 1.0)
    told = [each for each in sent(actions, first) if isinstance(each, Carried)]
    assert [each.clusters for each in told] == [(second,)]
    (confirmed,) = (each for each in sent(actions, second) if isinstance(each, Carried))
    assert confirmed.clusters == (first,)
    told = [
        each
        for each in sent(machine.on_message(second, Drop(2), 2.0), first)
        if isinstance(each, Carried)
    ]
    assert [each.clusters for each in told] == [()]


def test_two_clusters_of_the_same_topics_without_common_subscribers_become_one() -> None:
    """Only the lists bring them together: no survey of either can find the other."""
    policy = replace(TAMARA, survey_every=20.0, answer_within=1.0, lock_for=5.0)
    system = TopicSystem(policy, {"a": 0.01, "b": 0.01}, seed=3)
    groups = {each: tuple(f"{each}{at}" for at in range(6)) for each in "ab"}
    for each, names in groups.items():
        for name in names:
            for wanted in "ab":
                system.want(1.0, name, wanted)
        system.advise(3.0, topic_channel(each), Advise((A, B), invited=names))
    system.run(8.0)
    assert sorted(machine.size for machine in system.clusters().values()) == [6, 6]
    system.run(200.0)
    (machine,) = system.clusters().values()
    assert machine.size == 12
