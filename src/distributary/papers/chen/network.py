"""The experiment of section V: many subscriptions, some of which end while events are published.

All subscriptions are issued before publications begin. After a while some roots unsubscribe within
150 s; 600 s later 300 of the publications are probes, wanted at as many edge brokers as possible.

The paper measured a program on real machines. Here each message costs a broker a fixed time plus a
time for each box in its table, under every policy: a publication is matched, a statement compared.
The paper's brokers behaved like that: during congestion they handled 3.3 messages a second. The
fullest core brokers here handle 4 to 5 after active covering's burst.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

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
from distributary.machines.virtual import Simulation, VirtualNetwork
from distributary.model import FloatArray
from distributary.papers.chen.pricing import SECONDS_PER_BOX, add_broker
from distributary.papers.queue_trace import QueueTrace
from distributary.workloads.workflows import (
    Workflows,
    WorkflowsParams,
    range_filter,
    source_edges,
    workflow_topology,
    workflows,
)

__all__ = ["CORE", "PROBES", "CongestionCase", "CongestionOutcome", "run_congestion_case"]

CORE = "ABCDE"
SUBSCRIBE_EVERY, PUBLISH_EVERY = 1.5, 0.4
UNSUBSCRIBE_WITHIN, PROBE_AFTER, PROBES = 150.0, 600.0, 300
# The simulated time allowed for deliveries after the last event is published.
LONGEST = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class CongestionCase:
    """One run.

    With a `scale` below 1 there should be proportionally less of everything but time: each box
    costs more in proportion, and statements are rarer and cost more again, so that brokers are as
    busy.
    """

    policy: Covering
    workflows: WorkflowsParams = field(default_factory=WorkflowsParams)
    unsubscriptions: int = 300
    publications: int = 21_000
    before: int = 9_000  # publications before the first unsubscription
    probe_after: float = PROBE_AFTER  # seconds from the last unsubscription to the first probe
    scale: float = 1.0
    seed: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class CongestionOutcome:
    """Measurements from the first unsubscription on; counts are by broker.

    `delays` are those of the probes, one for each client that wanted one; `settled` is the mean
    delay of the last tenth of all publications. `before` and `tables` are the boxes in the brokers'
    tables at the first unsubscription and at the end. `loose` is the number of subscriptions left
    at the end that let more through than is needed, `messages` the number handled in the whole run.
    """

    delays: FloatArray
    settled: float
    queues: Mapping[str, QueueTrace]
    before: Mapping[str, int]
    tables: Mapping[str, int]
    triggered: Mapping[str, int]
    publications: Mapping[str, int]
    unwanted: Mapping[str, int]
    loose: int
    messages: int

    def false_positives(self, brokers: Sequence[str] | None = None) -> float:
        """The share of publications from other brokers that nobody needed at the receiving one."""
        among = self.publications if brokers is None else brokers
        carried = sum(self.publications.get(each, 0) for each in among)
        return sum(self.unwanted.get(each, 0) for each in among) / carried if carried else 0.0

    def core_table(self) -> float:
        """The mean size of the core brokers' tables."""
        return float(np.mean([self.tables[broker] for broker in CORE]))

    def core_queue(self) -> int:
        """The longest queue of a core broker."""
        return max(self.queues[broker].longest for broker in CORE)


def run_congestion_case(case: CongestionCase) -> CongestionOutcome:
    """Run one case from the first subscription to the last delivery."""
    rng = np.random.default_rng([case.seed, 7])
    load = workflows(case.workflows, rng)
    brokers, simulation = _start(case, load, rng)
    begins = _subscribe_all(simulation, load, SUBSCRIBE_EVERY / case.scale)
    ends_at = begins + PUBLISH_EVERY * case.before
    probes = _publish_events(case, simulation, load, begins, rng)
    _schedule_unsubscriptions(case, simulation, load, ends_at, rng)
    messages = simulation.run(until=ends_at - 1e-3)
    units, sizes = Counter(simulation.record.units), _sizes(brokers)
    simulation.record.waiting.clear()
    simulation.record.delivered.clear()
    last = begins + PUBLISH_EVERY * case.publications
    messages += simulation.run(until=last + LONGEST)
    units = Counter(simulation.record.units) - units
    return CongestionOutcome(
        delays=_delays(simulation, probes),
        settled=float(_delays(simulation, _last(case)).mean()),
        queues=_queues(simulation, ends_at),
        before=sizes,
        tables=_sizes(brokers),
        triggered=_of_kind(units, "triggered"),
        publications=_of_kind(units, "publication"),
        unwanted=_of_kind(units, "unwanted"),
        loose=sum(len(link.loose) for each in brokers.values() for link in each.links.values()),
        messages=messages,
    )


# --- the parts of a run ---------------------------------------------------------------------------


def _start(
    case: CongestionCase, load: Workflows, rng: np.random.Generator
) -> tuple[dict[str, ContentBroker], Simulation]:
    """The brokers, and one publisher with its advertisement for each workflow."""
    topology = workflow_topology()
    simulation = Simulation(VirtualNetwork.of(topology, rng))
    per_box = SECONDS_PER_BOX / case.scale
    brokers = {}
    for name in topology.brokers:
        brokers[name] = ContentBroker(name, topology.neighbours(name), load.schema, case.policy)
        add_broker(simulation, brokers[name], match=per_box, compare=per_box / case.scale)
    for number in range(case.workflows.workflows):
        client, broker = _publisher(number)
        advertise = AdvertiseRequest(client, number, range_filter(load.schema, number, [], []))
        simulation.post(0.0, broker, advertise, sender=client)
    return brokers, simulation


def _publisher(workflow: int) -> tuple[str, str]:
    sources = source_edges()
    return f"publisher-{workflow}", sources[workflow % len(sources)]


def _subscribe_all(simulation: Simulation, load: Workflows, every: float) -> float:
    """Issue all subscriptions; returns the time when publications may begin."""
    for turn, (client, broker, filter) in enumerate(load.subscriptions, 1):
        simulation.post(every * turn, broker, SubscribeRequest(client, 0, filter), sender=client)
    return every * (len(load.subscriptions) + 1) + 60.0


def _publish_events(
    case: CongestionCase,
    simulation: Simulation,
    load: Workflows,
    begins: float,
    rng: np.random.Generator,
) -> frozenset[int]:
    """Publish events at a steady rate; returns the numbers of the probes."""
    events = load.events(case.publications, rng)
    first = case.before + round((UNSUBSCRIBE_WITHIN + case.probe_after) / PUBLISH_EVERY)
    numbers = range(first, min(first + PROBES, case.publications))
    for number, keys in zip(numbers, load.probes(len(numbers), rng), strict=True):
        events[number] = keys
    for number, keys in enumerate(events):
        at = begins + PUBLISH_EVERY * number
        workflow = int(str(keys[0]).rpartition("-")[2]) - 1
        client, broker = _publisher(workflow)
        message = PublishUnder(client, workflow, ContentEvent(number, keys, at))
        simulation.post(at, broker, message, sender=client)
    return frozenset(numbers)


def _schedule_unsubscriptions(
    case: CongestionCase,
    simulation: Simulation,
    load: Workflows,
    begins: float,
    rng: np.random.Generator,
) -> None:
    """Let some roots unsubscribe, evenly spread over the time for all."""
    gone = rng.permutation(np.array(load.roots))[: case.unsubscriptions].tolist()
    for at, root in enumerate(gone):
        client, broker, _ = load.subscriptions[root]
        time = begins + UNSUBSCRIBE_WITHIN * at / len(gone)
        simulation.post(time, broker, UnsubscribeRequest(client, 0), sender=client)


# --- results --------------------------------------------------------------------------------------


def _sizes(brokers: Mapping[str, ContentBroker]) -> dict[str, int]:
    return {name: broker.subscriptions.boxes for name, broker in brokers.items()}


def _of_kind(units: Mapping[tuple[str, str], float], kind: str) -> dict[str, int]:
    return {broker: round(n) for (broker, of), n in units.items() if of == kind}


def _last(case: CongestionCase) -> frozenset[int]:
    return frozenset(range(case.publications - case.publications // 10, case.publications))


def _delays(simulation: Simulation, numbers: frozenset[int]) -> FloatArray:
    found = [
        delay
        for _, _, _, delay, message in simulation.record.delivered
        if isinstance(message, Publication) and message.event.number in numbers
    ]
    return np.array(found, np.float64)


def _queues(simulation: Simulation, begins: float) -> dict[str, QueueTrace]:
    seen: dict[str, list[tuple[float, int]]] = {broker: [] for broker in CORE}
    for time, broker, waiting in simulation.record.waiting:
        if broker in seen:
            seen[broker].append((time - begins, waiting))
    return {
        broker: QueueTrace(
            np.array([time for time, _ in found], np.float64),
            np.array([waiting for _, waiting in found], np.int64),
        )
        for broker, found in seen.items()
    }
