"""A temporary folder with secrets in it, which is removed even if its process is killed."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

__all__ = ["make_temporary_folder"]

# Its input ends with this process; others that end with it may write a little longer.
_REMOVE_AT_THE_END = 'read -r _; rm -rf "$1"; while [ -e "$1" ]; do sleep 0.1; rm -rf "$1"; done'
_SETTLED = 10.0  # seconds that an owner may take to lock its folder


@contextmanager
def make_temporary_folder(prefix: str, lock: str) -> Iterator[Path]:
    """Make one whose name begins with `prefix`, and remove it at the end of the block.

    Folders that were left when a machine lost its power are removed, too: those whose file `lock`
    nobody holds. So the caller locks its own at once.
    """
    for left in Path(gettempdir()).glob(f"{prefix}*"):
        if _is_abandoned(left, lock):
            shutil.rmtree(left, ignore_errors=True)
    with TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as temporary:
        remover = subprocess.Popen(
            ["/bin/sh", "-c", _REMOVE_AT_THE_END, "sh", temporary],
            stdin=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C in a terminal must not reach it
        )
        try:
            yield Path(temporary)
        finally:
            remover.communicate()


def _is_abandoned(folder: Path, lock: str) -> bool:
    """Whether a folder is one of ours and the process that had locked it is dead."""
    try:
        if folder.stat().st_uid != os.geteuid():
            return False
        file = os.open(folder / lock, os.O_RDWR | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        if time.time() - os.fstat(file).st_mtime < _SETTLED:
            return False  # its owner may not have locked it yet
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(file)
    return True
