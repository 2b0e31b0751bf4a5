from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from distributary.pipeline.plans import PlanTables
from distributary.pipeline.schemas import INTEREST, RATES
from distributary.pipeline.tables import (
    bucket_count,
    group_table,
    receiver_table,
    write_group_table,
    write_receiver_table,
)
from tests.pipeline.test_replay import Case, frame, tables

CASE = Case(
    placed={("x", 0), ("y", 0), ("y", 1), ("z", 2)},
    group_of={0: 0, 1: 0, 2: 1},
    subscribed={("a", 0), ("a", 2), ("b", 1), ("ü", 2)},
    alone={("b", "w"), ("b", "v")},
    wanted={("a", "x"), ("a", "z"), ("b", "y"), ("b", "w"), ("b", "v"), ("ü", "z")},
)
RATE = {"v": 16.0, "w": 8.0, "x": 4.0, "y": 2.0, "z": 1.0}


@pytest.fixture(scope="module")
def given(spark: SparkSession) -> tuple[PlanTables, DataFrame, DataFrame]:
    rates = [(flow, rate, None, None) for flow, rate in RATE.items()]
    return tables(spark, CASE), frame(spark, CASE.wanted, INTEREST), frame(spark, rates, RATES)


@pytest.fixture(scope="module")
def receivers(given: tuple[PlanTables, DataFrame, DataFrame]) -> DataFrame:
    return receiver_table(*given).persist()


def values(table: Any) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


def receiver_rows(path: Path, receiver: str, buckets: int) -> Any:
    """One receiver's rows, read from the one bucket that its name's CRC-32 selects."""
    folder = path / f"bucket={zlib.crc32(receiver.encode()) % buckets:03d}-of-{buckets:03d}"
    found = folder if folder.is_dir() else path  # an empty bucket has no folder
    return ds.dataset(found, format="parquet").to_table(filter=ds.field("receiver") == receiver)


def group_rows(path: Path, group: int) -> Any:
    return ds.dataset(path / f"group={group}", format="parquet").to_table()


@pytest.mark.parametrize("buckets", [1, 5])
def test_one_receiver_is_read_back(receivers: DataFrame, tmp_path: Path, buckets: int) -> None:
    path = tmp_path / "receivers"
    write_receiver_table(receivers, path, buckets)
    assert values(receiver_rows(path, "a", buckets)) == [
        ("a", 0, 0, 1, 4.0, 6.0, 8.0),
        ("a", 2, 1, 1, 1.0, 1.0, 1.0),
    ]
    assert values(receiver_rows(path, "b", buckets)) == [
        ("b", 1, 0, 1, 2.0, 2.0, 8.0),
        ("b", None, None, 2, 24.0, 24.0, 24.0),
    ]
    assert values(receiver_rows(path, "ü", buckets)) == [("ü", 2, 1, 1, 1.0, 1.0, 1.0)]
    for stranger in ("q", "r", "s", "t"):
        assert values(receiver_rows(path, stranger, buckets)) == []
    assert all(folder.name.endswith(f"-of-00{buckets}") for folder in path.glob("bucket=*"))
    for folder in path.glob("bucket=*"):
        assert len(list(folder.glob("*.parquet"))) == 1


def test_one_group_is_read_back(
    given: tuple[PlanTables, DataFrame, DataFrame], tmp_path: Path
) -> None:
    write_group_table(group_table(*given), tmp_path / "groups")
    assert values(group_rows(tmp_path / "groups", 0)) == [
        (0, "x", 4.0, 1),
        (0, "y", 2.0, 1),
        (1, "y", 2.0, 1),
    ]
    assert values(group_rows(tmp_path / "groups", 1)) == [(2, "z", 1.0, 2)]
    assert not (tmp_path / "groups" / "group=2").exists()


def test_the_same_table_is_written_as_the_same_rows_in_the_same_folders(
    receivers: DataFrame, tmp_path: Path
) -> None:
    write_receiver_table(receivers, tmp_path / "one", 3)
    write_receiver_table(receivers.repartition(7), tmp_path / "other", 3)
    one, other = (
        {part.parent.name: values(pq.read_table(part)) for part in path.rglob("*.parquet")}
        for path in (tmp_path / "one", tmp_path / "other")
    )
    assert one == other


def test_larger_tables_have_more_buckets_within_reason() -> None:
    assert [bucket_count(rows) for rows in (0, 1, 250_000, 250_001, 10**12)] == [1, 1, 1, 2, 999]


def test_a_number_of_buckets_out_of_range_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="buckets must be 1 to 999"):
        write_receiver_table(None, tmp_path, 1000)  # type: ignore[arg-type]
