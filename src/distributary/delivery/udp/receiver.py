"""The live receiver: `async for message in Receiver(interest=flows, name=...)`.

A thin shell around `delivery.ReceiverMachine`: it reads batches of packets, hands them over, and
performs the machine's actions. Messages wait in a bounded queue. When the queue is full the
receiver stops reading its sockets until half of it is free. That slows nobody else down: the kernel
drops packets, which are repaired later or reported as a gap. With `control=` what it wants is
written down in a control plane (`seated.py`), whose publishers then carry it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from types import TracebackType
from typing import Any, Self, get_args

import numpy as np

from distributary.delivery import (
    JoinGroup,
    LeaveGroup,
    Message,
    Messages,
    MulticastAction,
    NeedPlan,
    PacketBatch,
    ReceiverMachine,
    ReceiverParams,
    Report,
    Subscribed,
    Unserved,
)
from distributary.delivery.receiver import WAKE
from distributary.delivery.udp.control import InterestLog, MemberControl
from distributary.delivery.udp.datagrams import Address, Batch, make_reader
from distributary.delivery.udp.endpoints import Outlet, format_address
from distributary.delivery.udp.faults import Loss
from distributary.delivery.udp.interest import flows_of, read_flows
from distributary.delivery.udp.memberships import Memberships
from distributary.delivery.udp.network import NetworkOptions
from distributary.delivery.udp.plan_follower import PlanFollower
from distributary.delivery.udp.plan_watch import load_plan
from distributary.delivery.udp.reading import PacketSources, SocketRead, split_strangers
from distributary.delivery.udp.seated import SeatedReceiver, join_network
from distributary.delivery.udp.sockets import find_interfaces, open_own_socket, packets_overrun
from distributary.delivery.udp.statistics import ReceiverStatistics
from distributary.delivery.udp.subscription_log import SubscriptionLog
from distributary.errors import DistributaryError, InputError
from distributary.machines.actions import Send
from distributary.machines.real import DirectDriver, own_tasks
from distributary.model import Interest, Plan

__all__ = ["InterestSource", "Receiver"]

InterestSource = (
    Interest | Iterable[str] | os.PathLike[str] | Callable[[Plan], Iterable[str]] | None
)

_READS = 8  # batches of one socket before others have their turn
_MANY = 16  # packets in one read that count as load
_GATHER = 0.001  # seconds from one read to the next under load
_BESIDE = 1_024  # bytes, about, by which the kernel's buffer for a packet exceeds it
_TURN = 256  # messages after which others get their turn
_log = logging.getLogger(__name__)


class Receiver:
    """Receives wanted flows of a publisher: every message once, in its flow's order, or a report.

    The publisher says where its flows travel. `interest` is the wanted flows, or an `Interest` that
    has them under `name`, or the `Path` of such a table, which is watched, or None for all that
    each plan carries to `name`. The publisher tells what that is, unless `plan` says it: a plan or
    its folder, which is then watched. With a plan, `interest` may also be a function that chooses
    flows of each plan. `subscribe` and `unsubscribe` change the interest at any
    time. Reports (gaps, missing messages, a restarted sender, wanted flows that no plan carries, a
    missing plan) go to `on_report`; without one they are logged as warnings.
    With `on_messages` messages go there in batches, and cannot be read by iterating. The buffer of
    a batch is used again, so keep nothing of it.
    """

    def __init__(
        self,
        plan: Plan | str | os.PathLike[str] | None = None,
        interest: InterestSource = None,
        *,
        name: str,
        control: MemberControl | None = None,
        network: NetworkOptions | None = None,
        params: ReceiverParams | None = None,
        key: bytes | None = None,
        sender: str = "",
        incarnations: Mapping[str, int] | None = None,
        seed: int | None = None,
        queue_messages: int = 65_536,
        gather: float | None = None,
        loss: Loss | None = None,
        watch_every: float = 1.0,
        subscription_log: str | os.PathLike[str] | None = None,
        on_messages: Callable[[Messages], None] | None = None,
        on_report: Callable[[Report], None] | None = None,
        on_fault: Callable[[DistributaryError], None] = lambda error: None,
    ) -> None:
        """`sender` (`udp://HOST:PORT`) is asked before it is heard, and may announce by unicast.

        When one read returns many packets, the next one is a millisecond later, since it costs much
        less to take them together. `gather` sets that delay in seconds, after every read that
        returns any packet; 0 reads again at once. `subscription_log` is a folder or a JSON lines
        file that gets a line for each flow that the receiver itself subscribes to or leaves, for
        `pipeline stream` or `pipeline run` to plan by.
        """
        if plan is not None and control is not None:
            raise ValueError("a receiver goes by a plan or by a control plane: give one of them")
        self._given_network = network
        self._network = NetworkOptions() if network is None else network
        loaded = None if plan is None else load_plan(plan)
        choose = interest if callable(interest) else None
        flows: tuple[str, ...] | None = None
        if isinstance(interest, os.PathLike):
            flows = read_flows(interest, name)
        elif interest is not None and not callable(interest):
            flows = flows_of(interest, name)
        elif control is not None:
            flows = ()
        self._machine = ReceiverMachine(
            name,
            flows,
            rng=np.random.default_rng(seed),
            params=params,
            key=key,
            incarnations=incarnations,
        )
        self._machine.prepare()
        self._plans = PlanFollower(
            self._machine,
            None if isinstance(plan, Plan) else plan,
            interest if isinstance(interest, os.PathLike) else None,
            every=watch_every,
            check=lambda plan: self._network.groups.check_room(plan),
            perform=self._perform,
            want=self._want_only,
            choose=choose,
            on_report=_warn if on_report is None else on_report,
            on_fault=on_fault,
        )
        self._logs: list[InterestLog] = []  # that hear what the receiver wants
        if subscription_log is not None:
            self._logs.append(SubscriptionLog(subscription_log, name, on_fault))
        self._control = control
        self._seat: SeatedReceiver | None = None
        self._named = flows or ()  # wanted at the start, and not because a plan brings them
        self._first_actions: list[MulticastAction] = []  # before the receiver is open
        self._sender = sender
        self._most = queue_messages
        self._least = _MANY if gather is None else 1
        self._gather = _GATHER if gather is None else gather
        self._loss = Loss(0) if loss is None else loss
        self._on_messages = self._enqueue if on_messages is None else on_messages
        self._on_report = _warn if on_report is None else on_report
        self._on_fault = on_fault
        self._reader = make_reader(
            self._network.batch, self._network.largest_packet, plain=self._network.plain
        )
        self._queue: deque[Message] = deque()
        self._truncated = self._stamped = self._since_turn = self._room = 0
        self._open = self._paused = self._timer_ran = False
        self._stack = AsyncExitStack()
        self._own: socket.socket
        self._memberships: Memberships
        self._outlet: Outlet
        self._driver: DirectDriver  # notifies when messages came, or flows are subscribed
        self._loop: asyncio.AbstractEventLoop
        if loaded is not None:
            self._plans.learn_plan(loaded)

    # --- what the caller does ---------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Open sockets, join the control group, and ask for the plan."""
        self._loop = asyncio.get_running_loop()
        try:
            if self._control is not None:
                await self._take_seat(self._control)
            self._open_sockets()
            start = await self._stack.enter_async_context(own_tasks())
            for task in self._plans.tasks():
                start(task)
            if self._seat is not None:
                await self._seat.serve(self._stack)
            self._read_from(self._own)
            self._driver.perform(self._first_actions)
            self._driver.perform(self._machine.start(time.monotonic()))
            for log in self._logs:
                log.subscribe(self._named)
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
        """Leave all groups and close."""
        return await self._stack.__aexit__(kind, error, trace)

    def __aiter__(self) -> AsyncIterator[Message]:
        """Iterate over messages without end; opens and closes the receiver outside `async with`."""
        return self._messages()

    async def receive(self) -> Message:
        """Wait for the next message. If cancelled, it takes none."""
        self._since_turn += 1
        if self._since_turn >= _TURN:
            self._since_turn = 0
            await asyncio.sleep(0)  # before a message is taken: its flow may be left meanwhile
        while not self._queue:
            await self._driver.wait()
        message = self._queue.popleft()
        if self._paused and 2 * len(self._queue) <= self._most:
            self.resume()
        return message

    async def wait(self) -> None:
        """Wait until cancelled, or until the receiver fails; for use with `on_messages`."""
        while True:
            await self._driver.wait()

    def pause(self) -> None:
        """Stop reading the sockets; the receiver gives nothing up until `resume`.

        The system keeps what it has room for and drops the rest.
        """
        self._paused = True
        for source in (self._own, *self._memberships.sockets):
            self._loop.remove_reader(source)

    def resume(self) -> None:
        """Read the sockets again after `pause`."""
        if not self._open:
            return
        self._paused = False
        for source in (self._own, *self._memberships.sockets):
            self._read_from(source)
        if self._timer_ran:
            self._timer_ran = False
            self._driver.guard(self._ring)

    async def subscribe(self, flows: Iterable[str]) -> tuple[str, ...]:
        """Want these flows too. Returns those that no plan carries yet, once the others are served.

        Every message of a served flow that is published after the return is delivered or reported
        as missing. The others are served as soon as a plan carries them; a report says so. Waits
        until the sender is heard. If cancelled, the flows stay subscribed.
        """
        wanted = set(flows)
        self.want_also(wanted)
        while self._machine.awaits(wanted):
            await self._driver.wait()
        return tuple(flow for flow in self._machine.unserved if flow in wanted)

    def want_also(self, flows: Iterable[str]) -> None:
        """Subscribe without waiting; a `Subscribed` report says from when on nothing is lost."""
        wanted = set(flows)
        self._driver.perform(self._machine.subscribe(wanted, time.monotonic()))
        for log in self._logs:
            log.subscribe(wanted)

    def unsubscribe(self, flows: Iterable[str]) -> None:
        """Stop wanting these flows; nothing of them is given out from now on."""
        unwanted = set(flows)
        self._driver.perform(self._machine.unsubscribe(unwanted, time.monotonic()))
        for log in self._logs:
            log.unsubscribe(unwanted)
        if any(message.flow in unwanted for message in self._queue):
            self._queue = deque(found for found in self._queue if found.flow not in unwanted)
            if self._paused and 2 * len(self._queue) <= self._most:
                self.resume()

    def learn_plan(self, plan: Plan) -> None:
        """Take a plan, before or after the sender announces it."""
        self._plans.learn_plan(plan)

    def look_for_plan(self) -> None:
        """Look into the plan folder now, instead of at the next interval."""
        self._plans.look_now()

    @property
    def name(self) -> str:
        """The receiver's name in plans."""
        return self._machine.name

    @property
    def address(self) -> str:
        """The receiver's unicast address."""
        return format_address(self._own.getsockname())

    @property
    def flows(self) -> tuple[str, ...]:
        """The wanted flows."""
        return self._machine.flows

    @property
    def unserved(self) -> tuple[str, ...]:
        """Wanted flows that the plan does not carry."""
        return self._machine.unserved

    @property
    def incarnations(self) -> dict[str, int]:
        """The publishers' incarnations, by name, for the next receiver to refuse replayed packets.

        Give them to it at its start.
        """
        return self._machine.incarnations

    @property
    def statistics(self) -> ReceiverStatistics:
        """A snapshot of the counters."""
        sockets = [self._own, *self._memberships.sockets]
        return ReceiverStatistics(
            machine=self._machine.statistics,
            lines=self._machine.line_statistics(time.monotonic())
            if self._network.groups.pairs
            else (),
            publishers=self._machine.publisher_statistics(),
            latencies=self._machine.latency_statistics(time.monotonic()),
            kernel_stamps=self._stamped,
            plan_version=self._machine.version,
            joined_groups=self._memberships.count,
            waiting=len(self._queue),
            truncated=self._truncated,
            overrun=sum(packets_overrun(each) for each in sockets if each.fileno() >= 0),
            lost_on_purpose=self._loss.lost,
            unsent=self._outlet.unsent,
            unserved_flows=len(self._machine.unserved),
            followed_flows=len(self._machine.following),
            cpu_seconds=time.process_time(),
            control=None if self._seat is None else self._seat.statistics,
        )

    async def _messages(self) -> AsyncIterator[Message]:
        if self._open:
            while True:
                yield await self.receive()
        async with self:
            while True:
                yield await self.receive()

    # --- the edge ---------------------------------------------------------------------------------

    async def _take_seat(self, control: MemberControl) -> None:
        """Join the control plane, which writes down what is wanted from now on."""
        flows = self._machine.flows
        taken = control.seat_receiver(self.name, flows, self._on_fault)
        seat = await self._stack.enter_async_context(taken)
        self._network = join_network(self._given_network, seat.network)
        self._logs.append(seat)
        self._seat = SeatedReceiver(
            seat, statistics=lambda: self.statistics, unserved=lambda: self._machine.unserved
        )

    def _open_sockets(self) -> None:
        interfaces = find_interfaces(self._network)
        self._own = open_own_socket(self._network, interfaces[0])
        self._stack.callback(self._own.close)
        self._room = self._own.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        self._outlet = Outlet(self._network, interfaces, self._own, self._sender)
        self._memberships = Memberships(
            self._network, interfaces, self._read_from, self._loop.remove_reader
        )
        self._driver = DirectDriver(self._on_timer, self._performers(), clock=time.monotonic)
        self._stack.callback(self._close)
        self._open = True

    def _performers(self) -> dict[type, Callable[[list[Any]], None]]:
        alone: dict[type, Callable[[Any], None]] = {
            **dict.fromkeys(get_args(Report), self._on_report),
            Messages: self._on_messages,
            JoinGroup: self._join,
            LeaveGroup: lambda action: self._memberships.leave(action.group),
            NeedPlan: self._plans.look_for,
            Subscribed: self._decide,
            Unserved: self._decide,
        }
        return {Send: self._outlet.send} | {
            kind: partial(_perform_each, perform) for kind, perform in alone.items()
        }

    def _join(self, action: JoinGroup) -> None:
        """Join a group, unless the addresses here are too few for the sender's groups."""
        try:
            self._memberships.join(action.group)
        except InputError as error:
            self._on_fault(error)

    def _perform(self, actions: list[MulticastAction]) -> None:
        """Perform the machine's actions, or keep them until the receiver is open."""
        if self._open:
            self._driver.perform(actions)
        else:
            self._first_actions += actions

    def _want_only(self, flows: tuple[str, ...]) -> None:
        """Want the flows that the table of interest has now."""
        self._perform(self._machine.want(flows, time.monotonic()))
        for log in self._logs:
            log.want(flows)

    def _decide(self, report: Subscribed | Unserved) -> None:
        """Report whether subscribed flows are served, and let `subscribe` go on."""
        self._on_report(report)
        self._driver.notify()

    def _enqueue(self, messages: Messages) -> None:
        self._queue.extend(messages)
        self._driver.notify()
        if len(self._queue) >= self._most and not self._paused:
            self.pause()

    def _on_readable(self, source: socket.socket) -> None:
        if self._should_gather(self._read(source)):
            self._loop.remove_reader(source)
            self._look_again_later(source)

    def _look_again(self, source: socket.socket) -> None:
        if source.fileno() < 0 or self._paused:
            return
        if self._should_gather(self._read(source)):
            self._look_again_later(source)
        else:
            self._read_from(source)

    def _look_again_later(self, source: socket.socket) -> None:
        self._loop.call_later(self._gather, self._driver.guard, self._look_again, source)

    def _should_gather(self, look: SocketRead) -> bool:
        """Whether to let packets gather: only while the buffer has room for as many again."""
        if look.packets < self._least or not self._gather or self._paused:
            return False
        return 4 * (look.bytes + _BESIDE * look.packets) <= self._room

    def _read(self, source: socket.socket) -> SocketRead:
        """Read a socket in a few batches."""
        packets = size = 0
        for _ in range(_READS):
            batch = None if self._paused else self._reader.read(source)
            if batch is None:
                break
            self._take(batch, source)
            packets, size = packets + len(batch.offsets), size + batch.size
            if not batch.more:
                break
        return SocketRead(packets, size)

    def _take(self, batch: Batch, source: socket.socket) -> None:
        self._truncated += batch.truncated
        self._stamped += batch.stamped
        line = self._memberships.line_of(source)
        batch = self._loss.thin(batch, line)
        now = time.monotonic()
        alone = source is self._own
        if alone:
            batch = self._take_strangers(batch, now)
        control = alone or self._memberships.is_control(source)
        packets = PacketBatch(batch.buffer, batch.offsets, batch.lengths)
        sources = PacketSources(batch)
        self._driver.perform(
            self._machine.on_packets(
                packets, now, sources, control=control, line=line, stamps=batch.stamps
            )
        )

    def _take_strangers(self, batch: Batch, now: float) -> Batch:
        """Take unicast packets that are not the sender's out of a batch; returns the rest."""
        strangers, rest = split_strangers(batch, self._is_sender)
        for packet, source in strangers:
            self._driver.perform(self._machine.on_stranger(packet, source, now))
        return rest

    def _is_sender(self, address: Address) -> bool:
        source = format_address(address)
        return self._machine.is_sender(source) or source == self._sender

    def _on_timer(self, name: str, now: float) -> Iterable[MulticastAction]:
        if self._paused:  # what it would give up may wait in the sockets: run it after `resume`
            self._timer_ran = True
            return ()
        # The missing packets may have arrived already: read before asking for them.
        for source in (*self._memberships.sockets, self._own):
            self._read(source)
        return self._machine.on_timer(name, time.monotonic())

    def _ring(self) -> None:
        self._driver.perform(self._on_timer(WAKE, time.monotonic()))

    def _read_from(self, source: socket.socket) -> None:
        if source.fileno() >= 0 and not self._paused:
            self._loop.add_reader(source, self._driver.guard, self._on_readable, source)

    def _close(self) -> None:
        self._open = False
        self._driver.close()
        for source in (self._own, *self._memberships.sockets):
            self._loop.remove_reader(source)
        self._memberships.close()


def _perform_each(perform: Callable[[Any], None], actions: list[Any]) -> None:
    for action in actions:
        perform(action)


def _warn(report: Report) -> None:
    _log.warning("%s", report)
