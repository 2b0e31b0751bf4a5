"""Of several services one answers; the others know it before they say anything."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from distributary.errors import LiveError
from distributary.machines.nats.options import connect_to_server
from distributary.topics.nats import (
    NatsOptions,
    ServiceReplacedError,
    ServiceRunningError,
    TopicService,
    run_embedded_server,
)
from distributary.topics.nats.lease import Lease, LeaseState
from distributary.topics.nats.subjects import Subjects
from tests.topics.nats.running import Child, client, run, serving, settings


async def leave_a_member_behind(options: NatsOptions) -> None:
    """A topic with an event and a subscriber: whoever hosts it has something to say."""
    with suppress(LiveError):
        async with client(options, beat_every=60.0) as gone:
            await gone.create("t")
            await gone.subscribe("t")
            await gone.publish("t", b"")
            await gone._open().close()  # without a goodbye


def test_a_service_that_slept_while_another_took_its_place_ends_without_a_word(
    tmp_path: Path,
) -> None:
    said: list[str] = []

    async def hear(message: Any) -> None:
        said.append(message.subject)

    async def work() -> None:
        async with run_embedded_server(tmp_path / "server", jetstream=False) as server:
            asleep = Child(server.options, tmp_path / "one")
            awake = Child(server.options, tmp_path / "two")
            await asleep.start()
            try:
                await leave_a_member_behind(server.options)
                assert asleep.process is not None
                os.kill(asleep.process.pid, signal.SIGSTOP)
                os.kill(server.pid, signal.SIGKILL)  # it comes back, and knows nobody
                await awake.start()
                async with connect_to_server(server.options, name="spy") as spy:
                    await spy.subscribe("distributary.on.>", cb=hear)
                    await spy.subscribe("distributary.client.>", cb=hear)
                    await spy.flush()
                    os.kill(asleep.process.pid, signal.SIGCONT)
                    _, errors = await asleep.process.communicate()
                    await spy.flush()
                assert b"ServiceReplacedError: another channel service took over" in errors
                assert said == []
                async with client(server.options) as other:
                    assert await other.create("t")  # the other one serves, and knew no topic
            finally:
                await asleep.kill()
                await awake.kill()

    run(work())


def test_a_service_comes_back_when_only_its_connection_was_gone(tmp_path: Path) -> None:
    async def work() -> None:
        async with (
            run_embedded_server(jetstream=False) as server,
            serving(server.options, tmp_path) as service,
            client(server.options) as other,
        ):
            await other.create("t")
            os.kill(server.pid, signal.SIGKILL)
            assert not await other.create("t")
            assert service.status().topics == 1

    run(work())


def test_of_services_that_start_together_one_serves(tmp_path: Path) -> None:
    async def work() -> None:
        async with run_embedded_server(jetstream=False) as server:
            services = [TopicService(server.options, settings(tmp_path / str(n))) for n in range(4)]
            tasks = [asyncio.create_task(service.run()) for service in services]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            while sum(task.done() for task in tasks) < 3:
                await asyncio.sleep(0.01)
            left = [n for n, task in enumerate(tasks) if not task.done()]
            for n, task in enumerate(tasks):
                if n not in left:
                    assert isinstance(task.exception(), ServiceRunningError)
            async with client(server.options) as other:
                assert await other.create("t")
            services[left[0]].stop()
            await tasks[left[0]]

    run(work())


def test_of_services_that_served_apart_and_meet_the_later_one_stays(tmp_path: Path) -> None:
    async def work() -> None:
        async with run_embedded_server(jetstream=False) as server:
            earlier, later = (
                TopicService(server.options, settings(tmp_path / name)) for name in ("one", "two")
            )
            staying = asyncio.create_task(earlier.run())
            await earlier.started.wait()
            later._lease.state = LeaseState.SERVING  # as proved where it could not see the first
            coming = asyncio.create_task(later.run())
            with pytest.raises(ServiceReplacedError, match="another channel service took over"):
                await staying
            async with client(server.options) as other:
                assert await other.create("t")
            later.stop()
            await coming

    run(work())


def test_a_lie_about_another_service_stops_nobody(tmp_path: Path) -> None:
    async def work() -> None:
        async with (
            run_embedded_server(jetstream=False) as server,
            serving(server.options, tmp_path),
            client(server.options) as other,
            connect_to_server(server.options, name="liar") as liar,
        ):
            lies: list[Any] = [(2, 2**63, "x"), (9, 1, "x"), (2, -1, ""), (2,), None, [[]] * 5]
            for lie in lies:
                await liar.publish("distributary.claim", msgspec.msgpack.encode(lie))
                await liar.publish("distributary.claim", msgspec.msgpack.encode(lie), "nowhere")
            await liar.flush()
            for topic in "tuv":
                assert await other.create(topic)

    run(work())


def test_a_lease_that_is_lost_while_it_is_proved_is_not_held() -> None:
    async def work() -> None:
        async with (
            run_embedded_server(jetstream=False) as server,
            connect_to_server(server.options, name="t", echo=False) as nc,
        ):
            lease = Lease(Subjects())
            await lease.listen(nc)
            proving = asyncio.create_task(lease.prove(nc))
            await asyncio.sleep(0)
            lease.lose()
            assert not await proving
            assert await lease.prove(nc)

    run(work())


def test_what_a_connection_could_not_send_is_not_sent_by_the_next() -> None:
    """Another may serve by then, and what we knew before is not true any more."""

    async def work() -> None:
        heard: asyncio.Queue[bytes] = asyncio.Queue()
        back = asyncio.Event()

        async def hear(message: Any) -> None:
            await heard.put(message.data)

        async def come_back() -> None:
            back.set()

        async with (
            run_embedded_server(jetstream=False) as server,
            connect_to_server(server.options, name="spy") as spy,
            connect_to_server(server.options, name="t", on_reconnect=come_back) as nc,
        ):
            await spy.subscribe("t", cb=hear)
            await spy.flush()
            await nc._send_command(b"PUB t 5\r\nstale\r\n")  # in its buffer, and no further
            await nc.force_reconnect()
            await back.wait()
            await nc.publish("t", b"fresh")
            assert await heard.get() == b"fresh"

    run(work())
