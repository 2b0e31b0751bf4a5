"""All channels of a service in virtual time: what is kept, and what comes back after a crash."""

from __future__ import annotations

import heapq
import random
import shutil
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from distributary.machines.actions import Deliver, Send, SetTimer
from distributary.topics import TAMARA, Policy, Subscriber, is_cluster, members_of, topic_channel
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
)
from distributary.topics.errors import EventsForgottenError, EventsLostError
from distributary.topics.host import TopicHost
from distributary.topics.journal import Journal
from distributary.topics.messages import (
    Event,
    Inquire,
    Invite,
    Join,
    Leave,
    News,
    Repair,
    Settled,
    Tell,
    TopicFlow,
    Unwant,
    Want,
)
from distributary.topics.store import Kept, TopicStore
from distributary.topics.survey import survey
from tests.topics.nats.running import QUICK

MEMBERS = members_of("")


def opened(folder: Path, policy: Policy = QUICK) -> tuple[Journal, TopicHost]:
    journal = Journal(folder)
    return journal, TopicHost(policy, TopicStore(journal, policy))


class World:
    """A host, its journal, and subscribers; messages between them are lost now and then."""

    def __init__(self, seed: int, folder: Path, policy: Policy, loss: float) -> None:
        self.rng = random.Random(seed)
        self.folder, self.policy, self.loss = folder, policy, loss
        self.now = 1_000.0
        self.journal, self.host = opened(folder, policy)
        self.subscribers = {name: Subscriber(name, policy) for name in "abcde"}
        self.topics = [f"t{n}" for n in range(5)]
        self.got: dict[tuple[str, str], list[int]] = defaultdict(list)
        self.heap: list[tuple[float, int, str, str, str]] = []
        self.number = count()
        self.set: dict[tuple[str, str], float | None] = {}
        self.streams = dict.fromkeys(self.topics, 0)
        self.crashes = 0
        self.found_dead = 0
        self.had_clusters = False
        for topic in self.topics:
            self.host.take("a", topic_channel(topic), Create(1.0), self.now)
        self.settle()

    def settle(self) -> None:
        """Commit, compare with what a restart would find, then let everything out."""
        while True:
            self.host.store.commit()
            for channel, name, at in self.host.timers:
                self.timer(channel, name, at)
            self.host.timers.clear()
            self.host.taken.clear()
            out, self.host.out = self.host.out, []
            if not out:
                return
            for to, sender, message in out:
                for name in self.audience(to):
                    if self.rng.random() >= self.loss:
                        self.tell(name, sender, message)

    def audience(self, to: str) -> list[str]:
        channel = to.removeprefix(MEMBERS)
        if channel == to:
            return [to] if to in self.subscribers else []
        return [name for name, each in self.subscribers.items() if channel in each.on]

    def tell(self, name: str, sender: str, message: Any) -> None:
        self.found_dead += isinstance(message, Forgotten)
        if not isinstance(message, Expect | NoTopic | Pulse):
            self.perform(name, self.subscribers[name].on_message(sender, message, self.now))

    def perform(self, name: str, actions: list[Any]) -> None:
        for action in actions:
            match action:
                case Send(to, message):
                    if self.rng.random() >= self.loss:
                        self.host.take(name, to, message, self.now)
                case SetTimer(timer, at):
                    self.timer(name, timer, at)
                case Deliver(_, EventsLostError() as lost, _):  # kept for no longer
                    assert not isinstance(lost, EventsForgottenError)
                    self.got.pop((name, lost.topic), None)
                case Deliver(_, event, _):
                    self.got[name, event.topic].append(event.number)

    def timer(self, who: str, name: str, at: float | None) -> None:
        self.set[who, name] = at
        if at is not None:
            heapq.heappush(self.heap, (at, next(self.number), who, name, ""))

    def pass_time(self, seconds: float) -> None:
        until = self.now + seconds
        while self.heap and self.heap[0][0] <= until:
            at, _, who, name, _ = heapq.heappop(self.heap)
            if self.set.get((who, name)) != at:
                continue
            self.now = max(self.now, at)
            if who in self.subscribers:
                self.perform(who, self.subscribers[who].on_timer(name, self.now))
            else:
                self.host.due(who, name, self.now)
            self.settle()
        self.now = until

    def crash(self) -> None:
        self.journal.close()
        self.journal, self.host = opened(self.folder, self.policy)
        self.set = {key: at for key, at in self.set.items() if key[0] in self.subscribers}
        self.host.start(self.now)
        self.settle()
        self.crashes += 1

    def step(self) -> None:
        topic, name = self.rng.choice(self.topics), self.rng.choice("abcde")
        subscriber = self.subscribers[name]
        match self.rng.randrange(8):
            case 0 | 1 if topic not in subscriber.wanted:
                self.got.pop((name, topic), None)
                self.perform(name, subscriber.on_message("app", Want(topic), self.now))
            case 2 if self.rng.random() < 0.4:
                self.perform(name, subscriber.on_message("app", Unwant(topic), self.now))
            case 3 | 4:
                self.streams[topic] += 1
                put = Put(1, self.streams[topic], b"payload")
                self.host.take("a", topic_channel(topic), put, self.now)
            case 5:
                self.advise()
            case 6:
                self.host.sweep(self.now, self.rng.choice([0.0, 1e9]))
            case 7 if self.rng.random() < 0.3:
                self.host.heard[name] = self.now - 100.0
                self.host.bury(self.now, 50.0)
        self.settle()
        beat = Beat(subscriber.generation, bool(subscriber.channels()))
        self.host.take(name, "service", beat, self.now)
        self.settle()
        self.had_clusters |= any(each.size for each in self.host.clusters.values())

    def advise(self) -> None:
        adviser = Adviser(self.host, 10_000)
        found = survey(self.host, self.now)
        adviser.remind(self.now)
        adviser.give(adviser.propose(found), self.now)

    def kept(self) -> Kept:
        """What somebody else would find in the journal as it is now."""
        copy = self.folder.with_name("copy")
        copy.mkdir(exist_ok=True)
        shutil.copy(self.journal.path, copy / "journal")
        with Journal(copy) as journal:
            return TopicStore(journal, self.policy).kept

    def check_order(self) -> None:
        for numbers in self.got.values():
            assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def run_schedule(seed: int, folder: Path) -> World:
    """Raise an AssertionError unless the journal says at any time what the channels know."""
    rng = random.Random(seed)
    policy = rng.choice([QUICK, replace(TAMARA, prices=QUICK.prices, survey_every=5.0, retry=0.3)])
    world = World(seed, folder, replace(policy, history=7, remember=2.0), rng.choice([0.0, 0.1]))
    try:
        for step in range(60):
            world.step()
            if rng.random() < 0.3:
                world.pass_time(rng.random() * 2)
            if step % 5 == 0:
                assert world.kept() == world.host.store.kept
            if rng.random() < 0.04:
                world.crash()
            if rng.random() < 0.04:
                world.host.store.shorten()
                assert world.kept() == world.host.store.kept
        world.check_order()
    except AssertionError as error:
        raise AssertionError(f"run_schedule({seed}, folder) runs it again") from error
    finally:
        world.journal.close()
    return world


def test_the_journal_says_at_any_time_what_the_channels_know(tmp_path: Path) -> None:
    worlds = [run_schedule(seed, tmp_path / str(seed) / "state") for seed in range(40)]
    assert sum(world.had_clusters for world in worlds) > 10
    assert sum(world.crashes for world in worlds) > 40
    assert sum(world.found_dead for world in worlds) > 20


@pytest.mark.slow
def test_it_does_for_hundreds_of_seeds(tmp_path: Path) -> None:
    for seed in range(1_000, 1_600):
        run_schedule(seed, tmp_path / str(seed) / "state")


def test_who_left_is_forgotten_in_time_and_a_restart_forgets_the_same(tmp_path: Path) -> None:
    policy = replace(QUICK, remember=10.0)
    journal, host = opened(tmp_path / "state", policy)
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
        host.store.commit()
        if shorten:
            host.store.shorten()
        journal.close()
        journal, host = opened(tmp_path / "state", policy)
        host.start(300.0)
        state = host.topics[channel].state
        assert list(state.departed.items()) == list(known.items())
        host.take("s299", channel, Join(1), 300.0)  # late, and said to somebody who was not there
        assert not state.members
    journal.close()


# --- advice --------------------------------------------------------------------------------------


def subscribed(host: TopicHost, name: str, *topics: str) -> Subscriber:
    subscriber = Subscriber(name, QUICK)
    for topic in topics:
        todo = [*subscriber.on_message("app", Want(topic), 1.0)]
        while todo:
            for action in todo:
                if isinstance(action, Send):
                    host.take(name, action.to, action.message, 1.0)
            out, host.out = host.out, []
            todo = [a for _, by, said in out for a in subscriber.on_message(by, said, 1.0)]
    return subscriber


def test_those_who_would_gain_are_invited_by_name_and_nobody_else(host: TopicHost) -> None:
    for topic in "abcx":
        host.take("p", topic_channel(topic), Create(1.0), 1.0)
    for name in ("one", "two", "three"):
        subscribed(host, name, "a", "b", "c")
    subscribed(host, "other", "x")
    adviser = Adviser(host, 10_000)
    advice = adviser.propose(survey(host, 1.0))
    assert [{*said.invited} for _, said in advice] == [{"one", "two", "three"}]
    host.out.clear()
    adviser.give(advice, 2.0)
    invited = {to: said.quote for to, _, said in host.out if isinstance(said, Invite)}
    assert invited.keys() == {"one", "two", "three"}
    assert {flow.topic for flow in invited["one"].topics} == {*"abc"}


# --- events --------------------------------------------------------------------------------------


@pytest.fixture
def host(tmp_path: Path) -> Iterator[TopicHost]:
    journal, host = opened(tmp_path)
    with journal:
        host.take("p", topic_channel("t"), Create(0.0), 0.0)
        host.out.clear()
        yield host


def put(host: TopicHost, number: int, stream: int = 1) -> None:
    host.take("p", topic_channel("t"), Put(stream, number, b"%d" % number), 1.0)


def test_an_event_that_is_said_again_is_confirmed_and_not_taken_twice(host: TopicHost) -> None:
    for number in (1, 2, 2, 1, 3, 3):
        put(host, number)
    history = host.topics["topic/t"].state.history
    assert [event.payload for event in history] == [b"1", b"2", b"3"]
    assert host.taken == {("p", 1): 3}
    assert host.counts.repeated == 3


def test_an_event_that_comes_too_early_is_not_taken(host: TopicHost) -> None:
    put(host, 2)
    assert host.out == [("p", "service", Expect(1, 1))]
    assert not host.taken
    assert not host.topics["topic/t"].state.history


def test_who_publishes_to_no_topic_is_told(host: TopicHost) -> None:
    host.take("p", topic_channel("other"), Put(1, 1, b""), 1.0)
    host.take("s", topic_channel("other"), Inquire(), 1.0)
    assert host.out == [("p", "service", NoTopic("other")), ("s", "service", NoTopic("other"))]


def test_a_publisher_that_says_goodbye_is_forgotten(host: TopicHost) -> None:
    put(host, 1)
    host.take("p", "service", Bye(), 1.0)
    assert host.store.kept.streams == {"topic/t": {}}
    assert "p" not in host.heard


def test_a_publisher_that_is_there_is_not_forgotten_however_seldom_it_publishes(
    host: TopicHost,
) -> None:
    put(host, 1)
    host.take("p", "service", Beat(0, True), 90_000.0)
    host.sweep(90_000.0, 86_400.0)
    put(host, 2)
    assert host.taken == {("p", 1): 2}
    assert host.bury(200_000.0, 10.0) == ["p"]
    host.sweep(200_000.0, 86_400.0)
    assert host.store.kept.streams == {"topic/t": {}}


def test_nobody_is_dead_because_the_service_could_not_hear_them(host: TopicHost) -> None:
    host.excuse(100.0)
    assert host.bury(105.0, 10.0) == []
    assert host.bury(111.0, 10.0) == ["p"]


@pytest.mark.parametrize(
    "sender", ["", "service", "topic/t", "cluster/1/t", "members/topic/t", "x" * 257]
)
def test_who_cannot_be_a_client_is_not_listened_to(host: TopicHost, sender: str) -> None:
    host.take(sender, topic_channel("t"), Inquire(), 1.0)
    assert host.out == []
    assert host.counts.refused == 1
    assert sender not in host.heard


@pytest.mark.parametrize("flow", [-1.0, float("inf"), float("nan")])
def test_an_impossible_guess_of_a_flow_counts_for_nothing(host: TopicHost, flow: float) -> None:
    host.take("p", topic_channel("u"), Create(flow), 1.0)
    assert host.flow("topic/u", 2.0) == 0.0


def test_a_cluster_does_not_wait_for_a_topic_that_nobody_made(host: TopicHost) -> None:
    tell = Tell((News(TopicFlow("never made", 1.0), True),), (), ("topic/never made",))
    host.take("s", "cluster/1/t", Join(1), 1.0)
    host.take("s", "cluster/1/t", tell, 1.0)
    assert host.counts.refused == 1
    assert not host.clusters["cluster/1/t"].state.adding


def test_a_client_that_was_away_for_days_is_told_too(host: TopicHost) -> None:
    subscriber = subscribed(host, "s", "t")
    subscriber.generation = 3
    host.bury(20.0, 5.0)
    host.sweep(200_000.0, 86_400.0)
    assert not host.store.kept.dead
    host.take("s", topic_channel("t"), Repair(1), 200_000.0)
    host.out.clear()
    for at in (200_001.0, 200_002.0):
        host.take("s", "service", Beat(3, True), at)
        assert host.out.pop() == ("s", "service", Forgotten(3))
    for action in subscriber.on_message("service", Forgotten(3), 200_003.0):
        if isinstance(action, Send):
            host.take("s", action.to, action.message, 200_003.0)
    assert "s" in host.topics["topic/t"].state.members
    for new in (Beat(subscriber.generation, True), Beat(0, False)):
        host.take("s" if new.joined else "new", "service", new, 200_004.0)
        assert isinstance(host.out.pop()[2], Pulse)


def test_what_no_channel_understands_is_counted(host: TopicHost) -> None:
    host.take("x", topic_channel("t"), Settled(1), 1.0)
    host.take("x", "nothing of ours", Inquire(), 1.0)
    host.take("x", topic_channel("t"), Event("t", 1, b""), 1.0)
    assert host.counts.refused == 3
    assert host.out == []


def test_a_client_that_was_found_dead_is_told_until_it_knows(host: TopicHost) -> None:
    subscriber = subscribed(host, "s", "t")
    machine = host.topics["topic/t"]
    assert "s" in machine.state.members
    assert host.bury(20.0, 5.0) == ["p", "s"]
    assert "s" not in machine.state.members
    for at in (21.0, 22.0):
        host.take("s", "service", Beat(0, True), at)
        assert host.out.pop() == ("s", "service", Forgotten(0))
    for action in subscriber.on_message("service", Forgotten(0), 23.0):
        if isinstance(action, Send):
            host.take("s", action.to, action.message, 23.0)
    assert "s" in machine.state.members
    assert host.bury(40.0, 5.0) == ["s"]
    host.take("s", "service", Beat(1, True), 41.0)
    assert host.out[-1] == ("s", "service", Forgotten(1))
    assert not any(map(is_cluster, host.topics))
