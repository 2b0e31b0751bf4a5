"""Follows the versions of a control plane's plan.

A message to the subject of the key says that it may have changed; the key itself says what is in
force. It is looked at after each reconnection and every few seconds too, so that nothing depends on
a message that got lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

import msgspec
import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.kv import KeyValue

from distributary.control.errors import PlanGoneError
from distributary.control.messages import Decision
from distributary.control.nats.layout import FORCE, Layout
from distributary.control.nats.plan_store import PlanStore
from distributary.delivery.udp.control import PlanVersion
from distributary.errors import DistributaryError
from distributary.machines.nats.jetstream import AWAY
from distributary.machines.nats.options import pause_before

__all__ = ["VersionWatch"]

_LOOK_EVERY = 5.0  # seconds
_SOON, _QUICK_LOOKS = 0.05, 20  # seconds until a change that was announced should be stored
_TROUBLE = (*AWAY, nats.js.errors.APIError, nats.errors.Error)


class VersionWatch:
    """Finds the version in force, and those that follow."""

    def __init__(
        self, nc: Client, layout: Layout, on_fault: Callable[[DistributaryError], None]
    ) -> None:
        self._nc = nc
        js = nc.jetstream(timeout=2.0)
        bucket = layout.plan
        self._kv = KeyValue(bucket, f"KV_{bucket}", f"$KV.{bucket}.", js, direct=False)
        self._subject = f"$KV.{bucket}.{FORCE}"
        self._plans = PlanStore(nc, layout)
        self._on_fault = on_fault
        self._quick_looks = 0  # left, since a message told of a change
        self._seen: tuple[int, str] | None = None  # the version that was found last, and its plan
        self._changed = asyncio.Event()
        self._reported: tuple[int, str] | None = None  # the last fault

    async def open(self) -> None:
        """Begin to hear of changes."""
        await self._nc.subscribe(self._subject, cb=self._on_change)

    def wake(self) -> None:
        """Look at the key soon."""
        self._changed.set()

    async def find_first(self) -> PlanVersion | None:
        """The version in force now; None if there is none, or it cannot be fetched yet."""
        with suppress(*_TROUBLE):
            return await self._find()
        self.wake()
        return None

    async def versions(self) -> AsyncIterator[PlanVersion]:
        """The versions that come into force from now on, the last one where several do."""
        attempt = 0
        while True:
            await self._wait()
            try:
                found = await self._find()
            except _TROUBLE:
                await asyncio.sleep(pause_before(attempt))
                attempt += 1
                self._changed.set()
                continue
            attempt = 0
            if found is not None:
                yield found

    # --- inside -----------------------------------------------------------------------------------

    async def _wait(self) -> None:
        """Wait until there is a reason to look, or it is time to."""
        pause = _SOON if self._quick_looks else _LOOK_EVERY
        self._quick_looks = max(0, self._quick_looks - 1)
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._changed.wait()
        self._changed.clear()

    async def _find(self) -> PlanVersion | None:
        """Fetch the version in force if it is not the one seen last."""
        try:
            entry = await self._kv.get(FORCE)
            decision = msgspec.json.decode(entry.value or b"", type=Decision)
        except (nats.js.errors.KeyNotFoundError, msgspec.DecodeError):
            return None
        if (decision.version, decision.plan) == self._seen:
            return None
        try:
            plan = await self._plans.get(decision.plan)
        except PlanGoneError as error:  # replaced meanwhile, or damaged
            self._report_once(decision.version, error)
            return None
        self._seen, self._quick_looks = (decision.version, decision.plan), 0
        return PlanVersion(decision.version, plan)

    def _report_once(self, version: int, error: DistributaryError) -> None:
        fault = version, str(error)
        if fault != self._reported:
            self._reported = fault
            self._on_fault(error)

    async def _on_change(self, message: Msg) -> None:
        """Somebody decides; it may be refused, or stored a moment later."""
        self._quick_looks = _QUICK_LOOKS
        self.wake()
