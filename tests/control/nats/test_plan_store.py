"""Plans in the store of a real server: dropped by who serves, and by nobody else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from nats.aio.client import Client

from distributary.control.errors import ControlReplacedError, PlanGoneError
from distributary.control.messages import Decision
from distributary.control.nats.layout import Layout
from distributary.control.nats.store import ControlStore
from distributary.control.plan_codec import name_plan
from distributary.machines.nats import connect_to_server, run_embedded_server
from tests.control.nats.services import run
from tests.delivery.machines import simple_plan

LAYOUT = Layout()
PLANS = [simple_plan([0, 1], [0, 1]), simple_plan([0, 0, 1], [0, 1])]


def decide(version: int, plan: int) -> Decision:
    return Decision(version, name_plan(PLANS[plan]), "placed", "control", "", float(version), 0)


async def open_store(nc: Client, name: str) -> ControlStore:
    """A store as a service has it that begins to serve."""

    async def may_write(attempt: int) -> None:
        assert attempt < 5

    store = ControlStore(nc, LAYOUT, may_write=may_write, trouble=lambda what, who, says: None)
    await store.create()
    await store.restore(name)
    return store


def in_store(work: Callable[[Client, ControlStore], Awaitable[None]], folder: Path) -> None:
    async def begin() -> None:
        async with (
            run_embedded_server(folder) as server,
            connect_to_server(server.options, name="x") as nc,
        ):
            old = await open_store(nc, "old")
            await old.decide(decide(1, 0), PLANS[0])
            await old.decide(decide(2, 1), PLANS[1])
            await work(nc, old)

    run(begin())


def test_a_dropped_plan_is_gone_with_all_its_bytes(tmp_path: Path) -> None:
    async def work(nc: Client, old: ControlStore) -> None:
        name = decide(1, 0).plan
        for _ in range(2):
            await old.drop_plan(name)
            with pytest.raises(PlanGoneError):
                await old.plans.get(name)
        assert (await old.plans.get(decide(2, 1).plan)).flows == PLANS[1].flows
        state = (await nc.jetstream().stream_info(f"OBJ_{LAYOUT.plans}")).state
        assert state.messages == 3  # of both what describes it, and the bytes of one
        await old.decide(decide(3, 0), PLANS[0])
        assert (await old.plans.get(name)).flows == PLANS[0].flows

    in_store(work, tmp_path)


def test_a_service_that_was_replaced_drops_no_plan(tmp_path: Path) -> None:
    async def work(nc: Client, old: ControlStore) -> None:
        await open_store(nc, "new")
        with pytest.raises(ControlReplacedError):
            await old.drop_plan(decide(1, 0).plan)
        assert (await old.plans.get(decide(1, 0).plan)).flows == PLANS[0].flows

    in_store(work, tmp_path)


def test_a_plan_that_is_decided_anew_while_it_is_dropped_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old service sleeps between its last look at the fence and the deletion."""

    async def work(nc: Client, old: ControlStore) -> None:
        check = old._check_fence

        async def check_and_sleep() -> None:
            await check()
            new = await open_store(nc, "new")
            await new.decide(decide(3, 0), PLANS[0])

        monkeypatch.setattr(old, "_check_fence", check_and_sleep)
        await old.drop_plan(decide(1, 0).plan)
        assert (await old.plans.get(decide(1, 0).plan)).flows == PLANS[0].flows

    in_store(work, tmp_path)
