"""Run a machine whose inputs cannot wait, such as packets in a buffer that is reused.

The rules are those of `driver.py`, without a queue, a store or anything to await.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from typing import Any

from distributary.machines.actions import SetTimer, Work
from distributary.machines.real.driver import PerformerTable
from distributary.machines.real.timers import Timers

__all__ = ["DirectDriver"]


class DirectDriver:
    """Performs actions at once, in the caller or in a callback of the event loop.

    A callback has no caller to raise to: its failure is kept, and raised by `check` and `wait`.
    """

    def __init__(
        self,
        on_timer: Callable[[str, float], Iterable[Any]],
        performers: Mapping[type, Callable[[list[Any]], None]],
        *,
        clock: Callable[[], float],
    ) -> None:
        self._on_timer = on_timer
        self._performers = PerformerTable(performers)
        self._clock = clock
        self._timers = Timers(clock, self._expire)
        self._changed = asyncio.Event()
        self._failure: Exception | None = None

    def perform(self, actions: Iterable[Any]) -> None:
        """Set timers, and perform the other actions in order."""
        others = []
        for action in actions:
            kind = type(action)
            if kind is SetTimer:
                self._timers.set(action.name, action.at)
            elif kind is not Work:
                others.append(action)
        for kind, some in groupby(others, type):
            self._performers[kind]([*some])

    def guard(self, callback: Callable[..., None], *arguments: Any) -> None:
        """Call a callback of the loop, and keep its failure."""
        try:
            callback(*arguments)
        except Exception as error:
            self._failure = self._failure or error
            self.notify()

    def check(self) -> None:
        """Raise the first failure of a callback."""
        if self._failure is not None:
            raise self._failure

    def notify(self) -> None:
        """Wake up the task that waits in `wait`."""
        self._changed.set()

    async def wait(self) -> None:
        """Wait for the next `notify`; raises the failure of a callback."""
        self.check()
        self._changed.clear()
        await self._changed.wait()

    def close(self) -> None:
        """Stop the timers."""
        self._timers.close()

    def _expire(self, name: str, number: int) -> None:
        if self._timers.take(name, number):
            self.guard(self._ring, name)

    def _ring(self, name: str) -> None:
        self.perform(self._on_timer(name, self._clock()))
