"""Records that outlive whoever wrote them."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.errors import StateError
from distributary.topics.journal import Journal

RECORDS = [b"one", b"", b"three" * 40, b"\x00" * 20]


def written(folder: Path, *batches: list[bytes]) -> bytes:
    with Journal(folder) as journal:
        assert list(journal.read()) == []
        for batch in batches:
            journal.append(batch)
        assert journal.size == journal.path.stat().st_size
    return (folder / "journal").read_bytes()


def read(folder: Path) -> list[bytes]:
    with Journal(folder) as journal:
        return list(journal.read())


def test_what_was_appended_is_read(tmp_path: Path) -> None:
    written(tmp_path, RECORDS[:2], [], RECORDS[2:])
    assert read(tmp_path) == RECORDS


def test_a_tail_torn_at_any_byte_is_cut_off_and_written_over(tmp_path: Path) -> None:
    whole = written(tmp_path, RECORDS)
    for size in range(len(whole)):
        (tmp_path / "journal").write_bytes(whole[:size])
        with Journal(tmp_path) as journal:
            found = list(journal.read())
            assert found == RECORDS[: len(found)]
            assert len(found) < len(RECORDS)
            journal.append([b"new"])
        assert read(tmp_path) == [*found, b"new"]


@given(at=st.integers(0, 60), flip=st.integers(1, 255))
def test_damage_before_the_last_record_is_told(
    at: int, flip: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("journal")
    whole = bytearray(written(folder, [b"first record, long enough", b"a", b"b" * 300]))
    at = 23 + at % 37  # in the first record, or in what says how long it is
    whole[at] ^= flip
    (folder / "journal").write_bytes(whole)
    with pytest.raises(StateError, match="damaged at byte 23"):
        read(folder)


def test_a_journal_of_another_version_is_told(tmp_path: Path) -> None:
    (tmp_path / "journal").write_bytes(b"distributary journal 1\nrecords")
    with pytest.raises(StateError, match="another version"):
        read(tmp_path)


def test_a_disk_that_is_full_is_told_and_nothing_is_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, RECORDS)
    with Journal(tmp_path) as journal:
        assert list(journal.read()) == RECORDS

        def full(file: int, data: memoryview) -> int:
            monkeypatch.undo()
            os.write(file, data[:7])
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "write", full)
        with pytest.raises(StateError, match="no space left on device"):
            journal.append([b"too much"])
        journal.append([b"there is room again"])
    assert read(tmp_path) == [*RECORDS, b"there is room again"]


def test_another_file_is_not_taken_for_a_journal(tmp_path: Path) -> None:
    (tmp_path / "journal").write_bytes(b"something of somebody else's, and dear to them")
    with pytest.raises(StateError, match="not a journal"):
        read(tmp_path)


def test_a_shorter_journal_takes_the_place_of_a_longer_one(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        assert list(journal.read()) == []
        journal.append([b"x" * 100] * 10)
        journal.replace([b"all of it"])
        journal.append([b"more"])
        assert journal.size == journal.path.stat().st_size
    assert read(tmp_path) == [b"all of it", b"more"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["journal", "lock"]


def test_a_folder_is_for_one_at_a_time(tmp_path: Path) -> None:
    with Journal(tmp_path), pytest.raises(StateError, match="another process"):
        Journal(tmp_path)
    with Journal(tmp_path):
        pass


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match="cannot be written"):
        Journal(tmp_path / "file")
