"""Small networks of content brokers, watched from outside.

Events are pairs of small whole numbers, so all of them can be tried. The watch knows what clients
did and when nothing was under way between brokers; from that alone it says who must get an event,
who may, and who must not. It never asks a broker.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np

from distributary.content import (
    AdvertiseRequest,
    ContentBroker,
    Covering,
    Detach,
    Inbox,
    Publication,
    PublishUnder,
    SubscribeRequest,
    UnadvertiseRequest,
    UnsubscribeRequest,
)
from distributary.content.events import ContentEvent
from distributary.content.messages import Echo, Probe
from distributary.machines import Action, Deliver, Machine, Send
from distributary.machines.virtual import Link, Simulation, VirtualNetwork, price_work
from distributary.model import Attribute, AttributeKind, Box, Filter, Schema, Topology, Values

SIDE = 6
SCHEMA = Schema((Attribute("x", AttributeKind.INTEGER), Attribute("y", AttributeKind.INTEGER)))
EVENTS = list(product(range(SIDE), repeat=2))

Pair = tuple[int, int]
Key = tuple[str, str, int]  # a broker, a client of it, the client's number for it


def box(x: Pair, y: Pair = (0, SIDE)) -> Filter:
    """Events with both numbers in a range each, its end left out.

    Nothing is without bounds: what looks equal when all events are tried is equal.
    """
    tests = ((at, Values.of([span], AttributeKind.INTEGER)) for at, span in enumerate((x, y)))
    found = Box.of(tests, SCHEMA)
    assert found is not None
    return Filter.of([found], SCHEMA)


def random_box(rng: np.random.Generator) -> Filter:
    """Wide and narrow ones, so that many cover others and some are equal."""
    spans = []
    for _ in range(2):
        low = int(rng.integers(0, SIDE)) if rng.random() < 0.7 else 0
        high = int(rng.integers(low + 1, SIDE + 1)) if rng.random() < 0.7 else SIDE
        spans.append((low, high))
    return box(*spans)


def random_tree(rng: np.random.Generator, n_brokers: int) -> dict[tuple[str, str], float]:
    """Links between brokers b0, b1, ...: no cycles, all connected."""
    return {
        (f"b{int(rng.integers(0, at))}", f"b{at}"): float(rng.choice([0.01, 0.1, 1.0]))
        for at in range(1, n_brokers)
    }


@dataclass
class Wish:
    """A subscription or advertisement of a client: when it began, held everywhere, ended."""

    client: str
    filter: Filter
    begun: float
    settled: float | None = None
    ended: float | None = None


@dataclass
class Published:
    """An event, and under which advertisement it was published."""

    event: ContentEvent
    time: float
    promise: Wish


class Watch:
    """What clients did, what they were handed, and when nothing was under way."""

    def __init__(self) -> None:
        self.wishes: dict[Key, Wish] = {}
        self.promises: dict[Key, Wish] = {}
        self.all_wishes: list[Wish] = []
        self.published: list[Published] = []
        self.inboxes: defaultdict[str, Inbox] = defaultdict(Inbox)
        self.got: defaultdict[int, list[tuple[str, float]]] = defaultdict(list)
        self.under_way = 0
        self.moves = True  # clients do, and so they look for what they have already

    def on_taken(self, broker: str, message: object, now: float) -> None:
        """A broker takes a message from a client or another broker in."""
        match message:
            case SubscribeRequest(client, number, filter):
                self._end(self.wishes, (broker, client, number), now)
                wish = self.wishes[broker, client, number] = Wish(client, filter, now)
                self.inboxes[client].attach(broker)
                self.all_wishes.append(wish)
            case UnsubscribeRequest(client, number):
                self._end(self.wishes, (broker, client, number), now)
            case AdvertiseRequest(client, number, filter):
                self._end(self.promises, (broker, client, number), now)
                self.promises[broker, client, number] = Wish(client, filter, now)
            case UnadvertiseRequest(client, number):
                self._end(self.promises, (broker, client, number), now)
            case Detach(client):
                self.inboxes[client].detach(broker)
                for wishes in (self.wishes, self.promises):
                    for key in [key for key in wishes if key[:2] == (broker, client)]:
                        self._end(wishes, key, now)
            case PublishUnder(client, number, event):
                promise = self.promises.get((broker, client, number))
                if promise is not None and promise.filter.matches(event.keys):
                    self.published.append(Published(event, now, promise))

    def quiet(self, now: float) -> None:
        """Nothing is under way: what clients said is known wherever it has to be."""
        for wish in (*self.wishes.values(), *self.promises.values()):
            if wish.settled is None:
                wish.settled = now

    def on_delivered(self, client: str, publication: Publication, now: float) -> None:
        """A broker hands a client something over."""
        is_new = self.inboxes[client].is_new(publication)
        if is_new or not self.moves:
            self.got[publication.event.number].append((client, now))

    def problems(self) -> Iterator[str]:
        """Events that somebody lacks, got twice, or got without having asked for them."""
        for published in self.published:
            event = published.event
            got = [client for client, _ in self.got[event.number]]
            for client in {client for client in got if got.count(client) > 1}:
                yield f"{client} got event {event} {got.count(client)} times"
            for client in self._must(published) - set(got):
                yield f"{client} lacks event {event} published at {published.time}"
            for client, time in self.got[event.number]:
                if client not in self._may(published, time):
                    yield f"{client} got event {event} at {time} and had not asked for it"

    def _must(self, published: Published) -> set[str]:
        promise, time = published.promise, published.time
        if promise.settled is None or promise.settled > time:
            return set()
        return {
            wish.client
            for wish in self.all_wishes
            if wish.filter.matches(published.event.keys)
            and wish.settled is not None
            and wish.settled <= time
            and wish.ended is None
        }

    def _may(self, published: Published, time: float) -> set[str]:
        return {
            wish.client
            for wish in self.all_wishes
            if wish.filter.matches(published.event.keys)
            and wish.begun <= time
            and (wish.ended is None or wish.ended >= published.time)
        }

    @staticmethod
    def _end(wishes: dict[Key, Wish], key: Key, now: float) -> None:
        if key in wishes:
            wishes.pop(key).ended = now


@dataclass
class Watched:
    """A broker that tells the watch what it takes in and sends out."""

    machine: Any
    watch: Watch

    def on_message(self, sender: str, message: Any, now: float) -> list[Action]:
        self.watch.on_taken(self.machine.name, message, now)
        if _is_statement(message):
            self.watch.under_way -= 1
        return self._watch(self.machine.on_message(sender, message, now), now)

    def on_timer(self, name: str, now: float) -> list[Action]:
        return self._watch(self.machine.on_timer(name, now), now)

    def _watch(self, actions: Iterable[Action], now: float) -> list[Action]:
        found = list(actions)
        for action in found:
            if isinstance(action, Send) and _is_statement(action.message):
                self.watch.under_way += 1
            elif isinstance(action, Deliver) and isinstance(action.message, Publication):
                self.watch.on_delivered(action.client, action.message, now)
        if self.watch.under_way == 0 and not hasattr(self.machine, "connections"):
            self.watch.quiet(now)
        return found


def _is_statement(message: object) -> bool:
    return not isinstance(message, Publication | Probe | Echo) and not hasattr(message, "client")


@dataclass
class World:
    """A network of content brokers in the simulator."""

    policy: Covering
    delays: Mapping[tuple[str, str], float]
    rng: np.random.Generator
    broker: Callable[..., Machine] = ContentBroker
    service: float = 0.0
    watch: Watch = field(default_factory=Watch)

    def __post_init__(self) -> None:
        self.topology = Topology(self.delays)
        links = {
            pair: Link(delay, jitter=delay)
            for (a, b), delay in self.delays.items()
            for pair in ((a, b), (b, a))
        }
        self.simulation = Simulation(VirtualNetwork(links, self.rng))
        self.brokers: dict[str, Any] = {}
        for name in self.topology.brokers:
            self.brokers[name] = self.broker(
                name, self.topology.neighbours(name), SCHEMA, self.policy
            )
            self.simulation.add(
                name, Watched(self.brokers[name], self.watch), service=price_work(self.service)
            )
        self._events = 0

    def say(self, broker: str, message: Any, *, after: float = 0.0) -> None:
        """A client says something to its broker."""
        time = self.simulation.clock.now + after
        self.simulation.post(time, broker, message, sender=message.client)

    def publish(self, broker: str, client: str, number: int, keys: Pair, after: float = 0) -> int:
        """A client publishes an event; its number."""
        self._events += 1
        event = ContentEvent(self._events, keys, self.simulation.clock.now + after)
        self.say(broker, PublishUnder(client, number, event), after=after)
        return self._events

    def run(self, seconds: float = float("inf")) -> None:
        """Go on for some time, or until nothing happens any more."""
        until = self.simulation.clock.now + seconds
        self.simulation.run(until=until, max_events=200_000)

    def got(self, number: int) -> list[str]:
        """The clients that were handed an event, one for each time."""
        return sorted(client for client, _ in self.watch.got[number])

    # --- tables ----------------------------------------------------------------------------------

    def table_problems(self) -> Iterator[str]:
        """What is not as small or not as exact as the policy promises when nothing happens."""
        for name, broker in self.brokers.items():
            for neighbour, link in broker.links.items():
                told = {sub: link.sent[sub] for sub in link.sent}
                heard = {
                    entry.name: entry.filter
                    for entry in self.brokers[neighbour].subscriptions.of(name)
                }
                where = f"{name} to {neighbour}: "
                if told != heard:
                    yield where + f"told {told}, heard {heard}"
                if link.loose:
                    yield where + f"{list(link.loose)} are loose"
                yield from (where + problem for problem in self._link_problems(link, told))
                if link.needed.keys() != self._needed(name, neighbour):
                    yield where + "needed is not what is needed"

    def _needed(self, name: str, neighbour: str) -> set[Any]:
        broker = self.brokers[name]
        return {
            entry.name
            for entry in broker.subscriptions
            if entry.hop != neighbour
            and any(
                entry.filter.matches(event) and advertised.filter.matches(event)
                for advertised in broker.advertisements.of(neighbour)
                for event in EVENTS
            )
        }

    def _link_problems(self, link: Any, told: Mapping[Any, Filter]) -> Iterator[str]:
        for event in EVENTS:
            wanted = any(filter.matches(event) for filter in link.needed.values())
            sent = any(filter.matches(event) for filter in told.values())
            if wanted != sent:
                yield f"event {event} is {'' if sent else 'not '}asked for"
        if self.policy.name == "none" and told != link.needed:
            yield "not all that is needed is sent, or more"
        if self.policy.retracts:
            sets = {name: _events_of(filter) for name, filter in told.items()}
            for one, other in product(sets, repeat=2):
                if one != other and sets[one] <= sets[other]:
                    yield f"{one} is sent though {other} covers it"
        if not self.policy.merges and not told.keys() <= link.needed.keys():
            yield f"{set(told) - set(link.needed)} are sent and not needed"


def _events_of(filter: Filter) -> frozenset[Pair]:
    return frozenset(event for event in EVENTS if filter.matches(event))
