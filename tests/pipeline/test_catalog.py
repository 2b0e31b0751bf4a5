"""Output as tables of Spark's catalog: each as a whole, old or new, and never somebody else's."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from distributary.errors import OutputError
from distributary.pipeline.catalog import CatalogTables
from distributary.pipeline.versions import new_run_id

from .object_store import ObjectStore

NAMES = ("interest", "rates")


@pytest.fixture
def database(spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    name = f"db_{uuid4().hex[:8]}"
    spark.sql(f"CREATE DATABASE {name} LOCATION '{tmp_path}/warehouse'")
    yield name
    spark.sql(f"DROP DATABASE {name} CASCADE")


def rows(spark: SparkSession, number: int) -> DataFrame:
    return spark.range(number).select(F.col("id").alias("flow"), F.lit(number).alias("rate"))


def write(
    spark: SparkSession, database: str, number: int, run: str = "", broken: DataFrame | None = None
) -> str:
    """A run that writes as many rows to both tables, or is broken at the second one."""
    run = run or new_run_id()
    tables = CatalogTables(spark, f"{database}.floor", NAMES)
    second = rows(spark, number) if broken is None else broken
    tables.write({"interest": rows(spark, number), "rates": second}, run)
    return run


def look(spark: SparkSession, database: str, name: str) -> tuple[int, set[str]]:
    """The number that all rows of a table say that it has, and the runs that they are of."""
    found = spark.table(f"{database}.floor_{name}").collect()
    assert {row["rate"] for row in found} == {len(found)}
    return len(found), {row["run"] for row in found}


def folders(tmp_path: Path, name: str) -> set[str]:
    return {path.name for path in (tmp_path / "warehouse" / f"floor_{name}").iterdir()}


def test_a_table_is_replaced_and_readers_of_the_one_before_go_on(
    spark: SparkSession, database: str, tmp_path: Path
) -> None:
    runs = []
    for number in (3, 5, 7):
        reader = spark.table(f"{database}.floor_rates") if runs else None
        runs.append(write(spark, database, number))
        for name in NAMES:
            assert look(spark, database, name) == (number, {runs[-1]})
            assert folders(tmp_path, name) == set(runs[-2:])
        if reader is not None:
            assert reader.count() == number - 2
    properties = spark.sql(f"SHOW TBLPROPERTIES {database}.floor_rates").collect()
    assert ("distributary.run", runs[-1]) in [tuple(row) for row in properties]


def test_a_run_that_fails_midway_says_which_tables_it_replaced(
    spark: SparkSession, database: str, tmp_path: Path
) -> None:
    first = write(spark, database, 3)
    broken = rows(spark, 5).withColumn(
        "rate", F.when(F.col("flow") == 4, F.raise_error(F.lit("lost"))).otherwise(F.col("rate"))
    )
    with pytest.raises(OutputError, match=r"floor_rates: cannot be written: .*lost.*") as caught:
        write(spark, database, 5, broken=broken)
    assert str(caught.value).endswith(
        f"spark_catalog.{database}.floor_interest have the rows of this run"
    )
    assert "\n" not in str(caught.value)
    assert look(spark, database, "interest")[0] == 5
    assert look(spark, database, "rates") == (3, {first})
    assert folders(tmp_path, "rates") == {first}
    write(spark, database, 6)
    assert {look(spark, database, name)[0] for name in NAMES} == {6}


def test_an_interrupted_run_leaves_nothing(
    spark: SparkSession, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = write(spark, database, 3)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(CatalogTables, "_set_location", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write(spark, database, 5)
    for name in NAMES:
        assert look(spark, database, name) == (3, {first})
        assert folders(tmp_path, name) == {first}


def test_a_table_is_old_or_new_wherever_its_run_is_killed(
    spark: SparkSession, store: ObjectStore, tmp_path: Path
) -> None:
    database = f"db_{uuid4().hex[:8]}"
    spark.sql(f"CREATE DATABASE {database} LOCATION 'objects:{tmp_path}/warehouse'")
    try:
        before = store.changes
        write(spark, database, 2)
        needed, found, seen = store.changes - before, (2, 2), set()
        # A later run also removes what is old.
        for number, changes in enumerate(range(0, needed + 15, 6), 3):
            with store.kill_after(changes), suppress(OutputError):
                write(spark, database, number)
            earlier, found = found, tuple(look(spark, database, name)[0] for name in NAMES)
            assert all(at in (number, was) for at, was in zip(found, earlier, strict=True))
            seen.add(tuple(at == number for at in found))
        assert seen == {(False, False), (True, False), (True, True)}
        write(spark, database, 2)  # what was left behind does no harm
        assert {look(spark, database, name)[0] for name in NAMES} == {2}
    finally:
        spark.sql(f"DROP DATABASE {database} CASCADE")


def test_what_killed_runs_left_is_removed_a_day_later(
    spark: SparkSession, database: str, tmp_path: Path
) -> None:
    write(spark, database, 3)
    left = [
        tmp_path / "warehouse" / "floor_rates" / name
        for name in ("20200101T000000Z-00000000", "20200101T000000Z-00000001", "mine")
    ]
    for folder in left:
        folder.mkdir()
        (folder / "part").write_text("x")
    old = time.time() - 25 * 3600
    os.utime(left[0] / "part", (old, old))
    os.utime(left[2] / "part", (old, old))
    write(spark, database, 4)
    assert [folder.exists() for folder in left] == [False, True, True]


def test_two_runs_at_once_leave_the_rows_of_the_last(
    spark: SparkSession, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(spark, database, 3)
    inner = CatalogTables._set_location
    with monkeypatch.context() as patch:

        def let_another_finish(self: CatalogTables, name: str, new: object) -> None:
            patch.setattr(CatalogTables, "_set_location", inner)
            write(spark, database, 5)
            inner(self, name, new)  # type: ignore[arg-type]

        patch.setattr(CatalogTables, "_set_location", let_another_finish)
        last = write(spark, database, 7)
    for name in NAMES:
        assert look(spark, database, name) == (7, {last})


def test_other_tables_are_never_replaced(spark: SparkSession, database: str) -> None:
    spark.sql(f"CREATE TABLE {database}.floor_rates (x INT) USING parquet")
    spark.sql(f"CREATE VIEW {database}.view_rates AS SELECT 1 AS x")
    for prefix in ("floor", "view"):
        with pytest.raises(OutputError, match=f"{prefix}_rates: exists, and was not written by"):
            CatalogTables(spark, f"{database}.{prefix}", NAMES)
    assert spark.table(f"{database}.floor_rates").columns == ["x"]


def test_a_table_with_other_columns_is_refused(spark: SparkSession, database: str) -> None:
    write(spark, database, 3)
    wider = rows(spark, 4).withColumn("size", F.lit(1.5))
    with pytest.raises(OutputError, match="floor_rates: has the columns flow, rate, run, not flow"):
        write(spark, database, 4, broken=wider)
    assert look(spark, database, "rates")[0] == 3


@pytest.mark.parametrize(
    ("prefix", "reason"),
    [
        ("nosuch.floor", "there is no database nosuch; create it"),
        ("a.b.floor", "there is no database a.b"),
        ("a b", "is not the name of a table; name it as DB.NAME"),
        ("", "is not the name of a table"),
        ("db.", "is not the name of a table"),
        ("`x", "is not the name of a table"),
    ],
)
def test_a_prefix_that_names_nothing_gets_one_line(
    spark: SparkSession, prefix: str, reason: str
) -> None:
    with pytest.raises(OutputError, match=reason) as caught:
        CatalogTables(spark, prefix, NAMES)
    assert "\n" not in str(caught.value)
