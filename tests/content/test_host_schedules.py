"""Seeded runs of broker processes with clients: crashes, cuts, full disks, slow and absent clients.

Judged by what applications did: what was stored and wanted was delivered, once, and in order per
publisher.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from distributary.content import COVERING_POLICIES
from distributary.content.connections import Packet
from distributary.content.messages import Name, UnsubscribeStatement
from distributary.content.protocol import (
    WIRE_VERSIONS,
    Acknowledge,
    Hello,
    LinkFact,
    LinksKnown,
    OpenSession,
    Publish,
    Subscribe,
    Unsubscribe,
)
from tests.content.processes import SMALL, Network
from tests.content.wires import Wire
from tests.shrinking import checked

SIDE = 6
POLICIES = ("merging", "active", "pruning", "none")


class Schedule:
    """A network, and chance that does things to it."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = np.random.default_rng([seed, 18])
        n_brokers = int(rng.choice([1, 2, 3, 4], p=[0.1, 0.4, 0.35, 0.15]))
        links = [(f"b{int(rng.integers(0, at))}", f"b{at}") for at in range(1, n_brokers)]
        policy = COVERING_POLICIES[POLICIES[int(rng.integers(len(POLICIES)))]]
        turn = (0.0, 0.003, 0.05)[seed % 3]
        # A client that stays away for long: publishers wait for it, or its oldest are dropped.
        params = replace(SMALL, patience=0.0) if seed % 4 == 1 else SMALL
        encodes = bool(rng.random() < 0.05)
        self.network = Network(policy, links, rng, params=params, encodes=encodes, turn=turn)
        if not links:
            self.network.start("b0")
        self.brokers = sorted(self.network.saved)
        self.movers: list[Any] = []
        for at in range(int(rng.integers(2, 5))):
            # A client with a full outbox makes publishers wait; if it moves, it waits for itself.
            moves = bool(rng.random() < 0.4)
            full = "drop-oldest" if rng.random() < 0.2 else "wait"
            most = int(rng.integers(1, 6)) if not moves else 0
            if params is not SMALL:
                most = min(most, 1)
            words = {} if moves else {"most_events": most, "when_full": full}
            broker = str(rng.choice(self.brokers))
            application = self.network.add_application(f"c{at}", broker, **words)
            application.may_lose = application.may_lose or params is not SMALL
            if moves:
                self.movers.append(application)
        self.applications = list(self.network.applications.values())
        self.rushes = float(rng.choice([0.05, 0.5, 3.0]))

    def play(self, steps: int) -> None:
        for _ in range(steps):
            application = self.applications[int(self.rng.integers(len(self.applications)))]
            if self.rng.random() < 0.7:
                if application.is_ready:
                    self.act(application)
            else:
                self.break_something(application)
            self.network.run(float(self.rng.exponential(self.rushes)))

    def act(self, application: Any) -> None:
        what = self.rng.random()
        live = [sub.number for sub in application.subs.values() if sub.ended is None]
        if what < 0.3 or not live:
            application.subscribe(self.draw_range(), self.draw_range())
        elif what < 0.36:
            application.unsubscribe(live[int(self.rng.integers(len(live)))])
        elif what < 0.45 and application in self.movers and not application.crashes:
            # After a crash, nobody but the old broker knows what the client had from there.
            application.move(str(self.rng.choice(self.find_joined())))
        elif what < 0.5:
            application.advertise()
        else:
            for _ in range(int(self.rng.integers(1, 5))):
                application.publish(*map(int, self.rng.integers(0, SIDE, size=2)))

    def join(self) -> None:
        """A new broker joins, with an application."""
        name, at = f"b{len(self.brokers)}", str(self.rng.choice(self.brokers))
        self.network.start(name)
        self.network.link(*((name, at) if self.rng.random() < 0.5 else (at, name)))
        self.brokers.append(name)
        for _ in range(10):
            self.network.run(0.1)
            process = self.network.processes.get(name)
            if process is not None and process.host.broker.connections:
                # What is published from now on is for all; before, the broker was on its own.
                found = self.network.add_application(f"of {name}", name)
                self.applications.append(found)
                return

    def find_joined(self) -> list[str]:
        """The brokers that are part of the network: one that never had a link is on its own."""
        saved = self.network.saved
        joined = [name for name in self.brokers if any("neighbour" in key for key in saved[name])]
        return joined or self.brokers[:1]

    def link_wrongly(self) -> None:
        """Somebody configures a link that closes a cycle, and takes it back."""
        one, other = map(str, self.rng.choice(self.brokers, size=2, replace=False))
        process = self.network.processes.get(one)
        if process is not None and process.host.spanning.find_detour(other):
            self.network.link(one, other)
            self.network.run(float(self.rng.exponential(1.0)))
            self.network.unlink(one, other)

    def draw_range(self) -> tuple[int, int]:
        low = int(self.rng.integers(0, SIDE)) if self.rng.random() < 0.6 else 0
        return low, int(self.rng.integers(low + 1, SIDE + 1)) if self.rng.random() < 0.6 else SIDE

    def break_something(self, application: Any) -> None:
        network, what = self.network, self.rng.random()
        name = str(self.rng.choice(self.brokers))
        pairs = sorted(network.links)
        if what < 0.2:
            if name in network.processes:
                network.crash(name)
            else:
                network.start(name)
        elif what < 0.3 and name in network.processes:
            network.processes[name].fails_to_save = True
        elif what < 0.45 and pairs:
            pair = pairs[int(self.rng.integers(len(pairs)))]
            if pair in network.parted:
                network.parted.discard(pair)
            else:
                network.part(pair)
        elif what < 0.6:
            if application.is_away:
                application.come_back()
            else:
                application.go_away()
        elif what < 0.64:
            for wire in list(application.wires.values()):
                wire.close()
        elif what < 0.72:
            if application.machine.moving is None:
                application.crash()
        elif what < 0.74 and len(self.brokers) < 6:
            self.join()
        elif what < 0.76 and len(self.brokers) > 2:
            self.link_wrongly()
        elif what < 0.86:
            application.pause = float(self.rng.choice([0.0, 0.3, 5.0]))
        elif name in network.processes:
            intrude(network, name, application.name, self.rng)
        for each in [each for each in network.saved if each not in network.processes]:
            if self.rng.random() < 0.3:
                network.start(each)


def intrude(network: Network, broker: str, victim: str, rng: np.random.Generator) -> None:
    """Somebody says what he must not."""
    role = "client" if rng.random() < 0.7 else "broker"
    wire = Wire(network, 0.002, [lambda _: None] * 2, [lambda: None] * 2)
    process = network.processes[broker]
    mine = process.host.identity
    start = 1 if role == "broker" else 0
    hello = Hello(role, "mallory", WIRE_VERSIONS, mine.schema, start)
    wrong = [
        Packet(1, mine.incarnation, first=1, messages=(UnsubscribeStatement(Name("b0", 1)),)),
        Packet(7, -1),
        LinksKnown((LinkFact("z", "a", 0, True),)),
        Unsubscribe(1),
        Acknowledge(10**6),
        Publish(5, {"x": 1}),
        Subscribe(-1, "x = 1"),
        "no message",
        None,
        OpenSession(received=-1),
    ]
    process.accept(wire, hello)
    if role == "client" and rng.random() < 0.5:
        wire.send(0, OpenSession(ephemeral=True)) if not network.encodes else None
    if not network.encodes:
        wire.send(0, wrong[int(rng.integers(len(wrong)))])
    network.clock.at(network.clock.now + 0.5, wire.close)
    if role == "broker":
        network.clock.at(network.clock.now + 1.0, lambda: dismiss(network, broker))


def dismiss(network: Network, broker: str) -> None:
    """The operator takes an intruder's link out, again if the broker fails to."""
    process = network.processes.get(broker)
    if process is not None and "mallory" in process.host.broker.connections:
        process.call(process.host.remove_link, "mallory")
    if ("neighbour", "mallory") in network.saved[broker] or process is None:
        network.clock.at(network.clock.now + 1.0, lambda: dismiss(network, broker))


def run_schedule(seed: int, steps: int | None = None) -> Schedule:
    """One run; an `AssertionError` says what went wrong and how to run it again."""
    schedule = Schedule(seed)
    drawn = int(schedule.rng.integers(5, 25))
    network = schedule.network
    again = f"run_schedule({seed}, {steps})"
    try:
        network.run(3.0)
        schedule.play(drawn if steps is None else min(steps, drawn))
        network.mend()
        network.settle()
    except AssertionError as error:
        raise AssertionError(f"{again}: {error}") from None
    problems = [*network.find_problems(), *network.find_leftovers()]
    assert not problems, f"{again}: {problems[0]} and {len(problems) - 1} more"
    return schedule


@pytest.mark.parametrize("part", range(20))
def test_what_is_stored_is_delivered_once_and_in_order(part: int) -> None:
    for seed in range(100 * part, 100 * part + 100):
        checked(run_schedule, seed)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_twenty_thousand_schedules(part: int) -> None:
    for seed in range(100_000 + 1_000 * part, 100_000 + 1_000 * part + 1_000):
        checked(run_schedule, seed)
