"""The server: our own, one's own, one that is away."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from shutil import which

import pytest

from distributary.machines.nats.options import connect_to_server, find_server
from distributary.topics.nats import (
    NatsOptions,
    ServerAwayError,
    ServerRefusedError,
    TopicClient,
    run_embedded_server,
)
from distributary.topics.nats.status import fetch_server_status
from tests.topics.nats.running import PATIENCE, QUICK, client, run, serving


def test_an_embedded_server_lets_in_who_has_its_token_and_ends_with_us(tmp_path: Path) -> None:
    async def work() -> int:
        async with run_embedded_server(tmp_path, monitor=True) as server:
            async with connect_to_server(server.options, name="test") as nc:
                assert nc.is_connected
                assert (await fetch_server_status(server.monitor)).connections == 1
            with pytest.raises(ServerRefusedError, match="check the credentials"):
                async with connect_to_server(NatsOptions(server.options.url, "wrong"), name="test"):
                    pass
            assert str(server.options.token) not in repr(server.options)
            found, monitor = find_server(tmp_path)
            assert (found, monitor) == (server.options, server.monitor)
            assert stat.S_IMODE((tmp_path / "server.json").stat().st_mode) == 0o600
            return server.pid

    pid = run(work())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_server_that_is_away_is_told(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens there
        url = f"nats://127.0.0.1:{taken.getsockname()[1]}"

        async def work() -> None:
            async with client(NatsOptions(url), connect_within=0.3):
                pass

        with pytest.raises(ServerAwayError, match="no NATS server answers") as caught:
            run(work())
        assert caught.value.url == url
    with pytest.raises(ServerAwayError, match="ever started"):
        find_server(tmp_path)


def test_files_of_tls_that_are_not_there_are_told(tmp_path: Path) -> None:
    with pytest.raises(ServerRefusedError, match="TLS files"):
        NatsOptions(ca=tmp_path / "none").arguments()


def test_when_the_server_comes_back_nothing_is_lost(tmp_path: Path) -> None:
    """The server is killed and started anew on the same port, with events on their way."""

    async def publish(publisher: TopicClient, done: asyncio.Event) -> int:
        count = 0
        while not done.is_set():
            await asyncio.gather(*(publisher.publish("t", b"%d" % (count + n)) for n in range(5)))
            count += 5
        return count

    async def work() -> None:
        done = asyncio.Event()
        policy = replace(QUICK, history=100_000)  # a publisher may be back long before a reader
        async with asyncio.TaskGroup() as group:
            first = run_embedded_server(tmp_path / "server")
            server = await first.__aenter__()
            async with (
                serving(server.options, tmp_path / "state", policy=policy, dead_after=30.0),
                client(server.options) as publisher,
                client(server.options) as subscriber,
            ):
                await publisher.create("t")
                subscription = await subscriber.subscribe("t")
                publishing = group.create_task(publish(publisher, done))
                await asyncio.sleep(0.2)
                os.kill(server.pid, signal.SIGKILL)
                await first.__aexit__(None, None, None)
                await asyncio.sleep(0.2)
                async with run_embedded_server(tmp_path / "server") as again:
                    assert again.options.url == server.options.url
                    event = await subscription.get()
                    await publisher.create("u")  # until somebody is back
                    await asyncio.sleep(0.2)
                    done.set()
                    count = await publishing
                    for n in range(count):
                        assert event is not None
                        assert (event.number, event.payload) == (n + 1, b"%d" % n)
                        event = await subscription.get() if n + 1 < count else None
                    await publisher.close()
                    await subscriber.close()

    run(work())


@pytest.mark.skipif(which("openssl") is None, reason="makes certificates with openssl")
def test_a_server_with_tls_and_users_lets_in_who_trusts_it_and_is_known(tmp_path: Path) -> None:
    make = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost"
    named = ["-addext", "subjectAltName=DNS:localhost", "-keyout", "key", "-out", "cert"]
    subprocess.run([*make.split(), *named], cwd=tmp_path, check=True, capture_output=True)
    (tmp_path / "conf").write_text(
        f"""host: "127.0.0.1"
        port: -1
        ports_file_dir: "{tmp_path}"
        authorization {{ user: ann, password: secret }}
        tls {{ cert_file: "{tmp_path}/cert", key_file: "{tmp_path}/key" }}"""
    )

    async def enter(**changes: object) -> None:
        given = {"user": "ann", "password": "secret", "ca": tmp_path / "cert", **changes}
        async with (
            serving(NatsOptions(url, **given), tmp_path / "state"),  # type: ignore[arg-type]
            client(NatsOptions(url, **given)) as one,  # type: ignore[arg-type]
        ):
            assert await one.create("t")

    binary = Path(sys.executable).with_name("nats-server")
    process = subprocess.Popen([binary, "-c", tmp_path / "conf"], stderr=subprocess.DEVNULL)
    try:
        ports = tmp_path / f"nats-server_{process.pid}.ports"
        while not (ports.exists() and ports.read_text().endswith("}")):
            assert process.poll() is None
            time.sleep(0.02)
        port = json.loads(ports.read_text())["nats"][0].rpartition(":")[2]
        url = f"tls://localhost:{port}"
        run(enter())
        for wrong in ({"password": "guessed"}, {"ca": None}):
            with pytest.raises(ServerRefusedError):
                run(enter(**wrong))
    finally:
        process.terminate()
        process.wait(timeout=PATIENCE)
