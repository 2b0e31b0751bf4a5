"""A topic service whose embedded server has a small disk, which is full for a while."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from distributary.topics.nats import TopicClient, TopicService, run_embedded_server
from distributary.topics.nats.storage_watch import StorageWatch
from tests.small_disk import fill, on_small_disk
from tests.topics.nats.running import PATIENCE, client, settings

LARGE = 40  # events


async def fill_and_free(folder: Path) -> None:
    """Nothing is confirmed on a full disk, the service says why, and goes on once there is room."""
    lines: list[str] = []
    async with asyncio.timeout(PATIENCE), run_embedded_server(folder / "nats") as server:
        service = TopicService(server.options, settings(folder / "s"), report=lines.append)
        running = asyncio.create_task(service.run())
        async with client(server.options, timeout=PATIENCE) as both:
            await both.create("t")
            read = await both.subscribe("t")
            await both.publish("t", b"1")
            free = fill(folder)
            publishing = asyncio.create_task(publish_all(both))
            while not any("does not store" in line for line in lines):
                assert not running.done()
                await asyncio.sleep(0.05)
            assert not publishing.done()
            free()
            await publishing
            events = [await read.get() for _ in range(1 + LARGE)]
            assert [len(event.payload) for event in events if event] == [1, *[100_000] * LARGE]
        assert any("stores again" in line for line in lines)
        service.stop()
        await running


async def publish_all(publisher: TopicClient) -> None:
    for _ in range(LARGE):
        await publisher.publish("t", bytes(100_000))


@pytest.mark.skipif(sys.platform != "linux", reason="mounts a small file system")
def test_a_full_disk_is_said_and_healed_by_room(tmp_path: Path) -> None:
    on_small_disk(fill_and_free, tmp_path)


class Watched:
    """A watch, its clock, and whether there is a connection."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.now, self.is_connected = 0.0, True
        self.watch = StorageWatch(
            self.lines.append, lambda: self.is_connected, clock=lambda: self.now
        )

    def fail(self, *whats: str, seconds: int) -> None:
        for _ in range(seconds):
            for what in whats:
                self.watch.note_failed(what, TimeoutError("no answer"))
            self.now += 1.0


def test_what_lasts_is_said_once_and_so_is_its_end() -> None:
    watched = Watched()
    watched.fail("state", seconds=3)
    watched.watch.note_stored("state")
    assert watched.lines == []
    watched.fail("state", "lease", seconds=10)
    (said,) = watched.lines
    assert "does not store the state of this service (no answer), which confirms nothing" in said
    assert "more room" in said
    assert "restart it" in said
    watched.watch.note_stored("state")
    assert len(watched.lines) == 1  # the lease is not stored yet
    watched.watch.note_stored("lease")
    watched.watch.note_stored("lease")
    assert watched.lines[1:] == ["JetStream stores again, and this service goes on"]


def test_a_server_that_is_away_is_not_said_to_store_nothing() -> None:
    watched = Watched()
    watched.is_connected = False
    watched.fail("state", seconds=10)
    watched.is_connected = True
    watched.fail("state", seconds=3)
    assert watched.lines == []
