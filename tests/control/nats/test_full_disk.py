"""A control service whose embedded server has a small disk."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from distributary.control.nats import ControlClient
from distributary.control.nats.layout import Layout
from distributary.errors import StateError
from distributary.machines.nats import connect_to_server, run_embedded_server
from tests.control.nats.services import PATIENCE, receiving, serving, status_that, version_of
from tests.small_disk import on_small_disk

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="mounts a small file system")


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
        with pytest.raises(StateError) as caught:
            async with serving(server.options, folder / "s"):
                pass
        assert "control_reports: it cannot be created (insufficient storage" in str(caught.value)
        assert "more room" in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_service_keeps_as_many_reports_as_a_small_disk_has_room_for(tmp_path: Path) -> None:
    """Beside the versions, which need room, too: an hour of reports may need a gigabyte."""
    on_small_disk(start_on_little, tmp_path, "16m")


def test_a_disk_without_room_for_reports_is_one_line(tmp_path: Path) -> None:
    on_small_disk(start_on_nothing, tmp_path, "1500k")
