"""A file of records that only grows: what was written before a crash is there after it.

Each record has its length and checksums before it. A record that was being written when the
process died ends early and is cut off. A whole record with a wrong checksum is damage: the last one
is set aside in a file beside the journal and reported, any other ends the reading with an error.
Every so often the whole file is replaced by a shorter one that says the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from struct import Struct
from types import TracebackType
from typing import BinaryIO, Self
from zlib import crc32

from distributary.errors import StateError
from distributary.machines.real.folder_lock import take_lock

__all__ = ["Journal"]

_OURS = b"distributary journal "
_MAGIC = _OURS + b"2\n"
_LENGTH = Struct("<II")  # and the checksum of the record
_HEAD = Struct("<III")  # and that of both: a damaged length must not pass for a record cut short
_LONGEST = (1 << 32) - 1  # bytes of a record
_AT_ONCE = 1 << 20  # bytes to read from the file at a time


class Journal:
    """Records in a folder, for one process at a time.

    With `sync` a record that was appended survives the loss of power, and every append waits for
    the disk; without, it survives the death of the process.
    """

    def __init__(self, folder: Path, *, sync: bool = False) -> None:
        self.path = folder / "journal"
        self.sync = sync
        self.size = 0
        self.reports: list[str] = []  # what was set aside, and why
        self._file = -1
        self._lock = take_lock(folder / "lock")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let others have the folder."""
        for file in (self._file, self._lock):
            if file >= 0:
                os.close(file)
        self._file = self._lock = -1

    def read(self) -> Iterator[bytes]:
        """Every whole record from the first on; read all of them before the first append.

        One record at a time is in memory, however long the file is.
        """
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            with self.path.open("rb", buffering=_AT_ONCE) as file:
                yield from self._read(file)
        except OSError as error:
            raise self._fault(error) from error

    def _read(self, file: BinaryIO) -> Iterator[bytes]:
        start = file.read(len(_MAGIC))
        if len(start) < len(_MAGIC) and _MAGIC.startswith(start):
            self._begin()
            return
        if start != _MAGIC:
            ours = start.startswith(_OURS)
            raise StateError(
                str(self.path),
                "was written by another version" if ours else "is not a journal of ours",
                "use that version, or start anew" if ours else "name another folder",
            )
        at, size = len(_MAGIC), os.fstat(file.fileno()).st_size
        while at < size:
            record = self._next_record(file, at, size)
            if record is None:
                os.ftruncate(self._file, at)
                break
            yield record
            at += _HEAD.size + len(record)
        self.size = at

    def append(self, records: Iterable[bytes]) -> None:
        """Write records, all of them before this returns."""
        data = b"".join(_frame(record) for record in records)
        if not data:
            return
        try:
            _write_all(self._file, data)
            if self.sync:
                os.fdatasync(self._file)
        except OSError as error:
            os.ftruncate(self._file, self.size)
            raise self._fault(error) from error
        self.size += len(data)

    def replace(self, records: Iterable[bytes]) -> None:
        """Let these records take the place of all there are, at once."""
        temporary = self.path.with_name(".journal.tmp")
        try:
            temporary.unlink(missing_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND
            file = os.open(temporary, flags, 0o600)
            try:
                size = _write_all(file, _MAGIC)
                size += sum(_write_all(file, _frame(record)) for record in records)
                os.fsync(file)
                temporary.replace(self.path)
            except BaseException:
                os.close(file)
                raise
        except OSError as error:
            raise self._fault(error) from error
        os.close(self._file)
        self._file, self.size = file, size
        if self.sync:
            self._sync_folder()

    def _sync_folder(self) -> None:
        """A new name is on the disk once its folder is."""
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _begin(self) -> None:
        try:
            os.ftruncate(self._file, 0)
            self.size = _write_all(self._file, _MAGIC)
        except OSError as error:
            raise self._fault(error) from error

    def set_aside(self, data: bytes, reason: str) -> None:
        """Keep bytes that cannot be used in a file beside the journal, and report why."""
        aside = self.path.with_name("journal.set-aside")
        try:
            file = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                _write_all(file, data)
            finally:
                os.close(file)
        except OSError as error:
            raise self._fault(error) from error
        self.reports.append(
            f"{self.path}: {reason}; it is left out and kept in {aside.name}, "
            "and what it changed is lost"
        )

    def _next_record(self, file: BinaryIO, at: int, size: int) -> bytes | None:
        """The record at a place; None if the journal is to be cut off there."""
        head = file.read(_HEAD.size)
        if len(head) < _HEAD.size:
            return None  # cut short
        length, checksum, own = _HEAD.unpack(head)
        if crc32(head[: _LENGTH.size]) == own:
            if at + _HEAD.size + length > size:
                return None  # cut short
            record = file.read(length)
            if crc32(record) == checksum:
                return record
            if _is_blank(file):
                reason = f"the last record, {length:,} bytes at byte {at:,}, is damaged"
                self.set_aside(head + record, reason)
                return None
        elif not any(head) and _is_blank(file):
            return None  # blocks that the disk never got
        raise StateError(
            str(self.path), f"is damaged at byte {at:,}", "bring it back from a copy, or start anew"
        )

    def _fault(self, error: OSError) -> StateError:
        return StateError.from_os(self.path, error)


def _is_blank(file: BinaryIO) -> bool:
    """Whether nothing but zeros follows, as where blocks did not reach the disk; reads to there."""
    while found := file.read(_AT_ONCE):
        if any(found):
            return False
    return True


def _frame(record: bytes) -> bytes:
    if len(record) > _LONGEST:
        raise ValueError(f"a record of {len(record):,} bytes is too long for a journal")
    head = _LENGTH.pack(len(record), crc32(record))
    return _HEAD.pack(len(record), crc32(record), crc32(head)) + record


def _write_all(file: int, data: bytes) -> int:
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]
    return len(data)
