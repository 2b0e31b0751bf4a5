"""Three brokers as processes that are killed while clients publish: nothing is lost or doubled."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest

from distributary.content.tcp import ContentClient, ContentClientSettings
from tests.content.tcp.processes import BrokerProcess, run_brokers

CHAIN = {"A": ["B"], "B": [], "C": ["B"]}
PATIENCE = 240.0  # seconds that nothing here takes, on however slow a machine
PATIENT = ContentClientSettings(connect_within=PATIENCE, timeout=PATIENCE)
FILTERS = {
    "ann": ("C", "symbol = 'IBM' AND price > 120"),
    "bob": ("C", "size >= 500 OR symbol LIKE 'S%'"),
    "cleo": ("A", "price BETWEEN 90 AND 130"),
}
PUBLISHERS = {"pam": "A", "quinn": "C"}


@dataclass
class World:
    """What was confirmed to publishers, and what arrived, in order."""

    confirmed: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    arrived: dict[str, list[tuple[str, int]]] = field(default_factory=lambda: defaultdict(list))

    def expect(self, filter: str) -> dict[str, list[int]]:
        """The events that match a filter by SQLite's judgement, of each publisher in order."""
        with sqlite3.connect(":memory:") as db:
            db.execute("PRAGMA case_sensitive_like = ON")
            db.execute("CREATE TABLE events (publisher, symbol, price, size, number)")
            for publisher, events in self.confirmed.items():
                rows = [(publisher, *event.values(), at) for at, event in enumerate(events)]
                db.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?)", rows)
            found: dict[str, list[int]] = defaultdict(list)
            for publisher, number in db.execute(
                f"SELECT publisher, number FROM events WHERE {filter} ORDER BY number"
            ):
                found[publisher].append(number)
            return found

    def missing(self) -> int:
        return sum(
            len(numbers)
            for name, (_, filter) in FILTERS.items()
            for numbers in self.expect(filter).values()
        ) - sum(map(len, self.arrived.values()))

    def check(self) -> None:
        for name, (_, filter) in FILTERS.items():
            arrived: dict[str, list[int]] = defaultdict(list)
            for publisher, number in self.arrived[name]:
                arrived[publisher].append(number)
            assert arrived == self.expect(filter), name


async def publish(
    client: ContentClient, name: str, world: World, done: asyncio.Event, seed: int
) -> None:
    rng = Random(seed)
    while not done.is_set():
        event = {
            "symbol": rng.choice(["IBM", "SUN", "SAP", "ibm"]),
            "price": rng.choice([89.5, 90.0, 120.0, 120.5, 130.0, 150.25]),
            "size": rng.randrange(1_000),
        }
        number = len(world.confirmed[name])
        await client.publish(event, str(number).encode())
        world.confirmed[name].append(event)
        await asyncio.sleep(rng.random() * 0.01)


async def receive(events: AsyncIterator[Any], name: str, world: World) -> None:
    async for event in events:
        world.arrived[name].append((event.publisher, int(event.payload)))


async def play(brokers: dict[str, BrokerProcess], world: World, kills: list[str]) -> None:
    """Kill brokers one after the other while everybody publishes and receives."""
    done = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        clients = {
            name: ContentClient(brokers[at].address, name=name, settings=PATIENT)
            for name, at in [*PUBLISHERS.items(), *((n, at) for n, (at, _) in FILTERS.items())]
        }
        for client in clients.values():
            await client.__aenter__()
        # An event published before a subscription is not its own.
        wanted = {
            name: await clients[name].subscribe(filter) for name, (_, filter) in FILTERS.items()
        }
        readers = [
            group.create_task(receive(events, name, world)) for name, events in wanted.items()
        ]
        await asyncio.sleep(0.5)  # until all brokers know it
        publishing = [
            group.create_task(publish(clients[name], name, world, done, seed))
            for seed, name in enumerate(PUBLISHERS)
        ]
        for name in kills:
            before = sum(map(len, world.confirmed.values()))
            while sum(map(len, world.confirmed.values())) < before + 20:
                await asyncio.sleep(0.01)
            await brokers[name].end(signal.SIGKILL)
            await asyncio.sleep(0.3)
            await brokers[name].start()
        done.set()
        await asyncio.gather(*publishing)
        while world.missing() > 0:
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.2)  # what is doubled would come now
        for reader in readers:
            reader.cancel()
        for client in clients.values():
            await client.__aexit__(None, None, None)


@pytest.mark.parametrize("kills", [["B", "A"]])
def test_what_was_confirmed_arrives_once_and_in_order_though_brokers_are_killed(
    tmp_path: Path, kills: list[str]
) -> None:
    world = World()

    async def scenario() -> None:
        async with asyncio.timeout(PATIENCE), run_brokers(tmp_path, CHAIN) as brokers:
            await play(brokers, world, kills)
            statuses = [await each.end(signal.SIGTERM) for each in brokers.values()]
            assert statuses == [0, 0, 0]

    asyncio.run(scenario())
    world.check()
    assert sum(map(len, world.confirmed.values())) >= 20 * len(kills)
