"""Stores a member's reports in the control plane's stream, in the background."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

import msgspec
import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.js.api import Header

from distributary.control.reporting import PublisherReporter, ReceiverReporter
from distributary.control.reports import PublisherReport, ReceiverReport
from distributary.machines.nats.jetstream import AWAY
from distributary.machines.nats.options import pause_before

__all__ = ["ReportSender"]

_ATTEMPT = 2.0  # seconds for the server to store a report
_TROUBLE = (*AWAY, nats.js.errors.APIError, nats.errors.Error)


class ReportSender:
    """Sends reports one after the other, each until it is stored; the reporter keeps the rest."""

    def __init__(
        self, nc: Client, subject: str, reporter: PublisherReporter | ReceiverReporter
    ) -> None:
        self.reported_at = 0.0  # when the last one was stored
        self.reports = 0  # that are stored
        self._js = nc.jetstream(timeout=_ATTEMPT)
        self._subject = subject
        self._reporter = reporter
        self._noted = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def wake(self) -> None:
        """Send what there is to report."""
        self._idle.clear()
        self._noted.set()

    async def run(self) -> None:
        """Send reports until cancelled."""
        while True:
            await self._noted.wait()
            self._noted.clear()
            while (report := self._reporter.next_report()) is not None:
                await self._store(report)
                self._reporter.confirm()
            self._idle.set()

    async def finish(self, within: float) -> None:
        """Wait until everything is stored, but not for longer than this."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._idle.wait()

    async def _store(self, report: PublisherReport | ReceiverReport) -> None:
        """Store a report, once as far as the server can tell."""
        data = msgspec.msgpack.encode(report)
        headers = {Header.MSG_ID.value: f"{report.incarnation}:{report.number}"}
        attempt = 0
        while True:
            try:
                await self._js.publish(self._subject, data, headers=dict(headers))
            except _TROUBLE:
                await asyncio.sleep(pause_before(attempt))
                attempt += 1
            else:
                self.reported_at = time.time()
                self.reports += 1
                return
