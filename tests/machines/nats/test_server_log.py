"""Who a real server refuses for a wrong name or token is told, also after it was started again."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from distributary.machines.nats import connect_to_server, run_embedded_server
from distributary.machines.nats.errors import ServerRefusedError
from distributary.machines.nats.options import NatsOptions
from distributary.machines.nats.server_log import RefusedLogins
from distributary.machines.nats.users import NatsUser

PATIENCE = 240.0  # seconds after which a test fails: never how long anything should take


async def be_refused(options: NatsOptions) -> None:
    with pytest.raises(ServerRefusedError):
        async with connect_to_server(replace(options, folder=None), name="x"):
            pass


@pytest.mark.parametrize("users", [(), (NatsUser("ann", "a" * 20),)])
def test_who_is_refused_is_told(tmp_path: Path, users: tuple[NatsUser, ...]) -> None:
    told: list[str] = []

    async def work() -> None:
        async with (
            asyncio.timeout(PATIENCE),
            run_embedded_server(tmp_path, users=users, on_refused=told.append) as server,
        ):
            url, first = server.options.url, server.pid
            async with connect_to_server(server.options, name="x"):
                pass
            await be_refused(NatsOptions(url, user="ann", password="guessed"))
            await be_refused(NatsOptions(url, user='a "b"', password="guessed"))
            await be_refused(NatsOptions(url))
            while len(told) < 3:
                await asyncio.sleep(0.02)
            os.kill(first, signal.SIGKILL)
            while server.pid == first:
                await asyncio.sleep(0.02)
            await be_refused(replace(NatsOptions(server.options.url), token="guessed"))
            while len(told) < 4:
                await asyncio.sleep(0.02)

    asyncio.run(work())
    assert told in (["ann", 'a "b"', "", ""], ["", "", "", ""])  # NATS before 2.15 says no name
    assert told[0] or not users  # to whom it asks for a token


def test_a_line_that_is_being_written_is_told_once_it_is_whole(tmp_path: Path) -> None:
    log, line = tmp_path / "log", '[1] [ERR] cid:1 - authentication error - User "desk"'
    refused = RefusedLogins(log)
    assert refused.read() == []
    log.write_text(f"[1] [INF] Server is ready\n{line}")
    assert refused.read() == []
    log.write_text(f"[1] [INF] Server is ready\n{line}\n{line}\n")
    assert refused.read() == ["desk", "desk"]
    assert refused.read() == []
    log.write_text(f"{line}\n")  # of another process
    assert refused.read() == ["desk"]
