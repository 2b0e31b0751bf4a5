"""Under `--policy tamara` readers of the same topics come into one cluster and stay there."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from distributary.machines.virtual import Link
from distributary.topics import (
    TAMARA,
    ClusterChannel,
    Policy,
    topic_channel,
)
from distributary.topics.codec import Beat, Create
from distributary.topics.nats import live_policy, price_channels, run_embedded_server
from distributary.topics.simulation import TopicSystem
from tests.topics.nats.running import client, run, serving

READERS = [f"reader {n}" for n in range(8)]
TOPICS = [f"t{n}" for n in range(4)]


class Town:
    """A host of all channels and its readers in virtual time, some way from each other."""

    def __init__(self, policy: Policy, seed: int, delay: float) -> None:
        link = Link(delay, delay, reorders=True)
        self.system = TopicSystem(policy, {}, seed=seed, link=link, together=True)
        (self.host,) = self.system.hosts.values()
        self.system.listeners.append(self.look)
        self.ended: set[str] = set()
        self.seen: set[str] = set()

    def look(self, sender: str, to: str, message: object) -> None:
        """See which clusters have all readers, and which had them and are no more."""
        clusters = self.host.clusters
        self.seen |= {name for name, each in clusters.items() if each.size == len(READERS)}
        self.ended |= {n for n in self.seen if n not in clusters or clusters[n].finished}


def form_clusters(seed: int, delay: float, apart: float, events: int) -> Town:
    """Let readers come `apart` seconds after each other, and publish."""
    town = Town(live_policy(TAMARA, interval=1.0), seed, delay)
    system = town.system
    for topic in TOPICS:
        system.simulation.post(0.0, topic_channel(topic), Create(0.0), sender="publisher")
    for at, name in enumerate(READERS):
        system.subscriber(name)
        system.simulation.post(apart * at, "service", Beat(0, False), sender=name)
        for number, topic in enumerate(TOPICS):
            system.want(0.1 + apart * at + 0.01 * number, name, topic)
    for number in range(events):
        for topic in TOPICS:
            system.publish(2.0 * number, topic)
    return town


@pytest.mark.parametrize("delay", [0.001, 0.05])
@pytest.mark.parametrize("apart", [0.0, 0.3, 1.0])
def test_eight_readers_of_the_same_topics_form_one_cluster_and_keep_it(
    delay: float, apart: float
) -> None:
    for seed in range(4):
        town = form_clusters(seed, delay, apart, events=30 * (seed % 2))
        town.system.run(30.0)
        (formed,) = [name for name, each in town.host.clusters.items() if not each.finished]
        version = town.host.clusters[formed].state.version
        town.system.run(90.0)
        cluster = town.host.clusters[formed]
        assert (cluster.size, sorted(cluster.state.topics)) == (8, TOPICS)
        assert cluster.state.version == version
        assert not any(town.host.topics[topic_channel(topic)].size for topic in TOPICS)
        assert len(town.ended) <= 1  # of two pairs that merge


def complete_clusters(clusters: dict[str, ClusterChannel]) -> list[str]:
    return [
        name
        for name, each in clusters.items()
        if each.size == len(READERS) and len(each.state.topics) == len(TOPICS)
    ]


async def keep_one_cluster(folder: Path, policy: Policy, surveys: int) -> None:
    """Return once a live service has one cluster of all, and has surveyed it so many times more."""
    async with (
        run_embedded_server() as server,
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


def test_a_policy_for_nats_has_the_given_period_and_prices() -> None:
    policy = live_policy(TAMARA, interval=2.0, survey_every=7.0, prices=price_channels(0.5, 3.0))
    assert (policy.survey_every, policy.prices.notify, policy.prices.associate(4)) == (7, 0.5, 12)
    assert live_policy(TAMARA, interval=2.0).survey_every == 2.0
    assert live_policy(interval=2.0, survey_every=7.0).survey_every == float("inf")
