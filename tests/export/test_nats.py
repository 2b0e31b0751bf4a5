"""The exported mappings in a real NATS server: taken, obeyed, and refused when they are broken."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import nats
import pytest

from distributary.export import export_files
from tests.export.cases import csv_rows, hostile_plan

SERVER = Path(sys.executable).with_name("nats-server")
SECONDS = 20
PASSWORDS = {"FLOWS_PASSWORD": "secret-of-flows", "PLAN_PASSWORD": "secret-of-plan"}
ENVIRONMENT = {**os.environ, **PASSWORDS}
LOGINS: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "mappings.conf": ({}, {}),
    "accounts.conf": (
        {"user": "flows", "password": PASSWORDS["FLOWS_PASSWORD"]},
        {"user": "plan", "password": PASSWORDS["PLAN_PASSWORD"]},
    ),
}


def write(folder: Path, name: str) -> Path:
    path = folder / name
    path.write_bytes(export_files(hostile_plan(), "nats")[name])
    return path


def accepts(path: Path) -> bool:
    """What the server's own test mode says of a file."""
    done = subprocess.run(
        [SERVER, "-t", "-c", path],
        capture_output=True,
        timeout=SECONDS,
        env=ENVIRONMENT,
        check=False,
    )
    return done.returncode == 0


@asynccontextmanager
async def running_server(path: Path) -> AsyncIterator[str]:
    """A server on a free loopback port, and where it is; ended by its own id."""
    server = await asyncio.create_subprocess_exec(
        SERVER, "-a", "127.0.0.1", "-p", "-1", "-c", path,
        stderr=asyncio.subprocess.PIPE, env=ENVIRONMENT,
    )  # fmt: skip
    try:
        yield await _listening(server)
    finally:
        server.terminate()
        async with asyncio.timeout(SECONDS):
            await server.communicate()


async def _listening(server: asyncio.subprocess.Process) -> str:
    assert server.stderr is not None
    address, said = "", []
    async with asyncio.timeout(SECONDS):
        async for line in server.stderr:
            said.append(line.decode())
            if found := re.search(r"client connections on (127\.0\.0\.1:\d+)", said[-1]):
                address = found[1]
            if "Server is ready" in said[-1]:
                return f"nats://{address}"
    pytest.fail(f"nats-server ended: {''.join(said)}")


PROBE = "probe of "


def drain(queue: asyncio.Queue[Any]) -> list[Any]:
    return [queue.get_nowait() for _ in range(queue.qsize())]


async def _await_imports(sender: Any, got: asyncio.Queue[Any], flows: list[dict[str, str]]) -> None:
    """Publish probes until each flow's has arrived: accounts get their imports some time later."""
    missing = {f"{PROBE}{row['flow']} {row['subject']}": row["subject"] for row in flows}
    while missing:
        for text, subject in missing.items():
            await sender.publish(subject, text.encode())
        await sender.flush()
        with suppress(TimeoutError):
            async with asyncio.timeout(0.1):
                while missing:
                    missing.pop((await got.get())[2], None)


async def _exchange(path: Path) -> list[tuple[str, str, str]]:
    """Publish every copy once; return (session's subject, subject, text) as received."""
    plan, (publisher, receiver) = hostile_plan(), LOGINS[path.name]
    files = export_files(plan, "nats")
    flows = csv_rows(files["flows.csv"])
    subjects = sorted({row["subject"] for row in csv_rows(files["subscriptions.csv"])})
    got: asyncio.Queue[tuple[str, str, str]] = asyncio.Queue()

    async with running_server(path) as address, asyncio.timeout(SECONDS):
        sender = await nats.connect(address, allow_reconnect=False, **publisher)
        hearer = await nats.connect(address, allow_reconnect=False, **receiver)
        for subject in subjects:

            async def hear(message: Any, session: str = subject) -> None:
                await got.put((session, message.subject, message.data.decode()))

            await hearer.subscribe(subject, cb=hear)
        await hearer.flush()
        await _await_imports(sender, got, flows)
        for row in flows:
            await sender.publish(row["subject"], row["flow"].encode())
        received: list[tuple[str, str, str]] = []
        while len(received) < len(flows):
            message = await got.get()
            if not message[2].startswith(PROBE):
                received.append(message)
        await sender.close()
        await hearer.close()
    assert all(message[2].startswith(PROBE) for message in drain(got))
    return sorted(received)


@pytest.mark.parametrize("name", LOGINS)
def test_a_flow_is_published_to_its_subject_and_arrives_in_its_session(
    tmp_path: Path, name: str
) -> None:
    expected = sorted(
        (f"g{row['group']}.s{row['session']}.*", row["session_subject"], row["flow"])
        for row in csv_rows(export_files(hostile_plan(), "nats")["flows.csv"])
    )
    assert asyncio.run(_exchange(write(tmp_path, name))) == expected


@pytest.mark.parametrize("name", LOGINS)
def test_the_server_accepts_the_file(tmp_path: Path, name: str) -> None:
    assert accepts(write(tmp_path, name))


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("mappings.conf", r'"g0\.s0\.', '"g0..'),
        ("mappings.conf", r'"g0\.s0\.', '"g0.s 0.'),
        ("mappings.conf", r'"g0\.s0\.', '"*.s0.'),
        ("mappings.conf", r'"flow\.', '"flow..'),
        ("mappings.conf", r"}\s*$", ""),
        ("accounts.conf", r'subject: "flow\.', 'subject: "other.'),
        ("accounts.conf", r"account: FLOWS", "account: NOBODY"),
        ("accounts.conf", r"\$PLAN_PASSWORD", "$NO_SUCH_VARIABLE"),
        ("accounts.conf", r"}\s*$", ""),
    ],
)
def test_the_same_check_refuses_a_broken_file(
    tmp_path: Path, name: str, good: str, bad: str
) -> None:
    path = write(tmp_path, name)
    broken, changes = re.subn(good, bad, path.read_text(), count=1)
    assert changes
    path.write_text(broken)
    assert not accepts(path)
