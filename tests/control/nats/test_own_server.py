"""A control plane on the user's own NATS server, with TLS, names and a cluster's permissions."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from shutil import which

import pytest

from distributary.control.errors import ServerRefusedError
from distributary.control.nats import Control, ControlClient
from distributary.machines.nats import NatsOptions
from tests.control.nats.services import run, serving, status_that, version_of
from tests.in_process import call_main

pytestmark = pytest.mark.skipif(which("openssl") is None, reason="makes certificates with openssl")
COMMAND = ("control", "permissions", "users.json")
NAMES = {
    "operator": {"ann": "the token of ann"},
    "receiver": {"desk": "the token of desk"},
    "publisher": {"feed": "the token of feed"},
}


def make_certificate(folder: Path) -> None:
    make = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost"
    named = ["-addext", "subjectAltName=DNS:localhost", "-keyout", "key", "-out", "cert"]
    subprocess.run([*make.split(), *named], cwd=folder, check=True, capture_output=True)


@asynccontextmanager
async def own_server(folder: Path, users: str) -> AsyncIterator[str]:
    """A server as an administrator sets it up; yields its address."""
    make_certificate(folder)
    service = '{"user": "control", "password": "the service itself"}'
    users = users.replace("users: [", f"users: [ {service},", 1)
    (folder / "conf").write_text(
        f"""host: "127.0.0.1"
        port: -1
        ports_file_dir: "{folder}"
        jetstream {{ store_dir: "{folder}/jetstream" }}
        authorization {{ {users} }}
        tls {{ cert_file: "{folder}/cert", key_file: "{folder}/key" }}"""
    )
    binary = Path(sys.executable).with_name("nats-server")
    process = await asyncio.create_subprocess_exec(
        *(str(binary), "-c", str(folder / "conf")), stderr=asyncio.subprocess.DEVNULL
    )
    try:
        ports = folder / f"nats-server_{process.pid}.ports"
        while not (ports.exists() and ports.read_text().endswith("}")):
            assert process.returncode is None
            await asyncio.sleep(0.02)
        yield f"tls://localhost:{json.loads(ports.read_text())['nats'][0].rpartition(':')[2]}"
    finally:
        process.terminate()
        await process.wait()


def test_names_and_tls_of_the_users_own_server(tmp_path: Path) -> None:
    """With what `control permissions` prints."""
    (tmp_path / "users.json").touch(0o600)
    (tmp_path / "users.json").write_text(json.dumps(NAMES))
    status, users, _ = call_main(["distributary", *COMMAND], tmp_path)
    assert status == 0

    async def work() -> None:
        async with own_server(tmp_path, users) as url:

            def be(name: str) -> NatsOptions:
                token = next(names[name] for names in NAMES.values() if name in names)
                return NatsOptions(url, user=name, password=token, ca=tmp_path / "cert")

            own = replace(be("ann"), user="control", password="the service itself")
            async with (
                serving(own, tmp_path / "s"),
                Control(be("feed")).seat_publisher("feed", None, pytest.fail) as publisher,
                Control(be("desk")).seat_receiver("desk", ("a",), pytest.fail),
                ControlClient(be("ann")) as client,
            ):
                await status_that(client, version_of)
                version = publisher.first or await anext(publisher.versions())
                assert version.plan.flows == ("a",)
                await client.set_mode("manual", "ann")
                assert (await client.changes())[0].who == "ann"
                for wrong in ({"ca": None}, {"password": "guessed, and long"}):
                    with pytest.raises(ServerRefusedError) as caught:
                        async with ControlClient(replace(be("ann"), **wrong)):  # type: ignore[arg-type]
                            pass
                    assert "\n" not in str(caught.value)
                plain = replace(be("desk"), url=url.replace("tls:", "nats:"), ca=None)
                with pytest.raises(ServerRefusedError):
                    async with Control(plain).seat_receiver("desk", (), pytest.fail):
                        pass

    run(work())
