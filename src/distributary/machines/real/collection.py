"""Keeps Python's garbage collector away from a process's restored state."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["hold_collection"]


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
