"""A real server, services in this process and in others, and clients, all on the loopback."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from distributary.cost import OperatingPrices
from distributary.topics.nats import (
    LIVE,
    ClientSettings,
    NatsOptions,
    ServiceSettings,
    TopicClient,
    TopicService,
)

T = TypeVar("T")


def dear(subscribers: int) -> float:
    """A subscription costs as much as a thousand messages: clusters pay soon."""
    return 1000.0 * subscribers


# As in life, only faster.
QUICK = replace(
    LIVE,
    prices=OperatingPrices(maintain=dear),
    interval=1.0,
    retry=0.2,
    refresh=2.0,
    answer_within=0.3,
    lock_for=2.0,
)
PATIENCE = 240.0  # seconds after which a test fails: never how long anything should take


def run(work: Coroutine[Any, Any, T]) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(PATIENCE):
            return await work

    return asyncio.run(bounded())


def settings(folder: Path | None, **changes: Any) -> ServiceSettings:
    given = {"policy": QUICK, "plan_every": 0.3, "dead_after": 5.0, **changes}
    return ServiceSettings(folder, **given)


@asynccontextmanager
async def serving(
    options: NatsOptions, folder: Path, **changes: Any
) -> AsyncIterator[TopicService]:
    """A service in this process, started."""
    service = TopicService(options, settings(folder, **changes))
    task = asyncio.create_task(service.run())
    try:
        while not service.started.is_set():
            if task.done():
                await task
            await asyncio.sleep(0.01)
        yield service
    finally:
        service.stop()
        await task


def client(options: NatsOptions, **changes: Any) -> TopicClient:
    given = {"timeout": PATIENCE / 4, "beat_every": 0.5, "repeat_after": 0.3, **changes}
    return TopicClient(options, ClientSettings(**given))


_CHILD = """
import asyncio, json, sys
from pathlib import Path
from distributary.topics.nats import NatsOptions, TopicService
from tests.topics.nats.running import settings

async def main():
    told = json.loads(sys.argv[1])
    home = Path(told["home"]) if told["home"] else None
    options = NatsOptions(told["url"], told["token"], folder=home)
    service = TopicService(options, settings(Path(told["folder"])))
    task = asyncio.create_task(service.run())
    ready = service.standing_by if told["stands_by"] else service.started
    started = asyncio.create_task(ready.wait())
    await asyncio.wait((task, started), return_when=asyncio.FIRST_COMPLETED)
    print("started", flush=True)
    await task

asyncio.run(main())
"""


class Child:
    """A service in a process of its own, to be killed."""

    def __init__(self, options: NatsOptions, folder: Path) -> None:
        home = str(options.folder) if options.folder else ""
        self._told = {
            "url": options.url,
            "token": options.token,
            "home": home,
            "folder": str(folder),
        }
        self.process: asyncio.subprocess.Process | None = None

    async def start(self, *, stands_by: bool = False) -> None:
        """Start it, and wait until it serves, or until it stands by at least."""
        self.process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            _CHILD,
            json.dumps({**self._told, "stands_by": stands_by}),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert self.process.stdout is not None
        said = await self.process.stdout.readline()
        assert said == b"started\n"

    async def kill(self) -> None:
        """SIGKILL, whatever it is doing."""
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.communicate()
        self.process = None
