"""Broker processes and clients in virtual time: the machines of production over wires that break.

A process performs the saves of an input at once and the rest a moment later, so that a crash can
come in between.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

import numpy as np

from distributary.content.client_actions import ClientParams
from distributary.content.connections import Timing
from distributary.content.host import BrokerHost
from distributary.content.host_params import HostParams
from distributary.content.link_queue import LinkLimits
from distributary.content.messages import Statement
from distributary.content.policies import Covering
from distributary.content.protocol import (
    Cut,
    Goodbye,
    Hello,
    Identity,
    Peer,
    Refusal,
    SendFrame,
)
from distributary.content.recovery import Recovery
from distributary.content.sessions import SessionRecord
from distributary.machines.actions import Save, SetTimer, Work
from distributary.machines.virtual import Clock
from tests.content.applications import Application, Pub
from tests.content.faults import read_again
from tests.content.wires import MOMENT, RETRY, Wire
from tests.content.worlds import SCHEMA

TIMING = Timing(resend=0.5, longest=4.0, answer=0.01, window=4)


def is_statement(message: object) -> bool:
    return isinstance(message, Statement)


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
        self._finishes = False

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
        """Whatever happens, a broker holds no more than it may, except within a turn."""
        host, params = self.host, self.world.params
        if host.broker.holds_back:
            return
        for neighbour, queue in host.broker.queues.items():
            most = params.links.publications
            assert queue.unfinished <= most, f"{neighbour} has {queue.unfinished} unfinished"
            if neighbour not in host.connected:
                waiting = host.broker.connections[neighbour].count_unsent(is_statement)
                assert waiting <= params.links.statements, f"{waiting} statements for {neighbour}"
        for session in host.sessions.all():
            most = session.record.most_events + (session.record.when_full == "drop-oldest")
            assert len(session.outbox) <= most, f"{session.client}'s outbox is too full"
        spares = any(each.spare_used >= 0 for each in host.sessions.all())
        most = (1 + spares) * params.kept_events + params.publications * len(host.sessions)
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
            if not self.world.turn:
                self.call(self.host.on_message, number, message)
            elif self.is_alive:
                self.host.take_message(number, message, self.world.clock.now)
                if not self._finishes:
                    self._finishes = True
                    self.world.clock.at(self.world.clock.now + self.world.turn, self._finish_turn)

    def _finish_turn(self) -> None:
        self._finishes = False
        self.call(self.host.finish_turn)

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


SMALL = HostParams(
    lease=10_000.0,
    patience=10_000.0,
    outbox_events=1_000,
    deliveries=2,
    publications=3,
    kept_events=12,
    links=LinkLimits(3, 10_000, statements=2),
    timing=TIMING,
)


class Network:
    """Brokers, links and applications; same seed, same run.

    Brokers collect messages for `turn` seconds and handle them in one turn; at 0 each on its own.
    """

    def __init__(
        self,
        policy: Covering,
        links: list[tuple[str, str]],
        rng: np.random.Generator,
        *,
        params: HostParams = SMALL,
        encodes: bool = False,
        turn: float = 0.0,
    ) -> None:
        self.policy = policy
        self.turn = turn
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

    def find_acknowledged(self, broker: str, client: str) -> tuple[int, int]:
        """Look up a client's session at a broker, and up to where it has acknowledged."""
        saved = self.saved[broker]
        session = saved.get(("session", client))
        numbers = [
            key[2]
            for key, value in saved.items()
            if isinstance(key, tuple) and key[:2] == ("outbox", client) and value is True
        ]
        return (session.number if isinstance(session, SessionRecord) else 0), max(
            numbers, default=0
        )

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
        self.run(8.0 + 200 * self.turn)

    def _is_under_way(self) -> bool:
        return any(
            each.tickets
            or each.machine.moving is not None
            or each.machine.unclaimed
            or not each.is_ready
            for each in self.applications.values()
        )

    # --- the judge -------------------------------------------------------------------------------

    def find_problems(self) -> list[str]:
        """What applications lack, got twice, out of order, or without having asked."""
        problems = [*self.find_missing()]
        pubs = {(p.publisher, p.number): p for a in self.applications.values() for p in a.pubs}
        for name, application in self.applications.items():
            if application.process.has_ended:
                problems.append(f"{name} was dismissed")
            if application.tickets:
                problems.append(f"{name} waits for {len(application.tickets)} publications")
            for sub in application.all_subs:
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
            sizes.pop("marks")
            marks = {*broker._routed, *broker._served} - broker.core.advertisements.hops.keys()
            if any(sizes.values()) or broker.unfinished.own:
                found.append(f"{name} still holds {sizes}")
            if marks:
                found.append(f"{name} remembers numbers of {marks}, which have ended")
        return found

    def find_missing(self) -> list[str]:
        """Stored publications that a subscription lacks which was known everywhere before."""
        stored = self._list_stored()
        found = []
        for name, application in self.applications.items():
            for sub in application.all_subs:
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
                if len(missing) > len(sub.lost):
                    found += [f"{name} lacks {pub}" for pub in missing]
        return found

    def _list_stored(self) -> list[Pub]:
        """What is stored, also that which nobody was told of but some application got."""
        applications = self.applications.values()
        got = {each for a in applications for sub in a.all_subs for each in sub.got}
        return [
            pub
            for application in applications
            for pub in application.pubs
            if pub.state == "stored" or (pub.publisher, pub.number) in got
        ]
