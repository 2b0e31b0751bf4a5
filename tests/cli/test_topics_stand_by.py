"""`topics serve` as several commands on one server: one serves, the others stand by."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from distributary.topics.nats import NatsOptions, run_embedded_server
from tests.cli.processes import press_ctrl_c, read_note, started
from tests.cli.test_topics_serve import SERVE
from tests.topics.nats.running import client, run


@asynccontextmanager
async def serving(options: NatsOptions, first_note: str) -> AsyncIterator[subprocess.Popen[bytes]]:
    """A service on a server of its own, whose first note begins like this."""
    with started([*SERVE, "--nats", options.url, "--token", options.token or ""]) as process:
        said = await asyncio.to_thread(read_note, process)
        assert said.startswith(first_note), said
        yield process


def test_a_service_that_stands_by_says_so_and_goes_on_when_the_first_is_killed() -> None:
    async def work() -> None:
        async with run_embedded_server() as server:
            options = server.options
            async with serving(options, "serving topics on nats://") as first:
                waits = f"standing by: process {first.pid} on "
                async with (
                    serving(options, waits) as second,
                    serving(options, waits) as third,
                    client(options) as both,
                ):
                    await both.create("t")
                    read = await both.subscribe("t")
                    await both.publish("t", b"1")
                    ended = await asyncio.to_thread(press_ctrl_c, third)
                    assert ended == (0, b"")  # nothing had begun
                    first.kill()
                    await both.publish("t", b"2")
                    events = [await read.get() for _ in range(2)]
                    assert [each.payload for each in events if each] == [b"1", b"2"]
                    said = await asyncio.to_thread(read_note, second)
                    assert said.startswith("serving topics on nats://")
                    assert await asyncio.to_thread(press_ctrl_c, second) == (0, b"")

    run(work())
