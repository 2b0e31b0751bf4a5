"""Several publishers of one plan, as processes: crash, return, hand-over and contested claims."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from types import UnionType

import pytest

from distributary.delivery import (
    Claimed,
    Gone,
    HandedOver,
    Left,
    ReceiverParams,
    Refused,
    Released,
    Restarted,
)
from distributary.delivery.errors import NotHeldError
from distributary.delivery.udp import Publisher, Receiver
from distributary.files import write_plan
from tests.delivery.machines import simple_plan
from tests.delivery.udp.command_scenarios import start_command
from tests.delivery.udp.scenarios import LOOPBACK, QUICK

IMPATIENT = ReceiverParams(silent_after=0.7, gone_after=0.2)


async def until(reports: list[object], kind: type | UnionType) -> object:
    """Wait for a report of that kind."""
    while True:
        found = [report for report in reports if isinstance(report, kind)]
        if found:
            return found[-1]
        await asyncio.sleep(0.01)


async def a_killed_publisher_is_gone_and_comes_back(folder: str) -> None:
    """Another publisher's flows are not disturbed by it."""
    plan = simple_plan([0, 1], [0, 1])
    where = Path(folder)
    write_plan(plan, {}, where / "plan")
    reports: list[object] = []
    command = (
        "publish", "--plan", str(where / "plan"), "--interface", "lo", "--as", "A", "--flow", "f0",
    )  # fmt: skip
    async with (
        Receiver(
            plan,
            plan.flows,
            name="r",
            network=LOOPBACK,
            params=IMPATIENT,
            on_report=reports.append,
        ) as receiver,
        Publisher(plan, LOOPBACK, name="B", flows=["f1"], params=QUICK) as other,
    ):
        for at in range(2):
            process = await start_command(*command, stdin=asyncio.subprocess.PIPE)
            assert process.stdin is not None
            process.stdin.write(b"f0\t%d\n" % at)
            message = await receiver.receive()
            assert (message.flow, message.sequence, message.payload) == ("f0", 1, b"%d" % at)
            await other.publish("f1", b"%d" % at)
            message = await receiver.receive()
            assert (message.flow, message.sequence, message.payload) == ("f1", at + 1, b"%d" % at)
            if not at:
                process.send_signal(signal.SIGKILL)
                await process.wait()
                gone = await until(reports, Gone)
                assert isinstance(gone, Gone)
                assert (gone.publisher, gone.flows) == ("A", ("f0",))
        restarted = await until(reports, Restarted)
        assert isinstance(restarted, Restarted)
        assert restarted.publisher == "A"
        process.stdin.close()
        await process.wait()
        await until(reports, Left)


async def a_flow_is_handed_over() -> None:
    plan = simple_plan([0, 1], [0, 1])
    reports: list[object] = []
    told: list[object] = []
    async with (
        Receiver(
            plan, plan.flows, name="r", network=LOOPBACK, on_report=reports.append
        ) as receiver,
        Publisher(
            plan, LOOPBACK, name="A", flows=["f0"], params=QUICK, on_report=told.append
        ) as old,
        Publisher(
            plan, LOOPBACK, name="B", flows=["f1"], params=QUICK, on_report=told.append
        ) as new,
    ):
        for at in range(100):
            await old.publish("f0", b"%d" % at)
        await old.release(["f0"])
        await new.claim(["f0"])
        for at in range(100, 200):
            await new.publish("f0", b"%d" % at)
        for at in range(200):
            message = await receiver.receive()
            found = message.flow, message.sequence, message.payload
            assert found == ("f0", at + 1, b"%d" % at), (at, found, reports, told)
        assert told == [Released(("f0",)), Claimed(("f0",))]
        assert [report for report in reports if isinstance(report, HandedOver)] == [
            HandedOver("A", "B", ("f0",), anew=False)
        ]
        with pytest.raises(NotHeldError, match="flow 'f0' is published by 'B'"):
            await old.claim(["f0"])
        assert told[2:] == [Refused("B", ("f0",))]


async def a_second_publisher_of_a_flow_is_refused(folder: str) -> None:
    plan = simple_plan([0, 1], [0, 1])
    where = Path(folder)
    write_plan(plan, {}, where / "plan")
    reports: list[object] = []
    async with (
        Receiver(
            plan,
            ["f0"],
            name="r",
            network=LOOPBACK,
            params=IMPATIENT,
            on_report=reports.append,
        ) as receiver,
        Publisher(plan, LOOPBACK, name="A", flows=["f0"], params=QUICK) as publisher,
    ):
        await publisher.publish("f0", b"1")
        await publisher.drain()
        assert (await receiver.receive()).payload == b"1"
        for more, said in (
            (("--flow", "f0"), "flow 'f0' is published by 'A'"),
            ((), "flow 'f0' is published by 'A'"),
        ):
            process = await start_command(
                "publish", "--plan", str(where / "plan"), "--interface", "lo", "--as", "B",
                *more, stdin=asyncio.subprocess.PIPE,
            )  # fmt: skip
            _, faults = await process.communicate(b"f0\tx\n" * 3)
            assert process.returncode == 1, (process.returncode, faults)
            assert said in " ".join(faults.decode().split()), faults
            assert b"Traceback" not in faults
            # It has said that it leaves, so that nobody waits for it or takes the flow from it.
            assert isinstance(await until(reports, Left | Gone), Left), reports
            assert not [report for report in reports if isinstance(report, HandedOver)], reports
            reports.clear()
        allowed = await start_command(
            "publish", "--plan", str(where / "plan"), "--interface", "lo", "--as", "B", "--json",
            "--flow", "f1", "--stay", "10ms", stdin=asyncio.subprocess.PIPE,
        )  # fmt: skip
        told, faults = await allowed.communicate(b"f1\tx\n" * 3)
        assert allowed.returncode == 0, faults
        assert json.loads(told)["messages"] == 3
