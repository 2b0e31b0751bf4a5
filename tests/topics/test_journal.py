"""The journal of a former version becomes the log of a store, once."""

from __future__ import annotations

from pathlib import Path
from struct import pack
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributary.errors import StateError
from distributary.machines.real.store import Store
from distributary.topics.codec import Create, Put
from distributary.topics.journal import take_over_journal
from tests.topics.hosting import StoredHost

RECORDS = [b"one", b"", b"three" * 40, b"\x00" * 20]
START, HEAD = len(b"distributary journal 2\n"), 12


def write(folder: Path, records: list[bytes]) -> bytes:
    """A journal as the former version wrote it."""
    whole = b"distributary journal 2\n"
    for record in records:
        head = pack("<II", len(record), crc32(record))
        whole += head + pack("<I", crc32(head)) + record
    (folder / "journal").write_bytes(whole)
    return whole


def take_over(folder: Path) -> tuple[list[bytes], list[str]]:
    with Store(folder) as store:
        take_over_journal(store)
        return list(store.read()), store.reports


@settings(max_examples=15)  # each waits for the disk several times
@given(records=st.lists(st.binary(max_size=9_000), max_size=20))
def test_all_records_are_taken_over_once(
    records: list[bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("journal")
    write(folder, records)
    (folder / ".journal.tmp").write_bytes(b"a shorter one that was never finished")
    for _ in range(2):
        assert take_over(folder) == (records, [])
        assert sorted(path.name for path in folder.iterdir()) == ["lock", "state.db"]


def test_a_host_goes_on_where_a_former_version_was(tmp_path: Path) -> None:
    with Store(tmp_path / "new") as store:
        host = StoredHost(store)
        host.perform(host.start(1.0))
        host.take("p", "topic/t", Create(1.0), 1.0)
        host.take("p", "topic/t", Put(1, 1, b"event"), 1.0)
        records = list(store.read())
    (tmp_path / "old").mkdir()
    write(tmp_path / "old", records)
    with Store(tmp_path / "old") as store:
        assert StoredHost(store).state == host.state


@pytest.mark.parametrize("name", ["put", "flush", "unlink"])
def test_a_crash_on_the_way_loses_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise KeyboardInterrupt

    write(tmp_path, RECORDS)
    with Store(tmp_path) as store, monkeypatch.context() as patch:
        patch.setattr(Path if name == "unlink" else Store, name, die)
        with pytest.raises(KeyboardInterrupt):
            take_over_journal(store)
    assert (tmp_path / "journal").exists()
    assert take_over(tmp_path) == (RECORDS, [])
    assert not (tmp_path / "journal").exists()


def test_a_journal_beside_a_newer_state_is_an_error(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.append([b"newer"])
    write(tmp_path, RECORDS)
    with pytest.raises(StateError, match=r"journal: is the state of a former .* out of date"):
        take_over(tmp_path)
    assert (tmp_path / "journal").exists()


def test_a_tail_torn_at_any_byte_is_left_out_without_a_report(tmp_path: Path) -> None:
    records = [b"one", b"", b"\x00" * 5]
    whole = write(tmp_path, records)
    with Store(tmp_path) as store:
        for size in range(len(whole)):
            (tmp_path / "journal").write_bytes(whole[:size])
            take_over_journal(store)
            found = list(store.read())
            assert found == records[: len(found)]
            assert len(found) < len(records)
            store.replace([])
        assert store.reports == []


@settings(max_examples=15)  # each waits for the disk several times
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
    found, (report,) = take_over(folder)
    assert found == [b"first"]
    assert f"the last record of the journal, {len(last):,} bytes, is damaged" in report
    assert (folder / "state.set-aside").read_bytes() == whole[start - HEAD :]
    assert take_over(folder) == ([b"first"], [])


@settings(max_examples=15)  # each waits for the disk several times
@given(at=st.integers(0, 1_000), bit=st.integers(0, 7))
def test_a_bit_flip_elsewhere_is_an_error_and_the_journal_stays(
    at: int, bit: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("journal")
    whole = bytearray(write(folder, [b"first record, long enough", b"a", b"last"]))
    whole[START + at % (len(whole) - START - len(b"last"))] ^= 1 << bit
    (folder / "journal").write_bytes(whole)
    for _ in range(2):
        with pytest.raises(StateError, match="journal: is damaged at byte"):
            take_over(folder)
        assert (folder / "journal").read_bytes() == whole


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (b"distributary journal 1\nrecords", "another version"),
        (b"something of somebody else's, and dear to them", "not a journal"),
    ],
)
def test_another_file_is_not_taken_for_a_journal(tmp_path: Path, found: bytes, said: str) -> None:
    (tmp_path / "journal").write_bytes(found)
    with pytest.raises(StateError, match=said):
        take_over(tmp_path)
    assert (tmp_path / "journal").read_bytes() == found
