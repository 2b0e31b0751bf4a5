"""Where a command starts: Ctrl-C is answered from here on, also while all the rest is imported."""

from __future__ import annotations

import os
import signal
from types import FrameType

__all__ = ["INTERRUPTED", "main"]

INTERRUPTED = 130


def main() -> None:
    """Run the command line: exit 0 done, 1 failed, 2 wrong usage, 130 interrupted."""
    handler = signal.getsignal(signal.SIGINT)
    ours = handler is signal.default_int_handler  # else somebody wants to handle it, or ignore it
    if ours:
        signal.signal(signal.SIGINT, _leave)
    from distributary.cli import app

    if ours:
        signal.signal(signal.SIGINT, handler)
    app.main()


def _leave(number: int, frame: FrameType | None) -> None:
    """End the process. While it imports there is nothing to tidy up, and nothing to say."""
    os._exit(INTERRUPTED)
