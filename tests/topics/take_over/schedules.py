"""Seeded schedules: services crash, are suspended or cut off, and take over from each other.

Two or three services run production hosts on one log with a fence; see `service`. The oracle knows
only what applications did and got: what they published, what was confirmed, since when they had a
subscription, and what they read; and which service sent when.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np

from distributary.cost import OperatingPrices
from distributary.machines.virtual import Link
from distributary.machines.virtual.engine import Simulation
from distributary.machines.virtual.network import VirtualNetwork
from distributary.topics import OURS, TAMARA, Policy
from distributary.topics.codec import Create
from distributary.topics.messages import Event, Unwant, Want
from tests.topics.nats.running import dear
from tests.topics.take_over.client import APPLICATION, Client, Say
from tests.topics.take_over.server import SERVER, Server, replay
from tests.topics.take_over.service import Service

QUICK: dict[str, Any] = {
    "prices": OperatingPrices(maintain=dear),
    "interval": 2.0,
    "answer_within": 0.5,
    "lock_for": 4.0,
    "refresh": 5.0,
    "horizon": 50.0,
    "remember": 30.0,  # what waits while a service is suspended comes late
}
POLICIES: dict[str, Policy] = {
    "tamara": replace(TAMARA, **(QUICK | {"survey_every": 6.0})),
    "ours": replace(OURS, **QUICK),
}
STEPS = 40
LONGEST = 14.0  # seconds that a fault lasts
REPAIR = 60.0  # until somebody serves again, and all is confirmed
LAST = 30.0  # until the last events have come to everybody
TWICE = 3.0  # in which whatever would come twice comes


@dataclass
class Reader:
    """A subscription, and since when it is complete."""

    client: str
    topic: str
    covered_at: float | None = None


@dataclass
class Schedule:
    """Services, a server and clients. Without `fenced` or `leased` it must fail for some seeds."""

    seed: int
    steps: int = STEPS
    fenced: bool = True
    leased: bool = True
    make_server: Callable[..., Server] = Server
    readers: dict[tuple[str, str], Reader] = field(default_factory=dict)
    said: dict[bytes, float] = field(default_factory=dict)  # when each event was published
    order: defaultdict[tuple[str, str], list[bytes]] = field(
        default_factory=lambda: defaultdict(list)
    )
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        rng = self.rng = np.random.default_rng([self.seed, 11])
        self.policy = ("tamara", "ours")[self.seed % 2]
        loss = float(rng.choice([0.0, 0.0, 0.02, 0.1]))
        jitter = float(rng.choice([0.0, 0.01, 0.1]))
        self.network = VirtualNetwork({}, rng, default=Link(0.002, jitter=jitter))
        self.simulation = Simulation(self.network)
        self.clock = self.simulation.clock
        self.server = self.make_server(rng, loss, self.fenced)
        self.simulation.add(SERVER, self.server)
        self.is_away = False
        self.cut_off: set[str] = set()
        self.services: dict[str, Service] = {}
        self.starts = 0
        self.terms: list[str] = []  # who has sent, in order
        self.quiet_from = 0.0
        for at in range(int(rng.choice([2, 2, 3]))):
            self.start_service(f"service{at}")
        self.clients: dict[str, Client] = {}
        for at in range(int(rng.integers(2, 7))):
            machine = self.clients[f"c{at}"] = Client(f"c{at}", POLICIES[self.policy])
            self.simulation.add(machine.name, machine)
            self.simulation.call(machine.name, machine.start)
        self.topics = [f"t{at}" for at in range(int(rng.integers(1, 6)))]
        self.run_for(2.0)
        for topic in self.topics:
            self.create("c0", topic)
        self.run_until(lambda: not any(c.creating for c in self.clients.values()), REPAIR)
        for client in self.clients if rng.random() < 0.5 else ():
            for topic in self.topics:
                self.want(client, topic)

    def start_service(self, place: str) -> None:
        self.starts += 1
        name = f"{place}.{self.starts}"
        policy, rng = POLICIES[self.policy], np.random.default_rng([self.seed, self.starts])
        service = Service(name, policy, rng, leased=self.leased, on_send=self.note_sending)
        self.services[place] = service
        self.simulation.add(name, service)
        self.simulation.call(name, service.start)

    # --- what happens ----------------------------------------------------------------------------

    def run(self) -> None:
        """All steps, until everything is repaired; then the last events, until all have them."""
        for _ in range(self.steps):
            self.step()
            self.run_for(float(self.rng.exponential(0.7)))
        self.run_until(self.is_repaired, LONGEST + REPAIR)
        for topic in self.topics:
            self.say("c0", topic)
        self.run_until(lambda: not self.find_incomplete() and not self.find_waiting(), LAST)
        self.run_for(TWICE)

    def run_until(self, is_done: Callable[[], bool], most: float) -> None:
        until = self.clock.now + most
        while not is_done() and self.clock.now < until:
            self.run_for(0.5)

    def run_for(self, seconds: float) -> None:
        while seconds > 0:
            self.simulation.run(until=self.clock.now + min(0.5, seconds))
            seconds -= 0.5
            self.note_coverage()
        for service in self.services.values():
            clusters = len(service.host.clusters) if service.host is not None else 0
            self.counts["clusters"] = max(self.counts["clusters"], clusters)

    def is_repaired(self) -> bool:
        covered = all(reader.covered_at is not None for reader in self.readers.values())
        return self.clock.now >= self.quiet_from and covered and not self.find_waiting()

    def step(self) -> None:
        rng = self.rng
        ways = ["say"] * 14 + ["want"] * 5 + ["unwant", "create", "crash", "crash", "sleep"]
        ways += ["nap", "nap", "nap", "stop", "absence", "cut service", "cut client"]
        way = str(rng.choice(ways))
        client, topic = str(rng.choice([*self.clients])), str(rng.choice(self.topics))
        place = str(rng.choice([*self.services])) if self.services else ""
        if rng.random() < 0.7:  # who serves, if somebody does
            place = next((p for p, s in self.services.items() if s.host is not None), place)
        lasts = float(rng.choice([0.5, 4.0, LONGEST]) * (0.3 + 0.7 * rng.random()))
        service = self.services.get(place)
        done = True
        match way:
            case "say":
                for _ in range(int(rng.integers(1, 6))):
                    self.say(client, topic)
            case "want" if (client, topic) not in self.readers:
                self.want(client, topic)
            case "unwant" if (client, topic) in self.readers:
                del self.readers[client, topic]
                self.tell(client, Unwant(topic))
            case "create" if len(self.topics) < 8:
                self.create(client, f"t{len(self.topics)}")
            case "crash" if service is not None:
                self.crash(place)
                self.end_later(lasts, partial(self.start_service, place))
            case "stop" if service is not None and not service.asleep:
                self.simulation.call(service.name, service.stop)
                self.end_later(lasts, partial(self.start_anew, place, service))
            case "sleep" if service is not None and not service.asleep:
                self.simulation.call(service.name, partial(service.sleep, lasts))
                self.end_later(lasts, lambda: None)
            case "nap" if service is not None and service.nap_at is None:
                service.nap_at = str(rng.choice(["write", "send"])), lasts
                self.end_later(lasts + 1.0, lambda: None)
            case "absence" if not self.is_away:
                self.leave_server()
                self.end_later(lasts, self.return_server)
            case "cut service" if service is not None and service.name not in self.cut_off:
                self.cut(service, lasts)
            case "cut client" if client not in self.cut_off:
                self.cut(self.clients[client], lasts)
            case _:
                done = False
        self.counts[way] += done

    def end_later(self, lasts: float, end: Callable[[], None]) -> None:
        at = self.clock.now + lasts
        self.quiet_from = max(self.quiet_from, at)
        self.clock.at(at, end)

    def crash(self, place: str) -> None:
        self.simulation.crash(self.services.pop(place).name)

    def start_anew(self, place: str, service: Service) -> None:
        if self.services.get(place) is service:
            self.crash(place)
            self.start_service(place)

    def leave_server(self) -> None:
        self.is_away = True
        self.simulation.crash(SERVER)
        self.server.forget_listeners()
        for each in self.list_connected():
            self.simulation.call(each.name, each.disconnect)

    def return_server(self) -> None:
        self.is_away = False
        self.simulation.add(SERVER, self.server)
        for each in self.list_connected():
            self.simulation.call(each.name, each.reconnect)

    def list_connected(self) -> list[Service | Client]:
        found: list[Service | Client] = [*self.services.values(), *self.clients.values()]
        return [each for each in found if each.name not in self.cut_off]

    def cut(self, who: Service | Client, lasts: float) -> None:
        """Cut a service or a client off from the server; it may notice only as that ends."""
        self.cut_off.add(who.name)
        self.network.cut(who.name, [who.name])
        if self.rng.random() < 0.5:
            self.simulation.call(who.name, who.disconnect)
        self.end_later(lasts, partial(self.heal, who))

    def heal(self, who: Service | Client) -> None:
        self.cut_off.discard(who.name)
        self.network.heal(who.name)
        if who in self.services.values() or who in self.clients.values():
            self.simulation.call(who.name, who.disconnect)
            if not self.is_away:
                self.simulation.call(who.name, who.reconnect)

    def create(self, client: str, topic: str) -> None:
        if topic not in self.topics:
            self.topics.append(topic)
        self.clients[client].creating[topic] = None
        self.tell(client, Create(0.0))

    def want(self, client: str, topic: str) -> None:
        if not any(topic in each.creating for each in self.clients.values()):
            self.readers[client, topic] = Reader(client, topic)
            self.tell(client, Want(topic))

    def say(self, client: str, topic: str) -> None:
        if any(topic in each.creating for each in self.clients.values()):
            return
        event = f"{client} {topic} {len(self.order[client, topic])}".encode()
        self.order[client, topic].append(event)
        self.said[event] = self.clock.now
        self.tell(client, Say(topic, event))

    def tell(self, client: str, message: Any) -> None:
        self.simulation.post(self.clock.now, client, message, sender=APPLICATION)

    def note_coverage(self) -> None:
        """A subscription is complete once its machine says so, as the application learns it."""
        for reader in self.readers.values():
            machine = self.clients[reader.client].subscriber
            if reader.covered_at is None and machine.is_covered(reader.topic):
                reader.covered_at = self.clock.now

    def note_sending(self, name: str) -> None:
        """Whoever sends is the only one that could."""
        now = self.clock.now
        others = [s.name for s in self.services.values() if s.name != name and s.serves(now)]
        assert not others, f"{name} and {others} serve at {now}"
        if not self.terms or self.terms[-1] != name:
            self.terms.append(name)

    # --- what must hold --------------------------------------------------------------------------

    def check(self) -> None:
        self.check_streams()
        assert not (found := self.find_waiting()), found
        assert not (found := self.find_incomplete()), found
        self.check_state()

    def read(self) -> dict[str, list[Any]]:
        """What each client's application has got, in order."""
        found: dict[str, list[Any]] = {name: [] for name in self.clients}
        for _, name, _, _, event in self.simulation.record.delivered:
            found[name].append(event)
        return found

    def find_waiting(self) -> str:
        """Whose events are not confirmed, if any are not."""
        for name, client in self.clients.items():
            if client.unconfirmed or client.creating:
                return f"{name} waits for {client.unconfirmed} events, and {[*client.creating]}"
        return ""

    def check_streams(self) -> None:
        """One number is one event to all; nobody gets one twice, or in another order."""
        log: dict[tuple[str, int], bytes] = {}
        for client, events in self.read().items():
            assert not self.clients[client].failed, f"{client}: {self.clients[client].failed}"
            last: dict[str, int] = {}
            seen: set[bytes] = set()
            for event in events:
                assert isinstance(event, Event), f"{client} got {event!r}"
                assert event.payload in self.said, f"{client} got {event}, which nobody published"
                assert event.payload not in seen, f"{client} got {event} twice"
                assert event.number > last.get(event.topic, 0), f"{client}: {event} is late"
                seen.add(event.payload)
                last[event.topic] = event.number
                key = event.topic, event.number
                assert log.setdefault(key, event.payload) == event.payload, f"two events: {key}"
        for (client, topic), said in self.order.items():
            numbers = {payload: number for (t, number), payload in log.items() if t == topic}
            mine = [numbers[event] for event in said if event in numbers]
            assert mine == sorted(mine), f"events of {client} to {topic} are out of order"

    def find_incomplete(self) -> str:
        """What the first reader lacks that lacks anything."""
        got = self.read()
        for reader in self.readers.values():
            if reader.covered_at is None:
                return f"{reader} is still incomplete"
            events = {e.payload for e in got[reader.client] if isinstance(e, Event)}
            for client in self.clients:
                for event in self.order[client, reader.topic]:
                    if self.said[event] >= reader.covered_at and event not in events:
                        return f"{reader} lacks {event!r}"
        return ""

    def check_state(self) -> None:
        """What was acknowledged is stored once, and nobody wrote after a successor."""
        state = replay(self.server.pieces[self.server.purged :], POLICIES[self.policy])
        stored = Counter(
            event.payload
            for topic in self.topics
            for event in state.states[f"topic/{topic}"].history  # type: ignore[union-attr]
        )
        assert not stored or max(stored.values()) == 1, f"stored twice: {stored.most_common(1)}"
        for client in self.clients.values():
            found = Counter(client.acknowledged)
            assert not found - stored, f"{client.name} lacks {[*(found - stored)][:3]}"
        writers = [writer for writer, _ in groupby(piece.writer for piece in self.server.pieces)]
        assert len(writers) == len({*writers}), f"one wrote after its successor: {writers}"
        for service in self.services.values():
            if service.is_idle and service.host is not None:
                assert service.host.state == state, f"{service.name} knows another state"


def run_schedule(
    seed: int, *, steps: int = STEPS, fenced: bool = True, leased: bool = True
) -> Schedule:
    """One schedule; an error says how to run it again."""
    try:
        schedule = Schedule(seed, steps=steps, fenced=fenced, leased=leased)
        schedule.run()
        schedule.check()
    except Exception as error:
        again = f"run_schedule({seed}, steps={steps}, fenced={fenced}, leased={leased})"
        raise AssertionError(f"{error!r}; again: {again}") from error
    return schedule
