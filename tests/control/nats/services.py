"""Control services in the test's own process, with members that have no traffic."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from distributary.control import ControlSettings, ControlStatus, NetworkSettings
from distributary.control.nats import Control, ControlClient, ControlService, SparkChoice
from distributary.machines.nats import NatsOptions
from distributary.machines.real.log_lines import LogLine

T = TypeVar("T")
PATIENCE = 240.0  # seconds after which a test fails: never how long anything should take
OFF = SparkChoice("off")


def run(work: Coroutine[Any, Any, T], patience: float = PATIENCE) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(patience):
            return await work

    return asyncio.run(bounded())


def settings_of(**given: Any) -> ControlSettings:
    return ControlSettings(
        **{"groups": 4, "sessions": 8, "network": NetworkSettings(ttl=0), **given}
    )


@asynccontextmanager
async def serving(
    options: NatsOptions,
    folder: Path,
    *,
    spark: SparkChoice = OFF,
    log: Callable[[LogLine], None] = lambda line: None,
    **given: Any,
) -> AsyncIterator[ControlService]:
    """A service that serves when the block begins, and ends in order with it."""
    service = ControlService(options, settings_of(**given), folder, spark=spark, log=log)
    running = asyncio.create_task(service.run())
    started = asyncio.create_task(service.started.wait())
    try:
        await asyncio.wait({running, started}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
        yield service
    finally:
        started.cancel()
        service.stop()
        await running


@asynccontextmanager
async def receiving(folder: Path | NatsOptions, name: str, *flows: str) -> AsyncIterator[None]:
    """A receiver that wants flows, and lives while the block runs."""
    async with Control(folder).seat_receiver(name, flows, lambda fault: None):
        yield


async def status_that(
    client: ControlClient, holds: Callable[[ControlStatus], object]
) -> ControlStatus:
    """The first status of which something holds."""
    return await answer_that(client.status, holds)


async def answer_that(ask: Callable[[], Awaitable[T]], holds: Callable[[T], object]) -> T:
    while not holds(found := await ask()):
        await asyncio.sleep(0.02)
    return found


def version_of(status: ControlStatus) -> int:
    return 0 if status.force is None else status.force.version
