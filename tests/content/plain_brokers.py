"""A plain model of a network of brokers as one client sees it, and schedules that drive the client.

The model keeps the rules of `content.protocol` in the simplest way: lists, and no routing. Every
step is drawn: a message arrives, the application acts, a connection breaks, an event is published
elsewhere, arrives or settles. The application's own record says what must have come of it.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field
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
    ReceivedEvent,
    Settle,
)
from distributary.content.client_machine import ClientMachine
from distributary.content.client_move import MoveState
from distributary.content.client_session import TakenFrom
from distributary.content.protocol import (
    Accepted,
    Acknowledge,
    Advertise,
    CloseSession,
    Dropped,
    Ended,
    Event,
    OpenSession,
    Publish,
    Refused,
    SendFrame,
    SessionClosed,
    SessionOpened,
    Stored,
    Subscribe,
    Unadvertise,
    Unsubscribe,
)
from distributary.machines.actions import SetTimer

WINDOW = 3
SIDE = 6


def matches(text: str, value: int) -> bool:
    """Filters are `x < 3`."""
    return value < int(text.removeprefix("x < "))


@dataclass
class PlainSession:
    """A session as a broker has it: numbers from 1, and events until they are acknowledged."""

    number: int
    ephemeral: bool
    subscriptions: dict[int, str] = field(default_factory=dict)
    advertisements: dict[int, str] = field(default_factory=dict)
    settled: set[tuple[str, int]] = field(default_factory=set)
    published: int = 0
    refused: list[int] = field(default_factory=list)
    outbox: deque[Event | Dropped] = field(default_factory=deque)
    deliveries: int = 0
    coming: deque[tuple[Event, dict[int, bool]]] = field(default_factory=deque)
    drains: bool = False


@dataclass
class PlainBroker:
    """One broker: at most one session of the client, and what it has published."""

    name: str
    session: PlainSession | None = None
    sessions: int = 0
    numbers: int = 0


class PlainNetwork:
    """All brokers. `log` has every event that was stored, in order, with its value and payload."""

    def __init__(self, rng: np.random.Generator, names: tuple[str, ...]) -> None:
        self.rng = rng
        self.brokers = {name: PlainBroker(name) for name in names}
        self.log: list[tuple[str, str, int, int, bytes]] = []
        self.acknowledged: list[tuple[str, int, int]] = []  # broker, session, delivery

    def publish(self, at: str, publisher: str, value: int, payload: bytes) -> int:
        """Store an event, and send it towards every session that may or must get it."""
        broker = self.brokers[at]
        broker.numbers += 1
        self.log.append((at, publisher, broker.numbers, value, payload))
        for each in self.brokers.values():
            session = each.session
            if session is None:
                continue
            wanted = {
                number: ("subscription", number) in session.settled or self.rng.random() < 0.5
                for number, text in session.subscriptions.items()
                if matches(text, value)
            }
            if any(wanted.values()):
                event = Event(0, (), at, publisher, broker.numbers, {"x": value}, payload, 0.0)
                session.coming.append((event, wanted))
        return broker.numbers

    def arrive(self, broker: PlainBroker) -> list[Any]:
        """The next event on its way reaches the broker, which delivers it."""
        session = broker.session
        assert session is not None
        event, wanted = session.coming.popleft()
        numbers = tuple(n for n, goes in wanted.items() if goes and n in session.subscriptions)
        if not numbers:
            return self.close_if_drained(broker)
        session.deliveries += 1
        found = Event(
            session.deliveries,
            numbers,
            event.broker,
            event.publisher,
            event.number,
            event.attributes,
            event.payload,
            event.published,
        )
        session.outbox.append(found)
        return [found]

    def drop(self, session: PlainSession) -> Dropped:
        """Drop all that is not acknowledged."""
        first = session.outbox[0]
        low = first.delivery if isinstance(first, Event) else first.first
        session.outbox = deque([Dropped(low, session.deliveries, "full")])
        return Dropped(low, session.deliveries, "full")

    def settle(self, broker: PlainBroker, key: tuple[str, int]) -> list[Any]:
        """A request is known everywhere."""
        assert broker.session is not None
        broker.session.settled.add(key)
        return [Accepted(key[0], key[1], settled=True)]  # type: ignore[arg-type]

    def close_if_drained(self, broker: PlainBroker) -> list[Any]:
        session = broker.session
        if session is None or not session.drains or session.coming or session.outbox:
            return []
        broker.session = None
        return [SessionClosed()]

    def hear(self, broker: PlainBroker, message: Any) -> list[Any]:
        """Answer a message of the client."""
        if isinstance(message, OpenSession):
            return self._open(broker, message)
        session = broker.session
        if session is None:
            return []
        match message:
            case Subscribe(number, text):
                return self._keep(session, "subscription", session.subscriptions, number, text)
            case Advertise(number, text):
                return self._keep(session, "advertisement", session.advertisements, number, text)
            case Unsubscribe(number):
                session.subscriptions.pop(number, None)
                session.settled.discard(("subscription", number))
                return [Ended("subscription", number)]
            case Unadvertise(number):
                session.advertisements.pop(number, None)
                session.settled.discard(("advertisement", number))
                return [Ended("advertisement", number)]
            case Publish():
                return self._store(broker, session, message)
            case Acknowledge(delivery):
                self._acknowledge(broker, session, delivery)
                return self.close_if_drained(broker)
            case CloseSession(drain):
                session.drains = drain
                if not drain:
                    broker.session = None
                    return [SessionClosed()]
                return self.close_if_drained(broker)
        raise AssertionError(message)

    def _open(self, broker: PlainBroker, message: OpenSession) -> list[Any]:
        session = broker.session
        resumed = session is not None and message.session in (0, session.number)
        if session is None or not resumed:
            broker.sessions += 1
            session = broker.session = PlainSession(broker.sessions, message.ephemeral)
        else:
            self._acknowledge(broker, session, message.received)
        opened = SessionOpened(
            session.number,
            resumed,
            session.published,
            WINDOW,
            tuple(session.subscriptions),
            tuple(session.advertisements),
            tuple(session.refused[-WINDOW:]),
            len(session.outbox),
        )
        return [opened, *session.outbox]

    def _keep(
        self, session: PlainSession, kind: str, place: dict[int, str], number: int, text: str
    ) -> list[Any]:
        if not text.startswith("x < "):
            return [Refused(kind, number, "not a filter")]  # type: ignore[arg-type]
        if place.get(number) != text:
            place[number] = text
            session.settled.discard((kind, number))
        settled = (kind, number) in session.settled
        return [Accepted(kind, number, settled)]  # type: ignore[arg-type]

    def _store(self, broker: PlainBroker, session: PlainSession, message: Publish) -> list[Any]:
        assert message.number <= session.published + WINDOW, "more than there is room for"
        if message.number <= session.published:
            return []
        assert message.number == session.published + 1, "a publication is missing"
        session.published = message.number
        value = message.attributes["x"]
        assert isinstance(value, int)
        if value < 0:
            session.refused.append(message.number)
            refused = Refused("publication", message.number, "below 0")
            return [refused, Stored(session.published, WINDOW)]
        self.publish(broker.name, "me", value, message.payload)
        return [Stored(session.published, WINDOW)]

    def _acknowledge(self, broker: PlainBroker, session: PlainSession, delivery: int) -> None:
        assert delivery <= session.deliveries, "what was not delivered is acknowledged"
        self.acknowledged.append((broker.name, session.number, delivery))
        while session.outbox and _last(session.outbox[0]) <= delivery:
            session.outbox.popleft()


def _last(item: Event | Dropped) -> int:
    return item.delivery if isinstance(item, Event) else item.last


@dataclass
class Line:
    """The connection of a place, as the shell has it: two queues that keep the order."""

    broker: str
    up: deque[Any] = field(default_factory=deque)
    down: deque[Any] = field(default_factory=deque)
    is_connected: bool = False
    stays: bool = True


@dataclass
class Wish:
    """A subscription of the application: from when to when every event must come, by the log."""

    number: int
    text: str
    since: int | None = None
    until: int | None = None
    got: list[ReceivedEvent] = field(default_factory=list)
    lost: int = 0


class Schedule:
    """One client, its application and its network, driven by drawn steps."""

    def __init__(
        self,
        seed: int,
        *,
        names: tuple[str, ...] = ("a", "b", "c"),
        params: ClientParams | None = None,
        loses_sessions: bool = False,
        drops: bool = False,
    ) -> None:
        self.rng = np.random.default_rng(seed)
        self.network = PlainNetwork(self.rng, names)
        self.params = params or ClientParams(acknowledge_every=3)
        self.loses_sessions = loses_sessions
        self.drops = drops
        self.lines: dict[int, Line] = {}
        self.timers: dict[str, float] = {}
        self.now = 0.0
        self.wishes: list[Wish] = []
        self.open: dict[int, Wish] = {}
        self.settling: dict[int, Wish] = {}
        self.unfinished: list[TakenFrom] = []
        self.finished: defaultdict[tuple[int, int], set[int]] = defaultdict(set)
        self.handed: defaultdict[TakenFrom, int] = defaultdict(int)
        self.published: dict[int, bytes] = {}  # by ticket
        self.outcomes: dict[int, str] = {}
        self.moves = 0
        self.machine = ClientMachine(names[0], self.params)
        self.perform(self.machine.start(self.now))

    # --- the shell --------------------------------------------------------------------------------

    def perform(self, actions: list[Any]) -> None:
        for action in actions:
            match action:
                case SendFrame(place, message):
                    line = self.lines[place]
                    assert line.is_connected, "sent over a broken connection"
                    if isinstance(message, Acknowledge):
                        self.check_acknowledged(place, message.delivery)
                    line.up.append(message)
                case SetTimer(name, at):
                    assert at is not None
                    self.timers[name] = at
                case Dial(place, broker):
                    self.lines[place] = Line(broker)
                case HangUp(place):
                    self.lines[place].stays = False
                case HandEvent(numbers, event):
                    for number in numbers:
                        self.open[number].got.append(event)
                        self.unfinished.append(event.taken_from)
                        self.handed[event.taken_from] += 1
                case HandLoss(numbers, loss):
                    for number in numbers:
                        self.open[number].lost += 1
                        self.unfinished.append(loss.taken_from)
                        self.handed[loss.taken_from] += 1
                case Complete(ticket):
                    assert ticket not in self.outcomes
                    self.outcomes[ticket] = "done"
                case Fail(ticket, _, is_unknown):
                    assert ticket not in self.outcomes
                    self.outcomes[ticket] = "unknown" if is_unknown else "refused"
                case Settle(key):
                    if key.kind == "subscription" and key.number in self.settling:
                        wish = self.settling.pop(key.number)
                        wish.since = len(self.network.log)
                case EndClient(reason):
                    raise AssertionError(reason)
                case _:
                    raise AssertionError(action)

    def check_acknowledged(self, place: int, delivery: int) -> None:
        """What is acknowledged has been processed, by all who got it."""
        for taken in self.unfinished:
            same = taken.place == place and taken.session == self.session_of(place)
            assert not same or taken.delivery > delivery or taken.delivery == 0

    def session_of(self, place: int) -> int | None:
        session = self.network.brokers[self.lines[place].broker].session
        return None if session is None else session.number

    # --- steps ------------------------------------------------------------------------------------

    def step(self) -> None:
        """Do one thing that can happen now."""
        self.now += float(self.rng.exponential(0.02))
        for name in [name for name, at in self.timers.items() if at <= self.now]:
            del self.timers[name]
            self.perform(self.machine.on_timer(name, self.now))
        steps = [self.connect, self.go_up, self.go_down, self.arrive, self.settle, self.finish]
        acts = [self.subscribe, self.publish, self.publish_elsewhere, self.break_line]
        acts += [self.unsubscribe] if self.rng.random() < 0.3 else []
        acts += [self.move] if self.rng.random() < 0.4 else []
        acts += [self.lose_session] if self.loses_sessions and self.rng.random() < 0.2 else []
        acts += [self.drop] if self.drops and self.rng.random() < 0.2 else []
        choice = steps if self.rng.random() < 0.85 else acts
        choice[int(self.rng.integers(len(choice)))]()

    def run(self, steps: int) -> None:
        """Draw steps, then let everything that is under way finish."""
        for _ in range(steps):
            self.step()
        for _ in range(100_000):
            self.now += 0.1
            for name in [name for name, at in self.timers.items() if at <= self.now]:
                del self.timers[name]
                self.perform(self.machine.on_timer(name, self.now))
            did = [
                each()
                for each in (self.connect, self.go_up, self.go_down, self.arrive, self.settle)
            ]
            did.append(self.finish())
            if not any(did) and not self.timers:
                return
        raise AssertionError("it never ends")

    def pick(self, some: list[Any]) -> Any:
        return some[int(self.rng.integers(len(some)))]

    def connect(self) -> bool:
        for place, line in self.lines.items():
            if line.stays and not line.is_connected:
                line.is_connected = True
                self.perform(self.machine.on_open(place, self.now))
                return True
        return False

    def go_up(self) -> bool:
        lines = [line for line in self.lines.values() if line.up]
        if not lines:
            return False
        line = self.pick(lines)
        message = line.up.popleft()
        if isinstance(message, OpenSession):  # the newest connection of a client wins
            for place, other in self.lines.items():
                if other is not line and other.broker == line.broker and other.is_connected:
                    self.cut(place, other)
        said = self.network.hear(self.network.brokers[line.broker], message)
        line.down.extend(said)
        self.close(line)
        return True

    def go_down(self) -> bool:
        lines = [(place, line) for place, line in self.lines.items() if line.down]
        if not lines:
            return False
        place, line = self.pick(lines)
        self.perform(self.machine.on_message(place, line.down.popleft(), self.now))
        self.close(line)
        return True

    def close(self, line: Line) -> None:
        """Close a connection that was hung up once all is written."""
        if not line.stays and not line.up:
            line.is_connected = False
            line.down.clear()

    def say(self, broker: str, messages: list[Any]) -> None:
        """A broker says something to the client, if it is connected and has opened its session."""
        for line in self.lines.values():
            opening = any(isinstance(each, OpenSession) for each in line.up)
            if line.broker == broker and line.is_connected and line.stays and not opening:
                line.down.extend(messages)

    def arrive(self) -> bool:
        brokers = [b for b in self.network.brokers.values() if b.session and b.session.coming]
        if not brokers:
            return False
        broker = self.pick(brokers)
        self.say(broker.name, self.network.arrive(broker))
        return True

    def settle(self) -> bool:
        found = [
            (broker, key)
            for broker in self.network.brokers.values()
            if broker.session
            for key in (
                *(("subscription", each) for each in broker.session.subscriptions),
                *(("advertisement", each) for each in broker.session.advertisements),
            )
            if key not in broker.session.settled
        ]
        if not found:
            return False
        broker, key = self.pick(found)
        self.say(broker.name, self.network.settle(broker, key))
        return True

    def finish(self) -> bool:
        """The application processes the oldest event or, as there are several tasks, another."""
        if not self.unfinished:
            return False
        at = 0 if self.rng.random() < 0.7 else int(self.rng.integers(len(self.unfinished)))
        self.perform(self.machine.finish(self.unfinished.pop(at), self.now))
        return True

    # --- the application --------------------------------------------------------------------------

    def subscribe(self) -> None:
        text = f"x < {int(self.rng.integers(1, SIDE + 1))}"
        if any(wish.text == text for wish in self.open.values()):
            return
        number, _, actions = self.machine.subscribe(text, self.now)
        wish = Wish(number, text)
        self.wishes.append(wish)
        self.open[number] = self.settling[number] = wish
        self.perform(actions)

    def unsubscribe(self) -> None:
        if not self.open:
            return
        number = self.pick(list(self.open))
        wish = self.open.pop(number)
        self.settling.pop(number, None)
        wish.until = len(self.network.log)
        mine = {event.taken_from for event in wish.got}
        for taken in [each for each in self.unfinished if each in mine]:
            count = sum(event.taken_from == taken for each in self.wishes for event in each.got)
            if count == 1:  # others that have it process it themselves
                self.unfinished.remove(taken)
                self.perform(self.machine.finish(taken, self.now))
        self.perform(self.machine.unsubscribe(number, self.now)[1])

    def publish(self) -> None:
        value = int(self.rng.integers(-1, SIDE))
        payload = f"mine {len(self.published)}".encode()
        ticket, actions = self.machine.publish({"x": value}, payload, self.now)
        self.published[ticket] = payload
        self.perform(actions)

    def publish_elsewhere(self) -> None:
        broker = self.pick(list(self.network.brokers))
        publisher = self.pick(["ann", "bob"])
        self.network.publish(broker, publisher, int(self.rng.integers(SIDE)), b"other")

    def move(self) -> None:
        if self.machine.moving is MoveState.MAKING and self.rng.random() < 0.5:
            self.perform(self.machine.cancel_move(self.now))
        if self.machine.moving is not None:
            return
        others = [name for name in self.network.brokers if name != self.machine.broker]
        if others:
            self.moves += 1
            self.perform(self.machine.move(self.pick(others), self.now)[1])

    def break_line(self) -> None:
        lines = [(p, line) for p, line in self.lines.items() if line.is_connected and line.stays]
        if not lines:
            return
        place, line = self.pick(lines)
        self.cut(place, line)
        broker = self.network.brokers[line.broker]
        if broker.session is not None and broker.session.ephemeral:
            broker.session = None

    def cut(self, place: int, line: Line) -> None:
        """What is under way is lost."""
        line.up.clear()
        line.down.clear()
        line.is_connected = False
        self.perform(self.machine.on_close(place, self.now))

    def lose_session(self) -> None:
        """A lease runs out, which it does only while the client is away."""
        away = [line for line in self.lines.values() if line.stays and not line.is_connected]
        if away:
            self.network.brokers[self.pick(away).broker].session = None

    def drop(self) -> None:
        full = [b for b in self.network.brokers.values() if b.session and b.session.outbox]
        if full:
            broker = self.pick(full)
            assert broker.session is not None
            self.say(broker.name, [self.network.drop(broker.session)])
