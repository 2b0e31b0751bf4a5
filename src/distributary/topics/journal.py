"""Takes over the journal in which former versions kept the state of a host of channels.

The journal is a file of records, each with its length and checksums before it. A record that was
being written when the process died ends early and is left out. A whole record with a wrong checksum
is damage: the last one is set aside and reported, any other is an error.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from struct import Struct
from typing import BinaryIO
from zlib import crc32

from distributary.errors import StateError
from distributary.machines.real.store import Store

__all__ = ["take_over_journal"]

_OURS = b"distributary journal "
_MAGIC = _OURS + b"2\n"
_LENGTH = Struct("<II")  # and the checksum of the record
_HEAD = Struct("<III")  # and that of both: a damaged length must not pass for a record cut short
_AT_ONCE = 1 << 20  # bytes to read from the file at a time
_TAKEN = "journal taken over"


def take_over_journal(store: Store) -> None:
    """Move the records of a journal, if there is one in the folder, to the log of the store.

    After a crash on the way it is done again from the start, or not at all if only the removal of
    the journal was left to do.
    """
    path = store.path.with_name("journal")
    try:
        if not path.exists():
            return
        facts = path.stat()
        mark = f"{facts.st_size} {facts.st_mtime_ns}".encode()
        if store.get(_TAKEN) != mark:
            if not store.is_empty:
                raise StateError(
                    str(path),
                    f"is the state of a former version, beside a newer one in {store.path.name}",
                    "remove the one that is out of date",
                )
            with store.batch(), path.open("rb", buffering=_AT_ONCE) as file:
                store.replace(_read(path, file, store.set_aside))
                store.put(_TAKEN, mark)
            store.flush()
        path.unlink()
        path.with_name(".journal.tmp").unlink(missing_ok=True)
    except OSError as error:
        raise StateError.from_os(path, error) from error


def _read(path: Path, file: BinaryIO, set_aside: Callable[[bytes, str], None]) -> Iterator[bytes]:
    """Every whole record of a journal, from the first on."""
    start = file.read(len(_MAGIC))
    if len(start) < len(_MAGIC) and _MAGIC.startswith(start):
        return
    if start != _MAGIC:
        ours = start.startswith(_OURS)
        raise StateError(
            str(path),
            "was written by another version" if ours else "is not a journal of ours",
            "use that version, or start with an empty folder" if ours else "choose another folder",
        )
    at, size = len(_MAGIC), os.fstat(file.fileno()).st_size
    while at < size:
        head = file.read(_HEAD.size)
        if len(head) < _HEAD.size:
            return  # cut short
        length, checksum, own = _HEAD.unpack(head)
        if crc32(head[: _LENGTH.size]) == own:
            if at + _HEAD.size + length > size:
                return  # cut short
            record = file.read(length)
            if crc32(record) == checksum:
                yield record
                at += _HEAD.size + length
                continue
            if _is_blank(file):
                reason = f"the last record of the journal, {length:,} bytes, is damaged"
                set_aside(head + record, reason)
                return
        elif not any(head) and _is_blank(file):
            return  # blocks that the disk never got
        raise StateError(
            str(path),
            f"is damaged at byte {at:,}",
            "restore it from a backup, or start with an empty folder",
        )


def _is_blank(file: BinaryIO) -> bool:
    """Whether nothing but zeros follows, as where blocks did not reach the disk; reads to there."""
    while found := file.read(_AT_ONCE):
        if any(found):
            return False
    return True
