"""The live publisher: `async with Publisher(plan, ...) as publisher: await publisher.publish`.

With `control=` the plans come from a control plane (`seated.py`). A thin shell around
`delivery.SenderMachine`: it hands over packets, times and messages, and performs the machine's
actions. Packets and timers are callbacks of the event loop; the tasks that watch the plan folder or
the control plane end with the block.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from types import TracebackType
from typing import Any, Self

from distributary.delivery import (
    CONTROL_GROUP,
    Claimed,
    FullError,
    Refused,
    Released,
    SenderMachine,
    SenderParams,
    fingerprint_of,
)
from distributary.delivery.errors import NotHeldError
from distributary.delivery.routes import publisher_number
from distributary.delivery.sender import SenderAction
from distributary.delivery.udp.control import MemberControl
from distributary.delivery.udp.datagrams import make_reader
from distributary.delivery.udp.endpoints import Outlet, format_address
from distributary.delivery.udp.memberships import Memberships
from distributary.delivery.udp.network import NetworkOptions
from distributary.delivery.udp.plan_watch import PlanWatch, load_plan
from distributary.delivery.udp.seated import EMPTY_PLAN, SeatedPublisher, join_network
from distributary.delivery.udp.sockets import Interface, find_interfaces, open_own_socket
from distributary.delivery.udp.statistics import PublisherStatistics
from distributary.errors import DistributaryError
from distributary.machines.actions import Send
from distributary.machines.real import DirectDriver, own_tasks
from distributary.model import Plan

__all__ = ["Publisher"]

ClaimReport = Claimed | Refused | Released
_FAREWELL = 0.2  # seconds to repair what says that the publisher leaves
_TURN = 64  # messages after which other tasks get their turn
_READS = 8  # batches of requests and NAKs in one read


class Publisher:
    """Sends messages of flows by a plan, and repairs what receivers miss.

    `plan` is a plan or its folder; a folder is watched, and the publisher changes to a new plan
    under traffic. With `control` instead, plans and groups come from a control plane: `name` has to
    be free there, and messages are dropped and counted until there is a plan. `addresses` has fixed
    unicast addresses of receivers, as `udp://HOST:PORT`; the publisher learns those of others from
    their questions. At the end of the block it sends what is queued, and repairs until nobody has
    asked for `stay` seconds.
    """

    def __init__(
        self,
        plan: Plan | str | os.PathLike[str] | None = None,
        network: NetworkOptions | None = None,
        *,
        control: MemberControl | None = None,
        name: str = "publisher",
        flows: Iterable[str] | None = None,
        params: SenderParams | None = None,
        key: bytes | None = None,
        addresses: Mapping[str, str] | None = None,
        incarnation: int | None = None,
        stay: float = 0.5,
        watch_every: float = 0.5,
        wall_clock: Callable[[], int] = time.time_ns,
        prepare: Callable[[Plan], object] = lambda plan: None,
        on_report: Callable[[ClaimReport], None] = lambda report: None,
        on_fault: Callable[[DistributaryError], None] = lambda error: None,
    ) -> None:
        """Of several publishers of a plan each has a name of its own, and its `flows`; None: all.

        Those that another publisher has already are `Refused` (`on_report`). A plan in the folder
        that cannot be used goes to `on_fault`; the previous one stays.

        `wall_clock` says in nanoseconds since 1970 when packets are sent. `prepare` gets each plan
        before it is announced, those that come into the folder in a thread; where it raises an
        error, it is called again until it does not.
        """
        if (plan is None) == (control is None):
            raise ValueError("a publisher goes by a plan or by a control plane: give one of them")
        self._given_network = network
        self._network = NetworkOptions() if network is None else network
        self._folder = None if isinstance(plan, Plan) else plan
        loaded = EMPTY_PLAN if plan is None else load_plan(plan)
        self._network.groups.check_room(loaded)
        prepare(loaded)
        self._fingerprint = fingerprint_of(loaded)
        self._stay = stay
        self._watch_every = watch_every
        self._prepare = prepare
        self._on_report = on_report
        self._on_fault = on_fault
        self._decided: dict[str, str | None] = {}  # flows that were claimed: None, or who has them
        self._releasing: set[str] = set()  # flows that are let go
        self._name = name
        self._number = publisher_number(name).to_bytes(4, "little")
        self._flows = None if flows is None else tuple(flows)
        self._control = control
        self._seat: SeatedPublisher | None = None
        self._count: Callable[[str], None] | None = None  # counts a message for the control plane
        self._make_machine = partial(
            SenderMachine,
            incarnation=time.time_ns() if incarnation is None else incarnation,
            name=name,
            flows=self._flows,
            params=params,
            key=key,
            where="" if self._folder is None else os.path.basename(os.fspath(self._folder)),
            addresses=addresses,
            wall_clock=wall_clock,
        )
        self._machine = self._make_machine(loaded)
        self._reader = make_reader(
            self._network.batch, self._network.largest_packet, plain=self._network.plain
        )
        self._stack = AsyncExitStack()
        self._asked_at = 0.0
        self._since_turn = 0
        self._own: socket.socket
        self._outlet: Outlet
        self._driver: DirectDriver  # notifies when the timer ran

    # --- what the caller does ---------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Open the socket and announce the plan; messages are sent after the grace time."""
        try:
            if self._control is not None:
                await self._take_seat(self._control)
            self._open()
            if self._folder is not None:
                start = await self._stack.enter_async_context(own_tasks())
                watch = PlanWatch(self._folder, self._watch_every, self._fault, self._prepare)
                start(self._follow_folder(watch))
            if self._seat is not None:
                await self._seat.serve(self._stack)
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        """Send what is queued, stay for repairs and leave, unless the block failed; then close."""
        try:
            if error is None:
                await self.drain()
                await self._until_nobody_asks(self._stay)
                self._driver.perform(self._machine.leave(time.monotonic()))
                await self.drain()
                await self._until_nobody_asks(min(self._stay, _FAREWELL))
        except BaseException as failed:
            await self._stack.__aexit__(type(failed), failed, failed.__traceback__)
            raise
        return await self._stack.__aexit__(kind, error, trace)

    async def publish(self, flow: str, payload: bytes) -> None:
        """Queue a message; waits while the queue is full. If cancelled, it may not be queued.

        A message of a flow outside the plan is dropped; `unplanned` counts these by flow. Raises
        `NotHeldError` if another publisher has the flow, or this one released it.
        """
        while True:
            self._driver.check()
            try:
                actions = self._machine.offer(flow, payload, time.monotonic())
                break
            except FullError:
                await self._driver.wait()
        if self._count is not None:
            self._count(flow)
        if actions:
            self._driver.perform(actions)
        self._since_turn += 1
        if self._since_turn >= _TURN:
            self._since_turn = 0
            await asyncio.sleep(0)

    async def publish_together(
        self, make: Callable[[], Iterable[tuple[str, bytes]]], fingerprint: int
    ) -> bool:
        """Queue messages that go by one plan, the one with this fingerprint.

        Waits while the queue is full, and calls `make` for flows and payloads when it is not. If
        another plan is in effect by then, nothing is made and the result is False.
        """
        while True:
            self._driver.check()
            if self._machine.fingerprint != fingerprint:
                return False
            if not self._machine.is_full:
                break
            await self._driver.wait()
        messages = make() if self._count is None else _count_each(make(), self._count)
        self._driver.perform(self._machine.offer_together(messages, time.monotonic()))
        self._since_turn += 1
        if self._since_turn >= _TURN:
            self._since_turn = 0
            await asyncio.sleep(0)
        return True

    def change_plan(self, plan: Plan) -> None:
        """Announce another plan, which takes effect after the grace time."""
        self._network.groups.check_room(plan)
        fingerprint = fingerprint_of(plan)
        if fingerprint != self._fingerprint:
            self._fingerprint = fingerprint
            self._driver.perform(self._machine.change_plan(plan, time.monotonic()))

    async def claim(self, flows: Iterable[str]) -> None:
        """Have flows from now on that were released by others, or that nobody has.

        Their numbers go on if a publisher that is heard says where; else they begin anew. Raises
        `NotHeldError` if another publisher has one of them; the others are claimed all the same.
        """
        wanted = tuple(flows)
        for flow in wanted:
            self._decided.pop(flow, None)
        self._driver.perform(self._machine.claim(wanted, time.monotonic()))
        undecided = {flow for flow in wanted if not self._machine.sends(flow)}
        while not undecided <= self._decided.keys():
            await self._driver.wait()
        for flow in wanted:
            holder = self._decided.get(flow)
            if holder is not None:
                raise NotHeldError(flow, holder)

    async def release(self, flows: Iterable[str]) -> None:
        """Let flows go, so that another publisher can claim them; waits until they are."""
        wanted = tuple(flows)
        self._releasing.update(flow for flow in wanted if self._machine.sends(flow))
        self._driver.perform(self._machine.release(wanted, time.monotonic()))
        while self._releasing.intersection(wanted):
            await self._driver.wait()

    async def drain(self) -> None:
        """Wait until the queue is empty. If cancelled, the rest stays in the queue."""
        self._driver.perform(self._machine.flush(time.monotonic()))
        while self._machine.waiting:
            await self._driver.wait()
        self._driver.check()

    @property
    def fingerprint(self) -> int:
        """The fingerprint of the plan that is in effect."""
        return self._machine.fingerprint

    @property
    def changing(self) -> bool:
        """Whether an announced plan has not taken effect yet."""
        return self._machine.changing

    @property
    def unplanned(self) -> dict[str, int]:
        """How many messages of each flow outside the plan were dropped."""
        return self._machine.unplanned

    @property
    def largest_message(self) -> int:
        """The longest payload that fits into a packet."""
        return self._machine.largest_message

    @property
    def name(self) -> str:
        """The publisher's name."""
        return self._name

    @property
    def address(self) -> str:
        """The address at which receivers reach the publisher."""
        return format_address(self._own.getsockname())

    @property
    def statistics(self) -> PublisherStatistics:
        """A snapshot of the counters."""
        return PublisherStatistics(
            self._machine.statistics,
            self._machine.version,
            self._machine.waiting,
            self._outlet.unsent,
            time.process_time(),
            None if self._seat is None else self._seat.statistics,
        )

    # --- the edge ---------------------------------------------------------------------------------

    async def _take_seat(self, control: MemberControl) -> None:
        """Join the control plane, and begin with its plan if it has one."""
        taken = control.seat_publisher(self._name, self._flows, self._on_fault)
        seat = await self._stack.enter_async_context(taken)
        self._network = join_network(self._given_network, seat.network)
        if seat.first is not None:
            self._network.groups.check_room(seat.first.plan)
            self._machine = self._make_machine(seat.first.plan)
            self._fingerprint = self._machine.fingerprint
        self._count = seat.count
        self._seat = SeatedPublisher(
            seat,
            change_plan=self.change_plan,
            fingerprint=lambda: self._machine.fingerprint,
            statistics=lambda: self.statistics,
            on_fault=self._on_fault,
        )

    def _open(self) -> None:
        """Open the sockets and start the machine."""
        interfaces = find_interfaces(self._network)
        self._own = open_own_socket(self._network, interfaces[0], self._network.groups.source)
        self._stack.callback(self._own.close)
        self._outlet = Outlet(self._network, interfaces, self._own)
        self._driver = DirectDriver(self._on_timer, self._performers(), clock=time.monotonic)
        self._stack.callback(self._driver.close)
        self._listen(interfaces)
        self._driver.perform(self._machine.start(time.monotonic()))
        loop = asyncio.get_running_loop()
        loop.add_reader(self._own, self._driver.guard, self._read)
        self._stack.callback(loop.remove_reader, self._own)

    def _performers(self) -> dict[type, Callable[[list[Any]], None]]:
        performers: dict[type, Callable[[list[Any]], None]] = {Send: self._outlet.send}
        return performers | dict.fromkeys((Claimed, Refused, Released), self._report)

    def _report(self, reports: list[ClaimReport]) -> None:
        for report in reports:
            if isinstance(report, Claimed):
                self._decided |= dict.fromkeys(report.flows)
            elif isinstance(report, Refused):
                self._decided |= dict.fromkeys(report.flows, report.holder)
            else:
                self._releasing.difference_update(report.flows)
            self._on_report(report)
        self._driver.notify()

    def _listen(self, interfaces: Sequence[Interface]) -> None:
        """Hear other publishers on the control group."""
        loop = asyncio.get_running_loop()

        def read_from(opened: socket.socket) -> None:
            loop.add_reader(opened, self._driver.guard, self._read_others, opened)

        memberships = Memberships(self._network, interfaces, read_from, loop.remove_reader)
        self._stack.callback(memberships.close)
        memberships.join(CONTROL_GROUP)
        for opened in memberships.sockets:
            self._stack.callback(loop.remove_reader, opened)

    def _read(self) -> None:
        """Take in what receivers ask."""
        for source, packet in self._read_packets(self._own):
            self._asked_at = time.monotonic()
            self._driver.perform(self._machine.on_message(source, packet, self._asked_at))

    def _read_others(self, opened: socket.socket) -> None:
        """Take in what other publishers say on the control group."""
        for source, packet in self._read_packets(opened):
            if packet[8:12] != self._number:
                self._driver.perform(self._machine.on_message(source, packet, time.monotonic()))

    def _read_packets(self, opened: socket.socket) -> Iterator[tuple[str, bytes]]:
        for _ in range(_READS):
            batch = self._reader.read(opened)
            if batch is None:
                return
            view = batch.buffer.data
            places = zip(batch.offsets.tolist(), batch.lengths.tolist(), strict=True)
            for at, (offset, length) in enumerate(places):
                yield format_address(batch.source_of(at)), bytes(view[offset : offset + length])
            if not batch.more:
                return

    def _on_timer(self, name: str, now: float) -> Iterable[SenderAction]:
        self._driver.notify()
        return self._machine.on_timer(name, now)

    def _fault(self, error: DistributaryError) -> None:
        self._on_fault(error)

    async def _follow_folder(self, watch: PlanWatch) -> None:
        async for plan in watch.plans():
            try:
                self.change_plan(plan)
            except DistributaryError as error:
                self._fault(error)

    async def _until_nobody_asks(self, stay: float) -> None:
        """Wait until nobody has asked for `stay` seconds, for 20 times as long at most."""
        self._asked_at = began = time.monotonic()
        last = began + 20 * stay
        while (left := min(self._asked_at + stay, last) - time.monotonic()) > 0:
            self._driver.check()
            await asyncio.sleep(left)


def _count_each(
    messages: Iterable[tuple[str, bytes]], count: Callable[[str], None]
) -> Iterator[tuple[str, bytes]]:
    for flow, payload in messages:
        count(flow)
        yield flow, payload
