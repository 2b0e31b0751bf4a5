"""The driver: stored before sent, in order, with room for so many, and one failure ends it all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.machines import Action, Append, Deliver, Save, Send, SetTimer
from distributary.machines.real import DirectDriver, Driver
from tests.machines.real.fake_time import FakeTimeLoop, run


class Shell:
    """A driver whose performers write down what they get."""

    def __init__(self, loop: FakeTimeLoop, **settings: Any) -> None:
        self.done: list[tuple[str, list[Any]]] = []
        self.rung: list[tuple[float, str]] = []
        performers = {Send: self.perform("send"), Deliver: self.perform("deliver")}
        given: dict[str, Any] = {"clock": loop.time, "store": self.perform("store"), **settings}
        self.driver = Driver(self.take, self.on_timer, given.pop("performers", performers), **given)

    def perform(self, name: str) -> Callable[[list[Any]], None]:
        return lambda actions: self.done.append((name, actions))

    def take(self, message: Action, now: float) -> Iterable[Action]:
        return [message]

    def on_timer(self, name: str, now: float) -> Iterable[Action]:
        self.rung.append((now, name))
        return ()

    def give(self, *actions: Any) -> None:
        self.driver.call(lambda now: actions)


def send(number: int) -> Send:
    return Send("peer", number)


def fail(actions: list[Any]) -> None:
    raise OSError(f"cannot perform {len(actions)}")


# --- order ---------------------------------------------------------------------------------------


def test_all_of_a_turn_is_stored_at_once_before_anything_is_sent() -> None:
    async def scenario(loop: FakeTimeLoop) -> None:
        shell = Shell(loop)
        shell.give(Append(b"1"), send(1))
        shell.give(Save("key", 2), send(2), Deliver("c", 3, 0.0), send(4))
        await shell.driver.turn()
        assert shell.done == [
            ("store", [Append(b"1"), Save("key", 2)]),
            ("send", [send(1), send(2)]),
            ("deliver", [Deliver("c", 3, 0.0)]),
            ("send", [send(4)]),
        ]

    run(scenario)


def test_a_machine_finishes_a_turn_once_and_what_it_saves_then_is_stored_with_the_rest() -> None:
    async def scenario(loop: FakeTimeLoop) -> None:
        shell = Shell(loop, batch=2, finish=lambda now: [Save("finished", now), send(9)])
        for number in (1, 2, 3):
            shell.give(Save("key", number))
        await shell.driver.turn()
        await shell.driver.turn()
        assert shell.done == [
            ("store", [Save("key", 1), Save("key", 2), Save("finished", 0.0)]),
            ("send", [send(9)]),
            ("store", [Save("key", 3), Save("finished", 0.0)]),
            ("send", [send(9)]),
        ]

    run(scenario)


@given(st.lists(st.lists(st.sampled_from("asd"), max_size=4), max_size=12), st.integers(1, 6))
def test_actions_keep_their_order_whatever_a_turn_takes(inputs: list[list[str]], n: int) -> None:
    async def scenario(loop: FakeTimeLoop) -> None:
        shell = Shell(loop, batch=n)
        numbers = count()
        for kinds in inputs:
            shell.give(*(number_action(kind, next(numbers)) for kind in kinds))
        async with shell.driver as driver:
            while driver._inputs:
                await driver.turn()
        performed = [(name == "store", number_of(one)) for name, some in shell.done for one in some]
        stored = [number for is_stored, number in performed if is_stored]
        others = [number for is_stored, number in performed if not is_stored]
        assert stored == sorted(stored)
        assert others == sorted(others)
        assert sorted([*stored, *others]) == list(range(next(numbers)))
        for at, (is_stored, number) in enumerate(performed):
            late = [record for _, record in performed[at:] if record in stored and record < number]
            assert is_stored or not late

    run(scenario)


def number_action(kind: str, number: int) -> Action:
    if kind == "a":
        return Append(b"%d" % number)
    return send(number) if kind == "s" else Deliver("c", number, 0.0)


def number_of(action: Any) -> int:
    return int(action.record if isinstance(action, Append) else action.message)


def test_an_answer_that_came_in_time_is_heard_before_its_time_out() -> None:
    async def scenario(loop: FakeTimeLoop) -> None:
        shell = Shell(loop)
        shell.give(SetTimer("time-out", 5.0))
        await shell.driver.turn()
        loop.call_at(4.0, shell.give, SetTimer("time-out", None))
        await asyncio.sleep(10)  # the driver had no turn for so long
        await shell.driver.turn()
        assert shell.rung == []

    run(scenario)


def test_timers_that_come_while_a_performer_waits_ring_in_the_order_of_their_times() -> None:
    async def scenario(loop: FakeTimeLoop) -> None:
        async def wait(actions: list[Any]) -> None:
            await asyncio.sleep(10)

        shell = Shell(loop, performers={Send: wait})
        shell.give(SetTimer("b", 3.0), SetTimer("a", 2.0), SetTimer("c", 4.0), send(1))
        loop.call_at(3.5, shell.give, SetTimer("c", None))
        loop.call_at(20, shell.driver.stop)
        async with shell.driver:
            await shell.driver.run()
        assert shell.rung == [(10.0, "a"), (10.0, "b")]

    run(scenario)


def test_other_inputs_wait_for_one_that_takes_long_and_tasks_do_not() -> None:
    async def scenario(loop: FakeTimeLoop) -> None:
        shell, ready, worked = Shell(loop), asyncio.Event(), asyncio.Event()

        async def think() -> list[Action]:
            await ready.wait()
            return [Save("key", 1), send(1)]

        async def work() -> None:
            await asyncio.sleep(5.0)
            worked.set()
            ready.set()

        shell.driver.call(lambda now: think())
        shell.give(send(2))
        async with shell.driver:
            shell.driver.start(work())
            await shell.driver.turn()
            assert worked.is_set()
        assert shell.done == [("store", [Save("key", 1)]), ("send", [send(1), send(2)])]

    run(scenario)


# --- room ----------------------------------------------------------------------------------------


@given(st.integers(1, 5), st.integers(1, 5), st.lists(st.integers(0, 9), min_size=1, max_size=6))
def test_links_wait_while_the_queue_is_full_and_keep_their_order(
    capacity: int, batch: int, links: list[int]
) -> None:
    async def scenario(loop: FakeTimeLoop) -> None:
        shell = Shell(loop, capacity=capacity, batch=batch)
        fullest = 0

        async def read(link: int, messages: int) -> None:
            nonlocal fullest
            for number in range(messages):
                await shell.driver.put(Send(f"{link}", number))
                fullest = max(fullest, len(shell.driver._inputs))

        loop.call_at(1.0, shell.driver.stop)
        async with shell.driver as driver:
            for link, messages in enumerate(links):
                driver.start(read(link, messages))
            await driver.run()
        heard = [(one.to, one.message) for _, some in shell.done for one in some]
        assert sorted(heard) == [(str(k), n) for k, each in enumerate(links) for n in range(each)]
        for link in range(len(links)):
            own = [number for name, number in heard if name == str(link)]
            assert own == sorted(own)
        assert fullest <= capacity

    run(scenario)


def test_an_input_that_was_cancelled_while_it_waited_for_room_is_not_taken() -> None:
    async def scenario(loop: FakeTimeLoop) -> None:
        shell = Shell(loop, capacity=1)
        shell.give(send(1))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await shell.driver.put(send(2))
        await shell.driver.turn()
        assert shell.done == [("send", [send(1)])]

    run(scenario)


def test_a_queue_that_is_never_empty_leaves_others_their_turn() -> None:
    async def scenario(loop: FakeTimeLoop) -> None:
        shell = Shell(loop, batch=1)

        def again(now: float) -> Iterable[Action]:
            shell.driver.call(again)
            return ()

        shell.driver.call(again)
        async with shell.driver as driver:
            running = asyncio.create_task(driver.run())
            for _ in range(10):
                await asyncio.sleep(0)
            driver.stop()
            await running

    run(scenario)


def test_inputs_that_come_in_turns_leave_messages_between_them() -> None:
    async def scenario(loop: FakeTimeLoop) -> None:
        shell = Shell(loop)
        async with shell.driver as driver:
            running = asyncio.create_task(driver.run())

            def work(number: int, now: float) -> Iterable[Action]:
                shell.give(send(number))  # comes while the others wait
                return [Deliver("work", number, now)]

            await driver.call_in_turns(partial(work, number) for number in range(3))
            driver.stop()
            await running
        assert [name for name, _ in shell.done[:5]] == [*["deliver", "send"] * 2, "deliver"]

    run(scenario)


# --- ends ----------------------------------------------------------------------------------------


def test_it_stops_after_the_present_turn() -> None:
    async def scenario(loop: FakeTimeLoop) -> None:
        shell = Shell(loop, batch=1)

        def end(now: float) -> Iterable[Action]:
            shell.driver.stop()
            return [send(1)]

        shell.driver.call(end)
        shell.give(send(2))
        async with shell.driver as driver:
            await driver.run()
        assert shell.done == [("send", [send(1)])]

    run(scenario)


def test_tasks_end_before_timers_and_nothing_happens_after_the_block() -> None:
    async def scenario(loop: FakeTimeLoop) -> None:
        shell = Shell(loop)
        ended: list[str] = []

        async def work() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                shell.give(SetTimer("late", 2.0))
                await shell.driver.turn()
                ended.append("task")

        async with shell.driver as driver:
            driver.start(work())
            shell.give(SetTimer("early", 1.0))
            await driver.turn()
            await asyncio.sleep(0)
        await asyncio.sleep(10)
        assert ended == ["task"]
        assert shell.rung == []

    run(scenario)


@pytest.mark.parametrize("broken", ["store", "performer", "machine", "timer", "task", "action"])
def test_one_failure_is_the_failure_of_the_run(broken: str) -> None:
    async def scenario(loop: FakeTimeLoop) -> None:
        sent: list[Any] = []
        performers: dict[type, Any] = {Send: sent.extend, Deliver: fail}
        store = fail if broken == "store" else sent.extend
        shell = Shell(loop, performers=performers, store=store)
        cancelled: list[bool] = []

        async def link() -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(True)
                raise

        async def break_off() -> None:
            raise OSError("the task")

        def stumble(*_: object) -> Iterable[Action]:
            raise OSError("the machine")

        shell.driver._on_timer = stumble
        found: dict[str, list[Any]] = {
            "store": [Append(b"x"), send(1)],
            "performer": [Append(b"x"), send(1), Deliver("c", 1, 0.0), send(2)],
            "timer": [SetTimer("a", 1.0)],
            "action": [send(1), "not an action", send(2)],
        }

        async def serve() -> None:
            async with shell.driver as driver:
                driver.start(link())
                await asyncio.sleep(0)
                if broken == "task":
                    driver.start(break_off())
                driver.call(stumble if broken == "machine" else lambda now: found.get(broken, []))
                await driver.run()

        with pytest.raises(TypeError if broken == "action" else OSError):  # not in a group
            await serve()
        assert cancelled == [True]
        assert sent == {"performer": [Append(b"x"), send(1)], "action": [send(1)]}.get(broken, [])

    run(scenario)


def test_what_is_to_be_stored_needs_a_store() -> None:
    async def scenario(loop: FakeTimeLoop) -> None:
        driver = Driver(Shell(loop).take, lambda name, now: (), {}, clock=loop.time)
        await driver.put(Append(b"x"))
        with pytest.raises(TypeError, match="no store for Append"):
            await driver.turn()

    run(scenario)


# --- the direct driver ---------------------------------------------------------------------------


async def wait_for_ever(driver: DirectDriver) -> None:
    while True:
        await driver.wait()


def test_the_failure_of_a_callback_reaches_who_waits_and_who_comes_next() -> None:
    async def scenario(loop: FakeTimeLoop) -> None:
        driver = DirectDriver(lambda name, now: [send(1)], {Send: fail}, clock=loop.time)
        driver.perform([SetTimer("a", 1.0)])
        with pytest.raises(OSError, match="cannot perform 1"):
            await wait_for_ever(driver)
        with pytest.raises(OSError, match="cannot perform 1"):
            driver.check()

    run(scenario)


def test_the_failure_of_a_call_is_its_callers() -> None:
    async def scenario(loop: FakeTimeLoop) -> None:
        driver = DirectDriver(lambda name, now: [], {Send: fail}, clock=loop.time)
        with pytest.raises(OSError, match="cannot perform 2"):
            driver.perform([send(1), SetTimer("a", 1.0), send(2)])
        driver.check()

    run(scenario)
