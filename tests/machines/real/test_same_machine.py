"""One machine in virtual time, under the driver and under the direct driver: the same actions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Any
from unittest.mock import patch

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from distributary.machines import Action, Append, Deliver, Save, Send, SetTimer, Work
from distributary.machines.real import DirectDriver, Driver
from distributary.machines.virtual import Link, Simulation, VirtualNetwork
from distributary.machines.virtual.node import Node
from tests.machines.real.fake_time import FakeTimeLoop, run

END = 1_000.25
Script = list[list[Action]]
STORED = (Append, Save)


class Scripted:
    """Answers its n-th input, whatever it is, with the n-th actions of a script."""

    def __init__(self, script: Script) -> None:
        self.heard: list[tuple[float, str]] = []
        self._script = iter(script)

    def on_message(self, sender: str, message: Any, now: float) -> Iterable[Action]:
        self.heard.append((now, f"{sender} {message}"))
        return next(self._script, [])

    def on_timer(self, name: str, now: float) -> Iterable[Action]:
        self.heard.append((now, name))
        return next(self._script, [])


@dataclass
class Trace:
    """What a machine was told and what it did: timers aside, stored first, each with its time."""

    heard: list[tuple[float, str]]
    stored: list[tuple[float, Action]] = field(default_factory=list)
    others: list[tuple[float, Action]] = field(default_factory=list)

    def add(self, now: float, actions: Iterable[Action]) -> None:
        for action in actions:
            if isinstance(action, STORED):
                self.stored.append((now, action))
            elif not isinstance(action, SetTimer | Work):
                self.others.append((now, action))


def run_virtual(script: Script, arrivals: list[float]) -> Trace:
    machine = Scripted(script)
    simulation = Simulation(VirtualNetwork({}, np.random.default_rng(0), default=Link(0.0)))
    simulation.add("node", machine)
    for count, at in enumerate(arrivals):
        simulation.post(at, "node", count, sender="outside")
    trace = Trace(machine.heard)
    perform = Node._perform

    def spy(node: Node, action: Action) -> None:
        trace.add(simulation.clock.now, [action])
        perform(node, action)

    with patch.object(Node, "_perform", spy):
        simulation.run(until=END)
    return trace


def post(loop: FakeTimeLoop, arrivals: list[float], arrive: Callable[[int], None]) -> None:
    """Let messages arrive by their numbers; asyncio's own timers have no order at one time."""
    numbered = enumerate(arrivals)
    for at, some in groupby(numbered, lambda each: each[1]):
        loop.call_at(at, partial(_arrive_all, [count for count, _ in some], arrive))


def _arrive_all(counts: list[int], arrive: Callable[[int], None]) -> None:
    for count in counts:
        arrive(count)


def run_driver(batch: int, script: Script, arrivals: list[float]) -> Trace:
    machine = Scripted(script)
    trace = Trace(machine.heard)

    async def scenario(loop: FakeTimeLoop) -> None:
        async def perform(actions: list[Any]) -> None:
            trace.add(loop.time(), actions)

        def take(count: int, now: float) -> Iterable[Action]:
            return machine.on_message("outside", count, now)

        driver = Driver(
            take,
            machine.on_timer,
            {Send: perform, Deliver: perform},
            clock=loop.time,
            store=perform,
            batch=batch,
        )

        async def arrive(count: int) -> None:
            await driver.put(count)

        post(loop, arrivals, lambda count: driver.start(arrive(count)))
        loop.call_at(END, driver.stop)
        async with driver:
            await driver.run()

    run(scenario)
    return trace


def run_direct(script: Script, arrivals: list[float]) -> Trace:
    machine = Scripted(script)
    trace = Trace(machine.heard)

    async def scenario(loop: FakeTimeLoop) -> None:
        def perform(actions: list[Any]) -> None:
            trace.add(loop.time(), actions)

        kinds = (Send, Deliver, Append, Save)
        driver = DirectDriver(machine.on_timer, dict.fromkeys(kinds, perform), clock=loop.time)

        def arrive(count: int) -> None:
            driver.perform(machine.on_message("outside", count, loop.time()))

        post(loop, arrivals, arrive)
        loop.call_at(END, driver.notify)
        await driver.wait()
        driver.check()
        driver.close()

    run(scenario)
    return trace


def timers() -> st.SearchStrategy[Action]:
    """At whole seconds, also in the past; few enough to be reset and stopped."""
    at = st.integers(-2, 15).map(float)
    return st.builds(SetTimer, st.sampled_from("abc"), at | at | at | st.none())


def others() -> st.SearchStrategy[Action]:
    """All other actions."""
    names, numbers = st.sampled_from("abc"), st.integers(0, 99)
    return st.one_of(
        st.builds(Send, st.just("nobody"), numbers),
        st.builds(Deliver, names, numbers, st.just(0.0)),
        st.builds(Append, st.binary(max_size=2)),
        st.builds(Save, names, st.none() | numbers),
        st.builds(Work, names, st.just(1.0)),
    )


def scripts() -> st.SearchStrategy[Script]:
    """As machines do: of the actions of one input, those to be stored come first."""
    parts = st.tuples(st.lists(timers(), max_size=3), st.lists(others(), max_size=3))
    ordered = parts.map(lambda both: sorted(both[0] + both[1], key=_is_sent))
    return st.lists(ordered, min_size=8, max_size=40)


def _is_sent(action: Action) -> bool:
    return not isinstance(action, STORED)


def arrivals() -> st.SearchStrategy[list[float]]:
    """Between the whole seconds at which timers ring: messages and timers come in one order."""
    return st.lists(st.integers(0, 12).map(lambda at: at + 0.5), min_size=1, max_size=12).map(
        sorted
    )


WAYS: list[Callable[[Script, list[float]], Trace]] = [
    partial(run_driver, 512),
    partial(run_driver, 3),
    partial(run_driver, 1),
    run_direct,
]


@given(scripts(), arrivals())
def test_a_machine_does_the_same_at_the_same_times_under_every_driver(
    script: Script, arrivals: list[float]
) -> None:
    expected = run_virtual(script, arrivals)
    for way in WAYS:
        assert way(script, arrivals) == expected
