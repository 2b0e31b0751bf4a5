"""Finds the publish rate at which the simulated brokers overload.

The paper's brokers spend time on each event, but it does not say how much. `COSTS` are assumptions:
receiving a message costs as much as sending one, and both are set so that flooding overloads where
it did for the independent implementation, at 77 events/s from each publisher. The cost of a step
was chosen from several with that implementation's other rates in view, so those do not confirm
ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from distributary.content import Broker, ContentEvent, PublishEvent
from distributary.machines.virtual import Simulation, VirtualNetwork, price_work
from distributary.model import Topology
from distributary.papers.banavar.brokers import Pool, visits
from distributary.workloads import poisson_times

__all__ = [
    "COSTS",
    "COSTS_NOTE",
    "BrokerCosts",
    "BrokerLoad",
    "BrokerSetting",
    "OverloadSearch",
    "busiest",
    "find_limit",
]

_CHECKED_EVERY = 0.25  # simulated seconds
_STRIDE = 1.1  # factor between the rates tried until one overloads and one does not


@dataclass(frozen=True, slots=True)
class BrokerCosts:
    """The time that a broker spends on each kind of work, in seconds."""

    received: float = 0.3e-3
    step: float = 2.0e-6
    sent: float = 0.3e-3


COSTS = BrokerCosts()
COSTS_NOTE = (
    f"The slides give no costs, so these are assumed: a broker spends {1e3 * COSTS.received:g} ms "
    f"on each message that it receives, {1e3 * COSTS.sent:g} ms on each that it sends to a broker "
    f"or client, and {1e6 * COSTS.step:g} µs on each matching step. The first two are assumed to "
    "be equal, and set by the rate at which flooding overloads; the third was chosen from "
    "several after seeing their results."
)


@dataclass(frozen=True, slots=True)
class BrokerLoad:
    """The work of a broker: messages received, matching steps, messages sent."""

    received: float
    steps: float
    sent: float

    def seconds(self, costs: BrokerCosts) -> float:
        """The time that the broker is busy with it."""
        received, sent = costs.received * self.received, costs.sent * self.sent
        return received + costs.step * self.steps + sent


@dataclass(frozen=True, slots=True)
class OverloadSearch:
    """The parameters of a search for the overload limit."""

    seconds: float  # simulated at each rate
    width: float  # of the interval in which the limit is found, events/s
    threshold: int = 80  # messages waiting; the paper's estimate is 80 ± 12


@dataclass(frozen=True, slots=True, eq=False)
class BrokerSetting:
    """Brokers with their subscriptions, and the events to be published."""

    topology: Topology
    brokers: Mapping[str, Broker]
    pool: Pool

    def work(self) -> dict[str, BrokerLoad]:
        """Each broker's mean work when each publisher publishes one event."""
        done = {at: np.zeros(3) for at in self.brokers}
        for root, events in self.pool.events.items():
            for keys in events:
                for visit in visits(self.brokers, root, keys):
                    each = np.array([1, visit.work("match"), visit.work("send")])
                    done[visit.broker] += each / len(events)
        return {at: BrokerLoad(*found.tolist()) for at, found in done.items()}

    def start_simulation(
        self,
        rate: float,
        seconds: float,
        rng: np.random.Generator,
        *,
        capacity: float = float("inf"),
    ) -> Simulation:
        """A simulation in which each publisher publishes `rate` events per second.

        A broker drops what arrives while `capacity` messages wait there.
        """
        simulation = Simulation(VirtualNetwork.of(self.topology, rng))
        service = price_work(COSTS.received, match=COSTS.step, send=COSTS.sent)
        for name, broker in self.brokers.items():
            simulation.add(name, broker, service=service, capacity=capacity)
        for root, events in self.pool.events.items():
            for number, time in enumerate(_times(rate, seconds, rng)):
                event = ContentEvent(number, events[number % len(events)], time)
                simulation.post(time, root, PublishEvent(event), sender="publisher")
        return simulation

    def overloads(self, rate: float, run: OverloadSearch, seed: list[int]) -> bool:
        """Whether more messages than the threshold ever wait at some broker."""
        simulation = self.start_simulation(rate, run.seconds, np.random.default_rng(seed))
        record = simulation.record
        while simulation.clock.now < run.seconds:
            simulation.run(until=simulation.clock.now + _CHECKED_EVERY)
            if any(length > run.threshold for _, _, length in record.waiting):
                return True
            record.waiting.clear()
            record.delivered.clear()
        return False


def busiest(work: Mapping[str, BrokerLoad], costs: BrokerCosts = COSTS) -> tuple[str, float]:
    """The broker with the most work, and the rate per publisher at which it is never idle."""
    busy = {at: load.seconds(costs) for at, load in work.items()}
    first = max(busy, key=lambda at: busy[at])
    return first, 1 / busy[first]


def find_limit(overloads: Callable[[float], bool], guess: float, width: float) -> float:
    """The rate at which overload begins, by bisection: the middle of the final interval."""
    low = high = guess
    if overloads(guess):
        while overloads(low := high / _STRIDE):
            high = low
    else:
        while not overloads(high := low * _STRIDE):
            low = high
    while high - low > width:
        middle = (low + high) / 2
        low, high = (low, middle) if overloads(middle) else (middle, high)
    return (low + high) / 2


def _times(rate: float, seconds: float, rng: np.random.Generator) -> list[float]:
    """The times of a Poisson process; with the same draw, rates only scale them."""
    many = int(rate * seconds + 10 * (rate * seconds) ** 0.5) + 100
    times = poisson_times(1.0, many, rng) / rate
    found: list[float] = times[times < seconds].tolist()
    return found
