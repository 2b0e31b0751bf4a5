"""What happens in the namespace when members belong to a control plane that really runs."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from distributary.control import ControlSettings, NetworkSettings
from distributary.control.errors import ControlLostError
from distributary.control.nats import Control, ControlClient, ControlService, SparkChoice
from distributary.delivery.udp import NetworkOptions, Publisher, Receiver
from distributary.machines.nats import NatsOptions, connect_to_server, run_embedded_server
from distributary.machines.real.log_lines import LogLine
from tests.control.nats.fake_service import FakeService, add_up
from tests.delivery.udp.command_scenarios import start_command
from tests.delivery.udp.scenarios import QUICK, read_page
from tests.delivery.udp.seat_scenarios import Deliveries, Traffic, running, until

LOOPBACK = NetworkOptions(interface="lo")


@asynccontextmanager
async def serving(
    options: NatsOptions, folder: Path, log: Callable[[LogLine], None] = lambda line: None
) -> AsyncIterator[ControlService]:
    settings = ControlSettings(groups=2, sessions=4, network=NetworkSettings(ttl=0))
    service = ControlService(options, settings, folder, spark=SparkChoice("off"), log=log)
    running = asyncio.create_task(service.run())
    await service.started.wait()
    try:
        yield service
    finally:
        service.stop()
        await running


async def members_go_on_without_their_control_plane(folder: str) -> None:
    """Wanted flows are placed; without the control plane traffic goes on; later it is placed on."""
    where, got, faults = Path(folder), Deliveries(), list[object]()
    control = Control(where)
    async with AsyncExitStack() as members:
        enter = members.enter_async_context
        async with run_embedded_server(where) as server, serving(server.options, where / "s"):
            publisher = await enter(
                Publisher(
                    *(None, LOOPBACK),
                    **{"control": control, "name": "p", "params": QUICK, "stay": 0.01},
                    on_fault=faults.append,
                )
            )
            receiver = await enter(
                Receiver(
                    **{"control": control, "name": "r", "interest": ["a"], "network": LOOPBACK},
                    on_report=got.report,
                    on_fault=faults.append,
                )
            )
            traffic = Traffic(publisher, ["a", "b", "c", "d"])
            await enter(running(traffic.run(), got.run(receiver)))
            await until(lambda: len(got.numbers["a"]) > 20)
            receiver.want_also(["b"])
            await until(lambda: "b" in got.subscribed)
            await until(lambda: len(got.numbers["b"]) > 20)
            assert not faults
        await until(lambda: len(faults) == 2)
        assert {type(fault) for fault in faults} == {ControlLostError}
        before = {flow: len(got.numbers[flow]) for flow in "ab"}
        receiver.want_also(["c"])  # nobody hears it yet
        await until(lambda: all(len(got.numbers[flow]) > n + 50 for flow, n in before.items()))
        receiver.unsubscribe(["b"])
        assert not publisher.statistics.control.connected  # type: ignore[union-attr]
        assert publisher.statistics.control.kept_messages > 0  # type: ignore[union-attr]
        async with (
            run_embedded_server(where) as server,
            serving(server.options, where / "s"),
            ControlClient(server.options) as client,
        ):
            await until(lambda: "c" in got.subscribed)
            await until(lambda: len(got.numbers["c"]) > 20)
            while [each.wants for each in (await client.status()).receivers] != [2]:
                await asyncio.sleep(0.02)
            await members.aclose()
            got.numbers.pop("b")
            got.are_whole()
            while (await client.status()).receivers:
                await asyncio.sleep(0.02)


def list_alarms(service: ControlService) -> set[str]:
    status = service.latest
    return set() if status is None else {alarm.what for alarm in status.alarms}


async def the_server_is_away(folder: str, seconds: float) -> None:
    """Control lives on without its server: traffic too, and nothing that happens is forgotten."""
    where, got, faults, log = Path(folder), Deliveries(), list[object](), list[LogLine]()
    control, loop = Control(where), asyncio.get_running_loop()
    async with AsyncExitStack() as services, AsyncExitStack() as members:
        first = AsyncExitStack()
        server = await first.enter_async_context(run_embedded_server(where))
        service = await services.enter_async_context(
            serving(server.options, where / "s", log.append)
        )
        publisher = await members.enter_async_context(
            Publisher(
                *(None, LOOPBACK),
                **{"control": control, "name": "p", "params": QUICK, "stay": 0.01},
                on_fault=faults.append,
            )
        )
        receiver = await members.enter_async_context(
            Receiver(
                **{"control": control, "name": "r", "interest": ["a", "b"], "network": LOOPBACK},
                on_report=got.report,
                on_fault=faults.append,
            )
        )
        traffic = Traffic(publisher, ["a", "b", "c", "d"], pause=0.005)
        async with running(traffic.run(), got.run(receiver)):
            await until(lambda: min(len(got.numbers[flow]) for flow in "ab") > 20)
            assert not faults
            await first.aclose()
            away = loop.time()
            await until(lambda: len(faults) == 2)
            assert {type(fault) for fault in faults} == {ControlLostError}
            await until(lambda: "server away" in {line.what for line in log})
            receiver.want_also(["c"])  # nobody hears it yet
            receiver.unsubscribe(["b"])
            while loop.time() < away + seconds:
                before = len(got.numbers["a"])
                await until(lambda before=before: len(got.numbers["a"]) > before + 50)  # type: ignore[misc]
            assert "c" not in got.subscribed
            await until(lambda: "server away" in list_alarms(service))
            assert publisher.statistics.control is not None
            assert publisher.statistics.control.kept_messages > 0
            server = await services.enter_async_context(run_embedded_server(where))
            client = await services.enter_async_context(ControlClient(server.options, within=60.0))
            await until(lambda: "c" in got.subscribed)
            await until(lambda: len(got.numbers["c"]) > 20)
            while [each.wants for each in (await client.status()).receivers] != [2]:
                await asyncio.sleep(0.02)
        await until(lambda: "server back" in {line.what for line in log})
        await members.aclose()
        got.numbers.pop("b")
        got.are_whole()
        nc = await services.enter_async_context(connect_to_server(server.options, name="test"))
        reports = await FakeService(nc, "distributary").read_publisher_reports("p")
        assert add_up(reports) == traffic.sent
        assert not {"publisher gone", "receiver gone"} & {line.what for line in log}


async def _read_lines(process: asyncio.subprocess.Process) -> AsyncIterator[dict[str, Any]]:
    assert process.stdout is not None
    async for line in process.stdout:
        yield json.loads(line)


async def _write(process: asyncio.subprocess.Process, text: str) -> None:
    assert process.stdin is not None
    process.stdin.write(text.encode())
    await process.stdin.drain()


async def commands_belong_to_a_control_plane(folder: str) -> None:
    """No plan folder, no table of interest: names, a URL or a folder, and lines on stdin."""
    where = Path(folder)
    (where / "key").touch(0o600)
    (where / "users").touch(0o600)
    names = {"publisher": {"feed": "f" * 20}, "receiver": {"ann": "a" * 20, "bob": "b" * 20}}
    (where / "users").write_text(json.dumps(names))
    for name, token in (("feed", "f" * 20), ("ann", "a" * 20), ("bob", "w" * 20)):
        (where / name).touch(0o600)
        (where / name).write_text(token)
    state = where / "state"
    words = ("--spark", "off", "--ttl", "0", "--users", str(where / "users"), "--log-json")
    service = await start_command("control", "serve", "--state", str(state), *words)
    assert service.stderr is not None
    url = json.loads(await service.stderr.readline())["url"]
    await service.stderr.readline()

    def member(name: str) -> tuple[str, ...]:
        token = ("--token-file", str(where / name))
        return ("--control", url, "--as", name, *token, "--interface", "lo", "--log-json")

    pipe = asyncio.subprocess.PIPE
    ann = await start_command("receive", *member("ann"), "--flow", "x", stdin=pipe)
    feed = await start_command("publish", *member("feed"), "--metrics", "0", "--json", stdin=pipe)
    assert feed.stderr is not None
    page = (await feed.stderr.readline()).decode().split("metrics at ")[1].strip()

    async def publish() -> None:
        for number in range(1_000_000):
            await _write(feed, f"x\tx {number}\ny\ty {number}\n")
            await asyncio.sleep(0.002)

    async with running(publish()):
        found = _read_lines(ann)
        while (await anext(found)).get("flow") != "x":
            pass
        await _write(ann, "+y\n")
        while (await anext(found)).get("flow") != "y":
            pass
        await _write(ann, "nonsense\n")
        taken = await start_command("receive", *member("ann"), "--flow", "x")
        _, said = await taken.communicate()
        assert (taken.returncode, said.count(b"\n")) == (1, 1), said
        assert b"the name 'ann' is taken" in said
        wrong = await start_command("receive", *member("bob"), "--flow", "x")
        _, said = await wrong.communicate()
        assert (wrong.returncode, said.count(b"\n")) == (1, 1), said
        assert b"check the credentials" in said
        shown = await asyncio.to_thread(read_page, page)
        assert "distributary_publisher_control_connected 1.0" in shown
        assert "distributary_publisher_control_version" in shown
    feed.send_signal(signal.SIGINT)
    told, said = await feed.communicate()
    assert feed.returncode == 130, said
    assert json.loads(told)["messages"] > 0
    ann.send_signal(signal.SIGINT)
    while ann.returncode is None:
        try:
            await anext(found)
        except StopAsyncIteration:
            await ann.wait()
    assert ann.returncode == 0
    assert ann.stderr is not None
    log = [json.loads(line) async for line in ann.stderr]
    assert {"Unserved", "stdin", "ended"} <= {line["what"] for line in log}
    assert all({"time", "level"} <= line.keys() for line in log)
    service.send_signal(signal.SIGINT)
    await service.communicate()
    assert service.returncode == 0
    assert os.listdir(state)  # it keeps what it knows
