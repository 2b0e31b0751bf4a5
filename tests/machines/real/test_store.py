"""Rows and records that outlive whoever wrote them."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from distributary.errors import StateError
from distributary.machines.real.store import Store

RECORDS = [b"one", b"", b"three" * 40, b"\x00" * 20]
KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
CHANGES = st.one_of(
    st.tuples(st.just("append"), st.lists(st.binary(max_size=9_000), max_size=3)),
    st.tuples(st.just("replace"), st.lists(st.binary(max_size=50), max_size=3)),
    st.tuples(st.just("put"), KEYS, st.binary(max_size=9_000)),
    st.tuples(st.just("remove"), KEYS),
)


def write(folder: Path, *batches: list[bytes]) -> None:
    with Store(folder) as store:
        for batch in batches:
            store.append(batch)


def read(folder: Path) -> list[bytes]:
    with Store(folder) as store:
        return list(store.read())


def copy_files(folder: Path, copy: Path) -> Path:
    """What a process leaves that dies now: the file, and the WAL with what is not in it yet."""
    copy.mkdir()
    for name in ("state.db", "state.db-wal"):
        shutil.copyfile(folder / name, copy / name)
    return copy


def flip(path: Path, at: int, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << bit
    path.write_bytes(data)


# --- what is kept --------------------------------------------------------------------------------


class Model:
    """What a store does, with a list and a dictionary."""

    def __init__(self) -> None:
        self.log: list[bytes] = []
        self.rows: dict[str, bytes] = {}

    def change(self, kind: str, *values: Any) -> None:
        match kind:
            case "append":
                self.log += values[0]
            case "replace":
                self.log = values[0]
            case "put":
                self.rows[values[0]] = values[1]
            case "remove":
                self.rows.pop(values[0], None)


@settings(max_examples=20)  # each waits for the disk several times
@given(batches=st.lists(st.tuples(st.lists(CHANGES, max_size=4), st.booleans()), max_size=6))
def test_a_store_keeps_whole_batches_and_nothing_of_one_that_fails(
    batches: list[tuple[list[Any], bool]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("store")
    model = Model()
    with Store(folder) as store:
        for changes, fails in batches:
            try:
                with store.batch():
                    for kind, *values in changes:
                        getattr(store, kind)(*values)
                    1 / (not fails)
            except ZeroDivisionError:
                continue
            for kind, *values in changes:
                model.change(kind, *values)
        killed = copy_files(folder, folder / "killed")
    for place in (folder, killed):
        with Store(place) as store:
            assert list(store.read()) == model.log
            assert dict(store.rows()) == model.rows
            assert all(store.get(key) == value for key, value in model.rows.items())
            assert store.get("none of these") is None
            assert store.is_empty == (not model.log)
            assert store.reports == []
            store.append([b"more"])
        assert read(place) == [*model.log, b"more"]


def test_an_iterator_that_fails_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    def fail() -> Any:
        yield b"new"
        raise OSError("of another disk")

    with Store(tmp_path) as store:
        store.append(RECORDS)
        size = store.size
        with pytest.raises(StateError):
            store.replace(fail())
        assert store.size == size
        store.append([b"more"])
    assert read(tmp_path) == [*RECORDS, b"more"]


def test_a_shorter_log_makes_room_for_what_follows(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        for _ in range(5):
            store.append([bytes(100_000)] * 10)
            assert store.size > 1_000_000
            store.replace([b"all of it"])
            assert store.size < 100_000
        store.flush()
        assert store.path.stat().st_size < 2_000_000
    assert read(tmp_path) == [b"all of it"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lock", "state.db"]


def test_the_size_is_the_same_after_a_restart(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.append([bytes(1_000)] * 1_000)
        size = store.size
    with Store(tmp_path) as store:
        assert store.size == pytest.approx(size, rel=0.3)


def test_a_store_can_be_copied_by_sqlite_while_it_is_open(tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    with Store(tmp_path / "state") as store:
        store.append(RECORDS)
        with (
            sqlite3.connect(store.path) as source,
            sqlite3.connect(tmp_path / "copy/state.db") as copy,
        ):
            source.backup(copy)
        copy.close()
        source.close()
        store.append([b"later"])
    assert read(tmp_path / "copy") == RECORDS


@pytest.mark.parametrize("sync", [False, True])
def test_sync_decides_whether_a_batch_waits_for_the_disk(tmp_path: Path, sync: bool) -> None:
    with Store(tmp_path, sync=sync) as store:
        (found,) = store._db.execute("PRAGMA synchronous").fetchone()
        assert found == (2 if sync else 1)  # FULL, NORMAL


# --- crashes and damage --------------------------------------------------------------------------


def test_a_wal_torn_at_any_byte_loses_whole_batches_from_the_end(tmp_path: Path) -> None:
    with Store(tmp_path / "state") as store:
        for record in RECORDS:
            store.append([record, record])
        copy = copy_files(store.path.parent, tmp_path / "copy")
    whole = (copy / "state.db-wal").read_bytes()
    found = []
    for size in [*range(0, len(whole), 509), len(whole) - 1, len(whole)]:
        torn = tmp_path / "torn"
        torn.mkdir()
        shutil.copyfile(copy / "state.db", torn / "state.db")
        (torn / "state.db-wal").write_bytes(whole[:size])
        with Store(torn) as store:
            found.append(list(store.read()))
            assert store.reports == []
            store.append([b"new"])
        assert read(torn) == [*found[-1], b"new"]
        shutil.rmtree(torn)
    twice = [record for record in RECORDS for _ in range(2)]
    assert all(each == twice[: len(each)] and len(each) % 2 == 0 for each in found)
    assert sorted(found, key=len) == found
    assert (found[0], found[-1]) == ([], twice)


FLIPS = st.lists(st.tuples(st.integers(0, 1_000_000), st.integers(0, 7)), max_size=10)


@settings(max_examples=20)  # each waits for the disk several times
@example(
    places=[(place, bit) for place in (3_972, 4_082, 12_554) for bit in range(8)]
)  # schema, a type
@given(places=FLIPS)
def test_a_bit_flip_in_the_file_is_never_silent(
    places: list[tuple[int, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("store")
    rows = {f"key {n}": b"value" * 10 for n in range(20)}
    records = [b"%d" % n * 20 for n in range(100)]
    with Store(folder) as store:
        store.append(records)
        for row in rows.items():
            store.put(*row)
    path = folder / "state.db"
    whole = path.read_bytes()
    for at, bit in places:
        path.write_bytes(whole)
        flip(path, at % len(whole), bit)
        with suppress(StateError), Store(folder) as store:
            found = list(store.read())
            assert found == (records[:-1] if store.reports else records)
            assert dict(store.rows()) == rows


@settings(max_examples=20)  # each waits for the disk several times
@given(at=st.integers(0, 1_000_000), bit=st.integers(0, 7))
def test_a_bit_flip_in_the_wal_is_never_silent(
    at: int, bit: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("store")
    with Store(folder / "state") as store:
        for number in range(6):
            store.append([b"%d" % number * 2_000])
        records = list(store.read())
        killed = copy_files(folder / "state", folder / "killed")
    wal = killed / "state.db-wal"
    at %= wal.stat().st_size
    flip(wal, at, bit)
    whole = wal.read_bytes()
    with Store(killed) as store:
        found = list(store.read())
        assert found == records[: len(found)]
        # The head's 8 bytes that mark frames, and 24 bytes of the last frame, tell torn from whole.
        if 16 <= at < 24 or at >= len(whole) - 4_096 - 24:
            return
        assert len(store.reports) == (found != records)
        store.append([b"new"])
    if found != records:
        assert (killed / "state.db-wal.set-aside").read_bytes() == whole
    with Store(killed) as store:
        assert list(store.read()) == [*found, b"new"]
        assert store.reports == []


def change_record(folder: Path, number: int) -> None:
    db = sqlite3.connect(folder / "state.db")
    with db:
        db.execute("UPDATE log SET record = x'00ff' WHERE number = ?", (number,))
    db.close()


def test_a_damaged_last_record_is_set_aside_and_reported_once(tmp_path: Path) -> None:
    write(tmp_path, RECORDS)
    change_record(tmp_path, len(RECORDS))
    with Store(tmp_path) as store:
        assert list(store.read()) == RECORDS[:-1]
        (report,) = store.reports
        assert "state.db: the last record of the log, number 4, is damaged; kept in" in report
        store.append([b"new"])
    assert (tmp_path / "state.set-aside").read_bytes() == b"\x00\xff"
    with Store(tmp_path) as store:
        assert list(store.read()) == [*RECORDS[:-1], b"new"]
        assert store.reports == []


@pytest.mark.parametrize("change", ["UPDATE log SET record = x'00'", "DELETE FROM log"])
def test_damage_before_the_last_record_is_an_error(tmp_path: Path, change: str) -> None:
    write(tmp_path, RECORDS)
    db = sqlite3.connect(tmp_path / "state.db")
    with db:
        db.execute(f"{change} WHERE number = 2")
    db.close()
    with pytest.raises(
        StateError, match=r"record 2 .* restore it from a backup, or start with an empty folder"
    ):
        read(tmp_path)


def test_a_damaged_row_is_an_error(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.put("key", b"value")
        store._db.execute("UPDATE rows SET value = x'00'")
        with pytest.raises(StateError, match="the row b'key' is not as it was written"):
            store.get("key")
        with pytest.raises(StateError, match="the row b'key' is not as it was written"):
            list(store.rows())


# --- places --------------------------------------------------------------------------------------


def test_a_full_disk_is_reported_and_nothing_is_half_written(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.append(RECORDS)
        (pages,) = store._db.execute("PRAGMA page_count").fetchone()
        store._db.execute(f"PRAGMA max_page_count = {pages + 1}")  # SQLite says the same of a disk
        with pytest.raises(StateError, match="cannot be written: no space left on device; check"):
            store.append([b"a little", bytes(100_000)])
        store.append([b"there is room again"])
    assert read(tmp_path) == [*RECORDS, b"there is room again"]


def test_a_store_of_another_version_is_refused(tmp_path: Path) -> None:
    write(tmp_path, RECORDS)
    db = sqlite3.connect(tmp_path / "state.db")
    db.execute("PRAGMA user_version = 9")
    db.close()
    with pytest.raises(
        StateError, match=r"another version of distributary, in format 9; use that version"
    ):
        Store(tmp_path)


def test_a_database_of_somebody_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE log (of INTEGER, somebody TEXT)")
    db.close()
    before = path.read_bytes()
    with pytest.raises(StateError, match="is not a store of distributary; choose another folder"):
        Store(tmp_path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("found", [b"something of somebody else's, and dear to them", b"x" * 9_000])
def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path, found: bytes) -> None:
    (tmp_path / "state.db").write_bytes(found)
    with pytest.raises(StateError, match="file is not a database"):
        Store(tmp_path)
    assert (tmp_path / "state.db").read_bytes() == found


def test_a_folder_is_for_one_at_a_time(tmp_path: Path) -> None:
    with Store(tmp_path), pytest.raises(StateError, match="another process"):
        Store(tmp_path)
    with Store(tmp_path):
        pass


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match="cannot be written"):
        Store(tmp_path / "file")
