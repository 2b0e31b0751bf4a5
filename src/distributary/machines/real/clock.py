"""The time of machines that keep it across restarts."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["make_clock"]


def make_clock() -> Callable[[], float]:
    """Make a clock of the seconds since 1970 that never goes back, even if the system's does."""
    last = time.time()

    def read() -> float:
        nonlocal last
        last = max(last, time.time())
        return last

    return read
