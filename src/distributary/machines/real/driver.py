"""Run a machine in real time: give it inputs with the time, and perform its actions in order.

A shell gives a driver a table of performers, one for each type of action. A performer gets
consecutive actions of its type as one list, so that it can send or write them together. The driver
itself keeps the machine's timers, and ignores `Work`. If a performer or the machine fails, the run
fails.

This driver is for shells whose inputs can wait in a queue, and whose store is written before
anything is sent. `direct.py` is for shells whose inputs cannot wait.
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

__all__ = ["Answer", "Driver", "Input", "OnTimer", "PerformerTable"]

T = TypeVar("T")
# What a machine answers: its actions, or a coroutine that returns them.
Answer = Iterable[Any] | Coroutine[Any, Any, Iterable[Any]]
# Calls the machine with the time.
Input = Callable[[float], Answer]
OnTimer = Callable[[str, float], Answer]
Performer = Callable[[list[Any]], Awaitable[None] | None]


class PerformerTable(dict[type, Any]):
    """Performers by the type of action; an action without one is a `TypeError`."""

    def __missing__(self, kind: type) -> Any:
        raise TypeError(f"the driver has no performer for {kind.__name__}")


def _refuse(stored: list[Any]) -> None:
    raise TypeError(f"the driver has no store for {type(stored[0]).__name__}")


class _HostInput(NamedTuple):
    """An input of the shell itself, not a message."""

    call: Input


class Driver(Generic[T]):
    """Handles inputs, messages and timers alike, in the order of arrival and in batches.

    `take` gives the machine a message as the shell received it, and `on_timer` an expired timer.
    `finish`, if given, is called after the inputs of a turn: a machine may do then, once, what
    follows from all of them.

    `async with driver:` owns the timers and the tasks of the block. A turn calls the machine with
    up to `batch` inputs, gives all that they save and append to `store` at once, and then performs
    the other actions. So everything that is sent is based on stored state, and a reply that arrived
    in time is handled before the time-out of its request.

    The machine waits while a performer waits. A performer must not wait for a peer without a
    time-out, since the peer may be waiting for us.

    An input that takes the machine long may be a coroutine, such as that of `asyncio.to_thread`:
    the other inputs wait for it, while the tasks of the block go on.
    """

    def __init__(
        self,
        take: Callable[[T, float], Answer],
        on_timer: OnTimer,
        performers: Mapping[type, Performer],
        *,
        clock: Callable[[], float],
        store: Performer = _refuse,
        capacity: int = 10_000,
        batch: int = 512,
        finish: Callable[[float], Iterable[Any]] = lambda now: (),
    ) -> None:
        self._take = take
        self._on_timer = on_timer
        self._performers = PerformerTable(performers)
        self._clock = clock
        self._store = store
        self._capacity = capacity
        self._batch = batch
        self._finish = finish
        self._inputs: deque[T | _HostInput] = deque()
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
        """Cancel the tasks and stop the timers; queued inputs are dropped."""
        return await self._stack.__aexit__(*raised)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a task that is cancelled when the block ends; its failure ends the block."""
        self._start(work)

    def call(self, given: Input) -> None:
        """Queue an input of the shell itself, such as the machine's start; there is always room."""
        self._inputs.append(_HostInput(given))
        self._changed.set()

    async def call_in_turns(self, inputs: Iterable[Input]) -> None:
        """Give each input a turn of its own, so that messages need not wait for all of them."""
        for each in inputs:
            done = asyncio.Event()
            self.call(partial(_call_and_tell, each, done))
            await done.wait()

    async def put(self, message: T) -> None:
        """Queue a message; wait while the queue is full. If cancelled, it is not queued."""
        while len(self._inputs) >= self._capacity:
            self._room.clear()
            await self._room.wait()
        self._inputs.append(message)
        self._changed.set()

    def stop(self) -> None:
        """Stop after the current turn."""
        self._stopped = True
        self._changed.set()

    async def run(self) -> None:
        """Run turns until `stop`. If cancelled, some actions of a turn may not be performed."""
        while await self.wait():
            await self.turn()

    async def wait(self) -> bool:
        """Wait until there is an input; return False once the driver is stopped."""
        if self._inputs:
            await asyncio.sleep(0)  # a queue that is never empty must not block others
        while not (self._inputs or self._stopped):
            self._changed.clear()
            await self._changed.wait()
        return not self._stopped

    async def turn(self) -> None:
        """Call the machine with queued inputs, store what it saves, perform the other actions."""
        now = self._clock()
        stored: list[Any] = []
        others: list[Any] = []
        for _ in range(min(len(self._inputs), self._batch)):
            given = self._inputs.popleft()
            answer = given.call(now) if isinstance(given, _HostInput) else self._take(given, now)
            actions = await answer if isinstance(answer, Coroutine) else answer
            self._sort(actions, stored, others)
        self._sort(self._finish(now), stored, others)
        self._room.set()
        if stored:
            await _wait_for(self._store(stored))
        for kind, actions in groupby(others, type):
            await _wait_for(self._performers[kind]([*actions]))

    def _sort(self, actions: Iterable[Any], stored: list[Any], others: list[Any]) -> None:
        for action in actions:
            kind = type(action)
            if kind is SetTimer:  # at once: it may stop a timer that is among the inputs
                self._timers.set(action.name, action.at)
            elif kind is Append or kind is Save:
                stored.append(action)
            elif kind is not Work:
                others.append(action)

    def _expire(self, name: str, number: int) -> None:
        self.call(partial(self._call_on_timer, name, number))

    def _call_on_timer(self, name: str, number: int, now: float) -> Answer:
        """Call the machine, unless the timer was stopped or reset while it was queued."""
        return self._on_timer(name, now) if self._timers.take(name, number) else ()


def _call_and_tell(given: Input, done: asyncio.Event, now: float) -> Answer:
    done.set()
    return given(now)


async def _wait_for(performed: Awaitable[None] | None) -> None:
    if performed is not None:
        await performed
