"""Tables in buckets, against plain dictionaries: any rows, in any batches, merged at any time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.errors import InputError
from distributary.pipeline import buckets
from distributary.pipeline.buckets import BucketTable, TableFiles, TableKind
from distributary.pipeline.kept_tables import ACTIONS, IDS, SLOTS, keep_last_actions

Row = dict[str, Any]

LEAST, MOST = -(2**63), 2**63 - 1
# Few keys, so that rows meet and names share a key; also the ends of the range and of a bucket.
KEYS = st.sampled_from([LEAST, LEAST + 1, -(2**48) - 1, -(2**48), -1, 0, 1, 2**48, MOST - 1, MOST])
NAMES = st.sampled_from(["", "a", "b", "ü", "\x00", "a b"])
TIMES = st.integers(-2, 2) | st.sampled_from([-(2**52), 2**52])
ACTION_ROWS = st.fixed_dictionaries(
    {
        "key": KEYS,
        "receiver": st.sampled_from(["", "ü"]),
        "flow": st.sampled_from(["a", "\x00"]),
        "ts": st.sampled_from([0, 0, 0, 1, -(2**52), 2**52]),
        "on": st.booleans(),
        "file": st.none() | st.sampled_from(["a", "b", "ü"]),
        "block": st.none() | st.integers(0, 1),
        "line": st.none() | st.integers(-1, 1),
    }
)
SLOT_ROWS = st.fixed_dictionaries(
    {
        "key": KEYS,
        "flow": NAMES,
        "slot": TIMES,
        "messages": st.integers(1, 3) | st.just(2**53 + 1),
        "bytes": st.none() | st.integers(0, 9),
        "sized": st.integers(0, 3),
    }
)
ID_ROWS = st.fixed_dictionaries({"key": KEYS, "id": NAMES, "ts": TIMES})


@pytest.fixture(autouse=True, scope="module")
def small_slices() -> Iterator[None]:
    """So small that a few rows make many levels, files and slices."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"SMALLEST_RUN": 2, "SLICE_ROWS": 3, "READ_ROWS": 5}.items():
            patch.setattr(buckets, name, value)
        patch.setattr(buckets, "_ROW_GROUP", 2)
        yield


def as_table(kind: TableKind, rows: list[Row]) -> pa.Table:
    columns = {
        field.name: pa.array(
            [row[field.name] for row in rows],
            pa.int64() if pa.types.is_timestamp(field.type) else field.type,
        ).cast(field.type)
        for field in kind.schema
    }
    return pa.table(columns, schema=kind.schema)


def as_rows(table: pa.Table) -> list[Row]:
    for number, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            whole = table.column(number).cast(pa.int64())
            table = table.set_column(number, field.name, whole)
    rows: list[Row] = table.to_pylist()
    return rows


def fill(kind: TableKind, root: Path, batches: list[list[Row]], horizon: int | None) -> BucketTable:
    """The table after some batches, each time by way of its document."""
    table = BucketTable(kind, root)
    for number, rows in enumerate(batches):
        folder = root / f"{number}"
        folder.mkdir()
        table = table.append(as_table(kind, rows), folder)
        for merged in table.compact(len(rows), folder, horizon):
            table = merged
        document = json.loads(json.dumps(asdict(table.stored)))
        table = BucketTable(kind, root, TableFiles.from_document(document))
    return table


def read(table: BucketTable, horizon: int | None = None) -> list[Row]:
    return [row for part in table.read(horizon) for row in as_rows(part)]


def in_order(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: str(sorted(row.items(), key=str)))


def by_keys(rows: list[Row]) -> bool:
    keys = [row["key"] for row in rows]
    return keys == sorted(keys)


@st.composite
def batched(draw: st.DrawFn, rows: st.SearchStrategy[Row]) -> list[list[Row]]:
    """A key belongs to its names, but two names may have one key."""
    keys: dict[Any, int] = {}
    batches = draw(st.lists(st.lists(rows, max_size=12), max_size=12))
    for batch in batches:
        for row in batch:
            names = (row.get("receiver"), row.get("flow"), row.get("id"))
            row["key"] = keys.setdefault(names, row["key"])
    return batches


def plain_last(rows: list[Row]) -> dict[tuple[str, str], Row]:
    """The last action of each pair: by time and place, where no place comes first."""

    def when(row: Row) -> tuple[Any, ...]:
        place = [(row[name] is not None, row[name] or 0) for name in ("block", "line")]
        file = (row["file"] is not None, (row["file"] or "").encode())
        return (row["ts"], file, *place, row["on"])

    last: dict[tuple[str, str], Row] = {}
    for row in rows:
        known = last.get((row["receiver"], row["flow"]))
        if known is None or when(row) > when(known):
            last[row["receiver"], row["flow"]] = row
    return last


@given(batches=batched(ACTION_ROWS))
def test_last_actions_are_those_of_a_dictionary(batches: list[list[Row]]) -> None:
    expected = plain_last([row for batch in batches for row in batch])
    with TemporaryDirectory() as folder:
        table = fill(ACTIONS, Path(folder), batches, None)
        kept = read(table)
        assert by_keys(kept)
        assert in_order(kept) == in_order(list(expected.values()))
        pairs = list(expected)[::2]
        found = table.find(np.array([expected[pair]["key"] for pair in pairs], np.int64))
        last = plain_last(as_rows(found))
        assert {pair: last[pair] for pair in pairs} == {pair: expected[pair] for pair in pairs}


@given(rows=st.lists(ACTION_ROWS, max_size=40))
def test_of_any_rows_the_last_actions_are_kept(rows: list[Row]) -> None:
    keys: dict[Any, int] = {}
    for row in rows:
        row["key"] = keys.setdefault((row["receiver"], row["flow"]), row["key"])
    kept = as_rows(keep_last_actions(as_table(ACTIONS, rows)))
    assert by_keys(kept)
    assert in_order(kept) == in_order(list(plain_last(rows).values()))


@given(batches=batched(SLOT_ROWS), horizon=st.none() | TIMES)
def test_slots_are_added_like_in_a_dictionary(
    batches: list[list[Row]], horizon: int | None
) -> None:
    sums: dict[tuple[str, int], Row] = {}
    for row in (row for batch in batches for row in batch):
        if horizon is not None and row["slot"] < horizon:
            continue
        total = sums.setdefault(
            (row["flow"], row["slot"]), {**row, "messages": 0, "bytes": None, "sized": 0}
        )
        for name in ("messages", "bytes", "sized"):
            if row[name] is not None:
                total[name] = (total[name] or 0) + row[name]
    with TemporaryDirectory() as folder:
        kept = read(fill(SLOTS, Path(folder), batches, horizon), horizon)
    assert by_keys(kept)
    assert in_order(kept) == in_order(list(sums.values()))


@given(batches=batched(ID_ROWS), horizon=st.none() | TIMES)
def test_ids_are_kept_until_they_expire(batches: list[list[Row]], horizon: int | None) -> None:
    latest: dict[str, Row] = {}
    for row in (row for batch in batches for row in batch):
        if horizon is None or row["ts"] >= horizon:
            latest[row["id"]] = max(latest.get(row["id"], row), row, key=lambda one: one["ts"])
    with TemporaryDirectory() as folder:
        kept = read(fill(IDS, Path(folder), batches, horizon), horizon)
    assert in_order(kept) == in_order(list(latest.values()))


def spread_rows(numbers: Iterator[int], length: int) -> list[Row]:
    """Actions of pairs that no earlier call had, with keys all over the range."""
    rows = []
    for number in (next(numbers) for _ in range(length)):
        key = (number * 0x9E3779B97F4A7C15) % 2**64 - 2**63
        pair = {"key": key, "receiver": f"r{number}", "flow": "f", "ts": number, "on": True}
        rows.append({**pair, "file": "log", "block": 0, "line": number})
    return rows


def test_files_and_work_stay_bounded_while_a_table_grows(tmp_path: Path) -> None:
    table, numbers, written = BucketTable(ACTIONS, tmp_path), count(), 0
    slices = []
    for batch in range(300):
        folder = tmp_path / f"{batch}"
        folder.mkdir()
        table = table.append(as_table(ACTIONS, spread_rows(numbers, 2)), folder)
        steps = list(table.compact(2, folder))
        table, levels = steps[-1], buckets._level(table.stored.rows) + 1
        slices.append(len(steps))
        runs = {file.run for file in table.stored.files}
        assert len(runs) <= 3 * buckets.FAN * levels
        assert len(table.stored.files) <= table.stored.rows + len(runs)
        written += sum(1 for _ in folder.iterdir())
    assert table.stored.rows == 600
    assert max(slices) < 60  # all of it would be 200 slices
    assert written < 300 * 8


def test_expired_files_go_without_being_read(tmp_path: Path) -> None:
    rows = [{"key": 1, "id": "a", "ts": ts} for ts in (1, 5)]
    table = BucketTable(IDS, tmp_path)
    for row in rows:
        folder = tmp_path / str(row["ts"])
        folder.mkdir()
        table = table.append(as_table(IDS, [row]), folder)
    (tmp_path / table.stored.files[0].path).unlink()
    (table,) = table.compact(1, tmp_path, horizon=2)
    assert read(table) == [rows[1]]


@pytest.mark.parametrize("damage", ["emptied", "cut", "one bit of a key"])
def test_a_damaged_file_is_named_in_one_line(damage: str, tmp_path: Path) -> None:
    table = fill(ACTIONS, tmp_path, [spread_rows(count(), 6)], None)
    path = table.paths[-1]
    stored = bytearray(path.read_bytes())
    if damage == "one bit of a key":
        keys = pq.read_metadata(path).row_group(0).column(0)
        stored[keys.data_page_offset + keys.total_compressed_size - 1] ^= 1
    path.write_bytes({"emptied": b"", "cut": stored[:-9]}.get(damage, stored))
    with pytest.raises(InputError) as caught:
        read(table)
    line = str(caught.value)
    assert line.startswith(f"{path}: cannot be read")
    assert "restore" in line
    assert "\n" not in line
