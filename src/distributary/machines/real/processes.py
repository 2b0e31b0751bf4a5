"""Processes that a service starts for itself: they end with it, and with all that they started."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import IO, Any

__all__ = ["describe_end", "end_process", "start_process"]

_PR_SET_PDEATHSIG = 1
_LONGEST_LINE = 1 << 20  # bytes of a line that a pipe can hand over
_PATIENCE = 5.0  # seconds, before a process is killed


async def start_process(
    command: Sequence[str],
    *,
    stdin: int = DEVNULL,
    stdout: int = DEVNULL,
    stderr: int | IO[Any] = DEVNULL,
) -> Process:
    """Start a process in a session of its own, so that Ctrl-C in a terminal does not reach it.

    On Linux the kernel ends it (SIGTERM) when this process is killed. Raises `OSError` if it cannot
    be started.
    """
    return await asyncio.create_subprocess_exec(
        *command,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        limit=_LONGEST_LINE,
        start_new_session=True,
        preexec_fn=_make_preparation() if sys.platform == "linux" else None,
    )


def _make_preparation() -> Callable[[], None]:
    """What the new process does before it runs the command."""
    set_option, parent = ctypes.CDLL(None).prctl, os.getpid()

    def end_with_parent() -> None:
        set_option(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it was killed in the meantime
            os._exit(1)

    return end_with_parent


async def end_process(process: Process, within: float = _PATIENCE) -> None:
    """Ask a process to end (SIGTERM); kill it `within` so many seconds, and what it left anyway.

    If this is cancelled, it is killed at once.
    """
    try:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.terminate()
            with suppress(TimeoutError):
                async with asyncio.timeout(within):
                    await process.wait()
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        if process.stdin is not None:
            process.stdin.close()
        await process.wait()


def describe_end(status: int) -> str:
    """How a process ended, by its exit status: `was killed by signal 9`."""
    return f"was killed by signal {-status}" if status < 0 else f"exited with {status}"
