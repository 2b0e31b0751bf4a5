"""Files and messages that arrive at a stream: ids, columns, damaged files, Kafka."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from distributary.errors import InputError
from distributary.pipeline.buckets import BucketTable, Longs
from distributary.pipeline.ingest import Reason, read_subscriptions
from distributary.pipeline.interest import interest_of, last_actions
from distributary.pipeline.kept_tables import IDS
from distributary.pipeline.shapes import LogShape, LogShapes
from distributary.pipeline.stream import StreamHooks, stream
from distributary.pipeline.watching import list_arrivals

from .stream_logs import START, Row, publication, subscription, write
from .stream_outcome import history, table
from .stream_process import small_job

pytestmark = pytest.mark.usefixtures("small_slices")


def test_messages_with_ids_count_once_whatever_file_they_come_in(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sent(minute: int, number: int) -> Row:
        return publication(START + timedelta(minutes=minute), "f") | {"id": number}

    asked: list[tuple[int, int]] = []  # how many ids, and how many rows were found
    find = BucketTable.find

    def note_find(stored: BucketTable, keys: Longs) -> pa.Table:
        found = find(stored, keys)
        if stored.kind is IDS:
            asked.append((len(set(keys.tolist())), found.num_rows))
        return found

    monkeypatch.setattr(BucketTable, "find", note_find)
    (tmp_path / "subscriptions").mkdir()
    files = {
        "0.parquet": [sent(0, 0), sent(20, 1), sent(20, 1)],  # here ids are numbers, there text
        "1.csv": [sent(20, 1), sent(0, 0), sent(19, 2), sent(30, 3)],
        "2.csv": [sent(31, 4), sent(32, 5), sent(32, 6)],
    }
    for number, (name, rows) in enumerate(files.items()):
        write(tmp_path / "publications" / name, rows, START + timedelta(hours=1 + number))
    (tmp_path / "publications" / "half.csv.tmp").write_text("not yet")
    (tmp_path / "publications" / "empty.csv").write_text("")
    state = stream(spark, small_job(tmp_path))
    assert state.counts["publications"] == {
        "used": 7,
        "duplicates": 2,
        "reasons": {Reason.LATE: 1},  # 0 again, but long after
    }
    assert asked == [(3, 1), (3, 0)]  # what is stored is not read but for the ids of the batch
    kept = table(small_job(tmp_path), state, IDS)
    assert [row["id"] for row in kept][-4:] == ["3", "4", "5", "6"]  # a merge may drop older ones
    assert state.version == 0
    assert history(small_job(tmp_path))[-1]["excess"] is None


def test_an_id_counts_once_in_a_batch_of_several_formats(
    spark: SparkSession, tmp_path: Path
) -> None:
    def sent(minute: int, number: int) -> Row:
        return publication(START + timedelta(minutes=minute), "f") | {"id": number}

    (tmp_path / "subscriptions").mkdir()
    files = {
        "0.csv": [sent(0, 1), sent(1, 2), sent(1, 2)],
        "1.jsonl": [sent(0, 1), sent(2, 3)],
        "2.parquet": [sent(3, 1), sent(2, 3), sent(4, 4)],
        "3.csv": [publication(START, "f")],
    }
    for name, rows in files.items():
        write(tmp_path / "publications" / name, rows, START + timedelta(hours=1))
    state = stream(spark, small_job(tmp_path, files_per_batch=10))
    assert state.batch == 0
    assert state.counts["publications"] == {"used": 5, "duplicates": 4, "reasons": {}}
    kept = table(small_job(tmp_path), state, IDS)
    assert [row["id"] for row in kept] == ["1", "2", "3", "4"]


@pytest.mark.parametrize("named", [False, True])
def test_an_id_counts_once_after_many_messages_without_one(
    spark: SparkSession, tmp_path: Path, named: bool
) -> None:
    (tmp_path / "subscriptions").mkdir()
    plain = [publication(START, "f")] * 120
    known = [publication(START, "f") | {"id": "x"}]
    write(tmp_path / "publications" / "0.jsonl", plain + 2 * known, START)
    write(tmp_path / "publications" / "1.jsonl", plain + known, START + timedelta(minutes=1))
    shape = LogShape({"id": "id"} if named else {})
    state = stream(spark, small_job(tmp_path, shapes=LogShapes(publications=shape)))
    assert state.batch == 1
    assert state.counts["publications"] == {"used": 241, "duplicates": 2, "reasons": {}}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"flow": "topic"}, "has no 'topic', which --column names for 'flow', only 'ts', 'flow'"),
        ({"id": "offset"}, "has no 'offset', which --column names for 'id'"),
    ],
)
def test_a_column_that_json_lines_do_not_have_ends_the_stream_with_nothing_read(
    spark: SparkSession, tmp_path: Path, columns: dict[str, str], message: str
) -> None:
    (tmp_path / "subscriptions").mkdir()
    for number in range(2):
        at = START + timedelta(minutes=number)
        write(tmp_path / "publications" / f"{number}.jsonl", [publication(at, "f")] * 3, at)
    wrong = LogShapes(publications=LogShape(columns))
    with pytest.raises(InputError, match=re.escape(message)):
        stream(spark, small_job(tmp_path, shapes=wrong))
    state = stream(spark, small_job(tmp_path))
    assert state.counts["publications"] == {"used": 6, "duplicates": 0, "reasons": {}}


def test_a_batch_without_a_column_that_earlier_ones_had_is_put_aside_and_noted(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "subscriptions").mkdir()
    for number, name in enumerate(["flow", "topic"]):
        at = START + timedelta(minutes=number)
        rows = [{"ts": at.isoformat(), name: "f"}] * 3
        write(tmp_path / "publications" / f"{number}.jsonl", rows, at)
    notes: list[str] = []
    state = stream(spark, small_job(tmp_path), StreamHooks(note=notes.append))
    assert state.counts["publications"]["reasons"] == {Reason.NO_FLOW: 3}
    assert notes == [
        "batch 1: all 3 rows of the publications are put aside: no flow; if it is now elsewhere, "
        "start again with --column publications.flow=PATH"
    ]


def test_a_damaged_file_stops_the_stream_until_it_is_taken_out(
    spark: SparkSession, tmp_path: Path
) -> None:
    job = small_job(tmp_path)
    (tmp_path / "subscriptions").mkdir()
    write(tmp_path / "publications" / "0.csv", [publication(START, "f")], START)
    damaged = tmp_path / "publications" / "1.parquet"
    damaged.write_text("no Parquet at all")
    with pytest.raises(InputError, match=r"1\.parquet.*damaged"):
        stream(spark, job)
    damaged.unlink()
    assert stream(spark, job).counts["publications"]["used"] == 1


def test_files_that_were_read_may_be_moved_away_and_their_paths_do_not_come_back(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "subscriptions").mkdir()
    first, second = (tmp_path / "publications" / f"{number}.csv" for number in range(2))
    write(first, [publication(START, "f")], START)
    job = small_job(tmp_path)
    assert stream(spark, job).counts["publications"]["used"] == 1
    (tmp_path / "archive").mkdir()
    first.rename(tmp_path / "archive" / first.name)
    write(second, [publication(START, "f")] * 2, START)
    assert stream(spark, job).counts["publications"]["used"] == 3
    write(first, [publication(START, "f")] * 4, START + timedelta(hours=1))
    assert stream(spark, job).counts["publications"]["used"] == 3


def test_kafka_without_its_package_says_which_one(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "subscriptions").mkdir()
    with pytest.raises(InputError, match="spark-sql-kafka"):
        stream(spark, small_job(tmp_path, publications="kafka://localhost:9092/messages"))
    with pytest.raises(InputError, match="kafka://host:port/topic"):
        stream(spark, small_job(tmp_path, publications="kafka://localhost"))


def test_lines_out_of_kafka_are_judged_like_lines_of_files(spark: SparkSession) -> None:
    rows = [
        (json.dumps(subscription(START, "ann", "f")), 0, 7),
        (json.dumps(subscription(START, "ann", "f", "unsubscribe")), 0, 8),
        ("{", 1, 0),
    ]
    batch = spark.createDataFrame(rows, "value STRING, block BIGINT, line BIGINT").withColumns(
        {"log": F.lit("subscriptions"), "path": F.lit("kafka://h/t"), "length": F.lit(0)}
    )
    part = list_arrivals(batch, {"subscriptions": "kafka://h/t"})["subscriptions"]
    log = read_subscriptions(spark, part.sources[0])
    assert interest_of(last_actions(log.valid)).count() == 0  # the later offset wins
    assert [tuple(row) for row in log.quarantined.collect()] == [
        ("subscriptions", "kafka://h/t", Reason.CORRUPT, "{")
    ]
