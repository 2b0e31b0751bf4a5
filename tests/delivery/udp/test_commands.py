"""What the commands say when something is wrong: the reason and what to do, never a traceback."""

from __future__ import annotations

import inspect
from dataclasses import asdict
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from distributary.cli import calibrate, export, publish, receive
from distributary.cli.multicast_table import statistics_table
from distributary.delivery import LatencyStatistics
from distributary.delivery.addresses import DEFAULT_BASE, DEFAULT_PORT
from distributary.errors import DistributaryError
from distributary.files import FlowFilters, write_plan
from distributary.model import Attribute, AttributeKind, Schema
from tests.delivery.content_plans import save_content
from tests.delivery.machines import simple_plan

app = typer.Typer()
app.command("publish")(publish.publish)
app.command("receive")(receive.receive)
app.command("calibrate")(calibrate.calibrate)
export_app = typer.Typer()
export_app.command("export")(export.export)


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    write_plan(simple_plan([0, 1], [0, 1]), {}, tmp_path / "plan")
    (tmp_path / "key").write_bytes(b"k" * 32)
    (tmp_path / "key").chmod(0o644)
    table = FlowFilters.of(
        Schema((Attribute("a", AttributeKind.INTEGER),)), {"c": ["a > 0"]}, {"r": ["a > 0"]}
    )
    save_content(table, tmp_path / "run")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("publish --plan nowhere", "no such file"),
        ("publish --plan plan --group-base 239.255.255.255", "has 2 groups"),
        ("receive --plan plan --as r --group-base 239.255.255.255", "has 2 groups"),
        ("publish --plan plan --interface nowhere0", "no such interface"),
        ("publish --plan plan --interface lo,lo", "more interfaces than lines"),
        ("publish --plan plan --pairs --interface lo,lo,lo", "more interfaces than lines"),
        ("publish --plan plan --pairs --interface lo,nowhere0", "no such interface"),
        ("publish --plan plan --key-file key", "chmod 600"),
        ("receive --plan plan --as r --key-file nothing", "No such file"),
        ("receive --plan plan --as r --out nowhere/file", "No such file"),
        ("receive --plan plan --as r --interest nothing.csv", "no such file"),
        ("receive --as r --flow f0 --subscription-log key/log", "Not a directory"),
        ("calibrate --out c.json --interface nowhere0", "no such interface"),
        ("publish --plan plan --content nowhere", "no such file"),
        ("publish --plan plan --content plan", "has no content.json"),
        ("publish --plan plan --content run/content", "does not belong to the plan: flow 'c'"),
        ("receive --plan plan --content run/content --as r", "does not belong to the plan"),
        ("receive --plan run/plan --content run/content --filter b>0", "no attribute 'b'"),
        ("receive --plan run/plan --content run/content --filter a>", "--filter cannot be used"),
    ],
)
def test_what_cannot_work_is_an_error_that_says_why(
    plan: Path, monkeypatch: pytest.MonkeyPatch, words: str, said: str
) -> None:
    monkeypatch.chdir(plan)
    outcome = CliRunner().invoke(app, words.split())
    assert isinstance(outcome.exception, DistributaryError), outcome.exception
    assert said.lower() in str(outcome.exception).lower()
    assert ";" in str(outcome.exception) or "--out" in words  # and what to do


@pytest.mark.parametrize(
    "words",
    [
        "receive --plan plan --as r --json",
        "receive --plan plan --as nobody",
        "receive --plan plan",
        "receive --content run/content --as r",
        "receive --plan plan --as r --filter a>0",
        "receive --plan run/plan --content run/content --as nobody",
        "receive --plan run/plan --content run/content --as r --flow c",
        "receive --plan plan --as r --flow f0 --interest i.csv",
        "receive --flow f0 --subscription-log log",
        "receive --plan run/plan --content run/content --as r --subscription-log log",
        "publish --plan plan --packet-size 10",
        "publish --plan plan --max-bad 1%",
        "publish --plan plan --group-base 10.0.0.1",
        "receive --plan plan --as r --group-base 224.0.0.5",
        "calibrate --out c.json --group-base somewhere",
        "publish --plan plan --bandwidth much",
        "publish --plan plan --group-base 232.1.2.0",
        "publish --plan plan --source eth0",
        "calibrate --out c.json --messages-per-packet 8",
        "calibrate --out c.json --message-bytes 60000",
    ],
)
def test_wrong_usage_ends_with_2(plan: Path, monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    monkeypatch.chdir(plan)
    assert CliRunner().invoke(app, words.split()).exit_code == 2


def test_statistics_of_two_lines_have_a_row_each() -> None:
    line = {"line": "B", "packets": 9, "first_copies": 7, "silent_seconds": None}
    later = {"messages": 5, "lines": [line | {"packets": 12, "silent_seconds": 0.5}]}
    table = statistics_table(later, {"messages": 3, "lines": [line]}, seconds=1.0)
    names, totals, rates = (list(column.cells) for column in table.columns)
    assert names[1:] == ["line B packets", "line B first copies", "line B silent seconds"]
    assert totals[1:] == ["12", "7", "0.50"]
    assert rates[1:] == ["3.00", "0.00", ""]


def test_a_table_has_latencies_with_their_unit_and_says_whether_they_are_corrected() -> None:
    found = LatencyStatistics(
        "[p]", 5, 12.34e-6, 2.5e-3, 3.0, 0, None, None, None,
        unsaid=0, negative=2, absurd=0, uncorrected=1, corrected=True,
        clock_offset_seconds=-3.0, clock_uncertainty_seconds=1.5e-3,
    )  # fmt: skip
    table = statistics_table({"messages": 5, "latencies": [asdict(found)]})
    names, totals = (list(column.cells) for column in table.columns)
    assert names[1:] == [
        "latency from \\[p]: median / 99 % / largest",
        "clock offset of \\[p] (latencies are corrected)",
        "packets without a latency, send time negative",
    ]
    assert totals[1:] == ["12.3 µs / 2.50 ms / 3.00 s", "-3.00 s ± 1.50 ms", "2"]


def test_commands_that_name_no_address_mean_the_same() -> None:
    for command in (publish.publish, receive.receive):
        defaults = inspect.signature(command).parameters
        assert defaults["group_base"].default == DEFAULT_BASE
        assert defaults["port"].default == DEFAULT_PORT
    said = CliRunner().invoke(export_app, ["--help"], env={"COLUMNS": "200"}).output
    assert f"[default: ({DEFAULT_BASE})]" in said
    assert f"[default: ({DEFAULT_PORT})]" in said
