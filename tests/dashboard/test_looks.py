"""Looks at real topic services and content brokers."""

from __future__ import annotations

import asyncio
from pathlib import Path

from distributary.content.tcp import Credentials
from distributary.dashboard.looks import BrokerLook, TopicLook, look_at_all
from distributary.machines.nats import NatsOptions, run_embedded_server
from tests.content.tcp.services import serve
from tests.topics.nats.running import client, run, serving

NOBODY = Credentials("status")


def test_a_topic_service_is_looked_at(tmp_path: Path) -> None:
    async def work() -> None:
        async with run_embedded_server(tmp_path / "nats") as server:
            look = TopicLook(server.options, within=1.0)
            [found] = await look_at_all([look])
            assert found["status"] is None
            assert found["says"]
            async with serving(server.options, tmp_path / "s"), client(server.options) as user:
                await user.create("weather")
                [found] = await look_at_all([look])
                assert (found["says"], found["status"]["topics"]) == ("", 1)
                assert found["address"] == server.options.address

    run(work())


def test_an_address_never_has_secrets() -> None:
    look = TopicLook(NatsOptions("nats://ann:a-secret@192.0.2.1"))
    assert "a-secret" not in look.address
    assert "a-secret" not in repr(look)


def test_brokers_are_looked_at_and_one_that_is_gone_says_so(tmp_path: Path) -> None:
    async def work() -> None:
        async with serve(tmp_path, "A") as one, serve(tmp_path, "B", one) as other:
            await one.until("B")
            looks = [BrokerLook(str(each.address), NOBODY) for each in (one, other)]
            gone = BrokerLook("127.0.0.1:1", NOBODY, within=0.5)
            first, second, third = await look_at_all([*looks, gone])
        assert first["status"]["network"] == [["A", "B"]]
        assert [each["neighbour"] for each in second["status"]["links"]] == ["A"]
        assert third["status"] is None
        assert "127.0.0.1:1" in third["says"]

    asyncio.run(asyncio.wait_for(work(), 60.0))


def test_a_look_that_is_slow_holds_up_no_other(tmp_path: Path) -> None:
    """All are asked at once, each for as long as it may take."""

    async def work() -> None:
        async def keep(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

        silent = await asyncio.start_server(keep, "127.0.0.1", 0)
        port = silent.sockets[0].getsockname()[1]
        async with silent, serve(tmp_path, "A") as broker:
            slow = [BrokerLook(f"127.0.0.1:{port}", NOBODY, within=0.5) for _ in range(20)]
            found = await look_at_all([*slow, BrokerLook(str(broker.address), NOBODY)])
        assert [each["status"] is None for each in found] == [True] * 20 + [False]

    asyncio.run(asyncio.wait_for(work(), 60.0))
