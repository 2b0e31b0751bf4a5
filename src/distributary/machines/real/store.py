"""The durable state of one process: keyed rows and a log of records, in an SQLite file.

The file is in WAL mode: SQLite appends every change to a second file, the write-ahead log (WAL),
and later moves it into the first one. This module adds two things that SQLite does not do: each row
has a checksum, and changes that SQLite drops because the WAL is damaged are reported.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from struct import Struct
from typing import Any, Self
from zlib import crc32

from distributary.errors import StateError
from distributary.machines.real.checkpoints import Checkpoints
from distributary.machines.real.folder_lock import take_lock

__all__ = ["Store"]

_OURS = int.from_bytes(b"dstr")  # stored in the header of the file
_FORMAT = 1
_TABLES = (
    "CREATE TABLE log (number INTEGER PRIMARY KEY, checksum INTEGER, record BLOB)",
    "CREATE TABLE rows (key TEXT PRIMARY KEY, checksum INTEGER, value BLOB) WITHOUT ROWID",
)
_LARGEST_WAL = 1 << 24  # bytes; a longer one is truncated once its changes are moved
_CHANGES_PER_CHECKPOINT = 1_000  # rows
_PAGES_TO_WAIT = 1 << 14  # in the WAL; then the writer itself moves its changes, and waits for it
_WAL_HEAD = Struct(">16x8s8x")  # the salt of all valid frames
_WAL_FRAME = Struct(">4xI8s8x")  # nonzero in the last frame of a batch; the salt. A page follows
_DAMAGED_SCHEMA = "its schema is not as it was written"
_LEAST_FREE = 1 << 12  # pages: less is not worth a compaction
_LITTLE = 1 << 16  # bytes: a disk with less free space counts as full
_OUTSIDE = ("BUSY", "CANTOPEN", "FULL", "IOERR", "LOCKED", "NOMEM", "PERM", "READONLY")


class Store:
    """Keyed rows and a log in a folder, for one process at a time.

    A change is durable once its batch has ended. With `sync` every batch waits for the disk, and
    the change survives a power failure. Without it, the change survives the end of the process, but
    a power failure may lose the last batches. `size` is roughly the number of bytes in use, and
    `reports` says what could not be read.
    """

    def __init__(self, folder: Path, *, sync: bool = False) -> None:
        self.path = folder / "state.db"
        self.reports: list[str] = []
        self._checkpoints = Checkpoints(self.path)
        self._moved = 0  # changes until the last checkpoint
        self._lock = take_lock(folder / "lock")
        try:
            with self._faults():
                self._db = self._open("FULL" if sync else "NORMAL")
                self.size = self._measure()
                (last,) = self._db.execute("SELECT max(number) FROM log").fetchone()
                self._next = (last or 0) + 1
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file and release the lock on the folder."""
        if self._lock >= 0:
            self._checkpoints.close()
            with suppress(AttributeError, sqlite3.Error):
                self._db.close()
            os.close(self._lock)
            self._lock = -1

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Make all changes of the block durable when it ends, or none of them if it fails.

        A batch inside another is part of the outer one.
        """
        if self._db.in_transaction:
            yield
            return
        before = self._next, self.size
        try:
            with self._faults():
                self._db.execute("BEGIN IMMEDIATE")
            yield
            with self._faults():
                self._db.execute("COMMIT")
                self._checkpoint_soon()
        except BaseException:
            self._next, self.size = before
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def flush(self) -> None:
        """Wait until everything written is on disk, with or without `sync`."""
        with self._faults(), self._checkpoints.running:
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)  # so that the names of the files are on disk too
            finally:
                os.close(folder)

    def _checkpoint_soon(self) -> None:
        if self._db.total_changes - self._moved >= _CHANGES_PER_CHECKPOINT:
            self._moved = self._db.total_changes
            self._checkpoints.ask()

    def compact(self) -> None:
        """Return unused space to the file system, if it is most of the file."""
        free, pages = _read_pragma(self._db, "freelist_count"), _read_pragma(self._db, "page_count")
        if free > max(_LEAST_FREE, pages // 2):
            with self._faults():
                self._db.execute("VACUUM")

    # --- the log -------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        """Whether the log has no record."""
        return self._next == 1

    def append(self, records: Iterable[bytes]) -> None:
        """Add records to the log."""
        if found := [*records]:
            with self.batch(), self._faults():
                self._insert(found)

    def replace(self, records: Iterable[bytes]) -> None:
        """Replace the whole log by these records."""
        with self.batch(), self._faults():
            self._db.execute("DELETE FROM log")
            self._next = 1
            self._insert(records)
            self.size = self._measure()

    def read(self) -> Iterator[bytes]:
        """Yield the records of the log from the first one, one at a time in memory.

        A damaged last record is set aside and reported; any other damage is an error.
        """
        last = self._next - 1
        with self._faults():
            found = self._db.execute("SELECT * FROM log ORDER BY number")
            for number, (at, checksum, record) in enumerate(found, 1):
                if at == number and _is_whole(record, checksum, number):
                    yield record
                elif at == number == last:
                    self._set_last_aside(number, record)
                else:
                    raise self._damage(f"record {number:,} of the log is not as it was written")

    def _set_last_aside(self, number: int, record: Any) -> None:
        reason = f"the last record of the log, number {number:,}, is damaged"
        self.set_aside(record if isinstance(record, bytes) else b"", reason)
        self._db.execute("DELETE FROM log WHERE number = ?", (number,))
        self._next = number

    def _insert(self, records: Iterable[bytes]) -> None:
        self._db.executemany("INSERT INTO log VALUES (?, ?, ?)", self._number(records))

    def _number(self, records: Iterable[bytes]) -> Iterator[tuple[int, int, bytes]]:
        for record in records:
            yield self._next, _checksum(record, self._next), record
            self._next += 1
            self.size += len(record)

    # --- keyed rows ----------------------------------------------------------------------------

    def put(self, key: str, value: bytes) -> None:
        """Set the value of a key."""
        self.change({key: value})

    def remove(self, key: str) -> None:
        """Remove a key, if it exists."""
        self.change({key: None})

    def change(self, values: Mapping[str, bytes | None]) -> None:
        """Set the values of many keys at once; None removes a key, if it exists."""
        kept = {key: value for key, value in values.items() if value is not None}
        with self.batch(), self._faults():
            if len(kept) < len(values):
                gone = ((key,) for key in values if key not in kept)
                self._db.executemany("DELETE FROM rows WHERE key = ?", gone)
            if kept:
                rows = [(k, crc32(v, crc32(k.encode())), v) for k, v in kept.items()]
                self._db.executemany("INSERT OR REPLACE INTO rows VALUES (?, ?, ?)", rows)
                self.size += sum(map(len, kept.values()))

    def get(self, key: str) -> bytes | None:
        """Return the value of a key, or None."""
        with self._faults():
            found = self._db.execute("SELECT * FROM rows WHERE key = ?", (key,)).fetchone()
        return None if found is None else self._check_row(*found)[1]

    def rows(self, *, expendable: tuple[str, ...] = ()) -> Iterator[tuple[str, bytes]]:
        """Yield all keys and their values, in the order of the keys.

        A damaged row is an error, unless its key begins with one of `expendable`: then it is set
        aside and reported.
        """
        prefixes = tuple(each.encode() for each in expendable)
        damaged: list[tuple[bytes, Any]] = []
        with self._faults():
            for key, checksum, value in self._db.execute("SELECT * FROM rows ORDER BY key"):
                if isinstance(key, bytes) and _is_whole(value, checksum, crc32(key)):
                    yield key.decode(), value
                elif isinstance(key, bytes) and prefixes and key.startswith(prefixes):
                    damaged.append((key, value))
                else:
                    raise self._damaged_row(key)
        for key, value in damaged:
            self._set_row_aside(key, value)

    def _set_row_aside(self, key: bytes, value: Any) -> None:
        self.set_aside(value if isinstance(value, bytes) else b"", f"the row {key!r} is damaged")
        with self.batch(), self._faults():
            self._db.execute("DELETE FROM rows WHERE CAST(key AS BLOB) = ?", (key,))

    def _check_row(self, key: Any, checksum: Any, value: Any) -> tuple[str, bytes]:
        if not (isinstance(key, bytes) and _is_whole(value, checksum, crc32(key))):
            raise self._damaged_row(key)
        return key.decode(), value

    def _damaged_row(self, key: Any) -> StateError:
        return self._damage(f"the row {key!r} is not as it was written")

    # --- opening -------------------------------------------------------------------------------

    def _open(self, synchronous: str) -> sqlite3.Connection:
        os.close(
            os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        )  # its errors are clearer than SQLite's
        db = sqlite3.connect(self.path, isolation_level=None)
        try:
            db.text_factory = bytes
            self._check_kind(db)
            db.execute("PRAGMA journal_mode = WAL")
            db.execute(f"PRAGMA journal_size_limit = {_LARGEST_WAL}")
            db.execute(f"PRAGMA wal_autocheckpoint = {_PAGES_TO_WAIT}")
            db.execute(f"PRAGMA synchronous = {synchronous}")
            db.execute("PRAGMA secure_delete = OFF")
            self._report_lost_batches(db)
            if _read_pragma(db, "application_id") == 0:
                _create(db)
            self._check_damage(db)
        except BaseException:
            db.close()
            raise
        return db

    def _check_kind(self, db: sqlite3.Connection) -> None:
        whose, version = _read_pragma(db, "application_id"), _read_pragma(db, "user_version")
        (tables,) = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if whose != _OURS and (whose or tables):
            raise StateError(
                str(self.path), "is not a store of distributary", "choose another folder"
            )
        if tables and version != _FORMAT:
            raise StateError(
                str(self.path),
                f"was written by another version of distributary, in format {version}",
                "use that version, or start with an empty folder",
            )

    def _check_damage(self, db: sqlite3.Connection) -> None:
        tables = db.execute("SELECT sql FROM sqlite_schema ORDER BY name").fetchall()
        if tables != [(table.encode(),) for table in _TABLES]:
            raise self._damage(_DAMAGED_SCHEMA)
        found = _read_pragma(db, "quick_check(1)").decode(errors="replace")
        if found != "ok":
            raise self._damage(" ".join(found.split()))

    def _report_lost_batches(self, db: sqlite3.Connection) -> None:
        """Report batches in the WAL that SQLite ignores, because an earlier part is damaged."""
        _, used, _ = db.execute("PRAGMA wal_checkpoint").fetchone()
        wal = self.path.with_name(f"{self.path.name}-wal")
        lost = _count_batches(wal, used, _read_pragma(db, "page_size"))
        if lost:
            aside = wal.with_name(f"{wal.name}.set-aside")
            shutil.copyfile(wal, aside)
            batches = "1 batch" if lost == 1 else f"{lost:,} batches"
            self._report(f"the last changes, {batches}, are damaged or were cut short", aside)

    # --- faults --------------------------------------------------------------------------------

    def set_aside(self, data: bytes, reason: str) -> None:
        """Keep bytes that cannot be used in a file beside the store, and report why."""
        aside = self.path.with_name("state.set-aside")
        with self._faults():
            file = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            with open(file, "wb") as out:
                out.write(data)
        self._report(reason, aside)

    def _report(self, reason: str, aside: Path) -> None:
        self.reports.append(
            f"{self.path}: {reason}; kept in {aside.name} but ignored, so its changes are lost"
        )

    def _measure(self) -> int:
        pages = int(_read_pragma(self._db, "page_count")) - int(
            _read_pragma(self._db, "freelist_count")
        )
        return pages * int(_read_pragma(self._db, "page_size"))

    @contextmanager
    def _faults(self) -> Iterator[None]:
        """Turn errors of SQLite and the operating system into a `StateError` with a remedy."""
        try:
            yield
        except OSError as error:
            raise StateError.from_os(self.path, error) from error
        except UnicodeDecodeError as error:  # SQLite quotes damaged names in its messages
            raise self._damage(_DAMAGED_SCHEMA) from error
        except sqlite3.Error as error:
            kind = getattr(error, "sqlite_errorname", "").removeprefix("SQLITE_")
            if not kind.startswith(_OUTSIDE):
                raise self._damage(str(error)) from error
            full = kind == "FULL" or (kind.startswith("IOERR") and self._is_disk_full())
            reason = "no space left on device" if full else str(error)
            raise StateError(
                str(self.path),
                f"cannot be written: {reason}",
                "check the path, or choose another folder",
            ) from error

    def _is_disk_full(self) -> bool:
        disk = os.statvfs(self.path.parent)
        return disk.f_bavail * disk.f_frsize < _LITTLE

    def _damage(self, what: str) -> StateError:
        remedy = "restore it from a backup, or start with an empty folder"
        return StateError(str(self.path), f"is damaged ({what})", remedy)


def _read_pragma(db: sqlite3.Connection, pragma: str) -> Any:
    return db.execute(f"PRAGMA {pragma}").fetchone()[0]


def _create(db: sqlite3.Connection) -> None:
    db.execute("BEGIN")
    for table in _TABLES:
        db.execute(table)
    db.execute(f"PRAGMA application_id = {_OURS}")
    db.execute(f"PRAGMA user_version = {_FORMAT}")
    db.execute("COMMIT")


def _checksum(data: bytes, place: int) -> int:
    """The checksum of data and its place."""
    return crc32(data, place & 0xFFFFFFFF)


def _is_whole(data: Any, checksum: Any, place: int) -> bool:
    """Whether a row is as it was written; damage may change types too."""
    return isinstance(data, bytes) and checksum == _checksum(data, place)


def _count_batches(wal: Path, used: int, page: int) -> int:
    """Count the complete batches in a WAL after the frames that SQLite uses."""
    if not wal.exists():
        return 0
    frame, batches = _WAL_FRAME.size + page, 0
    with wal.open("rb") as file:
        head = file.read(_WAL_HEAD.size)
        if len(head) < _WAL_HEAD.size:
            return 0
        (mark,) = _WAL_HEAD.unpack(head)
        size = os.fstat(file.fileno()).st_size
        for at in range(_WAL_HEAD.size + max(used, 0) * frame, size - frame + 1, frame):
            file.seek(at)
            last, found = _WAL_FRAME.unpack(file.read(_WAL_FRAME.size))
            batches += last > 0 and found == mark
    return batches
