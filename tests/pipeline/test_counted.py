"""Logs whose rows stand for several messages, against the same logs with the rows written out."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from distributary.errors import InputError
from distributary.pipeline.content import content_flows
from distributary.pipeline.ingest import (
    Reason,
    count_rows_at_source,
    read_publications,
    unite_rows,
)
from distributary.pipeline.job import Job
from distributary.pipeline.rates import publication_counts, publication_digest, rates_from
from distributary.pipeline.replay import activity
from distributary.pipeline.run import run
from distributary.pipeline.shapes import LogShape, LogShapes
from distributary.pipeline.stream import StreamJob, stream
from distributary.planning import Request

from .stream_process import small_job

START = datetime(2025, 3, 3, 9, 0, tzinfo=UTC)
Row = dict[str, Any]
KINDS = pa.schema(
    [
        ("ts", pa.timestamp("us", "UTC")),
        ("flow", pa.string()),
        ("size", pa.int32()),
        ("count", pa.int64()),
    ]
)
rows_of_messages = st.lists(
    st.fixed_dictionaries(
        {
            "ts": st.integers(0, 7_200).map(lambda s: START + timedelta(seconds=s)),
            "flow": st.sampled_from(["a", "b", "ü"]),
            "size": st.sampled_from([None, 0, 7, 2**31 - 1]),
            "count": st.integers(1, 9),
        }
    ),
    min_size=1,
    max_size=8,
)


def write_out(rows: Sequence[Row], count: str = "count") -> list[Row]:
    """Each message as a row of its own, without a count."""
    return [
        {name: row[name] for name in row if name != count}
        for row in rows
        for _ in range(row[count])
    ]


def judge(spark: SparkSession, rows: Sequence[Row]) -> DataFrame:
    """Rows in the shape of a log's rows, all usable."""
    names = list(rows[0])
    table = pa.Table.from_pylist(list(rows), pa.schema([KINDS.field(name) for name in names]))
    frame = spark.createDataFrame(table)
    return frame.selectExpr("*", "CAST(NULL AS STRING) AS reason", "false AS copy")


@settings(max_examples=6)
@given(rows=rows_of_messages, half_life=st.sampled_from([None, timedelta(minutes=7)]))
@example(
    rows=[{"ts": START, "flow": "a", "size": None, "count": 2**53}] * 3,
    half_life=timedelta(hours=1),
)
def test_rates_and_replay_are_those_of_the_rows_written_out(
    spark: SparkSession, rows: list[Row], half_life: timedelta | None
) -> None:
    if rows[0]["count"] == 2**53:  # too many to write out, but not to count
        counted = publication_digest(judge(spark, rows), half_life)
        found = rates_from(counted, START, START + timedelta(hours=1), half_life).collect()
        assert found[0]["rate"] == pytest.approx(3 * 2**53 * math.log(2) / 3600)
        return
    end, peak = START + timedelta(hours=3), timedelta(seconds=90)
    found = []
    for one in (rows, write_out(rows)):
        judged = judge(spark, one)
        digest = publication_digest(judged, half_life, peak)
        rates = rates_from(digest, START, end, half_life, peak)
        tables = (rates, activity(judged))
        found.append([sorted(map(tuple, table.collect()), key=str) for table in tables])
    assert found[0] == found[1]


BAD = ["0", "-1", None, "many", "1.5", str(2**53 + 1), "99999999999999999999"]


@pytest.mark.parametrize("name", ["log.parquet", "log.csv", "log.jsonl"])
def test_a_bad_count_is_put_aside_and_rows_add_up(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    counts = ["3", " 4 ", str(2**53), *BAD]
    rows = [
        {"ts": START.isoformat(), "flow": "IBM", "size": "7", "id": str(at), "count": count}
        for at, count in enumerate(counts)
    ]
    rows.append(rows[0])
    rows.append(rows[2] | {"size": "2000000000", "id": "large"})
    log = read_publications(spark, write_rows(tmp_path / name, rows))
    digest = publication_digest(log.rows)
    told = publication_counts(digest)
    assert (told.used, told.duplicates) == (3, 1)
    assert told.reasons == {Reason.COUNT: len(BAD), Reason.BYTES: 1}
    assert told.read == count_rows_at_source(log) == len(rows)
    messages, size = digest.where("reason IS NULL").select("messages", "bytes").collect()[0]
    assert (messages, size) == (2**53 + 7, 7 * (2**53 + 7))


def write_rows(path: Path, rows: Sequence[Row]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(list(rows)), path)
    elif path.suffix == ".csv":
        lines = [",".join("" if cell is None else str(cell) for cell in r.values()) for r in rows]
        path.write_text("\n".join([",".join(rows[0]), *lines]) + "\n")
    else:
        path.write_text("".join(json.dumps(row, default=str) + "\n" for row in rows))
    return str(path)


def test_counts_of_any_number_type(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    for values, good in (([5, -1, 0], [5]), ([5.0, 5.5, float("nan"), 1e300], [5])):
        table = {"ts": [START] * len(values), "flow": ["IBM"] * len(values), "count": values}
        pq.write_table(pa.table(table), path)
        log = read_publications(spark, str(path))
        assert [row["count"] for row in log.used.collect()] == good
    pq.write_table(pa.table({"ts": [START], "flow": ["IBM"], "count": [True]}), path)
    with pytest.raises(InputError, match="'count' holds boolean values; they must be whole"):
        read_publications(spark, str(path))


@pytest.mark.parametrize("name", ["log.parquet", "log.csv", "log.jsonl"])
def test_a_log_without_counts_is_read_as_ever(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    row = {"ts": START.isoformat(), "flow": "IBM", "n": "5"}
    path = write_rows(tmp_path / name, [row])
    log = read_publications(spark, path)
    assert not log.counted
    assert "rows" not in publication_digest(log.rows).columns
    assert "count" not in log.rows.columns
    named = read_publications(spark, path, shape=LogShape({"count": "n"}))
    assert [one["count"] for one in named.used.collect()] == [5]
    rows = unite_rows([log, named])
    assert sorted(one["count"] for one in rows.collect()) == [1, 5]
    spared = write_rows(tmp_path / f"spared-{name}", [row | {"count": "none"}])
    assert read_publications(spark, spared, shape=LogShape({"count": ""})).valid.count() == 1


def test_counts_that_add_up_to_too_many_are_said_in_one_line(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = [{"ts": START.isoformat(), "flow": "f", "count": 2**53}] * 1_025
    path = write_rows(tmp_path / "publications.parquet", rows)
    pairs = [{"ts": START.isoformat(), "receiver": "r", "flow": "f", "action": "subscribe"}]
    wanted = write_rows(tmp_path / "subscriptions.csv", pairs)
    job = Job(tmp_path / "out", path, Request(groups=1), wanted)
    with pytest.raises(InputError, match=r"more than 2\^63 messages"):
        run(spark, job)


def test_sets_of_filters_count_messages(spark: SparkSession, tmp_path: Path) -> None:
    rows = [
        {"ts": START.isoformat(), "flow": "f", "size": 5, "price": 1, "count": 3},
        {"ts": START.isoformat(), "flow": "f", "size": 5, "price": 9, "count": 4},
    ]
    told = []
    for name, own in (("counted", rows), ("written out", write_out(rows))):
        log = read_publications(spark, write_rows(tmp_path / f"{name}.csv", own), None, "all")
        filters = spark.createDataFrame([("ann", "price > 5")], ["receiver", "filter"])
        content = content_flows(log.valid, filters)
        sets = [(row["filters"], row["messages"]) for row in content.sets.collect()]
        published = activity(content.publications).drop("minute").collect()
        told.append((content.counts(), sets, [tuple(row)[1:] for row in published]))
        content.release()
    assert told[0] == told[1]
    assert told[0][0]["messages"] == 7


# --- a run and a stream ----------------------------------------------------------------------


def make_logs(folder: Path, parts: Sequence[Sequence[Row]]) -> None:
    pairs = [
        {"ts": START.isoformat(), "receiver": f"r{r}", "flow": f"f{f}", "action": "subscribe"}
        for r in range(6)
        for f in range(8)
        if (r + f) % 3 == 0 or r == f
    ]
    write_rows(folder / "subscriptions" / "0.csv", pairs)
    for number, rows in enumerate(parts):
        written = write_rows(folder / "publications" / f"{number}.jsonl", rows)
        os.utime(written, (START.timestamp() + number,) * 2)  # a stream takes the oldest first


ROWS: list[Row] = [
    {
        "ts": (START + timedelta(minutes=number)).isoformat(),
        "flow": f"f{number % 8}",
        "size": 10 * number,
        "n": 1 + number * number % 11,
    }
    for number in range(40)
]
COUNT = LogShapes(publications=LogShape({"count": "n"}))


def make_both(folder: Path, files: int = 1) -> tuple[Path, Path]:
    counted, written_out = folder / "counted", folder / "written-out"
    parts = [ROWS[number::files] for number in range(files)]
    make_logs(counted, parts)
    make_logs(written_out, [write_out(part, "n") for part in parts])
    return counted, written_out


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.mark.slow
def test_a_run_gives_what_the_rows_written_out_give(spark: SparkSession, tmp_path: Path) -> None:
    request = Request(groups=2, sessions=4, seed=7, budget_s=0.05)
    made = []
    for folder in make_both(tmp_path):
        job = Job(
            folder / "out",
            str(folder / "publications"),
            request,
            str(folder / "subscriptions"),
            shapes=COUNT if folder.name == "counted" else LogShapes(),
            count="bytes",
            peak_window=timedelta(minutes=5),
        )
        outcome = run(spark, job)
        names = ("interest", "rates", "replay/minutes.parquet", "replay/receivers.parquet")
        tables = [pq.read_table(folder / "out" / name) for name in names]
        made.append((contents(folder / "out" / "plan"), tables, outcome.manifest["replay"]))
        told = outcome.manifest["publications"]
        assert told["read"] == told["used"] == (40 if folder.name == "counted" else 197)
    assert made[0] == made[1]


@pytest.mark.slow
def test_a_run_on_filters_gives_what_the_rows_written_out_give(
    spark: SparkSession, tmp_path: Path
) -> None:
    made = []
    for folder in make_both(tmp_path):
        filters = write_rows(
            folder / "filters.csv",
            [{"receiver": f"r{n}", "filter": f"size > {90 * n} AND size < 300"} for n in range(4)],
        )
        job = Job(
            folder / "out",
            str(folder / "publications"),
            Request(groups=2, sessions=4, seed=7, budget_s=0.05),
            filters=filters,
            shapes=COUNT if folder.name == "counted" else LogShapes(),
        )
        outcome = run(spark, job)
        tables = [pq.read_table(folder / "out" / name) for name in ("interest", "rates")]
        made.append((contents(folder / "out" / "plan"), tables, outcome.manifest["content"]))
    assert made[0] == made[1]
    assert made[0][2]["messages"] == 197


def test_a_stream_gives_what_the_rows_written_out_give(spark: SparkSession, tmp_path: Path) -> None:
    made = []
    for folder in make_both(tmp_path, files=2):
        shapes = COUNT if folder.name == "counted" else LogShapes()
        job: StreamJob = small_job(folder, shapes=shapes, late=timedelta(days=1))
        state = stream(spark, job)
        slots = [row for path in (job.out / "state").glob("*/slots-*") for row in read_slots(path)]
        made.append((contents(job.out / "plan"), sorted(slots)))
        told = state.counts["publications"]
        assert told == {"used": 40 if shapes is COUNT else 197, "duplicates": 0, "reasons": {}}
    assert made[0] == made[1]


def read_slots(path: Path) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in pq.read_table(path).to_pylist()]
