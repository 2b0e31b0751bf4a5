"""A file of records that only grows: what was written before a crash is there after it.

Each record has its length and checksums before it. A record that was being written when the
process died is cut off; damage anywhere else is told, never skipped. Every so often the whole file
is replaced by a shorter one that says the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from struct import Struct
from types import TracebackType
from typing import Self
from zlib import crc32

from distributary.live.errors import StateError
from distributary.live.folder_lock import take_lock

__all__ = ["Journal"]

_OURS = b"distributary journal "
_MAGIC = _OURS + b"2\n"
_LENGTH = Struct("<II")  # and the checksum of the record
_HEAD = Struct("<III")  # and that of both: a damaged length must not pass for a record cut short


class Journal:
    """Records in a folder, for one process at a time.

    With `sync` a record that was appended survives the loss of power, and every append waits for
    the disk; without, it survives the death of the process.
    """

    def __init__(self, folder: Path, *, sync: bool = False) -> None:
        self.path = folder / "journal"
        self.sync = sync
        self.size = 0
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
        """Every whole record from the first on; read all of them before the first append."""
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            data = self.path.read_bytes()
        except OSError as error:
            raise self._fault(error) from error
        if len(data) < len(_MAGIC) and _MAGIC.startswith(data):
            self._begin()
            return
        if not data.startswith(_MAGIC):
            ours = data.startswith(_OURS)
            raise StateError(
                str(self.path),
                "was written by another version" if ours else "is not a journal of ours",
                "use that version, or start anew" if ours else "name another folder",
            )
        at = len(_MAGIC)
        while at < len(data):
            end = self._end_of(data, at)
            if end is None:
                os.ftruncate(self._file, at)
                break
            yield data[at + _HEAD.size : end]
            at = end
        self.size = at

    def append(self, records: Iterable[bytes]) -> None:
        """Write records, all of them before this returns."""
        data = b"".join(_framed(record) for record in records)
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
                size += sum(_write_all(file, _framed(record)) for record in records)
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

    def _end_of(self, data: bytes, at: int) -> int | None:
        """Where the record at a place ends; None if it was never written to its end."""
        if at + _HEAD.size > len(data):
            return None
        length, checksum, own = _HEAD.unpack_from(data, at)
        start = at + _HEAD.size
        end = start + length
        sound = crc32(data[at : at + _LENGTH.size]) == own
        if sound and end <= len(data) and crc32(data[start:end]) == checksum:
            return int(end)
        if (sound and end >= len(data)) or not any(data[at:]):
            return None  # cut short, or blocks that the disk never got
        raise StateError(
            str(self.path), f"is damaged at byte {at:,}", "bring it back from a copy, or start anew"
        )

    def _fault(self, error: OSError) -> StateError:
        return StateError.from_os(self.path, error)


def _framed(record: bytes) -> bytes:
    head = _LENGTH.pack(len(record), crc32(record))
    return _HEAD.pack(len(record), crc32(record), crc32(head)) + record


def _write_all(file: int, data: bytes) -> int:
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]
    return len(data)
