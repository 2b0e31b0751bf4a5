"""A network of content brokers tried out: what would each covering policy do to it?

Everybody subscribes, events are published at a steady rate, and at one moment some subscriptions
end. What follows is what a change of policy is about: the burst, the queues, the tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from distributary.model import Filter, Key, Schema, Topology
from distributary.protocol import Subscribe, Unsubscribe
from distributary.protocol.content import (
    Advertise,
    ContentBroker,
    Covering,
    Publication,
    PublishUnder,
)
from distributary.protocol.messages import ContentEvent
from distributary.simulation.engine import Simulation
from distributary.simulation.network import Network
from distributary.simulation.node import priced

__all__ = [
    "DEFAULT_PRICES",
    "Ending",
    "Outcome",
    "Prices",
    "Published",
    "Wish",
    "check_acyclic",
    "rehearse",
]

# What is under way when the last event is published has this long to come to an end.
LONGEST = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Wish:
    """A client, its broker, and what it wants."""

    client: str
    broker: str
    filter: Filter


@dataclass(frozen=True, slots=True)
class Published:
    """An event, as the schema's keys of it, and the broker where it is published."""

    broker: str
    keys: tuple[Key | None, ...]


@dataclass(frozen=True, slots=True)
class Ending:
    """Which wishes end, by number, after what share of the events, within how many seconds."""

    wishes: Sequence[int] = ()
    after: float = 0.5
    within: float = 10.0


NOTHING_ENDS = Ending()


@dataclass(frozen=True, slots=True)
class Prices:
    """Seconds that a message costs a broker, and each box of its table on top of that."""

    per_message: float = 50e-6
    per_box: float = 0.2e-6


DEFAULT_PRICES = Prices()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a policy did. Delays in seconds; tables in boxes, of the fullest broker and of all.

    `longest_queue` and the delays are from the moment on at which wishes began to end;
    `statements` are all messages about subscriptions, `triggered` those that an ending caused.
    `unwanted` is the share of publications on links that nobody behind the link wanted.
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
    """Content brokers route along the one path there is: `ValueError` if there are several."""
    if len(topology.delays) != len(topology.brokers) - 1:
        raise ValueError(
            f"{len(topology.brokers)} brokers with {len(topology.delays)} links have a cycle; "
            f"an overlay without one has {len(topology.brokers) - 1} links"
        )


def rehearse(
    topology: Topology,
    schema: Schema,
    wishes: Sequence[Wish],
    events: Sequence[Published],
    policy: Covering,
    *,
    rate: float,
    ending: Ending = NOTHING_ENDS,
    prices: Prices = DEFAULT_PRICES,
    seed: int = 0,
) -> Outcome:
    """Run one policy from the first subscription to the last delivery."""
    check_acyclic(topology)
    simulation = Simulation(Network.of(topology, np.random.default_rng(seed)))
    service = priced(prices.per_message, compare=prices.per_box, match=prices.per_box)
    brokers = {
        name: ContentBroker(name, topology.neighbours(name), schema, policy)
        for name in topology.brokers
    }
    for name, broker in brokers.items():
        simulation.add(name, broker, service=service)
    everything = Filter.everything(schema)
    for source in sorted({event.broker for event in events}):
        client = f"publisher at {source}"
        simulation.post(0.0, source, Advertise(client, 0, everything), sender=client)
    simulation.run()
    for number, wish in enumerate(wishes):
        message = Subscribe(wish.client, number, wish.filter)
        simulation.post(simulation.clock.now, wish.broker, message, sender=wish.client)
    simulation.run()
    return _published(simulation, brokers, wishes, events, policy.name, rate, ending)


def _published(
    simulation: Simulation,
    brokers: dict[str, ContentBroker],
    wishes: Sequence[Wish],
    events: Sequence[Published],
    policy: str,
    rate: float,
    ending: Ending,
) -> Outcome:
    begins = simulation.clock.now
    for number, event in enumerate(events):
        time, client = begins + number / rate, f"publisher at {event.broker}"
        message = PublishUnder(client, 0, ContentEvent(number, event.keys, time))
        simulation.post(time, event.broker, message, sender=client)
    ends = begins + ending.after * len(events) / rate
    for at, number in enumerate(ending.wishes):
        wish, time = wishes[number], ends + ending.within * at / len(ending.wishes)
        gone = Unsubscribe(wish.client, number)
        simulation.post(time, wish.broker, gone, sender=wish.client)
    simulation.run(until=begins + len(events) / rate + LONGEST)
    return _outcome(simulation, brokers, policy, ends)


def _outcome(
    simulation: Simulation, brokers: dict[str, ContentBroker], policy: str, ends: float
) -> Outcome:
    record = simulation.record
    handed = [found for found in record.delivered if isinstance(found[4], Publication)]
    delays = [delay for time, _, _, delay, _ in handed if time - delay >= ends]
    sizes = [broker.subscriptions.boxes for broker in brokers.values()]
    done = {
        kind: sum(n for (_, of), n in record.units.items() if of == kind)
        for kind in ("statement", "triggered", "publication", "unwanted")
    }
    return Outcome(
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
