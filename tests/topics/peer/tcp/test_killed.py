"""Peers are killed and suspended, and nobody loses, doubles or reorders an event."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from distributary.topics.peer.tcp.client import RingClient
from tests.topics.peer.tcp.processes import PATIENCE, make_client, run_peers
from tests.topics.peer.tcp.storm import storm


def test_acknowledged_events_are_read_once_in_order_while_peers_fail(tmp_path: Path) -> None:
    account = asyncio.run(storm(tmp_path, peers=4, topics=4, readers=4, seconds=6, seed=1))
    account.check()
    assert sum(map(len, account.acknowledged.values())) > 10
    assert account.faults


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_it_holds_with_many_peers_for_a_minute(seed: int, tmp_path: Path) -> None:
    account = asyncio.run(storm(tmp_path, peers=12, topics=20, readers=20, seconds=60, seed=seed))
    account.check()
    assert sum(map(len, account.acknowledged.values())) > 200
    assert set(account.faults) == {"killed", "suspended"}


async def restart_all(folder: Path) -> None:
    async with run_peers(folder, 3) as ring:
        async with make_client(ring) as client:
            assert await client.create("t")
            await client.publish("t", b"before")
        for each in ring:
            each.signal(signal.SIGKILL)
        for each in ring:
            await each.wait()
        for each in ring:
            await each.start(joins=False)
        async with make_client(ring[1:]) as client:
            assert not await client.create("t")
            subscription = await client.subscribe("t")
            await client.publish("t", b"after")
            event = await asyncio.wait_for(subscription.get(), PATIENCE)
    assert event is not None
    assert (event.number, event.payload) == (2, b"after")


def test_a_ring_whose_peers_were_all_killed_finds_itself_and_its_topics_again(
    tmp_path: Path,
) -> None:
    asyncio.run(restart_all(tmp_path))


async def leave_one_by_one(folder: Path) -> None:
    async with run_peers(folder, 3) as ring, make_client(ring[::-1]) as client:
        await client.create("t")
        subscription = await client.subscribe("t")
        for at, peer in enumerate(ring[::-1][:2]):
            await client.publish("t", b"%d" % at)
            assert await peer.end(signal.SIGINT) == 0, peer.notes
        await client.publish("t", b"2")
        got = [await asyncio.wait_for(subscription.get(), PATIENCE) for _ in range(3)]
    assert [event.payload for event in got if event is not None] == [b"0", b"1", b"2"]


async def follow_a_suspended_peer(folder: Path) -> None:
    async with (
        run_peers(folder, 4) as ring,
        make_client(ring[1:]) as reader,
        make_client(ring[2:]) as publisher,
    ):
        assert isinstance(reader, RingClient)
        never = replace(reader.machine.subscriber.policy, refresh=1e9)
        reader.machine.subscriber.policy = never  # what it misses it is not to request again
        await publisher.create("t")
        subscription = await reader.subscribe("t")
        ring[1].signal(signal.SIGSTOP)
        for number in range(30):
            await publisher.publish("t", b"%d" % number)
            event = await asyncio.wait_for(subscription.get(), PATIENCE)
            assert event is not None
            assert event.payload == b"%d" % number
        assert reader.peer != ring[1].address
        ring[1].signal(signal.SIGCONT)


def test_a_reader_whose_peer_is_suspended_gets_events_at_another(tmp_path: Path) -> None:
    asyncio.run(follow_a_suspended_peer(tmp_path))


def test_peers_that_leave_hand_their_topics_on_and_exit_with_0(tmp_path: Path) -> None:
    asyncio.run(leave_one_by_one(tmp_path))
