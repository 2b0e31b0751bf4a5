"""A control service whose embedded server has a small disk, which is full for a while."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from distributary.control.nats import ControlClient
from distributary.control.nats.layout import Layout
from distributary.control.status import ControlStatus
from distributary.errors import StateError
from distributary.machines.nats import connect_to_server, run_embedded_server
from distributary.machines.real.log_lines import LogLine
from tests.control.nats.services import PATIENCE, receiving, serving, status_that, version_of
from tests.small_disk import fill, on_small_disk

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="mounts a small file system")
REFUSED = "server refuses to store"


async def fill_and_free(folder: Path) -> None:
    """The lease cannot be renewed, so nobody serves; who asks is told why."""
    lines: list[LogLine] = []
    async with asyncio.timeout(PATIENCE), run_embedded_server(folder / "nats") as server:
        options = server.options
        async with (
            serving(options, folder / "s", log=lines.append),
            ControlClient(options, within=60.0) as client,
            receiving(folder / "nats", "r", "a"),
        ):
            await status_that(client, version_of)
            free = fill(folder)
            found = await status_that(client, lambda found: "the lease" in refusal_of(found))
            assert "restart it if it is a server of your own" in refusal_of(found)
            assert [line.level for line in lines if line.what == REFUSED] == ["warning"]
            free()
            async with receiving(folder / "nats", "s", "b"):
                await status_that(client, lambda found: not refusal_of(found))
                await client.set_mode("manual", "ann")
                while (await client.flow("b")).session is None:
                    await asyncio.sleep(0.1)


async def start_on_little(folder: Path) -> None:
    async with asyncio.timeout(PATIENCE), run_embedded_server(folder / "nats") as server:
        options = server.options
        async with (
            serving(options, folder / "s"),
            ControlClient(options) as client,
            receiving(folder / "nats", "r", "a"),
        ):
            await status_that(client, version_of)
        async with connect_to_server(options, name="operator of the server") as nc:
            found = await nc.jetstream().stream_info(Layout().reports)
            assert found.config.max_bytes == 1 << 22


async def start_on_nothing(folder: Path) -> None:
    async with asyncio.timeout(PATIENCE), run_embedded_server(folder / "nats") as server:
        lines: list[LogLine] = []
        with pytest.raises(StateError) as caught:
            async with serving(server.options, folder / "s", log=lines.append):
                pass
        assert lines == []
        assert "control_reports: it cannot be created (insufficient storage" in str(caught.value)
        assert "more room" in str(caught.value)
        assert "\n" not in str(caught.value)


def refusal_of(status: ControlStatus) -> str:
    return next((alarm.says for alarm in status.alarms if alarm.what == REFUSED), "")


def test_a_lease_that_cannot_be_stored_is_an_alarm_and_healed_by_room(tmp_path: Path) -> None:
    on_small_disk(fill_and_free, tmp_path)


def test_a_service_keeps_as_many_reports_as_a_small_disk_has_room_for(tmp_path: Path) -> None:
    """Beside the versions, which need room, too: an hour of reports may need a gigabyte."""
    on_small_disk(start_on_little, tmp_path, "16m")


def test_a_disk_without_room_for_reports_is_one_line(tmp_path: Path) -> None:
    on_small_disk(start_on_nothing, tmp_path, "1500k")
