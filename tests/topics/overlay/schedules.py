"""Seeded schedules of churn: peers join, leave and crash while others subscribe and publish."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from distributary.machines.virtual import Link
from distributary.topics.overlay.identifiers import identifier
from distributary.topics.overlay.messages import LostEvents, ReceivedEvent
from distributary.topics.overlay.parameters import OverlayParameters
from distributary.topics.overlay.simulation import OverlayNetwork
from tests.topics.overlay import oracles

QUICK = OverlayParameters(
    leaf_set=8, leaf_period=4.0, tree_period=4.0, misses=2, refresh_every=3, patience=0.5, window=64
)
GROUP = "news"
# From a crash to its repair: silence is noticed, and what follows from it done.
REPAIR = 20.0


@dataclass
class Schedule:
    """A network, and what was asked of it."""

    seed: int
    parameters: OverlayParameters = QUICK
    link: Link = field(default_factory=lambda: Link(0.02, jitter=0.03))
    steps: int = 40

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        names = [f"p{at}" for at in range(int(self.rng.integers(2, 40)))]
        self.network = OverlayNetwork.build_converged(
            names, self.rng, self.parameters, link=self.link
        )
        self.joined = len(names)
        self.subscribers: list[str] = []
        self.ever: set[str] = set()
        self.confirmed: dict[str, int] = {}
        self.crashes: list[float] = []
        self.said: dict[str, int] = {}
        self.changes = 0

    def run(self) -> None:
        for _ in range(self.steps):
            self.step()
            self.network.run(float(self.rng.exponential(2.0)))
            self.note_confirmations()
        self.network.run(2.5 * REPAIR)
        for name in list(self.network.peers)[:2]:
            self.say(name)
        self.network.run(REPAIR)
        self.note_confirmations()

    def step(self) -> None:
        ways = ["join", "leave", "crash", "listen", "listen", "silence"] + ["say"] * 6
        way = str(self.rng.choice(ways))
        names = list(self.network.peers)
        name = str(self.rng.choice(names))
        root = oracles.nearest(names, identifier(GROUP))
        match way:
            case "join":
                through = [str(found) for found in self.rng.choice(names, 2)]
                self.network.join(f"p{self.joined}", through)
                self.joined += 1
            case "leave" if len(names) > 4:
                self.network.leave(root if self.rng.random() < 0.3 else name)
            case "crash" if len(names) > 4 and self.may_crash():
                self.network.crash(root if self.rng.random() < 0.4 else name)
            case "listen" if name not in self.ever:
                self.network.subscribe(name, GROUP)
                self.subscribers.append(name)
                self.ever.add(name)
            case "silence" if self.subscribers and self.rng.random() < 0.5:
                self.network.unsubscribe(self.subscribers.pop(0), GROUP)
            case "say":
                self.say(name)
        self.changes += way != "say"
        self.subscribers = [name for name in self.subscribers if name in self.network.peers]

    def may_crash(self) -> bool:
        """No more crashes from one to its repair than there are replicas."""
        now = self.network.simulation.clock.now
        recent = [at for at in self.crashes if at > now - REPAIR]
        if len(recent) >= self.parameters.replicas:
            return False
        self.crashes.append(now)
        return True

    def say(self, name: str) -> None:
        self.said[name] = self.said.get(name, 0) + 1
        self.network.publish(name, GROUP, (name, self.said[name]))

    def note_confirmations(self) -> None:
        for name in self.subscribers:
            wanted = self.network.peers[name].scribe.next_wanted(identifier(GROUP))
            if wanted is not None:
                self.confirmed.setdefault(name, wanted)

    # What must hold.

    def check(self) -> None:
        oracles.check_ring(self.network)
        oracles.check_tree(self.network, GROUP, self.subscribers)
        log = self.check_streams()
        self.check_complete(log)
        assert self.network.count_messages()["skipped"] == 0

    def check_streams(self) -> dict[int, tuple[str, int]]:
        """Each gets numbers that follow each other, and one number is one event to all."""
        log: dict[int, tuple[str, int]] = {}
        for found in self.network.simulation.record.delivered:
            assert not isinstance(found[4], LostEvents), f"{found[1]} lost events: {found[4]}"
        for name, stream in self.network.collect_received(GROUP).items():
            numbers = [found.sequence for found in stream]
            assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), name
            for found in stream:
                payload = found.publication.payload
                assert log.setdefault(found.sequence, payload) == payload, name
        events = [log[number] for number in sorted(log)]
        assert len(set(events)) == len(events), "an event has two numbers"
        for name in self.said:
            mine = [number for publisher, number in events if publisher == name]
            assert mine == sorted(mine), f"events of {name} are out of order"
        return log

    def check_complete(self, log: dict[int, tuple[str, int]]) -> None:
        """Who stays has everything from its confirmation on, and nothing accepted is missing."""
        key = identifier(GROUP)
        received = self.network.collect_received(GROUP)
        first = min((self.confirmed[name] for name in self.subscribers), default=None)
        for name in self.subscribers:
            assert name in self.confirmed, f"{name} was never confirmed"
            stream: list[ReceivedEvent] = received[name]
            assert stream[0].sequence <= self.confirmed[name], name
            assert stream[-1].sequence == max(log), f"{name} misses the last events"
        for name, peer in self.network.peers.items():
            if name in self.said:
                assert peer.scribe.publisher.last_accepted(key) == self.said[name], (
                    f"{name} waits for the root"
                )
        if first is not None:
            assert [number for number in sorted(log) if number >= first] == list(
                range(first, max(log) + 1)
            )
        assert len(log) <= sum(self.said.values())


def run_schedule(seed: int) -> Schedule:
    """One schedule; an error says how to run it again."""
    schedule = Schedule(seed)
    try:
        schedule.run()
        schedule.check()
    except Exception as error:
        again = f"tests.topics.overlay.schedules.run_schedule({seed})"
        raise AssertionError(f"seed {seed}: {error}; to run it again: {again}") from error
    return schedule
