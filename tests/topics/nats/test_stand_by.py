"""Services that stand by: one serves, and when it ends or sleeps another goes on from its state."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import nats.errors
import pytest
from nats.aio.client import Client
from nats.js import JetStreamContext

from distributary.errors import StateError
from distributary.machines.nats.lease import GIVES_UP, LASTS, KeptLease
from distributary.machines.nats.options import connect_to_server
from distributary.topics import Policy
from distributary.topics.codec import Beat, Create, Put
from distributary.topics.errors import NoStateError, ServiceReplacedError
from distributary.topics.host import ChannelMessage, TopicHost
from distributary.topics.nats import NatsOptions, TopicClient, TopicService, run_embedded_server
from distributary.topics.nats.state_log import StateLog
from distributary.topics.nats.storage_watch import StorageWatch
from distributary.topics.nats.subjects import Subjects
from distributary.topics.records import HostState
from tests.topics.nats.running import QUICK, Child, client, run, serving, settings

SUBJECTS = Subjects()


async def collect(reader: TopicClient, topic: str, found: list[tuple[int, bytes]]) -> None:
    async for event in await reader.subscribe(topic):
        found.append((event.number, event.payload))  # noqa: PERF401 - others look at it meanwhile


async def wait_until_read(found: list[tuple[int, bytes]], count: int) -> None:
    while len(found) < count:
        await asyncio.sleep(0.02)


@asynccontextmanager
async def connected(**changes: Any) -> AsyncIterator[tuple[Client, JetStreamContext, NatsOptions]]:
    async with (
        run_embedded_server(**changes) as server,
        connect_to_server(server.options, name="t") as nc,
    ):
        yield nc, nc.jetstream(), server.options


def new_log(nc: Client, js: JetStreamContext, policy: Policy = QUICK) -> StateLog:
    watch = StorageWatch(lambda line: None, lambda: nc.is_connected)
    return StateLog(
        js, SUBJECTS, policy, most_payload=nc.max_payload, stopping=lambda: False, watch=watch
    )


def new_lease(js: JetStreamContext, **how: Any) -> KeptLease:
    bucket = SUBJECTS.stream("lease")
    return KeptLease(js, bucket, lambda: ServiceReplacedError(SUBJECTS.prefix), **how)


class Hosted:
    """A host whose records go to a log."""

    def __init__(self, log: StateLog) -> None:
        self.log = log
        self.host = TopicHost(QUICK, log.state)

    async def perform(self, actions: list[Any]) -> None:
        await self.log.write([a.record for a in actions if hasattr(a, "record")])

    async def take(self, to: str, said: Any, now: float = 1.0) -> None:
        await self.perform(self.host.on_message("s", ChannelMessage(to, said), now))


def as_document(state: HostState) -> Any:
    return [msgspec.msgpack.decode(record) for record in state.snapshot()]


# --- the log -------------------------------------------------------------------------------------


def test_a_log_gives_back_what_was_written_also_in_pieces_and_after_snapshots() -> None:
    async def work() -> None:
        async with connected(max_payload=4_000) as (nc, js, _):
            log = new_log(nc, js)
            assert await log.open()
            hosted = Hosted(log)
            await hosted.perform(hosted.host.start(1.0))
            await hosted.take("topic/t", Create(1.0))
            await hosted.take("topic/\N{SNOWMAN}", Create(0.0))
            await hosted.take("service", Beat(0, False))
            for number in range(1, 60):
                await hosted.take("topic/t", Put(0, number, os.urandom(number * 50)))
                if number % 20 == 0:
                    await log.shorten()
            again = new_log(nc, js)
            assert not await again.open()
            assert as_document(again.state) == as_document(log.state)
            info = await js.stream_info(SUBJECTS.stream("state"))
            assert info.state.first_seq > 1  # the snapshots took the place of what was before

    run(work())


def test_a_log_refuses_the_batch_of_who_did_not_see_the_last_one() -> None:
    async def work() -> None:
        async with connected() as (nc, js, _):
            first, second = new_log(nc, js), new_log(nc, js)
            await first.open()
            await second.open()
            hosted = Hosted(first)
            await hosted.take("topic/t", Create(1.0))
            with pytest.raises(ServiceReplacedError):
                await Hosted(second).take("topic/u", Create(1.0))
            await hosted.take("topic/v", Create(1.0))
            third = new_log(nc, js)
            await third.open()
            assert third.state.states.keys() == {"topic/t", "topic/v"}

    run(work())


def test_a_batch_without_its_last_piece_counts_for_nothing() -> None:
    async def work() -> None:
        async with connected() as (nc, js, _):
            log = new_log(nc, js)
            await log.open()
            hosted = Hosted(log)
            await hosted.take("topic/t", Create(1.0))
            await js.publish(SUBJECTS.state, msgspec.msgpack.encode((False, False, b"\x93\xc4")))
            again = new_log(nc, js)
            await again.open()
            assert as_document(again.state) == as_document(log.state)
            await Hosted(again).take("topic/u", Create(1.0))
            third = new_log(nc, js)
            await third.open()
            assert third.state.states.keys() == {"topic/t", "topic/u"}

    run(work())


def test_a_batch_whose_answer_is_lost_is_stored_once() -> None:
    async def work() -> None:
        async with connected() as (nc, js, _):
            log = new_log(nc, js)
            await log.open()
            true_publish, failures = js.publish, iter([True, False])

            async def publish(*given: Any, **named: Any) -> Any:
                answer = await true_publish(*given, **named)
                if next(failures, False):
                    raise nats.errors.TimeoutError
                return answer

            js.publish = publish  # type: ignore[method-assign]
            await Hosted(log).take("topic/t", Create(1.0))
            await Hosted(log).take("topic/u", Create(1.0))
            info = await js.stream_info(SUBJECTS.stream("state"))
            assert info.state.last_seq == log._last
            again = new_log(nc, js)
            await again.open()
            assert as_document(again.state) == as_document(log.state)

    run(work())


def test_a_message_that_no_service_wrote_is_told() -> None:
    async def work() -> None:
        async with connected() as (nc, js, _):
            await new_log(nc, js).open()
            await js.publish(SUBJECTS.state, b"hello")
            with pytest.raises(StateError, match="a message that no service wrote"):
                await new_log(nc, js).open()

    run(work())


# --- the lease -----------------------------------------------------------------------------------


def test_a_lease_that_is_not_renewed_is_taken_after_its_holder_has_given_up() -> None:
    async def work() -> None:
        async with connected() as (nc, js, _):
            now = 0.0
            first, second = (new_lease(js, clock=lambda: now) for _ in range(2))
            await first.open()
            await second.open()
            assert await first.take(lambda: False)
            taking = asyncio.create_task(second.take(lambda: False))
            await asyncio.sleep(1.2)
            now = GIVES_UP - 0.1
            await asyncio.sleep(0.6)
            assert first.held
            assert not taking.done()
            now = GIVES_UP
            assert not first.held
            assert not taking.done()
            now = LASTS + 0.1
            assert await taking
            assert second.held
            with pytest.raises(ServiceReplacedError):
                await first.prove(nc)
            await second.give_back()
            assert await first.take(lambda: False)

    run(work())


def test_who_has_locked_the_place_of_a_dead_holder_need_not_wait() -> None:
    async def work() -> None:
        async with connected() as (nc, js, _):
            first, again, other = (new_lease(js, place=p) for p in ("a", "a", "b"))
            for lease in (first, again, other):
                await lease.open()
            began = time.monotonic()
            assert await first.take(lambda: False)
            assert await again.take(lambda: False)
            assert time.monotonic() - began < LASTS
            with pytest.raises(ServiceReplacedError):
                await first.prove(nc)
            stop_at = time.monotonic() + 1.5
            assert not await other.take(lambda: time.monotonic() > stop_at)

    run(work())


# --- services ------------------------------------------------------------------------------------


def test_a_service_stands_by_and_goes_on_when_the_other_one_is_killed(tmp_path: Path) -> None:
    async def work() -> None:
        async with run_embedded_server() as server, client(server.options) as both:
            child = Child(server.options, tmp_path / "one")
            await child.start()
            second = TopicService(server.options, settings(tmp_path / "two"))
            standing = asyncio.create_task(second.run())
            await second.standing_by.wait()
            found: list[tuple[int, bytes]] = []
            await both.create("t")
            reading = asyncio.create_task(collect(both, "t", found))
            while not found:
                await both.publish("t", b"first")
            count = len(found)
            assert not second.started.is_set()
            await child.kill()
            for number in range(20):
                await both.publish("t", b"%d" % number)
            await wait_until_read(found, count + 20)
            assert second.started.is_set()
            assert [number for number, _ in found] == [*range(found[0][0], found[-1][0] + 1)]
            assert [payload for _, payload in found][-20:] == [b"%d" % n for n in range(20)]
            reading.cancel()
            second.stop()
            await standing

    run(work())


def test_a_service_that_slept_while_another_took_over_confirms_nothing_and_stands_by(
    tmp_path: Path,
) -> None:
    async def work() -> None:
        async with run_embedded_server() as server, client(server.options) as both:
            asleep = Child(server.options, tmp_path / "one")
            await asleep.start()
            assert asleep.process is not None
            try:
                found: list[tuple[int, bytes]] = []
                await both.create("t")
                reading = asyncio.create_task(collect(both, "t", found))
                while not found:
                    await both.publish("t", b"first")
                os.kill(asleep.process.pid, signal.SIGSTOP)
                async with serving(server.options, tmp_path / "two") as awake:
                    before = len(found)
                    for number in range(10):
                        await both.publish("t", b"%d" % number)
                    os.kill(asleep.process.pid, signal.SIGCONT)
                    for number in range(10, 20):
                        await both.publish("t", b"%d" % number)
                    await wait_until_read(found, before + 20)
                    assert awake.status().accepted == 20
                    assert asleep.process.returncode is None
                # The one that slept stands by, and goes on now.
                await both.publish("t", b"last")
                await wait_until_read(found, before + 21)
                numbers = [number for number, _ in found]
                assert numbers == [*range(numbers[0], numbers[-1] + 1)]
                payloads = [payload for _, payload in found][before:]
                assert payloads == [*(b"%d" % n for n in range(20)), b"last"]
                reading.cancel()
            finally:
                await asleep.kill()

    run(work())


def test_a_service_that_stops_hands_over_at_once(tmp_path: Path) -> None:
    async def work() -> None:
        async with run_embedded_server() as server, client(server.options) as both:
            first = TopicService(server.options, settings(tmp_path / "one"))
            second = TopicService(server.options, settings(tmp_path / "two"))
            serving_first = asyncio.create_task(first.run())
            await first.started.wait()
            serving_second = asyncio.create_task(second.run())
            await second.standing_by.wait()
            await both.create("t")
            first.stop()
            await serving_first
            await second.started.wait()
            assert not await both.create("t")
            second.stop()
            await serving_second

    run(work())


def test_a_state_in_a_folder_moves_into_jetstream_once(tmp_path: Path) -> None:
    async def work() -> None:
        said: list[str] = []
        async with (
            run_embedded_server(jetstream=False) as server,
            serving(server.options, tmp_path),
            client(server.options) as both,
        ):
            await both.create("t")
        for _ in range(2):
            async with run_embedded_server(tmp_path / "server") as server:
                service = TopicService(server.options, settings(tmp_path), report=said.append)
                running = asyncio.create_task(service.run())
                await service.started.wait()
                async with client(server.options) as both:
                    assert not await both.create("t")
                service.stop()
                await running
        assert sum("moved the state" in each for each in said) == 1
        assert not any("warning" in each for each in said)

    run(work())


def test_a_service_with_neither_jetstream_nor_a_folder_says_so() -> None:
    async def work() -> None:
        async with run_embedded_server(jetstream=False) as server:
            with pytest.raises(NoStateError, match="give one with --state"):
                await TopicService(server.options, settings(None)).run()

    run(work())
