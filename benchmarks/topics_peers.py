"""Thousands of peers that host topics: messages, times to join and to repair, memory."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from benchmarks.measure import Section
from distributary.machines.virtual import Link
from distributary.topics import TAMARA
from distributary.topics.messages import Event
from distributary.topics.peer.parameters import LIVE_OVERLAY, PeerParameters
from distributary.topics.peer.simulation import PeerNetwork

SIZES = (1_000, 2_000, 5_000)
TOPICS, READERS, EVENTS = 20, 50, 20
JOINS, CRASHES = 20, 10
CHURN = 0.1  # of all peers, per ten minutes
_PERIOD = 10.0  # seconds between keep-alives: of thousands of peers, fewer are simulated faster
_PARAMETERS = PeerParameters(
    overlay=replace(LIVE_OVERLAY, leaf_period=_PERIOD, tree_period=_PERIOD),
    dead_after=120.0,
    vouch_every=_PERIOD,
    house_every=_PERIOD / 2,
)
_POLICY = replace(TAMARA, survey_every=float("inf"), refresh=60.0)  # topics alone, no clusters
_LINK = Link(0.05, jitter=0.05)
_STEP = 0.1  # seconds
_MOST = 300.0
_TREE = frozenset({"event"})
_EVENT = frozenset({"event", "Put", "Puts", "Taken", "replicate", "acknowledge"})


@dataclass
class World:
    """A ring with topics, readers at random peers, and one publisher for each topic."""

    network: PeerNetwork
    rng: np.random.Generator
    peers: list[str]
    readers: list[str] = field(default_factory=list)
    said: Counter[str] = field(default_factory=Counter)

    def attach(self, client: str) -> None:
        """Attach a client to a random peer; it knows two others."""
        self.network.client(client, [str(each) for each in self.rng.choice(self.peers, 3)])

    def pick_idle(self) -> str:
        """A peer that is no root of a topic, removed from the list."""
        roots = {self.network.owner(f"topic/t{at}") for at in range(TOPICS)}
        while (name := str(self.rng.choice(self.peers))) in roots:
            pass
        self.peers.remove(name)
        return name

    def say(self, topic: str) -> None:
        """Publish the next event of a topic."""
        self.said[topic] += 1
        self.network.say(f"w{topic}", topic, f"{topic} {self.said[topic]}".encode())

    def wait(self, names: list[str], is_done: Callable[[str], bool]) -> list[float]:
        """Run until something is done for each name; returns how long that took for each."""
        start, times = self.network.clock.now, dict[str, float]()
        while len(times) < len(names):
            self.network.run(_STEP)
            now = self.network.clock.now - start
            times |= {name: now for name in names if name not in times and is_done(name)}
            assert now < _MOST, f"{sorted({*names} - {*times})} wait for {_MOST:g} s"
        return [*times.values()]

    def is_covered(self, reader: str) -> bool:
        """Whether a reader has its topic; its name tells it."""
        machine = self.network.clients[f"client/{reader}"].subscriber
        return machine.is_covered(reader.partition(" ")[0])

    def is_confirmed(self, topic: str) -> bool:
        """Whether everything published to a topic is accepted."""
        return not self.network.clients[f"client/w{topic}"].unconfirmed(topic)

    def is_active(self, peer: str) -> bool:
        """Whether a peer is part of the ring."""
        return self.network.peers[peer].overlay.pastry.active


def peers() -> Section:
    """What rings of thousands of peers send, and how soon they repair themselves."""
    # Each size in a new process: its memory is not what an earlier one has left free.
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as pool:
        rows = [*pool.map(_row, SIZES)]
    return Section(
        "Peers that host topics, simulated",
        f"{TOPICS} topics with {READERS} readers each, every reader at a random peer, and "
        f"{EVENTS} events to each topic; a channel is kept by three peers. Delays of 50 to 100 ms, "
        f"keep-alives every {_PERIOD:g} s. Then {JOINS} readers join; {JOINS} peers join while as "
        f"many others leave or crash, at a rate of {CHURN:.0%} of all peers in ten minutes; and "
        f"the roots of {CRASHES} topics crash, one after the other, while their publishers go on. "
        "In the end every reader has read every event once, in order (asserted). Times are "
        "medians and the worst, in virtual seconds; repaired is when the first event after the "
        "crash is confirmed. Memory is that of the simulation's process.",
        [
            "peers",
            "messages per event and reader",
            "of these down trees",
            "a reader joins",
            "a peer joins",
            "repaired after a crash",
            "other messages per peer and minute",
            "memory per peer",
        ],
        rows,
    )


def _row(n: int) -> list[str]:
    memory = _resident_bytes()
    world = _build_world(n)
    per_peer = (_resident_bytes() - memory) / n
    sent = _publish_all(world)
    minutes, before = world.network.clock.now / 60, world.network.count_messages()
    readers = _time_readers(world)
    joined = _time_peers(world)
    repaired = _time_repairs(world)
    world.network.run(30.0)
    spent = world.network.count_messages() - before
    rest = sum(units for kind, units in spent.items() if kind not in _EVENT)
    minutes = world.network.clock.now / 60 - minutes
    _check(world)
    heard = TOPICS * EVENTS * READERS
    return [
        f"{n:,}",
        f"{sum(sent[kind] for kind in _EVENT) / heard:.2f}",
        f"{sent['event'] / heard:.2f}",
        _shown(readers),
        _shown(joined),
        _shown(repaired),
        f"{rest / n / minutes:,.0f}",
        f"{per_peer / 1e3:.0f} KB",
    ]


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _shown(times: list[float]) -> str:
    return f"{np.median(times):.1f} s, at most {max(times):.1f} s"


def _build_world(n: int) -> World:
    network = PeerNetwork(_POLICY, _PARAMETERS, seed=n, link=_LINK)
    names = [f"p{at}" for at in range(n)]
    network.build_converged(names)
    world = World(network, np.random.default_rng(n), names)
    network.run(1.0)
    for at in range(TOPICS):
        topic = f"t{at}"
        world.attach(f"w{topic}")
        network.create(f"w{topic}", topic)
    network.run(10.0)
    for at in range(TOPICS):
        for number in range(READERS):
            reader = f"t{at} {number}"
            world.attach(reader)
            world.readers.append(reader)
            network.want(reader, f"t{at}")
    world.wait(world.readers, world.is_covered)
    return world


def _publish_all(world: World) -> Counter[str]:
    """The messages for some events of every topic, one after the other."""
    before = world.network.count_messages()
    for _ in range(EVENTS):
        for at in range(TOPICS):
            world.say(f"t{at}")
        world.network.run(1.0)
    return world.network.count_messages() - before


def _time_readers(world: World) -> list[float]:
    new = [f"t{at % TOPICS} new{at}" for at in range(JOINS)]
    for reader in new:
        world.attach(reader)
        world.network.want(reader, reader.partition(" ")[0])
    return world.wait(new, world.is_covered)


def _time_peers(world: World) -> list[float]:
    """Peers that join one after the other, while as many others leave or crash."""
    times = []
    for at in range(JOINS):
        name = f"new{at}"
        world.network.join(name, [str(each) for each in world.rng.choice(world.peers, 2)])
        times += world.wait([name], world.is_active)
        gone = world.pick_idle()
        (world.network.crash if at % 2 else world.network.leave)(gone)
        world.network.run(600.0 / (CHURN * len(world.peers)))
    return times


def _time_repairs(world: World) -> list[float]:
    """Crash the roots of topics while their publishers go on."""
    times = []
    for at in range(CRASHES):
        topic = f"t{at}"
        root = world.network.owner(f"topic/{topic}")
        world.peers.remove(root)
        world.network.crash(root)
        world.say(topic)
        times += world.wait([topic], world.is_confirmed)
    return times


def _check(world: World) -> None:
    """Every reader of the start has every event once, in order."""
    got: dict[str, list[bytes]] = {}
    for row in world.network.simulation.record.delivered:
        if isinstance(row[4], Event):
            got.setdefault(row[1], []).append(row[4].payload)
        else:
            assert not isinstance(row[4], Exception), row
    for reader in world.readers:
        topic = reader.partition(" ")[0]
        said = [f"{topic} {number + 1}".encode() for number in range(world.said[topic])]
        assert got[f"client/{reader}"] == said, reader


SECTIONS = {"topic_peers": peers}
