"""Tables as they really are: some rows are bad, some flows have no rate."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import CommandLine, Ran

INTEREST = "receiver,flow\nann,a\nann,b\nann,b\n,b\nbob,c\ncyd,\ncyd,d\nbob\n"
RATES = "flow,rate\na,1\nb,0\nc,3\nc,3\nc,4\n,5\nd,much\nd,-1\n"
TABLES = ("--interest", "interest.csv", "--rates", "rates.csv")
CARE = (*TABLES, "--max-bad", "80%", "--floor", "0.5")
REASONS = {
    "interest": {"corrupt line": 1, "no flow": 1, "no receiver": 1},
    "rates": {
        "another rate than an earlier row of its flow": 1,
        "no flow": 1,
        "rate is not a finite number above 0": 3,
    },
}


@pytest.fixture
def tables(cli: CommandLine) -> None:
    cli.write("interest.csv", INTEREST)
    cli.write("rates.csv", RATES)


def assert_one_line(ran: Ran) -> str:
    assert (ran.status, ran.out) == (1, ""), ran
    (line,) = ran.err.strip().splitlines()
    assert line.startswith("error: ")
    assert "defect" not in line
    return line


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize(
    "words", [("plan", "--groups", "2", "--out", "p"), ("sweep", "--groups", "2")]
)
def test_all_kinds_of_faults_are_told_at_once(cli: CommandLine, words: tuple[str, ...]) -> None:
    line = assert_one_line(cli(*words, *TABLES, "--quarantine", "bad.jsonl"))
    for said in (
        "interest.csv, row 4: receiver is empty",
        "row 6: flow is empty",
        "row 8: has 1 of 2 fields: 'bob'",
        "rates.csv, row 2: rate is 0.0 (and 2 more rows like it)",
        "rates.csv, row 5: flow 'c' has rate 4.0 here but 3.0 in row 3",
        "rates.csv, row 6: flow is empty",
        "in all 8 of 16 rows cannot be used",
        "--max-bad",
    ):
        assert said in line
    assert not (cli.folder / "p").exists()
    listed = [json.loads(row) for row in (cli.folder / "bad.jsonl").read_text().splitlines()]
    assert [(row["file"], row["row"]) for row in listed] == [
        *(("interest.csv", row) for row in (4, 6, 8)),
        *(("rates.csv", row) for row in (2, 5, 6, 7, 8)),
    ]
    assert [row["raw"] for row in listed][:4] == [",b", "cyd,", "bob", "b,0"]


@pytest.mark.usefixtures("tables")
def test_bad_rows_are_put_aside_and_counted_and_the_rest_is_planned(cli: CommandLine) -> None:
    made = cli(
        "plan", *CARE, "--groups", "2", "--out", "plan", "--json", "--quarantine", "q.parquet"
    )
    assert made.status == 0, made
    document = made.document["intake"]
    for name, rows in (("interest", 8), ("rates", 8)):
        told = document[name]
        assert told["reasons"] == REASONS[name]
        assert told["quarantined"] == sum(REASONS[name].values())
        assert told["rows"] == rows == told["used"] + told["duplicates"] + told["quarantined"]
    assert document["rates"]["floored"] == 2
    put_aside = pq.read_table("q.parquet")
    assert len(put_aside) == 8
    assert put_aside.column_names == ["file", "row", "reason", "raw"]
    placed = pq.read_table("plan/placements.parquet")["flow"].to_pylist()
    assert sorted(placed) == ["a", "b", "c", "d"]

    checked = cli("evaluate", "plan", *CARE, "--json").document
    assert checked["valid"]
    assert checked["made_from_these_inputs"]
    assert checked["intake"] == document
    assert cli("report", "plan", *CARE, "--no-compare").status == 0
    assert cli("sweep", *CARE, "--groups", "1,2", "--json").document["intake"] == document


@pytest.mark.usefixtures("tables")
def test_people_are_told_what_became_of_the_rows(cli: CommandLine) -> None:
    told = cli("plan", *CARE, "--groups", "2", "--out", "plan").err
    assert "interest: 8 rows = 4 used + 1 duplicates + 3 quarantined\n  1 x corrupt line\n" in told
    assert "rates: 2 wanted flows without a rate get the one of --floor\n" in told


@pytest.mark.usefixtures("tables")
def test_more_bad_rows_than_allowed_are_refused_with_the_share(cli: CommandLine) -> None:
    line = assert_one_line(
        cli("plan", *TABLES, "--max-bad", "40%", "--groups", "2", "--out", "plan")
    )
    assert "8 of 16 rows cannot be used, more than 40.000%" in line


@pytest.mark.usefixtures("tables")
def test_a_flow_whose_rate_was_put_aside_needs_the_floor(cli: CommandLine) -> None:
    line = assert_one_line(
        cli("plan", *TABLES, "--max-bad", "80%", "--groups", "2", "--out", "plan")
    )
    assert "flow 'b' has interest but no rate (and 1 more)" in line
    assert "rate is 0.0" in line
    assert "--floor" in line


def test_silent_flows_get_the_floor_a_mean_size_and_no_lower_peak(cli: CommandLine) -> None:
    cli.write("interest.csv", "receiver,flow\nann,a\nann,b\nann,q\n")
    cli.write("rates.csv", "flow,rate,size,peak\na,1,10,2\nb,3,20,9\n")
    words = ("plan", *TABLES, "--groups", "1", "--out", "plan", "--json")
    assert "'q' has interest but no rate" in cli(*words).err
    ran = cli(*words, "--floor", "0.25", "--plan-on", "peak")
    assert ran.status == 0, ran
    assert ran.document["intake"]["rates"]["floored"] == 1
    assert ran.document["channel"]["sent"] == 2 + 9 + 0.25


def test_a_quarantine_of_good_tables_is_empty(cli: CommandLine, inputs: tuple[str, ...]) -> None:
    cli.write("bad.csv", "left over")
    ran = cli("plan", *inputs, "--groups", "1", "--out", "plan", "--quarantine", "bad.csv")
    assert ran.status == 0
    assert Path("bad.csv").read_text() == '"file","row","reason","raw"\n'


@pytest.mark.parametrize("words", [("--floor", "0"), ("--floor", "nan"), ("--max-bad", "101%")])
def test_a_floor_or_share_that_makes_no_sense_is_wrong_usage(
    cli: CommandLine, inputs: tuple[str, ...], words: tuple[str, ...]
) -> None:
    ran = cli("plan", *inputs, "--groups", "1", "--out", "plan", *words)
    assert ran.status == 2, ran
    assert not Path("plan").exists()
