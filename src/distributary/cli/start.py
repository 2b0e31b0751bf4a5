"""The entry point of the command line. Ctrl-C works even while modules are being imported."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["INTERRUPTED", "exit_on_interrupt", "main"]

INTERRUPTED = 130


def main() -> None:
    """Run the command line: exit 0 done, 1 failed, 2 wrong usage, 130 interrupted."""
    with exit_on_interrupt():
        from distributary.cli import app
    app.main()


@contextmanager
def exit_on_interrupt() -> Iterator[None]:
    """Exit at once on Ctrl-C while the block imports modules: there is nothing to clean up yet.

    Does nothing if the caller has its own handler for SIGINT or ignores it.
    """
    handler = signal.getsignal(signal.SIGINT)
    if handler is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _exit)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def _exit(number: int, frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)
