"""Moves the changes of an SQLite write-ahead log into its file, in a thread of its own."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from threading import Condition, Lock, Thread

__all__ = ["Checkpoints"]


class Checkpoints:
    """Checkpoints of one file, on request.

    A checkpoint waits for the disk, tens of milliseconds, and nobody who writes has to wait with
    it. One that fails is not reported: the writer makes its own when the log becomes too long, and
    sees the reason.
    """

    def __init__(self, path: Path) -> None:
        self.running = Lock()  # held during a checkpoint; SQLite refuses a second one
        self._path = path
        self._changed = Condition()
        self._is_asked = self._is_closed = False
        self._thread: Thread | None = None

    def ask(self) -> None:
        """Make a checkpoint soon."""
        with self._changed:
            self._is_asked = True
            self._changed.notify()
        if self._thread is None:
            self._thread = Thread(target=self._run, name="checkpoints", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Wait for a running checkpoint, and make no more."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        with suppress(sqlite3.Error), closing(sqlite3.connect(self._path)) as db:
            while self._wait():
                with self.running, suppress(sqlite3.Error):
                    db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()

    def _wait(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._is_asked or self._is_closed)
            self._is_asked = False
            return not self._is_closed
