"""A peer whose disk fills up ends with one line; what was confirmed is with the others."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from distributary.topics.live import TopicClient
from tests.content.tcp.test_full_disk import IN_MOUNTS, SMALL, why_no_mounts
from tests.topics.peer.tcp.processes import PATIENCE, PeerProcess, find_ports, make_client


async def publish(client: TopicClient, confirmed: list[bytes]) -> None:
    for number in range(0, 200, 20):
        events = [b"%d " % each + bytes(20_000) for each in range(number, number + 20)]
        await asyncio.gather(*(client.publish("t", event) for event in events))
        confirmed += events


async def scenario(folder: Path) -> None:
    ports = find_ports(3)
    before = [*IN_MOUNTS, SMALL, "sh"]
    small = PeerProcess(folder, ports[0], (), state=Path("disk/state"), before=before)
    await small.start()
    large = [PeerProcess(folder, port, [small.address]) for port in ports[1:]]
    await asyncio.gather(*(each.start() for each in large))
    confirmed: list[bytes] = []
    try:
        async with make_client(large) as client:
            await client.create("t")
            subscription = await client.subscribe("t")
            publishing = asyncio.create_task(publish(client, confirmed))
            assert await small.wait() == 1
            assert "no space left on device" in small.notes[-1]
            await asyncio.wait_for(publishing, PATIENCE)
            got = [await asyncio.wait_for(subscription.get(), PATIENCE) for _ in confirmed]
    finally:
        for each in (small, *large):
            with suppress(ProcessLookupError):
                await each.end()
    assert [event.payload for event in got if event] == confirmed


def test_a_full_disk_ends_a_peer_and_loses_nothing_confirmed(tmp_path: Path) -> None:
    if (reason := why_no_mounts()) is not None:
        pytest.skip(reason)
    asyncio.run(asyncio.wait_for(scenario(tmp_path), 4 * PATIENCE))
