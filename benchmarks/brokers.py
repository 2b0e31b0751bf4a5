"""Content brokers as processes: speed beside JetStream and RabbitMQ, restarts, unsubscribing."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from benchmarks.brokers_load import (
    CLIENTS,
    PRICES,
    RATE,
    SYMBOLS,
    VENUES,
    WARM,
    WINDOW,
    Driven,
    Load,
    Readings,
    make_load,
)
from benchmarks.brokers_network import (
    SETTINGS,
    Broker,
    LinkCounter,
    measure_ours,
    open_clients,
    run_brokers,
    subscribe_all,
    wait_until_up,
)
from benchmarks.brokers_peers import (
    RabbitMissingError,
    measure_jetstream,
    measure_rabbit,
    prepare_rabbit_python,
)
from benchmarks.measure import Section, shown_seconds
from distributary.content.tcp import ContentClient, ContentSubscription

SUBSCRIPTIONS = (1_000, 100_000)
NETWORKS = (1, 3, 7)
SLOW, FAST = 350, 5_000  # trades
FEW_SLOW, FEW_FAST = 60, 100  # for RabbitMQ with many bindings
MANY = 10_000


# --- speed ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """One system under one load; `problem` says why there is no figure."""

    subscriptions: int
    system: str
    fsync: str
    driven: Driven | None
    problem: str = ""


def speed() -> Section:
    """Events per second and latency of all systems, and the ratio to JetStream."""
    rows: list[Row] = []
    for subscriptions in SUBSCRIPTIONS:
        load = make_load(subscriptions, SLOW, FAST)
        for fsync in (False, True):
            rows.append(_measure("NATS JetStream", load, fsync, measure_jetstream))
            for n_brokers in NETWORKS:
                name = f"{n_brokers} broker{'s' if n_brokers > 1 else ''}"
                rows.append(_measure(name, load, fsync, partial(measure_ours, n_brokers=n_brokers)))
        rows.append(_measure_rabbit(load))
    return Section(
        "Content brokers beside JetStream and RabbitMQ",
        f"Trades of {SYMBOLS} symbols at {VENUES} venues, prices below {PRICES:,}. {CLIENTS} "
        "clients share the subscriptions: a symbol, in half of them a venue, and a band of prices, "
        "the narrower the more subscriptions there are; a trade is for one or two clients. "
        "Publications are acknowledged when stored, deliveries by the clients; all clients of a "
        "system are connections of one Python process, servers and brokers are others on this "
        "machine. Brokers form a binary tree, the publisher is at a leaf, the subscribers at all "
        "brokers in turn. JetStream: a subject per symbol, a durable consumer per client, the rest "
        "of the filter at the client. RabbitMQ: a headers exchange with a binding per client, "
        "symbol and venue, durable queues, persistent messages with confirms, prices at the "
        f"client. Latency from publishing to the application in milliseconds at {RATE} trades per "
        f"second; *first* is the longest of the first {WARM}, which pay for new subscriptions. "
        f"Speed with {FAST:,} trades, {WINDOW} of them unacknowledged at a time, until the last "
        "delivery. *x* compares it with JetStream's for the same subscriptions and fsync "
        "(RabbitMQ's: without). CPU is per trade. SQLite evaluates the same filters: every client "
        "got exactly those trades, each once (asserted).",
        [
            "subscriptions",
            "system",
            "fsync",
            "trades / s",
            "x",
            "median",
            "p99",
            "first",
            "messages to clients each",
            "CPU of servers",
            "CPU of clients",
        ],
        [_show(row, rows) for row in rows],
        "RabbitMQ writes persistent messages in batches and confirms them then, whatever is asked. "
        f"With {SUBSCRIPTIONS[-1]:,} subscriptions it got {FEW_SLOW} and {FEW_FAST} trades only: "
        "its headers exchange tries every binding for every message, and cannot carry the lower "
        "rate. JetStream sends every client the trades of all its symbols.",
    )


class Measure(Protocol):
    """Drives a load through a system."""

    def __call__(self, load: Load, *, fsync: bool) -> Coroutine[Any, Any, Driven]:
        """Run it."""


def _measure(name: str, load: Load, fsync: bool, measure: Measure) -> Row:
    subscriptions = sum(map(len, load.wanted))
    driven = asyncio.run(measure(load, fsync=fsync))
    row = Row(subscriptions, name, "yes" if fsync else "no", driven)
    print("  ", *_show(row, [row]), flush=True)
    return row


def _measure_rabbit(load: Load) -> Row:
    subscriptions = sum(map(len, load.wanted))
    if subscriptions > MANY:
        load = load.first(FEW_SLOW, FEW_FAST)
    try:
        with prepare_rabbit_python() as python:
            driven = measure_rabbit(python, load)
    except RabbitMissingError as missing:
        return Row(subscriptions, "RabbitMQ headers", "", None, problem=str(missing))
    row = Row(subscriptions, "RabbitMQ headers", "batches", driven)
    print("  ", *_show(row, [row]), flush=True)
    return row


def _show(row: Row, rows: list[Row]) -> list[str]:
    driven = row.driven
    if driven is None:
        return [f"{row.subscriptions:,}", row.system, "", row.problem, *[""] * 7]
    base = next(
        (
            each.driven.events_per_s
            for each in rows
            if each.driven is not None
            and each.system == "NATS JetStream"
            and each.subscriptions == row.subscriptions
            and each.fsync == row.fsync.replace("batches", "no")
        ),
        driven.events_per_s,
    )
    median, p99 = np.percentile(driven.late, [50, 99])
    return [
        f"{row.subscriptions:,}",
        row.system,
        row.fsync,
        f"{driven.events_per_s:,.0f}",
        f"{driven.events_per_s / base:.3g}",
        f"{median:.2f}",
        f"{p99:.1f}",
        f"{driven.first:,.0f}",
        f"{driven.messages:.1f}",
        shown_seconds(driven.server_cpu),
        shown_seconds(driven.client_cpu),
    ]


# --- memory and restarts --------------------------------------------------------------------------


def restarts() -> Section:
    """Memory per subscription, and the time until a broker serves again."""
    rows, empty = [], 0
    for subscriptions in (CLIENTS, *SUBSCRIPTIONS):
        found = asyncio.run(_measure_restart(subscriptions))
        empty = empty or found.memory
        each = (found.memory - empty) / subscriptions if subscriptions > CLIENTS else 0
        rows.append(
            [
                f"{subscriptions:,}",
                f"{found.memory / 1e6:,.0f}",
                f"{each:,.0f}" if each else "",
                f"{found.disk / 1e6:,.1f}",
                *(shown_seconds(seconds) for seconds in (found.killed, found.stopped, found.first)),
            ]
        )
    return Section(
        "A content broker with many subscriptions: memory and restarts",
        f"One broker, the subscriptions of {CLIENTS} clients and {WARM} trades as above. Memory is "
        "resident, after the trades. A restart is timed from starting the process, with Python and "
        "all imports, until it answers a request for its status; after SIGKILL and after SIGTERM. "
        "Then the clients resume, and the first trade is published; every trade is delivered "
        "(asserted).",
        [
            "subscriptions",
            "memory (MB)",
            "bytes per subscription",
            "state folder (MB)",
            "restart, killed",
            "restart, stopped",
            "first delivery then",
        ],
        rows,
    )


@dataclass(frozen=True)
class Restart:
    """What one number of subscriptions costs; bytes and seconds."""

    memory: int
    disk: int
    killed: float
    stopped: float
    first: float


async def _measure_restart(subscriptions: int) -> Restart:
    load = make_load(subscriptions, WARM, WARM)
    readings = Readings()
    async with run_brokers(1) as (broker,), open_clients([broker], load, readings) as publisher:

        async def deliver(first: int, last: int) -> float:
            began = time.perf_counter()
            for at in range(first, last):
                payload = b"%d %d" % (at, time.perf_counter_ns())
                await publisher.publish(load.trades[at].attributes, payload)
            while readings.taken < load.count_expected(0, last):
                await asyncio.sleep(0.001)
            return time.perf_counter() - began

        await deliver(0, WARM)
        memory = broker.memory()
        seconds = []
        for number in (signal.SIGKILL, signal.SIGTERM):
            await asyncio.to_thread(broker.end, number)
            began = time.perf_counter()
            broker.start()
            await wait_until_up(broker)
            seconds.append(time.perf_counter() - began)
        first = await deliver(WARM, 2 * WARM)
        disk = sum(file.stat().st_size for file in Path(broker.folder).rglob("*"))
        assert [sorted(each) for each in readings.got] == load.expected
    killed, stopped = seconds
    return Restart(memory, disk, killed, stopped, first)


# --- unsubscribing a broad filter -----------------------------------------------------------------

HIDDEN = 20_000
PROBES, PROBE_RATE = 1_000, 50


def unsubscribing() -> Section:
    """Messages and delays when the subscription that covered all others ends."""
    rows = [
        [policy, *asyncio.run(_measure_unsubscribing(policy))] for policy in ("active", "merging")
    ]
    return Section(
        "Unsubscribing a broad filter on a live network",
        f"7 brokers in a binary tree; {HIDDEN:,} subscriptions of {CLIENTS} clients at a broker "
        "and the two below it, all covered by one of another client there. The publisher is at a "
        f"leaf on the other side and publishes {PROBE_RATE} trades per second for one more client. "
        "Then the broad subscription ends. Proxies on the links between brokers count statements "
        "(subscriptions, and ends of them) and bytes, less what as many seconds had before. Delays "
        f"of trades in milliseconds, for {PROBES / PROBE_RATE:g} s before and after. Every trade "
        "was delivered (asserted).",
        [
            "policy",
            "statements in 1 s",
            "statements in all",
            "KB in 1 s",
            "KB in all",
            "median before",
            "p99 before",
            "median after",
            "p99 after",
            "longest after",
            "CPU of brokers after",
        ],
        rows,
    )


async def _measure_unsubscribing(policy: str) -> list[str]:
    links = [LinkCounter() for _ in range(6)]
    async with AsyncExitStack() as stack:
        brokers = await stack.enter_async_context(run_brokers(7, policy=policy, counters=links))
        publisher = await stack.enter_async_context(_open(brokers[6], "publisher"))
        broad_client = await stack.enter_async_context(_open(brokers[3], "broad"))
        prober = await stack.enter_async_context(_open(brokers[4], "prober"))
        await publisher.advertise("price >= -1")
        broad = await broad_client.subscribe("price >= 0")
        probes = await prober.subscribe("symbol = 'probe'")
        hidden = make_load(HIDDEN, 0, 1)
        for at, wanted in enumerate(hidden.wanted):
            client = _open(brokers[(1, 3, 4)[at % 3]], f"client-{at}")
            opened = await stack.enter_async_context(client)
            await subscribe_all(opened, (each.sql for each in wanted))
        draining = asyncio.create_task(_drain(broad))
        await _probe(publisher, probes, WARM)
        await asyncio.sleep(5)
        counted = _count(links)
        before = await _probe(publisher, probes, PROBES)
        usual = _count(links) - counted
        cpu = sum(broker.cpu() for broker in brokers)
        counted = _count(links)
        later = asyncio.create_task(_count_later(links, 1.0))
        unsubscribing = asyncio.create_task(broad_client.unsubscribe(broad))
        after = await _probe(publisher, probes, PROBES)
        await unsubscribing
        await draining
        soon = await later - counted - usual * (PROBE_RATE / PROBES)
        in_all = _count(links) - counted - usual
        cpu = sum(broker.cpu() for broker in brokers) - cpu
    statements, size = zip(soon, in_all, strict=True)
    return [
        *(f"{max(0, each):,.0f}" for each in statements),
        *(f"{max(0, each) / 1e3:,.0f}" for each in size),
        *(f"{each:.1f}" for each in np.percentile(before, [50, 99])),
        *(f"{each:.1f}" for each in np.percentile(after, [50, 99, 100])),
        shown_seconds(cpu),
    ]


def _open(broker: Broker, name: str) -> ContentClient:
    return ContentClient(broker.address, name=name, settings=SETTINGS)


def _count(links: list[LinkCounter]) -> np.ndarray:
    return np.array(
        [sum(each.statements for each in links), sum(each.bytes for each in links)], float
    )


async def _count_later(links: list[LinkCounter], seconds: float) -> np.ndarray:
    await asyncio.sleep(seconds)
    return _count(links)


async def _drain(subscription: ContentSubscription) -> None:
    async for _ in subscription:
        pass


async def _probe(
    publisher: ContentClient, subscription: ContentSubscription, count: int
) -> list[float]:
    """Publish trades for one client at a fixed rate; the delay of each."""
    delays: list[float] = []

    async def read() -> None:
        while len(delays) < count:
            event = await subscription.get()
            assert event is not None
            assert int(event.payload.split()[0]) == len(delays)
            delays.append((time.perf_counter_ns() - int(event.payload.split()[1])) / 1e6)

    attributes = {"symbol": "probe", "venue": "V0", "price": -1}
    async with asyncio.TaskGroup() as group:
        group.create_task(read())
        began = time.perf_counter()
        for at in range(count):
            payload = b"%d %d" % (at, time.perf_counter_ns())
            group.create_task(publisher.publish(attributes, payload))
            await asyncio.sleep(max(0.0, began + (at + 1) / PROBE_RATE - time.perf_counter()))
    return delays


SECTIONS = {
    "brokers": speed,
    "brokers_restart": restarts,
    "brokers_unsubscribing": unsubscribing,
}
