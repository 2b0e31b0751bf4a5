"""Run a machine in real time: feed it inputs with the time, and perform its actions in order.

A shell gives a driver a table of performers, one for each type of action. A performer gets actions
of its type that follow one another as one list, so that it can send or write them together. The
driver keeps the machine's timers itself and ignores `Work`. The failure of a performer, or of the
machine, is the failure of the run.

This driver is for shells whose inputs can wait in a queue, with a store that is written before
anything is sent. `direct.py` is for those whose inputs cannot.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from itertools import groupby
from typing import Any, Generic, NamedTuple, Self, TypeVar

from distributary.machines.actions import Append, Save, SetTimer, Work
from distributary.machines.real.tasks import own_tasks
from distributary.machines.real.timers import Timers

__all__ = ["Driver", "Input", "OnTimer", "PerformerTable"]

T = TypeVar("T")
# Calls the machine with the time and returns its actions.
Input = Callable[[float], Iterable[Any]]
OnTimer = Callable[[str, float], Iterable[Any]]
Performer = Callable[[list[Any]], Awaitable[None] | None]


class PerformerTable(dict[type, Any]):
    """Performers by the type of action; an action without one is a mistake of the shell."""

    def __missing__(self, kind: type) -> Any:
        raise TypeError(f"no performer for {kind.__name__}; give the driver one")


def _refuse(stored: list[Any]) -> None:
    raise TypeError(f"no store for {type(stored[0]).__name__}; give the driver one")


class _Own(NamedTuple):
    """An input that is no message."""

    call: Input


class Driver(Generic[T]):
    """Takes inputs in the order they come, messages and timers alike, some at a time.

    `take` hands a message, as the shell got it, to the machine, and `on_timer` a timer.

    `async with driver:` owns the timers and the tasks of the block. A turn calls the machine with
    up to `batch` inputs, hands all that they save and append to `store` at once, and then performs
    the other actions. So whatever is sent follows from what is stored, and an answer that came in
    time is heard before the time-out of its question.

    A performer may wait, and the machine waits with it. It must not wait for a peer without a
    limit, since the peer may be waiting for us.
    """

    def __init__(
        self,
        take: Callable[[T, float], Iterable[Any]],
        on_timer: OnTimer,
        performers: Mapping[type, Performer],
        *,
        clock: Callable[[], float],
        store: Performer = _refuse,
        capacity: int = 10_000,
        batch: int = 512,
    ) -> None:
        self._take = take
        self._on_timer = on_timer
        self._performers = PerformerTable(performers)
        self._clock = clock
        self._store = store
        self._capacity = capacity
        self._batch = batch
        self._inputs: deque[T | _Own] = deque()
        self._timers = Timers(clock, self._expire)
        self._changed = asyncio.Event()  # there is an input, or the driver was stopped
        self._room = asyncio.Event()
        self._stopped = False
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self._stack.callback(self._timers.close)
        self._start = await self._stack.enter_async_context(own_tasks())
        return self

    async def __aexit__(self, *raised: Any) -> bool | None:
        """Cancel the tasks, then stop the timers; inputs that wait are dropped."""
        return await self._stack.__aexit__(*raised)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a task that ends with the block; if it fails, the block does."""
        self._start(work)

    def call(self, given: Input) -> None:
        """Add an input of the shell's own, such as the machine's start; there is always room."""
        self._inputs.append(_Own(given))
        self._changed.set()

    async def put(self, message: T) -> None:
        """Add a message; waits while the queue is full. If cancelled, it is not added."""
        while len(self._inputs) >= self._capacity:
            self._room.clear()
            await self._room.wait()
        self._inputs.append(message)
        self._changed.set()

    def stop(self) -> None:
        """End after the present turn."""
        self._stopped = True
        self._changed.set()

    async def run(self) -> None:
        """Take turns until `stop`. If cancelled, actions of the present turn may be undone."""
        while await self.wait():
            await self.turn()

    async def wait(self) -> bool:
        """Wait until there is an input; False once the driver was stopped."""
        if self._inputs:
            await asyncio.sleep(0)  # a queue that is never empty must not keep others waiting
        while not (self._inputs or self._stopped):
            self._changed.clear()
            await self._changed.wait()
        return not self._stopped

    async def turn(self) -> None:
        """Call the machine with the inputs that wait, store what it saves, perform the rest."""
        now = self._clock()
        stored: list[Any] = []
        others: list[Any] = []
        for _ in range(min(len(self._inputs), self._batch)):
            given = self._inputs.popleft()
            for action in given.call(now) if isinstance(given, _Own) else self._take(given, now):
                kind = type(action)
                if kind is SetTimer:  # at once: it may stop a timer that is among the inputs
                    self._timers.set(action.name, action.at)
                elif kind is Append or kind is Save:
                    stored.append(action)
                elif kind is not Work:
                    others.append(action)
        self._room.set()
        if stored:
            await _finish(self._store(stored))
        for kind, actions in groupby(others, type):
            await _finish(self._performers[kind]([*actions]))

    def _expire(self, name: str, number: int) -> None:
        self.call(partial(self._take_timer, name, number))

    def _take_timer(self, name: str, number: int, now: float) -> Iterable[Any]:
        """Call the machine, unless the timer was stopped or reset while it was queued."""
        return self._on_timer(name, now) if self._timers.take(name, number) else ()


async def _finish(performed: Awaitable[None] | None) -> None:
    if performed is not None:
        await performed
