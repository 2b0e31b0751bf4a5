"""Topics on a real NATS server: our channels against one subject per topic."""

from __future__ import annotations

import asyncio
import json
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

import numpy as np
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, StreamConfig

from benchmarks.measure import Section
from distributary.topics.nats import (
    ClientSettings,
    EmbeddedServer,
    NatsOptions,
    TopicClient,
    TopicSubscription,
    run_embedded_server,
)
from distributary.topics.nats.options import connect_to_server
from distributary.topics.nats.status import ServerStatus, fetch_server_status

GROUPS, TOPICS_EACH, READERS_EACH = 4, 10, 6
ROUNDS = 3
RATE, SECONDS = 100, 4.0  # events per second while latency is measured
INTERVAL = 10.0  # seconds for which keeping a subscription costs as much as one message
EVENTS = 10_000  # for the measurement of speed
WINDOW = 256  # unconfirmed events of a publisher to JetStream
PEER = "NATS JetStream"
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


@dataclass
class Plane:
    """Subscribed readers, and a way to publish."""

    publish: Publish
    readings: Readings
    many: Callable[[list[str]], Awaitable[None]]


Interests = list[list[str]]  # the topics of each reader


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
        for wanted in interests:
            reader = await stack.enter_async_context(connect_to_server(options, name="reader"))
            for topic in wanted:
                await reader.subscribe(f"plain.{topic}", cb=_reading(readings, topic))
            await reader.flush()

        async def publish(topic: str, payload: bytes) -> None:
            await publisher.publish(f"plain.{topic}", payload)

        async def many(topics: list[str]) -> None:
            for topic in topics:
                await publish(topic, b"%d" % time.perf_counter_ns())
            await publisher.flush()

        yield Plane(publish, readings, many)


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
        for number, wanted in enumerate(interests):
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

        async def publish(topic: str, payload: bytes) -> None:
            await js.publish(f"peer.{topic}", payload)

        async def many(topics: list[str]) -> None:
            room = asyncio.Semaphore(WINDOW)

            async def one(topic: str) -> None:
                async with room:
                    await publish(topic, b"%d" % time.perf_counter_ns())

            await asyncio.gather(*map(one, topics))

        yield Plane(publish, readings, many)


def _reading_and_acknowledging(readings: Readings) -> Callable[[Msg], Awaitable[None]]:
    async def read(message: Msg) -> None:
        readings.read(message.subject.removeprefix("peer."), message.data)
        await message.ack()

    return read


@asynccontextmanager
async def channels(
    options: NatsOptions, interests: Interests, *, clusters: bool
) -> AsyncIterator[Plane]:
    """The channel service in its own process, and our clients."""
    readings = Readings()
    settings = ClientSettings(timeout=300.0)
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        await stack.enter_async_context(
            _service(options, folder, len(interests) / 50 if clusters else 1e9)
        )
        publisher = await stack.enter_async_context(TopicClient(options, settings))
        topics = sorted({topic for wanted in interests for topic in wanted})
        # The rates that a service would have learnt if it had been running for longer.
        flow = RATE * INTERVAL / len(topics)
        await asyncio.gather(*(publisher.create(topic, flow=flow) for topic in topics))
        group = await stack.enter_async_context(_cancelled())
        readers = []
        for wanted in interests:
            reader = await stack.enter_async_context(TopicClient(options, settings))
            readers.append(reader)
            found = await asyncio.gather(*map(reader.subscribe, wanted))
            group += [asyncio.create_task(_follow(each, readings)) for each in found]
        if clusters:
            await _wait_until_settled(readers)

        async def many(topics: list[str]) -> None:
            await asyncio.gather(
                *(publisher.publish(topic, b"%d" % time.perf_counter_ns()) for topic in topics)
            )

        yield Plane(publisher.publish, readings, many)


@asynccontextmanager
async def _service(options: NatsOptions, folder: str, plan_every: float) -> AsyncIterator[None]:
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
        yield
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


async def _follow(subscription: TopicSubscription, readings: Readings) -> None:
    async for event in subscription:
        readings.read(event.topic, event.payload)


async def _wait_until_settled(readers: list[TopicClient]) -> None:
    """Wait until nobody's channels have changed for three seconds."""
    before, since = None, time.monotonic()
    while time.monotonic() - since < 3.0:
        await asyncio.sleep(0.1)
        now = [reader.statistics.channels for reader in readers]
        if now != before:
            before, since = now, time.monotonic()


# --- measuring -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Measured:
    """The measurements of one variant."""

    late: Sequence[float]
    speed: float
    idle: ServerStatus
    before: ServerStatus
    after: ServerStatus
    start_up: float  # seconds, until all readers were subscribed and channels settled


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


async def measure(
    server: EmbeddedServer, plane: Plane, interests: Interests, idle: ServerStatus, start_up: float
) -> Measured:
    """Measure latency at a low rate, then the highest speed; all answers are checked."""
    rng = random.Random(1)
    audience = Counter(topic for wanted in interests for topic in wanted)
    before = await fetch_server_status(server.monitor)
    sent: Counter[str] = Counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(int(RATE * SECONDS)):
            topic = rng.choice(sorted(audience))
            sent[topic] += 1
            group.create_task(_one(plane, topic))
            await asyncio.sleep(1 / RATE)
    await _wait_until_read(plane, audience, sent)
    late = list(plane.readings.late)
    after = await fetch_server_status(server.monitor)
    topics = rng.choices(sorted(audience), k=EVENTS)
    sent.update(topics)
    began = time.perf_counter()
    await plane.many(topics)
    await _wait_until_read(plane, audience, sent)
    return Measured(late, EVENTS / (time.perf_counter() - began), idle, before, after, start_up)


async def _one(plane: Plane, topic: str) -> None:
    await plane.publish(topic, b"%d" % time.perf_counter_ns())


async def _wait_until_read(plane: Plane, audience: Counter[str], sent: Counter[str]) -> None:
    expected = {topic: n * audience[topic] for topic, n in sent.items()}
    async with asyncio.timeout(120):
        while sum(plane.readings.got.values()) < sum(expected.values()):
            await asyncio.sleep(0.001)
    await asyncio.sleep(0.2)
    assert plane.readings.got == expected  # every event, and none twice


async def _measure_all(ways: Mapping[str, Way], interests: Interests, rounds: int) -> Found:
    """Measure all variants, one after the other, several times."""
    found: Found = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            begin = run_embedded_server(monitor=True, jetstream=way.with_jetstream)
            async with begin as server:
                idle = await fetch_server_status(server.monitor)
                began = time.perf_counter()
                async with way.open(server.options, interests) as plane:
                    start_up = time.perf_counter() - began
                    found[name].append(await measure(server, plane, interests, idle, start_up))
    return found


def topics_live() -> Section:
    """Speed, latency, and the server's own counters."""
    interests = draw_groups()
    found = asyncio.run(_measure_all(WAYS, interests, ROUNDS))
    rows = [_row(name, each, found) for name, each in found.items()]
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
        "messages between clients and channels. Keeping a subscription is priced like a message "
        f"every {INTERVAL:g} seconds, which decides the clusters; the subscriptions of an idle "
        "server are not counted. Every reader got every event it wanted exactly once (asserted).",
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
        ],
        rows,
        f"*{PEER}* promises what our channels promise, and is the peer to compare with: "
        "publishing is acknowledged, a stream stores the events, and each reader has a durable "
        f"consumer with the subjects that it wants and acknowledges each event; {WINDOW} events "
        "are published at a time, as with our channels. Plain NATS neither stores nor confirms: an "
        "event without a subscriber is lost. With its state in JetStream our service gets an "
        "answer of the server for each batch that it stores; at this low rate an event is a "
        "batch.",
    )


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
        f"{_sent(rounds[-1])[0] / _sent(peer[-1])[0]:.2f}",
        f"{_sent(rounds[-1])[1] / _sent(plain[-1])[1]:.2f}",
    ]


def _sent(measured: Measured) -> tuple[int, int]:
    """Messages and bytes that the server sent at the lower rate."""
    before, after = measured.before, measured.after
    return after.out_msgs - before.out_msgs, after.out_bytes - before.out_bytes


def _latency(rounds: list[Measured]) -> tuple[float, float]:
    """The median and the 99th percentile, each as the median of all rounds."""
    found = np.median([np.percentile(each.late, [50, 99]) for each in rounds], axis=0)
    return float(found[0]), float(found[1])


# --- where clusters pay -------------------------------------------------------------------------


def topics_circles() -> Section:
    """Many topics, and readers whose interests overlap."""
    interests = draw_circles()
    found = asyncio.run(_measure_all(CIRCLE_WAYS, interests, 1))
    wanted = sum(map(len, interests))
    return Section(
        "Topics on NATS: where clusters pay",
        f"{CIRCLES * (INNER + BORDER):,} topics, {len(interests)} readers in {CIRCLES} circles: "
        f"each wants the {INNER} topics of its circle and {BORDER} of those that it shares with "
        f"its neighbours; {wanted:,} wanted in all. Otherwise as above, in one round. *Start-up* "
        "is the time until all readers are subscribed, and with clusters until nobody has changed "
        "channels for three seconds, which are included; memory is what the server has then more "
        "than idle.",
        [
            "",
            "server's subscriptions",
            "server's memory (MB)",
            "start-up (s)",
            "events / s",
            "median (ms)",
            "p99 (ms)",
            "messages out",
            "KB out",
        ],
        [_circle_row(name, rounds[0]) for name, rounds in found.items()],
    )


CIRCLE_WAYS = {
    name: WAYS[name] for name in ("plain NATS", PEER, "channels with clusters, state in a folder")
}


def _circle_row(name: str, measured: Measured) -> list[str]:
    median, p99 = _latency([measured])
    messages, size = _sent(measured)
    return [
        name,
        f"{measured.before.subscriptions - measured.idle.subscriptions:,}",
        f"{(measured.before.mem - measured.idle.mem) / 1e6:,.0f}",
        f"{measured.start_up:,.1f}",
        f"{measured.speed:,.0f}",
        f"{median:.2f}",
        f"{p99:.2f}",
        f"{messages:,}",
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
