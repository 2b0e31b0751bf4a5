"""A plan folder watched: each plan that is put there, once it can be read."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path

from distributary.errors import DistributaryError
from distributary.files.plans import MANIFEST, read_plan
from distributary.model import Plan

__all__ = ["PlanWatch", "load_plan"]

Stamp = tuple[int, int, int]


def load_plan(plan: Plan | str | os.PathLike[str]) -> Plan:
    """A plan, or the one in a folder."""
    return plan if isinstance(plan, Plan) else read_plan(plan).plan


class PlanWatch:
    """Looks at a folder's `plan.json` now and then, or when told to; a new one means a new plan.

    A plan that cannot be read is told to `on_fault`, once, and the one before stays.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        every: float,
        on_fault: Callable[[DistributaryError], None],
    ) -> None:
        self._folder = Path(folder)
        self._every = every
        self._on_fault = on_fault
        self._seen = self._stamp()
        self._asked = asyncio.Event()

    def look_now(self) -> None:
        """Look without waiting for the next time."""
        self._asked.set()

    async def plans(self) -> AsyncIterator[Plan]:
        """Plans that come after the watch was made. Cancelling it leaves nothing behind."""
        while True:
            await self.wait()
            plan = await self.look()
            if plan is not None:
                yield plan

    async def wait(self) -> None:
        """Wait until it is time to look."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._every):
                await self._asked.wait()
        self._asked.clear()

    async def look(self) -> Plan | None:
        """The plan in the folder, if there is a new one that can be read."""
        while (stamp := self._stamp()) is not None and stamp != self._seen:
            try:
                found = await asyncio.to_thread(read_plan, self._folder)
            except DistributaryError as error:
                if self._stamp() == stamp:  # else it was being replaced: read the new one
                    self._seen = stamp
                    self._on_fault(error)
                continue
            if self._stamp() == stamp:
                self._seen = stamp
                return found.plan
        return None

    def _stamp(self) -> Stamp | None:
        """What changes when the folder is replaced: a plan is renamed into place as a whole."""
        try:
            found = os.stat(self._folder / MANIFEST)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino, found.st_size
