"""A broker whose disk fills up ends with one line, and loses nothing that it has confirmed."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from distributary.content.tcp import ContentClient
from tests.content.tcp.processes import PATIENCE, BrokerProcess, find_ports

IN_MOUNTS = ["unshare", "-rm", "sh", "-c"]
SMALL = (
    "mkdir disk && mount -t tmpfs -o size=2m none disk || exit 9; "
    '"$@"; status=$?; cp -r disk/state saved; exit $status'
)


def why_no_mounts() -> str | None:
    if sys.platform != "linux" or not shutil.which("unshare"):
        return "needs Linux with unshare"
    tried = subprocess.run(
        [*IN_MOUNTS, "mount -t tmpfs none /mnt"], capture_output=True, text=True, check=False
    )
    return None if tried.returncode == 0 else f"no mount namespace: {tried.stderr.strip()}"


async def publish(client: ContentClient, confirmed: list[int]) -> None:
    for number in range(10_000):
        await client.publish({"size": number}, bytes(20_000))
        confirmed.append(number)


async def scenario(folder: Path) -> None:
    (port,) = find_ports(1)
    small = BrokerProcess(
        "A", folder, port, state=Path("disk/state"), before=[*IN_MOUNTS, SMALL, "sh"]
    )
    await small.start()
    confirmed: list[int] = []
    async with ContentClient(small.address, name="ann") as ann:
        await ann.subscribe("size >= 0")
    async with ContentClient(small.address, name="pam") as pam:
        publishing = asyncio.create_task(publish(pam, confirmed))
        assert await small.wait() == 1
        publishing.cancel()
        with suppress(asyncio.CancelledError):
            await publishing
    assert len(small.notes) == 2, small.notes
    assert "no space left on device" in small.notes[1]
    assert len(confirmed) > 10

    large = BrokerProcess("A", folder, port, state=folder / "saved")
    await large.start()
    async with ContentClient(large.address, name="ann") as ann:
        arrived: list[int] = []
        async for event in await ann.subscribe("size >= 0"):
            arrived.append(event.attributes["size"])
            if len(arrived) == len(confirmed):
                break
    assert arrived == confirmed
    await large.end()


def test_a_full_disk_ends_a_broker_with_one_line_and_loses_nothing_confirmed(
    tmp_path: Path,
) -> None:
    if (reason := why_no_mounts()) is not None:
        pytest.skip(reason)
    asyncio.run(asyncio.wait_for(scenario(tmp_path), 4 * PATIENCE))
