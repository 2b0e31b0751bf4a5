"""A service that is killed between two pieces of a batch, and so is the one that follows it."""

from __future__ import annotations

from typing import Any

import nats.errors
import pytest
from nats.js import JetStreamContext

from distributary.topics.codec import Create
from distributary.topics.nats.state_log import StateLog
from tests.topics.nats.running import run
from tests.topics.nats.test_stand_by import Hosted, connected, new_log


async def store_first_pieces(log: StateLog, count: int) -> None:
    """Store the first pieces of a batch of the log's host, as if the process ended then."""
    true_publish, stored = log._publish, 0

    async def publish(piece: bytes) -> None:
        nonlocal stored
        if stored == count:
            raise SystemExit
        stored += 1
        await true_publish(piece)

    log._publish = publish  # type: ignore[method-assign]
    log._room = 16
    with pytest.raises(SystemExit):
        await Hosted(log).take("topic/never", Create(1.0))


async def fail_to_purge(*given: Any, **named: Any) -> Any:
    raise nats.errors.TimeoutError


@pytest.mark.parametrize("kills", [1, 2])
def test_what_was_left_incomplete_is_never_completed_though_it_is_not_purged(kills: int) -> None:
    async def work() -> None:
        async with connected() as (nc, js, _):
            log = new_log(nc, js)
            await log.open()
            await Hosted(log).take("topic/t", Create(1.0))
            js.purge_stream = fail_to_purge  # type: ignore[method-assign]
            for _ in range(kills):
                log = await open_log(nc, js)
                await store_first_pieces(log, 2)
            for topic in "uv":
                log = await open_log(nc, js)
                await Hosted(log).take(f"topic/{topic}", Create(1.0))
            assert (await open_log(nc, js)).state.states.keys() == {"topic/t", "topic/u", "topic/v"}

    run(work())


async def open_log(nc: Any, js: JetStreamContext) -> StateLog:
    log = new_log(nc, js)
    await log.open()
    return log
