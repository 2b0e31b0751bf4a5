"""Under `--policy tamara` readers of the same topics come into one cluster and stay there."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distributary.machines.actions import Action, Send, SetTimer
from distributary.topics import (
    TAMARA,
    ClusterChannel,
    Policy,
    Subscriber,
    members_of,
    topic_channel,
)
from distributary.topics.codec import Beat, Create, Pulse, Put
from distributary.topics.host import TopicHost
from distributary.topics.journal import Journal
from distributary.topics.messages import Want
from distributary.topics.nats import embedded_server, live_policy
from distributary.topics.store import TopicStore
from tests.topics.nats.running import client, run, serving

READERS = [f"reader {n}" for n in range(8)]
TOPICS = [f"t{n}" for n in range(4)]
MEMBERS = members_of("")


class Town:
    """A host and its readers in virtual time, some way from each other."""

    def __init__(self, policy: Policy, folder: Path, seed: int, delay: float) -> None:
        self.journal = Journal(folder)
        self.host = TopicHost(policy, TopicStore(self.journal, policy), seed=seed)
        self.host.start(0.0)
        self.readers = {name: Subscriber(name, policy) for name in READERS}
        self.rng = np.random.default_rng(seed)
        self.delay = delay
        self.now = 0.0
        self.ended: set[str] = set()
        self.seen: set[str] = set()
        self._calls: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._timers: dict[tuple[str, str], float | None] = {}

    def at(self, time: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._calls, (time, next(self._order), call))

    def run(self, until: float) -> None:
        while self._calls and self._calls[0][0] <= until:
            self.now, _, call = heapq.heappop(self._calls)
            call()
            self.let_out()
        self.now = until

    def say(self, reader: str, to: str, message: Any) -> None:
        """A reader's word arrives at the host after a while, late by up to as much again."""
        self.at(self.later(), lambda: self.host.take(reader, to, message, self.now) and None)

    def later(self) -> float:
        return self.now + self.delay * float(self.rng.uniform(1.0, 2.0))

    def let_out(self) -> None:
        host = self.host
        host.store.commit()
        host.taken.clear()
        timers, host.timers = host.timers, []
        for channel, name, at in timers:
            self.set_timer(channel, name, at)
        out, host.out = host.out, []
        for to, sender, message in out:
            channel = to.removeprefix(MEMBERS)
            for name, reader in self.readers.items():
                if name == to or (channel != to and channel in reader.on):
                    self.at(self.later(), partial(self.tell, name, sender, message))
        self.seen |= {name for name, each in host.clusters.items() if each.size == len(READERS)}
        self.ended |= {n for n in self.seen if n not in host.clusters or host.clusters[n].finished}

    def tell(self, name: str, sender: str, message: Any) -> None:
        if not isinstance(message, Pulse):
            self.perform(name, self.readers[name].on_message(sender, message, self.now))

    def perform(self, name: str, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Send):
                self.say(name, action.to, action.message)
            elif isinstance(action, SetTimer):
                self.set_timer(name, action.name, action.at)

    def set_timer(self, who: str, name: str, at: float | None) -> None:
        self._timers[who, name] = at
        if at is not None:
            self.at(at, partial(self.ring, who, name, at))

    def ring(self, who: str, name: str, at: float) -> None:
        if self._timers.get((who, name)) != at:
            return
        if who in self.readers:
            self.perform(who, self.readers[who].on_timer(name, self.now))
        else:
            self.host.due(who, name, self.now)

    def want(self, name: str, topic: str) -> None:
        self.perform(name, self.readers[name].on_message("app", Want(topic), self.now))

    def publish(self, topic: str, number: int) -> None:
        self.host.take("publisher", topic_channel(topic), Put(1, number, b""), self.now)


def form_clusters(folder: Path, seed: int, delay: float, apart: float, events: int) -> Town:
    """Let readers come `apart` seconds after each other, and publish."""
    town = Town(live_policy(TAMARA, interval=1.0), folder, seed, delay)
    for topic in TOPICS:
        town.host.take("publisher", topic_channel(topic), Create(0.0), 0.0)
    for at, name in enumerate(READERS):
        town.at(apart * at, partial(town.say, name, "service", Beat(0, False)))
        for number, topic in enumerate(TOPICS):
            town.at(0.1 + apart * at + 0.01 * number, partial(town.want, name, topic))
    for number in range(events):
        for topic in TOPICS:
            town.at(2.0 * number, partial(town.publish, topic, number + 1))
    return town


@pytest.mark.parametrize("delay", [0.001, 0.05])
@pytest.mark.parametrize("apart", [0.0, 0.3, 1.0])
def test_eight_readers_of_the_same_topics_form_one_cluster_and_keep_it(
    delay: float, apart: float, tmp_path: Path
) -> None:
    for seed in range(4):
        events = 30 * (seed % 2)
        town = form_clusters(tmp_path / str(seed), seed, delay, apart, events)
        try:
            town.run(30.0)
            (formed,) = [name for name, each in town.host.clusters.items() if not each.finished]
            version = town.host.clusters[formed].state.version
            town.run(90.0)
            cluster = town.host.clusters[formed]
            assert (cluster.size, sorted(cluster.state.topics)) == (8, TOPICS)
            assert cluster.state.version == version
            assert not any(town.host.topics[topic_channel(topic)].size for topic in TOPICS)
            assert len(town.ended) <= 1  # of two pairs that merge
        finally:
            town.journal.close()


def complete_clusters(clusters: dict[str, ClusterChannel]) -> list[str]:
    return [
        name
        for name, each in clusters.items()
        if each.size == len(READERS) and len(each.state.topics) == len(TOPICS)
    ]


async def keep_one_cluster(folder: Path, policy: Policy, surveys: int) -> None:
    """Return once a live service has one cluster of all, and has surveyed it so many times more."""
    async with (
        embedded_server() as server,
        serving(server.options, folder, policy=policy) as service,
        AsyncExitStack() as stack,
    ):
        readers = [await stack.enter_async_context(client(server.options)) for _ in READERS]
        for topic in TOPICS:
            await readers[0].create(topic)
        for reader in readers:
            for topic in TOPICS:
                await reader.subscribe(topic)
        host = service.host
        while not (formed := complete_clusters(host.clusters)):
            await asyncio.sleep(0.02)
        state = host.clusters[formed[0]].state
        counter, version = state.counter, state.version
        while state.counter < counter + surveys:
            await asyncio.sleep(0.02)
        assert complete_clusters(host.clusters) == formed
        assert state.version == version


def test_a_live_service_keeps_the_cluster_that_all_readers_share(tmp_path: Path) -> None:
    policy = live_policy(TAMARA, interval=0.3)
    run(keep_one_cluster(tmp_path, replace(policy, answer_within=0.2, lock_for=1.0), 4))


@pytest.mark.slow
def test_a_live_service_with_an_interval_of_a_second_keeps_it_too(tmp_path: Path) -> None:
    run(keep_one_cluster(tmp_path, live_policy(TAMARA, interval=1.0), 12))
