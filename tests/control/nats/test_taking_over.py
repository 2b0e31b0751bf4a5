"""A control service that takes over reads large plans, for longer than its lease lasts."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from distributary.control.machine import ControlMachine
from distributary.control.nats.layout import Layout
from distributary.control.nats.store import ControlStore
from distributary.machines.nats import connect_to_server, lease, run_embedded_server
from tests.control.nats.services import run, serving

LAYOUT = Layout("distributary")


def test_a_lease_is_renewed_while_the_plans_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_read, may_begin = asyncio.Event(), threading.Event()
    true_restore, true_init = ControlStore.restore, ControlMachine.__init__
    renewed: list[str] = []

    async def restore(store: ControlStore, where: str) -> Any:
        await is_read.wait()
        return await true_restore(store, where)

    def make(machine: ControlMachine, *given: Any, **named: Any) -> None:
        assert may_begin.wait(20.0)
        true_init(machine, *given, **named)

    async def work() -> None:
        async with (
            run_embedded_server(tmp_path) as server,
            connect_to_server(server.options, name="t") as nc,
        ):

            async def wait_for_renewal() -> None:
                bucket = await nc.jetstream().key_value(LAYOUT.lease)
                first = value = (await bucket.get("service")).value
                while value == first:
                    await asyncio.sleep(0.02)
                    value = (await bucket.get("service")).value
                renewed.append(json.loads(value or b"")["host"])

            async def look() -> None:
                while not service_has_begun.is_set():
                    await asyncio.sleep(0.02)
                await wait_for_renewal()
                is_read.set()
                await wait_for_renewal()
                may_begin.set()

            service_has_begun = asyncio.Event()
            true_create = ControlStore.create

            async def create(store: ControlStore) -> None:
                await true_create(store)
                service_has_begun.set()

            monkeypatch.setattr(ControlStore, "create", create)
            looking = asyncio.create_task(look())
            async with serving(server.options, tmp_path / "service"):
                await looking

    monkeypatch.setattr(ControlStore, "restore", restore)
    monkeypatch.setattr(ControlMachine, "__init__", make)
    monkeypatch.setattr(lease, "RENEW_EVERY", 0.0)
    run(work(), 60.0)
    assert len(renewed) == 2
