"""A new topic of a cluster is told to members that are on the topic's own channel, and to few."""

from __future__ import annotations

from dataclasses import replace

import pytest

from distributary.machines.actions import Action, Send
from distributary.topics import (
    OURS,
    TAMARA,
    ClusterChannel,
    ClusterState,
    Policy,
    Subscriber,
    derive_generator,
)
from distributary.topics.attendance import Wanted
from distributary.topics.messages import (
    Advise,
    Answer,
    CarriageChange,
    Carried,
    Carry,
    Found,
    Join,
    Joined,
    Offer,
    Quote,
    Suggest,
    TopicFlow,
)
from distributary.topics.names import topic_channel
from distributary.topics.simulation import TopicSystem
from tests.topics.inspection import collect_reached, compute_cost
from tests.topics.schedules import POLICIES, run_schedule

A, B, C = (TopicFlow(name, 0.01) for name in "abc")
ALL = replace(TAMARA, announces_to_all=True)
NAME = "cluster/1/a"


def add_topic(policy: Policy, members: int, common: int, others: int) -> TopicSystem:
    """A cluster of a and b takes up c, of which `common` members and `others` are subscribers."""
    settings = replace(policy, survey_every=1e9, phi=0.0, interval=3_600.0, lock_for=5.0)
    system = TopicSystem(settings, dict.fromkeys("abc", 0.01), seed=2)
    for at in range(members):
        for topic in "abc"[: 3 if at < common else 2]:
            system.want(1.0, f"s{at}", topic)
    for at in range(others):
        system.want(1.0, f"other{at}", "c")
    system.advise(5.0, "topic/a", Advise((A, B)))
    system.run(30.0)
    (name,) = system.clusters()
    system.simulation.sent.clear()
    system.advise(30.0, name, Advise())
    system.run(60.0)
    assert {*system.clusters()[name].state.topics} == {*"abc"}
    assert system.topic("c").size == others  # the others stay where they are
    assert collect_reached(system)["c"] >= {f"s{at}" for at in range(common)}
    return system


@pytest.mark.parametrize(("members", "common", "others", "told"), [(40, 5, 0, 5), (9, 8, 40, 9)])
def test_the_fewer_are_told_and_nobody_confirms(
    members: int, common: int, others: int, told: int
) -> None:
    sent = add_topic(TAMARA, members, common, others).simulation.sent
    assert (sent["Suggest"], sent["Change"], sent["Settled"]) == (told, 0, 0)
    naive = add_topic(ALL, members, common, others).simulation.sent
    assert (naive["Suggest"], naive["Change"], naive["Settled"]) == (0, members, members)


def test_schedules_send_fewer_messages_than_if_all_were_told_and_cost_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the same interests and events; chance differs, so the costs are those of all seeds."""
    told, cost = [0, 0], [0.0, 0.0]
    for at, to_all in enumerate((False, True)):
        policy = replace(POLICIES["tamara"], announces_to_all=to_all)
        monkeypatch.setitem(POLICIES, "tried", policy)
        for seed in range(300, 312):
            system = run_schedule(seed, "tried", loss=0.0, crashes=False).system
            sent = system.simulation.sent
            told[at] += sent["Suggest"] + sent["Change"] + sent["Settled"]
            cost[at] += compute_cost(system)
    assert told[0] < told[1]
    assert cost[0] <= 1.02 * cost[1]


@pytest.mark.parametrize("to_all", [True, False])
def test_our_clusters_need_the_confirmations_of_all_members(to_all: bool) -> None:
    """These say who needs the new topic. Without them our clusters take it up and drop it again."""
    policy = replace(OURS, announces_to_all=to_all, lock_for=5.0, interval=60.0)
    system = TopicSystem(policy, dict.fromkeys("abc", 0.01), seed=2)
    members = tuple(f"s{at}" for at in range(20))
    for name in members:
        for topic in "ab":
            system.want(1.0, name, topic)
    system.advise(5.0, "topic/a", Advise((A, B), invited=members))
    for at, name in enumerate(members[:15]):
        system.want(40.0 + at, name, "c")
    system.run(100.0)
    (machine,) = system.clusters().values()
    assert machine.census.need("c", machine.size) == (15 if to_all else 0)
    assert ("c" in machine.state.topics) == to_all
    assert (system.simulation.sent["Drop"] > 2) == (not to_all)


# --- one message at a time -----------------------------------------------------------------------


def send_to(actions: list[Action], to: str) -> list[object]:
    return [action.message for action in actions if isinstance(action, Send) and action.to == to]


def build_cluster(policy: Policy = TAMARA, members: int = 4) -> ClusterChannel:
    """A cluster of a and b with members that need both, which has taken up c since."""
    machine = ClusterChannel(NAME, policy, derive_generator(0, "c"), ClusterState())
    machine.on_message("topic/a", Found(("a", "b")), 0.0)
    for name in "ab":
        machine.on_message(topic_channel(name), Carried(1, 0.01, 0, 1.0, ()), 0.0)
    for at in range(members):
        machine.on_message(f"s{at}", Join(1, ("a", "b")), 0.0)
    machine._start_carrying(("c",), 0.0)
    actions = machine.on_message("topic/c", Carried(machine.state.version, 0.01, 2, 1.0, ()), 0.0)
    carries = [m for m in send_to(actions, "topic/c") if isinstance(m, Carry)]
    assert [m.tell for m in carries] == [not policy.announces_to_all]
    return machine


def test_a_member_that_did_not_hear_of_a_topic_is_told_when_it_answers_a_survey() -> None:
    machine = build_cluster()
    version = machine.state.version
    machine._start_poll(1.0)
    poll = machine._poll
    assert poll is not None
    unaware = Answer(poll.number, version - 2, ("a", "b"), (NAME, "topic/c"))
    (said,) = send_to(machine.on_message("s0", unaware, 1.0), "s0")
    assert said == Suggest(machine.quote(), recruit=False)
    assert poll.answers["s0"].needs == ("a", "b", "c")  # as soon as it has heard of it
    elsewhere = replace(unaware, channels=(NAME, "topic/d"))
    assert machine.on_message("s1", elsewhere, 1.0) == []
    assert poll.answers["s1"].needs == ("a", "b")
    assert machine.on_message("stranger", unaware, 1.0) == []


def test_an_answer_that_is_believed_as_it_stands_would_end_a_topic_just_taken_up() -> None:
    for naive in (False, True):
        machine = build_cluster(replace(TAMARA, sample=1e9))
        machine._release()
        machine._start_poll(1.0)
        poll = machine._poll
        assert poll is not None
        answer = Answer(poll.number, 1, ("a", "b"), (NAME, "topic/c"))
        for at in range(4):
            if naive:
                super(type(machine).__mro__[1], machine).take_answer(f"s{at}", answer)
            else:
                machine.on_message(f"s{at}", answer, 1.0)
        machine.on_timer("answers", 2.0)
        assert ("c" in machine.state.topics) is not naive


def build_member(version: int) -> Subscriber:
    machine = Subscriber("s", TAMARA)
    machine.wanted["a"] = Wanted(expected=1, flow=0.01)
    machine._start_joining(Quote(NAME, (A, B), 1.0), 0.0)
    machine.on_message(NAME, Joined(1, version, (A,), 1.0), 0.0)
    return machine


@pytest.mark.parametrize(("version", "joins"), [(5, False), (4, True), (3, True)])
def test_a_member_believes_a_topics_channel_only_if_that_knows_more(
    version: int, joins: bool
) -> None:
    """An older list may have topics that the cluster carries no more."""
    machine = build_member(4)
    machine.wanted["c"] = Wanted()
    quote = Quote(NAME, (A, C), 1.0, version)
    offer = Offer(Quote("topic/c", (C,), 2.0), (quote,), 7)
    actions = machine.on_message("topic/c", offer, 1.0)
    joined = [a for a in actions if isinstance(a, Send) and isinstance(a.message, Join)]
    assert bool(joined) is joins
    assert machine.is_covered("c") is not joins


def test_who_is_not_on_the_cluster_or_only_joins_it_ignores_what_is_not_for_it() -> None:
    stranger = Subscriber("s", TAMARA)
    stranger.wanted["a"] = Wanted(expected=1, flow=0.01)
    word = Suggest(Quote(NAME, (A, B), 0.1, 9), recruit=False)
    assert stranger.on_message("topic/a", word, 0.0) == []
    stranger._start_joining(Quote(NAME, (A,), 1.0), 0.0)
    stranger.on_message("topic/a", word, 0.0)
    stranger.on_message(NAME, Joined(1, 8, (A,), 1.0), 0.0)
    assert {*stranger.on[NAME].topics} == {"a"}


def test_a_member_leaves_the_own_channel_of_a_topic_that_it_hears_of() -> None:
    machine = build_member(4)
    machine.wanted["c"] = Wanted(expected=1, flow=0.01)
    machine._start_joining(Quote("topic/c", (C,), 1.0), 0.0)
    machine.on_message("topic/c", Joined(2, 0, (C,), 1.0), 0.0)
    word = Suggest(Quote(NAME, (A, B, C), 1.0, 5), recruit=False)
    actions = machine.on_message("topic/c", word, 1.0)
    assert [type(m).__name__ for m in send_to(actions, "topic/c")] == ["Leave"]
    assert send_to(actions, NAME) == []  # nobody waits for a confirmation
    change = CarriageChange(6, (A, B), 1.0)
    actions = machine.on_message(NAME, change, 2.0)
    assert [type(m).__name__ for m in send_to(actions, NAME)] == []  # first it joins elsewhere
