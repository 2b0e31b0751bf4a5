"""What happens in the namespace: publishers and receivers on real sockets, to the message."""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from distributary.delivery import (
    Brought,
    Left,
    Message,
    NeedPlan,
    Restarted,
    SenderParams,
    Subscribed,
    Unserved,
)
from distributary.delivery.udp import (
    GroupAddresses,
    Loss,
    NetworkError,
    NetworkOptions,
    Publisher,
    PublisherStatistics,
    Receiver,
    ReceiverStatistics,
    serve_metrics,
)
from distributary.files import write_plan
from distributary.model import Plan
from tests.delivery.machines import simple_plan
from tests.delivery.plans import random_plan

LOOPBACK = NetworkOptions(interface="lo")
QUICK = SenderParams(grace=0.2, linger=1.0)
KEY = b"an example key of 32 bytes......"
Wants = Mapping[str, Sequence[str]]


class SkipError(Exception):
    """The kernel forbids it."""


class Tape:
    """What one receiver delivers, told by flow, with the next number that is expected."""

    def __init__(self, receiver: Receiver) -> None:
        self.receiver = receiver
        self.payloads: dict[str, list[bytes]] = defaultdict(list)

    async def record(self, total: int) -> None:
        """Take in so many messages; each has to be the next of its flow."""
        for _ in range(total):
            message = await self.receiver.receive()
            self.add(message)

    def add(self, message: Message) -> None:
        known = self.payloads[message.flow]
        assert message.sequence == len(known) + 1, (message.flow, message.sequence, len(known))
        known.append(message.payload)

    def holds(self, sent: Mapping[str, Sequence[bytes]], flows: Iterable[str]) -> None:
        assert {flow: list(sent[flow]) for flow in flows} == dict(self.payloads)


async def publish_all(
    publisher: Publisher, flows: Sequence[str], messages: int, sent: dict[str, list[bytes]]
) -> None:
    """Messages of all flows in turn, each with a payload of its own."""
    for at in range(messages):
        flow = flows[at % len(flows)]
        payload = f"{flow} {len(sent[flow])}".encode().ljust(100, b".")
        sent[flow].append(payload)
        await publisher.publish(flow, payload)


async def deliver(
    plan: Plan | Path,
    wants: Wants,
    flows: Sequence[str],
    *,
    network: NetworkOptions = LOOPBACK,
    messages: int = 2_000,
    losses: Mapping[str, float] | None = None,
    key: bytes | None = None,
    params: SenderParams = QUICK,
    halfway: Callable[[Publisher], Coroutine[Any, Any, None]] | None = None,
    on_open: Callable[[Receiver], None] = lambda receiver: None,
    by_name: bool = False,
    **settings: Any,
) -> tuple[PublisherStatistics, list[ReceiverStatistics]]:
    """All receivers there before the publisher; every wanted message comes, once and in order.

    With `by_name` receivers have no plan, only the names of the flows that they want.
    """
    sent: dict[str, list[bytes]] = defaultdict(list)
    reports: list[object] = []
    async with AsyncExitStack() as stack:
        tapes = []
        for at, (name, wanted) in enumerate(wants.items()):
            loss = Loss((losses or {}).get(name, 0.0), seed=at)
            receiver = Receiver(
                None if by_name else plan, wanted, name=name, network=network, key=key, seed=at,
                loss=loss,
                on_report=reports.append, **settings,
            )  # fmt: skip
            tapes.append(Tape(await stack.enter_async_context(receiver)))
            on_open(receiver)
        # All have everything when it closes: nobody asks for a repair any more.
        publisher = Publisher(plan, network, params=params, key=key, stay=0.01, watch_every=0.05)
        await stack.enter_async_context(publisher)
        half = messages // 2 // len(flows) * len(flows)
        async with asyncio.TaskGroup() as group:
            for tape in tapes:
                per_flow = messages // len(flows)
                group.create_task(tape.record(per_flow * len(tape.receiver.flows)))
            await publish_all(publisher, flows, half, sent)
            if halfway is not None:
                await halfway(publisher)
            await publish_all(publisher, flows, messages // len(flows) * len(flows) - half, sent)
        for tape in tapes:
            tape.holds(sent, tape.receiver.flows)
            assert tape.receiver.statistics.machine.gaps == 0
        assert not reports, reports
        return publisher.statistics, [tape.receiver.statistics for tape in tapes]


def three_receivers(seed: int = 1, unicast: bool = False) -> tuple[Plan, dict[str, list[str]]]:
    flows = [f"f{k}" for k in range(8)]
    wants = {"r0": flows, "r1": flows[::2], "r2": flows[5:]}
    return random_plan(wants, np.random.default_rng(seed), unicast=unicast), wants


# --- scenarios -----------------------------------------------------------------------------------


async def several_receivers(plain: bool) -> None:
    plan, wants = three_receivers()
    network = replace(LOOPBACK, plain=plain)
    publisher, receivers = await deliver(plan, wants, plan.flows, network=network)
    assert publisher.machine.messages == 2_000
    assert [r.machine.messages for r in receivers] == [2_000, 1_000, 750]
    assert receivers[1].machine.unwanted_messages > 0


async def loss_at_the_endpoint(share: float) -> None:
    plan, wants = three_receivers(2)
    losses = {"r0": share, "r1": share / 2}
    publisher, receivers = await deliver(plan, wants, plan.flows, losses=losses, messages=8_000)
    assert receivers[0].lost_on_purpose > 0
    assert publisher.machine.repairs > 0


async def loss_by_netem() -> None:
    command = ["tc", "qdisc", "add", "dev", "lo", "root", "netem", "loss", "5%"]
    try:
        made = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        raise SkipError("there is no tc") from None
    if made.returncode:
        raise SkipError(f"the kernel has no netem: {made.stderr.strip()}")
    try:
        plan, wants = three_receivers(3)
        publisher, _ = await deliver(plan, wants, plan.flows, messages=4_000)
        assert publisher.machine.repairs > 0
    finally:
        subprocess.run(["tc", "qdisc", "del", "dev", "lo", "root"], check=True)


async def plan_change_in_the_folder(share: float, by_name: bool) -> None:
    """The plan folder is replaced under traffic: flows move to other sessions and groups."""
    old, wants = three_receivers(4)
    new, _ = three_receivers(5)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan"
        write_plan(old, {}, path)

        async def change(publisher: Publisher) -> None:
            write_plan(new, {}, path)
            while publisher.statistics.plan_version < 2:
                await asyncio.sleep(0.02)

        losses = dict.fromkeys(wants, share)
        publisher, receivers = await deliver(
            path, wants, old.flows, losses=losses, messages=6_000, halfway=change, by_name=by_name
        )
        assert publisher.plan_version == 2
        assert all(r.plan_version == 2 for r in receivers)


async def plan_change_without_a_pause() -> None:
    """Messages are published all the time from before the announcement until after the move."""
    old, wants = three_receivers(6)
    new, _ = three_receivers(7)
    sent: dict[str, list[bytes]] = defaultdict(list)
    async with AsyncExitStack() as stack:
        tapes = []
        for at, (name, wanted) in enumerate(wants.items()):
            receiver = Receiver(old, wanted, name=name, network=LOOPBACK, loss=Loss(0.05, at))
            await stack.enter_async_context(receiver)
            receiver.learn_plan(new)
            tapes.append(Tape(receiver))
        publisher = Publisher(old, LOOPBACK, params=QUICK)
        await stack.enter_async_context(publisher)
        versions = set()
        for turn in range(400):
            await publish_all(publisher, old.flows, 2 * len(old.flows), sent)
            versions.add((publisher.statistics.plan_version, publisher.changing))
            if turn == 100:
                publisher.change_plan(new)
            await asyncio.sleep(0.002)
            if turn > 200 and publisher.statistics.plan_version == 2 and turn % 50 == 0:
                break
        assert {(1, True), (2, False)} <= versions, versions
        for tape in tapes:
            flows = tape.receiver.flows
            await tape.record(sum(len(sent[flow]) for flow in flows))
            tape.holds(sent, flows)


async def unicast_flows(share: float) -> None:
    plan = simple_plan([0, 0, -1, -1], [0], {"r": [2], "s": [2, 3]})
    wants = {"r": ["f0", "f2"], "s": ["f2", "f3"]}
    losses = dict.fromkeys(wants, share)
    # By unicast nothing can be sent before the receivers were heard: they ask when it announces.
    publisher, receivers = await deliver(plan, wants, plan.flows, losses=losses)
    assert receivers[1].joined_groups == 1  # the control group alone
    assert publisher.machine.messages == 2_000


async def ipv6(share: float) -> None:
    network = NetworkOptions(GroupAddresses("ff15::7700:0"), interface="veth0")
    plan, wants = three_receivers(8, unicast=True)
    await deliver(plan, wants, plan.flows, network=network, losses=dict.fromkeys(wants, share))


async def many_groups() -> None:
    """More groups than Linux lets one socket join."""
    plan = simple_plan(range(50), range(50))
    _, [receiver] = await deliver(plan, {"r": plan.flows}, plan.flows)
    assert receiver.joined_groups == 51


async def a_slow_reader_stops_nobody() -> None:
    """One reads slowly, through a queue of few messages; the other has its messages long before."""
    plan = simple_plan([0, 0], [0])
    sent: dict[str, list[bytes]] = defaultdict(list)
    async with (
        Receiver(plan, plan.flows, name="slow", network=LOOPBACK, queue_messages=50) as slow,
        Receiver(plan, plan.flows, name="fast", network=LOOPBACK) as fast,
        Publisher(plan, LOOPBACK, params=QUICK) as publisher,
    ):
        await publish_all(publisher, plan.flows, 4_000, sent)
        tape = Tape(fast)
        await tape.record(4_000)
        tape.holds(sent, plan.flows)
        waiting = slow.statistics.waiting
        assert 50 <= waiting < 4_000, waiting
        late = Tape(slow)
        await late.record(4_000)
        late.holds(sent, plan.flows)


async def a_sender_that_starts_again() -> None:
    plan = simple_plan([0, 0], [0])
    reports: list[object] = []
    async with Receiver(
        plan, plan.flows, name="r", network=LOOPBACK, on_report=reports.append
    ) as receiver:
        for _ in range(2):
            sent: dict[str, list[bytes]] = defaultdict(list)
            async with Publisher(plan, LOOPBACK, params=QUICK, stay=0.1) as publisher:
                await publish_all(publisher, plan.flows, 500, sent)
                tape = Tape(receiver)
                await tape.record(500)
            tape.holds(sent, plan.flows)
    assert [type(report) for report in reports if not isinstance(report, Left)] == [Restarted]


async def a_late_receiver_with_history() -> None:
    from distributary.delivery import ReceiverParams

    plan = simple_plan([0, 0], [0])
    sent: dict[str, list[bytes]] = defaultdict(list)
    async with Publisher(plan, LOOPBACK, params=QUICK) as publisher:
        await publish_all(publisher, plan.flows, 1_000, sent)
        await publisher.drain()
        params = ReceiverParams(history=True)
        async with Receiver(plan, ["f1"], name="r", network=LOOPBACK, params=params) as receiver:
            tape = Tape(receiver)
            await tape.record(500)
        tape.holds(sent, ["f1"])


async def iterating_opens_and_closes() -> None:
    plan = simple_plan([0], [0])
    found = []

    async def read() -> None:
        receiver = Receiver(plan, name="r", network=LOOPBACK)
        messages = aiter(receiver)
        async for message in messages:
            found.append(message.payload)
            if len(found) == 100:
                break
        await messages.aclose()  # type: ignore[attr-defined]

    reading = asyncio.create_task(read())
    await asyncio.sleep(0)
    async with Publisher(plan, LOOPBACK, params=QUICK) as publisher:
        for at in range(100):
            await publisher.publish("f0", str(at).encode())
    await reading
    assert found == [str(at).encode() for at in range(100)]


async def a_publisher_that_cannot_send() -> None:
    plan = simple_plan([0], [0])
    for network in (
        NetworkOptions(interface="nowhere0"),
        NetworkOptions(interface="192.0.2.7"),
        NetworkOptions(GroupAddresses("ff15::1"), interface="10.77.0.1"),
        NetworkOptions(GroupAddresses("ff15::1"), interface="lo"),
    ):
        try:
            async with Publisher(plan, network):
                pass
        except NetworkError:
            continue
        raise AssertionError(network)


async def metrics() -> None:
    plan = simple_plan([0], [0])
    async with (
        Receiver(plan, name="r", network=LOOPBACK) as receiver,
        Publisher(plan, LOOPBACK, params=QUICK) as publisher,
    ):
        await publisher.publish("f0", b"x")
        await receiver.receive()
        for snapshot, line in (
            (lambda: receiver.statistics, "distributary_receiver_messages_total 1.0"),
            (lambda: publisher.statistics, "distributary_publisher_messages_total 1.0"),
        ):
            with serve_metrics(snapshot, 0) as port:
                page = await asyncio.to_thread(read_page, f"http://127.0.0.1:{port}/metrics")
            assert line in page, page


def read_page(address: str) -> str:
    with urllib.request.urlopen(address, timeout=10) as answer:
        return str(answer.read().decode())


async def a_receiver_that_pauses() -> None:
    """While it reads nothing it gives nothing up: what it misses may be there already."""
    from distributary.delivery import ReceiverParams

    plan = simple_plan([0], [0])
    reports: list[object] = []
    params = ReceiverParams(tries=2, back_off=0.001, repair_wait=0.005, longest_wait=0.005)
    sent: dict[str, list[bytes]] = defaultdict(list)
    async with (
        Receiver(
            plan,
            plan.flows,
            name="r",
            network=LOOPBACK,
            params=params,
            on_report=reports.append,
            gather=0,
        ) as receiver,
        Publisher(plan, LOOPBACK, params=replace(QUICK, messages_per_packet=1)) as publisher,
    ):
        tape = Tape(receiver)
        await publish_all(publisher, plan.flows, 10, sent)
        await tape.record(10)
        receiver._loss = Loss(0.999, seed=0)
        await publish_all(publisher, plan.flows, 1, sent)
        while not receiver._loss.lost:
            await asyncio.sleep(0.001)
        receiver._loss = Loss(0)
        while not receiver.statistics.machine.missing_ranges:  # a heartbeat shows it
            await asyncio.sleep(0)
        receiver.pause()
        while publisher.statistics.machine.naks < 1 and not receiver._timer_ran:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.2)  # much longer than it would try
        await publish_all(publisher, plan.flows, 10, sent)
        receiver.resume()
        await tape.record(11)
        tape.holds(sent, plan.flows)
    assert all(isinstance(report, Left) for report in reports), reports


async def a_stale_copy_of_the_plan(folder: str, in_folder: bool) -> None:
    """A receiver whose plan is not the sender's says so when it hears the sender, and once."""
    stale, plan = simple_plan([0], [0]), simple_plan([0, 0], [0])
    copy = Path(folder) / "copy"
    write_plan(stale, {}, copy)
    reports: list[object] = []
    async with (
        Receiver(
            copy if in_folder else stale,
            ["f0"],
            name="r",
            network=LOOPBACK,
            watch_every=1e6,
            on_report=reports.append,
        ) as receiver,
        Publisher(plan, LOOPBACK, params=QUICK) as publisher,
    ):
        while not reports:
            await asyncio.sleep(0.005)
        announced = publisher.statistics.machine.announcements
        assert announced <= 3, announced  # at once: these are 50 ms apart
        while publisher.statistics.machine.announcements < announced + 5:
            await asyncio.sleep(0.005)
        assert [type(report) for report in reports] == [NeedPlan]
        write_plan(plan, {}, copy)
        if not in_folder:
            receiver.learn_plan(plan)
        await publisher.publish("f0", b"x")
        assert (await receiver.receive()).payload == b"x"
        assert [type(report) for report in reports] == [NeedPlan]


async def interest_that_changes_with_the_plan(folder: str, way: str) -> None:
    """A running receiver follows what the new plan, or the table that it was made from, has."""
    where = Path(folder)

    def put(wants: Mapping[str, Sequence[str]], seed: int) -> None:
        rows = "".join(f"{name},{flow}\n" for name, flows in wants.items() for flow in flows)
        (where / "interest.csv").write_text(f"receiver,flow\n{rows}")
        plan = random_plan(wants, np.random.default_rng(seed), unicast=False)
        write_plan(plan, {}, where / "plan")

    steps = [
        {"r": ["f0", "f1"], "s": ["f0", "f1", "f2", "f3"]},
        {"r": ["f1", "f2"], "s": ["f0", "f1", "f2", "f3"]},
        {"r": ["f0", "f1", "f3"], "s": ["f0", "f1", "f2", "f3"]},
    ]
    put(steps[0], 0)
    reports: list[object] = []
    got: list[tuple[str, bytes]] = []
    params = replace(QUICK, max_age=0)
    async with (
        Receiver(
            None if way == "sender" else where / "plan",
            where / "interest.csv" if way == "table" else None, name="r",
            network=LOOPBACK, on_report=reports.append,
        ) as receiver,
        Publisher(where / "plan", LOOPBACK, params=params, watch_every=0.02) as publisher,
    ):  # fmt: skip
        for version, wants in enumerate(steps, 1):
            if version > 1:
                put(wants, version)
            while publisher.statistics.plan_version < version or publisher.changing:
                await asyncio.sleep(0.01)
            for flow in ("f0", "f1", "f2", "f3"):
                await publisher.publish(flow, b"%d" % version)
            last = "f1"  # it is wanted by all, and asked for last
            await publisher.publish(last, b"end")
            while (message := await receiver.receive()).payload != b"end":
                got.append((message.flow, message.payload))
            wanted = {*wants["r"]}
            if way != "table":
                wanted = {*receiver.flows}
                assert wanted >= {*wants["r"]}
            expected = [(flow, b"%d" % version) for flow in sorted(wanted)]
            while len(got) < len(expected):  # other sessions have an order of their own
                message = await receiver.receive()
                got.append((message.flow, message.payload))
            assert sorted(got) == expected, (version, got)
            got.clear()
            assert not receiver.unserved
    assert {type(report) for report in reports} <= {
        Brought,
        Left,
        Subscribed,
        Unserved,
    }, reports
    assert any(isinstance(report, Brought) for report in reports) == (way == "sender")


async def interest_that_changes_while_running(share: float) -> None:
    """After `subscribe` returns every message comes; after `unsubscribe` none does."""
    plan = simple_plan([0, 0, 1, 2], [0, 1, 1])
    sent: dict[str, int] = defaultdict(int)
    reports: list[object] = []

    async def publish(flow: str, messages: int) -> None:
        for _ in range(messages):
            sent[flow] += 1
            await publisher.publish(flow, b"%d" % sent[flow])

    async def read_until(flow: str) -> dict[str, list[int]]:
        """What comes, until the last message of a flow that was sent so far."""
        got: dict[str, list[int]] = defaultdict(list)
        while not got[flow] or got[flow][-1] < sent[flow]:
            message = await receiver.receive()
            got[message.flow].append(message.sequence)
        return got

    params = replace(QUICK, max_age=0.001)
    async with (
        Publisher(plan, LOOPBACK, params=params) as publisher,
        Receiver(
            plan, ["f0"], name="r", network=LOOPBACK, loss=Loss(share, seed=4),
            on_report=reports.append,
        ) as receiver,
    ):  # fmt: skip
        assert await receiver.subscribe(["f0"]) == ()
        for at in range(12):
            flow = f"f{1 + at % 3}"
            await publish(flow, 5)  # not wanted yet
            unserved = await receiver.subscribe([flow, "nobody's"])
            assert unserved == ("nobody's",)
            first = sent[flow] + 1
            for _ in range(20):
                await publish(flow, 2)
                await publish("f0", 1)
            got = (await read_until(flow))[flow]
            assert got[0] <= first, (got, first)
            assert got == list(range(got[0], sent[flow] + 1)), got
            await publish(flow, 3)  # on its way when it is not wanted any more
            receiver.unsubscribe([flow, "nobody's"])
            await publish(flow, 3)
            await publish("f0", 1)
            assert set(await read_until("f0")) == {"f0"}
        assert receiver.statistics.joined_groups == 2  # of f0, and the control group
        assert {type(report) for report in reports} == {Subscribed, Unserved}, reports


async def a_flow_that_is_left_while_somebody_reads() -> None:
    """Nothing of it is given out any more, whatever the reader was about to take."""
    got: list[str] = []

    async def read() -> None:
        while True:
            got.append((await receiver.receive()).flow)

    async with (
        Publisher(simple_plan([0], [0]), LOOPBACK, params=QUICK) as publisher,
        Receiver(interest=["f0"], name="r", network=LOOPBACK) as receiver,
    ):
        await receiver.subscribe(["f0"])
        for _ in range(600):
            await publisher.publish("f0", b"x")
        while receiver.statistics.waiting < 600:
            await asyncio.sleep(0.01)
        reading = asyncio.create_task(read())
        while not got:
            await asyncio.sleep(0)
        assert len(got) < 600  # it has let others have their turn
        receiver.unsubscribe(["f0"])
        before = len(got)
        for _ in range(5):
            await asyncio.sleep(0)
        assert len(got) == before
        reading.cancel()
        await asyncio.wait([reading])


async def a_table_of_interest_that_changes(folder: str) -> None:
    table = Path(folder) / "interest.csv"
    table.write_text("receiver,flow\nr,f0\n")
    plan = simple_plan([0, 1], [0, 1])
    reports: list[object] = []
    async with (
        Publisher(plan, LOOPBACK, params=replace(QUICK, max_age=0)) as publisher,
        Receiver(
            plan, table, name="r", network=LOOPBACK, watch_every=0.02, on_report=reports.append
        ) as receiver,
    ):
        table.write_text("receiver,flow\nr,f1\n")
        while Subscribed(("f1",)) not in reports:
            await asyncio.sleep(0.01)
        assert receiver.flows == ("f1",)
        for flow in ("f0", "f1"):
            await publisher.publish(flow, b"x")
        assert (await receiver.receive()).flow == "f1"
