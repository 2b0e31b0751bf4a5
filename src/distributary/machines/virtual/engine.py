"""Run machines over a network in virtual time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from functools import partial
from typing import Any

from distributary.machines import Machine
from distributary.machines.virtual.clock import Clock
from distributary.machines.virtual.network import VirtualNetwork
from distributary.machines.virtual.node import Input, Node, Service, price_work
from distributary.machines.virtual.record import SimulationRecord

__all__ = ["Simulation"]

_INSTANT = price_work()


class Simulation:
    """Nodes, the network between them, and a record of the run; same seed, same run.

    `clock` drives everything: run it to run the simulation, and schedule faults on it. `saved`
    holds what each node has saved, by name, and `logs` what it has appended, also after a crash.
    """

    def __init__(self, network: VirtualNetwork) -> None:
        self.network = network
        self.clock = Clock()
        self.record = SimulationRecord()
        self.saved: defaultdict[str, dict[Hashable, object]] = defaultdict(dict)
        self.logs: defaultdict[str, list[bytes]] = defaultdict(list)
        self._nodes: dict[str, Node] = {}

    def add(
        self,
        name: str,
        machine: Machine,
        *,
        service: Service = _INSTANT,
        capacity: float = float("inf"),
    ) -> None:
        """Start a node; it drops messages that arrive while `capacity` inputs are waiting."""
        if name in self._nodes:
            raise ValueError(f"there is already a node {name!r}")
        self._nodes[name] = Node(
            name,
            machine,
            service,
            capacity,
            self.clock,
            self.record,
            self._send,
            self.saved[name],
            self.logs[name],
        )

    def crash(self, name: str) -> None:
        """Crash a node: its current work, its queue and its timers are lost."""
        self._nodes.pop(name).alive = False

    def post(self, time: float, to: str, message: Any, *, sender: str) -> None:
        """Deliver a message from outside, such as a client's, to a node at a time."""
        self.clock.at(time, partial(self._arrive, sender, to, message))

    def call(self, name: str, given: Input) -> None:
        """Call a node's machine with an input of the host now, such as `machine.start`."""
        self._nodes[name].call(given)

    def run(self, *, until: float = float("inf"), max_events: float = float("inf")) -> int:
        """Run up to a time, a number of events, or the end; returns the number of events."""
        return self.clock.run(until=until, max_events=max_events)

    def _send(self, sender: str, to: str, message: Any) -> None:
        for receiver, time in self.network.arrivals(sender, to, self.clock.now):
            if time is None:
                self.record.messages[sender, receiver, "lost"] += 1
            else:
                self.clock.at(time, partial(self._arrive, sender, receiver, message))

    def _arrive(self, sender: str, to: str, message: Any) -> None:
        node = self._nodes.get(to)
        accepted = node is not None and node.receive(sender, message)
        self.record.messages[sender, to, "arrived" if accepted else "dropped"] += 1
