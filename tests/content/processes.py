"""Broker processes and clients in virtual time: the machines of production over wires that break.

A wire is a TCP connection: in order while it is up, and what is under way is lost when it breaks. A
process performs the saves of an input at once and the rest a moment later, so that a crash can come
in between. Applications know only what they asked for, were told and got.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from distributary.content.client_actions import (
    ClientParams,
    Complete,
    Dial,
    EndClient,
    Fail,
    HandEvent,
    HandLoss,
    HangUp,
    Settle,
)
from distributary.content.client_machine import ClientMachine
from distributary.content.codec import Codec
from distributary.content.connections import Timing
from distributary.content.host import BrokerHost
from distributary.content.host_params import HostParams
from distributary.content.link_queue import LinkLimits
from distributary.content.messages import Statement
from distributary.content.policies import Covering
from distributary.content.protocol import (
    WIRE_VERSIONS,
    Cut,
    Event,
    Goodbye,
    Hello,
    Identity,
    Peer,
    Refusal,
    SendFrame,
)
from distributary.content.recovery import Recovery
from distributary.machines.actions import Save, SetTimer, Work
from distributary.machines.virtual import Clock
from tests.content.faults import read_again
from tests.content.worlds import SCHEMA

TIMING = Timing(resend=0.5, longest=4.0, answer=0.01, window=4)
CODEC = Codec(SCHEMA)
MOMENT = 0.001
RETRY = 0.7


def is_statement(message: object) -> bool:
    return isinstance(message, Statement)


@dataclass(eq=False)
class Wire:
    """One connection; each side takes messages and is told when it closes."""

    world: Network
    delay: float
    takes: list[Callable[[Any], None]] = field(default_factory=list)
    closes: list[Callable[[], None]] = field(default_factory=list)
    is_open: bool = True
    last: list[float] = field(default_factory=lambda: [0.0, 0.0])

    def send(self, side: int, message: Any) -> None:
        """Send from a side to the other one."""
        if self.world.encodes:
            message = CODEC.decode(CODEC.encode(message))
        at = self.last[side] = max(self.last[side], self.world.clock.now + self.delay)
        self.world.clock.at(at, partial(self._arrive, 1 - side, message))

    def _arrive(self, side: int, message: Any) -> None:
        if self.is_open:
            self.takes[side](message)

    def close(self, *, after: float = 0.0) -> None:
        """Break the connection; both sides hear of it, each in its own time."""
        if after:
            self.world.clock.at(self.world.clock.now + after, self.close)
        elif self.is_open:
            self.is_open = False
            for close in self.closes:
                late = float(self.world.rng.uniform(0, 0.3))
                self.world.clock.at(self.world.clock.now + late, close)


class Process:
    """One incarnation of a broker."""

    def __init__(self, world: Network, name: str, recovery: Recovery) -> None:
        self.world = world
        self.name = name
        self.host = BrokerHost(name, SCHEMA, world.policy, recovery=recovery, params=world.params)
        self.is_alive = True
        self.fails_to_save = False
        self.wires: dict[int, tuple[Wire, int]] = {}
        self.timers: dict[str, int] = {}
        self._numbers = 0

    def call(self, given: Callable[..., list[Any]], *words: Any) -> None:
        """Give the host an input."""
        if not self.is_alive:
            return
        actions = given(*words, self.world.clock.now)
        self._check_bounds()
        saves = [each for each in actions if isinstance(each, Save)]
        if saves and self.fails_to_save:
            self.world.crash(self.name)
            return
        saved = self.world.saved[self.name]
        for save in saves:
            if save.value is None:
                saved.pop(save.key, None)
            else:
                saved[save.key] = save.value
        others = [each for each in actions if not isinstance(each, Save | Work)]
        if others:
            self.world.clock.at(self.world.clock.now + MOMENT, partial(self._perform, others))

    def _check_bounds(self) -> None:
        """Whatever happens, a broker holds no more than it may."""
        host, params = self.host, self.world.params
        for neighbour, queue in host.broker.queues.items():
            most = params.links.publications
            assert queue.unfinished <= most, f"{neighbour} has {queue.unfinished} unfinished"
            if neighbour not in host.connected:
                waiting = host.broker.connections[neighbour].count_unsent(is_statement)
                assert waiting <= params.links.statements, f"{waiting} statements for {neighbour}"
        for session in host.sessions.all():
            most = session.record.most_events + (session.record.when_full == "drop-oldest")
            assert len(session.outbox) <= most, f"{session.client}'s outbox is too full"
        most = params.kept_events + params.publications * len(host.sessions)
        assert host.broker.unfinished.own <= most, "too much of its own clients is kept"

    def _perform(self, actions: list[Any]) -> None:
        for action in actions if self.is_alive else ():
            match action:
                case SendFrame(connection, message):
                    if connection in self.wires:
                        wire, side = self.wires[connection]
                        wire.send(side, message)
                case Cut(connection, reason):
                    self.world.cuts.append((self.name, reason))
                    if connection in self.wires:
                        wire, side = self.wires.pop(connection)
                        wire.send(side, Goodbye(reason))
                        wire.close(after=wire.delay + MOMENT)
                case SetTimer(name, at):
                    self._set_timer(name, at)
                case _:
                    raise TypeError(f"a host does not do {action!r}")

    def _set_timer(self, name: str, at: float | None) -> None:
        self.timers.pop(name, None)
        if at is not None:
            number = self.timers[name] = self.world.clock.scheduled
            self.world.clock.at(max(at, self.world.clock.now), partial(self._expire, name, number))

    def _expire(self, name: str, number: int) -> None:
        if self.is_alive and self.timers.get(name) == number:
            del self.timers[name]
            self.call(self.host.on_timer, name)

    # --- connections -----------------------------------------------------------------------------

    def attach(self, wire: Wire, side: int, hello: Any) -> int:
        """Take a side of a wire after the handshake; returns the number of the connection."""
        self._numbers += 1
        number = self._numbers
        self.wires[number] = wire, side
        wire.takes[side] = partial(self._take, number)
        wire.closes[side] = partial(self._close, number)
        role = getattr(hello, "role", "broker")
        peer = Peer(number, role, hello.name, hello.incarnation, 1, hello.links)
        self.call(self.host.on_open, peer)
        return number

    def _take(self, number: int, message: Any) -> None:
        if number in self.wires and not isinstance(message, Goodbye):
            self.call(self.host.on_message, number, message)

    def _close(self, number: int) -> None:
        if self.wires.pop(number, None) is not None:
            self.call(self.host.on_close, number)

    def accept(self, wire: Wire, hello: Hello) -> None:
        """The other side wants to connect."""
        answer = self.host.judge(hello) if self.is_alive else None
        if answer is None:
            wire.close()
            return
        if isinstance(answer, Refusal):
            self.world.refusals.append((self.name, hello.name, answer.reason))
            wire.send(1, answer)
            wire.close(after=wire.delay + MOMENT)
            return
        wire.send(1, answer)
        self.attach(wire, 1, hello)

    def on_welcome(self, wire: Wire, expected: str, answer: Any) -> None:
        """The answer to this process's own hello."""
        if not self.is_alive:
            wire.close()
        elif isinstance(answer, Refusal):
            self.world.refusals.append((self.name, expected, answer.reason))
        else:
            refusal = self.host.judge_welcome(answer, expected)
            if refusal is not None:
                self.world.refusals.append((self.name, expected, refusal.reason))
                wire.close()
            else:
                self.attach(wire, 0, answer)


@dataclass
class Sub:
    """A subscription of an application: x and y in half-open ranges."""

    number: int
    x: tuple[int, int]
    y: tuple[int, int]
    begun: float
    settled: float | None = None
    ended: float | None = None
    got: list[tuple[str, int]] = field(default_factory=list)
    lost: int = 0

    @property
    def text(self) -> str:
        (a, b), (c, d) = self.x, self.y
        return f"x >= {a} AND x < {b} AND y >= {c} AND y < {d}"

    def wants(self, x: int, y: int) -> bool:
        return self.x[0] <= x < self.x[1] and self.y[0] <= y < self.y[1]


@dataclass
class Pub:
    """An event that an application published."""

    publisher: str
    number: int
    x: int
    y: int
    called: float
    state: str = "under way"


class Application:
    """A client and the program that uses it."""

    def __init__(self, world: Network, name: str, broker: str, params: ClientParams) -> None:
        self.world = world
        self.name = name
        self.machine = ClientMachine(broker, params)
        self.params = params
        self.subs: dict[int, Sub] = {}
        self.pubs: list[Pub] = []
        self.tickets: dict[int, Pub] = {}
        self.places: dict[int, str] = {}
        self.wires: dict[int, Wire] = {}
        self.timers: dict[str, int] = {}
        self.advertised: int | None = None
        self.events: dict[tuple[int, str, int], int] = {}  # the delivery of each, by place
        self.is_away = False
        self.has_ended = False
        self.pause = 0.0  # how long it takes to process an event
        self._do(self.machine.start(world.clock.now))

    # --- what the program does -------------------------------------------------------------------

    def subscribe(self, x: tuple[int, int], y: tuple[int, int]) -> None:
        now = self.world.clock.now
        sub = Sub(0, x, y, now)
        if any(other.text == sub.text for other in self.subs.values()):
            return
        sub.number, _, actions = self.machine.subscribe(sub.text, now)
        self.subs[sub.number] = sub
        self._do(actions)

    def unsubscribe(self, number: int) -> None:
        now = self.world.clock.now
        self.subs[number].ended = now
        self._do(self.machine.unsubscribe(number, now)[1])

    def advertise(self) -> None:
        """Advertise everything in words, or withdraw that."""
        now = self.world.clock.now
        if self.advertised is None:
            self.advertised, _, actions = self.machine.advertise("x >= 0", now)
        else:
            _, actions = self.machine.unadvertise(self.advertised, now)
            self.advertised = None
        self._do(actions)

    def publish(self, x: int, y: int) -> None:
        now = self.world.clock.now
        pub = Pub(self.name, len(self.pubs), x, y, now)
        self.pubs.append(pub)
        payload = f"{self.name} {pub.number}".encode()
        ticket, actions = self.machine.publish({"x": x, "y": y}, payload, now)
        self.tickets[ticket] = pub
        self._do(actions)

    def move(self, broker: str) -> None:
        if self.machine.moving is None and broker != self.machine.broker:
            self._do(self.machine.move(broker, self.world.clock.now)[1])

    def go_away(self) -> None:
        self.is_away = True
        for wire in list(self.wires.values()):
            wire.close()

    def come_back(self) -> None:
        self.is_away = False

    # --- its shell -------------------------------------------------------------------------------

    def _do(self, actions: list[Any]) -> None:
        for action in actions:
            match action:
                case SendFrame(place, message):
                    if place in self.wires:
                        self.wires[place].send(0, message)
                case SetTimer(name, at):
                    self._set_timer(name, at)
                case Dial(place, broker):
                    self.places[place] = broker
                    self._dial(place)
                case HangUp(place):
                    self.places.pop(place, None)
                    if wire := self.wires.pop(place, None):
                        wire.close(after=wire.delay + MOMENT)
                case Complete(ticket):
                    if ticket in self.tickets:
                        self.tickets.pop(ticket).state = "stored"
                case Fail(ticket, _, is_unknown):
                    if ticket in self.tickets:
                        self.tickets.pop(ticket).state = "unknown" if is_unknown else "refused"
                case Settle(key):
                    sub = self.subs.get(key.number)
                    if sub is not None and sub.settled is None:
                        sub.settled = self.world.clock.now
                case HandEvent(numbers, event):
                    self._take_event(numbers, event)
                case HandLoss(numbers, loss):
                    assert self.params.when_full == "drop-oldest", loss.reason
                    assert loss.count is not None, loss.reason
                    for number in numbers:
                        self.subs[number].lost += loss.count
                        self._finish_later(loss.taken_from)
                case EndClient():
                    self.has_ended = True
                case _:
                    raise TypeError(f"a client does not do {action!r}")

    def _take_event(self, numbers: tuple[int, ...], event: Any) -> None:
        publisher, number = event.payload.decode().rsplit(maxsplit=1)
        assert publisher == event.publisher
        for each in numbers:
            self.subs[each].got.append((publisher, int(number)))
            self._finish_later(event.taken_from)

    def _finish_later(self, taken: Any) -> None:
        at = self.world.clock.now + self.pause
        self.world.clock.at(at, lambda: self._do(self.machine.finish(taken, self.world.clock.now)))

    def _set_timer(self, name: str, at: float | None) -> None:
        self.timers.pop(name, None)
        if at is not None:
            number = self.timers[name] = self.world.clock.scheduled
            self.world.clock.at(max(at, self.world.clock.now), partial(self._expire, name, number))

    def _expire(self, name: str, number: int) -> None:
        if self.timers.get(name) == number:
            del self.timers[name]
            self._do(self.machine.on_timer(name, self.world.clock.now))

    def _dial(self, place: int) -> None:
        """Try to connect, and try again."""
        if place not in self.places or place in self.wires or self.has_ended:
            return
        process = self.world.processes.get(self.places[place])
        if process is None or self.is_away:
            self.world.clock.at(self.world.clock.now + RETRY, partial(self._dial, place))
            return
        wire = Wire(self.world, self.world.draw_delay())
        wire.takes = [partial(self._take, place, wire), lambda _: None]
        wire.closes = [partial(self._close, place, wire), lambda: None]
        self.wires[place] = wire
        hello = Hello("client", self.name, WIRE_VERSIONS)
        self.world.clock.at(self.world.clock.now + wire.delay, partial(process.accept, wire, hello))

    def _take(self, place: int, wire: Wire, message: Any) -> None:
        if self.wires.get(place) is not wire:
            return
        now = self.world.clock.now
        if type(message).__name__ == "Welcome":
            self._do(self.machine.on_open(place, now))
        else:
            if isinstance(message, Event):
                event = place, message.broker, message.number
                first = self.events.setdefault(event, message.delivery)
                assert first == message.delivery, f"{self.name} was sent {message} as {first} too"
            self._do(self.machine.on_message(place, message, now))

    def _close(self, place: int, wire: Wire) -> None:
        if self.wires.get(place) is wire:
            del self.wires[place]
            self._do(self.machine.on_close(place, self.world.clock.now))
            self.world.clock.at(self.world.clock.now + RETRY, partial(self._dial, place))


SMALL = HostParams(
    lease=10_000.0,
    outbox_events=1_000,
    deliveries=2,
    publications=3,
    kept_events=12,
    links=LinkLimits(3, 10_000, statements=2),
    timing=TIMING,
)


class Network:
    """Brokers, links and applications; same seed, same run."""

    def __init__(
        self,
        policy: Covering,
        links: list[tuple[str, str]],
        rng: np.random.Generator,
        *,
        params: HostParams = SMALL,
        encodes: bool = False,
    ) -> None:
        self.policy = policy
        self.params = params
        self.rng = rng
        self.encodes = encodes
        self.clock = Clock()
        self.saved: dict[str, dict[Hashable, object]] = {}
        self.starts: dict[str, int] = {}
        self.processes: dict[str, Process] = {}
        self.applications: dict[str, Application] = {}
        self.links: dict[tuple[str, str], Wire | None] = {}
        self.parted: set[tuple[str, str]] = set()
        self.cuts: list[tuple[str, str]] = []
        self.refusals: list[tuple[str, str, str]] = []
        for pair in links:
            for name in pair:
                if name not in self.saved:
                    self.start(name)
            self.link(*pair)

    def draw_delay(self) -> float:
        return float(self.rng.choice([0.002, 0.02, 0.2]))

    def run(self, seconds: float) -> None:
        events = self.clock.run(until=self.clock.now + seconds, max_events=200_000)
        assert events < 200_000, "the network does not come to rest"

    # --- brokers ---------------------------------------------------------------------------------

    def start(self, name: str) -> None:
        """Start a broker, with what it saved before."""
        saved = self.saved.setdefault(name, {})
        self.starts[name] = self.starts.get(name, 0) + 1
        process = Process(self, name, Recovery(self.starts[name], read_again(saved)))
        self.processes[name] = process
        process.call(process.host.start)

    def crash(self, name: str) -> None:
        """End a broker at once."""
        process = self.processes.pop(name)
        process.is_alive = False
        for wire, _ in process.wires.values():
            wire.close()

    def add_application(self, name: str, broker: str, **words: Any) -> Application:
        found = self.applications[name] = Application(self, name, broker, ClientParams(**words))
        return found

    # --- links -----------------------------------------------------------------------------------

    def link(self, a: str, b: str) -> None:
        """Configure a link at the broker `a`, which keeps it up."""
        self.links[a, b] = None
        self._keep_up(a, b)

    def unlink(self, a: str, b: str) -> None:
        """Remove a link from the configuration."""
        if wire := self.links.pop((a, b)):
            wire.close()

    def _keep_up(self, a: str, b: str) -> None:
        if (a, b) not in self.links:
            return
        wire = self.links[a, b]
        if wire is None or not wire.is_open:
            self.links[a, b] = None
            if a in self.processes and b in self.processes and (a, b) not in self.parted:
                self._connect(a, b)
        self.clock.at(self.clock.now + RETRY, partial(self._keep_up, a, b))

    def _connect(self, a: str, b: str) -> None:
        process = self.processes[a]
        wire = self.links[a, b] = Wire(self, self.draw_delay())
        wire.takes = [partial(process.on_welcome, wire, b), lambda _: None]
        wire.closes = [lambda: None, lambda: None]
        mine: Identity = process.host.identity
        hello = Hello("broker", a, mine.versions, mine.schema, mine.incarnation, mine.links)
        accept = self.processes[b].accept
        self.clock.at(self.clock.now + wire.delay, partial(accept, wire, hello))

    def part(self, pair: tuple[str, str]) -> None:
        """Cut a link until it is mended."""
        self.parted.add(pair)
        if wire := self.links[pair]:
            wire.close()

    # --- the end ---------------------------------------------------------------------------------

    def mend(self) -> None:
        """Let everything come back."""
        self.parted.clear()
        for name in self.saved:
            if name not in self.processes:
                self.start(name)
            self.processes[name].fails_to_save = False
        for application in self.applications.values():
            application.come_back()
            application.pause = 0.0

    def settle(self, most: float = 600.0) -> None:
        """Go on until all is delivered that must be, and a little longer."""
        end = self.clock.now + most
        while self.clock.now < end and (self._is_under_way() or [*self.find_missing()]):
            self.run(5.0)
        self.run(8.0)

    def _is_under_way(self) -> bool:
        return any(
            each.tickets or each.machine.moving is not None for each in self.applications.values()
        )

    # --- the judge -------------------------------------------------------------------------------

    def find_problems(self) -> list[str]:
        """What applications lack, got twice, out of order, or without having asked."""
        problems = [*self.find_missing()]
        pubs = {(p.publisher, p.number): p for a in self.applications.values() for p in a.pubs}
        for name, application in self.applications.items():
            if application.has_ended:
                problems.append(f"{name} was dismissed")
            if application.tickets:
                problems.append(f"{name} waits for {len(application.tickets)} publications")
            for sub in application.subs.values():
                last: dict[str, int] = {}
                for publisher, number in sub.got:
                    pub = pubs[publisher, number]
                    if number <= last.get(publisher, -1):
                        problems.append(f"{name} got {pub} after {last[publisher]}")
                    last[publisher] = number
                    if not sub.wants(pub.x, pub.y) or pub.state == "refused":
                        problems.append(f"{name} got {pub} and did not want it")
        return problems

    def find_leftovers(self) -> list[str]:
        """What brokers still hold though nothing is under way."""
        found = []
        for name, process in self.processes.items():
            broker = process.host.broker
            sizes = dict(broker.sizes)
            marks = sizes.pop("marks")
            if any(sizes.values()) or broker.unfinished.own:
                found.append(f"{name} still holds {sizes}")
            if marks > 2 * len(broker.core.advertisements.hops):
                found.append(f"{name} remembers {marks} numbers")
        return found

    def find_missing(self) -> list[str]:
        """Stored publications that a subscription lacks which was known everywhere before."""
        stored = [
            pub for a in self.applications.values() for pub in a.pubs if pub.state == "stored"
        ]
        found = []
        for name, application in self.applications.items():
            for sub in application.subs.values():
                if sub.settled is None or sub.ended is not None:
                    continue
                got = set(sub.got)
                missing = [
                    pub
                    for pub in stored
                    if pub.called > sub.settled
                    and sub.wants(pub.x, pub.y)
                    and (pub.publisher, pub.number) not in got
                ]
                if len(missing) > sub.lost:
                    found += [f"{name} lacks {pub}" for pub in missing]
        return found
