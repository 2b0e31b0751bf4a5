"""The embedded server on a disk that is full for a while, a small file system of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import nats.errors
import pytest
from nats.js.api import KeyValueConfig

from distributary.machines.nats import connect_to_server, run_embedded_server
from tests.small_disk import fill, on_small_disk

PATIENCE = 240.0  # seconds after which a test fails: never how long anything should take
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="mounts a small file system")


async def fill_and_free(folder: Path) -> None:
    told: list[str] = []
    async with (
        asyncio.timeout(PATIENCE),
        run_embedded_server(folder / "s", on_restart=told.append) as server,
        connect_to_server(server.options, name="x") as nc,
    ):
        js, first = nc.jetstream(timeout=1), server.pid
        bucket = await js.create_key_value(KeyValueConfig("b", history=1))
        await bucket.put("k", b"before")
        free = fill(folder)
        with suppress(nats.errors.TimeoutError):
            while True:
                await bucket.put("k", os.urandom(5_000))
        await asyncio.sleep(2.5)  # it is not restarted while that would be in vain
        assert server.pid == first
        free()
        while not told:
            await asyncio.sleep(0.05)
        assert "did not store any more" in told[0]
        assert await try_to(lambda: bucket.put("k", b"after")) > 1
        entry = await bucket.get("k")
        assert entry.value == b"after"


async def kill_while_full(folder: Path) -> None:
    told: list[str] = []
    async with (
        asyncio.timeout(PATIENCE),
        run_embedded_server(folder / "s", on_restart=told.append) as server,
        connect_to_server(server.options, name="x") as nc,
    ):
        js = nc.jetstream(timeout=1)
        bucket = await js.create_key_value(KeyValueConfig("b", history=1))
        for _ in range(20):
            await bucket.put("k", os.urandom(50_000))
        free = fill(folder)
        os.kill(server.pid, signal.SIGKILL)
        await asyncio.sleep(1.5)
        assert not told
        free()
        while not told:
            await asyncio.sleep(0.05)
        assert await try_to(lambda: bucket.put("k", b"after")) > 1


async def try_to(work):
    while True:
        try:
            return await work()
        except nats.errors.Error:
            await asyncio.sleep(0.1)


def test_a_server_writes_again_once_its_disk_has_room(tmp_path: Path) -> None:
    """In NATS a stream that met a full disk stays as it is until the server is started again."""
    on_small_disk(fill_and_free, tmp_path)


def test_a_server_that_dies_on_a_full_disk_waits_for_room(tmp_path: Path) -> None:
    on_small_disk(kill_while_full, tmp_path)
