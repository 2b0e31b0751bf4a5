"""What happens in the namespace when whoever plans goes by the log that receivers write."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from distributary.delivery.udp import Publisher, Receiver
from tests.delivery.udp.scenarios import LOOPBACK, QUICK

ODD = 'a "flow", with\ttabs \\ and ü'


async def flows_that_a_plan_of_the_log_brings(folder: str, log: str) -> None:
    """Receivers want flows that no plan has, and get them as soon as somebody plans by the log."""
    where = Path(folder)
    logs: Any = {"subscription_log": where / log}
    async with (
        Publisher(where / "plan", LOOPBACK, params=QUICK, watch_every=0.02) as publisher,
        Receiver(None, ["f0", "late"], name="r", network=LOOPBACK, **logs) as first,
        Receiver(None, ["f0"], name="s", network=LOOPBACK, **logs) as second,
    ):
        assert await first.subscribe([ODD, "f0"]) == (ODD,)
        assert await second.subscribe([ODD, "passing"]) == (ODD, "passing")
        second.unsubscribe(["passing", "f0"])
        (where / "ready").touch()
        while first.unserved or second.unserved or publisher.changing:
            await asyncio.sleep(0.02)
        assert publisher.statistics.plan_version == 2
        for flow in ("passing", "f0", "late", ODD):
            await publisher.publish(flow, flow.encode())
        assert publisher.unplanned == {"passing": 1}
        for receiver, wanted in ((first, {"f0", "late", ODD}), (second, {ODD})):
            got = [await receiver.receive() for _ in wanted]
            assert {(found.flow, found.payload.decode()) for found in got} == {
                (flow, flow) for flow in wanted
            }
