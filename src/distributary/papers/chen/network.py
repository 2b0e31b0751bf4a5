"""The experiment of section V: many subscriptions, some of which end while events are published.

All subscriptions are issued before publications begin. After a while some roots unsubscribe within
150 s; 600 s later 300 of the publications are probes, wanted at as many edge brokers as possible.

The paper measured a program on real machines. Here each message costs a broker a fixed time plus a
time for each box in its table, under every policy: a publication is matched, a statement compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import nan

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
from distributary.papers.chen.pricing import SECONDS_PER_BOX, price_broker
from distributary.papers.chen.shared_matching import NetworkMatcher, SharingBroker
from distributary.papers.chen.witness import Witness, WitnessedBroker
from distributary.papers.queue_trace import QueueTrace
from distributary.workloads.workflows import (
    Event,
    Subscription,
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
CONGESTED = 10  # messages that wait
# A policy without a history is not affected by what was published longer ago than that many events:
# no queue is older.
ENOUGH_WITHOUT_HISTORY = 300
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
    per_box: float = SECONDS_PER_BOX
    similarities: int = 0  # the number of ended subscriptions whose similarity is measured
    scale: float = 1.0
    seed: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class CongestionOutcome:
    """Measurements from the first unsubscription on; counts are by broker.

    `delays` are those of the probes, one for each client that wanted one; `settled` is the mean
    delay of the last tenth of all publications. `before` and `tables` are the boxes in the brokers'
    tables at the first unsubscription and at the end. `triggered` counts statements, and
    `triggered_messages` messages. `unneeded` are publications from another broker that no client
    here or behind wanted, `dead_ends` those that nothing in the table matched. `remembered`
    is the number of entries in a broker's history, at the first unsubscription or at the end,
    whichever is more. `similarity` is, for some ended subscriptions, the share of their earlier
    publications that others want, at each broker from the subscriber's to the publisher's. `loose`
    is the number of subscriptions left at the end that let more through than is needed, `messages`
    the number handled in the whole run.
    """

    delays: FloatArray
    settled: float
    queues: Mapping[str, QueueTrace]
    before: Mapping[str, int]
    tables: Mapping[str, int]
    triggered: Mapping[str, int]
    triggered_messages: Mapping[str, int]
    publications: Mapping[str, int]
    unneeded: Mapping[str, int]
    dead_ends: Mapping[str, int]
    remembered: Mapping[str, int]
    similarity: tuple[tuple[float, ...], ...]
    loose: int
    messages: int

    def share_of(self, counts: Mapping[str, int], brokers: Sequence[str] = ()) -> float:
        """The share of some publications in all, at these brokers or everywhere."""
        among = brokers or self.publications
        carried = sum(self.publications.get(each, 0) for each in among)
        return sum(counts.get(each, 0) for each in among) / carried if carried else 0.0

    @property
    def core_table(self) -> float:
        """The mean size of the core brokers' tables."""
        return float(np.mean([self.tables[broker] for broker in CORE]))

    @property
    def core_queue(self) -> int:
        """The longest queue of a core broker."""
        return max(queue.longest for queue in self.queues.values())

    @property
    def congested_rate(self) -> float:
        """The messages a second handled by the core broker with the longest queue while it is long.

        NaN if no queue is ever as long as `CONGESTED`.
        """
        queue = max(self.queues.values(), key=lambda each: each.longest)
        long = queue.waiting[:-1] >= CONGESTED
        seconds = np.diff(queue.times)[long].sum()
        return float((np.diff(queue.waiting)[long] < 0).sum() / seconds) if seconds else nan


def run_congestion_case(case: CongestionCase) -> CongestionOutcome:
    """Run one case from the first subscription to the last delivery."""
    return end_subscriptions(case, publish_until_endings(case))


@dataclass(slots=True, eq=False)
class CongestionRun:
    """A run in which subscriptions are about to end, at `ends_at`; events go on until `last`."""

    load: Workflows
    brokers: Mapping[str, ContentBroker]
    simulation: Simulation
    events: Sequence[Event]
    probes: frozenset[int]
    ends_at: float
    last: float
    messages: int
    rng: np.random.Generator


def publish_until_endings(case: CongestionCase) -> CongestionRun:
    """Let all subscribe, and publish until the first unsubscription.

    The outcome is the same for all cases that differ in the number of unsubscriptions only.
    """
    rng = np.random.default_rng([case.seed, 7])
    load = workflows(case.workflows, rng)
    brokers, simulation = _start(case, load, rng)
    begins = _subscribe_all(simulation, load, SUBSCRIBE_EVERY / case.scale)
    ends_at = begins + PUBLISH_EVERY * case.before
    events, probes = _draw_events(case, load, rng)
    _publish_events(case, simulation, events, begins)
    messages = simulation.run(until=ends_at - 1e-3)
    last = begins + PUBLISH_EVERY * case.publications
    return CongestionRun(load, brokers, simulation, events, probes, ends_at, last, messages, rng)


def end_subscriptions(case: CongestionCase, run: CongestionRun) -> CongestionOutcome:
    """End some subscriptions, and go on to the last delivery."""
    brokers, simulation, load = run.brokers, run.simulation, run.load
    units, sizes = Counter(simulation.record.units), _sizes(brokers)
    remembered = _count_remembered(brokers, run.ends_at)
    simulation.record.waiting.clear()
    simulation.record.delivered.clear()
    gone = _schedule_unsubscriptions(case, simulation, load, run.ends_at, run.rng)
    messages = run.messages + simulation.run(until=run.last)
    remembered |= _count_remembered(brokers, run.last)
    messages += simulation.run(until=run.last + LONGEST)
    units = Counter(simulation.record.units) - units
    return CongestionOutcome(
        delays=_delays(simulation, run.probes),
        settled=float(_delays(simulation, _last(case)).mean()),
        queues=_queues(simulation, run.ends_at),
        before=sizes,
        tables=_sizes(brokers),
        triggered=_of_kind(units, "triggered"),
        triggered_messages=_of_kind(units, "triggered message"),
        publications=_of_kind(units, "publication"),
        unneeded=_of_kind(units, "unneeded"),
        dead_ends=_of_kind(units, "unwanted"),
        remembered=dict(remembered),
        similarity=tuple(
            _measure_similarity(brokers, load.subscriptions[root], run.events[: case.before])
            for root in gone[: case.similarities]
        ),
        loose=sum(len(link.loose) for each in brokers.values() for link in each.links.values()),
        messages=messages,
    )


# --- the parts of a run ---------------------------------------------------------------------------


def _start(
    case: CongestionCase, load: Workflows, rng: np.random.Generator
) -> tuple[Mapping[str, ContentBroker], Simulation]:
    """The brokers, and one publisher with its advertisement for each workflow."""
    topology = workflow_topology()
    simulation = Simulation(VirtualNetwork.of(topology, rng))
    per_box = case.per_box / case.scale
    service = price_broker(match=per_box, compare=per_box / case.scale)
    witness = Witness(topology, load.subscriptions)
    matcher = NetworkMatcher(load.schema)
    brokers = {
        name: SharingBroker(name, topology.neighbours(name), load.schema, case.policy, matcher)
        for name in topology.brokers
    }
    for each in brokers.values():
        simulation.add(each.name, WitnessedBroker(each, witness), service=service)
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


def _draw_events(
    case: CongestionCase, load: Workflows, rng: np.random.Generator
) -> tuple[list[Event], frozenset[int]]:
    """All events in the order of publication, and the numbers of the probes among them."""
    events = load.events(case.publications, rng)
    first = case.before + round((UNSUBSCRIBE_WITHIN + case.probe_after) / PUBLISH_EVERY)
    numbers = range(first, min(first + PROBES, case.publications))
    for number, keys in zip(numbers, load.probes(len(numbers), rng), strict=True):
        events[number] = keys
    return events, frozenset(numbers)


def _publish_events(
    case: CongestionCase, simulation: Simulation, events: Sequence[Event], begins: float
) -> None:
    """Publish events at a steady rate; without a history, not those that change nothing."""
    first = 0 if case.policy.prunes else max(0, case.before - ENOUGH_WITHOUT_HISTORY)
    for number, keys in enumerate(events[first:], first):
        at = begins + PUBLISH_EVERY * number
        workflow = int(str(keys[0]).rpartition("-")[2]) - 1
        client, broker = _publisher(workflow)
        message = PublishUnder(client, workflow, ContentEvent(number, keys, at))
        simulation.post(at, broker, message, sender=client)


def _schedule_unsubscriptions(
    case: CongestionCase,
    simulation: Simulation,
    load: Workflows,
    begins: float,
    rng: np.random.Generator,
) -> list[int]:
    """Let some roots unsubscribe, evenly spread over the time for all; returns which."""
    gone: list[int] = rng.permutation(np.array(load.roots))[: case.unsubscriptions].tolist()
    for at, root in enumerate(gone):
        client, broker, _ = load.subscriptions[root]
        time = begins + UNSUBSCRIBE_WITHIN * at / len(gone)
        simulation.post(time, broker, UnsubscribeRequest(client, 0), sender=client)
    return gone


# --- results --------------------------------------------------------------------------------------


def _sizes(brokers: Mapping[str, ContentBroker]) -> dict[str, int]:
    return {name: broker.subscriptions.boxes for name, broker in brokers.items()}


def _count_remembered(brokers: Mapping[str, ContentBroker], now: float) -> Counter[str]:
    return Counter(
        {
            name: broker.history.count_entries(now)
            for name, broker in brokers.items()
            if broker.history is not None
        }
    )


def _measure_similarity(
    brokers: Mapping[str, ContentBroker], ended: Subscription, events: Sequence[Event]
) -> tuple[float, ...]:
    """The share of an ended subscription's events that each broker on its path still wants.

    The path leads from the subscriber's broker to the publisher's; events that a broker would only
    send on towards the publisher do not count.
    """
    _, home, filter = ended
    matched = [keys for keys in events if filter.matches(keys)]
    if not matched:
        return ()
    _, source = _publisher(int(str(matched[0][0]).rpartition("-")[2]) - 1)
    path = workflow_topology().tree(home).path(source)
    return tuple(
        sum(bool(brokers[broker].subscriptions.index.find_hops(keys, nearer)) for keys in matched)
        / len(matched)
        for broker, nearer in zip(path, [*path[1:], None], strict=True)
    )


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
