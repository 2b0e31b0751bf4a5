"""Stretches of work that no interrupt may meet: Java's start, and putting things back.

An interrupt that meets Java's start leaves a Java behind which nobody can end; one that meets the
removal of a half-written folder leaves half of that. `call_interruptibly` gives its work a lock,
and interrupts it only while nobody holds that.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from threading import RLock
from typing import Any

__all__ = ["hold_off_interrupts", "lock_of_work", "stay_undisturbed"]

lock_of_work: ContextVar[Any] = ContextVar("lock_of_work", default=None)
"""The `RLock` of the work that runs in this context, if that may be interrupted at all."""


@contextmanager
def hold_off_interrupts() -> Iterator[None]:
    """Let no interrupt meet the block; one that comes meanwhile meets what follows it."""
    with lock_of_work.get() or RLock():
        yield


def stay_undisturbed() -> None:
    """Let no interrupt meet the work from here to its end: it puts things back.

    Whoever interrupts does so once, and holds the lock meanwhile. So an interrupt that is on its
    way arrives while we wait, and there is none left when we ask for the lock a second time.
    """
    lock = lock_of_work.get()
    for _ in range(2 if lock else 0):
        with suppress(KeyboardInterrupt):
            lock.acquire()
