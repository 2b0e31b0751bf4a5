"""A broker service that stops in order and starts again."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from distributary.content.heard import read_heard
from distributary.content.store import BrokerStore
from distributary.content.tcp import ContentClient, ContentClientSettings
from distributary.machines.real import Store
from tests.content.tcp.processes import PATIENCE, run_brokers
from tests.content.tcp.services import SCHEMA, serve
from tests.content.tcp.test_service import check_delivery, run

PATIENT = ContentClientSettings(timeout=PATIENCE)


def test_a_clean_stop_saves_what_the_neighbours_have_said(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serve(tmp_path, "A") as a:
            async with serve(tmp_path, "B", a) as b:
                await b.until("linked with A")
                await check_delivery(a, b)
            known = b.host.broker.core.collect_received("A")
            assert known
            with Store(tmp_path / "B") as store:
                recovery = BrokerStore(store, "B", SCHEMA).recover()
            assert read_heard(recovery.saved) == {"A": known}
            async with serve(tmp_path, "B", a) as b:
                await b.until("linked with A")
                await check_delivery(a, b)

    run(scenario)


@asynccontextmanager
async def subscribe_by_command(folder: Path, address: str) -> AsyncIterator[list[float]]:
    """Run `broker subscribe`; the list has the prices that it has printed so far."""
    words = ["subscribe", "price > 0", "--broker", address, "--as", "cli", "--json"]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "distributary", "broker", *words),
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    printed: list[float] = []

    async def read(lines: asyncio.StreamReader) -> None:
        async for line in lines:
            printed.append(json.loads(line)["event"]["price"])  # noqa: PERF401  # as they come

    try:
        async with asyncio.timeout(PATIENCE):
            assert b"subscribed as 'cli'" in await process.stderr.readline()
        reading = asyncio.create_task(read(process.stdout))
        yield printed
        assert process.returncode is None
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(PATIENCE):
            await reading
            await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not is_so():
            await asyncio.sleep(0.01)


def test_clients_go_on_when_a_broker_is_stopped_by_sigterm_and_started_again(
    tmp_path: Path,
) -> None:
    """As an upgrade does: it is not the end of a client's session, as a `Goodbye` is."""

    async def scenario() -> None:
        async with (
            run_brokers(tmp_path, {"A": ()}) as brokers,
            ContentClient(brokers["A"].address, name="ann") as ann,
            ContentClient(brokers["A"].address, name="pub", settings=PATIENT) as pub,
            subscribe_by_command(tmp_path, brokers["A"].address) as printed,
        ):
            mine = await ann.subscribe("price > 0")
            await pub.publish({"price": 1.0})
            assert await brokers["A"].end(signal.SIGTERM) == 0
            await until(lambda: not pub.statistics.is_connected)
            waiting = asyncio.create_task(pub.publish({"price": 2.0}))
            await brokers["A"].start()
            await waiting
            await pub.publish({"price": 3.0})
            expected = [1.0, 2.0, 3.0]
            async with asyncio.timeout(PATIENCE):
                got = [(await anext(mine)).attributes["price"] for _ in expected]
            assert got == expected
            await until(lambda: len(printed) >= len(expected))
            assert ann.statistics.connections == 2
            assert ann.statistics.losses == 0
        assert printed == expected

    run(scenario)
