"""What happens in the namespace when publishers and receivers belong to a control plane."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from distributary.delivery import Subscribed
from distributary.delivery.udp import NetworkOptions, Publisher, Receiver
from distributary.model import Plan
from tests.delivery.machines import simple_plan
from tests.delivery.udp.scenarios import QUICK
from tests.delivery.udp.seats import ELSEWHERE, HeldControl

PAUSE = 0.001


class Traffic:
    """Messages of flows, published all the time; each has the number of its flow as its payload."""

    def __init__(self, publisher: Publisher, flows: list[str], pause: float = PAUSE) -> None:
        self.sent: dict[str, int] = dict.fromkeys(flows, 0)
        self._publisher, self._pause = publisher, pause

    async def run(self) -> None:
        while True:
            for flow in self.sent:
                self.sent[flow] += 1
                await self._publisher.publish(flow, b"%d" % self.sent[flow])
            await asyncio.sleep(self._pause)


class Deliveries:
    """What a receiver got: the numbers of each flow, and from when on it may miss none."""

    def __init__(self) -> None:
        self.numbers: dict[str, list[int]] = defaultdict(list)
        self.subscribed: set[str] = set()
        self.faults: list[object] = []

    def report(self, report: object) -> None:
        if isinstance(report, Subscribed):
            self.subscribed.update(report.flows)
        elif type(report).__name__ in ("Missing", "Gap", "Restarted"):
            self.faults.append(report)

    async def run(self, receiver: Receiver) -> None:
        while True:
            message = await receiver.receive()
            self.numbers[message.flow].append(int(message.payload))

    def are_whole(self) -> None:
        assert not self.faults, self.faults
        for flow, numbers in self.numbers.items():
            assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), flow


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


@asynccontextmanager
async def running(*works: object) -> AsyncIterator[None]:
    tasks = [asyncio.ensure_future(work) for work in works]  # type: ignore[call-overload]
    try:
        yield
        for task in tasks:
            assert not task.done() or task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


def flows_plan(n_flows: int) -> Plan:
    return simple_plan([flow % 2 for flow in range(n_flows)], [0, 1])


async def a_flow_is_there_as_soon_as_a_version_carries_it() -> None:
    """Before the first plan messages are dropped and counted; nothing is lost once subscribed."""
    control, got = HeldControl(), Deliveries()
    async with (
        Publisher(control=control, name="p", params=QUICK, stay=0.01) as publisher,
        Receiver(control=control, name="r", interest=["f0"], on_report=got.report) as receiver,
    ):
        assert control.publishers == {"p": None}
        assert control.interest == {"r": {"f0"}}
        traffic = Traffic(publisher, ["f0", "f1", "f2"])
        async with running(traffic.run(), got.run(receiver)):
            await until(lambda: publisher.unplanned.get("f0", 0) > 20)
            assert not got.numbers
            await control.decide(flows_plan(2))
            await until(lambda: len(got.numbers["f0"]) > 20)
            assert await receiver.subscribe(["f1"]) == ()  # at once: the plan has it
            first = traffic.sent["f1"] + 1
            await until(lambda: len(got.numbers["f1"]) > 20)
            assert got.numbers["f1"][0] <= first
            assert await receiver.subscribe(["f2"]) == ("f2",)
            assert control.interest == {"r": {"f0", "f1", "f2"}}
            await control.decide(flows_plan(3))
            await until(lambda: "f2" in got.subscribed)
            first = traffic.sent["f2"] + 1
            await until(lambda: len(got.numbers["f2"]) > 20)
            assert got.numbers["f2"][0] <= first
            receiver.unsubscribe(["f1"])
            assert control.interest == {"r": {"f0", "f2"}}
            await until(lambda: ("p", 2) in control.reported)
            await until(lambda: control.receivers_reported["r"] > 0)
        got.are_whole()
        assert publisher.statistics.control is not None
        assert publisher.statistics.control.version == 2
        assert receiver.statistics.control is not None
    assert control.reported[-1] == ("p", 2)
    assert not control.publishers
    assert not control.interest
    assert dict(control.counts) == traffic.sent


async def a_publisher_that_joins_later_begins_with_the_plan_in_force() -> None:
    control, got = HeldControl(), Deliveries()
    await control.decide(flows_plan(2))
    own = NetworkOptions(ttl=7, socket_buffer=1 << 20)
    async with (
        Receiver(
            control=control, name="r", interest=["f0", "f1"], network=own, on_report=got.report
        ) as receiver,
        Publisher(
            network=own, control=control, name="p", flows=["f0"], params=QUICK, stay=0.01
        ) as publisher,
        Publisher(control=control, name="q", flows=["f1"], params=QUICK, stay=0.01) as other,
    ):
        assert publisher.fingerprint == other.fingerprint
        assert not await receiver.subscribe(["f0", "f1"])
        async with running(got.run(receiver)):
            for number in range(1, 101):
                await publisher.publish("f0", b"%d" % number)
                await other.publish("f1", b"%d" % number)
            await until(lambda: got.numbers["f0"][-1:] == got.numbers["f1"][-1:] == [100])
        got.are_whole()
        assert publisher.unplanned == other.unplanned == {}
    assert dict(control.counts) == {"f0": 100, "f1": 100}


async def the_same_plan_again_is_a_version_too() -> None:
    """As after a rollback to what is in force: nothing moves, and the version is reported."""
    control = HeldControl()
    await control.decide(flows_plan(2))
    async with Publisher(control=control, name="p", params=QUICK, stay=0.01) as publisher:
        await until(lambda: not publisher.changing)
        before = publisher.statistics.plan_version
        await control.decide(flows_plan(2))
        await until(lambda: control.reported[-1:] == [("p", 2)])
        assert publisher.statistics.plan_version == before


async def groups_are_where_the_control_plane_says() -> None:
    control = HeldControl()
    await control.decide(flows_plan(2))
    async with (
        Publisher(control=control, name="p", params=QUICK, stay=0.01) as publisher,
        Receiver(interest=["f0"], name="plain", network=ELSEWHERE) as receiver,
    ):
        assert not await receiver.subscribe(["f0"])
        await publisher.publish("f0", b"there")
        assert (await receiver.receive()).payload == b"there"
