"""Clients in virtual time, and the applications that use them: both crash, and come back.

An application knows what it asked for, was told and got. It keeps an event when it has processed
it; a crash costs it the events that it was processing, and the answers that were under way.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol

from distributary.content.client_actions import (
    ClientParams,
    Complete,
    Dial,
    EndClient,
    Fail,
    HandEvent,
    HandLoss,
    HangUp,
    LostEvents,
    ReceivedEvent,
    Settle,
)
from distributary.content.client_machine import ClientMachine
from distributary.content.client_session import TakenFrom
from distributary.content.protocol import (
    WIRE_VERSIONS,
    Event,
    Hello,
    SendFrame,
    SessionOpened,
    Welcome,
)
from distributary.machines.actions import SetTimer
from tests.content.wires import MOMENT, RETRY, Wire, World


class ApplicationWorld(World, Protocol):
    """The network of an application."""

    processes: dict[str, Any]

    def draw_delay(self) -> float:
        """Draw how long a message takes over a new wire."""

    def find_acknowledged(self, broker: str, client: str) -> tuple[int, int]:
        """Look up a client's session at a broker, and up to where it has acknowledged."""


class Delivery(NamedTuple):
    """One delivery of one session."""

    broker: str
    session: int
    number: int


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
    lost: set[Delivery] = field(default_factory=set)
    unprocessed: dict[tuple[str, int], Delivery] = field(default_factory=dict)
    processed: dict[tuple[str, int], Delivery] = field(default_factory=dict)
    repeated: set[tuple[str, int]] = field(default_factory=set)  # may come a second time

    @property
    def text(self) -> str:
        (a, b), (c, d) = self.x, self.y
        return f"x >= {a} AND x < {b} AND y >= {c} AND y < {d}"

    def wants(self, x: int, y: int) -> bool:
        return self.x[0] <= x < self.x[1] and self.y[0] <= y < self.y[1]

    def take(self, event: tuple[str, int], delivery: Delivery) -> None:
        self.unprocessed[event] = delivery
        if event in self.repeated:
            self.repeated.discard(event)
        else:
            self.got.append(event)

    def process(self, event: tuple[str, int]) -> None:
        self.processed[event] = self.unprocessed.pop(event)

    def crash(self, acknowledged: Delivery) -> None:
        """Forget what was not processed; what was not acknowledged either may come again."""
        lately = {
            event
            for event, delivery in self.processed.items()
            if delivery[:2] == acknowledged[:2] and delivery.number > acknowledged.number
        }
        self.got = [each for each in self.got if each not in self.unprocessed or each in lately]
        self.repeated = lately
        self.unprocessed.clear()


@dataclass
class Pub:
    """An event that an application published."""

    publisher: str
    number: int
    x: int
    y: int
    called: float
    state: str = "under way"


class ClientProcess:
    """One incarnation of a client: its machine, and the shell of that."""

    def __init__(self, application: Application) -> None:
        self.application = application
        self.world = application.world
        self.machine = ClientMachine(application.broker, application.params)
        self.tickets: dict[int, Pub] = {}
        self.move_ticket = 0
        self.places: dict[int, str] = {}
        self.wires: dict[int, Wire] = {}
        self.timers: dict[str, int] = {}
        self.sessions: dict[int, int] = {}
        self.is_alive = True
        self.has_ended = False

    def start(self) -> None:
        """Connect."""
        self.do(self.machine.start(self.world.clock.now))

    def crash(self) -> None:
        """End at once; what was written to the wires may arrive, and brokers notice some time."""
        self.is_alive = False
        for wire in self.wires.values():
            wire.close(after=float(self.world.rng.choice([0.0, wire.delay + MOMENT, 3.0])))
        for pub in self.tickets.values():
            pub.state = "unknown"
        self.tickets.clear()

    def do(self, actions: list[Any]) -> None:
        for action in actions if self.is_alive else ():
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
                    elif ticket == self.move_ticket:
                        self.application.broker = self.machine.broker
                case Fail(ticket, _, is_unknown):
                    if ticket in self.tickets:
                        self.tickets.pop(ticket).state = "unknown" if is_unknown else "refused"
                case Settle(key):
                    self.application.note_settled(key.number)
                case HandEvent(numbers, event):
                    self.application.take_event(numbers, event, self._locate(event.taken_from))
                case HandLoss(numbers, loss):
                    self.application.take_loss(numbers, loss, self._locate(loss.taken_from))
                case EndClient():
                    self.has_ended = True
                case _:
                    raise TypeError(f"a client does not do {action!r}")

    def finish(self, taken: TakenFrom) -> None:
        self.do(self.machine.finish(taken, self.world.clock.now))

    def _locate(self, taken: TakenFrom) -> Delivery:
        return Delivery(self.places[taken.place], taken.session, taken.delivery)

    def _set_timer(self, name: str, at: float | None) -> None:
        self.timers.pop(name, None)
        if at is not None:
            number = self.timers[name] = self.world.clock.scheduled
            self.world.clock.at(max(at, self.world.clock.now), partial(self._expire, name, number))

    def _expire(self, name: str, number: int) -> None:
        if self.is_alive and self.timers.get(name) == number:
            del self.timers[name]
            self.do(self.machine.on_timer(name, self.world.clock.now))

    def _dial(self, place: int) -> None:
        """Try to connect, and try again."""
        if not self.is_alive or place not in self.places or place in self.wires or self.has_ended:
            return
        process = self.world.processes.get(self.places[place])
        if process is None or self.application.is_away:
            self.world.clock.at(self.world.clock.now + RETRY, partial(self._dial, place))
            return
        wire = Wire(self.world, self.world.draw_delay())
        wire.takes = [partial(self._take, place, wire), lambda _: None]
        wire.closes = [partial(self._close, place, wire), lambda: None]
        self.wires[place] = wire
        hello = Hello("client", self.application.name, WIRE_VERSIONS)
        self.world.clock.at(self.world.clock.now + wire.delay, partial(process.accept, wire, hello))

    def _take(self, place: int, wire: Wire, message: Any) -> None:
        if not self.is_alive or self.wires.get(place) is not wire:
            return
        now = self.world.clock.now
        if isinstance(message, Welcome):
            self.do(self.machine.on_open(place, now))
            return
        if isinstance(message, SessionOpened):
            self.sessions[place] = message.session
        elif isinstance(message, Event):
            delivery = Delivery(self.places[place], self.sessions[place], message.delivery)
            self.application.check_delivery(message, delivery)
        self.do(self.machine.on_message(place, message, now))
        if isinstance(message, SessionOpened):
            self.application.on_session(self)

    def _close(self, place: int, wire: Wire) -> None:
        if self.is_alive and self.wires.get(place) is wire:
            del self.wires[place]
            self.do(self.machine.on_close(place, self.world.clock.now))
            self.world.clock.at(self.world.clock.now + RETRY, partial(self._dial, place))


class Application:
    """A program that uses a client: what it wants and has, whatever its process is."""

    def __init__(
        self, world: ApplicationWorld, name: str, broker: str, params: ClientParams
    ) -> None:
        self.world = world
        self.name = name
        self.broker = broker  # where it starts its next process
        self.params = params
        self.may_lose = params.when_full == "drop-oldest"
        self.subs: dict[int, Sub] = {}
        self.former: list[Sub] = []  # that have ended in former processes
        self.pubs: list[Pub] = []
        self.advertised: int | None = None
        self.deliveries: dict[tuple[str, int, str, int], int] = {}
        self.acknowledged: dict[tuple[str, int], int] = {}  # at a crash, by session
        self.crashes = 0
        self.is_away = False
        self.is_ready = True  # it has told its process what it wants
        self.pause = 0.0  # how long it takes to process an event
        self.process = ClientProcess(self)
        self.process.start()

    @property
    def machine(self) -> ClientMachine:
        return self.process.machine

    @property
    def wires(self) -> dict[int, Wire]:
        return self.process.wires

    @property
    def tickets(self) -> dict[int, Pub]:
        return self.process.tickets

    @property
    def all_subs(self) -> list[Sub]:
        return [*self.former, *self.subs.values()]

    # --- what the program does -------------------------------------------------------------------

    def subscribe(self, x: tuple[int, int], y: tuple[int, int]) -> None:
        sub = Sub(0, x, y, self.world.clock.now)
        if not any(other.text == sub.text and other.ended is None for other in self.all_subs):
            self._subscribe(sub)

    def _subscribe(self, sub: Sub) -> None:
        sub.number, _, actions = self.machine.subscribe(sub.text, self.world.clock.now)
        self.subs[sub.number] = sub
        self.process.do(actions)

    def unsubscribe(self, number: int) -> None:
        now = self.world.clock.now
        self.subs[number].ended = now
        self.process.do(self.machine.unsubscribe(number, now)[1])

    def advertise(self) -> None:
        """Advertise everything in words, or withdraw that."""
        now = self.world.clock.now
        if self.advertised is None:
            self.advertised, _, actions = self.machine.advertise("x >= 0", now)
        else:
            _, actions = self.machine.unadvertise(self.advertised, now)
            self.advertised = None
        self.process.do(actions)

    def publish(self, x: int, y: int) -> None:
        now = self.world.clock.now
        pub = Pub(self.name, len(self.pubs), x, y, now)
        self.pubs.append(pub)
        payload = f"{self.name} {pub.number}".encode()
        ticket, actions = self.machine.publish({"x": x, "y": y}, payload, now)
        self.tickets[ticket] = pub
        self.process.do(actions)

    def move(self, broker: str) -> None:
        if self.machine.moving is None and broker != self.machine.broker:
            ticket, actions = self.machine.move(broker, self.world.clock.now)
            self.process.move_ticket = ticket
            self.process.do(actions)

    def go_away(self) -> None:
        self.is_away = True
        for wire in list(self.wires.values()):
            wire.close()

    def come_back(self) -> None:
        self.is_away = False

    # --- crashes ---------------------------------------------------------------------------------

    def crash(self) -> None:
        """End the process at once, and start another one with what the program has kept."""
        session, number = self.world.find_acknowledged(self.broker, self.name)
        self.acknowledged[self.broker, session] = number
        for sub in self.subs.values():
            sub.crash(Delivery(self.broker, session, number))
        self.process.crash()
        self.crashes += 1
        self.is_ready = False
        self.process = ClientProcess(self)
        self.process.start()

    def on_session(self, process: ClientProcess) -> None:
        """The client has a session: in a new process, ask for what the former one wanted."""
        if not self.is_ready and process is self.process:
            late = float(self.world.rng.choice([0.0, 0.1, 5.0]))
            self.world.clock.at(self.world.clock.now + late, partial(self._ask_again, process))

    def _ask_again(self, process: ClientProcess) -> None:
        if self.is_ready or process is not self.process:
            return
        self.is_ready = True
        subs, self.subs = self.subs, {}
        self.former += [sub for sub in subs.values() if sub.ended is not None]
        for sub in subs.values():
            if sub.ended is None:
                self._subscribe(sub)
        if self.advertised is not None:
            self.advertised = None
            self.advertise()

    # --- what it is told and gets ----------------------------------------------------------------

    def note_settled(self, number: int) -> None:
        sub = self.subs.get(number)
        if sub is not None and sub.settled is None:
            sub.settled = self.world.clock.now

    def take_event(
        self, numbers: tuple[int, ...], event: ReceivedEvent, delivery: Delivery
    ) -> None:
        publisher, number = event.payload.decode().rsplit(maxsplit=1)
        assert publisher == event.publisher
        for each in numbers:
            sub = self.subs[each]
            sub.take((publisher, int(number)), delivery)
            finished = partial(sub.process, (publisher, int(number)))
            self._process_later(event.taken_from, finished)

    def take_loss(self, numbers: tuple[int, ...], loss: LostEvents, delivery: Delivery) -> None:
        assert self.may_lose, loss.reason
        assert loss.count is not None, loss.reason
        last = delivery.number
        lost = {delivery._replace(number=n) for n in range(last - loss.count + 1, last + 1)}
        for number in numbers:
            self._process_later(loss.taken_from, partial(self.subs[number].lost.update, lost))

    def _process_later(self, taken: TakenFrom, keep: Any) -> None:
        process = self.process

        def finish() -> None:
            if process.is_alive:
                keep()
                process.finish(taken)

        self.world.clock.at(self.world.clock.now + self.pause, finish)

    def check_delivery(self, message: Event, delivery: Delivery) -> None:
        """Whatever crashes, a session has an event once, and not after it is acknowledged."""
        event = *delivery[:2], message.broker, message.number
        first = self.deliveries.setdefault(event, message.delivery)
        assert first == message.delivery, f"{self.name} was sent {message} as {first} too"
        last = self.acknowledged.get(delivery[:2], 0)
        assert message.delivery > last, f"{self.name} got {message} and had acknowledged {last}"
