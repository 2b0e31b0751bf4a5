"""A broker service that stops in order and starts again."""

from __future__ import annotations

from pathlib import Path

from distributary.content.heard import read_heard
from distributary.content.store import BrokerStore
from distributary.machines.real import Store
from tests.content.tcp.services import SCHEMA, serve
from tests.content.tcp.test_service import check_delivery, run


def test_a_clean_stop_saves_what_the_neighbours_have_said(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serve(tmp_path, "A") as a:
            async with serve(tmp_path, "B", a) as b:
                await b.until("linked with A")
                await check_delivery(a, b)
            known = b.host.broker.core.collect_received("A")
            assert known
            with Store(tmp_path / "B") as store:
                recovery = BrokerStore(store, "B", SCHEMA).recover()
            assert read_heard(recovery.saved) == {"A": known}
            async with serve(tmp_path, "B", a) as b:
                await b.until("linked with A")
                await check_delivery(a, b)

    run(scenario)
