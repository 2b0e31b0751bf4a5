"""Channels and subscribers one message at a time."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from distributary.machines.actions import Action, Deliver, Send, SetTimer
from distributary.planning.topics import Planner
from distributary.topics import (
    OURS,
    TAMARA,
    ClusterChannel,
    ClusterState,
    Policy,
    Subscriber,
    TopicChannel,
    TopicState,
    derive_generator,
    topic_channel,
)
from distributary.topics.attendance import Wanted
from distributary.topics.choice import find_cheapest_cover
from distributary.topics.messages import (
    Accept,
    Advise,
    CarriageChange,
    Carried,
    Carry,
    Drop,
    Dropped,
    Event,
    Found,
    Inquire,
    Invite,
    Join,
    Joined,
    Leave,
    Left,
    News,
    Offer,
    Propose,
    Publish,
    Quote,
    Refuse,
    Settled,
    Survey,
    Tell,
    TopicFlow,
    Want,
)
from distributary.topics.policy import coin, sample_size
from distributary.topics.simulation import TopicSystem

A, B = TopicFlow("a", 0.01), TopicFlow("b", 0.02)


def sent(actions: list[Action], to: str | None = None) -> list[object]:
    return [a.message for a in actions if isinstance(a, Send) and to in (None, a.to)]


def topic(policy: Policy = TAMARA, members: int = 0) -> TopicChannel:
    machine = TopicChannel(policy, derive_generator(0, "t"), TopicState.new("t", 0.01))
    for at in range(members):
        machine.on_message(f"s{at}", Join(1), 0.0)
    return machine


def cluster(members: int = 2, policy: Policy = TAMARA) -> ClusterChannel:
    """A cluster of a and b, with members who have settled."""
    rng = derive_generator(0, "c")
    machine = ClusterChannel("cluster/1/a", policy, rng, ClusterState())
    machine.on_message("topic/a", Found(("a", "b")), 0.0)
    for name, flow in (("a", 0.01), ("b", 0.02)):
        version = machine.state.version
        machine.on_message(topic_channel(name), Carried(version, flow, 5, 1.0, ()), 0.0)
    for at in range(members):
        machine.on_message(f"s{at}", Join(1, ("a",)), 0.0)
    return machine


def test_a_late_leave_does_not_undo_a_newer_join() -> None:
    machine = topic()
    machine.on_message("s", Join(3), 0.0)
    assert machine.on_message("s", Leave(2), 0.0) == []
    assert machine.size == 1
    assert sent(machine.on_message("s", Leave(4), 0.0)) == [Left(4)]
    assert machine.on_message("s", Join(3), 0.0) == []  # older than the leave
    assert machine.size == 0


def test_a_topic_numbers_events_and_sends_them_to_its_clusters() -> None:
    machine = topic(members=1)
    machine.on_message("cluster/1/x", Carry(1, (A,), 1.0), 0.0)
    found = [machine.on_message("p", Publish(b"x"), 1.0) for _ in range(2)]
    assert [[a.to for a in actions if isinstance(a, Send)] for actions in found] == [
        ["members/topic/t", "cluster/1/x"]
    ] * 2
    assert [sent(actions)[0] for actions in found] == [
        Event("t", 1, b"x"),
        Event("t", 2, b"x"),
    ]
    machine.on_message("cluster/1/x", Drop(2), 2.0)
    machine.on_message("cluster/1/x", Carry(1, (A,), 1.0), 2.0)  # late
    assert not machine.state.clusters


def test_a_locked_channel_refuses_every_other_merge() -> None:
    machine = topic(members=9)
    propose = Propose(1, (A,), 9, 9)
    (accept,) = sent(machine.on_message("topic/a", propose, 0.0))
    assert isinstance(accept, Accept)
    assert sent(machine.on_message("topic/b", propose, 0.0)) == [Refuse(1)]
    machine.on_message("topic/a", Refuse(1), 0.0)
    assert isinstance(sent(machine.on_message("topic/b", propose, 0.0))[0], Accept)


def test_a_lock_holds_until_the_cluster_that_it_is_for_recruits() -> None:
    """A cluster that was made before may recruit late, by a message that was lost at first."""
    carry = Carry(2, (A, B), 1.0, recruit=True)
    accepting = topic(members=9)
    accepting.on_message("topic/a", Propose(5, (A,), 9, 9), 0.0)
    for cluster, held in (("cluster/4/a", True), ("cluster/9/b", True), ("cluster/6/a", False)):
        accepting.on_message(cluster, carry, 0.0)
        assert (accepting.lock is not None) == held
    proposing = topic(members=9)
    for number in (1, 2):
        proposing._lock_with("topic/a", proposing._next_counter(), 0.0)
        lock = proposing.lock
        assert lock is not None
        (found,) = proposing.on_message("topic/a", Accept(lock.number, (A,), 9), 0.0)
        assert isinstance(found, Send)
        assert found.to == f"cluster/{2 * number}/t"
        if number == 2:
            proposing.on_message("cluster/2/t", carry, 0.0)
            assert proposing.lock == lock
            proposing.on_message(found.to, carry, 0.0)
            assert proposing.lock is None


def test_a_proposer_that_gave_up_waiting_founds_nothing() -> None:
    machine = topic(members=9)
    accept = Accept(7, (A,), 9)
    assert sent(machine.on_message("topic/a", accept, 0.0)) == [Refuse(7)]


def test_two_clusters_that_propose_to_each_other_do_not_both_merge() -> None:
    one, other = cluster(9), cluster(9)
    other.name = "cluster/2/b"
    for machine, partner in ((one, other.name), (other, one.name)):
        machine._propose_merge(partner, machine.census, 0.0)  # each has a proposal out
    propose = Propose(1, (A, B), 9, 9)
    assert sent(one.on_message(other.name, propose, 0.0)) == [Refuse(1)]
    assert sent(other.on_message(one.name, propose, 0.0)) == [Refuse(1)]


def test_a_cluster_keeps_getting_a_topic_until_every_member_has_settled() -> None:
    machine = cluster(2)
    actions = machine._stop_carrying(["b"], 1.0)
    version = machine.state.version
    assert {type(m) for m in sent(actions)} == {CarriageChange, Carry}
    assert sent(machine.on_message("s0", Settled(version), 1.0)) == []
    event = Event("b", 5, b"")
    assert sent(machine.on_message("topic/b", event, 1.0), "members/cluster/1/a") == [event]
    assert sent(machine.on_message("s1", Leave(9), 1.0), "topic/b") == [Drop(version)]


def test_a_restarted_cluster_goes_on_dropping() -> None:
    machine = cluster(1)
    machine._stop_carrying(["b"], 1.0)
    again = ClusterChannel(machine.name, TAMARA, derive_generator(1, "c"), machine.state)
    assert any(isinstance(m, CarriageChange) for m in sent(again.start(2.0), "s0"))
    version = again.state.version
    assert sent(again.on_message("s0", Settled(version), 3.0), "topic/b") == [Drop(version)]


def test_an_update_is_made_only_if_its_estimate_says_so() -> None:
    """Few common subscribers: a pair would cost more than it saves."""
    machine = topic(members=9)
    assert sent(machine.on_message("topic/a", Propose(1, (TopicFlow("a", 0.5),), 9, 0), 0.0)) == [
        Refuse(1)
    ]
    assert not TAMARA.pays(0.0, 0.0)
    assert TAMARA.pays(-0.1, 1e9)
    assert not replace(OURS, horizon=10.0).pays(-1.0, 10.0)


def test_a_subscriber_settles_only_when_it_has_the_topic_elsewhere() -> None:
    machine = Subscriber("s", TAMARA)
    name = "cluster/1/a"
    machine.wanted["b"] = _wanted(1)
    machine._start_joining(_quote(name), 0.0)
    machine.on_message(name, Joined(1, 4, (A, B), 1.0), 0.0)
    actions = machine.on_message(name, CarriageChange(5, (A,), 1.0), 1.0)
    assert [type(m) for m in sent(actions)] == [Join]  # first to the topic's own channel
    assert machine.needs("topic/b") == ("b",)
    actions = machine.on_message("topic/b", Joined(2, 0, (B,), 1.0), 2.0)
    assert Settled(5, (), (name, "topic/b")) in sent(actions, name)


def test_events_come_in_order_once_and_gaps_are_asked_for() -> None:
    machine = Subscriber("s", TAMARA)
    machine.wanted["b"] = _wanted(1)
    assert [type(a) for a in machine.on_message("c", Event("b", 2, b""), 0.0)] == [Send, SetTimer]
    found = machine.on_message("topic/b", Event("b", 1, b""), 0.0)
    assert [a.message.number for a in found if isinstance(a, Deliver)] == [1, 2]
    assert machine.on_message("c", Event("b", 2, b""), 0.0) == []
    assert machine.on_message("c", Event("other", 1, b""), 0.0) == []


def _wanted(expected: int) -> Wanted:
    return Wanted(expected, flow=0.02)


def _quote(name: str) -> Quote:
    return Quote(name, (A, B), 1.0)


@pytest.mark.parametrize(("population", "asked"), [(0, 0), (1, 1), (100, 80), (10**9, 384)])
def test_samples_are_smaller_where_there_are_few(population: int, asked: int) -> None:
    assert sample_size(population, 384.0) == asked


@pytest.mark.parametrize("subscribers", [1, 2, 50, 911])
def test_a_coin_is_won_by_one_of_so_many_as_surely_as_asked(subscribers: int) -> None:
    assert 1 - (1 - coin(0.99, subscribers)) ** subscribers >= 0.99 - 1e-9


def test_names_give_different_draws_and_the_same_each_time() -> None:
    draws = [derive_generator(1, name).random() for name in ("a", "b", "a", "ä\n")]
    assert draws[0] == draws[2]
    assert len({*draws}) == 3


def test_a_first_survey_comes_within_the_period() -> None:
    (timer,) = topic().start(10.0)
    assert isinstance(timer, SetTimer)
    assert timer.at is not None
    assert 10.0 <= timer.at <= 10.0 + TAMARA.survey_every
    assert np.isfinite(timer.at)


# --- departures ----------------------------------------------------------------------------------


def test_who_left_is_remembered_for_a_while_and_not_for_ever() -> None:
    policy = replace(TAMARA, remember=100.0)
    machine = topic(policy)
    most = 0
    for at in range(5_000):
        machine.on_message(f"s{at}", Join(1), float(at))
        machine.on_message(f"s{at}", Leave(2), float(at))
        machine.on_message(f"cluster/{at}/t", Carry(1, (A,), 1.0), float(at))
        machine.on_message(f"cluster/{at}/t", Drop(2), float(at))
        most = max(most, len(machine.state.departed), len(machine.state.dropped))
        late = max(0, at - 100)
        assert machine.on_message(f"s{late}", Join(1), float(at)) == []
        assert sent(machine.on_message(f"cluster/{late}/t", Carry(1, (A,), 1.0), float(at))) == [
            Dropped(2)
        ]
    assert most == 101
    assert not machine.state.members
    assert not machine.state.clusters


def test_a_word_that_is_later_than_anybody_remembers_is_taken_back() -> None:
    machine, subscriber = topic(replace(TAMARA, remember=1.0)), Subscriber("s", TAMARA)
    for name, at in (("s", 0.0), ("u", 9.0)):
        machine.on_message(name, Join(1), at)
        machine.on_message(name, Leave(2), at)
    (joined,) = sent(machine.on_message("s", Join(1), 9.0))  # nobody knows that s left
    (leave,) = sent(subscriber.on_message(machine.name, joined, 9.0))
    assert sent(machine.on_message("s", leave, 9.0)) == [Left(1)]
    assert machine.size == 0
    gone = ClusterChannel("cluster/1/t", TAMARA, derive_generator(0, "c"), ClusterState())
    (carried,) = sent(machine.on_message(gone.name, Carry(4, (A,), 1.0), 9.0))
    (drop,) = sent(gone.on_message(machine.name, carried, 9.0))
    assert sent(machine.on_message(gone.name, drop, 9.0)) == [Dropped(4)]
    assert not machine.state.clusters
    assert gone.finished


def test_who_leaves_again_is_remembered_from_then_on() -> None:
    machine = topic(replace(TAMARA, remember=10.0))
    for name, at in (("s", 0.0), ("u", 6.0), ("s", 8.0), ("v", 15.0)):
        machine.on_message(name, Join(2 * int(at) + 1), at)
        machine.on_message(name, Leave(2 * int(at) + 2), at)
    assert list(machine.state.departed) == ["u", "s", "v"]
    assert machine.on_message("s", Join(17), 15.0) == []


# --- what members tell ---------------------------------------------------------------------------


def test_a_topic_taken_up_alone_is_told_when_its_own_channel_has_confirmed() -> None:
    machine = Subscriber("s", OURS)
    name = "cluster/1/a"
    machine.wanted["a"] = _wanted(1)
    machine._start_joining(Quote(name, (A,), 1.0), 0.0)
    machine.on_message(name, Joined(1, 4, (A,), 1.0), 0.0)
    machine.on_message("app", Want("b"), 1.0)
    actions = machine.on_message("topic/b", Offer(Quote("topic/b", (B,), 1.0), (), 7), 1.0)
    assert sent(actions, name) == []
    actions = machine.on_message("topic/b", Joined(2, 0, (B,), 1.0), 1.0)
    assert sent(actions, name) == [Tell((News(B, True),), ("a",), (name, "topic/b"))]
    assert machine.on_message("topic/b", Joined(2, 0, (B,), 1.0), 1.0) == []  # told once
    actions = machine.on_message(name, CarriageChange(5, (A, B), 1.0), 2.0)
    assert [m for m in sent(actions, name) if isinstance(m, Settled)] == [
        Settled(5, ("a", "b"), (name, "topic/b"))
    ]


def test_a_cluster_takes_up_what_its_members_take_up_and_keeps_it() -> None:
    policy = replace(OURS, interval=10.0, lock_for=5.0)
    system = TopicSystem(policy, dict.fromkeys("abc", 0.05), seed=1)
    for at in range(20):
        for name in "ab":
            system.want(1.0, f"s{at}", name)
        system.want(30.0 + at, f"s{at}", "c")
    system.plan(5.0, 1_000, Planner())
    system.run(400.0)
    (found,) = system.clusters().values()
    assert set(found.state.topics) == {*"abc"}
    assert found.census.needs == {"a": 20, "b": 20, "c": 20}
    assert [system.topic(name).size for name in "abc"] == [0, 0, 0]


# --- advice to clusters --------------------------------------------------------------------------


@pytest.mark.parametrize("needs", [("a",), ("a", "b")])
def test_a_cluster_that_is_told_to_look_at_itself_ends_if_its_own_estimate_says_so(
    needs: tuple[str, ...],
) -> None:
    machine = cluster(9, replace(OURS, horizon=1e9))
    assert machine.on_message("planner", Advise(partner=machine.name), 1.0) == []
    for at in range(9):  # what they need is known before it is thought about
        member = machine.state.members[f"s{at}"]
        machine._update_views(member, replace(member.views, needs=needs))
    actions = machine.on_message("planner", Advise(), 1.0)
    assert machine.state.ended == (needs == ("a",))
    assert any(isinstance(m, CarriageChange) for m in sent(actions)) == machine.state.ended


def test_a_cluster_that_is_not_told_what_members_need_asks_them() -> None:
    machine = cluster(3)
    assert sent(machine.on_message("planner", Advise(), 1.0), "s0") == [Survey(1)]


# --- invitations ---------------------------------------------------------------------------------


def test_a_cluster_for_named_subscribers_is_founded_at_once_and_invites_them() -> None:
    machine = topic(OURS)
    (found,) = sent(machine.on_message("planner", Advise((A, B), invited=("s", "u")), 0.0))
    assert found == Found(("a", "b"), ("s", "u"))
    new = ClusterChannel("cluster/1/t", OURS, derive_generator(0, "c"), ClusterState())
    new.on_message("topic/t", found, 0.0)
    new.on_message("topic/a", Carried(1, 0.01, 5, 1.0, ()), 0.0)
    actions = new.on_message("topic/b", Carried(1, 0.02, 5, 1.0, ()), 0.0)
    assert sent(actions, "s") == sent(actions, "u") == [Invite(new.quote())]
    assert not any(m.recruit for m in sent(actions) if isinstance(m, Carry))
    assert new.on_message("topic/b", Carried(1, 0.02, 5, 1.0, ()), 0.0) == []  # said once


def test_nobody_comes_where_its_own_estimate_disagrees() -> None:
    machine = Subscriber("s", OURS)
    machine.wanted["a"] = _wanted(1)
    dear = Quote("cluster/1/t", (A, B), 5.0)
    assert machine.on_message(dear.channel, Invite(dear), 0.0) == []
    cheap = Quote("cluster/2/t", (A, B), 0.2)
    machine._start_joining(Quote("topic/a", (A,), 1.0), 0.0)
    machine.on_message("topic/a", Joined(1, 0, (A,), 1.0), 0.0)
    assert [type(m) for m in sent(machine.on_message(cheap.channel, Invite(cheap), 0.0))] == [Join]


def test_invitations_that_pay_only_together_are_taken_together() -> None:
    """One old cluster brings both topics; two new ones replace it, neither does alone."""
    machine = Subscriber("s", OURS)
    machine.wanted = {"a": _wanted(1), "b": _wanted(1)}
    machine._start_joining(Quote("cluster/1/x", (A, B), 1.5), 0.0)
    machine.on_message("cluster/1/x", Joined(1, 1, (A, B), 1.5), 0.0)
    one, other = Quote("cluster/2/x", (A,), 0.6), Quote("cluster/3/x", (B,), 0.6)
    assert machine.on_message(one.channel, Invite(one), 0.0) == []
    actions = machine.on_message(other.channel, Invite(other), 0.0)
    joins = {a.to for a in actions if isinstance(a, Send) and isinstance(a.message, Join)}
    assert joins == {one.channel, other.channel}
    assert not any(isinstance(m, Leave) for m in sent(actions))  # not before both are there
    machine.on_message(one.channel, Joined(2, 1, (A,), 0.6), 0.0)
    actions = machine.on_message(other.channel, Joined(3, 1, (B,), 0.6), 0.0)
    assert [type(m) for m in sent(actions, "cluster/1/x")] == [Leave]


def test_a_cluster_that_nobody_joined_ends_though_its_host_has_changed() -> None:
    """The timer of the host that founded it is lost."""
    machine = cluster(0)
    again = ClusterChannel("cluster/1/a", TAMARA, derive_generator(0, "c"), machine.state)
    (at,) = (a.at for a in again.start(5.0) if isinstance(a, SetTimer) and a.name == "idle")
    assert at == 5.0 + TAMARA.lock_for
    again.on_timer("idle", at)
    assert again.state.ended


def test_a_cluster_whose_members_do_not_pay_for_it_ends_after_a_while() -> None:
    machine = cluster(1, replace(OURS, horizon=1e9))
    assert any(isinstance(m, CarriageChange) for m in sent(machine.on_timer("idle", 99.0)))
    assert machine.state.ended


@pytest.mark.parametrize("seed", range(30))
def test_a_cover_brings_everything_and_is_never_dearer_than_topics_alone(seed: int) -> None:
    rng = np.random.default_rng(seed)
    flows = [TopicFlow(f"t{at}", 0.1) for at in range(6)]
    quotes = [
        Quote(f"cluster/{n}/x", tuple(f for f in flows if rng.random() < 0.5), rng.uniform(0.5, 3))
        for n in range(5)
    ]
    wanted = {f.topic for f in flows if rng.random() < 0.7}
    taken, cost = find_cheapest_cover(wanted, quotes, lambda _: 1.1)

    def price(chosen: tuple[Quote, ...]) -> float:
        carried = {f.topic for quote in chosen for f in quote.topics}
        return sum(q.toll for q in chosen) + 1.1 * len(wanted - carried)

    every = [price(c) for n in range(6) for c in combinations(quotes, n)]
    assert cost == pytest.approx(price(tuple(taken)))
    assert min(every) - 1e-9 <= cost <= 1.1 * len(wanted) + 1e-9
    assert cost <= min(price(c) for n in range(2) for c in combinations(quotes, n)) + 1e-9


@pytest.mark.parametrize(("each", "listed"), [(20, 5), (100, 2), (300, 1)])
def test_an_offer_lists_the_cheapest_clusters_and_not_hundreds_of_topics(
    each: int, listed: int
) -> None:
    machine = topic()
    for number in range(5):
        topics = (A, *(TopicFlow(f"{number}.{n}", 0.1) for n in range(each - 1)))
        carry = Carry(1, topics, toll=50.0 - number)
        machine.on_message(f"cluster/{number}/a", carry, 1.0)
    (offer,) = sent(machine.on_message("s", Inquire(), 2.0), "s")
    assert isinstance(offer, Offer)
    cheapest = {f"cluster/{number}/a" for number in range(5 - listed, 5)}
    assert {quote.channel for quote in offer.clusters} == cheapest
