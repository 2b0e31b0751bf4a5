from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from distributary.pipeline.ingest import read_subscriptions
from distributary.pipeline.interest import (
    absent_receivers,
    action_digest,
    interest_of,
    last_actions,
    resolve_last_actions,
    subscription_digest,
    ties,
)
from distributary.pipeline.schemas import SUBSCRIPTIONS, with_position

START = datetime(2024, 1, 1, tzinfo=UTC)
Action = tuple[datetime, str, str, str]


def drawn(count: int, moments: int, seed: int) -> list[Action]:
    """Actions of few receivers and flows at few moments, so that ties abound."""
    draw = random.Random(seed)
    return [
        (
            START + timedelta(seconds=draw.randrange(moments)),
            f"r{draw.randrange(6)}",
            f"f{draw.randrange(8)}",
            draw.choice(["subscribe", "unsubscribe"]),
        )
        for _ in range(count)
    ]


def oracle(rows: list[Action]) -> dict[tuple[str, str], tuple[datetime, str]]:
    """Last actions, rows being in the order of the input."""
    last: dict[tuple[str, str], tuple[datetime, str]] = {}
    for ts, receiver, flow, action in rows:
        if (receiver, flow) not in last or ts >= last[receiver, flow][0]:
            last[receiver, flow] = ts, action
    return last


def pairs(interest: DataFrame) -> set[tuple[str, str]]:
    rows = [(row["receiver"], row["flow"]) for row in interest.collect()]
    assert len(set(rows)) == len(rows)
    return set(rows)


def wanted(rows: list[Action]) -> set[tuple[str, str]]:
    return {pair for pair, (_, action) in oracle(rows).items() if action == "subscribe"}


def write(folder: Path, rows: list[Action], files: int, suffix: str) -> str:
    """The rows over some files, in the order of their names."""
    folder.mkdir()
    size = -(-len(rows) // files)
    for number, start in enumerate(range(0, len(rows), size)):
        part = rows[start : start + size]
        path = folder / f"part-{number}.{suffix}"
        if suffix == "parquet":
            columns = {name: [row[i] for row in part] for i, name in enumerate(NAMES)}
            pq.write_table(pa.table(columns), path, row_group_size=40)
        else:
            lines = [f"{ts.isoformat()},{r},{f},{a}\n" for ts, r, f, a in part]
            path.write_text(",".join(NAMES) + "\n" + "".join(lines))
    return str(folder)


NAMES = SUBSCRIPTIONS.fieldNames()


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
@pytest.mark.parametrize("largest", ["3000", "128m"])
def test_ties_go_to_the_later_row_whatever_the_partitioning(
    spark: SparkSession, tmp_path: Path, suffix: str, largest: str
) -> None:
    rows = drawn(400, 5, seed=1)
    source = write(tmp_path / "log", rows, 3, suffix)
    spark.conf.set("spark.sql.files.maxPartitionBytes", largest)
    spark.conf.set("spark.sql.files.openCostInBytes", "10" if largest == "3000" else "4m")
    try:
        log = read_subscriptions(spark, source)
        assert (log.valid.rdd.getNumPartitions() > 3) == (largest == "3000")
        assert pairs(interest_of(last_actions(log.used))) == wanted(rows)
        digest = subscription_digest(log)
        assert ties(digest).count() > 0
        assert pairs(interest_of(resolve_last_actions(digest, log.valid))) == wanted(rows)
        digested = action_digest(log.rows).collect()
        assert {(row["receiver"], row["flow"]) for row in digested if row["on"]} == wanted(rows)
        assert {(row["receiver"], row["flow"]): row["ts"] for row in digested} == {
            pair: ts.replace(tzinfo=None) for pair, (ts, _) in oracle(rows).items()
        }
        assert sum(row["rows"] for row in digested) == len(rows)
        assert sum(row["different"] for row in digested) == len(set(rows))
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")
        spark.conf.unset("spark.sql.files.openCostInBytes")


def test_a_digest_without_ties_needs_no_second_look(spark: SparkSession, tmp_path: Path) -> None:
    rows = [
        (START + timedelta(microseconds=number), *row[1:])
        for number, row in enumerate(drawn(200, 1, seed=2))
    ]
    log = read_subscriptions(spark, write(tmp_path / "log", rows, 2, "parquet"))
    digest = subscription_digest(log)
    assert ties(digest).count() == 0
    state = resolve_last_actions(digest, None)
    assert pairs(interest_of(state)) == wanted(rows)
    found = {
        (row["receiver"], row["flow"]): (row["ts"], row["action"])
        for row in state.selectExpr("receiver", "flow", "unix_micros(ts) ts", "action").collect()
    }
    assert found == {
        pair: ((ts - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1), action)
        for pair, (ts, action) in oracle(rows).items()
    }


def frame(spark: SparkSession, rows: list[tuple[Any, ...]]) -> DataFrame:
    return spark.createDataFrame(rows, with_position(SUBSCRIPTIONS))


def test_without_an_order_subscribing_wins(spark: SparkSession) -> None:
    none = (None, None, None)
    rows = [(START, "r", "f", "subscribe", none), (START, "r", "f", "unsubscribe", none)]
    for order in (rows, rows[::-1]):
        assert pairs(interest_of(last_actions(frame(spark, order)))) == {("r", "f")}


def test_times_before_1970_are_times_too(spark: SparkSession, tmp_path: Path) -> None:
    old = datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
    rows = [
        (old, "r", "f", "subscribe"),
        (old - timedelta(microseconds=1), "r", "f", "unsubscribe"),
    ]
    log = read_subscriptions(spark, write(tmp_path / "log", rows, 1, "parquet"))
    digest = subscription_digest(log)
    assert pairs(interest_of(resolve_last_actions(digest, None))) == {("r", "f")}
    row = digest.selectExpr(
        "unix_micros(subscribed) AS a", "unix_micros(unsubscribed) AS b"
    ).first()
    assert row is not None
    assert tuple(row) == (-1, -2)


def test_last_actions_add_up(spark: SparkSession) -> None:
    rows = [
        (*row, (f"file-{number % 3}", 0, number))
        for number, row in enumerate(drawn(300, 4, seed=3))
    ]
    every = last_actions(frame(spark, rows))
    columns = every.columns
    for cut in (0, 100, 250):
        first = last_actions(frame(spark, rows[:cut])).select(*columns)
        rest = frame(spark, rows[cut:]).select(*columns)
        assert set(last_actions(first.unionByName(rest)).collect()) == set(every.collect())


def test_receivers_not_seen_for_long_are_dropped(spark: SparkSession) -> None:
    at = (None, None, None)
    day = timedelta(days=1)
    rows = [
        (START - 4 * day, "gone", "f", "subscribe", at),
        (START - 4 * day, "left", "f", "unsubscribe", at),
        (START - 9 * day, "back", "f", "subscribe", at),
        (START - 3 * day, "back", "g", "unsubscribe", at),
        (START, "here", "f", "subscribe", at),
    ]
    # A presence of a tenth is reached after log2(10) = 3.32 half-lives.
    log = frame(spark, rows)
    assert pairs(interest_of(last_actions(log), START, day)) == {("back", "f"), ("here", "f")}
    absent = absent_receivers(last_actions(log), START, day).collect()
    assert [row["receiver"] for row in absent] == ["gone"]
    with pytest.raises(ValueError, match="moment"):
        interest_of(last_actions(log), None, day)
