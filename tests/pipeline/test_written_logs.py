"""Logs as they are written elsewhere: other names, words, times and nesting."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from distributary.errors import InputError
from distributary.pipeline.ingest import (
    Log,
    Reason,
    check_sum,
    count_rows_at_source,
    read_filters,
    read_publications,
    read_subscriptions,
)
from distributary.pipeline.interest import subscription_counts, subscription_digest
from distributary.pipeline.rates import publication_counts, publication_digest
from distributary.pipeline.shapes import UNITS, LogShape, TimeUnit
from distributary.pipeline.sources import resolve_source, sources_of

SECOND = 1_741_000_000  # 2025-03-03T11:06:40Z
NOON = "2025-03-03T12:00:00Z"

ACTIONS = [
    (SECOND, "ann", "IBM", "subscribe"),
    (SECOND + 1, "bob", "IBM", "subscribe"),
    (SECOND + 2, "ann", "SAP", "subscribe"),
    (SECOND + 3, "bob", "IBM", "unsubscribe"),
    (SECOND + 3, "bob", "IBM", "unsubscribe"),
    (None, "bob", "SAP", "subscribe"),
    (SECOND * 1000, "bob", "SAP", "subscribe"),
    (SECOND, None, "SAP", "subscribe"),
    (SECOND, "ann", None, "subscribe"),
    (SECOND, "ann", "SAP", "hop"),
]
REASONS = {
    Reason.NO_TS: 1,
    Reason.YEAR_MS: 1,
    Reason.NO_RECEIVER: 1,
    Reason.NO_FLOW: 1,
    Reason.ACTION: 1,
}
WORDS = {"subscribe": "SUB", "unsubscribe": "UNSUB"}
SHAPE = LogShape(
    {"ts": "meta.at", "receiver": "client", "flow": "$.what['sym.bol'][0]", "action": "op"},
    subscribe=("JOIN", "SUB"),
    unsubscribe=("UNSUB",),
)


def reasons(log: Log) -> Counter[str]:
    return Counter(row["reason"] for row in log.quarantined.collect())


def count(log: Log) -> tuple[int, int, dict[str, int]]:
    """The counts of a log, which are checked to add up."""
    if log.name == "subscriptions":
        counts = subscription_counts(subscription_digest(log))
    else:
        counts = publication_counts(publication_digest(log.rows))
    check_sum(log.name, count_rows_at_source(log), counts, sum(reasons(log).values()))
    return counts.used, counts.duplicates, dict(counts.reasons)


def used(log: Log) -> list[tuple[object, ...]]:
    """The used rows without their positions, sorted; times as microseconds."""
    rows = log.used.selectExpr("unix_micros(ts) AS us", "*").drop("ts", "position").collect()
    return sorted((tuple(row) for row in rows), key=repr)


def nested(row: tuple[Any, ...]) -> dict[str, Any]:
    """A row in the shape above."""
    at, receiver, flow, action = row
    return {
        "meta": {"at": at},
        "client": receiver,
        "what": {"sym.bol": [flow], "n": 1},
        "op": WORDS.get(action, action),
        "receiver": "nobody",
    }


def in_csv(path: Path, rows: Sequence[tuple[Any, ...]]) -> str:
    """The nested columns as JSON in cells."""
    lines = ["meta,client,what,op,receiver"]
    for row in map(nested, rows):
        cells = [json.dumps(row["meta"]), row["client"] or "", json.dumps(row["what"]), row["op"]]
        lines.append(",".join('"' + cell.replace('"', '""') + '"' for cell in [*cells, "nobody"]))
    path.with_suffix(".csv").write_text("\n".join(lines) + "\n")
    return str(path.with_suffix(".csv"))


def in_json(path: Path, rows: Sequence[tuple[Any, ...]]) -> str:
    text = "".join(json.dumps(nested(row)) + "\n" for row in rows)
    path.with_suffix(".jsonl").write_text(text)
    return str(path.with_suffix(".jsonl"))


def in_json_in_json(path: Path, rows: Sequence[tuple[Any, ...]]) -> str:
    """Nested columns as strings that hold JSON, as Kafka's values are."""
    lines = []
    for row in map(nested, rows):
        row["what"], row["meta"] = json.dumps(row["what"]), json.dumps(row["meta"])
        lines.append(json.dumps(row) + "\n")
    path.with_suffix(".jsonl").write_text("".join(lines))
    return str(path.with_suffix(".jsonl"))


def in_parquet(path: Path, rows: Sequence[tuple[Any, ...]]) -> str:
    table = pa.Table.from_pylist([nested(row) for row in rows])
    pq.write_table(table, path.with_suffix(".parquet"), row_group_size=2)
    return str(path.with_suffix(".parquet"))


@pytest.mark.parametrize("write", [in_csv, in_json, in_json_in_json, in_parquet, "table"])
def test_a_mapped_log_is_the_same_log(
    spark: SparkSession,
    tmp_path: Path,
    write: Callable[[Path, Sequence[tuple[Any, ...]]], str] | str,
) -> None:
    plain = tmp_path / "plain.jsonl"
    names = ("ts", "receiver", "flow", "action")
    plain.write_text(
        "".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in ACTIONS)
    )
    standard = read_subscriptions(spark, str(plain))
    if isinstance(write, str):
        where = "table:nested_actions"
        frame = spark.read.parquet(in_parquet(tmp_path / "log", ACTIONS))
        frame.createOrReplaceTempView("nested_actions")
    else:
        where = write(tmp_path / "log", ACTIONS)
    mapped = read_subscriptions(spark, where, shape=SHAPE)
    assert used(mapped) == used(standard)
    assert count(mapped) == count(standard) == (4, 1, REASONS)


def test_a_mapped_log_is_the_same_in_any_number_of_files(
    spark: SparkSession, tmp_path: Path
) -> None:
    whole = read_subscriptions(spark, in_json(tmp_path / "whole", ACTIONS), shape=SHAPE)
    folder = tmp_path / "parts"
    folder.mkdir()
    for number, row in enumerate(ACTIONS):
        in_json(folder / f"{number}", [row])
    parts = read_subscriptions(spark, str(folder), shape=SHAPE)
    assert used(parts) == used(whole)
    assert count(parts) == count(whole)


@pytest.mark.parametrize(
    ("unit", "scale"),
    [
        ("s", 1),
        pytest.param("ms", 10**3, marks=pytest.mark.slow),
        pytest.param("us", 10**6, marks=pytest.mark.slow),
        ("ns", 10**9),
    ],
)
@pytest.mark.parametrize("kind", ["json", "csv", "int64", "float64", "text"])
def test_the_unit_of_times_is_found(
    spark: SparkSession, tmp_path: Path, unit: str, scale: int, kind: str
) -> None:
    times = [SECOND * scale, (SECOND + 60) * scale, 5]
    path = tmp_path / f"log.{kind if kind in ('json', 'csv') else 'parquet'}"
    if kind == "json":
        path.write_text("".join(f'{{"ts":{time},"flow":"A"}}\n' for time in times))
    elif kind == "csv":
        path.write_text("".join(["ts,flow\n", *(f"{time},A\n" for time in times)]))
    else:
        column = pa.array([str(time) for time in times]) if kind == "text" else pa.array(times)
        column = column if kind == "text" else column.cast(getattr(pa, kind)(), safe=False)
        pq.write_table(pa.table({"ts": column, "flow": ["A"] * 3}), path)
    for shape in (LogShape(), LogShape(time_unit=unit)):  # type: ignore[arg-type]
        log = read_publications(spark, str(path), shape=shape)
        assert [row[0] for row in used(log)] == [SECOND * 10**6, (SECOND + 60) * 10**6]
        assert count(log) == (2, 0, {Reason.YEAR: 1})


def test_a_unit_that_cannot_be_is_said_with_the_one_that_fits(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "log.csv"
    path.write_text(f"ts,flow\n{SECOND * 1000},A\n{SECOND * 1000},B\n{SECOND},C\n")
    with pytest.raises(InputError, match="in ms they fit; use --time-unit ms"):
        read_publications(spark, str(path), shape=LogShape(time_unit="ns"))
    pq.write_table(pa.table({"ts": [1, 2], "flow": ["A", "B"]}), tmp_path / "log.parquet")
    with pytest.raises(InputError, match="in no unit; name the column of times with --column ts="):
        read_publications(spark, str(tmp_path / "log.parquet"))
    path.write_text("ts,flow\n1,A\n2,B\n")
    with pytest.raises(InputError, match="in no unit; name the column of times with --column ts="):
        read_publications(spark, str(path))
    with pytest.raises(InputError, match="no unit fits; name another column"):
        read_publications(spark, str(tmp_path / "log.parquet"), shape=LogShape(time_unit="s"))


@pytest.mark.parametrize("unit", list(UNITS))
def test_a_time_in_another_unit_is_put_aside_with_the_unit_that_fits(
    spark: SparkSession, tmp_path: Path, unit: TimeUnit
) -> None:
    path = tmp_path / "log.csv"
    others = {one: SECOND * scale for one, scale in UNITS.items() if one != unit}
    lines = [f"{SECOND * UNITS[unit]},A"] * 5 + [f"{time},A" for time in (*others.values(), 5)]
    path.write_text("\n".join(["ts,flow", *lines]) + "\n")
    fitting = {Reason[f"YEAR_{one.upper()}"]: 1 for one in others}
    log = read_publications(spark, str(path), shape=LogShape(time_unit=unit))
    assert count(log) == (5, 0, {**fitting, Reason.YEAR: 1})


def test_a_stream_does_not_guess_the_unit(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(f'{{"ts":{SECOND},"flow":"A"}}\n{{"ts":"{NOON}","flow":"A"}}\n')
    batch = sources_of(str(path), resolve_source(spark, str(path)).files)[0]
    log = read_publications(spark, batch, shape=LogShape(guess=False))
    assert count(log) == (1, 0, {Reason.UNIT: 1})
    log = read_publications(spark, batch, shape=LogShape(guess=False, time_unit="s"))
    assert count(log) == (2, 0, {})
    pq.write_table(pa.table({"ts": [SECOND], "flow": ["A"]}), tmp_path / "log.parquet")
    with pytest.raises(InputError, match="name their unit with --time-unit"):
        read_publications(spark, str(tmp_path / "log.parquet"), shape=LogShape(guess=False))


def test_nanoseconds_without_a_zone_are_local(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "log.parquet")
    noon = datetime(2025, 7, 1, 12)
    utc = int(noon.replace(tzinfo=UTC).timestamp()) * 10**6
    for unit in ("ns", "us"):
        for zone, hours in ((None, 2), ("UTC", 0)):
            times = pa.array([noon], pa.timestamp(unit, zone))
            pq.write_table(pa.table({"ts": times, "flow": ["A"]}), path)
            log = read_publications(spark, path, shape=LogShape(time_zone="Europe/Berlin"))
            assert used(log)[0][0] == utc - hours * 3600 * 10**6


def test_kafka_dumps_are_read_through_their_values(spark: SparkSession, tmp_path: Path) -> None:
    value = {"symbol": "IBM", "len": 10, "x": {"y": "z"}}
    rows = [
        {"topic": "t", "timestamp": SECOND * 1000, "offset": 1, "value": json.dumps(value)},
        {"topic": "t", "timestamp": SECOND * 1000 + 5, "offset": 2, "value": value},
        {"topic": "t", "timestamp": SECOND * 1000 + 5, "offset": 2, "value": value},
        {"topic": "t", "timestamp": SECOND * 1000, "offset": 3, "value": "not JSON"},
        {"topic": "t", "timestamp": SECOND * 1000, "offset": 4, "value": None},
    ]
    shape = LogShape(
        {"ts": "timestamp", "flow": "value.symbol", "size": "value.len", "id": "offset"}
    )
    path = tmp_path / "dump.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    log = read_publications(spark, str(path), shape=shape)
    assert count(log) == (2, 1, {Reason.NO_FLOW: 2})
    assert {row["size"] for row in log.used.collect()} == {10}
    binary = [{**row, "value": json.dumps(row["value"]).encode()} for row in rows[1:3]]
    pq.write_table(pa.Table.from_pylist(binary), tmp_path / "dump.parquet")
    assert count(read_publications(spark, str(tmp_path / "dump.parquet"), shape=shape))[0] == 1


def test_a_name_with_dots_is_taken_as_it_stands(spark: SparkSession, tmp_path: Path) -> None:
    shape = LogShape({"flow": "event.name"})
    rows = [{"ts": NOON, "event.name": "A"}, {"ts": NOON, "event": {"name": "B"}}]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    log = read_publications(spark, str(tmp_path / "log.jsonl"), shape=shape)
    assert {row["flow"] for row in log.used.collect()} == {"A", "B"}
    (tmp_path / "log.csv").write_text(f"ts,event.name\n{NOON},A\n")
    assert count(read_publications(spark, str(tmp_path / "log.csv"), shape=shape))[0] == 1
    pq.write_table(pa.Table.from_pylist(rows[:1]), tmp_path / "log.parquet")
    assert count(read_publications(spark, str(tmp_path / "log.parquet"), shape=shape))[0] == 1


def test_keys_of_any_name_are_found(spark: SparkSession, tmp_path: Path) -> None:
    for number, key in enumerate(["it's?", "a.b[0]", 'say "so"', "\\", "ключ", "$", " "]):
        escaped = key.replace("\\", "\\\\").replace("'", "\\'")
        path = tmp_path / f"{number}.jsonl"
        path.write_text(json.dumps({"ts": NOON, "in": {key: {key: "A"}}}) + "\n")
        shape = LogShape({"flow": f"in['{escaped}']['{escaped}']"})
        assert count(read_publications(spark, str(path), shape=shape)) == (1, 0, {})


def test_every_row_subscribes_in_a_log_without_actions(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "interest.csv"
    path.write_text("receiver,flow\nann,IBM\nbob,IBM\n,IBM\n")
    with pytest.raises(InputError, match="has no column 'ts'"):
        read_subscriptions(spark, str(path))
    log = read_subscriptions(spark, str(path), shape=LogShape({"ts": "", "action": ""}))
    assert count(log) == (2, 0, {Reason.NO_RECEIVER: 1})
    assert {(row["action"], row["ts"].year) for row in log.used.collect()} == {("subscribe", 1970)}


def test_columns_that_a_log_does_not_have_can_be_left_out(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "log.csv"
    path.write_text(f"ts,flow,size,id\n{NOON},A,XL,ann\n{NOON},A,L,ann\n")
    log = read_publications(spark, str(path), shape=LogShape({"size": "", "id": ""}))
    assert count(log) == (2, 0, {})


MISSING = "has no 'user', which --column names for 'receiver', only "


@pytest.mark.parametrize("name", ["f.csv", "f.jsonl", "f.parquet"])
def test_a_path_that_names_nothing_is_said_in_one_line(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    row = {"who": {"x": 1}, "receiver": "ann", "filter": "a = 1"}
    path = tmp_path / name
    if name == "f.csv":
        path.write_text('who,receiver,filter\n"{""x"": 1}",ann,a = 1\n')
    elif name == "f.jsonl":
        path.write_text(json.dumps(row) + "\n")
    else:
        pq.write_table(pa.Table.from_pylist([row]), path)
    with pytest.raises(InputError) as caught:
        read_filters(spark, str(path), shape=LogShape({"receiver": "user"}))
    assert MISSING in str(caught.value)
    assert "\n" not in str(caught.value)
    if name != "f.csv":
        with pytest.raises(InputError, match=r"has no 'who\.y'"):
            read_filters(spark, str(path), shape=LogShape({"receiver": "who.y"}))
    log = read_filters(spark, str(path), shape=LogShape({"receiver": "who.x"}))
    assert [row["receiver"] for row in log.used.collect()] == ["1"]


def test_a_missing_column_is_said_with_the_option_that_names_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps({"ts": NOON, "receiver": "ann", "flow": "A"}) + "\n")
    with pytest.raises(InputError, match="action= if every row is a subscription"):
        read_subscriptions(spark, str(path))
    path.write_text(json.dumps({"ts": NOON, "topic": "A"}) + "\n")
    with pytest.raises(InputError, match="only 'ts', 'topic'; name it with --column flow=NAME"):
        read_publications(spark, str(path))


def test_a_pattern_that_fits_nothing_is_said_with_the_first_time(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "log.csv"
    path.write_text("ts,flow\n03/Mar/2025:09:00:00 +0200,A\nnever,A\n")
    shape = LogShape(time_format="dd/MMM/yyyy:HH:mm:ss Z")
    assert count(read_publications(spark, str(path), shape=shape)) == (1, 0, {Reason.TS: 1})
    with pytest.raises(InputError, match=r"such as '03/Mar/2025:09:00:00 \+0200'"):
        read_publications(spark, str(path), shape=LogShape(time_format="dd.MM.yyyy"))


def plan_of(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().optimizedPlan().toString())  # type: ignore[operator]


def test_a_log_as_documented_is_read_without_conversion(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "log.parquet")
    times = pa.array([datetime(2025, 1, 1)], pa.timestamp("us", "UTC"))
    pq.write_table(
        pa.table({"ts": times, "receiver": ["a"], "flow": ["b"], "action": ["subscribe"]}), path
    )
    plan = plan_of(read_subscriptions(spark, path).valid.select("ts", "receiver", "flow", "action"))
    for word in ("cast", "regexp", "from_json", "to_utc", "CASE"):
        assert word not in plan.split("Filter")[0]
