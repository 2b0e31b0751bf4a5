"""A control plane on a cluster of three NATS servers, each of which is killed in turn."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from pathlib import Path

import nats.errors
import pytest
from nats.js import JetStreamContext

from distributary.control.nats import Control, ControlClient
from distributary.control.nats.member_seats import PublisherPlace
from distributary.errors import DistributaryError
from distributary.machines.nats import NatsOptions, connect_to_server
from tests.control.nats.fake_service import FakeService, add_up, publisher_statistics
from tests.control.nats.services import run, status_that, version_of
from tests.control.nats.test_stand_by import check_history, started

SERVERS = 3


class ClusterServer:
    """One server of a cluster, with a configuration and a store of its own."""

    def __init__(self, folder: Path, at: int, ports: list[int], routes: list[int]) -> None:
        self.name, self.url = f"server-{at}", f"nats://127.0.0.1:{ports[at]}"
        self._config = folder / f"{at}.conf"
        self._config.write_text(
            f"""server_name: "{self.name}"
            listen: "127.0.0.1:{ports[at]}"
            jetstream {{ store_dir: {json.dumps(str(folder / str(at)))} }}
            cluster {{
                name: "three", listen: "127.0.0.1:{routes[at]}"
                routes: {json.dumps([f"nats://127.0.0.1:{port}" for port in routes])}
            }}"""
        )
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        binary = str(Path(sys.executable).with_name("nats-server"))
        with self._config.with_suffix(".log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(binary, "-c", str(self._config)), stderr=log
            )

    async def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


@asynccontextmanager
async def running_cluster(folder: Path) -> AsyncIterator[list[ClusterServer]]:
    folder.mkdir()
    ports = find_ports(2 * SERVERS)
    servers = [ClusterServer(folder, at, ports[::2], ports[1::2]) for at in range(SERVERS)]
    try:
        for server in servers:
            await server.start()
        yield servers
    finally:
        for server in servers:
            await server.kill()


def find_ports(number: int) -> list[int]:
    """Free ones: each server is told those of the others."""
    with ExitStack() as stack:
        found = [stack.enter_context(socket.socket()) for _ in range(number)]
        for each in found:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in found]


async def become_whole(js: JetStreamContext, streams: int) -> list[str]:
    """Wait until each stream has all its replicas; the servers that lead them."""
    while True:
        with suppress(nats.errors.Error, TimeoutError):
            found = [info.cluster for info in await js.streams_info()]
            if len(found) >= streams and all(
                each is not None
                and each.leader
                and len(each.replicas or ()) == SERVERS - 1
                and all(peer.current and not peer.offline for peer in each.replicas or ())
                for each in found
            ):
                return [str(each.leader) for each in found if each is not None]
        await asyncio.sleep(0.1)


async def count_messages(publisher: PublisherPlace, counted: Counter[str]) -> None:
    """Count some all the time."""
    while True:
        for number in range(20):
            counted[f"f{number}"] += 1
            publisher.count(f"f{number}")
        publisher.report(1, publisher_statistics(counted.total()))
        await asyncio.sleep(0.05)


async def is_placed(client: ControlClient, flow: str) -> None:
    """Wait until a flow has a place, for the receiver that wants it."""
    while True:
        with suppress(DistributaryError):
            if (await client.flow(flow)).session is not None:
                return
        await asyncio.sleep(0.05)


@pytest.mark.slow
def test_nothing_accepted_is_lost_while_each_server_of_a_cluster_is_killed(tmp_path: Path) -> None:
    async def work() -> None:
        counted: Counter[str] = Counter()
        faults: list[DistributaryError] = []
        led: list[list[str]] = []
        async with AsyncExitStack() as stack:
            enter = stack.enter_async_context
            servers = await enter(running_cluster(tmp_path / "cluster"))
            url = ",".join(server.url for server in servers)
            options = NatsOptions(url)
            nc = await enter(connect_to_server(options, name="test", within=60.0))
            js = nc.jetstream()
            services = [await enter(started(tmp_path / name, url)) for name in ("a", "b")]
            client = await enter(ControlClient(options, within=200.0))
            await status_that(client, lambda found: found.service.stand_bys == 1)
            control = Control(options)
            publisher = await enter(control.seat_publisher("p", None, faults.append))
            receiver = await enter(control.seat_receiver("r", ("first",), faults.append))
            await is_placed(client, "first")
            streams = len(await become_whole(js, 0))
            counting = asyncio.create_task(count_messages(publisher, counted))
            for server in servers:
                led.append(await become_whole(js, streams))
                known = await client.changes(1_000)
                before = version_of(await client.status())
                await server.kill()
                receiver.want([server.name])
                await is_placed(client, server.name)
                assert version_of(await client.status()) > before
                changes = await client.changes(1_000)
                assert changes[len(changes) - len(known) :] == known
                reports = publisher.statistics.reports
                while publisher.statistics.reports < reports + 10:  # they are accepted
                    await asyncio.sleep(0.05)
                await server.start()
            await become_whole(js, streams)
            counting.cancel()
            await asyncio.wait([counting])
            while publisher.statistics.kept_messages:
                await asyncio.sleep(0.05)
            reader = FakeService(nc, "distributary")
            assert add_up(await reader.read_publisher_reports("p")) == counted
            status = await status_that(client, lambda found: found.service.stand_bys == 1)
            assert [(each.name, each.wants) for each in status.receivers] == [("r", 1)]
            assert all(service.process.returncode is None for service in services)
            check_history(await client.changes(1_000))
        # Each server led something when it was killed.
        assert all(server.name in names for server, names in zip(servers, led, strict=True)), led

    run(work())
