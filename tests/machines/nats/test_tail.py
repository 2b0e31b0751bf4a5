"""Streams and buckets are followed through everything that happens to server and connection."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from nats.aio.client import Client
from nats.js.api import KeyValueConfig, StreamConfig

from distributary.machines.nats import connect_to_server, run_embedded_server
from distributary.machines.nats.embedded import EmbeddedServer
from distributary.machines.nats.tail import follow_stream, watch_keys

PATIENCE = 240.0  # seconds after which a test fails: never how long anything should take


def run(work: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE):
            await work

    asyncio.run(bounded())


@asynccontextmanager
async def connected(folder: Path) -> AsyncIterator[tuple[EmbeddedServer, Client]]:
    async with (
        run_embedded_server(folder) as server,
        connect_to_server(server.options, name="t") as nc,
    ):
        yield server, nc


async def publish(nc: Client, subject: str, data: bytes) -> None:
    """Store a message once, however often the server is away or slow to confirm it."""
    headers = {"Nats-Msg-Id": uuid4().hex}
    while True:
        try:
            await nc.jetstream(timeout=1.0).publish(subject, data, headers=headers)
        except Exception:
            await asyncio.sleep(0.1)
        else:
            return


async def collect_messages(nc: Client, found: list[bytes], since: float) -> None:
    async with aclosing(follow_stream(nc, "s", since=since)) as batches:
        async for batch in batches:
            found += [message.data for message in batch.messages]


async def collect_keys(nc: Client, found: dict[str, bytes], log: list[str]) -> None:
    async with aclosing(watch_keys(nc, "b")) as batches:
        async for batch in batches:
            for change in batch.changes:
                log.append(change.key)
                if change.value is None:
                    del found[change.key]
                else:
                    found[change.key] = change.value
            if batch.complete and "complete" not in log:
                log.append("complete")


async def wait_for(found: Any, wanted: Any) -> None:
    while found != wanted:
        await asyncio.sleep(0.02)


def test_a_stream_is_read_from_a_time_on_and_then_as_it_grows(tmp_path: Path) -> None:
    async def work() -> None:
        async with connected(tmp_path) as (_, nc):
            await nc.jetstream().add_stream(StreamConfig("s", subjects=["s.>"]))
            await publish(nc, "s.a", b"old")
            await asyncio.sleep(0.05)
            since = time.time()
            for number in range(5):
                await publish(nc, "s.a", b"%d" % number)
            found: list[bytes] = []
            task = asyncio.create_task(collect_messages(nc, found, since))
            await wait_for(found, [b"0", b"1", b"2", b"3", b"4"])
            await publish(nc, "s.b", b"5")
            await wait_for(found, [b"%d" % number for number in range(6)])
            task.cancel()

    run(work())


def test_a_stream_loses_and_doubles_nothing_when_the_server_is_killed(tmp_path: Path) -> None:
    async def work() -> None:
        async with connected(tmp_path) as (server, nc):
            await nc.jetstream().add_stream(StreamConfig("s", subjects=["s.>"]))
            found: list[bytes] = []
            task = asyncio.create_task(collect_messages(nc, found, time.time() - 1))
            sent = []
            for number in range(60):
                await publish(nc, "s.a", b"%d" % number)
                sent.append(b"%d" % number)
                if number in (20, 40):
                    os.kill(server.pid, signal.SIGKILL)
            while not found or found[-1] != sent[-1]:
                await asyncio.sleep(0.02)
            assert found == sent
            task.cancel()

    run(work())


def test_a_bucket_is_listed_and_then_its_changes_are_told(tmp_path: Path) -> None:
    async def work() -> None:
        async with connected(tmp_path) as (_, nc):
            kv = await nc.jetstream().create_key_value(KeyValueConfig("b"))
            await kv.put("receiver.a", b"1")
            await kv.put("receiver.b", b"1")
            await kv.delete("receiver.b")
            found: dict[str, bytes] = {}
            log: list[str] = []
            task = asyncio.create_task(collect_keys(nc, found, log))
            while "complete" not in log:
                await asyncio.sleep(0.02)
            assert found == {"receiver.a": b"1"}
            await kv.put("receiver.c", b"2")
            await wait_for(found, {"receiver.a": b"1", "receiver.c": b"2"})
            await kv.delete("receiver.a")
            await wait_for(found, {"receiver.c": b"2"})
            task.cancel()

    run(work())


def test_an_empty_bucket_is_complete_at_once(tmp_path: Path) -> None:
    async def work() -> None:
        async with connected(tmp_path) as (_, nc):
            await nc.jetstream().create_key_value(KeyValueConfig("b"))
            async with aclosing(watch_keys(nc, "b")) as batches:
                async for batch in batches:
                    assert batch.complete
                    assert not batch.changes
                    break

    run(work())


def test_a_bucket_that_does_not_exist_yet_is_waited_for(tmp_path: Path) -> None:
    async def work() -> None:
        async with connected(tmp_path) as (_, nc):
            found: dict[str, bytes] = {}
            task = asyncio.create_task(collect_keys(nc, found, []))
            await asyncio.sleep(0.5)
            kv = await nc.jetstream().create_key_value(KeyValueConfig("b"))
            await kv.put("a", b"1")
            await wait_for(found, {"a": b"1"})
            task.cancel()

    run(work())


def test_after_the_server_was_away_only_the_differences_of_a_bucket_are_told(
    tmp_path: Path,
) -> None:
    async def work() -> None:
        async with connected(tmp_path) as (server, nc):
            kv = await nc.jetstream().create_key_value(KeyValueConfig("b"))
            for key in "abc":
                await kv.put(key, b"1")
            found: dict[str, bytes] = {}
            log: list[str] = []
            task = asyncio.create_task(collect_keys(nc, found, log))
            await wait_for(found, dict.fromkeys("abc", b"1"))
            log.clear()
            async with connect_to_server(server.options, name="other") as other:
                server_was = server.pid
                os.kill(server.pid, signal.SIGKILL)
                while server.pid == server_was:
                    await asyncio.sleep(0.02)
                await publish(other, "$KV.b.b", b"2")
                changed = await other.jetstream().key_value("b")
                await changed.delete("c")
                await wait_for(found, {"a": b"1", "b": b"2"})
            assert sorted(each for each in log if each != "complete") == ["b", "c"]
            task.cancel()

    run(work())
