"""One process at a time works with a folder."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from distributary.errors import StateError

__all__ = ["take_lock"]


def take_lock(path: Path) -> int:
    """Lock a file, made if need be; the lock ends when what is returned is closed, or we die."""
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
            str(path.parent), "another process works with this folder", "stop it, or name another"
        ) from None
    return file
