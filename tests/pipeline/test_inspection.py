"""What `pipeline inspect` finds, beside what the pipeline reads."""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StringType

from distributary.cli.proposed_command import print_words, read_words, write_words
from distributary.pipeline.ingest import Log, Reason, read_publications, read_subscriptions
from distributary.pipeline.inspection import LogLook, check_log, look_at_log
from distributary.pipeline.looks import find_times
from distributary.pipeline.moments import Clock
from distributary.pipeline.profiles import RowProfile
from distributary.pipeline.proposals import propose
from distributary.pipeline.shapes import LogShapes
from tests.examples import up_to
from tests.in_process import call_main
from tests.pipeline.written import (
    TIMES,
    Writing,
    publications,
    subscriptions,
    write_log,
    writings,
)

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
FORMATS = ["jsonl", "text in jsonl", "csv", "parquet"]
LOGS = {"subscriptions": subscriptions(60), "publications": publications(60)}


def look(spark: SparkSession, path: str, *, all_rows: bool = False, rows: int = 10_000) -> LogLook:
    return look_at_log(spark, path, rows=rows, all_rows=all_rows)


def split_in_shell(line: str) -> list[str]:
    """The words that a shell makes of a command line."""
    script = f'distributary() {{ printf "%s\\0" distributary "$@"; }}\n{line}'
    ran = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    return ran.stdout.split("\0")[:-1]


def outcome(log: Log) -> list[tuple[Any, ...]]:
    """Every row: what is used of it, or why it is not."""
    columns = [name for name in log.columns if name != "ts"]
    good = F.col("reason").isNull()
    rows = log.rows.select(
        "reason",
        F.when(good, F.unix_micros("ts")),
        *(F.when(good, F.col(name)) for name in columns),
    ).collect()
    return sorted((tuple(row) for row in rows), key=repr)


def in_standard_shape(kind: str, writing: Writing) -> list[tuple[Any, ...]]:
    """The same of the log as documented, with times as exact as they were written."""
    found = []
    for row in LOGS[kind]:
        reason: str | None = None
        if row["flow"] == "":
            reason = Reason.NO_FLOW
        elif row.get("action") == "subscrbe":
            reason = Reason.ACTION
        elif row["ts"] is None:
            reason = Reason.NO_TS
        elif row.get("size", 0) < 0:
            reason = Reason.SIZE
        names = [name for name in row if name != "ts"]
        if reason is not None:
            found.append((str(reason), None, *(None for _ in names)))
            continue
        micros = round(row["ts"].timestamp() * 10**6) // writing.grain * writing.grain
        ordered = [row[name] for name in ("receiver", "flow", "action", "size") if name in row]
        found.append((None, micros, *ordered))
    return sorted(found, key=repr)


def test_the_proposed_command_reads_any_recognisable_log_as_what_it_is(
    spark: SparkSession,
) -> None:
    # To shrink a failing example would take minutes.
    @settings(up_to(80, by_default=3), phases=[Phase.generate])
    @given(writings("subscriptions", FORMATS), writings("publications", FORMATS), st.booleans())
    def check(wants: Writing, messages: Writing, swapped: bool) -> None:
        with tempfile.TemporaryDirectory() as name:
            paths = [
                write_log(Path(name), LOGS[writing.kind], writing) for writing in (wants, messages)
            ]
            looks = [look(spark, path) for path in (reversed(paths) if swapped else paths)]
            proposal = propose(looks, {}, LogShapes())
            assert [log.look.path for log in proposal.logs] == paths
            words = write_words(proposal, ["--groups", "3", "--out", "run"])
            assert split_in_shell(print_words(words)) == words
            shapes = read_words(words)
            log = read_subscriptions(spark, paths[0], shape=shapes.subscriptions)
            assert outcome(log) == in_standard_shape("subscriptions", wants)
            log = read_publications(spark, paths[1], shape=shapes.publications)
            assert outcome(log) == in_standard_shape("publications", messages)

    check()


WRITTEN_AS_PATTERNS = {
    name: writer for name, (writer, _) in TIMES.items() if not name.startswith(("iso", "s", "ms"))
} | {
    "single digits": lambda t: f"{t.day}/{t.month}/{t.year} {t.hour}:{t:%M:%S}",
    "short year": lambda t: t.strftime("%d-%b-%y %H:%M:%S"),
    "zone with colon": lambda t: t.strftime("%Y/%m/%d %H:%M:%S") + "+00:00",
    "region": lambda t: t.strftime("%d.%m.%Y %H:%M") + " Europe/London",
    "some fractions": lambda t: (
        t.strftime("%d.%m.%Y %H:%M:%S")
        + (f".{t.microsecond:06d}".rstrip("0") if t.microsecond % 1000 else "")
    ),
    "days": lambda t: t.strftime("%d.%m.%Y"),
    "compact days": lambda t: t.strftime("%Y%m%d"),
}
GRAINS = {"days": 86_400, "compact days": 86_400, "slashes": 60, "region": 60}
FINE = ("points", "some fractions", "us", "ns")


@pytest.mark.parametrize("name", sorted(WRITTEN_AS_PATTERNS.keys() - {"us", "ns"}))
def test_the_pattern_found_in_times_reads_them(spark: SparkSession, name: str) -> None:
    write, drawing = WRITTEN_AS_PATTERNS[name], random.Random(1)
    begin = datetime(2025, 1, 1, tzinfo=UTC)
    seconds = [drawing.randrange(366 * 86_400) for _ in range(60)]
    # In winter, when London is where UTC is.
    seconds = [one % (80 * 86_400) if name == "region" else one for one in seconds]
    times = [
        begin + timedelta(seconds=one, microseconds=drawing.randrange(10**6)) for one in seconds
    ]
    profile = RowProfile()
    profile.add_rows([{"when": write(time)} for time in times])
    found = find_times(profile.list_columns()[0])
    assert found is not None
    assert found.pattern is not None
    assert (found.share, found.doubt) == (1.0, "")
    frame = spark.createDataFrame([(n, write(t)) for n, t in enumerate(times)], "n INT, v STRING")
    clock = Clock(StringType(), pattern=found.pattern)
    rows = frame.select("n", F.unix_micros(clock.parse(F.col("v"))).alias("us")).collect()
    grain = GRAINS.get(name, 1) * (1 if name in FINE else 10**6)
    exact = [round(time.timestamp() * 10**6) for time in times]
    if name == "some fractions":
        exact = [one if one % 1000 else one // 10**6 * 10**6 for one in exact]
    assert [row["us"] for row in sorted(rows)] == [one // grain * grain for one in exact]


@pytest.mark.parametrize("format", ["csv", "jsonl", "parquet", "table"])
def test_bad_rows_are_shown_with_their_place_and_value(
    spark: SparkSession, tmp_path: Path, format: str
) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    rows = [{"ts": 1_741_000_000 + n, "flow": f"f{n % 3}", "size": n} for n in range(40)]
    bad = {7: ("flow", None), 19: ("size", -5), 25: ("ts", 1_741_000_000_000), 33: ("size", -6)}
    for number, (name, value) in bad.items():
        rows[number][name] = value  # type: ignore[assignment]
    for part in range(2):
        some = rows[20 * part : 20 * part + 20]
        path = folder / f"{part}.{format}"
        if format == "csv":
            cells = [",".join("" if v is None else str(v) for v in row.values()) for row in some]
            # Records of two lines, and blank lines, which are no rows.
            path.write_text("ts,flow,size,note\n\n" + "".join(f'{c},"a\nb"\n' for c in cells))
        elif format == "jsonl":
            path.write_text("\n\n".join(map(json.dumps, some)))
        else:
            pq.write_table(pa.Table.from_pylist(some), path.with_suffix(".parquet"))
    where = str(folder)
    if format == "table":
        spark.read.parquet(where).createOrReplaceTempView("inspected")
        where = "table:inspected"
    for all_rows in (False, True):
        found = look(spark, where, all_rows=all_rows)
        assert (found.rows, found.whole) == (40, True)
        checked = check_log(spark, found, "publications", LogShapes().publications)
        shown = {one.reason: (one.count, one.first) for one in checked.bad}
        assert checked.counts.quarantined == 4
        assert {reason: count for reason, (count, _) in shown.items()} == {
            Reason.NO_FLOW: 1,
            Reason.SIZE: 2,
            Reason.YEAR_MS: 1,
        }
        places = [
            (row.file and Path(row.file).name[0], row.row)
            for _, first in shown.values()
            for row in first
        ]
        values = {row.value for _, first in shown.values() for row in first}
        assert {"-5", "-6", "1741000000000"} < values
        if format == "table":
            assert places == [(None, None)] * 4
        else:
            assert sorted(places) == [("0", 8), ("0", 20), ("1", 6), ("1", 14)]  # type: ignore[type-var]


def test_only_the_first_rows_are_looked_at_unless_all_are(
    spark: SparkSession, tmp_path: Path
) -> None:
    lines = [f"{1_741_000_000 + n},f{n % 7}" for n in range(50)] + ["soon,f1"]
    (tmp_path / "log.csv").write_text("ts,flow\n" + "\n".join(lines) + "\n")
    few = look(spark, str(tmp_path / "log.csv"), rows=20)
    assert (few.rows, few.whole) == (20, False)
    assert check_log(spark, few, "publications", LogShapes().publications).bad == ()
    whole = look(spark, str(tmp_path / "log.csv"), rows=20, all_rows=True)
    assert (whole.rows, whole.whole) == (51, True)
    (bad,) = check_log(spark, whole, "publications", LogShapes().publications).bad
    assert (bad.count, bad.first[0].row, bad.first[0].value) == (1, 51, "soon")


def call(*words: str | Path) -> tuple[int, str, str]:
    return call_main(("distributary", "pipeline", "inspect", *map(str, words)), EXAMPLES)


def test_two_logs_make_one_command_that_other_programs_can_read(spark: SparkSession) -> None:
    logs = EXAMPLES / "kafka.jsonl", EXAMPLES / "sessions.csv"
    status, out, err = call(*logs, "--json")
    assert (status, err) == (0, "")
    document = json.loads(out)
    words = document["command"]["words"]
    assert split_in_shell(document["command"]["line"]) == words
    assert "--column publications.flow=value.instrument.symbol" in " ".join(words)
    assert read_words(words).subscriptions.subscribe == ("SUB",)
    messages, wants = document["logs"]
    assert messages["as"]["publications"]["rows"]["used"] == 120
    (bad,) = wants["as"]["subscriptions"]["bad"]
    assert (bad["count"], bad["first"][0]["value"]) == (1, "subscrbe")
    assert bad["first"][0]["row"] == 41
    assert document["fault"] is None

    status, out, err = call(*logs)
    assert (status, err) == (0, "")
    printed = out[out.index("\ndistributary pipeline run") :]
    assert split_in_shell(printed) == words
    assert "# check: the actions 'subscrbe' are not known" in out
    assert "value.instrument.symbol" in out


def test_options_correct_what_was_guessed(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("a,b,c\n1741000000,x,y\n1741000001,x,z\n")
    given = ("--column", "flow=c", "--column", "receiver=b", "--column", "action=")
    status, out, err = call("--subscriptions", path, *given, "--json")
    assert (status, err) == (0, "")
    document = json.loads(out)
    shape = read_words(document["command"]["words"]).subscriptions
    assert shape.columns == {"ts": "a", "receiver": "b", "flow": "c", "action": ""}
    assert document["command"]["missing"] == ["PUBLICATIONS"]
    assert document["logs"][0]["as"]["subscriptions"]["rows"]["used"] == 2


def test_messages_with_receivers_are_both_logs(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "access.csv"
    lines = [
        f"10.0.0.{n % 9},03/Mar/2025:09:{n:02d}:00 +0100,/p/{n % 4},{n * 7}" for n in range(50)
    ]
    path.write_text("remote_addr,time_local,request_path,bytes_sent\n" + "\n".join(lines) + "\n")
    status, out, err = call(path, "--json")
    assert (status, err) == (0, "")
    document = json.loads(out)
    shapes = read_words(document["command"]["words"])
    assert shapes.subscriptions.time_format == "dd/MMM/yyyy:HH:mm:ss Z"
    assert shapes.publications.columns["size"] == "bytes_sent"
    assert {kind: one["rows"]["used"] for kind, one in document["logs"][0]["as"].items()} == {
        "subscriptions": 50,
        "publications": 50,
    }
    assert "each row is taken as a message" in document["command"]["check"][0]


def test_filters_are_checked_against_the_events(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "filters.csv"
    path.write_text("client,filter\nann,market = 'nyse'\nbob,colour = 'red'\ncyd,price >\n")
    status, out, err = call(EXAMPLES / "events.csv", path, "--json")
    assert (status, err) == (0, "")
    document = json.loads(out)
    found = document["logs"][1]["as"]["filters"]
    assert (found["rows"]["used"], found["rows"]["bad"]) == (1, 2)
    assert {row["value"] for bad in found["bad"] for row in bad["first"]} == {
        "colour = 'red'",
        "price >",
    }
    assert "--filters" in document["command"]["words"]


FAULTS: dict[str, tuple[bytes | None, tuple[str, ...], str]] = {
    "missing.csv": (None, (), "no such file or folder"),
    "empty.csv": (b"", (), "holds no header line"),
    "empty.jsonl": (b"", (), "has no rows"),
    "empty.parquet": (b"", (), "is damaged or not a file of its format"),
    "header.csv": (b"ts,flow\n", (), "has no rows"),
    "rubbish.csv": (random.Random(1).randbytes(999), (), "is not text"),
    "rubbish.jsonl": (random.Random(2).randbytes(999), (), "is not text"),
    "rubbish.parquet": (random.Random(3).randbytes(999), (), "is damaged"),
    "rubbish.csv.gz": (random.Random(4).randbytes(999), (), "is damaged"),
    "cut.csv.gz": (gzip.compress(b"ts,flow\n" + random.Random(5).randbytes(999))[:60], (), ""),
    "list.json": (b'[\n{"ts": 1}\n]\n', (), "is one list, not JSON lines"),
    "words.jsonl": (b"once upon\na time\n", (), "no line is a JSON object"),
    "nohead.csv": (b"1741000000,ann,IBM\n1741000001,bob,IBM\n", (), "seems to be a row"),
    "names.csv": (b"ann,IBM,SUB\nann,SAP,SUB\nbob,IBM,SUB\n", (), "seems to be a row"),
    "semicolons.csv": (b"ts;flow\n1;a\n", (), "separated by ';'"),
    "notime.csv": (b"flow,price\na,1\nb,2\n", (), "no column holds times of 1990 to 2100"),
    "old.csv": (b"ts,flow\n1,a\n2,b\n", (), "no column holds times of 1990 to 2100"),
    "map.csv": (b"ts,flow\n1741000000,a\n", ("--column", "flow=symbol"), "has no 'symbol'"),
    "unit.csv": (b"ts,flow\n1741000000000,a\n", ("--time-unit", "s"), "use --time-unit ms"),
    "format.csv": (b"ts,flow\n1.2.2025,a\n", ("--time-format", "yyyy"), "mend --time-format"),
    "log.xlsx": (b"PK", (), "is neither .parquet, .csv, .jsonl nor .json"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_cannot_be_used_is_said_in_one_line(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    content, options, why = FAULTS[name]
    if content is not None:
        (tmp_path / name).write_bytes(content)
    status, _, err = call(tmp_path / name, *options)
    assert status == 1
    assert err.startswith(f"error: {tmp_path / name}: ")
    assert why in err
    assert err.count("\n") == 1
    assert "; " in err


def test_a_damaged_parquet_file_is_named(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    pq.write_table(pa.table({"ts": [*range(9999)], "flow": [f"f{n}" for n in range(9999)]}), path)
    content = bytearray(path.read_bytes())
    content[4:4000] = bytes(3996)
    path.write_bytes(content)
    status, _, err = call(path)
    assert (status, err.count("\n")) == (1, 1)
    assert f"{path}: is damaged" in err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((), "name a log"),
        (("a.csv", "b.csv", "c.csv"), "at most two logs"),
        (("--subscriptions", "a.csv", "--filters", "b.csv"), "not both"),
        (("a.csv", "--rows", "0"), "greater than or equal to 1"),
    ],
)
def test_wrong_usage_is_said_before_spark_starts(words: tuple[str, ...], why: str) -> None:
    status, _, err = call(*words)
    assert status == 2
    assert why in " ".join(err.split())
