"""Machines over a network in virtual time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from functools import partial
from typing import Any

from distributary.protocol import Machine
from distributary.simulation.clock import Clock
from distributary.simulation.network import Network
from distributary.simulation.node import Node, Service, priced
from distributary.simulation.record import Record

__all__ = ["Simulation"]

_AT_ONCE = priced()


class Simulation:
    """Nodes, the network between them, and a record of what happens; same seed, same run.

    Everything moves by `clock`: run it to run the simulation, and schedule faults there. What a
    node saves is in `saved` under its name, also after a crash.
    """

    def __init__(self, network: Network) -> None:
        self.network = network
        self.clock = Clock()
        self.record = Record()
        self.saved: defaultdict[str, dict[Hashable, object]] = defaultdict(dict)
        self._nodes: dict[str, Node] = {}

    def add(
        self,
        name: str,
        machine: Machine,
        *,
        service: Service = _AT_ONCE,
        capacity: float = float("inf"),
    ) -> None:
        """Start a node; it drops messages that come while `capacity` inputs wait already."""
        if name in self._nodes:
            raise ValueError(f"there is a node {name!r} already")
        self._nodes[name] = Node(
            name,
            machine,
            service,
            capacity,
            self.clock,
            self.record,
            self._send,
            self.saved[name],
        )

    def crash(self, name: str) -> None:
        """End a node: what it was busy with, its queue and its timers are gone."""
        self._nodes.pop(name).alive = False

    def post(self, time: float, to: str, message: Any, *, sender: str) -> None:
        """Let a message from outside, such as a client's, arrive at a node."""
        self.clock.at(time, partial(self._arrive, sender, to, message))

    def run(self, *, until: float = float("inf"), max_events: float = float("inf")) -> int:
        """Go on up to a time, for so many events or to the end; how many events there were."""
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
