"""Traffic through a network of broker processes that die, stop and lose their connections.

What was acknowledged is compared with what was delivered, by SQLite's evaluation of the filters.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
import time
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from distributary.content.errors import EventNotStoredError
from distributary.content.tcp import (
    ContentClient,
    ContentClientSettings,
    ContentSubscription,
)
from tests.content.tcp.broker_processes import BrokerNetwork, run_network

SCHEMA = {"symbol": "string", "price": "int", "ratio": "double", "live": "boolean"}
SYMBOLS = ("IBM", "ABB", "o'Hare", "Ünal", "ibm", "")
_SETTINGS = ContentClientSettings(connect_within=90.0, timeout=180.0, settle_within=90.0)
_DELIVERED_WITHIN = 180.0  # seconds; only what is lost needs as long


@dataclass(frozen=True)
class Scenario:
    """How large, how long, and how bad; the same seed gives the same traffic and faults."""

    seed: int
    brokers: int
    clients: int
    seconds: float
    events_per_s: float  # of each publisher
    fault_every: float  # seconds, on average
    longest_fault: float = 3.0


class Sent(NamedTuple):
    """A publication: the publisher, its number there, and the attributes."""

    publisher: str
    number: int
    attributes: dict[str, Any]


@dataclass
class Ledger:
    """All that was published and delivered."""

    acknowledged: list[Sent] = field(default_factory=list)
    uncertain: list[Sent] = field(default_factory=list)
    delivered: dict[tuple[str, str], list[tuple[str, int]]] = field(default_factory=dict)
    faults: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Verdict:
    """What differs from SQLite's answers, and how much there was."""

    missing: list[tuple[tuple[str, str], tuple[str, int]]]
    doubled: int
    out_of_order: int
    unwanted: int
    acknowledged: int
    deliveries: int
    faults: dict[str, int]


def run_scenario(scenario: Scenario, folder: Path) -> Verdict:
    """Run the traffic and the faults, and compare what came with what should have come."""
    ledger = asyncio.run(_Run(scenario, folder).run())
    return judge(ledger)


class _Run:
    def __init__(self, scenario: Scenario, folder: Path) -> None:
        self.scenario = scenario
        self.folder = folder
        self.rng = random.Random(scenario.seed)
        self.ledger = Ledger()

    async def run(self) -> Ledger:
        scenario = self.scenario
        async with AsyncExitStack() as stack:
            network = await stack.enter_async_context(
                run_network(self.folder, scenario.brokers, SCHEMA, self.rng)
            )
            readers: list[asyncio.Task[None]] = []
            stack.push_async_callback(_cancel, readers)
            clients = []
            for at in range(scenario.clients):
                door = network.doors[at % scenario.brokers]
                client = ContentClient(door.address, name=f"c{at}", settings=_SETTINGS)
                clients.append(await stack.enter_async_context(client))
                for text in sorted({make_filter(self.rng) for _ in range(self.rng.randint(1, 3))}):
                    subscription = await client.subscribe(text)
                    assert subscription.is_settled, f"{text} is not known everywhere"
                    readers.append(asyncio.create_task(self._read(client, subscription)))
            until = time.monotonic() + scenario.seconds
            async with asyncio.TaskGroup() as group:
                for client in clients[::2]:
                    seed = self.rng.random()
                    group.create_task(self._publish(client, until, random.Random(seed)))
                group.create_task(self._break(network, until))
            await self._wait_until_delivered(network, readers)
            await asyncio.sleep(0.5)  # what comes twice, or should not come, comes now
        return self.ledger

    async def _read(self, client: ContentClient, subscription: ContentSubscription) -> None:
        got = self.ledger.delivered.setdefault((client.name, subscription.filter), [])
        async for event in subscription:
            assert event.publisher == event.payload.split()[0].decode()
            got.append((event.publisher, int(event.payload.split()[1])))

    async def _publish(self, client: ContentClient, until: float, rng: random.Random) -> None:
        """Publish, several at a time, until the time is over and all is acknowledged."""
        count = 0
        async with asyncio.TaskGroup() as group:
            while time.monotonic() < until:
                count += 1
                sent = Sent(client.name, count, make_event(rng))
                group.create_task(self._publish_one(client, sent))
                await asyncio.sleep(rng.expovariate(self.scenario.events_per_s))

    async def _publish_one(self, client: ContentClient, sent: Sent) -> None:
        payload = f"{sent.publisher} {sent.number} ".encode() + bytes(sent.number % 50)
        try:
            await client.publish(sent.attributes, payload)
        except EventNotStoredError:
            self.ledger.uncertain.append(sent)
        else:
            self.ledger.acknowledged.append(sent)

    async def _wait_until_delivered(
        self, network: BrokerNetwork, readers: list[asyncio.Task[None]]
    ) -> None:
        until = time.monotonic() + _DELIVERED_WITHIN
        expected = expect(self.ledger.acknowledged, list(self.ledger.delivered))
        while time.monotonic() < until:
            network.check()
            for reader in readers:
                if reader.done():
                    reader.result()
            if all(each <= set(self.ledger.delivered[key]) for key, each in expected.items()):
                return
            await asyncio.sleep(0.05)

    # --- faults -----------------------------------------------------------------------------------

    async def _break(self, network: BrokerNetwork, until: float) -> None:
        """Break something again and again; several faults may last at the same time."""
        rng = random.Random(self.rng.random())
        broken: set[object] = set()
        async with asyncio.TaskGroup() as group:
            while time.monotonic() < until:
                await asyncio.sleep(rng.expovariate(1 / self.scenario.fault_every))
                network.check()
                kind = rng.choice(("kill", "kill", "stop", "stop", "cut", "freeze", "door"))
                lasts = rng.choice((0.0, 0.05, 0.3, 1.0)) * self.scenario.longest_fault
                pool: list[Any]
                if kind in ("kill", "stop"):
                    pool = network.brokers
                else:
                    pool = network.doors if kind == "door" else network.links
                victim = rng.choice(pool)
                if victim not in broken:
                    broken.add(victim)
                    self.ledger.faults[kind] += 1
                    group.create_task(_break_one(_FAULTS[kind], victim, lasts))
                    group.create_task(_spare(victim, lasts, broken, until))


# What begins a fault, and what ends it.
_FAULTS = {
    "kill": ("kill", "start"),
    "stop": ("pause", "resume"),
    "cut": ("cut", "mend"),
    "door": ("cut", "mend"),
    "freeze": ("freeze", "mend"),
}


async def _break_one(fault: tuple[str, str], victim: Any, lasts: float) -> None:
    begin, end = fault
    try:
        getattr(victim, begin)()
        await asyncio.sleep(lasts)
    finally:
        getattr(victim, end)()


async def _spare(victim: object, lasts: float, broken: set[object], until: float) -> None:
    """Leave a victim alone for a while: a broker that never comes up tests nothing."""
    rest = min(lasts + 2.0, max(lasts, until - time.monotonic()))
    await asyncio.sleep(rest)
    broken.discard(victim)


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


# --- events, filters and the oracle ---------------------------------------------------------------


def make_event(rng: random.Random) -> dict[str, Any]:
    """Make the attributes of an event; some are missing."""
    attributes: dict[str, Any] = {
        "symbol": rng.choice(SYMBOLS),
        "price": rng.randint(-100, 100),
        "ratio": rng.choice((-2.5, -0.25, 0.0, 0.5, 1e9)),
        "live": rng.random() < 0.5,
    }
    if rng.random() < 0.1:
        del attributes[rng.choice(sorted(attributes))]
    return attributes


def make_filter(rng: random.Random) -> str:
    """Make a filter that SQLite understands too."""
    terms = [_make_term(rng) for _ in range(rng.randint(1, 3))]
    return rng.choice((" AND ", " AND ", " OR ")).join(terms)


def _make_term(rng: random.Random) -> str:
    quoted = ["'" + each.replace("'", "''") + "'" for each in SYMBOLS]
    price = rng.randint(-100, 100)
    return rng.choice(
        (
            f"symbol = {rng.choice(quoted)}",
            f"symbol IN ({', '.join(rng.sample(quoted, 2))})",
            f"symbol <> {rng.choice(quoted)}",
            f"price > {price}",
            f"price BETWEEN {price} AND {price + rng.randint(0, 60)}",
            f"NOT (price <= {price})",
            f"ratio {rng.choice(('<', '>=', '='))} {rng.choice((-0.25, 0.5, 0.0))}",
            rng.choice(("live", "NOT live", "live IS NULL", "price IS NOT NULL")),
        )
    )


def expect(
    sent: list[Sent], subscriptions: list[tuple[str, str]]
) -> dict[tuple[str, str], set[tuple[str, int]]]:
    """Evaluate each subscription's filter over the events, in SQLite."""
    columns = list(SCHEMA)
    with sqlite3.connect(":memory:") as database:
        database.execute(
            "CREATE TABLE events (publisher TEXT, number INTEGER,"
            " symbol TEXT, price INTEGER, ratio REAL, live INTEGER)"
        )
        rows = [(each.publisher, each.number, *map(each.attributes.get, columns)) for each in sent]
        database.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)", rows)
        return {
            (client, text): set(
                database.execute(f"SELECT publisher, number FROM events WHERE {text}")
            )
            for client, text in subscriptions
        }


def judge(ledger: Ledger) -> Verdict:
    """Compare deliveries with SQLite's answers."""
    subscriptions = list(ledger.delivered)
    expected = expect(ledger.acknowledged, subscriptions)
    possible = expect(ledger.acknowledged + ledger.uncertain, subscriptions)
    missing, doubled, out_of_order, unwanted = [], 0, 0, 0
    for key, got in ledger.delivered.items():
        missing += [(key, each) for each in sorted(expected[key] - set(got))]
        unwanted += len(set(got) - possible[key])
        doubled += len(got) - len(set(got))
        last: Counter[str] = Counter()
        for publisher, count in got:
            out_of_order += count < last[publisher]
            last[publisher] = max(last[publisher], count)
    return Verdict(
        missing,
        doubled,
        out_of_order,
        unwanted,
        len(ledger.acknowledged),
        sum(map(len, ledger.delivered.values())),
        dict(ledger.faults),
    )
