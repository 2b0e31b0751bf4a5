"""Networks of content brokers for tests, in a simulation that notes who was asked what."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from distributary.content import (
    POLICIES,
    Broker,
    ContentEvent,
    LinkSearch,
    PublishEvent,
    SubscribeRequest,
    UnsubscribeRequest,
)
from distributary.machines import Action
from distributary.machines.virtual import Simulation, VirtualNetwork
from distributary.model import Filter, Key, Topology


class Scan:
    """A matcher that tries one filter after the other."""

    def __init__(self, n_links: int) -> None:
        self.n_links = n_links
        self.steps = 0
        self._filters: dict[int, tuple[Filter, int]] = {}
        self._next = 0

    def add(self, filter: Filter, link: int) -> int:
        assert 0 <= link < self.n_links
        self._next += 1
        self._filters[self._next] = filter, link
        return self._next

    def remove(self, handle: int) -> None:
        del self._filters[handle]

    def links(self, keys: Sequence[Key | None], mask: int) -> int:
        found = 0
        for filter, link in self._filters.values():
            if mask >> link & 1:
                self.steps += 1
                found |= filter.matches(keys) << link
        return found


@dataclass(slots=True)
class Watched:
    """A machine, and every message that it took in."""

    machine: Broker
    taken: list[object] = field(default_factory=list)

    def on_message(self, sender: str, message: object, now: float) -> Iterable[Action]:
        self.taken.append(message)
        return self.machine.on_message(sender, message, now)

    def on_timer(self, name: str, now: float) -> Iterable[Action]:
        return self.machine.on_timer(name, now)


class Brokers:
    """A running network of brokers under one policy."""

    def __init__(
        self,
        topology: Topology,
        policy: str,
        roots: Iterable[str] | None = None,
        matcher: Callable[[int], LinkSearch] = Scan,
    ) -> None:
        self.topology = topology
        self.simulation = Simulation(VirtualNetwork.of(topology, np.random.default_rng(0)))
        self.machines = {}
        for name in topology.brokers:
            chosen = POLICIES[policy](name, topology, roots)
            self.machines[name] = Watched(Broker(name, topology, chosen, matcher))
            self.simulation.add(name, self.machines[name])

    def say(self, client: str, message: object) -> None:
        """Let a client tell its broker something, now."""
        simulation = self.simulation
        home = self.topology.clients[client]
        simulation.post(simulation.clock.now, home, message, sender=client)

    def settle(self) -> None:
        """Run until nothing is on its way any more."""
        self.simulation.run(max_events=100_000)

    def subscribe(self, client: str, number: int, filter: Filter) -> None:
        self.say(client, SubscribeRequest(client, number, filter))
        self.settle()

    def unsubscribe(self, client: str, number: int) -> None:
        self.say(client, UnsubscribeRequest(client, number))
        self.settle()

    def publish(
        self, at: str, number: int, keys: tuple[Key | None, ...]
    ) -> tuple[list[str], list[str]]:
        """Publish at a broker: the clients that got the event, the brokers that took it in."""
        for machine in self.machines.values():
            machine.taken.clear()
        delivered = self.simulation.record.delivered
        delivered.clear()
        now = self.simulation.clock.now
        self.simulation.post(
            now, at, PublishEvent(ContentEvent(number, keys, now)), sender="publisher"
        )
        self.settle()
        visited = [name for name, found in self.machines.items() for _ in found.taken]
        return sorted(found[2] for found in delivered), visited
