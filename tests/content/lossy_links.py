"""Machines that talk by connections over a bad network, and a check of all that they are told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from distributary.content.connections import Connection, Received, Timing
from distributary.machines import Action, SetTimer
from distributary.machines.virtual import Link, Simulation, VirtualNetwork

OUTSIDE = "outside"


class BadNetwork(VirtualNetwork):
    """Doubles messages with the probability `doubles`; the copy is late, by `late` on average."""

    def __init__(
        self, rng: np.random.Generator, link: Link, *, doubles: float = 0.0, late: float = 0.0
    ) -> None:
        super().__init__({}, rng, default=link)
        self._chance = rng
        self._doubles = doubles
        self._late = late

    def arrivals(self, sender: str, to: str, now: float) -> Iterator[tuple[str, float | None]]:
        for receiver, at in super().arrivals(sender, to, now):
            yield receiver, at
            if at is not None and self._chance.random() < self._doubles:
                yield receiver, at + self._chance.exponential(self._late)


@dataclass(frozen=True, slots=True)
class State:
    """All that a life says of its routing: the first that it sends in a pairing."""

    life: int


@dataclass(frozen=True, slots=True)
class Statement:
    """A change of the routing, which the state of a later pairing would include."""

    number: int


@dataclass(frozen=True, slots=True)
class Publication:
    """Published in one life of a machine, numbered there."""

    origin: str
    life: int
    number: int


@dataclass(frozen=True, slots=True)
class Tagged:
    """A message with the link and the pairing that it was sent in, and its place there."""

    pairing: tuple[str, int, str, int]
    place: int
    body: State | Statement | Publication


@dataclass
class World:
    """What outlives the machines: what they stored, and what is true of every pairing."""

    published: list[Publication] = field(default_factory=list)
    stored: set[Publication] = field(default_factory=set)
    finished: set[Publication] = field(default_factory=set)
    sent: Counter[tuple[str, int, str, int]] = field(default_factory=Counter)
    delivered: Counter[tuple[str, int, str, int]] = field(default_factory=Counter)
    newest: dict[object, int] = field(default_factory=dict)
    seen: Counter[str] = field(default_factory=Counter)

    def check(self, tagged: Tagged, receiver: str, life: int) -> None:
        """A message is delivered: once, in order, in its own pairing, state first."""
        assert tagged.pairing[2:] == (receiver, life), f"{tagged} came to life {life}"
        expected = self.delivered[tagged.pairing]
        assert tagged.place == expected, f"{tagged} came, and {expected} should have been next"
        self.delivered[tagged.pairing] += 1
        assert isinstance(tagged.body, State) == (expected == 0), f"{tagged} out of turn"
        if isinstance(tagged.body, Publication):
            stream = tagged.pairing, tagged.body.origin, tagged.body.life
            assert self.newest.get(stream, -1) < tagged.body.number, f"{tagged} after a newer one"
            self.newest[stream] = tagged.body.number


class Relay:
    """One life of a broker: `routes` says where publications go by where they come from.

    Those that go nowhere are stored, which takes `effort` seconds on average; only then they are
    done. Others are done when the next broker is. From outside it is told to start, to publish so
    many, or to state something to all its peers.
    """

    def __init__(
        self,
        name: str,
        life: int,
        routes: Mapping[str, str | None],
        world: World,
        timing: Timing,
        rng: np.random.Generator,
        effort: float = 0.0,
    ) -> None:
        self.name = name
        self.life = life
        self.connections = {
            peer: Connection(peer, life, timing) for peer in routes if peer != OUTSIDE
        }
        self._routes = routes
        self.world = world
        self._rng = rng
        self._effort = effort
        self._owed: dict[Publication, tuple[str, int]] = {}
        self._storing: dict[str, tuple[str, int, Publication]] = {}
        self._published = 0

    def on_message(self, sender: str, message: Any, now: float) -> list[Action]:
        actions: list[Action] = []
        if sender in self.connections:
            found = self.connections[sender].on_packet(message, now)
            self._handle(sender, found, now, actions)
        elif isinstance(message, int):
            for _ in range(message):
                self._publish()
        elif isinstance(message, Statement):
            for peer in self.connections:
                self._send(peer, message)
        return actions + self._flush(now)

    def on_timer(self, name: str, now: float) -> list[Action]:
        if name in self._storing:
            peer, number, publication = self._storing.pop(name)
            self.world.stored.add(publication)
            self.connections[peer].finish(number, now)
            return self._flush(now)
        (connection,) = (found for found in self.connections.values() if found.timer == name)
        return connection.on_timer(now)

    def _flush(self, now: float) -> list[Action]:
        return [
            action for connection in self.connections.values() for action in connection.flush(now)
        ]

    def _publish(self) -> None:
        publication = Publication(self.name, self.life, self._published)
        self._published += 1
        self.world.published.append(publication)
        to = self._routes[OUTSIDE]
        assert to is not None
        self._send(to, publication)

    def _send(self, to: str, body: State | Statement | Publication) -> None:
        connection = self.connections[to]
        pairing = self.name, self.life, to, connection.peer_incarnation
        place = self.world.sent[pairing]
        if connection.peer_incarnation:
            self.world.sent[pairing] += 1
        connection.send(Tagged(pairing, place, body), keep=isinstance(body, Publication))

    def _handle(self, peer: str, found: Received, now: float, actions: list[Action]) -> None:
        connection = self.connections[peer]
        if found.reset:
            self.world.seen["resets"] += 1
            self._send(peer, State(self.life))
            for kept in connection.take_kept():
                self._send(peer, kept.body)
        for number, tagged in found.messages:
            assert tagged.pairing[:2] == (peer, connection.peer_incarnation)
            self.world.check(tagged, self.name, self.life)
            if isinstance(tagged.body, Publication):
                actions += self._take(peer, number, tagged.body, now)
            else:
                connection.finish(number, now)
        for tagged in found.finished:
            self.world.finished.add(tagged.body)
            if tagged.body in self._owed:
                upstream, number = self._owed.pop(tagged.body)
                self.connections[upstream].finish(number, now)

    def _take(self, peer: str, number: int, publication: Publication, now: float) -> list[Action]:
        onward = self._routes[peer]
        if onward is not None:
            self._owed[publication] = peer, number
            self._send(onward, publication)
            return []
        name = f"store {peer} {number}"
        assert name not in self._storing, f"{peer} uses the number {number} again"
        self._storing[name] = peer, number, publication
        return [SetTimer(name, now + self._rng.exponential(self._effort))]


Routes = Mapping[str, Mapping[str, str | None]]

PAIR: Routes = {"a": {OUTSIDE: "b", "b": None}, "b": {OUTSIDE: "a", "a": None}}
CHAIN: Routes = {
    "a": {OUTSIDE: "b", "b": None},
    "b": {"a": "c", "c": "a"},
    "c": {OUTSIDE: "b", "b": None},
}


class Play:
    """Machines that crash and come back, over links that are cut and heal; same seed, same play."""

    def __init__(self, seed: int, routes: Routes) -> None:
        self.rng = rng = np.random.default_rng(seed)
        self.routes = routes
        self.world = World()
        self.lives: dict[str, list[Relay]] = {name: [] for name in routes}
        self.timing = Timing(
            resend=rng.uniform(0.05, 0.4),
            longest=rng.uniform(0.5, 2.0),
            answer=rng.choice([0.0, 0.01, 0.1]),
            window=int(rng.choice([1, 4, 16, 256])),
            batch=int(rng.choice([1, 3, 32])),
        )
        link = Link(
            rng.uniform(0.0, 0.05), rng.uniform(0.0, 0.2), loss=rng.uniform(0.0, 0.3), reorders=True
        )
        self.effort = rng.choice([0.0, 0.1, 1.0])
        self.network = BadNetwork(rng, link, doubles=rng.uniform(0.0, 0.3), late=rng.uniform(0, 3))
        self.simulation = Simulation(self.network)

    def start(self, name: str) -> None:
        life = len(self.lives[name]) + 1
        relay = Relay(name, life, self.routes[name], self.world, self.timing, self.rng, self.effort)
        self.lives[name].append(relay)
        self.simulation.add(name, relay)
        self.simulation.post(self.simulation.clock.now, name, "start", sender=OUTSIDE)

    def crash_now_and_then(self, name: str, until: float) -> None:
        at = self.rng.exponential(3.0)
        while at < until:
            self.simulation.clock.at(at, partial(self.simulation.crash, name))
            at += self.rng.choice([0.0, 0.3, 2.0])
            self.simulation.clock.at(at, partial(self.start, name))
            at += self.rng.exponential(3.0)

    def cut_now_and_then(self, until: float) -> None:
        at = self.rng.exponential(3.0)
        while at < until:
            island = self.rng.choice(sorted(self.routes))
            self.simulation.clock.at(at, partial(self.network.cut, "cut", [island]))
            at += self.rng.exponential(1.5)
            self.simulation.clock.at(at, partial(self.network.heal, "cut"))
            at += self.rng.exponential(3.0)

    def say_something(self, name: str, until: float) -> None:
        at = 0.0
        while at < until:
            for number in range(self.rng.integers(1, 6)):
                publishes = OUTSIDE in self.routes[name] and self.rng.random() < 0.7
                what = self.rng.integers(1, 4).item() if publishes else Statement(number)
                self.simulation.post(at, name, what, sender=OUTSIDE)
            at += self.rng.exponential(0.5)

    def check_the_end(self) -> None:
        """All is quiet: everything that was to come came, and nothing is held on to any more."""
        last = {name: lives[-1] for name, lives in self.lives.items()}
        for name, relay in last.items():
            for peer, connection in relay.connections.items():
                assert connection.idle, f"{name} is not through with {peer}"
                assert connection.peer_incarnation == last[peer].life
                pairing = name, relay.life, peer, last[peer].life
                assert self.world.delivered[pairing] == self.world.sent[pairing] > 0
        # A publication is its origin's to lose while nobody else has it.
        wanted = {p for p in self.world.published if p.life == last[p.origin].life}
        assert wanted <= self.world.stored, f"lost: {wanted - self.world.stored}"
        assert wanted <= self.world.finished, f"nobody was told: {wanted - self.world.finished}"
        # Nobody was told so of one that is not stored, of those either whose origin is gone.
        assert self.world.finished <= self.world.stored

    def summary(self) -> Counter[str]:
        """How much happened, to see that a play is worth its name."""
        seen = self.world.seen
        seen["stored"] = len(self.world.stored)
        seen["published"] = len(self.world.published)
        for relay in (life for lives in self.lives.values() for life in lives):
            for connection in relay.connections.values():
                for what in ("packets_sent", "resent", "duplicates", "stale"):
                    seen[what] += getattr(connection, what)
        return seen


def run_schedule(seed: int, *, until: float = 10.0) -> Counter[str]:
    """Two or three machines, of which some crash, to the end; how much of what happened."""
    routes = (PAIR, CHAIN)[seed % 2]
    play = Play(seed, routes)
    for name in routes:
        play.start(name)
        play.say_something(name, until)
        if play.rng.random() < 0.6:
            play.crash_now_and_then(name, until)
    play.cut_now_and_then(until)
    try:
        assert play.simulation.run(max_events=500_000) < 500_000, "it does not come to rest"
        play.check_the_end()
    except Exception as problem:
        again = f"from tests.content.lossy_links import run_schedule; run_schedule({seed})"
        raise AssertionError(f"seed {seed}: {problem}\nagain: python -c '{again}'") from problem
    return play.summary()
