"""The seats of publishers and receivers in a control plane, and the connection under each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack

import msgspec
import nats.errors
import nats.js.errors
from nats.aio.client import Client

from distributary.control.errors import (
    ControlAwayError,
    ControlDeniedError,
    ControlLostError,
    CountsLostError,
)
from distributary.control.nats.kept_record import KeptRecord
from distributary.control.nats.layout import Layout, MemberRole
from distributary.control.nats.report_sender import ReportSender
from distributary.control.nats.version_watch import VersionWatch
from distributary.control.reporting import (
    PublisherFigures,
    PublisherReporter,
    ReceiverFigures,
    ReceiverReporter,
)
from distributary.control.reports import InterestRecord, PublisherRecord
from distributary.delivery.udp.control import OnFault, PlanVersion
from distributary.delivery.udp.network import NetworkOptions
from distributary.delivery.udp.statistics import (
    PublisherStatistics,
    ReceiverStatistics,
    SeatStatistics,
)
from distributary.machines.nats.jetstream import AWAY
from distributary.machines.real.tasks import own_tasks

__all__ = ["MemberLink", "PublisherPlace", "ReceiverPlace"]

_AGAIN = 0.1  # seconds between two attempts to claim the name
_FINISH = 2.0  # seconds at the end for the last report
_TROUBLE = (*AWAY, nats.js.errors.APIError, nats.errors.Error)


class MemberLink:
    """A member's connection, with what is kept and caught up with over it."""

    nc: Client
    network: NetworkOptions
    _record: KeptRecord
    _sender: ReportSender

    def __init__(
        self, layout: Layout, role: MemberRole, name: str, address: str, on_fault: OnFault
    ) -> None:
        self._layout = layout
        self._role: MemberRole = role
        self._name = name
        self._address = address
        self._on_fault = on_fault
        self._wakers: list[Callable[[], None]] = []
        self._is_in_place = False
        self._denied = asyncio.Event()

    async def open(
        self,
        make: Callable[[], InterestRecord | PublisherRecord],
        reporter: PublisherReporter | ReceiverReporter,
        watch: VersionWatch | None = None,
        *,
        within: float,
    ) -> None:
        """Take the name, and prepare to report; `make` makes the member's record.

        While the server is away it tries again, for so many seconds.
        """
        self._record = KeptRecord(
            self.nc, self._layout, self._role, self._name, make, self._on_fault
        )
        subject = self._layout.report(self._role, self._name)
        self._sender = ReportSender(self.nc, subject, reporter)
        self._wakers = [self._record.wake]
        await self._claim(within)
        await self._record.listen()
        if watch is not None:
            await watch.open()
            self._wakers.append(watch.wake)
        self._reporter = reporter

    async def _claim(self, within: float) -> None:
        """Take the name, unless the server does not let us write of it."""
        claiming = asyncio.ensure_future(self._claim_again(within))
        denied = asyncio.ensure_future(self._denied.wait())
        try:
            await asyncio.wait((claiming, denied), return_when=asyncio.FIRST_COMPLETED)
            if not claiming.done():
                raise ControlDeniedError(f"be {self._role} {self._name!r}")
            claiming.result()
        finally:
            claiming.cancel()
            denied.cancel()
            await asyncio.wait((claiming, denied))

    async def _claim_again(self, within: float) -> None:
        """Take the name; while the server is away, try again."""
        deadline = time.monotonic() + within
        while True:
            try:
                await self._record.claim()
            except _TROUBLE:
                if time.monotonic() >= deadline:
                    raise ControlAwayError(self._layout.prefix, within) from None
            else:
                return
            await asyncio.sleep(_AGAIN)

    async def serve(self, stack: AsyncExitStack) -> None:
        """Keep record and reports going until the stack is closed; then report what is left."""
        start = await stack.enter_async_context(own_tasks())
        start(self._record.keep())
        start(self._sender.run())
        stack.push_async_callback(self._finish)
        self._is_in_place = True

    def change_record(self) -> None:
        """Write the record soon, since it has changed."""
        self._record.wake()

    def send_reports(self) -> None:
        """Send what there is to report."""
        self._sender.wake()

    @property
    def statistics(self) -> SeatStatistics:
        """A snapshot of how it goes."""
        return SeatStatistics(
            self.nc.is_connected,
            self._sender.reported_at,
            self._reporter.kept,
            self._sender.reports,
        )

    @property
    def claims(self) -> tuple[int, str]:
        """How often others asked for the name that this member has, and who did so last."""
        return self._record.claims, self._record.claimed_by

    async def on_reconnect(self) -> None:
        """Catch up with what may have been missed."""
        for wake in self._wakers:
            wake()

    async def on_error(self, error: Exception) -> None:
        """Note that the server refuses what it was asked for."""
        if "permissions violation" in str(error).lower():
            self._denied.set()

    async def on_disconnect(self) -> None:
        """Say that the member goes on without its control plane."""
        if self._is_in_place:
            self._on_fault(ControlLostError(self._address))

    async def _finish(self) -> None:
        self._is_in_place = False
        await self._sender.finish(_FINISH)
        if self.nc.is_connected:
            await self._record.remove()
        if self._reporter.kept:
            self._on_fault(CountsLostError(self._reporter.kept))


class PublisherPlace:
    """A publisher's seat."""

    def __init__(
        self,
        network: NetworkOptions,
        first: PlanVersion | None,
        watch: VersionWatch,
        reporter: PublisherReporter,
        link: MemberLink,
    ) -> None:
        self.network = network
        self.first = first
        self.versions = watch.versions
        self.count = reporter.tally.count
        self._reporter = reporter
        self._link = link

    def report(self, version: int, statistics: PublisherStatistics) -> None:
        """End a second: report its counts, and the statistics."""
        machine = statistics.machine
        figures = PublisherFigures(
            time.monotonic(),
            version,
            machine.unplanned_messages,
            machine.messages,
            machine.packets,
            statistics.cpu_seconds,
            *self._link.claims,
        )
        self._reporter.note(round(time.time()) - 1, figures)  # of the second that has just ended
        self._link.send_reports()

    @property
    def statistics(self) -> SeatStatistics:
        """A snapshot of how reporting goes."""
        return self._link.statistics


class ReceiverPlace:
    """A receiver's seat; `record` is what the control plane has of it, or will."""

    def __init__(
        self, record: InterestRecord, reporter: ReceiverReporter, link: MemberLink
    ) -> None:
        self.network = link.network
        self.record = record
        self._reporter = reporter
        self._link = link
        self._wanted = set(record.flows)

    def subscribe(self, flows: Iterable[str]) -> None:
        """Write down flows that the receiver wants from now on too."""
        self.want(self._wanted.union(flows))

    def unsubscribe(self, flows: Iterable[str]) -> None:
        """Write down that the receiver wants these no more."""
        self.want(self._wanted.difference(flows))

    def want(self, flows: Iterable[str]) -> None:
        """Write down all that the receiver wants from now on; repeated until it is stored."""
        wanted = set(flows)
        if wanted != self._wanted:
            self._wanted = wanted
            self.record = msgspec.structs.replace(
                self.record, at=time.time(), flows=tuple(sorted(wanted))
            )
            self._link.change_record()

    def report(self, statistics: ReceiverStatistics, unserved: tuple[str, ...]) -> None:
        """Report the statistics."""
        machine = statistics.machine
        figures = ReceiverFigures(
            time.monotonic(),
            machine.messages,
            machine.unwanted_packets,
            machine.unwanted_messages,
            statistics.joined_groups,
            machine.gaps,
            machine.missing_messages,
            machine.naks,
            statistics.cpu_seconds,
            unserved,
            *self._link.claims,
        )
        self._reporter.note(figures)
        self._link.send_reports()

    @property
    def statistics(self) -> SeatStatistics:
        """A snapshot of how reporting goes."""
        return self._link.statistics
