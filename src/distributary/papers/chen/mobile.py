"""The experiment of section V-F: monitors that want everything move, and others may too.

A move is, in the paper's words, an unsubscription and a subscription at another broker. In that
order nothing covers what the monitor had hidden, and it all surfaces while the monitor is in
transit. With `overlap` the client subscribes first and only then leaves its old broker.

Prices are those of the other experiment, scaled to fewer subscriptions: each box costs as much more
as 5,000 are fewer than 30,000. The transit time was chosen so that active covering congests as in
the paper: after one second, the new subscription would still overtake the burst set off by the end
of the old one, and hide it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from distributary.content import (
    AdvertiseRequest,
    ContentBroker,
    Covering,
    PublishUnder,
    SubscribeRequest,
    UnsubscribeRequest,
)
from distributary.content.events import ContentEvent
from distributary.machines.virtual import Simulation, VirtualNetwork
from distributary.model import Box, Filter, FloatArray
from distributary.papers.chen.pricing import SECONDS_PER_BOX, price_broker
from distributary.papers.chen.shared_matching import NetworkMatcher, SharingBroker
from distributary.papers.chen.witness import Witness, WitnessedBroker
from distributary.papers.queue_trace import QueueTrace
from distributary.workloads.roaming import Roaming, RoamingParams, roaming, tier_of
from distributary.workloads.workflows import WorkflowsParams

__all__ = [
    "DEARER",
    "PUBLISH_EVERY",
    "TIERS",
    "UNDER_WAY",
    "MobileCase",
    "MobileOutcome",
    "run_mobile_case",
]

TIERS = 4
UNDER_WAY = 30.0  # seconds between the two halves of a move
SUBSCRIBE_EVERY, PUBLISH_EVERY = 1.5, 2.0
DEARER = WorkflowsParams().subscriptions / RoamingParams().subscribers
SAMPLED = 60.0  # seconds between samples of the tables


@dataclass(frozen=True, slots=True)
class MobileCase:
    """One run; `scale` is that of `network.CongestionCase`."""

    policy: Covering
    roaming: RoamingParams = field(default_factory=RoamingParams)
    overlap: bool = False
    per_box: float = SECONDS_PER_BOX
    scale: float = 1.0
    seed: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class MobileOutcome:
    """Measurements from the start of the moves to their end, by tier with the core first.

    `tables` is the mean number of boxes in a broker's table at each of `times`, and `transit` that
    of those which came from other brokers; `queue` is the core's. Counts of publications are means
    over the brokers of a tier: `unneeded` and `dead_ends` as in `network.CongestionOutcome`.
    """

    queue: QueueTrace
    times: FloatArray
    tables: FloatArray
    transit: FloatArray
    publications: tuple[float, ...]
    unneeded: tuple[float, ...]
    dead_ends: tuple[float, ...]
    triggered: int
    waiting: int
    loose: int

    def share_of(self, counts: tuple[float, ...]) -> float:
        """The share of some publications, counted by tier, in all."""
        carried, found = (
            sum(size * n for size, n in zip(_SIZES, each, strict=True))
            for each in (self.publications, counts)
        )
        return found / carried if carried else 0.0


_SIZES = (1, 4, 12, 36)


def run_mobile_case(case: MobileCase) -> MobileOutcome:
    """Run one case from the first subscription to the end of the moves."""
    rng = np.random.default_rng([case.seed, 8])
    load = roaming(case.roaming, rng)
    brokers, simulation = _start(case, load, rng)
    begins = _subscribe_all(simulation, load, SUBSCRIBE_EVERY / case.scale)
    _publish_events(simulation, load, begins, rng)
    _schedule_moves(case, simulation, load, begins)
    simulation.run(until=begins)
    before = Counter(simulation.record.units)
    simulation.record.waiting.clear()
    times = np.arange(0.0, case.roaming.duration + SAMPLED / 2, SAMPLED)
    tables, transit = [], []
    for time in times.tolist():
        simulation.run(until=begins + time)
        tables.append(np.mean([broker.subscriptions.boxes for broker in brokers.values()]))
        transit.append(np.mean([_count_transit(broker) for broker in brokers.values()]))
    units = Counter(simulation.record.units) - before
    queue = _queue(simulation, begins)
    return MobileOutcome(
        queue=queue,
        times=times,
        tables=np.array(tables, np.float64),
        transit=np.array(transit, np.float64),
        publications=_by_tier(units, "publication"),
        unneeded=_by_tier(units, "unneeded"),
        dead_ends=_by_tier(units, "unwanted"),
        triggered=round(units["core", "triggered"]),
        waiting=int(queue.at(times[-1:])[0]),
        loose=sum(len(link.loose) for each in brokers.values() for link in each.links.values()),
    )


def _start(
    case: MobileCase, load: Roaming, rng: np.random.Generator
) -> tuple[Mapping[str, ContentBroker], Simulation]:
    """The brokers, and publishers that may publish anything."""
    topology = load.topology
    simulation = Simulation(VirtualNetwork.of(topology, rng))
    per_box = case.per_box * DEARER / case.scale
    service = price_broker(match=per_box, compare=per_box / case.scale)
    witness = Witness(topology, (*load.monitors, *load.subscriptions))
    matcher = NetworkMatcher(load.schema)
    brokers = {
        name: SharingBroker(name, topology.neighbours(name), load.schema, case.policy, matcher)
        for name in topology.brokers
    }
    for each in brokers.values():
        simulation.add(each.name, WitnessedBroker(each, witness), service=service)
    everything = Filter(load.schema, (Box(()),))
    for client, broker in load.publishers:
        simulation.post(0.0, broker, AdvertiseRequest(client, 0, everything), sender=client)
    return brokers, simulation


def _subscribe_all(simulation: Simulation, load: Roaming, every: float) -> float:
    """Subscribe monitors first, so that nothing else travels far; returns the time it ends."""
    clients = (*load.monitors, *load.subscriptions)
    for turn, (client, broker, filter) in enumerate(clients, 1):
        simulation.post(every * turn, broker, SubscribeRequest(client, 0, filter), sender=client)
    return every * (len(clients) + 1) + 60.0


def _publish_events(
    simulation: Simulation, load: Roaming, begins: float, rng: np.random.Generator
) -> None:
    """Publish events at a steady rate, each by a random publisher."""
    events = load.events(int(load.params.duration / PUBLISH_EVERY), rng)
    who = rng.integers(len(load.publishers), size=len(events)).tolist()
    for number, (keys, at) in enumerate(zip(events, who, strict=True)):
        client, broker = load.publishers[at]
        time = begins + PUBLISH_EVERY * number
        message = PublishUnder(client, 0, ContentEvent(number, keys, time))
        simulation.post(time, broker, message, sender=client)


def _schedule_moves(case: MobileCase, simulation: Simulation, load: Roaming, begins: float) -> None:
    """Schedule each move as two halves, in the order that the case demands."""
    clients = (*load.monitors, *load.subscriptions)
    here = {client: broker for client, broker, _ in clients}
    wants = {client: filter for client, _, filter in clients}
    since = dict.fromkeys(here, 0.0)
    for at, client, broker in load.moves:
        sets_out = max(at, since[client])
        comes, leaves = sets_out, sets_out + UNDER_WAY
        if not case.overlap:
            comes, leaves = leaves, comes
        unsubscribe, subscribe = (
            UnsubscribeRequest(client, 0),
            SubscribeRequest(client, 0, wants[client]),
        )
        simulation.post(begins + leaves, here[client], unsubscribe, sender=client)
        simulation.post(begins + comes, broker, subscribe, sender=client)
        here[client], since[client] = broker, sets_out + UNDER_WAY


# --- results --------------------------------------------------------------------------------------


def _count_transit(broker: ContentBroker) -> int:
    """The boxes in a broker's table that came from other brokers."""
    return sum(len(filter.boxes) for _, filter, hop in broker.subscriptions if hop in broker.links)


def _by_tier(units: Mapping[tuple[str, str], float], kind: str) -> tuple[float, ...]:
    found = [0.0] * TIERS
    for (broker, of), n in units.items():
        if of == kind:
            found[tier_of(broker)] += n
    return tuple(n / size for n, size in zip(found, _SIZES, strict=True))


def _queue(simulation: Simulation, begins: float) -> QueueTrace:
    seen = [(time - begins, n) for time, node, n in simulation.record.waiting if node == "core"]
    times, lengths = zip(*seen, strict=True) if seen else ((), ())
    return QueueTrace(np.array(times, np.float64), np.array(lengths, np.int64))
