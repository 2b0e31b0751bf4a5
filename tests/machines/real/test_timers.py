"""Timers: in the order of their times, replaced, stopped, and none after the end."""

from __future__ import annotations

import asyncio

import pytest

from distributary.machines.real import Timers
from tests.machines.real.fake_time import FakeTimeLoop, run


class Rung:
    """Timers, and when each has rung."""

    def __init__(self, loop: FakeTimeLoop) -> None:
        self.rung: list[tuple[float, str]] = []
        self.now = loop.time
        self.timers = Timers(loop.time, self.expire)

    def expire(self, name: str, number: int) -> None:
        if self.timers.take(name, number):
            self.rung.append((self.now(), name))


def test_timers_ring_once_are_replaced_and_stopped() -> None:
    async def scenario(loop: FakeTimeLoop) -> None:
        rung = Rung(loop)
        for name, at in (("a", 5.0), ("b", 2.0), ("c", 3.0), ("b", 4.0), ("c", None), ("x", None)):
            rung.timers.set(name, at)
        await asyncio.sleep(10)
        assert rung.rung == [(4.0, "b"), (5.0, "a")]

    run(scenario)


def test_a_loop_that_is_late_rings_in_the_order_of_times_not_of_setting() -> None:
    async def scenario(loop: FakeTimeLoop) -> None:
        rung = Rung(loop)
        for name, at in (("c", 3.0), ("a", 1.0), ("d", 3.0), ("b", 2.0), ("later", 20.0)):
            rung.timers.set(name, at)
        loop.now = 10.0
        await asyncio.sleep(0.5)
        assert rung.rung == [(10.0, "a"), (10.0, "b"), (10.0, "c"), (10.0, "d")]

    run(scenario)


def test_a_timer_that_an_earlier_one_stops_or_resets_does_not_ring_with_it() -> None:
    async def scenario(loop: FakeTimeLoop) -> None:
        rung: list[tuple[float, str]] = []

        def expire(name: str, number: int) -> None:
            assert timers.take(name, number)
            rung.append((loop.time(), name))
            if name == "first":
                timers.set("stopped", None)
                timers.set("reset", 30.0)

        timers = Timers(loop.time, expire)
        for name, at in (("first", 1.0), ("stopped", 2.0), ("reset", 2.0), ("last", 3.0)):
            timers.set(name, at)
        loop.now = 10.0
        await asyncio.sleep(40)
        assert rung == [(10.0, "first"), (10.0, "last"), (30.0, "reset")]

    run(scenario)


def test_an_expired_timer_can_be_stopped_or_reset_until_it_is_taken() -> None:
    async def scenario(loop: FakeTimeLoop) -> None:
        queue: list[tuple[str, int]] = []
        timers = Timers(loop.time, lambda name, number: queue.append((name, number)))
        for name in ("kept", "stopped", "reset"):
            timers.set(name, 1.0)
        await asyncio.sleep(2)
        timers.set("stopped", None)
        timers.set("reset", 5.0)
        assert [name for name, number in queue if timers.take(name, number)] == ["kept"]
        await asyncio.sleep(10)
        assert [name for name, number in queue if timers.take(name, number)] == ["reset"]

    run(scenario)


def test_a_time_that_has_passed_rings_soon_but_not_at_once() -> None:
    async def scenario(loop: FakeTimeLoop) -> None:
        rung = Rung(loop)
        loop.now = 10.0
        rung.timers.set("late", 3.0)
        rung.timers.set("later set, earlier", 2.0)
        assert rung.rung == []
        await asyncio.sleep(1)
        assert rung.rung == [(10.0, "late"), (10.0, "later set, earlier")]

    run(scenario)


def test_a_timer_that_always_sets_itself_to_now_leaves_others_their_turn() -> None:
    async def scenario(loop: FakeTimeLoop) -> None:
        count = 0

        def expire(name: str, number: int) -> None:
            nonlocal count
            count += 1
            assert timers.take(name, number)
            timers.set(name, loop.time())

        timers = Timers(loop.time, expire)
        timers.set("again", 0.0)
        for _ in range(10):
            await asyncio.sleep(0)
        timers.close()
        assert 1 <= count <= 20

    run(scenario)


def test_a_clock_that_is_set_back_makes_timers_wait_for_their_time() -> None:
    async def scenario(loop: FakeTimeLoop) -> None:
        ahead = 100.0
        rung: list[float] = []
        timers = Timers(lambda: loop.time() + ahead, lambda name, number: rung.append(loop.time()))
        timers.set("a", 110.0)
        ahead = 95.0
        await asyncio.sleep(14)
        assert rung == []
        await asyncio.sleep(2)
        assert rung == [15.0]

    run(scenario)


def test_no_timer_rings_after_the_end_and_none_can_be_set() -> None:
    async def scenario(loop: FakeTimeLoop) -> None:
        rung = Rung(loop)
        rung.timers.set("before", 1.0)
        rung.timers.close()
        rung.timers.set("after", 1.0)
        await asyncio.sleep(5)
        assert rung.rung == []

    run(scenario)


def test_a_timer_that_is_reset_often_takes_no_more_room() -> None:
    async def scenario(loop: FakeTimeLoop) -> None:
        rung = Rung(loop)
        for count in range(10_000):
            rung.timers.set("a", 1.0 + count)
            rung.timers.set(f"stopped {count}", 5.0)
            rung.timers.set(f"stopped {count}", None)
        assert len(rung.timers._heap) < 200
        await asyncio.sleep(20_000)
        assert rung.rung == [(10_000.0, "a")]

    run(scenario)


@pytest.mark.parametrize("at", [float("inf"), float("nan")])
def test_a_time_that_never_comes_is_refused(at: float) -> None:
    async def scenario(loop: FakeTimeLoop) -> None:
        with pytest.raises(ValueError, match="must be set to a finite time"):
            Rung(loop).timers.set("a", at)

    run(scenario)
