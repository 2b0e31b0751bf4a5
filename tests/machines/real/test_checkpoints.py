"""A write-ahead log that is emptied while others write."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from threading import Thread

from distributary.machines.real.checkpoints import Checkpoints
from distributary.machines.real.store import Store

PATIENCE = 240.0  # seconds that nothing here takes, on however slow a machine


def wait_until(path: Path, least: int) -> None:
    """Wait until a file, read alone, without its WAL, has at least that size."""
    until = time.monotonic() + PATIENCE
    while path.stat().st_size < least:
        assert time.monotonic() < until, f"{path} still has {path.stat().st_size:,} bytes"
        time.sleep(0.01)


def test_changes_reach_the_file_without_the_writer(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        before = store.path.stat().st_size
        for at in range(1_100):
            store.put(f"{at:04}", b"x" * 300)
        wait_until(store.path, before + 1_000 * 300)


def test_a_few_changes_need_no_thread(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        before = store.path.stat().st_size
        store.put("a", b"x" * 100_000)
        time.sleep(0.1)
        assert store.path.stat().st_size == before


def test_what_is_written_during_checkpoints_is_kept(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "state.db")
    with Store(tmp_path) as store:
        for at in range(3_000):
            checkpoints.ask()
            store.put(str(at % 700), b"%d" % at)
        rows = dict(store.rows())
    checkpoints.close()
    with Store(tmp_path) as store:
        assert dict(store.rows()) == rows
    assert rows == {str(at % 700): b"%d" % at for at in range(2_300, 3_000)}


def test_a_flush_waits_for_a_checkpoint_and_leaves_nothing_in_the_log(tmp_path: Path) -> None:
    wal = tmp_path / "state.db-wal"
    with Store(tmp_path) as store:
        store.put("a", b"1")
        asked = Thread(target=Checkpoints.ask, args=[store._checkpoints])
        asked.start()
        store.flush()
        asked.join()
        assert wal.stat().st_size == 0


def test_a_file_that_cannot_be_opened_is_left_to_the_writer(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "missing" / "state.db")
    checkpoints.ask()
    checkpoints.close()


def test_nothing_is_asked_of_closed_checkpoints(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "state.db")) as db:
        db.execute("CREATE TABLE t (a)")
    checkpoints = Checkpoints(tmp_path / "state.db")
    checkpoints.close()
    checkpoints.ask()
    checkpoints.close()
