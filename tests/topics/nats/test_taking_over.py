"""A service that takes over reads a large state, or loses the server meanwhile."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import nats.errors
import nats.js.errors
import pytest
from nats.js import JetStreamContext

from distributary.machines.nats import lease
from distributary.topics.codec import Create
from distributary.topics.host import TopicHost
from distributary.topics.nats import TopicService, state_log
from distributary.topics.nats.state_log import StateLog
from distributary.topics.records import HostState
from tests.topics.nats.running import run, settings
from tests.topics.nats.test_stand_by import SUBJECTS, Hosted, connected, new_log

AWAY = [
    nats.errors.TimeoutError(),
    nats.js.errors.ServiceUnavailableError(503, "no leader", 10008),
    nats.js.errors.NoStreamResponseError(),
]


async def wait_for_renewals(js: JetStreamContext, more: int) -> None:
    """Wait until the lease was renewed so many times."""
    last = None
    while True:
        with suppress(nats.js.errors.NotFoundError):
            bucket = await js.key_value(SUBJECTS.stream("lease"))
            found = json.loads((await bucket.get("service")).value or b"")["renewals"]
            last = found if last is None else last
            if found >= last + more:
                return
        await asyncio.sleep(0.02)


async def fill_log(nc: Any, js: JetStreamContext, topics: int) -> StateLog:
    """Make a log with one record for each topic."""
    log = new_log(nc, js)
    await log.open()
    hosted = Hosted(log)
    for number in range(topics):
        await hosted.take(f"topic/{number}", Create(0.0))
    return log


def test_a_lease_is_renewed_while_the_state_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    is_read = asyncio.Event()
    true_open = StateLog.open

    async def open_slowly(log: StateLog) -> bool:
        await is_read.wait()
        return await true_open(log)

    async def work() -> None:
        async with connected() as (_, js, options):
            service = TopicService(options, settings(None))
            running = asyncio.create_task(service.run())
            await wait_for_renewals(js, 2)
            is_read.set()
            await service.started.wait()
            service.stop()
            await running

    monkeypatch.setattr(StateLog, "open", open_slowly)
    monkeypatch.setattr(lease, "RENEW_EVERY", 0.0)
    run(work())


def test_a_lease_is_renewed_while_the_channels_start(monkeypatch: pytest.MonkeyPatch) -> None:
    may_start = threading.Event()
    true_start = TopicHost.start

    def start_slowly(host: TopicHost, now: float) -> Any:
        assert may_start.wait(20.0)
        return true_start(host, now)

    async def work() -> None:
        async with connected() as (_, js, options):
            service = TopicService(options, settings(None))
            running = asyncio.create_task(service.run())
            await wait_for_renewals(js, 1)
            may_start.set()
            await service.started.wait()
            service.stop()
            await running

    monkeypatch.setattr(TopicHost, "start", start_slowly)
    monkeypatch.setattr(lease, "RENEW_EVERY", 0.0)
    run(work())


def test_others_have_their_turn_while_a_log_is_replayed_or_a_snapshot_encoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns: list[int] = [0]
    seen: list[int] = []
    true_replay, true_snapshot = HostState.replay, HostState.snapshot

    async def take_turns() -> None:
        while True:
            turns[0] += 1
            await asyncio.sleep(0)

    def replay(state: HostState, *given: Any) -> None:
        seen.append(turns[0])
        true_replay(state, *given)

    def snapshot(state: HostState) -> Any:
        for record in true_snapshot(state):
            seen.append(turns[0])
            yield record

    async def work() -> None:
        async with connected() as (nc, js, _):
            log = await fill_log(nc, js, 30)
            others = asyncio.create_task(take_turns())
            await asyncio.sleep(0)
            monkeypatch.setattr(HostState, "snapshot", snapshot)
            await log.shorten()
            assert len(set(seen)) == len(seen) > 30
            seen.clear()
            monkeypatch.setattr(HostState, "replay", replay)
            await new_log(nc, js).open()  # it has one batch, the snapshot
            assert len(set(seen)) == len(seen) > 30
            others.cancel()

    monkeypatch.setattr(state_log, "_SLICE", 0.0)
    run(work())


@pytest.mark.parametrize("error", AWAY, ids=lambda error: type(error).__name__)
def test_a_service_stands_by_again_if_the_server_leaves_while_the_state_is_read(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = [error]
    true_read = StateLog._read

    async def read(log: StateLog) -> AsyncIterator[Any]:
        async for piece in true_read(log):
            yield piece
            if errors:
                raise errors.pop()

    async def work() -> None:
        said: list[str] = []
        async with connected() as (nc, js, options):
            await fill_log(nc, js, 3)
            service = TopicService(options, settings(None), report=said.append)
            running = asyncio.create_task(service.run())
            await service.started.wait()
            assert service.host.topics.keys() == {"topic/0", "topic/1", "topic/2"}
            service.stop()
            await running
        assert not errors
        assert any("it stands by" in each for each in said)

    monkeypatch.setattr(StateLog, "_read", read)
    run(work())


def test_a_service_that_is_told_to_stop_while_the_state_is_read_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work() -> None:
        async with connected() as (nc, js, options):
            await fill_log(nc, js, 3)
            service = TopicService(options, settings(None))
            true_read = StateLog._read

            async def read(log: StateLog) -> AsyncIterator[Any]:
                service.stop()
                async for piece in true_read(log):
                    yield piece

            monkeypatch.setattr(StateLog, "_read", read)
            await service.run()
            assert not service.started.is_set()

    run(work())
