"""Lock a folder, so that only one process uses it at a time."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from distributary.errors import StateError

__all__ = ["take_lock"]


def take_lock(path: Path) -> int:
    """Lock a file, created if needed; the lock ends when the descriptor is closed or we exit."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise StateError.from_os(path.parent, error) from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        raise StateError(
            str(path.parent),
            "another process uses this folder",
            "stop it, or choose another folder",
        ) from None
    return file
