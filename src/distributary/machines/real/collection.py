"""Keeps Python's garbage collector away from the state of a process."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["collect_rarely", "hold_collection"]


# A block that makes more objects is worth hiding them from the collector.
_MANY = 100_000


@contextmanager
def hold_collection() -> Iterator[None]:
    """Collect no garbage in the block, and never look at what it has made if that is much.

    Building millions of objects that all stay takes twice as long with the collector, which looks
    at all of them again and again; afterwards it would stop the process for up to a second.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if gc.get_count()[0] > _MANY:  # objects made and not freed since the last collection
            gc.freeze()
        if was_enabled:
            gc.enable()


# Collections of younger objects between two of all, which each stop the process for up to a second.
_RARELY = 1_000


@contextmanager
def collect_rarely() -> Iterator[None]:
    """Look at objects that have lived for long only after millions of new ones.

    What a machine knows has no cycles, so nothing is gained by looking at it. Cycles of the shell
    are short-lived, and collected as before.
    """
    before = gc.get_threshold()
    gc.set_threshold(*before[:2], max(before[2], _RARELY))
    try:
        yield
    finally:
        gc.set_threshold(*before)
