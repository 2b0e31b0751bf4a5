"""The feed and the memory of answers, without a network."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from distributary.control.errors import ControlRefusedError
from distributary.dashboard.feed import Feed
from distributary.dashboard.recent import RecentAnswers
from distributary.errors import LiveError
from tests.dashboard.fake import FakeControl


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


async def _take_turns(turns: int = 20) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)


def _read(encoded: bytes) -> dict[str, Any]:
    return msgspec.json.decode(encoded)


def test_while_nobody_watches_nothing_is_asked():
    async def run() -> None:
        control = FakeControl()
        feed = Feed(control, every=0.0)
        running = asyncio.create_task(feed.run())
        await _take_turns()
        assert control.asked["status"] == 0
        watching = feed.watch()
        assert (await anext(watching)).status is not None
        asked = control.asked["status"]
        assert asked >= 1
        await watching.aclose()
        await _take_turns()  # the look that is under way may end
        asked = control.asked["status"]
        await _take_turns()
        assert control.asked["status"] == asked
        assert feed.watchers == 0
        running.cancel()

    asyncio.run(run())


def test_any_number_of_browsers_are_one_question_and_get_the_same_bytes():
    async def run() -> None:
        control = FakeControl()
        feed = Feed(control)
        watching = [feed.watch() for _ in range(50)]
        asking = [asyncio.create_task(anext(each)) for each in watching]
        await _take_turns(1)
        await feed.look()
        found = await asyncio.gather(*asking)
        assert control.asked["status"] == 1
        assert len({id(each.encoded) for each in found}) == 1
        for each in watching:
            await each.aclose()

    asyncio.run(run())


def test_a_slow_browser_misses_states_and_gets_the_newest():
    async def run() -> None:
        feed = Feed(FakeControl())
        watching = feed.watch()
        first = asyncio.create_task(anext(watching))
        await _take_turns(1)
        await feed.look()
        assert (await first).number == 1
        for _ in range(5):
            await feed.look()
        assert (await anext(watching)).number == 6
        await watching.aclose()

    asyncio.run(run())


def test_who_comes_after_a_pause_does_not_get_what_was_known_before_it():
    async def run() -> None:
        feed = Feed(FakeControl())
        await feed.look()
        watching = feed.watch()
        first = asyncio.create_task(anext(watching))
        await _take_turns()
        assert not first.done()
        await feed.look()
        assert (await first).number == 2
        await watching.aclose()

    asyncio.run(run())


def test_an_absence_begins_when_it_was_noticed_and_ends_with_an_answer():
    async def run() -> None:
        clock, control = Clock(), FakeControl()
        feed = Feed(control, clock=clock)
        control.away = "gone"
        for _ in range(3):
            clock.now += 1
            await feed.look()
        assert feed.latest.away is not None
        assert feed.latest.away.since == 1_000_001
        control.away = ""
        await feed.look()
        assert feed.latest.away is None
        assert _read(feed.latest.encoded)["control"]["prefix"] == "distributary"

    asyncio.run(run())


def test_a_control_plane_that_takes_too_long_is_away():
    async def run() -> None:
        control = FakeControl()
        control.slow_s = 60.0
        feed = Feed(control, within=0.01)
        await feed.look()
        assert feed.latest.away is not None
        assert feed.latest.away.says == "the control plane does not answer in time"

    asyncio.run(run())


def test_each_batch_is_noted_once():
    async def run() -> None:
        clock = Clock()
        feed = Feed(FakeControl(clock=clock))
        for _ in range(12):
            await feed.look()
            clock.now += 1
        numbers = [each.batch for each in feed.batches]
        assert numbers == [720, 721, 722]

    asyncio.run(run())


def test_a_closed_feed_ends_the_watching():
    async def run() -> None:
        feed = Feed(FakeControl())
        waiting = asyncio.create_task(_drain(feed))
        await _take_turns()
        feed.close()
        assert await waiting == 0

    asyncio.run(run())


async def _drain(feed: Feed) -> int:
    return sum([1 async for _ in feed.watch()])


# --- the memory of answers ------------------------------------------------------------------------


class Source:
    """Answers when it is let, and counts."""

    def __init__(self, error: Exception | None = None) -> None:
        self.asked = 0
        self.error = error
        self.may = asyncio.Event()

    async def __call__(self) -> int:
        self.asked += 1
        await self.may.wait()
        if self.error:
            raise self.error
        return self.asked


def test_who_asks_meanwhile_gets_the_same_answer():
    async def run() -> None:
        recent, source = RecentAnswers(clock=Clock()), Source()
        asking = [asyncio.create_task(recent.get("a", source, ())) for _ in range(20)]
        await _take_turns()
        source.may.set()
        assert await asyncio.gather(*asking) == [1] * 20

    asyncio.run(run())


def test_an_answer_is_kept_for_its_time_and_not_longer():
    async def run() -> None:
        clock = Clock()
        recent, source = RecentAnswers(keep_for=1.0, clock=clock), Source()
        source.may.set()
        assert await recent.get("a", source, ()) == 1
        clock.now += 0.9
        assert await recent.get("a", source, ()) == 1
        clock.now += 0.2
        assert await recent.get("a", source, ()) == 2
        recent.forget()
        assert await recent.get("a", source, ()) == 3

    asyncio.run(run())


def test_an_error_is_an_answer_too_if_it_is_of_the_kinds_to_remember():
    async def run(error: Exception, kinds: tuple[type[Exception], ...]) -> int:
        recent, source = RecentAnswers(clock=Clock()), Source(error)
        source.may.set()
        for _ in range(3):
            with pytest.raises(type(error)):
                await recent.get("a", source, kinds)
        return source.asked

    assert asyncio.run(run(ControlRefusedError("no"), (LiveError,))) == 1
    assert asyncio.run(run(ValueError("a defect"), (LiveError,))) == 3


def test_who_asks_after_one_who_went_away_asks_again():
    async def run() -> None:
        recent, source = RecentAnswers(clock=Clock()), Source()
        first = asyncio.create_task(recent.get("a", source, ()))
        second = asyncio.create_task(recent.get("a", source, ()))
        await _take_turns()
        first.cancel()
        source.may.set()
        assert await second == 2

    asyncio.run(run())


def test_only_so_many_answers_are_kept():
    async def run() -> list[int]:
        recent, source = RecentAnswers(most=10, clock=Clock()), Source()
        source.may.set()
        return [await recent.get(key, source, ()) for key in (*range(30), 29, 20, 19)]

    assert asyncio.run(run())[30:] == [30, 21, 31]
