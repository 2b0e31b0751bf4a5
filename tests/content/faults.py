"""Durable content brokers on a bad network, whose nodes crash and come back."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf

import numpy as np

from distributary.content.connections import Timing
from distributary.content.durable import DurableBroker, Recovery, StartBroker
from distributary.content.heard import read_heard
from distributary.content.resync import Known
from distributary.content.state_codec import StateCodec
from distributary.machines.virtual import Link, Simulation, VirtualNetwork
from distributary.model import Topology
from tests.content.worlds import SCHEMA, Watched, World

CODEC = StateCodec(SCHEMA)
TIMING = Timing(resend=0.4, longest=2.0, answer=0.02)


def read_again(saved: Mapping[Hashable, object]) -> dict[Hashable, object]:
    """What was saved, as it is read from bytes."""
    return {
        CODEC.decode_key(CODEC.encode_key(key)): CODEC.decode(CODEC.encode(value))
        for key, value in saved.items()
    }


class Doubling(VirtualNetwork):
    """A network that now and then delivers a message twice."""

    def __init__(
        self, links: Mapping[tuple[str, str], Link], rng: np.random.Generator, share: float
    ) -> None:
        super().__init__(links, rng)
        self._share = share

    def arrivals(self, sender: str, to: str, now: float) -> Iterator[tuple[str, float | None]]:
        for receiver, time in super().arrivals(sender, to, now):
            yield receiver, time
            if time is not None and self._rng.random() < self._share:
                yield receiver, time + float(self._rng.uniform(0, 1))


@dataclass
class BadWorld(World):
    """A world in which brokers are durable, for they have to be."""

    loss: float = 0.0
    reorders: bool = False
    save_pause: float = inf  # until what a neighbour has said is saved
    lives: dict[str, int] = field(default_factory=dict)
    down: set[str] = field(default_factory=set)
    cuts: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.topology = Topology(self.delays)
        links = {
            pair: Link(delay, jitter=delay, loss=self.loss, reorders=self.reorders)
            for (a, b), delay in self.delays.items()
            for pair in ((a, b), (b, a))
        }
        share = 0.1 if self.reorders else 0.0
        self.simulation = Simulation(Doubling(links, self.rng, share))
        self.machines: dict[str, DurableBroker] = {}
        self.brokers = {}
        self._events = 0
        for name in self.topology.brokers:
            self.start(name)

    def start(self, name: str) -> None:
        """A broker begins a life with what it saved."""
        self.lives[name] = self.lives.get(name, 0) + 1
        recovery = Recovery(self.lives[name], read_again(self.simulation.saved[name]))
        neighbours = self.topology.neighbours(name)
        machine = self.machines[name] = DurableBroker(
            name,
            neighbours,
            SCHEMA,
            self.policy,
            recovery=recovery,
            timing=TIMING,
            save_pause=self.save_pause,
        )
        self.brokers[name] = machine.core
        self.down.discard(name)
        self.simulation.add(name, Watched(machine, self.watch))
        self.simulation.post(self.simulation.clock.now, name, StartBroker(), sender=name)

    def crash(self, name: str) -> None:
        """A broker loses all but what it saved."""
        self.simulation.crash(name)
        self.down.add(name)

    def snap(self, name: str) -> None:
        """Save what can be saved late, as a broker does now and then."""
        for save in self.machines[name].save_rest():
            if save.value is None:
                self.simulation.saved[name].pop(save.key, None)
            else:
                self.simulation.saved[name][save.key] = save.value

    def cut(self, name: str) -> None:
        """Part a broker and all behind it from the rest."""
        self.simulation.network.cut(name, [name])
        self.cuts.add(name)

    def heal(self, name: str) -> None:
        self.simulation.network.heal(name)
        self.cuts.discard(name)

    def settle(self) -> bool:
        """Note it if nothing is under way anywhere."""
        if self.down or self.cuts or not all(each.idle for each in self.machines.values()):
            return False
        self.watch.quiet(self.simulation.clock.now)
        return True

    def mend(self, most: float = 3_000.0) -> None:
        """Let all come back, and go on until nothing is under way and nothing can wait."""
        for name in sorted(self.cuts):
            self.heal(name)
        for name in sorted(self.down):
            self.start(name)
        end = self.simulation.clock.now + most
        while self.simulation.clock.now < end:
            self.run(5.0)
            loose = any(
                link.loose for each in self.brokers.values() for link in each.links.values()
            )
            if self.settle() and not loose:
                return
        raise AssertionError("the network does not come to rest")

    def late_problems(self) -> Iterator[str]:
        """What is saved other than it is, once all that can be saved late is."""
        for name, machine in self.machines.items():
            self.snap(name)
            heard = read_heard(self.simulation.saved[name])
            for neighbour in machine.connections:
                known = machine.core.collect_received(neighbour)
                if heard.get(neighbour, Known({}, {})) != known:
                    yield f"{name} saved {heard.get(neighbour)} of {neighbour}, not {known}"
            rows = self.simulation.saved[name].items()
            saved = {key[1]: value for key, value in rows if key[0] == "history"}  # type: ignore[index]
            history = machine.core.history
            windows = {} if history is None else {n: tuple(w) for n, w in history._seen.items()}
            if saved != windows:
                yield f"{name} saved the history {saved}, not {windows}"
