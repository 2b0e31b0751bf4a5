"""Watches a plan folder for new plans."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path

from distributary.errors import DistributaryError
from distributary.files.plans import MANIFEST, read_plan
from distributary.files.versions import find_pointer, follow_pointer
from distributary.model import Plan

__all__ = ["PlanWatch", "load_plan", "stamp_of"]

Stamp = tuple[int, int, int]


def load_plan(plan: Plan | str | os.PathLike[str]) -> Plan:
    """Return a plan as it is, or read it from its folder."""
    return plan if isinstance(plan, Plan) else read_plan(plan).plan


class PlanWatch:
    """Polls a folder's `plan.json`, every `every` seconds and after `look_now`.

    A plan that cannot be read goes to `on_fault`, once, and the previous plan stays.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        every: float,
        on_fault: Callable[[DistributaryError], None],
        prepare: Callable[[Plan], object] = lambda plan: None,
    ) -> None:
        """`prepare` gets each new plan first, in a thread; an error of it is tried again."""
        self._folder = Path(folder)
        self._every = every
        self._on_fault = on_fault
        self._prepare = prepare
        self._followed: tuple[Stamp | None, Path] | None = None  # the pointer, and where it leads
        self._reported: tuple[Stamp, str] | None = None  # the last error of `prepare`
        self._seen = self._stamp()
        self._asked = asyncio.Event()

    def look_now(self) -> None:
        """Look now instead of at the next interval."""
        self._asked.set()

    async def plans(self) -> AsyncIterator[Plan]:
        """The plans that are put into the folder from now on. Cancelling leaves nothing behind."""
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
        """Read the plan in the folder if it is new and valid; else return None."""
        while (stamp := self._stamp()) is not None and stamp != self._seen:
            try:
                found = await asyncio.to_thread(read_plan, self._folder)
            except DistributaryError as error:
                if self._stamp() == stamp:  # else it was being replaced: read the new one
                    self._seen = stamp
                    self._on_fault(error)
                continue
            if not await self._is_prepared(found.plan, stamp):
                return None
            if self._stamp() == stamp:
                self._seen = stamp
                return found.plan
        return None

    async def _is_prepared(self, plan: Plan, stamp: Stamp) -> bool:
        """Prepare a plan; an error, such as of a folder that is not complete yet, is told once."""
        try:
            await asyncio.to_thread(self._prepare, plan)
        except DistributaryError as error:
            fault = stamp, str(error)
            if self._stamp() == stamp and self._reported != fault:
                self._reported = fault
                self._on_fault(error)
            return False
        return True

    def _stamp(self) -> Stamp | None:
        """The identity of `plan.json`, which changes when a plan is renamed or copied there.

        The folder may be in an output with versions. While the version that its pointer names is
        not complete, as in the middle of a copy, there is no plan.
        """
        found = stamp_of(self._folder / MANIFEST)
        pointer = None if found is not None else find_pointer(self._folder)
        if pointer is None:
            return found
        named = stamp_of(pointer)
        if self._followed is None or self._followed[0] != named:
            try:
                self._followed = named, follow_pointer(self._folder)
            except DistributaryError:
                return None
        return stamp_of(self._followed[1] / MANIFEST)


def stamp_of(path: str | os.PathLike[str]) -> Stamp | None:
    """The identity of a file, which changes when it is written or replaced; None: it is gone."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
