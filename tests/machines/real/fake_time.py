"""An event loop whose time jumps to the next timer instead of waiting for it."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Jumping(selectors.DefaultSelector):
    """Waits for nothing: lets the time pass instead."""

    loop: FakeTimeLoop

    def select(self, timeout: float | None = None) -> list[Any]:
        found = super().select(0)
        if not found and timeout is None:
            raise AssertionError("everybody waits, and nobody will come")
        if not found and timeout:
            self.loop.now += timeout
        return found


class FakeTimeLoop(asyncio.SelectorEventLoop):
    """`now` may also be moved by hand: the loop was busy for so long."""

    def __init__(self) -> None:
        self.now = 0.0
        selector = _Jumping()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.now


def run(work: Callable[[FakeTimeLoop], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine function, which gets the loop, in fake time."""
    loop = FakeTimeLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(work(loop))
