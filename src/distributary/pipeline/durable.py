"""Files that outlast a loss of power: they are on the disk before another file names them."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

__all__ = ["sync_files"]

_UNKNOWN = (errno.EINVAL, errno.ENOTSUP)  # some network file systems sync no folders


def sync_files(paths: Iterable[Path]) -> None:
    """Wait until files, and the folders that they are in, are on the disk.

    A folder among the paths is one to be synced itself. What was removed meanwhile is passed over.
    """
    folders = set()
    for path in paths:
        if path.is_dir():
            folders.add(path)
            continue
        folders.add(path.parent)
        with suppress(FileNotFoundError):
            _sync(path)
    for folder in sorted(folders):
        try:
            _sync(folder)
        except FileNotFoundError:
            continue
        except OSError as error:
            if error.errno not in _UNKNOWN:
                raise


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
