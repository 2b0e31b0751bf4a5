"""A record whose bytes changed on the disk is told from one that was never written to its end."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.errors import StateError
from distributary.topics.journal import Journal

HEAD = 12


def write(folder: Path, records: list[bytes]) -> bytes:
    with Journal(folder) as journal:
        assert list(journal.read()) == []
        journal.append(records)
    return (folder / "journal").read_bytes()


@given(
    last=st.binary(min_size=1, max_size=300),
    at=st.integers(0, 10_000),
    bit=st.integers(0, 7),
    blank=st.sampled_from([0, 1, 4_096]),
)
def test_a_bit_flip_in_the_last_record_is_reported_and_its_bytes_are_kept(
    last: bytes, at: int, bit: int, blank: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("journal")
    whole = bytearray(write(folder, [b"first", last]))
    start = len(whole) - len(last)
    whole[start + at % len(last)] ^= 1 << bit
    (folder / "journal").write_bytes(whole + bytes(blank))
    with Journal(folder) as journal:
        assert list(journal.read()) == [b"first"]
        (report,) = journal.reports
        assert (
            f"the last record, {len(last):,} bytes at byte {start - HEAD:,}, is damaged" in report
        )
        journal.append([b"new"])
    assert (folder / "journal.set-aside").read_bytes() == whole[start - HEAD :]
    with Journal(folder) as journal:
        assert list(journal.read()) == [b"first", b"new"]
        assert journal.reports == []


@given(at=st.integers(0, HEAD - 1), bit=st.integers(0, 7))
def test_a_bit_flip_in_what_says_how_long_the_last_record_is_is_told(
    at: int, bit: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("journal")
    whole = bytearray(write(folder, [b"first", b"last"]))
    whole[len(whole) - len(b"last") - HEAD + at] ^= 1 << bit
    (folder / "journal").write_bytes(whole)
    with Journal(folder) as journal, pytest.raises(StateError, match="is damaged at byte"):
        list(journal.read())


def test_a_torn_write_is_cut_off_without_a_report(tmp_path: Path) -> None:
    whole = write(tmp_path, [b"first", b"last"])
    for size in range(len(whole) - len(b"last") - HEAD, len(whole)):
        (tmp_path / "journal").write_bytes(whole[:size])
        with Journal(tmp_path) as journal:
            assert list(journal.read()) == [b"first"]
            assert journal.reports == []
    assert not (tmp_path / "journal.set-aside").exists()
