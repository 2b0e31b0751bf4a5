"""Sections of work that must not be interrupted: the start of Java, and cleaning up.

An interrupt during the start leaves a Java process that nobody can stop; one during the removal of
a half-written folder leaves part of the folder. `call_interruptibly` gives its work a lock and
interrupts the work only while it can take that lock.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from threading import RLock
from typing import Any

__all__ = ["hold_off_interrupts", "lock_of_work", "stay_undisturbed"]

lock_of_work: ContextVar[Any] = ContextVar("lock_of_work", default=None)
"""The `RLock` of the work in this context; None if nothing interrupts it."""


@contextmanager
def hold_off_interrupts() -> Iterator[None]:
    """Delay interrupts until the end of the block."""
    with lock_of_work.get() or RLock():
        yield


def stay_undisturbed() -> None:
    """Allow no interrupt from here to the end of the work, which cleans up.

    The interrupting thread interrupts once, while it holds the lock. An interrupt on its way
    arrives while the first acquire waits, and none is left for the second.
    """
    lock = lock_of_work.get()
    for _ in range(2 if lock else 0):
        with suppress(KeyboardInterrupt):
            lock.acquire()
