"""Simulates a network of content brokers under a covering policy.

All clients subscribe, events are published at a steady rate, and at one moment some subscriptions
end. The outcome shows what distinguishes the policies: the burst, the queues, the tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from distributary.content import (
    AdvertiseRequest,
    ContentBroker,
    Covering,
    Publication,
    PublishUnder,
    SubscribeRequest,
    UnsubscribeRequest,
)
from distributary.content.events import ContentEvent
from distributary.machines.virtual.engine import Simulation
from distributary.machines.virtual.network import VirtualNetwork
from distributary.machines.virtual.node import price_work
from distributary.model import Filter, Key, Schema, Topology

__all__ = [
    "DEFAULT_PRICES",
    "BrokerPrices",
    "Ending",
    "RehearsalEvent",
    "RehearsalOutcome",
    "RehearsalSubscription",
    "RehearsalWorkload",
    "check_acyclic",
    "rehearse",
]

# The simulated time allowed for deliveries after the last event is published.
LONGEST_DRAIN = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class RehearsalSubscription:
    """A client, its broker, and its filter."""

    client: str
    broker: str
    filter: Filter


@dataclass(frozen=True, slots=True)
class RehearsalEvent:
    """An event, as keys of the schema, and the broker where it is published."""

    broker: str
    keys: tuple[Key | None, ...]


@dataclass(frozen=True, slots=True)
class Ending:
    """Which subscriptions end, by index, after what share of the events, and within what time."""

    subscriptions: Sequence[int] = ()
    after: float = 0.5
    within: float = 10.0


NOTHING_ENDS = Ending()


@dataclass(frozen=True, slots=True)
class RehearsalWorkload:
    """A network, its subscriptions, and events published at `rate` per second."""

    topology: Topology
    schema: Schema
    subscriptions: Sequence[RehearsalSubscription]
    events: Sequence[RehearsalEvent]
    rate: float
    ending: Ending = NOTHING_ENDS


@dataclass(frozen=True, slots=True)
class BrokerPrices:
    """The seconds that a broker spends on a message, plus those for each box of its table."""

    per_message: float = 50e-6
    per_box: float = 0.2e-6


DEFAULT_PRICES = BrokerPrices()


@dataclass(frozen=True, slots=True)
class RehearsalOutcome:
    """The effects of a policy. Delays are in seconds; tables in boxes, largest and total.

    `longest_queue` and the delays are measured from the first ending on; `statements` counts all
    messages about subscriptions, `triggered` those caused by an ending. `unwanted` is the share of
    publications on links that nobody behind the link wanted.
    """

    policy: str
    deliveries: int
    mean_delay: float
    p90_delay: float
    longest_queue: int
    fullest_table: int
    all_tables: int
    statements: int
    triggered: int
    unwanted: float


def check_acyclic(topology: Topology) -> None:
    """Raise `ValueError` if the overlay has a cycle, since content brokers assume unique paths."""
    if len(topology.delays) != len(topology.brokers) - 1:
        raise ValueError(
            f"{len(topology.brokers)} brokers with {len(topology.delays)} links have a cycle; "
            f"an overlay without one has {len(topology.brokers) - 1} links"
        )


def rehearse(
    workload: RehearsalWorkload,
    policy: Covering,
    *,
    prices: BrokerPrices = DEFAULT_PRICES,
    seed: int = 0,
) -> RehearsalOutcome:
    """Simulate one policy from the first subscription to the last delivery."""
    topology, schema = workload.topology, workload.schema
    check_acyclic(topology)
    simulation = Simulation(VirtualNetwork.of(topology, np.random.default_rng(seed)))
    service = price_work(prices.per_message, compare=prices.per_box, match=prices.per_box)
    brokers = {
        name: ContentBroker(name, topology.neighbours(name), schema, policy)
        for name in topology.brokers
    }
    for name, broker in brokers.items():
        simulation.add(name, broker, service=service)
    everything = Filter.everything(schema)
    for source in sorted({event.broker for event in workload.events}):
        client = f"publisher at {source}"
        simulation.post(0.0, source, AdvertiseRequest(client, 0, everything), sender=client)
    simulation.run()
    for number, each in enumerate(workload.subscriptions):
        message = SubscribeRequest(each.client, number, each.filter)
        simulation.post(simulation.clock.now, each.broker, message, sender=each.client)
    simulation.run()
    ends = _publish_and_end(simulation, workload)
    return _summarise(simulation, brokers, policy.name, ends)


def _publish_and_end(simulation: Simulation, workload: RehearsalWorkload) -> float:
    """Publish all events and end subscriptions; returns the time of the first ending."""
    events, rate, ending = workload.events, workload.rate, workload.ending
    begins = simulation.clock.now
    for number, event in enumerate(events):
        time, client = begins + number / rate, f"publisher at {event.broker}"
        message = PublishUnder(client, 0, ContentEvent(number, event.keys, time))
        simulation.post(time, event.broker, message, sender=client)
    ends = begins + ending.after * len(events) / rate
    for at, number in enumerate(ending.subscriptions):
        each = workload.subscriptions[number]
        time = ends + ending.within * at / len(ending.subscriptions)
        gone = UnsubscribeRequest(each.client, number)
        simulation.post(time, each.broker, gone, sender=each.client)
    simulation.run(until=begins + len(events) / rate + LONGEST_DRAIN)
    return ends


def _summarise(
    simulation: Simulation, brokers: dict[str, ContentBroker], policy: str, ends: float
) -> RehearsalOutcome:
    record = simulation.record
    handed = [found for found in record.delivered if isinstance(found[4], Publication)]
    delays = [delay for time, _, _, delay, _ in handed if time - delay >= ends]
    sizes = [broker.subscriptions.boxes for broker in brokers.values()]
    done = {
        kind: sum(n for (_, of), n in record.units.items() if of == kind)
        for kind in ("statement", "triggered", "publication", "unwanted")
    }
    return RehearsalOutcome(
        policy=policy,
        deliveries=len(handed),
        mean_delay=float(np.mean(delays)) if delays else 0.0,
        p90_delay=float(np.percentile(delays, 90)) if delays else 0.0,
        longest_queue=max((n for time, _, n in record.waiting if time >= ends), default=0),
        fullest_table=max(sizes),
        all_tables=sum(sizes),
        statements=round(done["statement"]),
        triggered=round(done["triggered"]),
        unwanted=done["unwanted"] / done["publication"] if done["publication"] else 0.0,
    )
