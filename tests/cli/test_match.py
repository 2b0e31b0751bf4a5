"""`match` and `filter check`, typed as a user types them."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import CommandLine

EVENTS = """\
symbol,price,volume,venue
IBM,121.5,100,N
IBM,90,50,
MSFT,300,1000,Q
,1,2,N
"""
FILTERS = """\
receiver,filter
ann,"symbol = 'IBM' AND price > 120"
bob,volume >= 100
cy,"symbol IS NULL OR venue IN ('Q', 'X')"
ann,symbol LIKE 'I%'
"""
PAIRS = [
    (0, 0, "ann"),
    (0, 1, "bob"),
    (0, 3, "ann"),
    (1, 3, "ann"),
    (2, 1, "bob"),
    (2, 2, "cy"),
    (3, 2, "cy"),
]
MATCH = ("match", "--filters", "filters.csv", "--events", "events.csv")


@pytest.fixture(autouse=True)
def files(cli: CommandLine) -> None:
    cli.write("events.csv", EVENTS)
    cli.write("filters.csv", FILTERS)


def test_pairs_are_row_numbers_and_a_receiver(cli: CommandLine) -> None:
    ran = cli(*MATCH, "--out", "pairs.parquet", "--json")
    assert ran.status == 0
    table = pq.read_table(cli.folder / "pairs.parquet")
    assert table.schema == pa.schema(
        {"event": pa.int64(), "filter": pa.int64(), "receiver": pa.string()}
    )
    assert [tuple(row.values()) for row in table.to_pylist()] == PAIRS
    assert ran.document == {
        "events": 4,
        "filters": 4,
        "refused": 0,
        "matches": 7,
        "matched_events": 4,
        "matched_filters": 4,
    }


@pytest.mark.parametrize("extension", ["parquet", "jsonl"])
def test_events_of_any_format_match_the_same(cli: CommandLine, extension: str) -> None:
    rows = [
        {"symbol": "IBM", "price": 121.5, "volume": 100, "venue": "N"},
        {"symbol": "IBM", "price": 90.0, "volume": 50, "venue": None},
        {"symbol": "MSFT", "price": 300.0, "volume": 1000, "venue": "Q"},
        {"symbol": None, "price": 1.0, "volume": 2, "venue": "N"},
    ]
    path = cli.folder / f"events.{extension}"
    if extension == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ("match", "--filters", "filters.csv", "--events", path.name)
    assert cli(*words, "--out", "pairs.jsonl").status == 0
    lines = (cli.folder / "pairs.jsonl").read_text().splitlines()
    assert [tuple(json.loads(line).values()) for line in lines] == PAIRS


def test_a_float_filter_may_span_zero(cli: CommandLine) -> None:
    cli.write("events.csv", "temp\n-20.5\n0.0\n25.5\n")
    cli.write("filters.csv", "receiver,filter\nann,temp BETWEEN -10 AND 30\n")
    assert cli(*MATCH, "--json").document["matches"] == 2
    assert cli(*MATCH, "--out", "pairs.jsonl", "--json").document["matches"] == 2


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("amount = 1234567.89", [1]),
        ("id = 9223372036854775807", [1]),
        ("id < 1e16", [0]),
        ("day = '2020-01-01 12:30:00'", [1]),
        ("at < '1970-01-01'", [0]),
        ("at = '1969-12-31 23:59:59.999999'", [0]),
        ("far > '9999-12-31 23:59:59'", [0, 1]),
    ],
)
def test_events_of_every_type_are_matched(cli: CommandLine, text: str, rows: list[int]) -> None:
    events = pa.table(
        {
            "amount": pa.array([Decimal("0.10"), Decimal("1234567.89")], pa.decimal128(38, 2)),
            "id": pa.array([-(2**63), 2**63 - 1], pa.int64()),
            "day": pa.array([date.min, date(2020, 1, 1)], pa.date32()),
            "at": pa.array([-1, 0], pa.timestamp("ns")),
            "far": pa.array([2**63 - 1, 2**62], pa.timestamp("us", "UTC")),
        }
    )
    pq.write_table(events, cli.folder / "events.parquet")
    pq.write_table(pa.table({"receiver": ["ann"], "filter": [text]}), cli.folder / "f.parquet")
    words = ("match", "--filters", "f.parquet", "--events", "events.parquet")
    assert cli(*words, "--out", "pairs.parquet").status == 0
    assert pq.read_table(cli.folder / "pairs.parquet")["event"].to_pylist() == rows


def test_patterns_and_comparisons_of_two_attributes_are_matched(cli: CommandLine) -> None:
    filters = """\
receiver,filter
ann,price > volume
bob,"symbol LIKE '%B%' AND volume < price"
cy,"symbol NOT LIKE '_S%' OR venue IN ('N', NULL)"
"""
    cli.write("filters.csv", filters)
    assert cli(*MATCH, "--out", "pairs.jsonl", "--json").status == 0
    lines = (cli.folder / "pairs.jsonl").read_text().splitlines()
    assert [tuple(json.loads(line).values())[:2] for line in lines] == [
        *[(0, 0), (0, 1), (0, 2)],
        *[(1, 0), (1, 1), (1, 2)],
        (3, 2),
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("volume = ", "does not parse: an operand is missing"),
        ("colour = 'red'", "there is no attribute 'colour'"),
        ("volume > symbol", "volume > symbol compares a whole number with text"),
        ("volume IN (price, 3)", "IN lists only constants; write OR volume = price"),
        ("upper(symbol) = 'IBM'", "UPPER(symbol) = 'IBM' tests no attribute"),
    ],
)
def test_every_command_refuses_a_filter_for_the_same_reason(
    cli: CommandLine, text: str, reason: str
) -> None:
    cli.write("filters.csv", f'receiver,filter\nann,"{text}"\n')
    cli.write("links.csv", "a,b,delay\nhub,east,0.002\n")
    inputs = ("--filters", "filters.csv", "--events", "events.csv")
    for command in (
        ("match", *inputs),
        ("filter", "check", text, "--events", "events.csv"),
        ("broker", "simulate", "--links", "links.csv", *inputs),
    ):
        ran = cli(*command)
        assert ran.status == 1
        assert reason in ran.err
        assert ran.err.count("\n") == 1


def test_without_out_matches_are_counted(cli: CommandLine) -> None:
    assert cli(*MATCH, "--json").document["matches"] == 7
    assert "matched events" in cli(*MATCH).out


def test_a_filter_that_cannot_be_used_is_named_by_file_and_row(cli: CommandLine) -> None:
    cli.write("filters.csv", FILTERS + "dan,colour = 5\neve,price = 'high'\n")
    ran = cli(*MATCH, "--out", "pairs.csv")
    assert ran.status == 1
    assert "filters.csv, row 5: the filter cannot be used: there is no attribute" in ran.err
    assert "1 more" in ran.err
    assert not (cli.folder / "pairs.csv").exists()


def test_or_put_aside_and_counted(cli: CommandLine) -> None:
    cli.write("filters.csv", "receiver,filter\ndan,colour = 5\n" + FILTERS.split("\n", 1)[1])
    ran = cli(*MATCH, "--out", "pairs.jsonl", "--quarantine", "bad.jsonl", "--json")
    assert ran.document["refused"] == 1
    assert json.loads((cli.folder / "bad.jsonl").read_text()) == {
        "row": 0,
        "receiver": "dan",
        "filter": "colour = 5",
        "reason": "there is no attribute 'colour'",
    }
    lines = (cli.folder / "pairs.jsonl").read_text().splitlines()
    shifted = [(event, number + 1, receiver) for event, number, receiver in PAIRS]
    assert [tuple(json.loads(line).values()) for line in lines] == shifted


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("events.csv", "", "holds no rows: the file is empty"),
        ("events.jsonl", "null\n", "events.jsonl, row 1: does not parse as a JSON object"),
        ("events.jsonl", '{"a": 1}\n{"a": }\n', "events.jsonl, row 2: does not parse"),
        ("events.parquet", "no such thing", "cannot be read as a table of events"),
        ("events.txt", "a", "has the extension '.txt', which is not that of a table"),
    ],
)
def test_events_that_cannot_be_read_are_told_in_one_line(
    cli: CommandLine, name: str, content: str, said: str
) -> None:
    cli.write(name, content)
    ran = cli("match", "--filters", "filters.csv", "--events", name)
    assert ran.status == 1
    assert said in ran.err
    assert ran.err.count("\n") == 1


def test_check_prints_the_normal_form_and_how_others_stand(cli: CommandLine) -> None:
    ran = cli(
        "filter", "check", "symbol = 'IBM' AND price BETWEEN 100 AND 200",
        "--against", "filters.csv", "--json",
    )  # fmt: skip
    assert ran.document == {
        "filter": "symbol = 'IBM' AND price BETWEEN 100 AND 200",
        "normal_form": "price BETWEEN 100 AND 200 AND symbol = 'IBM'",
        "alternatives": 1,
        "attributes": {"price": "a number", "symbol": "text"},
        "equals": [],
        "covers": [],
        "covered_by": [3],
        "meets": [0, 1, 2],
        "apart": [],
        "refused": [],
    }


def test_attributes_that_are_compared_are_of_one_kind(cli: CommandLine) -> None:
    ran = cli("filter", "check", "low < high AND high BETWEEN last AND 100", "--json")
    assert ran.document["normal_form"] == "high <= 100 AND high >= last AND high > low"
    assert set(ran.document["attributes"].values()) == {"a number"}


def test_check_takes_types_from_events(cli: CommandLine) -> None:
    ran = cli("filter", "check", "volume < 1.5 OR volume > 2.5", "--events", "events.csv")
    assert ran.out == "volume <> 2\n"
    ran = cli("filter", "check", "volume < 1.5 OR volume > 2.5")
    assert ran.out == "(volume < 1.5 OR volume > 2.5)\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("symbol = ", "does not parse: an operand is missing"),
        ("length(symbol) > 3", "LENGTH(symbol) > 3 tests no attribute"),
        ("a = 1 AND a = 'x'", "attribute 'a' is a number in one condition and text in another"),
    ],
)
def test_check_says_what_is_wrong(cli: CommandLine, text: str, said: str) -> None:
    ran = cli("filter", "check", text)
    assert ran.status == 1
    assert said in ran.err
