"""What happens in the namespace when somebody makes packets up, or a clock is wrong."""

from __future__ import annotations

import socket
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from distributary.delivery import Restarted
from distributary.delivery.authentication import Authenticator
from distributary.delivery.routes import publisher_number
from distributary.delivery.udp import (
    GroupAddresses,
    NetworkOptions,
    Publisher,
    Receiver,
    ReceiverStatistics,
)
from distributary.delivery.udp.trains import build_directory
from distributary.delivery.wire import (
    Announcement,
    Header,
    PacketKind,
    encode_announcement,
)
from distributary.model import Plan
from tests.delivery.machines import simple_plan
from tests.delivery.udp.scenarios import (
    KEY,
    LOOPBACK,
    QUICK,
    Tape,
    deliver,
    publish_all,
    three_receivers,
)


async def strangers() -> None:
    """Packets without the key, damaged ones, old ones and noise change nothing."""
    plan, wants = three_receivers(9)
    groups = LOOPBACK.groups
    names = ("group control", *(f"group {g}" for g in range(plan.n_groups)))

    async def disturb(publisher: Publisher) -> None:
        for key in (None, bytes(32)):
            other = Publisher(plan, LOOPBACK, key=key, params=replace(QUICK, grace=0.0), stay=0.1)
            async with other:
                for flow in plan.flows:
                    await other.publish(flow, b"forged")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
            own.bind(("127.0.0.1", 0))
            ours = ("127.0.0.1", int(publisher.address.rpartition(":")[2]))
            for name in names:
                for noise in (
                    b"",
                    b"noise",
                    bytes(200),
                    b"\x57\xd1\x02\x01" + bytes(60),
                    b"\x57\xd1\x01\x01" + bytes(60),
                ):
                    own.sendto(noise, (groups.of(name), groups.port))
                    own.sendto(noise, ours)

    publisher, receivers = await deliver(plan, wants, plan.flows, key=KEY, halfway=disturb)
    for receiver in receivers:
        assert receiver.machine.unauthenticated > 0
    assert publisher.machine.unauthenticated > 0


def forged_packets(plan: Plan) -> list[bytes]:
    """What somebody without a key could make up: plans of nobody, and the end of all."""
    made = []
    for incarnation in (1, 2**62, 2**63 - 1):
        body = encode_announcement(Announcement(1, 0, 0x0BAD, 0))
        for publisher in (0, publisher_number("publisher")):
            for sequence in (1, 2**63 - 1):
                header = Header(
                    PacketKind.ANNOUNCEMENT,
                    publisher=publisher,
                    incarnation=incarnation,
                    sequence=sequence,
                )
                made.append(Authenticator().encode_packet(header, body))
                made += build_directory(plan, incarnation, sequence)
            reply = Header(PacketKind.REPLY, 0, 0, publisher, incarnation=incarnation, sequence=7)
            made.append(Authenticator().encode_packet(reply, b""))
    return made


async def forgeries(base: str, everywhere: bool) -> None:
    """Made-up packets to the groups' port, to a receiver alone and to the groups end nothing."""
    v6 = ":" in base
    network = NetworkOptions(GroupAddresses(base), interface="veth0" if v6 else "lo")
    plan, wants = three_receivers(10, unicast=True)
    here = "fd77::1" if v6 else "127.0.0.1"
    opened: list[Receiver] = []
    before: list[tuple[int, int]] = []

    def unknown(receivers: Iterable[ReceiverStatistics]) -> list[tuple[int, int]]:
        return [(each.machine.strangers, each.machine.stale) for each in receivers]

    async def disturb(publisher: Publisher) -> None:
        before.extend(unknown(receiver.statistics for receiver in opened))
        family = socket.AF_INET6 if v6 else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as own:
            own.bind((here, 0))
            places = [(here, network.groups.port)]
            if everywhere:
                level, option = (
                    (socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF)
                    if v6
                    else (socket.IPPROTO_IP, socket.IP_MULTICAST_IF)
                )
                own.setsockopt(
                    level, option, socket.if_nametoindex("veth0") if v6 else socket.inet_aton(here)
                )
                names = ("group control", *(f"group {g}" for g in range(plan.n_groups)))
                places += [(network.groups.of(name), network.groups.port) for name in names]
                places += [(here, int(each.address.rpartition(":")[2])) for each in opened]
            for place in places:
                for packet in forged_packets(plan):
                    own.sendto(packet, place)

    _, receivers = await deliver(
        plan, wants, plan.flows, network=network, halfway=disturb, on_open=opened.append
    )
    if everywhere:
        assert all(receiver.machine.strangers > 0 for receiver in receivers)
    else:  # the system has dropped them: no receiver was bothered
        assert unknown(receivers) == before


async def a_clock_that_stepped_back() -> None:
    """A publisher that starts with an earlier time than the last one had is followed too."""
    plan = simple_plan([0, 0], [0])
    reports: list[object] = []
    async with Receiver(
        plan, plan.flows, name="r", network=LOOPBACK, on_report=reports.append
    ) as receiver:
        for incarnation in (2_000_000, 1_000_000, 3_000_000):
            sent: dict[str, list[bytes]] = defaultdict(list)
            async with Publisher(plan, LOOPBACK, incarnation=incarnation) as publisher:
                await publish_all(publisher, plan.flows, 200, sent)
            # The publisher has ended: it was told to stay for as long as anybody asked.
            tape = Tape(receiver)
            await tape.record(200)
            tape.holds(sent, plan.flows)
    restarts = [report for report in reports if isinstance(report, Restarted)]
    assert restarts == [
        Restarted("publisher", 2_000_000, 1_000_000),
        Restarted("publisher", 1_000_000, 3_000_000),
    ]
