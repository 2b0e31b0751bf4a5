"""CSV means the same to `plan`, to a run and to a stream, whatever is in it."""

from __future__ import annotations

import csv
import io
import random
import re
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from distributary.files.columns import Column, ColumnKind
from distributary.files.csv_records import OPEN_LINE, csv_cells, csv_records
from distributary.files.tables import read_rows
from distributary.pipeline.ingest import Reason, count_rows_at_source, read_interest
from distributary.pipeline.run import read_interest_table
from tests.strategies import AWKWARD, names

COLUMNS = (Column("receiver", ColumnKind.TEXT), Column("flow", ColumnKind.TEXT))
PIECES = ['"', '""', ",", "\n", "\r", "\r\n", "a", "b", " ", "é", "\\", "\0", "x,y\n", '"u","v"\n']


def write_folder(folder: Path, texts: list[bytes]) -> dict[str, Path]:
    folder.mkdir()
    paths = {}
    for number, text in enumerate(texts):
        path = folder / f"{number:04d}.csv"
        path.write_bytes(text)
        paths[path.name] = path
    return paths


def rows_of_spark(spark: SparkSession, folder: Path) -> dict[str, list[tuple[str | None, ...]]]:
    """By file: the pairs and, for each row that has a fault, its reason; in order."""
    log = read_interest(spark, str(folder))
    found: dict[str, list[tuple[str | None, ...]]] = {}
    rows = log.rows.orderBy("position").collect()
    assert count_rows_at_source(log) == len(rows)
    for row in rows:
        name = Path(row["position"]["file"]).name
        said = (row["receiver"], row["flow"]) if row["reason"] is None else (row["reason"],)
        found.setdefault(name, []).append(said)
    return found


def rows_of_files(path: Path) -> list[tuple[str | None, ...]]:
    """The same of a table that is read without Spark."""
    table = read_rows(path, COLUMNS, may_be_empty=True)
    kept = table.kept if table.kept is not None else range(table.rows)
    pairs = zip(*(table.columns[name].to_pylist() for name in ("receiver", "flow")), strict=True)
    rows: dict[int, tuple[str | None, ...]] = {
        int(index): pair for index, pair in zip(kept, pairs, strict=True)
    }
    rows |= {bad.row - 1: (bad.reason,) for bad in table.bad}
    return [rows[index] for index in sorted(rows)]


def test_odd_names_come_through_both_readers_as_they_are(
    spark: SparkSession, tmp_path: Path
) -> None:
    rng = random.Random(7)
    pool = [*AWKWARD, 'say "hi"', 'x""y', "a\r\n\r\nb", ' "q" ', 'tail"', '"head', "ü,ß\n☃"]
    pairs = [(name, rng.choice(pool)) for name in pool for _ in range(2)]
    texts = []
    for line_end in ("\n", "\r\n", "\r"):
        file = io.StringIO(newline="")
        writer = csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator=line_end)
        writer.writerows([("receiver", "flow"), *pairs])
        text = file.getvalue().encode()
        texts += [text, b"\xef\xbb\xbf" + text]
    paths = write_folder(tmp_path / "logs", texts)
    found = rows_of_spark(spark, tmp_path / "logs")
    for name, path in paths.items():
        assert found[name] == pairs == rows_of_files(path)


def test_a_doubled_quote_is_a_quote(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text('receiver,flow\nann,"say ""hi"""\nbob,5" pipe\n')
    pairs = read_interest_table(spark, str(path)).collect()
    assert sorted(map(tuple, pairs)) == [("ann", 'say "hi"'), ("bob", '5" pipe')]


def random_texts(number: int) -> list[bytes]:
    """Texts that are sometimes CSV, and some bytes that are not even text."""
    rng = random.Random(11)
    texts = []
    for _ in range(number):
        body = "".join(rng.choices(PIECES, k=rng.randrange(1, 14)))
        header = rng.choice(
            ["receiver,flow", '"receiver","flow"', "flow, receiver", "x,flow,receiver"]
        )
        text = header + rng.choice(["\n", "\r\n"]) + body
        texts.append(text.encode() + rng.choice([b"", b"", b"\n\xff,z\n"]))
    return texts


def ends_inside(text: bytes) -> bool:
    """Whether a line, by itself, ends inside quotes: then Spark reads records and not lines."""
    lines = re.split(r"[\r\n]+", text.decode("utf-8", "replace"))
    return any(re.fullmatch(OPEN_LINE, line) for line in lines)


def test_both_readers_agree_on_any_text(spark: SparkSession, tmp_path: Path) -> None:
    texts = random_texts(300)
    lines = [text for text in texts if not ends_inside(text)][:60]
    records = [text for text in texts if ends_inside(text)][:60]
    assert len(lines) == len(records) == 60
    for group, batch in {"lines": lines, "records": records}.items():
        paths = write_folder(tmp_path / group, batch)
        found = rows_of_spark(spark, tmp_path / group)
        for name, path in paths.items():
            assert found.get(name, []) == rows_of_files(path), path.read_bytes()


def test_a_stray_quote_in_a_log_costs_one_row(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    rows = "".join(f"r{number},f\n" for number in range(200))
    path.write_text(f'receiver,flow\n"ann,f\n{rows}"cy\nd",f\n')
    log = read_interest(spark, str(path))
    assert log.valid.count() == 201
    bad = log.quarantined.collect()
    assert [(row["reason"], row["raw"]) for row in bad] == [(Reason.CORRUPT, '"ann,f')]


@given(st.lists(st.lists(names() | st.just(""), min_size=2, max_size=2), min_size=1))
def test_what_pythons_writer_writes_is_read_back(rows: list[list[str]]) -> None:
    file = io.StringIO(newline="")
    csv.writer(file).writerows(rows)
    file.seek(0)
    assert [csv_cells(record) for record in csv_records(file, 2)] == rows


@settings(max_examples=200)
@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
def test_no_line_is_lost_between_records(text: str) -> None:
    records = list(csv_records(io.StringIO(text, newline=""), 2))
    lines = io.StringIO(text, newline="").read()
    kept = "".join("".join(records).split())
    assert kept == "".join(lines.split())
