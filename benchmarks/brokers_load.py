"""Trades, subscriptions and their deliveries, for content brokers and what is used instead.

Everything here is in the standard library, so that the clients of a peer can use it in a virtual
environment of their own.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from benchmarks.processes import cpu_of

SYMBOLS, VENUES, PRICES = 500, 5, 100_000
CLIENTS = 20
RATE = 100  # events per second while latency is measured
WINDOW = 256  # publications that wait for their acknowledgement while speed is measured
WARM = 50  # trades before latency is measured
WITHIN = 180.0  # seconds for all deliveries of a phase

SCHEMA = {"symbol": "string", "venue": "string", "price": "int"}


@dataclass(frozen=True, slots=True)
class Trade:
    """An event."""

    symbol: str
    venue: str
    price: int

    @property
    def attributes(self) -> dict[str, str | int]:
        """The attributes by name."""
        return {"symbol": self.symbol, "venue": self.venue, "price": self.price}


@dataclass(frozen=True, slots=True)
class Wanted:
    """A subscription: trades of a symbol in a band of prices, at one venue or at any (empty)."""

    symbol: str
    venue: str
    low: int
    high: int

    @property
    def sql(self) -> str:
        """The filter."""
        venue = f" AND venue = '{self.venue}'" if self.venue else ""
        return f"symbol = '{self.symbol}'{venue} AND price >= {self.low} AND price < {self.high}"

    def accepts(self, trade: Trade) -> bool:
        """Whether a trade matches: the filter at a client that gets more than it wants."""
        return (
            self.symbol == trade.symbol
            and self.venue in ("", trade.venue)
            and self.low <= trade.price < self.high
        )


@dataclass(frozen=True)
class Load:
    """Trades, the subscriptions of each client, and the trades that each client must get.

    The first `slow` trades are published at a low rate, the others as fast as possible.
    """

    trades: list[Trade]
    slow: int
    wanted: list[list[Wanted]]
    expected: list[list[int]]

    def first(self, slow: int, fast: int) -> Load:
        """A smaller load with the same subscriptions: some of the slow trades, and of the others.

        For a system that would take hours otherwise.
        """
        trades = self.trades[:slow] + self.trades[self.slow : self.slow + fast]
        return Load(trades, slow, self.wanted, evaluate(trades, self.wanted))

    def count_expected(self, first: int, last: int) -> int:
        """The number of deliveries of some trades, to all clients together."""
        return sum(first <= at < last for got in self.expected for at in got)

    def by_symbol(self, client: int) -> dict[str, list[Wanted]]:
        """The subscriptions of a client by symbol, for filtering at the client."""
        found: dict[str, list[Wanted]] = {}
        for each in self.wanted[client]:
            found.setdefault(each.symbol, []).append(each)
        return found


def make_load(subscriptions: int, slow: int, fast: int, *, seed: int = 0) -> Load:
    """Trades and subscriptions; the more subscriptions, the fewer trades each of them wants.

    A trade is for about two clients, whatever the number of subscriptions.
    """
    rng = random.Random(seed)
    trades = [
        Trade(f"S{rng.randrange(SYMBOLS)}", f"V{rng.randrange(VENUES)}", rng.randrange(PRICES))
        for _ in range(slow + fast)
    ]
    share = min(1.0, 2 * SYMBOLS / subscriptions)  # of the trades of its symbol
    wanted: list[Wanted] = []
    each_once: set[Wanted] = set()
    while len(wanted) < subscriptions:
        venue = f"V{rng.randrange(VENUES)}" if rng.random() < 0.5 else ""
        width = int(PRICES * min(1.0, share * rng.uniform(1.0, 2.0)))
        low = rng.randrange(PRICES - width + 1)
        one = Wanted(f"S{rng.randrange(SYMBOLS)}", venue, low, low + width)
        if one not in each_once:
            each_once.add(one)
            wanted.append(one)
    by_client = [wanted[client::CLIENTS] for client in range(CLIENTS)]
    return Load(trades, slow, by_client, evaluate(trades, by_client))


def evaluate(trades: list[Trade], wanted: list[list[Wanted]]) -> list[list[int]]:
    """The trades of each client, ascending, as SQLite evaluates the filters."""
    with sqlite3.connect(":memory:") as database:
        database.execute("CREATE TABLE trades (at INTEGER, symbol TEXT, venue TEXT, price INTEGER)")
        rows = [(at, each.symbol, each.venue, each.price) for at, each in enumerate(trades)]
        database.executemany("INSERT INTO trades VALUES (?, ?, ?, ?)", rows)
        database.execute("CREATE INDEX by_symbol ON trades (symbol, price)")
        found = []
        for filters in wanted:
            got: set[int] = set()
            for each in filters:
                selected = database.execute(f"SELECT at FROM trades WHERE {each.sql}")
                got.update(at for (at,) in selected)
            found.append(sorted(got))
    return found


# --- driving a system -----------------------------------------------------------------------------


@dataclass
class Readings:
    """What the clients got: the trades of each, the latencies, and all messages that came."""

    got: list[list[int]] = field(default_factory=lambda: [[] for _ in range(CLIENTS)])
    late: list[float] = field(default_factory=list)
    messages: int = 0
    taken: int = 0

    def read(self, client: int, payload: bytes) -> None:
        """Take a delivery; its payload holds the trade and the time when it was published."""
        at, sent = map(int, payload.split())
        self.late.append((time.perf_counter_ns() - sent) / 1e6)
        self.got[client].append(at)
        self.taken += 1


Publish = Callable[[Trade, bytes], Awaitable[None]]


@dataclass(frozen=True)
class Driven:
    """What driving a system gave: latencies in milliseconds, and the speed with all deliveries.

    `first` is the longest latency of the first `WARM` trades, `late` has those of the slow trades
    after them.
    `messages` is the number of messages that reached clients, and the CPU seconds are those of
    clients and servers after the first `WARM` trades; both for each trade.
    """

    first: float
    late: list[float]
    events_per_s: float
    messages: float
    client_cpu: float
    server_cpu: float


async def drive(publish: Publish, readings: Readings, load: Load, servers: Sequence[int]) -> Driven:
    """Publish at a low rate, then as fast as possible; check that everybody got its own, once.

    `publish` returns when the trade is acknowledged as stored; `servers` are processes.
    """
    await _publish_slowly(publish, readings, load, 0, WARM)
    first = max(readings.late)
    client_cpu, server_cpu = time.process_time(), sum(map(cpu_of, servers))
    readings.late.clear()
    await _publish_slowly(publish, readings, load, WARM, load.slow)
    late = list(readings.late)
    began = time.perf_counter()
    window = asyncio.Semaphore(WINDOW)
    async with asyncio.TaskGroup() as group:
        for at in range(load.slow, len(load.trades)):
            await window.acquire()
            task = group.create_task(_publish_one(publish, load, at))
            task.add_done_callback(lambda _: window.release())
    await _wait_for(readings, load.count_expected(0, len(load.trades)))
    seconds = time.perf_counter() - began
    await asyncio.sleep(0.3)  # what comes twice, or should not come, would be seen now
    got = [sorted(each) for each in readings.got]
    assert got == load.expected, _differences(got, load.expected)
    return Driven(
        first,
        late,
        (len(load.trades) - load.slow) / seconds,
        readings.messages / len(load.trades),
        (time.process_time() - client_cpu) / (len(load.trades) - WARM),
        (sum(map(cpu_of, servers)) - server_cpu) / (len(load.trades) - WARM),
    )


async def _publish_slowly(
    publish: Publish, readings: Readings, load: Load, first: int, last: int
) -> None:
    async with asyncio.TaskGroup() as group:
        began = time.perf_counter()
        for at in range(first, last):
            group.create_task(_publish_one(publish, load, at))
            until = began + (at - first + 1) / RATE
            await asyncio.sleep(max(0.0, until - time.perf_counter()))
    await _wait_for(readings, load.count_expected(0, last))


async def _publish_one(publish: Publish, load: Load, at: int) -> None:
    await publish(load.trades[at], b"%d %d" % (at, time.perf_counter_ns()))


async def _wait_for(readings: Readings, deliveries: int) -> None:
    until = time.monotonic() + WITHIN
    while readings.taken < deliveries:
        if time.monotonic() > until:
            raise TimeoutError(f"{readings.taken} of {deliveries} deliveries after {WITHIN:g} s")
        await asyncio.sleep(0.001)


def _differences(got: list[list[int]], expected: list[list[int]]) -> str:
    lines = []
    for client, (ours, wanted) in enumerate(zip(got, expected, strict=True)):
        if ours != wanted:
            missing, more = set(wanted) - set(ours), set(ours) - set(wanted)
            doubled = len(ours) - len(set(ours))
            lines.append(f"client {client}: missing {len(missing)}, more {len(more)}, {doubled=}")
    return "; ".join(lines)
