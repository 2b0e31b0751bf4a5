"""Topics between peer processes: messages, times to join and to repair, memory, events per second.

Beside it, the service on NATS under the same load, with the same client class.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from benchmarks.measure import Section
from benchmarks.processes import cpu_of, resident
from distributary.machines.nats.options import find_server
from distributary.topics.live import ClientSettings, TopicClient
from distributary.topics.nats import NatsOptions
from distributary.topics.peer.tcp import PeerOptions, PeerStatus, fetch_status

PEERS, TOPICS, READERS, WANTED = 12, 20, 20, 6
EACH = 20  # events to each topic, one at a time, while messages are counted
EVENTS = 4_000  # for the events per second
CRASHES = 5
IDLE = 10.0  # seconds
_SETTINGS = ClientSettings(timeout=120.0, connect_within=60.0)
# Of an event: from its publisher to the root, to the replicas, down the tree, and confirmations.
_EVENT = ("Put", "Puts", "Taken", "replicate", "event", "acknowledge")
_PORTS = range(12_000, 20_000)  # below those of outgoing connections


class _Process:
    """A command of ours that serves, and the times of the lines that it prints."""

    def __init__(self, *words: str) -> None:
        self._words = [sys.executable, "-m", "distributary", "topics", *words]
        self._lines: list[tuple[str, float]] = []
        self._changed = asyncio.Event()

    async def start(self, ready: str) -> None:
        """Start it, and wait for a line that begins like this."""
        self._lines.clear()
        self.process = await asyncio.create_subprocess_exec(
            *self._words, stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
        )
        self._reading = asyncio.create_task(self._read())
        await self.when(ready)

    async def when(self, begins: str) -> float:
        """Wait for a line, and return when it came."""
        async with asyncio.timeout(120):
            while True:
                for line, at in self._lines:
                    if line.startswith(begins):
                        return at
                self._changed.clear()
                await self._changed.wait()

    async def _read(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            self._lines.append((line.decode(), time.perf_counter()))
            self._changed.set()

    async def end(self, number: int = signal.SIGKILL) -> None:
        """End it."""
        if self.process.returncode is None:
            self.process.send_signal(number)
        await self.process.wait()
        await self._reading


class _Load:
    """Readers of a service or of peers, each with some of the topics, and one publisher."""

    def __init__(self, clients: Sequence[TopicClient], topics: Sequence[str]) -> None:
        self.publisher, *self.readers = clients
        self.topics = topics
        self.got: list[Counter[str]] = [Counter() for _ in self.readers]
        self.said: Counter[str] = Counter()

    async def begin(self, start: Callable[[Awaitable[None]], object]) -> None:
        """Create the topics, and subscribe."""
        rng = random.Random(1)
        for topic in self.topics:
            await self.publisher.create(topic)
        self.wanted = [rng.sample(self.topics, WANTED) for _ in self.readers]
        for client, wanted, got in zip(self.readers, self.wanted, self.got, strict=True):
            for topic in wanted:
                start(self._read(await client.subscribe(topic), topic, got))

    async def _read(self, events: object, topic: str, got: Counter[str]) -> None:
        async for event in events:  # type: ignore[attr-defined]
            got[topic] += 1
            assert event.payload == b"%d" % got[topic], "an event is missing, or out of order"

    async def say(self, topic: str) -> None:
        """Publish the next event of a topic."""
        self.said[topic] += 1
        await self.publisher.publish(topic, b"%d" % self.said[topic])

    async def caught_up(self) -> None:
        """Wait until everybody has read everything."""
        async with asyncio.timeout(120):
            while self.read < self.due:
                await asyncio.sleep(0.01)
        assert self.read == self.due

    @property
    def read(self) -> int:
        """The events that readers have read."""
        return sum(found.total() for found in self.got)

    @property
    def due(self) -> int:
        """The events that readers should have read."""
        return sum(self.said[topic] for wanted in self.wanted for topic in wanted)

    async def measure_speed(self) -> float:
        """Events per second, from the first to the last that the last reader reads."""
        began = time.perf_counter()
        await asyncio.gather(*(self.say(self.topics[at % TOPICS]) for at in range(EVENTS)))
        await self.caught_up()
        return EVENTS / (time.perf_counter() - began)


@asynccontextmanager
async def _loading(options: Sequence[PeerOptions | NatsOptions]) -> AsyncIterator[_Load]:
    """Clients in this process, one for each of the options."""
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(TopicClient(each, _SETTINGS)) for each in options
        ]
        load = _Load(clients, [f"topic {at}" for at in range(TOPICS)])
        async with asyncio.TaskGroup() as group:
            tasks: list[asyncio.Task[None]] = []
            await load.begin(lambda work: tasks.append(group.create_task(work)))  # type: ignore[arg-type]
            yield load
            for task in tasks:
                task.cancel()


# --- peers ---------------------------------------------------------------------------------------


async def _measure_peers(folder: Path) -> list[tuple[str, str]]:
    addresses = [f"127.0.0.1:{port}" for port in _find_ports(PEERS)]
    peers = {
        address: _Process("peer", "--listen", address, "--state", str(folder / str(at)), *join)
        for at, address in enumerate(addresses)
        for join in [("--join", addresses[0])[: 2 * bool(at)]]
    }
    try:
        joins = [await _join(peer) for peer in peers.values()][1:]
        rng = random.Random(2)
        known = [PeerOptions(",".join(rng.sample(addresses, 3))) for _ in range(READERS + 1)]
        async with _loading(known) as load:
            return await _measure_ring(peers, load, joins)
    finally:
        for peer in peers.values():
            await peer.end()


async def _join(peer: _Process) -> float:
    """Start a peer; returns the seconds from its first line until it is part of the ring."""
    await peer.start("peer ")
    return await peer.when("in a ring" if "--join" in peer._words else "started") - (
        await peer.when("peer ")
    )


async def _measure_ring(
    peers: dict[str, _Process], load: _Load, joins: list[float]
) -> list[tuple[str, str]]:
    await asyncio.sleep(5.0)  # until the trees have settled
    idle, cpu = await _count(peers), _cpu(peers)
    await asyncio.sleep(IDLE)
    rest, cpu = (await _count(peers) - idle).total(), _cpu(peers) - cpu
    before, read = await _count(peers), load.read
    for _ in range(EACH):
        await asyncio.gather(*(load.say(topic) for topic in load.topics))
    await load.caught_up()
    sent = await _count(peers) - before
    heard = load.read - read
    speeds = [await load.measure_speed() for _ in range(3)]
    repairs = [await _crash(peers, load) for _ in range(CRASHES)]
    await load.caught_up()
    memory = statistics.median(resident(each.process.pid) for each in peers.values())
    minutes = IDLE / 60
    return [
        (
            "messages between peers per event and reader",
            f"{sum(sent[kind] for kind in _EVENT) / heard:.2f}",
        ),
        ("of these down trees", f"{sent['event'] / heard:.2f}"),
        ("messages per peer and minute when nobody publishes", f"{rest / PEERS / minutes:,.0f}"),
        ("CPU of a peer when nobody publishes", f"{cpu / PEERS / IDLE:.2%} of a core"),
        ("a peer joins", _shown(joins)),
        ("from `kill -9` of a root to its topic's next confirmed event", _shown(repairs)),
        ("memory of a peer", f"{memory / 1e6:.0f} MB"),
        ("events/s", f"{statistics.median(speeds):,.0f}"),
    ]


async def _count(peers: dict[str, _Process]) -> Counter[str]:
    """The messages that all peers have sent so far, by kind."""
    found = await asyncio.gather(*(fetch_status(PeerOptions(address)) for address in peers))
    total: Counter[str] = Counter()
    for each in found:
        total.update(each.messages)
    return total


def _cpu(peers: dict[str, _Process]) -> float:
    return sum(cpu_of(each.process.pid) for each in peers.values())


async def _crash(peers: dict[str, _Process], load: _Load) -> float:
    """Kill a peer that is root of a topic; returns when the topic accepts again."""
    found = await asyncio.gather(*(fetch_status(PeerOptions(address)) for address in peers))
    root: PeerStatus = random.Random(len(load.said)).choice([one for one in found if one.topics])
    await peers[root.name].end()
    began = time.perf_counter()
    await load.say(root.topics[0].topic)
    took = time.perf_counter() - began
    await load.caught_up()
    await _join(peers[root.name])
    await asyncio.sleep(8.0)  # until there are as many copies again
    return took


def _find_ports(count: int) -> list[int]:
    found: dict[int, None] = {}
    while len(found) < count:
        port = random.choice(_PORTS)
        with socket.socket() as trial:
            try:
                trial.bind(("127.0.0.1", port))
            except OSError:
                continue
        found[port] = None
    return [*found]


def _shown(times: list[float]) -> str:
    return f"{statistics.median(times):.1f} s, at most {max(times):.1f} s"


# --- a service on NATS, for comparison -----------------------------------------------------------


async def _measure_service(folder: Path) -> float:
    """Events per second with the same clients."""
    service = _Process("serve", "--state", str(folder))
    await service.start("serving topics")
    try:
        options, _ = find_server(folder)
        async with _loading([options] * (READERS + 1)) as load:
            return statistics.median([await load.measure_speed() for _ in range(3)])
    finally:
        await service.end(signal.SIGINT)


def topics_ring() -> Section:
    """Twelve peers as processes on this machine."""
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        rows = asyncio.run(_measure_peers(Path(one)))
        speed = asyncio.run(_measure_service(Path(other)))
    name, ours = rows[-1]
    ratio = float(ours.replace(",", "")) / speed
    served = f"{speed:,.0f}"
    rows[-1] = (name, f"{ours}, {ratio:.2f} of the {served} of the service on NATS")
    return Section(
        "Peers that host topics, as processes",
        f"{PEERS} processes `distributary topics peer`, three copies of each topic, and {READERS} "
        f"readers with {WANTED} of {TOPICS} topics each, all on this machine; readers and "
        "publisher are clients in one more process. Messages are counted while each topic gets "
        f"{EACH} events, one at a time. The events per second are those of {EVENTS:,} events, "
        "published as fast as confirmations allow, until the last reader has read the last one; "
        "the service on NATS is one process with an embedded server, which keeps one copy, under "
        f"the same load. {CRASHES} times a peer that is root of a topic is killed while its "
        "publisher goes on. Every reader has read every event once, in order (asserted).",
        ["", f"{PEERS} peers"],
        rows,
        f"The load of the machine was {load:.1f} before and {os.getloadavg()[0]:.1f} after.",
    )


SECTIONS = {"topics_ring": topics_ring}

if __name__ == "__main__":
    print(topics_ring().markdown())
