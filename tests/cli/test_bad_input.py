"""Each kind of bad input, through the command line: one line, file, row and value; no traceback."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import CommandLine, Ran

INTEREST = "receiver,flow\nann,a\nbob,b\n"
RATES = "flow,rate\na,1\nb,2\n"


def plan_with(cli: CommandLine, interest: str | bytes, rates: str | bytes) -> Ran:
    cli.write("interest.csv", interest)
    cli.write("rates.csv", rates)
    return cli(
        "plan", "--interest", "interest.csv", "--rates", "rates.csv", "--groups", "1",
        "--out", "plan",
    )  # fmt: skip


def assert_one_line(ran: Ran, *said: str) -> None:
    assert ran.status == 1, ran
    assert ran.out == ""
    lines = ran.err.strip().splitlines()
    assert len(lines) == 1, ran.err
    assert lines[0].startswith("error: ")
    assert "defect" not in lines[0]
    for words in said:
        assert words in lines[0]


@pytest.mark.parametrize(
    ("interest", "rates", "said"),
    [
        ("receiver,stream\nann,a\n", RATES, ("interest.csv", "flow")),
        (INTEREST, "flow,speed\na,1\n", ("rates.csv", "rate")),
        (INTEREST, "flow,rate\na,fast\nb,2\n", ("rates.csv, row 1", "'fast'")),
        (INTEREST, "flow,rate\na,1\nb,-2\n", ("rates.csv, row 2", "-2")),
        (INTEREST, "flow,rate\na,0\nb,2\n", ("rates.csv, row 1", "0")),
        (INTEREST, "flow,rate\na,NaN\nb,2\n", ("rates.csv, row 1", "nan")),
        (INTEREST, "flow,rate\na,1\nb,inf\n", ("rates.csv, row 2", "inf")),
        (INTEREST, "flow,rate\na,\nb,2\n", ("rates.csv, row 1",)),
        (INTEREST, "flow,rate\na,1\nb,2\nb,3\n", ("rates.csv, row 3", "'b'")),
        (INTEREST, "flow,rate\na,1\n", ("rates.csv", "'b'", "no rate")),
        ("receiver,flow\nann,a\n,b\n", RATES, ("interest.csv, row 2", "receiver")),
        ("receiver,flow\nann,a,x\n", RATES, ("interest.csv, row 1",)),
        ("", RATES, ("interest.csv", "no rows")),
        ("receiver,flow\n", RATES, ("interest.csv", "no rows")),
        (INTEREST, "", ("rates.csv", "no rows")),
        (b"receiver,flow\nann,\xff\xfe\n", RATES, ("interest.csv",)),
        (INTEREST, "flow,rate\na,1e308\nb,1.7e308\n", ("rates.csv",)),
    ],
    ids=lambda value: None if isinstance(value, tuple) else repr(value)[:40],
)
def test_a_bad_table_gets_one_line_with_file_row_and_value(
    cli: CommandLine, interest: str | bytes, rates: str | bytes, said: tuple[str, ...]
) -> None:
    assert_one_line(plan_with(cli, interest, rates), *said)
    assert not (cli.folder / "plan").exists()


def test_a_missing_file_is_named(cli: CommandLine, inputs: tuple[str, ...]) -> None:
    ran = cli("plan", "--interest", "no.csv", "--rates", "rates.csv", "--groups", "1", "--out", "p")
    assert_one_line(ran, "no.csv")


def test_an_unknown_extension_is_named(cli: CommandLine, inputs: tuple[str, ...]) -> None:
    cli.write("interest.xlsx", "x")
    ran = cli(
        "plan", "--interest", "interest.xlsx", "--rates", "rates.csv", "--groups", "1", "--out", "p"
    )
    assert_one_line(ran, "interest.xlsx", ".parquet")


def test_a_truncated_parquet_file_is_named(cli: CommandLine, inputs: tuple[str, ...]) -> None:
    whole = cli.folder / "whole.parquet"
    pq.write_table(pa.table({"receiver": ["ann"] * 99, "flow": ["a"] * 99}), whole)
    cli.write("cut.parquet", whole.read_bytes()[:-20])
    ran = cli(
        "plan", "--interest", "cut.parquet", "--rates", "rates.csv", "--groups", "1", "--out", "p"
    )
    assert_one_line(ran, "cut.parquet")


def test_a_wrong_type_in_parquet_is_named(cli: CommandLine, inputs: tuple[str, ...]) -> None:
    pq.write_table(pa.table({"receiver": ["ann"], "flow": [1]}), cli.folder / "i.parquet")
    ran = cli(
        "plan", "--interest", "i.parquet", "--rates", "rates.csv", "--groups", "1", "--out", "p"
    )
    assert_one_line(ran, "i.parquet", "flow", "int64")


def test_a_json_line_that_does_not_parse_is_named(
    cli: CommandLine, inputs: tuple[str, ...]
) -> None:
    cli.write("i.jsonl", '{"receiver": "ann", "flow": "a"}\n{"receiver": "bob"')
    ran = cli(
        "plan", "--interest", "i.jsonl", "--rates", "rates.csv", "--groups", "1", "--out", "p"
    )
    assert_one_line(ran, "i.jsonl, row 2")


@pytest.fixture
def csv_plan(cli: CommandLine, inputs: tuple[str, ...]) -> Path:
    ran = cli("plan", *inputs, "--groups", "2", "--out", "plan", "--format", "csv")
    assert ran.status == 0
    return cli.folder / "plan"


@pytest.mark.parametrize(
    ("table", "row", "said"),
    [
        ("subscriptions", "stranger,0,0", ("subscriptions.csv", "'stranger'")),
        ("placements", "nobody-wants-it,0", ("placements.csv", "'nobody-wants-it'")),
        ("placements", "a,99", ("placements.csv", "99")),
        ("sessions", "7,0", ("sessions.csv", "7")),
        ("subscriptions", "ann,0,99", ("subscriptions.csv", "99")),
    ],
)
def test_a_plan_with_an_impossible_row_is_refused(
    cli: CommandLine,
    inputs: tuple[str, ...],
    csv_plan: Path,
    table: str,
    row: str,
    said: tuple[str, ...],
) -> None:
    path = csv_plan / f"{table}.csv"
    path.write_text(path.read_text() + row + "\n")
    assert_one_line(cli("evaluate", "plan", *inputs, "--json"), *said, "row")


def test_a_plan_that_misses_somebody_is_reported_invalid_with_its_cost(
    cli: CommandLine, inputs: tuple[str, ...], csv_plan: Path
) -> None:
    path = csv_plan / "subscriptions.csv"
    kept = [line for line in path.read_text().splitlines() if "ann" not in line]
    path.write_text("\n".join(kept) + "\n")
    ran = cli("evaluate", "plan", *inputs, "--json")
    assert ran.status == 1
    assert ran.document["valid"] is False
    assert "'ann' misses flow 'a'" in ran.document["problems"][0]
    assert len(ran.err.strip().splitlines()) == 1


def test_a_plan_with_an_empty_session_is_reported_invalid(
    cli: CommandLine, inputs: tuple[str, ...], csv_plan: Path
) -> None:
    path = csv_plan / "sessions.csv"
    path.write_text(path.read_text() + "2,0\n")
    ran = cli("evaluate", "plan", *inputs, "--json")
    assert (ran.status, ran.document["valid"]) == (1, False)
    assert any("session 2 carries no flow" in problem for problem in ran.document["problems"])


def test_a_folder_that_is_not_a_plan_is_neither_read_nor_overwritten(
    cli: CommandLine, inputs: tuple[str, ...]
) -> None:
    kept = cli.write("precious/notes.txt", "mine")
    assert_one_line(cli("plan", *inputs, "--groups", "1", "--out", "precious"), "precious")
    assert_one_line(cli("evaluate", "precious", *inputs), "precious", "plan.json")
    assert kept.read_text() == "mine"
    assert [path.name for path in kept.parent.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(
    "words",
    [
        ("--groups", "0"),
        ("--groups", "3", "--sessions", "2"),
        ("--groups", "2", "--algorithm", "magic"),
        ("--groups", "2", "--budget", "soon"),
        ("--groups", "2", "--alpha", "-1"),
        ("--groups", "2", "--alpha", "0", "--beta", "0"),
        ("--groups", "2", "--objective", "beauty"),
        ("--groups", "2", "--seed", "-1"),
        ("--groups", "two"),
        (),
    ],
)
def test_wrong_usage_exits_with_2_and_writes_nothing(
    cli: CommandLine, inputs: tuple[str, ...], words: tuple[str, ...]
) -> None:
    ran = cli("plan", *inputs, *words, "--out", "plan")
    assert ran.status == 2, ran
    assert "Traceback" not in ran.err
    assert not (cli.folder / "plan").exists()


def test_ids_of_any_unicode_survive_from_file_to_plan(cli: CommandLine) -> None:
    flow, receiver = 'ß"，\n☃ "', "Ω\u202e,=1+1"
    quoted = [name.replace('"', '""') for name in (receiver, flow)]
    cli.write("interest.csv", f'receiver,flow\n"{quoted[0]}","{quoted[1]}"\n')
    cli.write("rates.csv", f'flow,rate\n"{quoted[1]}",1\n')
    files = ("--interest", "interest.csv", "--rates", "rates.csv")
    assert cli("plan", *files, "--groups", "1", "--out", "plan").status == 0
    table = pq.read_table(cli.folder / "plan" / "placements.parquet")
    assert table["flow"].to_pylist() == [flow]
    document = cli("evaluate", "plan", *files, "--json").document
    assert [row["receiver"] for row in document["per_receiver"]] == [receiver]
