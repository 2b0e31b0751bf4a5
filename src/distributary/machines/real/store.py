"""The durable state of one process: keyed rows and a log of records, in an SQLite file.

The file is in WAL mode: SQLite appends every change to a second file, the WAL, and moves it into
the first one later. Two things are added here that SQLite does not do: each row has a checksum, and
changes that SQLite drops because the WAL is damaged are reported.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from struct import Struct
from types import TracebackType
from typing import Any, Self
from zlib import crc32

from distributary.errors import StateError
from distributary.machines.real.folder_lock import take_lock

__all__ = ["Store"]

_OURS = int.from_bytes(b"dstr")  # SQLite keeps it in the head of the file
_FORMAT = 1
_TABLES = (
    "CREATE TABLE log (number INTEGER PRIMARY KEY, checksum INTEGER, record BLOB)",
    "CREATE TABLE rows (key TEXT PRIMARY KEY, checksum INTEGER, value BLOB) WITHOUT ROWID",
)
_LARGEST_WAL = 1 << 24  # bytes; a longer one is cut once its changes were moved
_WAL_HEAD = Struct(">16x8s8x")  # the mark of all frames in use
_WAL_FRAME = Struct(">4xI8s8x")  # not 0 in the last frame of a batch; the mark. A page follows
_DAMAGED_SCHEMA = "its schema is not as it was written"
_LITTLE = 1 << 16  # bytes: a disk with less space is full
_OUTSIDE = ("BUSY", "CANTOPEN", "FULL", "IOERR", "LOCKED", "NOMEM", "PERM", "READONLY")


class Store:
    """Keyed rows and a log in a folder, for one process at a time.

    A change is durable once the batch that it belongs to has ended. With `sync` it then survives a
    loss of power, and every batch waits for the disk; without, it survives the death of the
    process, and a loss of power may take the last batches. `size` is about how many bytes are in
    use, and `reports` says what could not be read.
    """

    def __init__(self, folder: Path, *, sync: bool = False) -> None:
        self.path = folder / "state.db"
        self.reports: list[str] = []
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let others have the folder."""
        if self._lock >= 0:
            with suppress(AttributeError, sqlite3.Error):
                self._db.close()
            os.close(self._lock)
            self._lock = -1

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Make all changes of the block durable when it ends, or none of them if it fails.

        A batch within another is a part of that one.
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
        except BaseException:
            self._next, self.size = before
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def flush(self) -> None:
        """Wait until the disk has all that was written, with or without `sync`."""
        with self._faults():
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)  # the names of the files
            finally:
                os.close(folder)

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
        """Let these records take the place of the whole log."""
        with self.batch(), self._faults():
            self._db.execute("DELETE FROM log")
            self._next = 1
            self._insert(records)
            self.size = self._measure()

    def read(self) -> Iterator[bytes]:
        """The log from its first record on; one record at a time is in memory.

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
            yield self._next, _check(record, self._next), record
            self._next += 1
            self.size += len(record)

    # --- keyed rows ----------------------------------------------------------------------------

    def put(self, key: str, value: bytes) -> None:
        """Let a key have a value, instead of the one that it has."""
        with self.batch(), self._faults():
            row = (key, _check(value, crc32(key.encode())), value)
            self._db.execute("INSERT OR REPLACE INTO rows VALUES (?, ?, ?)", row)
            self.size += len(value)

    def remove(self, key: str) -> None:
        """Forget a key, if it is there."""
        with self.batch(), self._faults():
            self._db.execute("DELETE FROM rows WHERE key = ?", (key,))

    def get(self, key: str) -> bytes | None:
        """The value of a key, or None."""
        with self._faults():
            found = self._db.execute("SELECT * FROM rows WHERE key = ?", (key,)).fetchone()
        return None if found is None else self._check_row(*found)[1]

    def rows(self) -> Iterator[tuple[str, bytes]]:
        """All keys and their values, in the order of the keys."""
        with self._faults():
            for row in self._db.execute("SELECT * FROM rows ORDER BY key"):
                yield self._check_row(*row)

    def _check_row(self, key: Any, checksum: Any, value: Any) -> tuple[str, bytes]:
        if not (isinstance(key, bytes) and _is_whole(value, checksum, crc32(key))):
            raise self._damage(f"the row {key!r} is not as it was written")
        return key.decode(), value

    # --- opening -------------------------------------------------------------------------------

    def _open(self, synchronous: str) -> sqlite3.Connection:
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))  # its errors are clearer
        db = sqlite3.connect(self.path, isolation_level=None)
        try:
            db.text_factory = bytes
            self._check_kind(db)
            db.execute("PRAGMA journal_mode = WAL")
            db.execute(f"PRAGMA journal_size_limit = {_LARGEST_WAL}")
            db.execute(f"PRAGMA synchronous = {synchronous}")
            db.execute("PRAGMA secure_delete = OFF")
            self._report_lost_batches(db)
            if _ask(db, "application_id") == 0:
                _create(db)
            self._check_damage(db)
        except BaseException:
            db.close()
            raise
        return db

    def _check_kind(self, db: sqlite3.Connection) -> None:
        whose, version = _ask(db, "application_id"), _ask(db, "user_version")
        (tables,) = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if whose != _OURS and (whose or tables):
            raise StateError(str(self.path), "is not a store of ours", "name another folder")
        if tables and version != _FORMAT:
            raise StateError(
                str(self.path),
                f"was written by another version, in format {version}",
                "use that version, or start anew",
            )

    def _check_damage(self, db: sqlite3.Connection) -> None:
        tables = db.execute("SELECT sql FROM sqlite_schema ORDER BY name").fetchall()
        if tables != [(table.encode(),) for table in _TABLES]:
            raise self._damage(_DAMAGED_SCHEMA)
        found = _ask(db, "quick_check(1)").decode(errors="replace")
        if found != "ok":
            raise self._damage(" ".join(found.split()))

    def _report_lost_batches(self, db: sqlite3.Connection) -> None:
        """Report batches in the WAL that SQLite leaves out, since something before is damaged."""
        _, used, _ = db.execute("PRAGMA wal_checkpoint").fetchone()
        wal = self.path.with_name(f"{self.path.name}-wal")
        lost = _count_batches(wal, used, _ask(db, "page_size"))
        if lost:
            aside = wal.with_name(f"{wal.name}.set-aside")
            shutil.copyfile(wal, aside)
            batches = "1 batch" if lost == 1 else f"{lost:,} batches"
            self._report(f"the last changes, {batches}, are damaged or were cut short", aside)

    # --- what goes wrong -----------------------------------------------------------------------

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
            f"{self.path}: {reason}; kept in {aside.name} and left out, and what it changed is lost"
        )

    def _measure(self) -> int:
        pages = int(_ask(self._db, "page_count")) - int(_ask(self._db, "freelist_count"))
        return pages * int(_ask(self._db, "page_size"))

    @contextmanager
    def _faults(self) -> Iterator[None]:
        """Raise what SQLite and the operating system say as an error that says what to do."""
        try:
            yield
        except OSError as error:
            raise StateError.from_os(self.path, error) from error
        except UnicodeDecodeError as error:  # SQLite quotes names that are damaged
            raise self._damage(_DAMAGED_SCHEMA) from error
        except sqlite3.Error as error:
            kind = getattr(error, "sqlite_errorname", "").removeprefix("SQLITE_")
            if not kind.startswith(_OUTSIDE):
                raise self._damage(str(error)) from error
            full = kind == "FULL" or (kind.startswith("IOERR") and self._is_disk_full())
            said = "no space left on device" if full else str(error)
            raise StateError(
                str(self.path), f"cannot be written: {said}", "check the place, or name another"
            ) from error

    def _is_disk_full(self) -> bool:
        disk = os.statvfs(self.path.parent)
        return disk.f_bavail * disk.f_frsize < _LITTLE

    def _damage(self, what: str) -> StateError:
        remedy = "bring it back from a copy, or start anew"
        return StateError(str(self.path), f"is damaged ({what})", remedy)


def _ask(db: sqlite3.Connection, pragma: str) -> Any:
    return db.execute(f"PRAGMA {pragma}").fetchone()[0]


def _create(db: sqlite3.Connection) -> None:
    db.execute("BEGIN")
    for table in _TABLES:
        db.execute(table)
    db.execute(f"PRAGMA application_id = {_OURS}")
    db.execute(f"PRAGMA user_version = {_FORMAT}")
    db.execute("COMMIT")


def _check(data: bytes, place: int) -> int:
    """A checksum of data and its place."""
    return crc32(data, place & 0xFFFFFFFF)


def _is_whole(data: Any, checksum: Any, place: int) -> bool:
    """Whether a row is as it was written; damage changes types, too."""
    return isinstance(data, bytes) and checksum == _check(data, place)


def _count_batches(wal: Path, used: int, page: int) -> int:
    """How many whole batches there are in a WAL after the frames that SQLite uses."""
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
