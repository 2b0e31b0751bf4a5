"""Reads key files, which only their owner may access; all bytes of the file are the key."""

from __future__ import annotations

import os
import stat

from distributary.delivery.authentication import LONGEST_KEY, SHORTEST_KEY
from distributary.delivery.errors import KeyFileError

__all__ = ["read_key"]


def read_key(path: str | os.PathLike[str]) -> bytes:
    """Read a key; raises `KeyFileError` if anybody else could have read or changed the file."""
    name = os.fspath(path)
    try:
        with open(name, "rb") as file:
            found = os.fstat(
                file.fileno()
            )  # of the open file, even if the path has changed meanwhile
            _check_owner_and_mode(name, found)
            key = file.read(LONGEST_KEY + 1)
    except OSError as error:
        raise KeyFileError(name, error.strerror or str(error), "check the path") from None
    if not SHORTEST_KEY <= len(key) <= LONGEST_KEY:
        said = f"more than {LONGEST_KEY}" if len(key) > LONGEST_KEY else str(len(key))
        raise KeyFileError(
            name,
            f"a key has {SHORTEST_KEY} to {LONGEST_KEY} bytes, this one has {said}",
            "make one with `(umask 077; head -c 32 /dev/urandom > FILE)`",
        )
    return key


def _check_owner_and_mode(name: str, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise KeyFileError(name, "is not a file", "name the file that holds the key")
    if found.st_uid != os.geteuid():
        raise KeyFileError(name, "belongs to another user", "make a copy of your own")
    if found.st_mode & 0o077:
        mode = stat.S_IMODE(found.st_mode)
        raise KeyFileError(
            name, f"other users have access to it (mode {mode:03o})", f"run `chmod 600 {name}`"
        )
