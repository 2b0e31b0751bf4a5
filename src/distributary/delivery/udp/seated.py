"""What publishers and receivers do that belong to a control plane: follow it, and report to it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace

import numpy as np

from distributary.delivery import fingerprint_of
from distributary.delivery.udp.control import OnFault, PlanVersion, PublisherSeat, ReceiverSeat
from distributary.delivery.udp.network import NetworkOptions
from distributary.delivery.udp.statistics import (
    PublisherStatistics,
    ReceiverStatistics,
    SeatStatistics,
)
from distributary.errors import DistributaryError
from distributary.machines.real import own_tasks
from distributary.model import Plan

__all__ = ["EMPTY_PLAN", "SeatedPublisher", "SeatedReceiver", "join_network"]

_LATER = 0.001  # seconds by which a timer may be early
_NONE = np.empty(0, np.int32)
# What a publisher goes by while its control plane has no plan yet: it carries nothing.
EMPTY_PLAN = Plan((), (), _NONE, _NONE, np.zeros(1, np.int32), _NONE, _NONE)


def join_network(own: NetworkOptions | None, given: NetworkOptions) -> NetworkOptions:
    """A member's own settings, with the groups and the reach that its control plane gives."""
    if own is None:
        return given
    interface = own.interface or given.interface
    return replace(own, groups=given.groups, ttl=given.ttl, interface=interface)


class SeatedPublisher:
    """A publisher's side of its seat."""

    def __init__(
        self,
        seat: PublisherSeat,
        *,
        change_plan: Callable[[Plan], None],
        fingerprint: Callable[[], int],
        statistics: Callable[[], PublisherStatistics],
        on_fault: OnFault,
    ) -> None:
        """`fingerprint` is that of the plan in effect; `change_plan` announces another."""
        self._seat = seat
        self._change_plan = change_plan
        self._fingerprint = fingerprint
        self._statistics = statistics
        self._on_fault = on_fault
        self._versions: dict[int, int] = {}  # by fingerprint: in effect, or about to be
        self._version = 0  # that the publisher goes by
        if seat.first is not None:
            self._note(seat.first)

    @property
    def version(self) -> int:
        """The version that messages are published by; 0 before there is one."""
        fingerprint = self._fingerprint()
        if fingerprint in self._versions:
            self._version = self._versions[fingerprint]
        return self._version

    @property
    def statistics(self) -> SeatStatistics:
        """A snapshot of how it goes."""
        return replace(self._seat.statistics, version=self.version)

    def report(self) -> None:
        """Report what was counted since the last time."""
        self._seat.report(self.version, self._statistics())

    async def serve(self, stack: AsyncExitStack) -> None:
        """Follow versions and report every second until the stack is closed, and once then."""
        stack.callback(self.report)
        start = await stack.enter_async_context(own_tasks())
        start(self._follow())
        start(_repeat_every_second(self.report))

    async def _follow(self) -> None:
        async for found in self._seat.versions():
            self._note(found)
            try:
                self._change_plan(found.plan)
            except DistributaryError as error:
                self._on_fault(error)

    def _note(self, found: PlanVersion) -> None:
        """Remember a version, with the one in effect until it takes over."""
        now = self._fingerprint()
        kept = {now: self._versions[now]} if now in self._versions else {}
        self._versions = {**kept, fingerprint_of(found.plan): found.version}


class SeatedReceiver:
    """A receiver's side of its seat."""

    def __init__(
        self,
        seat: ReceiverSeat,
        statistics: Callable[[], ReceiverStatistics],
        unserved: Callable[[], tuple[str, ...]],
    ) -> None:
        self._seat = seat
        self._statistics = statistics
        self._unserved = unserved

    @property
    def statistics(self) -> SeatStatistics:
        """A snapshot of how it goes."""
        return self._seat.statistics

    def report(self) -> None:
        """Report what happened since the last time."""
        self._seat.report(self._statistics(), self._unserved())

    async def serve(self, stack: AsyncExitStack) -> None:
        """Report every second until the stack is closed, and once then."""
        stack.callback(self.report)
        start = await stack.enter_async_context(own_tasks())
        start(_repeat_every_second(self.report))


async def _repeat_every_second(report: Callable[[], None]) -> None:
    """Call at each whole second of the clock, so that counts are those of a second."""
    while True:
        await asyncio.sleep(1.0 - time.time() % 1.0 + _LATER)
        report()
