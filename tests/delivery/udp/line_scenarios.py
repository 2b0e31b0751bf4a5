"""What happens in the namespace where each group has two lines."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections import defaultdict
from contextlib import AsyncExitStack
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

from distributary.delivery import group_name
from distributary.delivery.udp import (
    GroupAddresses,
    Loss,
    NetworkOptions,
    Publisher,
    Receiver,
    serve_metrics,
    snapshot_document,
)
from distributary.delivery.udp.memberships import Memberships
from distributary.delivery.udp.sockets import find_interfaces
from distributary.files import write_plan
from tests.delivery.machines import simple_plan
from tests.delivery.udp.command_scenarios import start_command, until_joined
from tests.delivery.udp.scenarios import (
    LOOPBACK,
    QUICK,
    Tape,
    deliver,
    publish_all,
    read_page,
    three_receivers,
)

A, B = 0, 1


def two_lines(base: str = GroupAddresses().base, interface: str = "lo") -> NetworkOptions:
    return NetworkOptions(GroupAddresses(base, pairs=True), interface=interface)


async def both_lines(base: str, interface: str) -> None:
    """Everything comes twice, is delivered once, and nothing is a duplicate or a stranger's."""
    plan, wants = three_receivers(unicast=True)
    network = two_lines(base, interface)
    publisher, receivers = await deliver(plan, wants, plan.flows, network=network)
    assert publisher.machine.messages == 2_000
    assert publisher.machine.repairs == publisher.unsent == 0
    for receiver in receivers:
        a, b = receiver.lines
        assert receiver.machine.duplicates == receiver.machine.strangers == 0
        assert a.first_copies + b.first_copies > 200
        assert a.copies + b.copies > 200
        assert receiver.joined_groups <= plan.n_groups + 1


async def loss_on_both_lines(share: float) -> None:
    """Each line loses packets of its own: the other fills most gaps."""
    plan, wants = three_receivers(2)
    losses = dict.fromkeys(wants, share)
    publisher, receivers = await deliver(
        plan, wants, plan.flows, network=two_lines(), losses=losses, messages=8_000
    )
    for receiver in receivers:
        assert sum(line.filled_gaps for line in receiver.lines) > 0
    lost = sum(receiver.lost_on_purpose for receiver in receivers)
    assert publisher.machine.repairs < lost / 2


async def a_line_that_is_cut(line: int, seconds: float) -> None:
    """One line is cut at the receiver while messages are published all the time."""
    plan = simple_plan([0, 1, 1], [0, 1])
    sent: dict[str, list[bytes]] = defaultdict(list)
    loss, reports = Loss(0), list[object]()
    async with AsyncExitStack() as stack:
        receiver = Receiver(
            plan, plan.flows, name="r", network=two_lines(), loss=loss, on_report=reports.append
        )
        await stack.enter_async_context(receiver)
        publisher = Publisher(plan, two_lines(), params=QUICK)
        await stack.enter_async_context(publisher)
        tape = Tape(receiver)

        async def publish_for(time: float) -> None:
            until = asyncio.get_running_loop().time() + time
            while asyncio.get_running_loop().time() < until:
                await publish_all(publisher, plan.flows, 30, sent)
                await asyncio.sleep(0.01)

        await publish_for(0.5)
        loss.cut.add(line)
        await publish_for(seconds)
        loss.cut.clear()
        await publish_for(0.5)
        await tape.record(sum(map(len, sent.values())))
        tape.holds(sent, plan.flows)
        assert not reports, reports
        assert loss.lost > 0
        assert publisher.statistics.machine.naks == publisher.statistics.machine.repairs == 0
        assert receiver.statistics.machine.duplicates == 0
        assert receiver.statistics.lines[1 - line].first_copies > loss.lost / 2


async def an_interface_that_goes_down() -> None:
    """Line B has a network of its own, which fails: line A brings everything."""
    plan, wants = three_receivers(3)

    async def take_down(publisher: Publisher) -> None:
        subprocess.run(["ip", "link", "set", "veth1", "down"], check=True)

    try:
        network = two_lines(interface="veth0,veth1")
        publisher, receivers = await deliver(
            plan, wants, plan.flows, network=network, halfway=take_down
        )
    finally:
        subprocess.run(["ip", "link", "set", "veth1", "up"], check=True)
    assert publisher.machine.naks == publisher.machine.repairs == 0
    for receiver in receivers:
        assert receiver.lines[B].packets < receiver.lines[A].packets


async def one_line_of_two(line_b: bool) -> None:
    """A receiver of one line alone gets everything that is published on two."""
    plan = simple_plan([0, 1], [0, 1])
    network = two_lines()
    base = network.groups.of("group control", B) if line_b else network.groups.base
    sent: dict[str, list[bytes]] = defaultdict(list)
    alone = NetworkOptions(GroupAddresses(base), interface="lo")
    async with (
        Receiver(plan, plan.flows, name="r", network=alone) as receiver,
        Publisher(plan, network, params=QUICK) as publisher,
    ):
        await publish_all(publisher, plan.flows, 500, sent)
        tape = Tape(receiver)
        await tape.record(500)
        tape.holds(sent, plan.flows)
        assert receiver.statistics.lines == ()
        assert "lines" not in snapshot_document(receiver.statistics)


async def a_publisher_on_one_line() -> None:
    """A receiver of two lines gets everything from a publisher that uses line A alone."""
    plan = simple_plan([0, 1], [0, 1])
    sent: dict[str, list[bytes]] = defaultdict(list)
    async with (
        Receiver(plan, plan.flows, name="r", network=two_lines(), loss=Loss(0.1)) as receiver,
        Publisher(plan, LOOPBACK, params=QUICK) as publisher,
    ):
        await publish_all(publisher, plan.flows, 500, sent)
        tape = Tape(receiver)
        await tape.record(500)
        tape.holds(sent, plan.flows)
        assert receiver.statistics.lines[B].packets == 0
        assert receiver.statistics.lines[B].silent_seconds is None


async def statistics_of_lines() -> None:
    plan = simple_plan([0], [0])
    network = two_lines()
    async with (
        Receiver(plan, name="r", network=network) as receiver,
        Publisher(plan, network, params=QUICK) as publisher,
    ):
        await publisher.publish("f0", b"x")
        await receiver.receive()
        with serve_metrics(lambda: receiver.statistics, 0) as port:
            page = await asyncio.to_thread(read_page, f"http://127.0.0.1:{port}/metrics")
        for name in ("packets_total", "first_copies_total", "copies_total", "filled_gaps_total"):
            for line in "AB":
                assert f'distributary_receiver_line_{name}{{line="{line}"}} ' in page, page
        assert 'distributary_receiver_line_silent_seconds{line="A"} ' in page, page


async def one_source(base: str, interface: str, source: str, other: str, pairs: bool) -> None:
    """Receivers that name the source hear it; one that names another hears nothing."""
    plan, wants = three_receivers(4)
    groups = GroupAddresses(base, pairs=pairs, source=source)
    network = NetworkOptions(groups, interface=interface)
    elsewhere = replace(network, groups=replace(groups, source=other))
    async with Receiver(plan, plan.flows, name="r0", network=elsewhere) as deaf:
        await deliver(plan, wants, plan.flows, network=network)
        assert deaf.statistics.machine.packets == 0
    joined = Memberships(network, find_interfaces(network), lambda _: None, lambda _: None)
    for line in range(len(groups.lines)):
        joined.join(group_name(0))
        assert is_joined(groups.of(group_name(0), line))
        joined.leave(group_name(0))
        assert not is_joined(groups.of(group_name(0), line))
    joined.close()


def is_joined(group: str) -> bool:
    """Whether anybody in this namespace has joined a group."""
    packed = ip_address(group).packed
    if len(packed) == 4:
        return packed[::-1].hex().upper() in Path("/proc/net/igmp").read_text()
    return packed.hex() in Path("/proc/net/igmp6").read_text()


async def commands_with_pairs(folder: str) -> None:
    where = Path(folder)
    write_plan(simple_plan([0, 0, 1], [0, 1]), {}, where / "plan")
    shared = ("--plan", str(where / "plan"), "--interface", "lo", "--pairs")
    listening = await start_command(
        "receive", *shared, "--as", "r", "--out", str(where / "got.jsonl"), "--json",
        "--count", "300",
    )  # fmt: skip
    groups = two_lines().groups
    for line in (A, B):
        await until_joined(groups.of("group control", line))
    sending = await start_command("publish", *shared, "--json", stdin=asyncio.subprocess.PIPE)
    rows = "".join(f"f{at % 3}\tmessage {at}\n" for at in range(300))
    _, faults = await sending.communicate(rows.encode())
    assert sending.returncode == 0, faults
    told, faults = await listening.communicate()
    assert listening.returncode == 0, faults
    document = json.loads(told)
    assert document["messages"] == 300
    assert document["duplicates"] == document["naks"] == 0
    assert [line["line"] for line in document["lines"]] == ["A", "B"]
    assert sum(line["first_copies"] for line in document["lines"]) >= 300 / 8
