"""The embedded server: kept up, alone in its folder, and of no use to whoever takes its port."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.errors import LiveError, StateError
from distributary.machines.nats.options import connect_to_server, find_server
from distributary.machines.real.folder_lock import take_lock
from distributary.topics.errors import hide_secrets
from distributary.topics.nats import (
    NatsOptions,
    ServerAwayError,
    ServerRefusedError,
    ServerStartError,
    TopicClient,
    run_embedded_server,
)
from tests.topics.nats.running import PATIENCE, client, run, serving

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)
ODD_RECORDS = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("url", "port", "token", "name", "monitor"), JSON)
).map(lambda record: json.dumps(record).encode())


def test_a_server_that_dies_is_started_again_and_everybody_goes_on(tmp_path: Path) -> None:
    said: list[str] = []

    async def work() -> None:
        async with (
            run_embedded_server(tmp_path / "server", on_restart=said.append) as server,
            serving(server.options, tmp_path / "state"),
            client(server.options) as both,
        ):
            await both.create("t")
            subscription = await both.subscribe("t")
            for number in range(1, 4):
                before = server.options
                os.kill(server.pid, signal.SIGKILL)
                await both.publish("t", b"%d" % number)
                event = await subscription.get()
                assert event is not None
                assert (event.number, event.payload) == (number, b"%d" % number)
                assert (server.options.url, len(said)) == (before.url, number)
                assert server.options.token != before.token
            assert "killed by signal 9 and was restarted" in said[0]

    run(work())


def test_a_server_that_cannot_be_started_again_ends_the_work_with_an_error(tmp_path: Path) -> None:
    async def work() -> None:
        async with run_embedded_server(tmp_path) as server:
            server._binary = Path("/bin/false")
            os.kill(server.pid, signal.SIGKILL)
            await asyncio.Event().wait()

    with pytest.raises(ServerStartError, match="does not start"):
        run(work())


def test_a_server_that_dies_again_and_again_ends_the_work_with_an_error(tmp_path: Path) -> None:
    async def work() -> None:
        again = asyncio.Event()
        async with run_embedded_server(tmp_path, on_restart=lambda _: again.set()) as server:
            while True:
                again.clear()
                os.kill(server.pid, signal.SIGKILL)
                await again.wait()

    with pytest.raises(ServerStartError, match="it keeps exiting"):
        run(work())


class Stranger:
    """Sits on a port, greets like a NATS server of some name, and keeps what it is told."""

    def __init__(self, name: str) -> None:
        self.heard = bytearray()
        self.called = asyncio.Event()
        self._greeting = json.dumps(
            {"server_id": "X", "server_name": name, "max_payload": 1 << 20, "auth_required": True}
        ).encode()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"INFO %s\r\n" % self._greeting)
        while data := await reader.read(1_000):
            self.heard += data
            if b"CONNECT" in data:
                self.called.set()
                writer.write(b"PONG\r\n")
        self.called.set()
        writer.close()


@asynccontextmanager
async def stranger(port: int, name: str) -> AsyncIterator[Stranger]:
    found = Stranger(name)
    async with await asyncio.start_server(found.answer, "127.0.0.1", port):
        yield found


@asynccontextmanager
async def interrupted_service(
    folder: Path, name: str | None
) -> AsyncIterator[tuple[TopicClient, Stranger, str]]:
    """A client that is subscribed to `t`, whose server has just come back beside a stranger."""
    first = run_embedded_server(folder / "server")
    server = await first.__aenter__()
    record = json.loads((folder / "server/server.json").read_text())
    async with serving(server.options, folder / "state"), client(server.options) as both:
        await both.create("t")
        await first.__aexit__(None, None, None)
        async with stranger(record["port"], name or record["name"]) as found:
            await found.called.wait()
            async with run_embedded_server(folder / "server") as again:
                assert again.options.url != server.options.url
                assert again.options.token != record["token"]
                yield both, found, str(again.options.token)
                await both.close()


def test_clients_find_the_server_again_when_its_port_is_taken(tmp_path: Path) -> None:
    async def work() -> None:
        async with interrupted_service(tmp_path, "another") as (both, found, _):
            subscription = await both.subscribe("t")
            await both.publish("t", b"here")
            event = await subscription.get()
            assert event is not None
            assert event.payload == b"here"
            assert found.heard == b""  # it has another name: no token, no event

    run(work())


def test_whoever_poses_as_the_old_server_learns_no_token_that_is_worth_anything(
    tmp_path: Path,
) -> None:
    async def work() -> None:
        async with interrupted_service(tmp_path, None) as (_, found, token):
            assert b"CONNECT" in found.heard
            assert token.encode() not in found.heard
            told = json.loads(found.heard.partition(b"CONNECT ")[2].partition(b"\r\n")[0])
            url = find_server(tmp_path / "server")[0].url
            with pytest.raises(ServerRefusedError):
                async with connect_to_server(NatsOptions(url, told["auth_token"]), name="thief"):
                    pass

    run(work())


def test_a_client_whose_credentials_are_good_no_more_is_told(tmp_path: Path) -> None:
    async def work() -> None:
        async with run_embedded_server(tmp_path) as server:
            fixed = NatsOptions(server.options.url, server.options.token)
            async with client(fixed, beat_every=0.1):
                os.kill(server.pid, signal.SIGKILL)
                await asyncio.Event().wait()

    with pytest.raises(ServerRefusedError, match="check the credentials"):
        run(work())


def test_a_second_server_in_a_folder_is_refused_and_leaves_the_first_alone(tmp_path: Path) -> None:
    async def work() -> None:
        async with run_embedded_server(tmp_path) as server:
            before = (tmp_path / "server.json").read_bytes()
            with pytest.raises(StateError, match="another process uses this folder"):
                async with run_embedded_server(tmp_path):
                    pass
            assert (tmp_path / "server.json").read_bytes() == before
            async with connect_to_server(server.options, name="t"):
                pass

    run(work())


def test_a_server_has_a_session_of_its_own_and_no_pages_unless_asked_for(tmp_path: Path) -> None:
    async def work() -> None:
        async with run_embedded_server(tmp_path) as server:
            assert os.getsid(server.pid) == server.pid != os.getsid(0)
            assert (server.monitor, find_server(tmp_path)[1]) == ("", "")
            for path in (tmp_path / "server").iterdir():
                text = path.read_text()
                assert "http: " not in text  # of the configuration
                assert "http monitor" not in text  # of the log
                if str(server.options.token) in text:
                    assert path.stat().st_mode & 0o077 == 0

    run(work())


@given(st.binary(max_size=20) | JSON.map(json.dumps).map(str.encode) | ODD_RECORDS)
def test_an_odd_server_file_is_told_as_such(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "server.json").write_bytes(data)
        with suppress(StateError):
            options, _ = find_server(Path(name))
            assert json.loads(data)["url"] == options.url


@pytest.mark.parametrize("data", [b"", b"{}", b"[", b'{"url": 5, "port": "x", "token": null}'])
def test_a_server_starts_in_spite_of_an_odd_server_file(tmp_path: Path, data: bytes) -> None:
    async def work() -> None:
        (tmp_path / "server.json").write_bytes(data)
        async with run_embedded_server(tmp_path):
            find_server(tmp_path)

    run(work())


def test_a_folder_that_is_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    async def work() -> None:
        async with run_embedded_server(tmp_path / "file"):
            pass

    with pytest.raises(StateError, match="cannot be written"):
        run(work())
    with pytest.raises(LiveError):
        find_server(tmp_path / "file")


def test_what_a_killed_process_left_is_removed_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    names = ("abandoned", "in-use", "without-lock", "just-begun")
    abandoned, used, bare, fresh = (tmp_path / f"distributary-nats-{name}" for name in names)
    for folder in (abandoned, used, bare, fresh):
        folder.mkdir()
        (folder / "server.json").write_text("a live token")
    for folder in (abandoned, fresh):
        os.close(take_lock(folder / "server.lock"))
    lock = take_lock(used / "server.lock")
    an_hour_ago = time.time() - 3_600
    for folder in (abandoned, used):
        os.utime(folder / "server.lock", (an_hour_ago, an_hour_ago))

    async def work() -> None:
        async with run_embedded_server():
            assert not abandoned.exists()

    run(work())
    os.close(lock)
    assert set(tmp_path.iterdir()) == {used, bare, fresh}


_HOLDER = """
import asyncio
from distributary.topics.nats import run_embedded_server

async def main():
    async with run_embedded_server() as server:
        print(server.options.folder, flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


def test_a_killed_process_leaves_no_folder_with_a_token(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert holder.stdout is not None
    folder = Path(holder.stdout.readline().strip())
    assert "token" in (folder / "server.json").read_text()
    holder.kill()
    holder.communicate()
    deadline = time.monotonic() + PATIENCE
    while [*tmp_path.iterdir()]:
        assert time.monotonic() < deadline
        time.sleep(0.05)


SECRET = st.text("SECRT:/@,?#%[] ", min_size=1).map(lambda text: f"XYZ{text}ZYX")


@given(st.lists(st.tuples(st.sampled_from(["", "nats://", "tls://"]), SECRET, SECRET), min_size=1))
def test_no_error_shows_a_password(parts: list[tuple[str, str, str]]) -> None:
    url = ",".join(f"{scheme}{user}:{password}@host:4222" for scheme, user, password in parts)
    for error in (ServerAwayError(url, "gone"), ServerRefusedError(url, "no")):
        shown = f"{error} {error.url} {NatsOptions(url, 'TOKEN')!r}"
        assert not any(sign in shown for sign in ("XYZ", "ZYX", "TOKEN"))
        assert "host:4222" in shown


@pytest.mark.parametrize("url", ["nats://127.0.0.1:4222", "host", "a:1,b:2", "tls://[::1]:4222"])
def test_an_address_without_secrets_is_shown_as_it_is(url: str) -> None:
    assert hide_secrets(url) == url


def test_an_address_with_a_password_that_nobody_answers_at_is_told_without_it() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"

        async def work(url: str) -> None:
            async with connect_to_server(NatsOptions(url), name="t", within=0.1):
                pass

        for url in (f"nats://ann:s3cret@{address}", "nats://ann:s3c/ret@host", "nats://s3cret@[x"):
            with pytest.raises(ServerAwayError) as caught:
                run(work(url))
            assert "s3c" not in str(caught.value)
