from __future__ import annotations

import gzip
import json
from collections import Counter
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from distributary.errors import InputError
from distributary.pipeline.ingest import (
    BadRowsError,
    CountError,
    Log,
    Reason,
    RowCounts,
    TimeWindow,
    check_bad,
    check_sum,
    count_rows_at_source,
    read_filters,
    read_publications,
    read_subscriptions,
)
from distributary.pipeline.interest import subscription_counts, subscription_digest
from distributary.pipeline.rates import publication_counts, publication_digest
from distributary.pipeline.schemas import PUBLICATIONS, QUARANTINE, SUBSCRIPTIONS
from distributary.pipeline.shapes import LogShape
from distributary.pipeline.sources import report_read_faults, resolve_source

WINDOW = TimeWindow(datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 2, tzinfo=UTC))
NOON = "2024-01-01T12:00:00Z"

# Rows, and why each is bad (None: it is not).
SUBSCRIBING: list[tuple[tuple[str | None, str | None, str | None, str | None], str | None]] = [
    ((NOON, "ann", "IBM", "subscribe"), None),
    ((NOON, "ann", "IBM", "unsubscribe"), None),
    (("2023-06-01 00:00:00", "ann", "SAP", "subscribe"), None),
    (("2024-01-01T12:00:00.25+0100", "bob", "IBM", "subscribe"), None),
    (("2024-01-01", "bob", "SAP", "subscribe"), None),
    ((NOON, None, "IBM", "subscribe"), Reason.NO_RECEIVER),
    ((NOON, "", "IBM", "join"), Reason.NO_RECEIVER),
    ((NOON, "ann", None, "subscribe"), Reason.NO_FLOW),
    ((NOON, "ann", "IBM", "Subscribe"), Reason.ACTION),
    ((NOON, "ann", "IBM", None), Reason.ACTION),
    ((None, "ann", "IBM", "subscribe"), Reason.NO_TS),
    (("yesterday", "ann", "IBM", "subscribe"), Reason.TS),
    (("1704110400", "ann", "IBM", "subscribe"), Reason.TS),
    (("2024-02-30T00:00:00Z", "ann", "IBM", "subscribe"), Reason.TS),
    (("2024-01-02T00:00:00Z", "ann", "IBM", "subscribe"), Reason.OUTSIDE),
]
PUBLISHING: list[tuple[tuple[str | None, str | None, str | None], str | None]] = [
    ((NOON, "IBM", "100"), None),
    ((NOON, "IBM", "100"), None),
    ((NOON, "IBM", None), None),
    ((NOON, None, "100"), Reason.NO_FLOW),
    ((NOON, "", "100"), Reason.NO_FLOW),
    ((None, "IBM", "100"), Reason.NO_TS),
    (("12:00", "IBM", "100"), Reason.TS),
    (("2023-12-31T23:59:59.999999Z", "IBM", "1"), Reason.OUTSIDE),
    (("2024-01-02T00:00:00Z", "IBM", "1"), Reason.OUTSIDE),
    ((NOON, "IBM", "-1"), Reason.SIZE),
    ((NOON, "IBM", "1.5"), Reason.SIZE),
    ((NOON, "IBM", "99999999999"), Reason.SIZE),
    ((NOON, "IBM", "big"), Reason.SIZE),
]


def write(path: Path, names: list[str], rows: list[tuple[Any, ...]]) -> str:
    """The rows as a file of the format that the name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        columns = {name: [row[i] for row in rows] for i, name in enumerate(names)}
        pq.write_table(pa.table(columns), path)
        return str(path)
    if ".csv" in path.suffixes:
        cells = [",".join("" if cell is None else cell for cell in row) for row in rows]
        text = "\n".join([",".join(names), *cells]) + "\n"
    else:
        text = "".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return str(path)


def reasons(log: Log) -> Counter[str]:
    return Counter(row["reason"] for row in log.quarantined.collect())


def subscribed(spark: SparkSession, source: str, window: TimeWindow | None = None) -> Log:
    log = read_subscriptions(spark, source, window)
    counts = subscription_counts(subscription_digest(log))
    check_sum("subscriptions", count_rows_at_source(log), counts, sum(reasons(log).values()))
    assert log.used.count() == counts.used
    assert reasons(log) == counts.reasons
    return log


def published(spark: SparkSession, source: str, window: TimeWindow | None = None) -> Log:
    log = read_publications(spark, source, window)
    counts = publication_counts(publication_digest(log.rows))
    check_sum("publications", count_rows_at_source(log), counts, sum(reasons(log).values()))
    assert log.used.count() == counts.used
    assert reasons(log) == counts.reasons
    return log


@pytest.mark.parametrize("name", ["log.parquet", "log.csv", "log.jsonl", "log.csv.gz"])
def test_each_bad_subscription_has_its_reason(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    path = write(tmp_path / name, SUBSCRIPTIONS.fieldNames(), [row for row, _ in SUBSCRIBING])
    log = subscribed(spark, path, WINDOW)
    assert reasons(log) == Counter(why for _, why in SUBSCRIBING if why)
    assert log.used.drop("position").schema.simpleString() == SUBSCRIPTIONS.simpleString()
    assert log.quarantined.schema.names == QUARANTINE.names
    times = {row["ts"] for row in log.used.selectExpr("date_format(ts, 'HH:mm:ss.S') ts").collect()}
    assert times == {"12:00:00.0", "00:00:00.0", "11:00:00.2"}
    for row in log.quarantined.collect():
        assert row["file"].endswith(name)
        assert row["log"] == "subscriptions"


@pytest.mark.parametrize("name", ["log.parquet", "log.csv", "log.json", "log.jsonl.gz"])
def test_each_bad_publication_has_its_reason(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    path = write(tmp_path / name, PUBLICATIONS.fieldNames(), [row for row, _ in PUBLISHING])
    log = published(spark, path, WINDOW)
    assert reasons(log) == Counter(why for _, why in PUBLISHING if why)
    assert log.used.drop("position").schema.simpleString() == PUBLICATIONS.simpleString()
    assert Counter(row["size"] for row in log.used.collect()) == {100: 2, None: 1}


def test_raw_is_the_line_or_the_row_as_json(spark: SparkSession, tmp_path: Path) -> None:
    rows = [(NOON, "IBM", "much")]
    raw = {}
    for name in ("a.csv", "b.jsonl", "c.parquet"):
        log = read_publications(spark, write(tmp_path / name, ["ts", "flow", "size"], rows))
        raw[name] = log.quarantined.collect()[0]["raw"]
    assert raw["a.csv"] == f"{NOON},IBM,much"
    assert json.loads(raw["b.jsonl"]) == {"ts": NOON, "flow": "IBM", "size": "much"}
    assert json.loads(raw["c.parquet"]) == {"ts": NOON, "flow": "IBM", "size": "much"}


def test_corrupt_lines_are_put_aside(spark: SparkSession, tmp_path: Path) -> None:
    text = f"ts,flow\n{NOON},IBM\n{NOON}\n\n{NOON},IBM,7\n".encode() + b"\xff\xfe,IBM\n"
    (tmp_path / "a.csv").write_bytes(text)
    log = published(spark, str(tmp_path / "a.csv"))
    assert reasons(log) == {Reason.CORRUPT: 3}
    (tmp_path / "b.jsonl").write_text(
        f'{{"ts": "{NOON}", "flow": "IBM"}}\n{{"ts": \n5\n[{{"flow": "IBM"}}]\nnull\n\n{{}}\n'
    )
    log = published(spark, str(tmp_path / "b.jsonl"))
    assert reasons(log) == {Reason.CORRUPT: 4, Reason.NO_FLOW: 1}


def test_headers_are_no_rows_and_columns_come_in_any_order(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text(f"ts,flow\r\n{NOON},A\r\nts,flow\r\n{NOON},B\r\n")
    (tmp_path / "b.csv").write_text(f'\ufeffflow,note,ts\nC,x,{NOON}\nD,"y, z",{NOON}\n')
    (tmp_path / "c.csv").write_text("")
    (tmp_path / "_SUCCESS").write_text("")
    log = published(spark, str(tmp_path))
    assert sorted(row["flow"] for row in log.used.collect()) == ["A", "B", "C", "D"]
    assert count_rows_at_source(log) == 4


def test_times_of_any_type(spark: SparkSession, tmp_path: Path) -> None:
    noon = datetime(2024, 1, 1, 12, tzinfo=UTC)
    columns = {
        "zoned": pa.array([noon], pa.timestamp("us", "UTC")),
        "plain": pa.array([noon.replace(tzinfo=None)], pa.timestamp("us")),
        "day": pa.array([date(2024, 1, 1)]),
    }
    for name, values in columns.items():
        pq.write_table(pa.table({"ts": values, "flow": ["IBM"]}), tmp_path / f"{name}.parquet")
        log = published(spark, str(tmp_path / f"{name}.parquet"), WINDOW)
        hour = log.used.selectExpr("hour(ts) AS hour").collect()[0]["hour"]
        assert hour == (0 if name == "day" else 12)


def test_nanoseconds_are_times_also_beside_other_units(spark: SparkSession, tmp_path: Path) -> None:
    moments = [-1, -1_000, 0, 1_704_110_400_123_456_789, 2**63 - 1, -(2**63) + 1_000]
    units = {
        "zoned": pa.array(moments, pa.timestamp("ns", "UTC")),
        "plain": pa.array([*moments[:-1], None], pa.timestamp("ns")),
        "micros": pa.array([moment // 1_000 for moment in moments], pa.timestamp("us")),
        "seen": pa.array([5] * 6, pa.timestamp("ns")),
    }
    for name, values in units.items():
        columns = {"ts": values, "flow": ["IBM"] * 6, "size": [1] * 6}
        if name == "seen":
            columns = {"ts": units["micros"], "flow": ["IBM"] * 6, "received`at": values}
        pq.write_table(pa.table(columns), tmp_path / f"{name}.parquet")
    for name in ("zoned", "plain"):  # by itself, and with all the others
        log = published(spark, str(tmp_path / f"{name}.parquet"))
        micros = {row[0] for row in log.used.selectExpr("unix_micros(ts)").collect()}
        assert micros == {moment // 1_000 for moment in moments[: 6 - (name == "plain")]}
    log = published(spark, str(tmp_path))
    assert log.used.count() == 23
    assert reasons(log) == {Reason.NO_TS: 1}
    kept = read_publications(spark, str(tmp_path), attributes="all").valid
    assert dict(kept.dtypes)["received`at"] == "timestamp"
    assert kept.where("`received``at` IS NOT NULL").count() == 6


def test_parquet_files_that_disagree_on_a_type_are_named_with_the_column(
    spark: SparkSession, tmp_path: Path
) -> None:
    noon = datetime(2024, 1, 1, 12, tzinfo=UTC)
    times = {"ts": pa.array([noon], pa.timestamp("us", "UTC"))}
    nanos = {"ts": pa.array([noon], pa.timestamp("ns", "UTC"))}
    cases = {
        "size": [times | {"size": [1]}, times, times | {"size": ["1"]}],
        "ts": [nanos, times, {"ts": [NOON]}],
        "note": [nanos | {"note": [1]}, times | {"note": [1.5]}],
    }
    for column, tables in cases.items():
        folder = tmp_path / column
        folder.mkdir()
        for number, table in enumerate(tables):
            pq.write_table(pa.table(table | {"flow": ["IBM"]}), folder / f"{number}.parquet")
        with pytest.raises(InputError) as caught:
            read_publications(spark, str(folder))
        last = len(tables) - 1
        assert caught.value.path == str(folder / f"{last}.parquet")
        assert f"column {column!r} holds " in str(caught.value)
        assert str(folder / "0.parquet") in caught.value.reason


def test_a_type_that_can_never_do_is_refused_at_once(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    pq.write_table(pa.table({"ts": [True], "flow": ["IBM"]}), path)
    with pytest.raises(InputError, match="'ts' holds boolean values; they must be times"):
        read_publications(spark, str(path))
    pq.write_table(pa.table({"ts": [NOON], "flow": [7.5]}), path)
    with pytest.raises(InputError, match="'flow' holds double values; they must be text"):
        read_publications(spark, str(path))


def test_names_that_are_whole_numbers_are_text(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    pq.write_table(pa.table({"ts": [NOON] * 2, "flow": [7, -(2**63)]}), path)
    log = published(spark, str(path))
    assert {row["flow"] for row in log.used.collect()} == {"7", str(-(2**63))}


def test_sizes_of_any_number_type(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "log.parquet")
    for values, good in (
        ([5, -1, 2**40], [5]),
        ([5.0, 5.5, 1e300], [5]),
        ([5.0] + [float("nan")] * 2, [5]),
    ):
        table = {"ts": [NOON] * 3, "flow": ["IBM"] * 3, "size": values}
        pq.write_table(pa.table(table), path)
        log = published(spark, path)
        assert [row["size"] for row in log.used.collect()] == good
        assert reasons(log) == {Reason.SIZE: 2}


def test_equal_subscriptions_are_one(spark: SparkSession, tmp_path: Path) -> None:
    row = (NOON, "ann", "IBM", "subscribe")
    rows = [row, row, (NOON, "ann", "IBM", "unsubscribe"), ("2024-01-01", *row[1:]), row]
    log = subscribed(spark, write(tmp_path / "a.csv", SUBSCRIPTIONS.fieldNames(), rows))
    counts = subscription_counts(subscription_digest(log))
    assert (counts.read, counts.used, counts.duplicates) == (5, 3, 2)


@pytest.mark.parametrize("name", ["log.parquet", "log.csv", "log.jsonl"])
def test_messages_are_the_same_only_if_their_ids_are(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    rows = [
        (NOON, "A", "1"),
        (NOON, "A", "1"),
        (NOON, "B", "2"),
        ("2024-01-01", "C", "2"),
        (NOON, "A", None),
        (NOON, "A", None),
        ("never", "A", "3"),
        (NOON, "A", "3"),
    ]
    log = published(spark, write(tmp_path / name, ["ts", "flow", "id"], rows))
    counts = publication_counts(publication_digest(log.rows))
    assert (counts.used, counts.duplicates, counts.quarantined) == (5, 2, 1)
    assert sorted(row["flow"] for row in log.used.collect()) == ["A", "A", "A", "A", "C"]


@pytest.mark.parametrize("key", ['"id"', "'id'", r'"\u0069d"'])
@pytest.mark.parametrize("shape", [LogShape(), LogShape({"id": "id"}), LogShape(guess=False)])
def test_ids_count_wherever_in_a_log_the_first_one_is(
    spark: SparkSession, tmp_path: Path, key: str, shape: LogShape
) -> None:
    plain = f'{{"ts": "{NOON}", "flow": "A"}}\n'
    known = f'{{"ts": "{NOON}", "flow": "A", {key}: "x"}}\n'
    (tmp_path / "log.jsonl").write_text(plain * 120 + known * 2)
    log = read_publications(spark, str(tmp_path / "log.jsonl"), shape=shape)
    counts = publication_counts(publication_digest(log.rows))
    assert (counts.used, counts.duplicates) == (121, 1)


def test_an_id_inside_of_another_value_is_none(spark: SparkSession, tmp_path: Path) -> None:
    line = f'{{"ts": "{NOON}", "flow": "A", "value": {{"id": 1}}, "text": "\\"id\\""}}\n'
    (tmp_path / "log.jsonl").write_text(line * 2)
    log = read_publications(spark, str(tmp_path / "log.jsonl"))
    assert not log.identified
    assert publication_counts(publication_digest(log.rows)).used == 2


def test_attributes_are_kept_on_request(spark: SparkSession, tmp_path: Path) -> None:
    rows = [(NOON, "A", "1.5"), (NOON, "A", None)]
    for name in ("a.csv", "b.jsonl"):
        path = write(tmp_path / name, ["ts", "flow", "price"], rows)
        log = read_publications(spark, path, attributes="all")
        kept = {"a.csv": 1.5, "b.jsonl": "1.5"}[name]  # JSON knows a number from a text
        assert [row["price"] for row in log.used.collect()] == [kept, None]
    typed = pa.schema([("price", pa.float64())])
    spark_schema = spark.createDataFrame(pa.table({"price": [1.5]}, schema=typed)).schema
    rows.append((NOON, "A", "dear"))
    path = write(tmp_path / "a.csv", ["ts", "flow", "price"], rows)
    log = read_publications(spark, path, attributes=spark_schema)
    assert [row["price"] for row in log.used.collect()] == [1.5, None]
    assert reasons(log) == {Reason.ATTRIBUTE: 1}


def test_a_table_by_name(spark: SparkSession, tmp_path: Path) -> None:
    rows = [(NOON, "ann", "IBM", "subscribe"), (NOON, "bob", "IBM", "join")]
    frame = spark.createDataFrame(rows, SUBSCRIPTIONS.fieldNames())
    frame.createOrReplaceTempView("actions")
    for name in ("actions", "table:actions"):
        log = subscribed(spark, name)
        assert reasons(log) == {Reason.ACTION: 1}
        assert log.used.collect()[0]["position"].asDict() == dict.fromkeys(
            ("file", "block", "line")
        )
    with pytest.raises(InputError, match=r"nobody: no such file, folder or table"):
        resolve_source(spark, "nobody")


def test_filters_are_read(spark: SparkSession, tmp_path: Path) -> None:
    path = write(
        tmp_path / "f.jsonl",
        ["receiver", "filter"],
        [("ann", "price > 5"), (None, "x = 1"), ("bob", "")],
    )
    log = read_filters(spark, path)
    assert reasons(log) == {Reason.NO_RECEIVER: 1, Reason.NO_FILTER: 1}
    assert [row["filter"] for row in log.used.collect()] == ["price > 5"]


def test_files_that_disagree_grow_columns(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "x" / "a.parquet", ["ts", "flow"], [(NOON, "A")])
    write(tmp_path / "x" / "b.parquet", ["ts", "flow", "size"], [(NOON, "B", "5")])
    log = published(spark, str(tmp_path / "x"))
    assert {row["flow"]: row["size"] for row in log.used.collect()} == {"A": None, "B": 5}
    pq.write_table(pa.table({"ts": [NOON], "flow": [7]}), tmp_path / "x" / "c.parquet")
    with pytest.raises(InputError, match="column 'flow' holds bigint values, and string in "):
        read_publications(spark, str(tmp_path / "x"))


@pytest.mark.parametrize("made", ["nothing", "empty", "mixed", "odd", "columns", "truncated"])
def test_what_cannot_be_read_is_said_in_one_line(
    spark: SparkSession, tmp_path: Path, made: str
) -> None:
    folder = tmp_path / "log"
    names = ["ts", "flow"]
    if made != "nothing":
        folder.mkdir()
    if made == "mixed":
        write(folder / "a.csv", names, [])
        write(folder / "b.jsonl", names, [])
    if made == "odd":
        (folder / "a.txt").write_text("x")
    if made == "columns":
        write(folder / "a.csv", ["time", "flow"], [])
    if made == "truncated":
        for part in "ab":
            write(folder / f"{part}.parquet", names, [(NOON, "IBM")] * 100)
        whole = (folder / "b.parquet").read_bytes()
        (folder / "b.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError) as caught, report_read_faults(str(folder)):
        read_publications(spark, str(folder)).used.count()
    words = {
        "nothing": "no such file or folder",
        "empty": "the folder holds no files",
        "mixed": "mixes formats: csv, json",
        "odd": "a.txt: is neither",
        "columns": "a.csv: has no column 'ts', only 'time', 'flow'",
        "truncated": "b.parquet: is damaged",
    }
    assert words[made] in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_damaged_inside_is_named(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "log" / "a.parquet"
    write(path, ["ts", "flow"], [(NOON, f"flow {i}") for i in range(1000)])
    data = bytearray(path.read_bytes())
    data[4:2000] = bytes(1996)
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"a\.parquet: is damaged"), report_read_faults("log"):
        read_publications(spark, str(path.parent)).used.count()
    path = tmp_path / "zip" / "a.csv.gz"
    write(path, ["ts", "flow"], [(NOON, f"flow {i}") for i in range(1000)])
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(InputError, match=r"a\.csv\.gz: is damaged"), report_read_faults("zip"):
        read_publications(spark, str(path.parent)).used.count()


def test_patterns_and_nested_folders(spark: SparkSession, tmp_path: Path) -> None:
    for day in ("mon", "tue"):
        write(tmp_path / day / "deep" / "a.csv", ["ts", "flow"], [(NOON, day)])
    (tmp_path / "mon" / "_temporary").mkdir()
    write(tmp_path / "mon" / "_temporary" / "b.csv", ["ts", "flow"], [(NOON, "no")])
    (tmp_path / "mon" / ".hidden.csv").write_text("x")
    everything = read_publications(spark, str(tmp_path / "*"))
    assert sorted(row["flow"] for row in everything.used.collect()) == ["mon", "tue"]
    assert len(resolve_source(spark, str(tmp_path / "t*")).files) == 1


def test_too_many_bad_rows_fail_with_the_worst_reasons() -> None:
    counts = RowCounts(used=98, duplicates=0, reasons={Reason.TS: 1, Reason.NO_FLOW: 1})
    check_bad("publications", counts, 0.02)
    with pytest.raises(BadRowsError, match=r"2 of 100 rows of the publications .* 1\.000%"):
        check_bad("publications", counts, 0.01)
    check_bad("publications", RowCounts(0, 0, {}), 0.0)


def test_counts_that_do_not_add_up_are_an_error() -> None:
    counts = RowCounts(used=5, duplicates=1, reasons={Reason.TS: 2})
    check_sum("publications", 8, counts, 2)
    for read, written in ((9, 2), (8, 1)):
        with pytest.raises(CountError, match="5 used"):
            check_sum("publications", read, counts, written)


def test_a_window_must_have_a_length() -> None:
    with pytest.raises(ValueError, match="before it begins"):
        TimeWindow(WINDOW.until, WINDOW.since)
