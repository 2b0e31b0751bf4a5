"""Commands as a shell starts them, each in a process group of its own."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

__all__ = ["PATIENCE", "press_ctrl_c", "read_note", "started"]

PATIENCE = 240.0  # seconds after which a test fails: never how long anything should take

Process = subprocess.Popen[bytes]


@contextmanager
def started(words: Sequence[str | Path]) -> Iterator[Process]:
    """Start a command; kill it at the end of the block, if it still runs."""
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def read_note(process: Process) -> str:
    """The next line that it says to people."""
    assert process.stderr is not None
    return process.stderr.readline().decode()


def press_ctrl_c(process: Process) -> tuple[int, bytes]:
    """A terminal signals everybody in the group; the exit status and what was said then."""
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert out == b""
    return process.returncode, err
