"""A private temporary folder for the files that Spark is started with.

Only this user can read it, and it is removed when the process ends. A killed process leaves its
folder behind, so each folder is locked by its owner, and the next process removes folders without a
lock.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import BinaryIO

from distributary.files.faults import output_fault, summarize_error

__all__ = ["private_folder"]

_PREFIX = "distributary-spark-"
_LOCK = ".owner"

_held: list[tuple[Path, BinaryIO]] = []


def private_folder() -> Path:
    """The folder of this process, created on the first call."""
    if not _held:
        try:
            _remove_abandoned(Path(tempfile.gettempdir()))
            _held.append(_create_locked())
        except OSError as error:
            raise output_fault(
                error.filename or "the folder for temporary files",
                f"cannot be written: {summarize_error(error)}",
                "make room, or name another folder with TMPDIR",
            ) from error
        atexit.register(shutil.rmtree, _held[0][0], ignore_errors=True)
    return _held[0][0]


def _create_locked() -> tuple[Path, BinaryIO]:
    """Create a folder that is locked before it gets the name that other processes look for."""
    unnamed = Path(tempfile.mkdtemp(prefix=".distributary-"))
    try:
        lock = (unnamed / _LOCK).open("xb")
        fcntl.flock(lock, fcntl.LOCK_EX)
        return unnamed.rename(unnamed.with_name(_PREFIX + unnamed.name.rpartition("-")[2])), lock
    except OSError:
        shutil.rmtree(unnamed, ignore_errors=True)
        raise


def _remove_abandoned(parent: Path) -> None:
    """Remove this user's folders of dead processes; a folder without a lock file is left alone."""
    for folder in parent.glob(f"{_PREFIX}*"):
        try:
            if folder.stat().st_uid != os.getuid():
                continue
            with (folder / _LOCK).open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:  # its owner is alive, or another process removes it
            continue
