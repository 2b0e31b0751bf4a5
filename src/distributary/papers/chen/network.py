"""The experiment of section V: many subscriptions, some of which end while events are published.

Subscriptions are issued first, then publications begin. After a while some roots unsubscribe within
150 s; 600 s later 300 of the publications are probes, wanted at as many edge brokers as there are.

The paper measured a program on real machines; here each message costs a broker a fixed time and a
time for each box in its table, whichever policy: for a publication to be matched, for a statement
to be compared. That is how the paper's brokers behaved: during congestion they handled 3.3 messages
a second. The fullest core brokers here handle 4 to 5 after active covering's burst.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from distributary.model import FloatArray, IntArray
from distributary.papers.chen.pricing import SECONDS_PER_BOX, add_broker
from distributary.protocol import Subscribe, Unsubscribe
from distributary.protocol.content import (
    Advertise,
    ContentBroker,
    Covering,
    Publication,
    PublishUnder,
)
from distributary.protocol.messages import ContentEvent
from distributary.simulation import Simulation, VirtualNetwork
from distributary.workloads.workflows import (
    Workflows,
    WorkflowsParams,
    range_filter,
    source_edges,
    workflow_topology,
    workflows,
)

__all__ = ["CORE", "PROBES", "Case", "Outcome", "Queue", "run_case"]

CORE = "ABCDE"
SUBSCRIBE_EVERY, PUBLISH_EVERY = 1.5, 0.4
UNSUBSCRIBE_WITHIN, PROBE_AFTER, PROBES = 150.0, 600.0, 300
# What is on its way when the last event is published gets this long to arrive.
LONGEST = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Case:
    """One run.

    With a `scale` below 1 there is to be as much less of everything but time: each box is as much
    dearer, and each statement as much rarer and dearer again, so that brokers are as busy.
    """

    policy: Covering
    workflows: WorkflowsParams = field(default_factory=WorkflowsParams)
    unsubscriptions: int = 300
    publications: int = 21_000
    before: int = 9_000  # of them, before the first unsubscription
    probe_after: float = PROBE_AFTER  # seconds from the last unsubscription to the first probe
    scale: float = 1.0
    seed: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Queue:
    """How many messages wait at a broker, from each time on; times from the unsubscriptions on."""

    times: FloatArray
    waiting: IntArray

    def at(self, times: FloatArray) -> IntArray:
        """How many wait at these times."""
        return np.append(0, self.waiting)[np.searchsorted(self.times, times, side="right")]

    @property
    def longest(self) -> int:
        """How many wait at most."""
        return int(self.waiting.max(initial=0))


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What was seen from the first unsubscription on; counts are by broker.

    `delays` are those of the probes, one for each client that wanted one; `settled` is the mean
    delay of the last tenth of all publications. `before` and `tables` are the boxes in the brokers'
    tables at the first unsubscription and at the end. `loose` is how much is left at the end that
    lets more through than is needed, `messages` how many were handled in the whole run.
    """

    delays: FloatArray
    settled: float
    queues: Mapping[str, Queue]
    before: Mapping[str, int]
    tables: Mapping[str, int]
    triggered: Mapping[str, int]
    publications: Mapping[str, int]
    unwanted: Mapping[str, int]
    loose: int
    messages: int

    def false_positives(self, brokers: Sequence[str] | None = None) -> float:
        """The share of publications that came to a broker from another and had no use there."""
        among = self.publications if brokers is None else brokers
        carried = sum(self.publications.get(each, 0) for each in among)
        return sum(self.unwanted.get(each, 0) for each in among) / carried if carried else 0.0

    def core_table(self) -> float:
        """The average size of the core brokers' tables."""
        return float(np.mean([self.tables[broker] for broker in CORE]))

    def core_queue(self) -> int:
        """The longest queue of a core broker."""
        return max(self.queues[broker].longest for broker in CORE)


def run_case(case: Case) -> Outcome:
    """Run one case from the first subscription to the last delivery."""
    rng = np.random.default_rng([case.seed, 7])
    load = workflows(case.workflows, rng)
    brokers, simulation = _started(case, load, rng)
    begins = _subscribed(simulation, load, SUBSCRIBE_EVERY / case.scale)
    ends_at = begins + PUBLISH_EVERY * case.before
    probes = _published(case, simulation, load, begins, rng)
    _unsubscribed(case, simulation, load, ends_at, rng)
    messages = simulation.run(until=ends_at - 1e-3)
    units, sizes = Counter(simulation.record.units), _sizes(brokers)
    simulation.record.waiting.clear()
    simulation.record.delivered.clear()
    last = begins + PUBLISH_EVERY * case.publications
    messages += simulation.run(until=last + LONGEST)
    units = Counter(simulation.record.units) - units
    return Outcome(
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


def _started(
    case: Case, load: Workflows, rng: np.random.Generator
) -> tuple[dict[str, ContentBroker], Simulation]:
    """Brokers, and one publisher with its advertisement for each workflow."""
    topology = workflow_topology()
    simulation = Simulation(VirtualNetwork.of(topology, rng))
    per_box = SECONDS_PER_BOX / case.scale
    brokers = {}
    for name in topology.brokers:
        brokers[name] = ContentBroker(name, topology.neighbours(name), load.schema, case.policy)
        add_broker(simulation, brokers[name], match=per_box, compare=per_box / case.scale)
    for number in range(case.workflows.workflows):
        client, broker = _publisher(number)
        advertise = Advertise(client, number, range_filter(load.schema, number, [], []))
        simulation.post(0.0, broker, advertise, sender=client)
    return brokers, simulation


def _publisher(workflow: int) -> tuple[str, str]:
    sources = source_edges()
    return f"publisher-{workflow}", sources[workflow % len(sources)]


def _subscribed(simulation: Simulation, load: Workflows, every: float) -> float:
    """Issue all subscriptions; when publications may begin."""
    for turn, (client, broker, filter) in enumerate(load.subscriptions, 1):
        simulation.post(every * turn, broker, Subscribe(client, 0, filter), sender=client)
    return every * (len(load.subscriptions) + 1) + 60.0


def _published(
    case: Case, simulation: Simulation, load: Workflows, begins: float, rng: np.random.Generator
) -> frozenset[int]:
    """Publish events at a steady rate; the numbers of those that are probes."""
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


def _unsubscribed(
    case: Case, simulation: Simulation, load: Workflows, begins: float, rng: np.random.Generator
) -> None:
    """Some roots end, evenly spread over the time that all take."""
    gone = rng.permutation(np.array(load.roots))[: case.unsubscriptions].tolist()
    for at, root in enumerate(gone):
        client, broker, _ = load.subscriptions[root]
        time = begins + UNSUBSCRIBE_WITHIN * at / len(gone)
        simulation.post(time, broker, Unsubscribe(client, 0), sender=client)


# --- what came of it ------------------------------------------------------------------------------


def _sizes(brokers: Mapping[str, ContentBroker]) -> dict[str, int]:
    return {name: broker.subscriptions.boxes for name, broker in brokers.items()}


def _of_kind(units: Mapping[tuple[str, str], float], kind: str) -> dict[str, int]:
    return {broker: round(n) for (broker, of), n in units.items() if of == kind}


def _last(case: Case) -> frozenset[int]:
    return frozenset(range(case.publications - case.publications // 10, case.publications))


def _delays(simulation: Simulation, numbers: frozenset[int]) -> FloatArray:
    found = [
        delay
        for _, _, _, delay, message in simulation.record.delivered
        if isinstance(message, Publication) and message.event.number in numbers
    ]
    return np.array(found, np.float64)


def _queues(simulation: Simulation, begins: float) -> dict[str, Queue]:
    seen: dict[str, list[tuple[float, int]]] = {broker: [] for broker in CORE}
    for time, broker, waiting in simulation.record.waiting:
        if broker in seen:
            seen[broker].append((time - begins, waiting))
    return {
        broker: Queue(
            np.array([time for time, _ in found], np.float64),
            np.array([waiting for _, waiting in found], np.int64),
        )
        for broker, found in seen.items()
    }
