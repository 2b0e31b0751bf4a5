"""Topics on a real NATS server: our channels against one subject per topic."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, StreamConfig

from benchmarks.measure import Section
from distributary.machines.nats.options import connect_to_server
from distributary.topics.nats import (
    ClientSettings,
    EmbeddedServer,
    NatsOptions,
    TopicClient,
    TopicSubscription,
    run_embedded_server,
)
from distributary.topics.nats.status import ServerStatus, fetch_server_status, fetch_status
from distributary.topics.nats.subjects import Subjects

GROUPS, TOPICS_EACH, READERS_EACH = 4, 10, 6
ROUNDS = 3
RATE, SECONDS = 100, 4.0  # events per second while latency is measured
INTERVAL = 10.0  # seconds for which keeping a subscription costs as much as one message
EVENTS = 10_000  # for the measurement of speed
LARGE = 100  # bytes of an event in the second measurement; in the first it is a time, in digits
WINDOW = 256  # unconfirmed events of a publisher to JetStream
PEER = "NATS JetStream"
_LOOK = 2.0  # seconds between two looks at the service
_QUIET = 3.0  # seconds
_MOST_SEARCHES = 8
SUBSCRIPTIONS = (0, 20_000, 100_000)
CIRCLES, READERS_OF_CIRCLE, INNER, BORDER = 20, 10, 80, 20  # 2,000 topics, 200 readers, 100 each

Publish = Callable[[str, bytes], Awaitable[None]]

_SERVICE = """
import asyncio, json, sys
from pathlib import Path
from distributary.topics.nats import NatsOptions, ServiceSettings, TopicService, live_policy

async def main():
    given = json.loads(sys.argv[1])
    policy = live_policy(interval=given["interval"], history=10_000)
    settings = ServiceSettings(Path(given["folder"]), policy, plan_every=given["plan_every"])
    service = TopicService(NatsOptions(given["url"], given["token"]), settings)
    task = asyncio.create_task(service.run())
    await service.started.wait()
    print("started", flush=True)
    await task

asyncio.run(main())
"""


@dataclass
class Readings:
    """The number of events that readers got, and the latency of each."""

    late: list[float] = field(default_factory=list)
    got: Counter[str] = field(default_factory=Counter)

    def read(self, topic: str, payload: bytes) -> None:
        """Count an event; its payload holds the time when it was published."""
        self.late.append((time.perf_counter_ns() - int(payload)) / 1e6)
        self.got[topic] += 1


Join = Callable[[list[str], Readings], Awaitable[None]]


@dataclass
class Plane:
    """Subscribed readers, and a way to publish."""

    publish: Publish
    readings: Readings
    many: Callable[[list[str], int], Awaitable[None]]  # topics, and the size of each event
    join: Join  # one more reader
    start_up: float  # seconds until all readers were subscribed
    settled: float  # seconds until nobody changed channels any more
    service: int | None = None  # the process of our service
    sent: Counter[str] = field(default_factory=Counter)  # events published until then


def stamp(size: int) -> bytes:
    """An event of at least this size with the present time."""
    return (b"%d" % time.perf_counter_ns()).ljust(size)


Interests = list[list[str]]  # the topics of each reader


async def _join_all(join: Join, interests: Interests, readings: Readings) -> float:
    """Let readers connect and subscribe, one after the other; returns the seconds it took."""
    began = time.perf_counter()
    for wanted in interests:
        await join(wanted, readings)
    return time.perf_counter() - began


def draw_groups() -> Interests:
    """Groups of readers with the topics of their group; every fourth reader wants two more."""
    rng = random.Random(0)
    topics = [[f"{group}.{n}" for n in range(TOPICS_EACH)] for group in range(GROUPS)]
    wanted = []
    for group in range(GROUPS):
        others = [topic for other in range(GROUPS) if other != group for topic in topics[other]]
        for reader in range(READERS_EACH):
            more = rng.sample(others, 2) if reader % 4 == 0 else []
            wanted.append([*topics[group], *more])
    return wanted


def draw_circles() -> Interests:
    """Circles of readers: each has its circle's topics and some at its borders to both sides."""
    rng = random.Random(0)
    wanted = []
    for circle in range(CIRCLES):
        own = [f"{circle}.{n}" for n in range(INNER)]
        border = [f"{circle}.border.{n}" for n in range(BORDER)]
        border += [f"{(circle + 1) % CIRCLES}.border.{n}" for n in range(BORDER)]
        wanted += [[*own, *rng.sample(border, BORDER)] for _ in range(READERS_OF_CIRCLE)]
    return wanted


# --- the ways --------------------------------------------------------------------------------


@asynccontextmanager
async def plain(options: NatsOptions, interests: Interests) -> AsyncIterator[Plane]:
    """One subject per topic, and nothing else."""
    readings = Readings()
    async with AsyncExitStack() as stack:
        publisher = await stack.enter_async_context(connect_to_server(options, name="publisher"))

        async def join(wanted: list[str], readings: Readings) -> None:
            reader = await stack.enter_async_context(connect_to_server(options, name="reader"))
            for topic in wanted:
                await reader.subscribe(f"plain.{topic}", cb=_reading(readings, topic))
            await reader.flush()

        start_up = await _join_all(join, interests, readings)

        async def publish(topic: str, payload: bytes) -> None:
            await publisher.publish(f"plain.{topic}", payload)

        async def many(topics: list[str], size: int) -> None:
            for topic in topics:
                await publish(topic, stamp(size))
            await publisher.flush()

        yield Plane(publish, readings, many, join, start_up, start_up)


def _reading(readings: Readings, topic: str) -> Callable[[Msg], Awaitable[None]]:
    async def read(message: Msg) -> None:
        readings.read(topic, message.data)

    return read


@asynccontextmanager
async def jetstream(options: NatsOptions, interests: Interests) -> AsyncIterator[Plane]:
    """A stream of all topics, acknowledged publishing, a durable consumer for each reader."""
    readings = Readings()
    async with AsyncExitStack() as stack:
        publisher = await stack.enter_async_context(connect_to_server(options, name="publisher"))
        js = publisher.jetstream(publish_async_max_pending=WINDOW)
        await js.add_stream(StreamConfig(name="peer", subjects=["peer.>"]))
        count = itertools.count()

        async def join(wanted: list[str], readings: Readings) -> None:
            number = next(count)
            reader = await stack.enter_async_context(connect_to_server(options, name="reader"))
            config = ConsumerConfig(
                durable_name=f"reader{number}",
                deliver_subject=f"deliver.{number}",
                deliver_policy=DeliverPolicy.NEW,
                ack_policy=AckPolicy.EXPLICIT,
                max_ack_pending=10_000,
                filter_subjects=[f"peer.{topic}" for topic in wanted],
            )
            own = reader.jetstream()
            await own.add_consumer("peer", config)
            await reader.subscribe(f"deliver.{number}", cb=_reading_and_acknowledging(readings))
            await reader.flush()

        start_up = await _join_all(join, interests, readings)

        async def publish(topic: str, payload: bytes) -> None:
            await js.publish(f"peer.{topic}", payload)

        async def many(topics: list[str], size: int) -> None:
            room = asyncio.Semaphore(WINDOW)

            async def one(topic: str) -> None:
                async with room:
                    await publish(topic, stamp(size))

            await asyncio.gather(*map(one, topics))

        yield Plane(publish, readings, many, join, start_up, start_up)


def _reading_and_acknowledging(readings: Readings) -> Callable[[Msg], Awaitable[None]]:
    async def read(message: Msg) -> None:
        readings.read(message.subject.removeprefix("peer."), message.data)
        await message.ack()

    return read


@asynccontextmanager
async def channels(
    options: NatsOptions, interests: Interests, *, clusters: bool, linger: float = 0.0
) -> AsyncIterator[Plane]:
    """The channel service in its own process, and our clients."""
    readings = Readings()
    settings = ClientSettings(timeout=300.0, linger=linger)
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        service = await stack.enter_async_context(
            _service(options, folder, len(interests) / 50 if clusters else 1e9)
        )
        publisher = await stack.enter_async_context(TopicClient(options, settings))
        topics = sorted({topic for wanted in interests for topic in wanted})
        # The rates that a service would have learnt if it had been running for longer.
        flow = RATE * INTERVAL / len(topics)
        await asyncio.gather(*(publisher.create(topic, flow=flow) for topic in topics))
        group = await stack.enter_async_context(_cancelled())
        readers: list[TopicClient] = []

        async def join(wanted: list[str], readings: Readings) -> None:
            reader = await stack.enter_async_context(TopicClient(options, settings))
            readers.append(reader)
            found = await asyncio.gather(*map(reader.subscribe, wanted))
            group.extend(asyncio.create_task(_follow(each, readings)) for each in found)

        began = time.perf_counter()
        start_up = await _join_all(join, interests, readings)
        sent = Counter[str]()
        if clusters:
            nc = await stack.enter_async_context(connect_to_server(options, name="status"))
            async with _publishing(publisher.publish, topics, sent):
                await _wait_until_settled(nc, readers)
        settled = time.perf_counter() - began

        async def many(topics: list[str], size: int) -> None:
            await asyncio.gather(*(publisher.publish(topic, stamp(size)) for topic in topics))

        yield Plane(publisher.publish, readings, many, join, start_up, settled, service, sent)


@asynccontextmanager
async def _service(options: NatsOptions, folder: str, plan_every: float) -> AsyncIterator[int]:
    arguments = {"url": options.url, "token": options.token, "folder": folder}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        _SERVICE,
        json.dumps({**arguments, "plan_every": plan_every, "interval": INTERVAL}),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        assert await process.stdout.readline() == b"started\n"
        yield process.pid
    finally:
        process.kill()
        await process.communicate()


@asynccontextmanager
async def _cancelled() -> AsyncIterator[list[asyncio.Task[None]]]:
    tasks: list[asyncio.Task[None]] = []
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def _publishing(
    publish: Publish, topics: list[str], sent: Counter[str]
) -> AsyncIterator[None]:
    """Publish events at the lower rate; they are confirmed at the end."""
    rng, done = random.Random(2), asyncio.Event()

    async def go_on(group: asyncio.TaskGroup) -> None:
        while not done.is_set():
            topic = rng.choice(topics)
            sent[topic] += 1
            group.create_task(_discard(publish(topic, stamp(0))))
            await asyncio.sleep(1 / RATE)

    async with asyncio.TaskGroup() as group:
        group.create_task(go_on(group))
        try:
            yield
        finally:
            done.set()


async def _discard(work: Awaitable[None]) -> None:
    await work


async def _follow(subscription: TopicSubscription, readings: Readings) -> None:
    async for event in subscription:
        readings.read(event.topic, event.payload)


async def _wait_until_settled(nc: Client, readers: list[TopicClient]) -> None:
    """Wait until a whole search for clusters has changed nobody's channels, or for some searches.

    Rates are measured all the time, so that a little changes with each search.
    """
    before, since, searches = None, time.monotonic(), 0
    while True:
        await asyncio.sleep(_LOOK)
        status = await fetch_status(nc, Subjects(), within=60.0)
        now = [reader.statistics.channels for reader in readers]
        if now != before:
            before, since, searches = now, time.monotonic(), status.searches
        quiet = time.monotonic() - since > _QUIET
        if (quiet and status.searches >= searches + 2) or status.searches >= _MOST_SEARCHES:
            return


# --- measuring -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Measured:
    """The measurements of one variant."""

    late: Sequence[float]
    speed: float
    idle: ServerStatus
    before: ServerStatus
    after: ServerStatus
    done: ServerStatus  # after the events at the highest speed
    start_up: float  # seconds until all readers were subscribed
    settled: float  # seconds until nobody changed channels any more
    memory: float | None  # of our service's process, in bytes
    later: float  # seconds until one more reader was subscribed in the end


@dataclass(frozen=True)
class Way:
    """A way to carry topics, and whether the server has JetStream for it."""

    open: Callable[[NatsOptions, Interests], AbstractAsyncContextManager[Plane]]
    with_jetstream: bool


Found = dict[str, list[Measured]]
WAYS = {
    "plain NATS": Way(plain, False),
    PEER: Way(jetstream, True),
    "channels, no clusters, state in a folder": Way(partial(channels, clusters=False), False),
    "channels, no clusters, state in JetStream": Way(partial(channels, clusters=False), True),
    "channels with clusters, state in a folder": Way(partial(channels, clusters=True), False),
    "channels with clusters, state in JetStream": Way(partial(channels, clusters=True), True),
}
LARGE_WAYS = {name: way for name, way in WAYS.items() if "no clusters" not in name}


async def measure(
    server: EmbeddedServer,
    plane: Plane,
    interests: Interests,
    idle: ServerStatus,
    size: int = 0,
    events: int = EVENTS,
) -> Measured:
    """Measure latency at a low rate, then the highest speed; all answers are checked."""
    rng = random.Random(1)
    audience = Counter(topic for wanted in interests for topic in wanted)
    sent = Counter(plane.sent)
    await _wait_until_read(plane, audience, sent)
    plane.readings.late.clear()
    before = await fetch_server_status(server.monitor)
    async with asyncio.TaskGroup() as group:
        for _ in range(int(RATE * SECONDS)):
            topic = rng.choice(sorted(audience))
            sent[topic] += 1
            group.create_task(_one(plane, topic, size))
            await asyncio.sleep(1 / RATE)
    await _wait_until_read(plane, audience, sent)
    late = list(plane.readings.late)
    after = await fetch_server_status(server.monitor)
    topics = rng.choices(sorted(audience), k=events)
    sent.update(topics)
    began = time.perf_counter()
    await plane.many(topics, size)
    await _wait_until_read(plane, audience, sent)
    speed = events / (time.perf_counter() - began)
    done = await fetch_server_status(server.monitor)
    memory = None if plane.service is None else _read_memory(plane.service)
    later = await _join_all(plane.join, interests[:1], Readings())
    ready = plane.start_up, plane.settled
    return Measured(late, speed, idle, before, after, done, *ready, memory, later)


def _read_memory(process: int) -> float:
    """The memory that a process uses, in bytes."""
    resident = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return float(resident * os.sysconf("SC_PAGE_SIZE"))


async def _one(plane: Plane, topic: str, size: int) -> None:
    await plane.publish(topic, stamp(size))


async def _wait_until_read(plane: Plane, audience: Counter[str], sent: Counter[str]) -> None:
    expected = {topic: n * audience[topic] for topic, n in sent.items()}
    async with asyncio.timeout(120):
        while sum(plane.readings.got.values()) < sum(expected.values()):
            await asyncio.sleep(0.001)
    await asyncio.sleep(0.2)
    assert plane.readings.got == expected  # every event, and none twice


async def measure_all(
    ways: Mapping[str, Way], interests: Interests, rounds: int, size: int = 0, events: int = EVENTS
) -> Found:
    """Measure all variants, one after the other, several times."""
    found: Found = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            begin = run_embedded_server(monitor=True, jetstream=way.with_jetstream)
            async with begin as server:
                idle = await fetch_server_status(server.monitor)
                async with way.open(server.options, interests) as plane:
                    measured = await measure(server, plane, interests, idle, size, events)
                    found[name].append(measured)
    return found


def topics_live() -> Section:
    """Speed, latency, and the server's own counters."""
    load = os.getloadavg()[0]
    interests = draw_groups()
    small = asyncio.run(measure_all(WAYS, interests, ROUNDS))
    large = asyncio.run(measure_all(LARGE_WAYS, interests, ROUNDS, LARGE))
    rows = [_row(name, each, small) for name, each in small.items()]
    rows += [_row(f"{name}; {LARGE} bytes", each, large) for name, each in large.items()]
    readers = len(interests)
    wanted = sum(map(len, interests))
    return Section(
        "Topics on NATS: our channels, JetStream, and one subject per topic",
        f"{GROUPS * TOPICS_EACH} topics, {readers} readers in {GROUPS} groups with the topics of "
        f"their group, every fourth with two more: {wanted} wanted. All readers and the publisher "
        "are connections of one Python process, the service is another, the server a third, on "
        f"this machine; medians of {ROUNDS} rounds. Latency from publishing to the application, "
        f"in milliseconds, at {RATE} events per second; speed with {EVENTS:,} events published as "
        "fast as possible, until the last delivery. Bytes and messages are counted by the "
        "server, for the same events at the lower rate; they include confirmations and all "
        "messages between clients and channels; only the last column counts messages at the "
        f"highest speed. An event is a time, in 13 to 15 digits, or has {LARGE} bytes. Keeping a "
        f"subscription is priced like a message every {INTERVAL:g} seconds, which decides the "
        "clusters; the subscriptions of an idle server are not counted. Every reader got every "
        "event it wanted exactly once (asserted).",
        [
            "",
            "events / s",
            "median",
            "p99",
            "added median",
            "added p99",
            "server's subscriptions",
            "messages in",
            "messages out",
            "KB in",
            "KB out",
            "events / s, of JetStream's",
            "messages out, of JetStream's",
            "KB out, of plain NATS's",
            "messages out at full speed, of JetStream's",
        ],
        rows,
        f"*{PEER}* promises what our channels promise, and is the peer to compare with: "
        "publishing is acknowledged, a stream stores the events, and each reader has a durable "
        f"consumer with the subjects that it wants and acknowledges each event; {WINDOW} events "
        "are published at a time, as with our channels. Plain NATS neither stores nor confirms: an "
        "event without a subscriber is lost. With its state in JetStream our service gets an "
        "answer of the server for each batch that it stores; at this low rate an event is a "
        f"batch. {_describe_load(load)}",
    )


def _describe_load(before: float) -> str:
    after = os.getloadavg()[0]
    return f"The load of the machine was {before:.1f} before and {after:.1f} after."


def _row(name: str, rounds: list[Measured], found: Found) -> list[str]:
    plain, peer = found["plain NATS"], found[PEER]
    median, p99 = _latency(rounds)
    base, base99 = _latency(plain)
    before, after, idle = rounds[-1].before, rounds[-1].after, rounds[-1].idle
    speed = statistics.median(a.speed / b.speed for a, b in zip(rounds, peer, strict=True))
    return [
        name,
        f"{statistics.median(each.speed for each in rounds):,.0f}",
        f"{median:.2f}",
        f"{p99:.2f}",
        f"{median - base:+.2f}",
        f"{p99 - base99:+.2f}",
        f"{before.subscriptions - idle.subscriptions:,}",
        f"{after.in_msgs - before.in_msgs:,}",
        f"{after.out_msgs - before.out_msgs:,}",
        f"{(after.in_bytes - before.in_bytes) / 1e3:,.0f}",
        f"{(after.out_bytes - before.out_bytes) / 1e3:,.0f}",
        f"{speed:.2f}",
        f"{count_sent(rounds[-1])[0] / count_sent(peer[-1])[0]:.2f}",
        f"{count_sent(rounds[-1])[1] / count_sent(plain[-1])[1]:.2f}",
        f"{_sent_fast(rounds[-1]) / _sent_fast(peer[-1]):.2f}",
    ]


def count_sent(measured: Measured) -> tuple[int, int]:
    """Messages and bytes that the server sent at the lower rate."""
    before, after = measured.before, measured.after
    return after.out_msgs - before.out_msgs, after.out_bytes - before.out_bytes


def _sent_fast(measured: Measured) -> int:
    """Messages that the server sent at the highest speed."""
    return measured.done.out_msgs - measured.after.out_msgs


def _latency(rounds: list[Measured]) -> tuple[float, float]:
    """The median and the 99th percentile, each as the median of all rounds."""
    found = np.median([np.percentile(each.late, [50, 99]) for each in rounds], axis=0)
    return float(found[0]), float(found[1])


# --- where clusters pay -------------------------------------------------------------------------


def topics_circles() -> Section:
    """Many topics, and readers whose interests overlap."""
    load = os.getloadavg()[0]
    interests = draw_circles()
    found = asyncio.run(measure_all(CIRCLE_WAYS, interests, 1))
    wanted = sum(map(len, interests))
    return Section(
        "Topics on NATS: where clusters pay",
        f"{CIRCLES * (INNER + BORDER):,} topics, {len(interests)} readers in {CIRCLES} circles: "
        f"each wants the {INNER} topics of its circle and {BORDER} of those that it shares with "
        f"its neighbours; {wanted:,} wanted in all. Otherwise as above, in one round. *Start-up* "
        "is the time in which all readers connect and subscribe, one after the other; *settled* is "
        f"the time until a search for clusters changes nobody's channels, or {_MOST_SEARCHES} "
        "searches are done, while events are published at the lower rate. The server's memory is "
        "what it has then more than idle; our service's is that "
        "of its whole process. *One more reader* wants the topics of the first, in the end. The "
        "messages of our channels include those that still move readers between clusters.",
        [
            "",
            "server's subscriptions",
            "server's memory (MB)",
            "our service's memory (MB)",
            "start-up (s)",
            "settled (s)",
            "one more reader (s)",
            "events / s",
            "median (ms)",
            "p99 (ms)",
            "messages in",
            "messages out",
            "KB in",
            "KB out",
        ],
        [_circle_row(name, rounds[0]) for name, rounds in found.items()],
        _describe_load(load),
    )


CIRCLE_WAYS = {
    name: WAYS[name] for name in ("plain NATS", PEER, "channels with clusters, state in a folder")
}


def _circle_row(name: str, measured: Measured) -> list[str]:
    median, p99 = _latency([measured])
    messages, size = count_sent(measured)
    return [
        name,
        f"{measured.before.subscriptions - measured.idle.subscriptions:,}",
        f"{(measured.before.mem - measured.idle.mem) / 1e6:,.0f}",
        "" if measured.memory is None else f"{measured.memory / 1e6:,.0f}",
        f"{measured.start_up:,.1f}",
        f"{measured.settled:,.1f}",
        f"{measured.later:.2f}",
        f"{measured.speed:,.0f}",
        f"{median:.2f}",
        f"{p99:.2f}",
        f"{measured.after.in_msgs - measured.before.in_msgs:,}",
        f"{messages:,}",
        f"{(measured.after.in_bytes - measured.before.in_bytes) / 1e3:,.0f}",
        f"{size / 1e3:,.0f}",
    ]


# --- what a subscription costs the server --------------------------------------------------------


def nats_subscriptions() -> Section:
    """The server's memory by number of subscriptions."""
    rows = asyncio.run(_subscriptions())
    return Section(
        "What subscriptions cost a NATS server",
        "One connection with this many subjects; memory is what the server reports once it has "
        "them all.",
        ["subscriptions", "server's memory (MB)", "bytes for each more"],
        rows,
    )


async def _subscriptions() -> list[list[str]]:
    rows: list[list[str]] = []
    async with run_embedded_server(monitor=True) as server:
        last: tuple[int, int] | None = None
        for n in SUBSCRIPTIONS:
            async with connect_to_server(server.options, name="many") as nc:
                for at in range(n):
                    await _quiet(nc, f"many.topic.{at}")
                await nc.flush(timeout=60)
                status = await fetch_server_status(server.monitor)
                assert status.subscriptions >= n
            each = "" if last is None else f"{(status.mem - last[1]) / (n - last[0]):,.0f}"
            rows.append([f"{n:,}", f"{status.mem / 1e6:,.1f}", each])
            last = last or (n, status.mem)
    return rows


async def _quiet(nc: Client, subject: str) -> None:
    """A subscription on the wire only: nats-py's own tasks would cost more than the server does."""
    nc._sid += 1
    await nc._send_subscribe(_Wire(nc._sid, subject))  # type: ignore[arg-type]


@dataclass
class _Wire:
    _id: int
    _subject: str
    _queue: str = ""


SECTIONS = {
    "topics_live": topics_live,
    "topics_circles": topics_circles,
    "nats_subscriptions": nats_subscriptions,
}

if __name__ == "__main__":
    for section in SECTIONS.values():
        print(section().markdown())
