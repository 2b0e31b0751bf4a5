"""The live receiver: `async for message in Receiver(plan, interest, name=...)`.

A thin shell around `delivery.ReceiverMachine`: it reads batches of packets, hands them over, and
performs the machine's actions. Messages wait in a bounded queue. When the queue is full the
receiver stops reading its sockets until half of it is free. That slows nobody else down: the kernel
drops packets, which are repaired later or reported as a gap.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import NamedTuple, Self

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
)
from distributary.delivery.udp.datagrams import Address, Batch, keep_datagrams, make_reader
from distributary.delivery.udp.endpoints import Outlet, Wake, format_address
from distributary.delivery.udp.faults import Loss
from distributary.delivery.udp.interest import flows_of, read_flows
from distributary.delivery.udp.memberships import Memberships
from distributary.delivery.udp.network import NetworkOptions
from distributary.delivery.udp.plan_watch import PlanWatch, load_plan
from distributary.delivery.udp.sockets import find_interface, open_own_socket, packets_overrun
from distributary.delivery.udp.statistics import ReceiverStatistics
from distributary.errors import DistributaryError
from distributary.machines.actions import Send, SetTimer
from distributary.machines.real.tasks import own_tasks
from distributary.model import Interest, Plan

__all__ = ["Receiver"]

_READS = 8  # batches of one socket before others have their turn
_MANY = 16  # packets in one read that count as load
_GATHER = 0.001  # seconds from one read to the next under load
_BESIDE = 1_024  # bytes, about, by which the kernel's buffer for a packet exceeds it
_MOST_NEEDS = 16  # plans that are looked for at a time
_TURN = 256  # messages after which others get their turn
_log = logging.getLogger(__name__)


class Receiver:
    """Receives wanted flows by a plan: every message once, in its flow's order, or a report.

    `plan` is a plan or its folder, which is then watched. `interest` is the wanted flows, or an
    `Interest` that has them under `name`, or the `Path` of such a table, which is read again with
    each new plan in the folder, or None for all that each plan carries to `name`.
    Reports (gaps, missing messages, a restarted sender, wanted flows that no plan carries, a
    missing plan) go to `on_report`; without one they are logged as warnings.
    With `on_messages` messages go there in batches, and cannot be read by iterating. The buffer of
    a batch is used again, so keep nothing of it.
    """

    def __init__(
        self,
        plan: Plan | str | os.PathLike[str],
        interest: Interest | Iterable[str] | os.PathLike[str] | None = None,
        *,
        name: str,
        network: NetworkOptions | None = None,
        params: ReceiverParams | None = None,
        key: bytes | None = None,
        sender: str = "",
        incarnation: int = 0,
        seed: int | None = None,
        queue_messages: int = 65_536,
        gather: float | None = None,
        loss: Loss | None = None,
        watch_every: float = 1.0,
        on_messages: Callable[[Messages], None] | None = None,
        on_report: Callable[[Report], None] | None = None,
        on_fault: Callable[[DistributaryError], None] = lambda error: None,
    ) -> None:
        """`sender` (`udp://HOST:PORT`) is asked before it is heard, and may announce by unicast.

        When one read returns many packets, the next one is a millisecond later, since it costs much
        less to take them together. `gather` sets that delay in seconds, after every read that
        returns any packet; 0 reads again at once.
        """
        self._network = NetworkOptions() if network is None else network
        self._folder = None if isinstance(plan, Plan) else plan
        loaded = load_plan(plan)
        self._network.groups.check_room(loaded)
        self._interest = interest if isinstance(interest, os.PathLike) else None
        if isinstance(interest, os.PathLike):
            flows: tuple[str, ...] | None = read_flows(interest, name)
        else:
            flows = None if interest is None else flows_of(interest, name)
        self._machine = ReceiverMachine(
            name,
            flows,
            rng=np.random.default_rng(seed),
            params=params,
            key=key,
            incarnation=incarnation,
        )
        self._machine.prepare()
        self._first_actions = self._machine.learn_plan(loaded, time.monotonic())
        self._needs: dict[int, NeedPlan] = {}  # plans to look for, by fingerprint
        self._reported_needs: set[int] = set()
        self._sender = sender
        self._most = queue_messages
        self._least = _MANY if gather is None else 1
        self._gather = _GATHER if gather is None else gather
        self._loss = Loss(0) if loss is None else loss
        self._watch_every = watch_every
        self._on_messages = self._enqueue if on_messages is None else on_messages
        self._on_report = _warn if on_report is None else on_report
        self._on_fault = on_fault
        self._reader = make_reader(
            self._network.batch, self._network.largest_packet, plain=self._network.plain
        )
        self._queue: deque[Message] = deque()
        self._truncated = self._since_turn = self._room = 0
        self._failure: BaseException | None = None
        self._open = self._paused = self._timer_ran = False
        self._stack = AsyncExitStack()
        self._watch: PlanWatch | None = None
        self._own: socket.socket
        self._memberships: Memberships
        self._outlet: Outlet
        self._wake: Wake
        self._came: asyncio.Event
        self._loop: asyncio.AbstractEventLoop

    # --- what the caller does ---------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Open sockets, join the control group, and ask for the plan."""
        self._loop = asyncio.get_running_loop()
        self._came = asyncio.Event()
        interface = find_interface(self._network)
        self._own = open_own_socket(self._network, interface)
        self._stack.callback(self._own.close)
        self._room = self._own.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        self._outlet = Outlet(self._network, interface, self._own, self._sender)
        self._memberships = Memberships(
            self._network, interface, self._read_from, self._loop.remove_reader
        )
        self._stack.callback(self._close)
        self._wake = Wake(self._on_timer)
        self._open = True
        try:
            if self._folder is not None:
                self._watch = PlanWatch(self._folder, self._watch_every, self._on_fault)
                start = await self._stack.enter_async_context(own_tasks())
                start(self._follow_folder(self._watch))
            self._read_from(self._own)
            self._perform(self._first_actions)
            self._perform(self._machine.start(time.monotonic()))
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
        while not self._queue:
            self._check()
            self._came.clear()
            await self._came.wait()
        message = self._queue.popleft()
        if self._paused and 2 * len(self._queue) <= self._most:
            self.resume()
        self._since_turn += 1
        if self._since_turn >= _TURN:
            self._since_turn = 0
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                self._queue.appendleft(message)
                raise
        return message

    async def wait(self) -> None:
        """Wait until cancelled, or until the receiver fails; for use with `on_messages`."""
        while True:
            self._check()
            self._came.clear()
            await self._came.wait()

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
            self._on_timer()

    def learn_plan(self, plan: Plan) -> None:
        """Take a plan, before or after the sender announces it."""
        self._network.groups.check_room(plan)
        self._perform(self._machine.learn_plan(plan, time.monotonic()))

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
    def incarnation(self) -> int:
        """The sender's incarnation. Give it to the next receiver to refuse replayed packets."""
        return self._machine.incarnation

    @property
    def statistics(self) -> ReceiverStatistics:
        """A snapshot of the counters."""
        sockets = [self._own, *self._memberships.sockets]
        return ReceiverStatistics(
            machine=self._machine.statistics,
            plan_version=max(self._machine.versions, default=0),
            joined_groups=self._memberships.count,
            waiting=len(self._queue),
            truncated=self._truncated,
            overrun=sum(packets_overrun(each) for each in sockets if each.fileno() >= 0),
            lost_on_purpose=self._loss.lost,
            unsent=self._outlet.unsent,
            unserved_flows=len(self._machine.unserved),
            cpu_seconds=time.process_time(),
        )

    async def _messages(self) -> AsyncIterator[Message]:
        if self._open:
            while True:
                yield await self.receive()
        async with self:
            while True:
                yield await self.receive()

    # --- the edge ---------------------------------------------------------------------------------

    def _perform(self, actions: Sequence[MulticastAction]) -> None:
        """Perform the machine's actions, strictly in order."""
        for action in actions:
            match action:
                case Messages():
                    self._on_messages(action)
                case Send():
                    self._outlet.send([action])
                case SetTimer(_, at):
                    self._wake.set(at)
                case JoinGroup(group):
                    self._memberships.join(group)
                case LeaveGroup(group):
                    self._memberships.leave(group)
                case NeedPlan():
                    self._look_for(action)
                case _:
                    self._on_report(action)

    def _enqueue(self, messages: Messages) -> None:
        self._queue.extend(messages)
        self._came.set()
        if len(self._queue) >= self._most and not self._paused:
            self.pause()

    def _on_readable(self, source: socket.socket) -> None:
        try:
            if self._should_gather(self._read(source)):
                self._loop.remove_reader(source)
                self._loop.call_later(self._gather, self._look_again, source)
        except (
            Exception
        ) as error:  # a callback has no caller: the next call of the receiver raises it
            self._fail(error)

    def _look_again(self, source: socket.socket) -> None:
        if source.fileno() < 0 or self._paused:
            return
        try:
            if self._should_gather(self._read(source)):
                self._loop.call_later(self._gather, self._look_again, source)
            else:
                self._read_from(source)
        except Exception as error:
            self._fail(error)

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
        batch = self._loss.thin(batch)
        now = time.monotonic()
        alone = source is self._own
        if alone:
            batch = self._take_strangers(batch, now)
        control = alone or self._memberships.is_control(source)
        packets = PacketBatch(batch.buffer, batch.offsets, batch.lengths)
        sources = _PacketSources(batch)
        self._perform(self._machine.on_packets(packets, now, sources, control=control))

    def _take_strangers(self, batch: Batch, now: float) -> Batch:
        """Take unicast packets that are not the sender's out of a batch; returns the rest."""
        n = len(batch.offsets)
        if not n or (batch.one_source() and self._is_sender(batch.source_of(0))):
            return batch
        known = np.array([self._is_sender(batch.source_of(at)) for at in range(n)], np.bool_)
        for at in np.flatnonzero(~known).tolist():
            offset, length = int(batch.offsets[at]), int(batch.lengths[at])
            packet = batch.buffer[offset : offset + length].tobytes()
            source = format_address(batch.source_of(at))
            self._perform(self._machine.on_stranger(packet, source, now))
        return keep_datagrams(batch, np.flatnonzero(known))

    def _is_sender(self, address: Address) -> bool:
        source = format_address(address)
        return self._machine.is_sender(source) or source == self._sender

    def _on_timer(self) -> None:
        if self._paused:  # what it would give up may wait in the sockets: run it after `resume`
            self._timer_ran = True
            return
        try:
            # The missing packets may have arrived already: read before asking for them.
            for source in (*self._memberships.sockets, self._own):
                self._read(source)
            self._perform(self._machine.on_timer("wake", time.monotonic()))
        except Exception as error:
            self._fail(error)

    def _read_from(self, source: socket.socket) -> None:
        if source.fileno() >= 0 and not self._paused:
            self._loop.add_reader(source, self._on_readable, source)

    def _close(self) -> None:
        self._open = False
        self._wake.stop()
        for source in (self._own, *self._memberships.sockets):
            self._loop.remove_reader(source)
        self._memberships.close()

    def _fail(self, error: Exception) -> None:
        self._failure = self._failure or error
        self._came.set()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    # --- plans ------------------------------------------------------------------------------------

    def _look_for(self, need: NeedPlan) -> None:
        """Look for a plan in the folder; report once if it is not there."""
        if len(self._needs) < _MOST_NEEDS:
            self._needs[need.fingerprint] = need
        if self._watch is not None:
            self._watch.look_now()
        else:
            self._report_needs()

    def _report_needs(self) -> None:
        """Report plans of the sender that the receiver still lacks."""
        needs, self._needs = self._needs, {}
        unknown = {found for found in needs if not self._machine.knows(found)}
        for fingerprint in unknown - self._reported_needs:
            self._on_report(needs[fingerprint])
        if needs:
            self._reported_needs = unknown

    async def _follow_folder(self, watch: PlanWatch) -> None:
        while True:
            await watch.wait()
            try:
                plan = await watch.look()
                if plan is not None:
                    await self._read_interest()
                    self.learn_plan(plan)
            except DistributaryError as error:
                self._on_fault(error)
            self._report_needs()

    async def _read_interest(self) -> None:
        """Read the table of interest again, since the new plan was made from it."""
        if self._interest is None:
            return
        try:
            wanted = await asyncio.to_thread(read_flows, self._interest, self.name)
        except DistributaryError as error:
            self._on_fault(error)
        else:
            self._perform(self._machine.want(wanted))


class SocketRead(NamedTuple):
    """How much one read of a socket returned."""

    packets: int
    bytes: int


class _PacketSources(Sequence[str]):
    """The source addresses of packets, formatted only when needed."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch

    def __len__(self) -> int:
        return len(self._batch.offsets)

    def __getitem__(self, at: int) -> str:  # type: ignore[override]
        return format_address(self._batch.source_of(at))


def _warn(report: Report) -> None:
    _log.warning("%s", report)
