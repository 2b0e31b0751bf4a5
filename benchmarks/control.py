"""A control plane with many members, and how soon what a receiver asks for is there."""

from __future__ import annotations

import asyncio
import os
import secrets
import statistics
import sys
import tempfile
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np
from nats.aio.client import Client
from nats.js.api import Header

from benchmarks.measure import Section, shown_seconds
from distributary.control import ControlStatus
from distributary.control.nats import Control, ControlClient
from distributary.control.nats.layout import Layout, MemberRole
from distributary.control.nats.member_seats import PublisherPlace, ReceiverPlace
from distributary.control.reporting import (
    PublisherFigures,
    PublisherReporter,
    ReceiverFigures,
    ReceiverReporter,
)
from distributary.control.reports import InterestRecord, PublisherRecord
from distributary.delivery import ReceiverMachineStatistics, SenderMachineStatistics
from distributary.delivery.udp import (
    NetworkOptions,
    Publisher,
    PublisherStatistics,
    Receiver,
    ReceiverStatistics,
)
from distributary.machines.nats import (
    EmbeddedServer,
    NatsOptions,
    connect_to_server,
    run_embedded_server,
)
from distributary.machines.real import own_tasks
from distributary.topics.nats.status import fetch_server_status

WHOLE, LIGHT = 100, 1_000  # members, each with all that belongs to one, or with keys and reports
CONNECTIONS = 8  # of those with keys and reports only
PUBLISHERS = 0.05  # of the members
FLOWS, WANTED = 2_000, 20
GROUPS, SESSIONS = 32, 128
RATE = 40  # messages/s of each publisher, each of one of its flows
WARM_UP, SECONDS = 15.0, 30.0
SHIFTS = 5  # receivers per second that exchange a flow for another one
IN_PLAN, NOT_IN_PLAN = 200, 50  # subscriptions that are timed
PAUSE = 0.005  # seconds between two messages of a flow


def members() -> Section:
    """What many members cost the service, the server and the network."""
    costs = {
        f"{WHOLE:,}, a connection each": asyncio.run(_measure(WHOLE, light=False)),
        f"{LIGHT:,} over {CONNECTIONS} connections": asyncio.run(_measure(LIGHT, light=True)),
    }
    rows = [[name, *_describe(cost)] for name, cost in costs.items()]
    return Section(
        "A control plane with many members",
        f"`control serve --groups {GROUPS} --sessions {SESSIONS} --spark off` and an embedded NATS "
        "server, a process each; all members in one more process. The first row has whole members "
        "but for the traffic; those of the second write the same keys and reports, and do not look "
        f"after them every few seconds. {PUBLISHERS:.0%} of them "
        f"publish {RATE} messages/s, each of any of {FLOWS:,} flows; the others want {WANTED} "
        f"flows with neighbouring numbers, and {SHIFTS} receivers a second exchange one flow for "
        "one that no plan has. Members report every second. Messages and bytes are the server's "
        f"own counts over {SECONDS:.0f} s, in both directions, acknowledgements and the service's "
        "own part included; CPU is of one core. Placed: from a receiver's wish until a publisher "
        "has a version that carries it. At least 95 % of the reports came in time (asserted).",
        (
            *("members", "CPU of control", "CPU of NATS", "memory of control"),
            *("messages per member and second", "bytes per member and second"),
            *("placed after, median", "99 %", "status, bytes", "status after"),
        ),
        rows,
        _describe_load(),
    )


def subscribing() -> Section:
    """From `subscribe` to the first message, with a whole control plane."""
    in_plan, not_in_plan = asyncio.run(_subscribe())
    rows = [
        [name, f"{len(found):,}", *_spread(found)]
        for name, found in (("in the plan", in_plan), ("in no plan yet", not_in_plan))
    ]
    return Section(
        "A control plane: from `subscribe` to the first message",
        "`control serve --spark off`, NATS, a publisher and a receiver on the loopback of one "
        f"network namespace. The publisher has a message of each flow every {1e3 * PAUSE:.0f} ms. "
        "A flow that no plan carries is placed by the control service; its publishers announce the "
        "new version, and change to it after a grace time of half a second. No message was missing "
        "once a flow was subscribed (asserted).",
        ("the flow is", "times", "first message after, median", "99 %"),
        rows,
        _describe_load(),
    )


SECTIONS = {"control_members": members, "control_subscribing": subscribing}


def _describe_load() -> str:
    load = os.getloadavg()[1]
    return f"Other work ran meanwhile: the load was {load:.0f} on {os.cpu_count()} cores."


def _spread(seconds: Sequence[float]) -> tuple[str, str]:
    late = float(np.percentile(seconds, 99))
    return shown_seconds(statistics.median(seconds)), shown_seconds(late)


@asynccontextmanager
async def _service(folder: Path, server: EmbeddedServer) -> AsyncIterator[int]:
    """The service in a process of its own; yields its id once it serves."""
    words = ("control", "serve", "--state", str(folder / "service"), "--nats", str(folder))
    more = ("--spark", "off", "--ttl", "0", "--groups", str(GROUPS), "--sessions", str(SESSIONS))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "distributary", *words, *more), stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    try:
        line = await process.stderr.readline()
        assert line.startswith(b"serving"), line
        async with own_tasks() as start:
            start(_drop(process.stderr))
            yield process.pid
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _drop(reader: asyncio.StreamReader) -> None:
    async for _ in reader:
        pass


# --- members -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Cost:
    """What members cost while it was measured."""

    members: int
    seconds: float
    control_cpu: float
    nats_cpu: float
    memory: float
    messages: int
    bytes: int
    placed: list[float]
    status: ControlStatus
    answered: float


def _describe(cost: _Cost) -> list[str]:
    each = cost.members * cost.seconds
    return [
        f"{cost.control_cpu / cost.seconds:.1%}",
        f"{cost.nats_cpu / cost.seconds:.1%}",
        f"{cost.memory / 1e6:,.0f} MB",
        f"{cost.messages / each:.2f}",
        f"{cost.bytes / each:,.0f}",
        *_spread(cost.placed),
        f"{len(msgspec.json.encode(cost.status)):,}",
        shown_seconds(cost.answered),
    ]


_NOTHING = ReceiverMachineStatistics(*(0 for _ in ReceiverMachineStatistics.__slots__))


def _make_figures(second: int) -> ReceiverFigures:
    return ReceiverFigures(time.monotonic(), 90 * second, 7 * second, 20 * second, 5)


def _receiver_statistics(second: int) -> ReceiverStatistics:
    figures = _make_figures(second)
    machine = replace(
        _NOTHING,
        messages=figures.wanted,
        unwanted_packets=figures.dropped_packets,
        unwanted_messages=figures.dropped_messages,
    )
    return ReceiverStatistics(machine, *(0 for _ in range(10)), cpu_seconds=0.01 * second)


def _publisher_statistics(second: int) -> PublisherStatistics:
    machine = SenderMachineStatistics(messages=RATE * second, packets=RATE * second // 4)
    return PublisherStatistics(machine, 1, 0, 0, 0.01 * second)


class _LightSeat:
    """A member's key and reports, over a connection that it shares."""

    def __init__(self, nc: Client, role: MemberRole, name: str, flows: tuple[str, ...]) -> None:
        layout = Layout()
        self.reports = 0
        self._nc, self._incarnation = nc, secrets.token_hex(8)
        self._subject = layout.report(role, name)
        self._key = f"$KV.{layout.members}.{layout.member_key(role, name)}"
        self._is_publisher = role == "publisher"
        self._publishing = PublisherReporter(self._incarnation)
        self._receiving = ReceiverReporter(self._incarnation)
        self._flows = flows

    async def begin(self) -> None:
        """Write the key for the first time, and wait until it is stored."""
        if self._is_publisher:
            record = PublisherRecord(self._incarnation, "benchmark", time.time(), None)
            await self._nc.request(self._key, msgspec.msgpack.encode(record), timeout=30.0)
        else:
            await self._nc.request(self._key, self._encode(self._flows), timeout=30.0)

    def _encode(self, flows: Iterable[str]) -> bytes:
        wanted = tuple(sorted(flows))
        return msgspec.msgpack.encode(
            InterestRecord(self._incarnation, "benchmark", time.time(), wanted)
        )

    async def want(self, flows: Iterable[str]) -> None:
        """Write the key again."""
        await self._nc.publish(self._key, self._encode(flows))

    async def report(self, second: int, flows: Iterable[str]) -> None:
        """Report a second, in which a publisher had these flows."""
        reporter: PublisherReporter | ReceiverReporter = self._receiving
        if self._is_publisher:
            reporter = self._publishing
            for flow in flows:
                self._publishing.tally.count(flow)
            figures = PublisherFigures(time.monotonic(), 1, 0, RATE * second, RATE * second // 4)
            self._publishing.note(round(time.time()) - 1, figures)
        else:
            self._receiving.note(_make_figures(second))
        while (report := reporter.next_report()) is not None:
            headers = {Header.MSG_ID.value: f"{self._incarnation}:{report.number}"}
            data = msgspec.msgpack.encode(report)
            await self._nc.publish(self._subject, data, reply="benchmark.acks", headers=headers)
            reporter.confirm()
            self.reports += 1


class _WholeSeat:
    """A member of its own."""

    def __init__(self, seat: PublisherPlace | ReceiverPlace) -> None:
        self._seat = seat

    @property
    def reports(self) -> int:
        """Reports that are stored."""
        return self._seat.statistics.reports

    async def want(self, flows: Iterable[str]) -> None:
        """Want other flows."""
        assert isinstance(self._seat, ReceiverPlace)
        self._seat.want(flows)

    async def report(self, second: int, flows: Iterable[str]) -> None:
        """Report a second, in which a publisher had these flows."""
        if isinstance(self._seat, PublisherPlace):
            for flow in flows:
                self._seat.count(flow)
            self._seat.report(1, _publisher_statistics(second))
        else:
            self._seat.report(_receiver_statistics(second), ())


class _Crowd:
    """Members without traffic that count, report and change their interest."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.seats: list[_LightSeat | _WholeSeat] = []  # publishers, then receivers
        self.asked: dict[str, float] = {}  # when a flow was first wanted that no plan has
        self.placed: dict[str, float] = {}  # seconds until a publisher had a plan with it
        self._n_publishers = 0
        self._rng = rng
        self._wanted: list[deque[str]] = []
        self._following = FLOWS
        self._second = 0
        self._looker: PublisherPlace

    async def join(
        self,
        control: Control,
        options: NatsOptions,
        number: int,
        light: bool,
        stack: AsyncExitStack,
    ) -> None:
        """Let so many members join, one of them to look at versions."""
        self._n_publishers = int(PUBLISHERS * number)
        enter = stack.enter_async_context
        self._looker = await enter(control.seat_publisher("looker", ("none",), _fail))
        connections = [
            await enter(connect_to_server(options, name=f"members {at}", echo=False))
            for at in range(CONNECTIONS if light else 0)
        ]
        for at in range(number - 1):
            name, first = f"member {at}", int(self._rng.integers(FLOWS))
            role: MemberRole = "publisher" if at < self._n_publishers else "receiver"
            flows = tuple(f"flow {(first + more) % FLOWS}" for more in range(WANTED))
            if role == "receiver":
                self._wanted.append(deque(flows))
            if light:
                seat = _LightSeat(connections[at % CONNECTIONS], role, name, flows)
                await seat.begin()
                self.seats.append(seat)
            elif role == "publisher":
                self.seats.append(
                    _WholeSeat(await enter(control.seat_publisher(name, None, _fail)))
                )
            else:
                self.seats.append(
                    _WholeSeat(await enter(control.seat_receiver(name, flows, _fail)))
                )

    async def live(self) -> None:
        """Report every second, each member at its own time of it; some change their interest."""
        async with own_tasks() as start:
            start(self._follow(self._looker))
            await self._report_and_shift()

    async def _follow(self, publisher: PublisherPlace) -> None:
        async for found in publisher.versions():
            now = time.time()
            for flow in self.asked.keys() & set(found.plan.flows):
                self.placed.setdefault(flow, now - self.asked[flow])

    async def _report_and_shift(self) -> None:
        began = time.monotonic()
        while True:
            self._second += 1
            for at, seat in enumerate(self.seats):
                flows = [f"flow {n}" for n in self._rng.integers(FLOWS, size=RATE).tolist()]
                await seat.report(self._second, flows if at < self._n_publishers else ())
                if at % 20 == 0:
                    share = self._second - 1 + at / len(self.seats)
                    await asyncio.sleep(max(0.0, began + share - time.monotonic()))
            self._looker.report(1, _publisher_statistics(self._second))
            for _ in range(SHIFTS):
                await self._shift(int(self._rng.integers(len(self._wanted))))
            await asyncio.sleep(max(0.0, began + self._second - time.monotonic()))

    async def _shift(self, at: int) -> None:
        """Let a receiver want another flow: one that no plan has, for it to be placed."""
        wanted = self._wanted[at]
        wanted.popleft()
        flow = f"flow {self._following}"
        self._following += 1
        wanted.append(flow)
        self.asked[flow] = time.time()
        await self.seats[self._n_publishers + at].want(wanted)

    @property
    def reports(self) -> int:
        """Reports that were stored, or sent to be stored."""
        return sum(each.reports for each in self.seats)


def _fail(fault: Exception) -> None:
    raise fault


async def _measure(number: int, *, light: bool) -> _Cost:
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        async with AsyncExitStack() as stack:
            enter = stack.enter_async_context
            server = await enter(run_embedded_server(Path(folder), monitor=True))
            pid = await enter(_service(Path(folder), server))
            client = await enter(ControlClient(server.options, within=30.0))
            crowd = _Crowd(rng)
            control = Control(Path(folder), within=60.0)
            await crowd.join(control, server.options, number, light, stack)
            living = asyncio.create_task(crowd.live())
            await asyncio.sleep(WARM_UP)
            asked, reports = set(crowd.asked), crowd.reports
            before, cpu = await fetch_server_status(server.monitor), _read_cpu(pid, server.pid)
            began = time.monotonic()
            await asyncio.sleep(SECONDS)
            seconds = time.monotonic() - began
            after, used = await fetch_server_status(server.monitor), _read_cpu(pid, server.pid)
            assert crowd.reports - reports >= 0.95 * number * SECONDS, crowd.reports - reports
            shifted = [flow for flow in crowd.asked if flow not in asked]
            began = time.monotonic()
            status = await client.status()
            answered = time.monotonic() - began
            while not crowd.placed.keys() >= set(shifted):
                await asyncio.sleep(0.1)
            living.cancel()
            await asyncio.wait([living])
            placed = [crowd.placed[flow] for flow in shifted]
            assert len(status.receivers) + len(status.publishers) == number
            return _Cost(
                number,
                seconds,
                used[0] - cpu[0],
                used[1] - cpu[1],
                _read_memory(pid),
                after.in_msgs + after.out_msgs - before.in_msgs - before.out_msgs,
                after.in_bytes + after.out_bytes - before.in_bytes - before.out_bytes,
                placed,
                status,
                answered,
            )


def _read_cpu(*pids: int) -> list[float]:
    """Seconds of CPU time that processes have used."""
    found = []
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        found.append((int(fields[11]) + int(fields[12])) / 100)
    return found


def _read_memory(pid: int) -> float:
    """Resident bytes of a process."""
    return 4_096.0 * int(Path(f"/proc/{pid}/statm").read_text().split()[1])


# --- subscribing ---------------------------------------------------------------------------------


async def _subscribe() -> tuple[list[float], list[float]]:
    flows = [f"flow {at}" for at in range(NOT_IN_PLAN)]
    reports: list[object] = []
    with tempfile.TemporaryDirectory() as folder:
        async with AsyncExitStack() as stack:
            enter = stack.enter_async_context
            server = await enter(run_embedded_server(Path(folder)))
            await enter(_service(Path(folder), server))
            publishing = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "benchmarks.control", folder, str(len(flows) + 1))
            )
            stack.push_async_callback(publishing.wait)
            stack.callback(publishing.kill)
            network = NetworkOptions(interface="lo")
            receiver = await enter(
                Receiver(
                    interest=["first"],
                    on_report=reports.append,
                    name="r",
                    control=Control(folder),
                    network=network,
                )
            )
            await receiver.receive()
            not_in_plan = [await _time_first(receiver, flow) for flow in flows]
            keeping = Receiver(
                interest=flows,
                name="keeper",
                control=Control(folder),
                network=network,
                on_messages=lambda messages: None,
                on_report=reports.append,
            )
            await enter(keeping)
            receiver.unsubscribe(flows)
            await keeping.subscribe(flows)  # it keeps them in the plan
            in_plan = []
            for at in range(IN_PLAN):
                in_plan.append(await _time_first(receiver, flows[at % len(flows)]))
                receiver.unsubscribe([flows[at % len(flows)]])
            kinds = {type(report).__name__ for report in reports}
            assert kinds <= {"Subscribed", "Unserved"}, kinds
            return in_plan, not_in_plan


async def _time_first(receiver: Receiver, flow: str) -> float:
    began = time.monotonic()
    receiver.want_also([flow])
    while (await receiver.receive()).flow != flow:
        pass
    return time.monotonic() - began


async def _publish(folder: str, flows: int) -> None:
    """Publish all flows until this process is killed, or for ten minutes."""
    names = ["first", *(f"flow {at}" for at in range(flows - 1))]
    network = NetworkOptions(interface="lo")
    async with Publisher(None, network, control=Control(folder), name="p") as publisher:
        for _ in range(int(600 / PAUSE)):
            for name in names:
                await publisher.publish(name, b"x" * 100)
            await asyncio.sleep(PAUSE)


if __name__ == "__main__":
    asyncio.run(_publish(sys.argv[1], int(sys.argv[2])))
