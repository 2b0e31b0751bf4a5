"""A host of all channels in virtual time: what it records, and what comes back after a crash."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from distributary.machines.actions import Action, Append, Send
from distributary.machines.real.store import Store
from distributary.machines.virtual import Link
from distributary.topics import (
    TAMARA,
    Policy,
    Subscriber,
    TopicState,
    is_cluster,
    topic_channel,
    topic_of,
)
from distributary.topics.advice import Adviser
from distributary.topics.codec import (
    Beat,
    Bye,
    Create,
    Expect,
    Forgotten,
    NoTopic,
    Pulse,
    Put,
    Taken,
    checksum,
)
from distributary.topics.errors import EventsForgottenError, EventsLostError
from distributary.topics.host import ChannelMessage, TopicHost
from distributary.topics.messages import (
    Advise,
    Carry,
    Event,
    Found,
    Inquire,
    Invite,
    Join,
    Leave,
    News,
    Repair,
    Settled,
    Tell,
    TopicFlow,
    Want,
)
from distributary.topics.records import HostState
from distributary.topics.simulation import TopicSystem
from distributary.topics.store import TopicStore
from distributary.topics.survey import survey
from tests.topics.hosting import StoredHost
from tests.topics.nats.running import QUICK

TOPICS = [f"t{n}" for n in range(5)]


def open_host(folder: Path, policy: Policy = QUICK) -> tuple[Store, StoredHost]:
    store = Store(folder)
    return store, StoredHost(store, policy)


class World:
    """A host of all channels, and subscribers; messages between them are lost now and then."""

    def __init__(self, seed: int, folder: Path, policy: Policy, loss: float) -> None:
        self.rng = random.Random(seed)
        self.folder, self.policy = folder, policy
        link = Link(0.001, 0.02, loss=loss, reorders=True)
        flows = dict.fromkeys(TOPICS, 1.0)
        self.system = TopicSystem(policy, flows, seed=seed, link=link, together=True)
        for name in "abcde":
            self.system.subscriber(name)
        self.state = HostState()  # replayed
        self.replayed = self.written = 0  # records
        self.crashes = 0
        self.found_dead = 0
        self.had_clusters = False
        self.system.listeners.append(self.listen)

    @property
    def host(self) -> TopicHost:
        (host,) = self.system.hosts.values()
        return host

    def listen(self, sender: str, to: str, message: object) -> None:
        self.found_dead += isinstance(message, Forgotten)

    def step(self) -> None:
        system, now = self.system, self.system.clock.now
        topic, name = self.rng.choice(TOPICS), self.rng.choice("abcde")
        host = partial(system.simulation.call, *system.hosts)
        match self.rng.randrange(8):
            case 0 | 1:
                system.want(now, name, topic)
            case 2 if self.rng.random() < 0.4:
                system.unwant(now, name, topic)
            case 3 | 4:
                system.publish(now, topic, b"payload")
            case 5:
                adviser = Adviser(self.host, 10_000)
                advice = adviser.propose(survey([self.host], now))
                for each in [*adviser.reminders(), *adviser.hand_out(advice)]:
                    host(each)
            case 6:
                host(partial(self.host.sweep, forget_after=self.rng.choice([0.0, 1e9])))
            case 7 if self.rng.random() < 0.3:
                self.host.heard[name] = now - 100.0
                host(partial(self.host.bury, silent_for=50.0))
        system.run(now + 0.1)
        subscriber = system.subscribers[name]
        beat = Beat(subscriber.generation, bool(subscriber.channels()))
        system.simulation.post(now + 0.1, "service", beat, sender=name)
        system.run(now + 0.2)
        self.had_clusters |= any(each.size for each in self.host.clusters.values())

    def crash(self) -> None:
        now = self.system.clock.now
        self.system.crash(now, topic_channel(TOPICS[0]), 0.05)
        self.system.run(now + 0.1)
        self.crashes += 1

    @property
    def log(self) -> list[bytes]:
        (node,) = self.system.hosts
        return self.system.simulation.logs[node]

    def check_log(self) -> None:
        """The records so far make the state that the host has."""
        for record in self.log[self.replayed :]:
            self.state.replay(record, self.policy)
        self.replayed = len(self.log)
        assert self.state == self.host.state

    def check_store(self) -> None:
        """So do the records in a log, and those of a log that was shortened."""
        records = self.log[self.written :]
        with Store(self.folder) as opened:
            store = TopicStore(opened, self.policy)
            store.write(records)
            self.written = len(self.log)
        for _ in range(2):
            with Store(self.folder) as opened:
                store = TopicStore(opened, self.policy)
                assert replace(store.state, identity="") == self.state
                store.shorten()

    def check_order(self) -> None:
        """Each subscriber has a topic's events one after the other, but for those reported."""
        expected: dict[tuple[str, str], int] = defaultdict(int)
        for _, _, name, _, event in self.system.simulation.record.delivered:
            if isinstance(event, EventsLostError):  # older than the history
                assert not isinstance(event, EventsForgottenError)
                assert event.first == expected[name, event.topic] or not expected[name, event.topic]
                expected[name, event.topic] = event.last + 1
                continue
            assert isinstance(event, Event)
            assert event.number >= expected[name, event.topic]  # it may have been away
            expected[name, event.topic] = event.number + 1


def run_schedule(seed: int, folder: Path) -> World:
    """Raise an AssertionError unless the log says at any time what the channels know."""
    rng = random.Random(seed)
    policy = rng.choice([QUICK, replace(TAMARA, prices=QUICK.prices, survey_every=5.0, retry=0.3)])
    world = World(seed, folder, replace(policy, history=7, remember=2.0), rng.choice([0.0, 0.1]))
    try:
        for step in range(60):
            world.step()
            if rng.random() < 0.3:
                world.system.run(world.system.clock.now + rng.random() * 2)
            if step % 5 == 0:
                world.check_log()
            if step in (25, 50):
                world.check_store()
            if rng.random() < 0.04:
                world.crash()
        world.check_order()
    except AssertionError as error:
        raise AssertionError(f"run_schedule({seed}, folder) runs it again") from error
    return world


def test_the_log_says_at_any_time_what_the_channels_know(tmp_path: Path) -> None:
    worlds = [run_schedule(seed, tmp_path / str(seed)) for seed in range(15)]
    assert sum(world.had_clusters for world in worlds) > 3
    assert sum(world.crashes for world in worlds) > 15
    assert sum(world.found_dead for world in worlds) > 7


@pytest.mark.slow
def test_it_does_for_hundreds_of_seeds(tmp_path: Path) -> None:
    for seed in range(1_000, 1_600):
        run_schedule(seed, tmp_path / str(seed))


def test_who_left_is_forgotten_in_time_and_a_restart_forgets_the_same(tmp_path: Path) -> None:
    policy = replace(QUICK, remember=10.0)
    store, host = open_host(tmp_path / "state", policy)
    channel = topic_channel("t")
    host.take("p", channel, Create(0.0), 0.0)
    for at in range(300):
        host.take(f"s{at}", channel, Join(1), float(at))
        host.take(f"s{at}", channel, Leave(2), float(at))
        host.take(f"s{max(0, at - 5)}", channel, Join(1), float(at))  # late
        assert len(host.topics[channel].state.departed) <= 11
    assert not host.topics[channel].size
    known = host.topics[channel].state.departed
    for shorten in (False, True):
        if shorten:
            host.store.shorten()
        store.close()
        store, host = open_host(tmp_path / "state", policy)
        host.perform(host.start(300.0))
        state = host.topics[channel].state
        assert list(state.departed.items()) == list(known.items())
        host.take("s299", channel, Join(1), 300.0)  # late, and said to somebody who was not there
        assert not state.members
    store.close()


# --- hosts of some channels ----------------------------------------------------------------------


def host_only(channel: str) -> TopicHost:
    state = HostState()
    if not is_cluster(channel):
        state.states[channel] = TopicState.new(topic_of(channel), 1.0)
    host = TopicHost(QUICK, state, hosts=lambda name: name == channel)
    host.start(0.0)
    return host


def sent(actions: list[Action]) -> list[tuple[str, Any]]:
    return [(a.to, a.message) for a in actions if isinstance(a, Send)]


def test_a_message_for_a_channel_on_another_host_goes_over_the_network() -> None:
    topic, cluster = host_only("topic/t"), host_only("cluster/1/t")
    flows = (TopicFlow("t", 1.0), TopicFlow("u", 1.0))
    ((to, found),) = sent(topic.tell("topic/t", Advise(flows, invited=("s",)), 1.0))
    assert (to, found) == ("cluster/1/t", ChannelMessage("topic/t", Found(("t", "u"), ("s",))))
    actions = cluster.on_message("topic/t", ChannelMessage(to, found.message), 1.0)
    carry = dict(sent(actions))["topic/t"]
    assert dict(sent(actions)).keys() == {"topic/t", "topic/u"}
    actions = topic.on_message(to, ChannelMessage("topic/t", carry.message), 1.0)
    assert [to for to, _ in sent(actions)] == ["cluster/1/t"]
    assert not topic.clusters
    assert not cluster.topics


@pytest.mark.parametrize(
    ("sender", "to"), [("topic/t", "topic/t"), ("topic/u", "topic/v"), ("service", "topic/t")]
)
def test_a_host_takes_words_of_channels_on_other_hosts_alone(sender: str, to: str) -> None:
    host = host_only("topic/t")
    carry = Carry(1, (TopicFlow("t", 1.0),), 1.0)
    assert host.on_message(sender, ChannelMessage(to, carry), 1.0) == []
    assert host.counts.refused == 1


# --- advice --------------------------------------------------------------------------------------


def subscribe(host: StoredHost, name: str, *topics: str) -> Subscriber:
    subscriber = Subscriber(name, QUICK)
    host.out.clear()
    for topic in topics:
        todo = [*subscriber.on_message("app", Want(topic), 1.0)]
        while todo:
            for action in todo:
                if isinstance(action, Send):
                    host.take(name, action.to, action.message, 1.0)
            out, host.out = host.out, []
            todo = [a for _, by, said in out for a in subscriber.on_message(by, said, 1.0)]
    return subscriber


def test_those_who_would_gain_are_invited_by_name_and_nobody_else(host: StoredHost) -> None:
    for topic in "abcx":
        host.take("p", topic_channel(topic), Create(1.0), 1.0)
    for name in ("one", "two", "three"):
        subscribe(host, name, "a", "b", "c")
    subscribe(host, "other", "x")
    adviser = Adviser(host, 10_000)
    advice = adviser.propose(survey([host], 1.0))
    assert [{*said.invited} for _, said in advice] == [{"one", "two", "three"}]
    host.out.clear()
    for give in adviser.hand_out(advice):
        host.perform(give(2.0))
    invited = {to: said.quote for to, _, said in host.out if isinstance(said, Invite)}
    assert invited.keys() == {"one", "two", "three"}
    assert {flow.topic for flow in invited["one"].topics} == {*"abc"}


def test_a_channel_that_many_messages_change_at_once_is_recorded_once(host: StoredHost) -> None:
    topics = [f"many {n}" for n in range(30)]
    for topic in topics:
        host.take("p", topic_channel(topic), Create(1.0), 1.0)
    actions = host.tell("cluster/1/t", Found(tuple(topics), ("one",)), 2.0)
    assert host.clusters["cluster/1/t"].state.topics.keys() == {*topics}
    assert sum(isinstance(action, Append) for action in actions) == len(topics) + 1


# --- events --------------------------------------------------------------------------------------


@pytest.fixture
def host(tmp_path: Path) -> Iterator[StoredHost]:
    store, host = open_host(tmp_path)
    with store:
        host.take("p", topic_channel("t"), Create(0.0), 0.0)
        host.out.clear()
        yield host


def put(host: StoredHost, number: int, stream: int = 1) -> None:
    host.take("p", topic_channel("t"), Put(stream, number, b"%d" % number), 1.0)


def test_an_event_that_is_said_again_is_confirmed_and_not_taken_twice(host: StoredHost) -> None:
    for number in (1, 2, 2, 1, 3, 3):
        put(host, number)
    history = host.topics["topic/t"].state.history
    assert [event.payload for event in history] == [b"1", b"2", b"3"]
    assert host.out[-1] == ("p", "service", Taken(1, 3))
    assert host.counts.repeated == 3


def test_an_event_that_comes_too_early_is_not_taken(host: StoredHost) -> None:
    put(host, 2)
    assert host.out == [("p", "service", Expect(1, 1))]
    assert not host.topics["topic/t"].state.history


def test_who_publishes_to_no_topic_is_told(host: StoredHost) -> None:
    host.take("p", topic_channel("other"), Put(1, 1, b""), 1.0)
    host.take("s", topic_channel("other"), Inquire(), 1.0)
    assert host.out == [("p", "service", NoTopic("other")), ("s", "service", NoTopic("other"))]


def test_a_publisher_that_says_goodbye_is_forgotten(host: StoredHost) -> None:
    put(host, 1)
    host.take("p", "service", Bye(), 1.0)
    assert host.state.streams == {"topic/t": {}}
    assert "p" not in host.heard


def test_a_publisher_that_is_there_is_not_forgotten_however_seldom_it_publishes(
    host: StoredHost,
) -> None:
    put(host, 1)
    host.take("p", "service", Beat(0, True), 90_000.0)
    host.perform(host.sweep(90_000.0, 86_400.0))
    put(host, 2)
    assert host.out[-1] == ("p", "service", Taken(1, 2))
    host.perform(host.bury(200_000.0, 10.0))
    assert not host.heard
    host.perform(host.sweep(200_000.0, 86_400.0))
    assert host.state.streams == {"topic/t": {}}


def test_nobody_is_dead_because_the_service_could_not_hear_them(host: StoredHost) -> None:
    host.perform(host.excuse(100.0))
    host.perform(host.bury(105.0, 10.0))
    assert "p" in host.heard
    host.perform(host.bury(111.0, 10.0))
    assert "p" not in host.heard


@pytest.mark.parametrize(
    "sender", ["", "service", "topic/t", "cluster/1/t", "members/topic/t", "x" * 257]
)
def test_who_cannot_be_a_client_is_not_listened_to(host: StoredHost, sender: str) -> None:
    host.take(sender, topic_channel("t"), Inquire(), 1.0)
    assert host.out == []
    assert host.counts.refused == 1
    assert sender not in host.heard


@pytest.mark.parametrize("flow", [-1.0, float("inf"), float("nan")])
def test_an_impossible_guess_of_a_flow_counts_for_nothing(host: StoredHost, flow: float) -> None:
    host.take("p", topic_channel("u"), Create(flow), 1.0)
    assert host.flow("topic/u", 2.0) == 0.0


def test_a_guess_beyond_all_measure_leaves_prices_that_are_numbers(host: StoredHost) -> None:
    """A search for clusters adds and multiplies them; it must not end the service."""
    for topic in ("u", "v"):
        host.take("p", topic_channel(topic), Create(1.7e308), 1.0)
        for name in ("r", "s"):
            host.take(name, topic_channel(topic), Join(1), 1.0)
    found = survey([host], 1.0)
    assert found.flows.sum() <= 2e12 + 1.0
    assert Adviser(host, 1_000).propose(found) is not None


def test_a_cluster_does_not_wait_for_a_topic_that_nobody_made(host: StoredHost) -> None:
    tell = Tell((News(TopicFlow("never made", 1.0), True),), (), ("topic/never made",))
    host.take("s", "cluster/1/t", Join(1), 1.0)
    host.take("s", "cluster/1/t", tell, 1.0)
    assert host.counts.refused == 1
    assert not host.clusters["cluster/1/t"].state.adding


def tell_forgotten(host: StoredHost, subscriber: Subscriber, generation: int, at: float) -> None:
    """The client, still of that generation, is told twice that it is forgotten, and joins again."""
    for now in (at, at + 1.0):
        host.take("s", "service", Beat(generation, True), now)
        assert host.out.pop() == ("s", "service", Forgotten(generation))
    for action in subscriber.on_message("service", Forgotten(generation), at + 2.0):
        if isinstance(action, Send):
            host.take("s", action.to, action.message, at + 2.0)
    assert "s" in host.topics["topic/t"].state.members


def test_a_client_that_was_away_for_days_is_told_too(host: StoredHost) -> None:
    subscriber = subscribe(host, "s", "t")
    subscriber.generation = 3
    host.perform(host.bury(20.0, 5.0))
    host.perform(host.sweep(200_000.0, 86_400.0))
    assert not host.state.dead
    host.take("s", topic_channel("t"), Repair(1), 200_000.0)
    host.out.clear()
    tell_forgotten(host, subscriber, 3, 200_001.0)
    for new in (Beat(subscriber.generation, True), Beat(0, False)):
        host.take("s" if new.joined else "new", "service", new, 200_004.0)
        assert isinstance(host.out.pop()[2], Pulse)


def test_what_no_channel_understands_is_counted(host: StoredHost) -> None:
    host.take("x", topic_channel("t"), Settled(1), 1.0)
    host.take("x", "nothing of ours", Inquire(), 1.0)
    host.take("x", topic_channel("t"), Event("t", 1, b""), 1.0)
    assert host.counts.refused == 3
    assert host.out == []


def test_a_client_that_was_found_dead_is_told_until_it_knows(host: StoredHost) -> None:
    subscriber = subscribe(host, "s", "t")
    machine = host.topics["topic/t"]
    assert "s" in machine.state.members
    host.perform(host.bury(20.0, 5.0))
    assert not host.heard
    assert "s" not in machine.state.members
    tell_forgotten(host, subscriber, 0, 21.0)
    host.perform(host.bury(40.0, 5.0))
    assert not host.heard
    host.take("s", "service", Beat(1, True), 41.0)
    assert host.out[-1] == ("s", "service", Forgotten(1))
    assert not any(map(is_cluster, host.topics))


def test_a_client_that_knows_the_pulse_is_not_told_it_again(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        host = StoredHost(store)
        host.perform(host.start(1.0))
        host.take("s", "service", Beat(0, False), 1.0)
        (pulse,) = [said for _, _, said in host.out if isinstance(said, Pulse)]
        host.out.clear()
        host.take("s", "service", Beat(0, False, pulse=checksum(pulse)), 2.0)
        assert host.out == []
        assert host.heard["s"] == 2.0
        host.perform(host.start(10_000.0))  # a new epoch
        host.take("s", "service", Beat(0, False, pulse=checksum(pulse)), 10_001.0)
        assert [type(said) for _, _, said in host.out if isinstance(said, Pulse)] == [Pulse]
