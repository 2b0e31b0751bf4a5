"""Two services as processes, of which the serving one is killed or suspended, and NATS as well."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from distributary.control.nats import Control, ControlClient
from distributary.control.status import AuditEntry, ControlStatus
from distributary.errors import DistributaryError
from distributary.machines.nats import run_embedded_server
from tests.control.nats.services import receiving, run, status_that, version_of
from tests.warm import find_command


@dataclass
class Service:
    """`control serve` as a process of its own, with its log."""

    process: asyncio.subprocess.Process
    log: list[dict[str, object]]

    async def says(self, what: str) -> dict[str, object]:
        """Wait for a line of the log, of those that come from now on."""
        seen = len(self.log)
        while True:
            for line in self.log[seen:]:
                if line["what"] == what:
                    return line
            await asyncio.sleep(0.02)


@asynccontextmanager
async def started(folder: Path, server: Path | str) -> AsyncIterator[Service]:
    words = ("control", "serve", "--state", str(folder), "--nats", str(server), "--log-json")
    more = ("--spark", "off", "--ttl", "0", "--groups", "4", "--sessions", "8")
    command = await asyncio.to_thread(find_command)
    process = await asyncio.create_subprocess_exec(
        *(*command, *words, *more),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    service = Service(process, [])
    reading = asyncio.create_task(read_log(service))
    try:
        yield service
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        await reading


async def read_log(service: Service) -> None:
    assert service.process.stderr is not None
    async for line in service.process.stderr:
        service.log.append(json.loads(line))


async def place(folder: Path, client: ControlClient, name: str, stack: AsyncExitStack) -> None:
    """A receiver of a new flow joins; returns when it is placed."""
    await stack.enter_async_context(receiving(folder, name, f"flow of {name}", "shared"))
    while (await client.flow(f"flow of {name}")).wanted_by != [name]:
        await asyncio.sleep(0.02)
    await status_that(client, version_of)


def check_history(entries: list[AuditEntry]) -> None:
    """Entries are numbered without a gap, and so are the versions that came into force."""
    numbers = [entry.number for entry in reversed(entries)]
    assert numbers == list(range(1, len(numbers) + 1))
    versions = [entry.version for entry in reversed(entries) if entry.what == "in force"]
    assert versions == list(range(1, len(versions) + 1))


def pid_of(status: ControlStatus) -> int:
    """The process that serves."""
    return int(status.service.where.split()[1])


@pytest.mark.parametrize(
    "how", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.slow)]
)
def test_another_service_takes_over_and_goes_on(tmp_path: Path, how: int) -> None:
    """And one that was suspended meanwhile decides nothing any more, but stands by."""
    folder = tmp_path / "server"
    folder.mkdir()

    async def work() -> None:
        async with AsyncExitStack() as stack:
            enter = stack.enter_async_context
            server = await enter(run_embedded_server(folder))
            client = await enter(ControlClient(server.options, within=200.0))
            first = await enter(started(tmp_path / "one", folder))
            one = pid_of(await client.status())
            second = await enter(started(tmp_path / "two", folder))
            await status_that(client, lambda found: found.service.stand_bys == 1)
            await place(folder, client, "early", stack)
            before = await client.status()
            assert pid_of(before) == one
            os.kill(one, how)
            if how == signal.SIGSTOP:
                stack.callback(os.kill, one, signal.SIGCONT)
            # Interest changes while nobody serves.
            await enter(receiving(folder, "meanwhile", "flow of meanwhile"))
            after = await status_that(client, lambda found: pid_of(found) != one)
            assert version_of(after) >= version_of(before)
            found = await status_that(client, lambda found: version_of(found) > version_of(before))
            assert [each.name for each in found.receivers] == ["early", "meanwhile"]
            if how == signal.SIGSTOP:
                replaced = asyncio.create_task(first.says("replaced"))
                await asyncio.sleep(0)
                os.kill(one, signal.SIGCONT)
                await replaced
                found = await status_that(client, lambda found: found.service.stand_bys == 1)
                assert pid_of(found) == pid_of(after)
            await place(folder, client, "late", stack)
            check_history(await client.changes())
            assert [line["what"] for line in second.log].count("serving") == 1

    run(work())


@pytest.mark.slow
def test_both_services_outlive_a_nats_server_that_is_away(tmp_path: Path) -> None:
    """It is killed and started again, and suspended for longer than a lease lasts."""
    folder = tmp_path / "server"
    folder.mkdir()

    async def work() -> None:
        faults: list[DistributaryError] = []
        async with AsyncExitStack() as stack:
            enter = stack.enter_async_context
            server = await enter(run_embedded_server(folder))
            client = await enter(ControlClient(server.options, within=200.0))
            services = [await enter(started(tmp_path / name, folder)) for name in ("a", "b")]
            await status_that(client, lambda found: found.service.stand_bys == 1)
            seat = await enter(Control(folder).seat_receiver("r", ("a",), faults.append))
            before = await status_that(client, version_of)
            os.kill(server.pid, signal.SIGKILL)
            seat.want(["a", "b"])
            while (await ask_again(client)).wanted_by != ["r"]:
                await asyncio.sleep(0.02)
            os.kill(server.pid, signal.SIGSTOP)
            try:
                seat.want(["c"])
                await asyncio.sleep(5.0)  # longer than a lease
            finally:
                os.kill(server.pid, signal.SIGCONT)
            found = await status_that(
                client, lambda found: found.receivers and found.receivers[0].wants == 1
            )
            await place(folder, client, "late", stack)
            assert version_of(found) >= version_of(before)
            check_history(await client.changes())
            assert all(service.process.returncode is None for service in services)
            assert not [alarm for alarm in found.alarms if "damaged" in alarm.what]

    async def ask_again(client: ControlClient) -> object:
        while True:
            with suppress(DistributaryError):
                return await client.flow("b")

    run(work())
