"""The channel service is killed at random moments, and nobody misses an event."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from distributary.topics import is_cluster
from distributary.topics.nats import TopicClient, run_embedded_server
from tests.topics.nats.running import Child, client, run

TOPICS = tuple(f"topic {n} ü.>" for n in range(8))
STAYING, MOVING = 4, 2


@dataclass
class Seen:
    """What one staying subscriber got, by topic."""

    numbers: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    payloads: dict[str, list[bytes]] = field(default_factory=lambda: defaultdict(list))


async def read(subscriber: TopicClient, topic: str, seen: Seen) -> None:
    async for event in await subscriber.subscribe(topic):
        seen.numbers[topic].append(event.number)
        seen.payloads[topic].append(event.payload)


async def wander(subscriber: TopicClient, rng: random.Random) -> None:
    """Take topics up and give them up, for ever; what comes must be in order all the same."""
    while True:
        topic = rng.choice(TOPICS)
        subscription = await subscriber.subscribe(topic)
        last = 0
        for _ in range(rng.randrange(1, 60)):
            event = await subscription.get()
            assert event is not None
            assert event.number == last + 1 or not last
            last = event.number
        await subscriber.unsubscribe(topic)


async def publish(
    publisher: TopicClient, topic: str, accepted: list[bytes], done: asyncio.Event, seed: int
) -> None:
    rng = random.Random(seed)
    at = 0
    while not done.is_set():
        batch = [b"%d" % number for number in range(at, at + rng.randrange(1, 8))]
        at += len(batch)
        await asyncio.gather(*(publisher.publish(topic, payload) for payload in batch))
        accepted += batch
        await asyncio.sleep(rng.random() * 0.05)


async def killing(child: Child, kills: int, rng: random.Random) -> None:
    for _ in range(kills):
        await asyncio.sleep(rng.random() * 1.5)
        await child.kill()
        await asyncio.sleep(rng.random() * 0.3)
        await child.start()
    await asyncio.sleep(1.0)


async def schedule(seed: int, kills: int, folder: Path) -> int:
    """Publish and read while the service is killed; how many events everybody got."""
    rng = random.Random(seed)
    accepted: dict[str, list[bytes]] = {topic: [] for topic in TOPICS}
    everybody = [Seen() for _ in range(STAYING)]
    done = asyncio.Event()
    async with run_embedded_server() as server:
        child = Child(server.options, folder)
        await child.start()
        try:
            async with client(server.options) as publisher, asyncio.TaskGroup() as readers:
                for topic in TOPICS:
                    await publisher.create(topic)
                clients = [client(server.options) for _ in range(STAYING + MOVING)]
                for each in clients:
                    await each.__aenter__()
                interests = [
                    [topic for topic in TOPICS if rng.random() < 0.8] for _ in range(STAYING)
                ]
                staying = zip(clients[:STAYING], everybody, interests, strict=True)
                work = [read(c, topic, seen) for c, seen, topics in staying for topic in topics]
                work += [wander(each, random.Random(seed + 1)) for each in clients[STAYING:]]
                tasks = [readers.create_task(each) for each in work]
                await asyncio.sleep(1.0)
                async with asyncio.TaskGroup() as publishing:
                    for at, topic in enumerate(TOPICS):
                        publishing.create_task(
                            publish(publisher, topic, accepted[topic], done, seed + at)
                        )
                    await killing(child, kills, rng)
                    done.set()
                await caught_up(everybody, interests, accepted)
                on = {name for each in clients[:STAYING] for name in each.statistics.channels}
                assert any(is_cluster(name) for name in on)
                for task in tasks:
                    task.cancel()
                for each in clients:
                    await each.__aexit__(None, None, None)
        finally:
            await child.kill()
    check(everybody, interests, accepted)
    return sum(map(len, accepted.values()))


async def caught_up(
    everybody: list[Seen], interests: list[list[str]], accepted: dict[str, list[bytes]]
) -> None:
    for seen, interest in zip(everybody, interests, strict=True):
        for topic in interest:
            while len(seen.numbers[topic]) < len(accepted[topic]):
                await asyncio.sleep(0.05)


def check(
    everybody: list[Seen], interests: list[list[str]], accepted: dict[str, list[bytes]]
) -> None:
    for seen, interest in zip(everybody, interests, strict=True):
        for topic in interest:
            # One publisher to each topic: the order of acceptance is the order of publishing.
            assert seen.payloads[topic] == accepted[topic]
            assert seen.numbers[topic] == list(range(1, len(accepted[topic]) + 1))


def run_schedule(seed: int, kills: int, folder: Path) -> int:
    try:
        return run(schedule(seed, kills, folder))
    except (AssertionError, TimeoutError, ExceptionGroup) as error:
        raise AssertionError(
            f"seed {seed} with {kills} kills: run_schedule({seed}, {kills}, folder) runs it again"
        ) from error


def test_everybody_gets_every_event_once_while_the_service_is_killed(tmp_path: Path) -> None:
    assert run_schedule(1, 2, tmp_path) > 100


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 16))
def test_it_holds_for_many_kills(seed: int, tmp_path: Path) -> None:
    assert run_schedule(seed, 8, tmp_path) > 500
