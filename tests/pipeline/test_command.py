"""The pipeline's commands, and what other programs read of them.

They are called here in one process, and share its Spark; with one of their own they run in
`test_interrupts` and, slowly, among the commands of the documentation.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from distributary.cli import pipeline
from distributary.report import Report, render_report
from tests.in_process import call_main

SUBSCRIPTIONS = ("--subscriptions", "logs/subscriptions.parquet")
LOGS = ("--publications", "logs/publications.parquet")
SIZE = ("--groups", "3", "--sessions", "6", "--budget", "1s")
SLOWLY_S = 0.3
SMALL = ("--symbols", "200", "--receivers", "20", "--messages", "2000", "--bad", "0.05")


def call(folder: Path, *words: str) -> tuple[int, str, str]:
    """A command on the tests' Spark, which needs whole paths: Java stays where it was started."""
    pairs = zip(("", *words), words, strict=False)
    whole = (str(folder / word) if "/" in word or at == "--out" else word for at, word in pairs)
    return call_main(("distributary", *whole), folder)


DEMO = (
    *("demo", "--symbols", "200", "--receivers", "20", "--messages", "2000"),
    *("--groups", "3", "--sessions", "6", "--out", "d"),
)


@dataclass(frozen=True)
class Demo:
    """A demo's folder and what it printed, and the document of the command it ends with."""

    folder: Path
    out: str
    document: dict[str, Any]


def render_slowly(report: Report) -> str:
    time.sleep(SLOWLY_S)
    return render_report(report)


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """A demo, and then the command that it names next: `pipeline run` over the same logs."""
    folder = tmp_path_factory.mktemp("command")
    with pytest.MonkeyPatch.context() as patch:
        # Of so few rows, enough to find some in either log.
        patch.setattr("distributary.cli.demo.BAD_ROWS", 0.05)
        status, demo_out, err = call(folder, *DEMO)
    assert status == 0, err
    next_command = demo_out.rpartition("distributary ")[2].split()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "render_report", render_slowly)
        status, out, err = call(folder, *next_command, "--budget", "1s", "--json")
    assert (status, err) == (0, "")
    return Demo(folder / "d", demo_out, json.loads(out))


def test_run_prints_what_other_programs_read(made: Demo) -> None:
    folder, document = made.folder, made.document
    for log in ("subscriptions", "publications"):
        told = document[log]
        assert told["read"] == pq.read_metadata(folder / "logs" / f"{log}.parquet").num_rows
        assert told["read"] == told["used"] + told["duplicates"] + told["quarantined"]
        assert told["quarantined"] > 0
    assert document["valid"] is True
    assert {"receivers", "flows", "sessions", "groups", "filtering", "channel"} <= set(document)
    replay = document["replay"]
    assert replay["received"] == (
        replay["wanted"] + replay["dropped_by_session"] + replay["dropped_by_flow"]
    )


def test_run_leaves_pages_and_tables(made: Demo) -> None:
    folder = made.folder
    names = {path.name for path in (folder / "run").iterdir()}
    assert {"plan", "interest", "rates", "quarantine", "receivers", "groups", "replay"} <= names
    assert {"manifest.json", "report.html", "plan.html"} <= names


def test_the_page_of_a_run_counts_the_time_of_the_page_about_its_plan(made: Demo) -> None:
    page = (made.folder / "run" / "report.html").read_text(encoding="utf-8")
    row = re.search(r">writing the pages</th><td>([\d.]+)\s*(ms|s|min)\b", page)
    assert row is not None
    assert float(row[1]) * {"ms": 1e-3, "s": 1.0, "min": 60.0}[row[2]] >= SLOWLY_S


def test_replay_of_the_plan_gives_what_the_run_found(made: Demo) -> None:
    folder, document = made.folder, made.document
    status, out, err = call(
        folder, "pipeline", "replay", "run/plan", *LOGS, "--interest", "run/interest",
        "--out", "again", "--json",
    )  # fmt: skip
    assert (status, err) == (0, "")
    told = json.loads(out)["replay"]["plan"]
    names = ("received", "wanted", "dropped_by_session", "dropped_by_flow")
    assert {name: told[name] for name in names} == {
        name: document["replay"][name] for name in names
    }
    assert {path.name for path in (folder / "again").iterdir()} == {
        "minutes.parquet",
        "receivers.parquet",
    }


def test_topics_leaves_proposals(made: Demo) -> None:
    status, out, err = call(
        made.folder, "pipeline", "topics", *SUBSCRIPTIONS, *LOGS, "--max-bad", "20%",
        "--interval", "5m", "--out", "proposals", "--json",
    )  # fmt: skip
    assert (status, err) == (0, "")
    assert json.loads(out) == json.loads((made.folder / "proposals/proposals.json").read_text())
    names = {path.name for path in (made.folder / "proposals").iterdir()}
    assert {"proposals.parquet", "invitations.parquet", "interest", "rates"} <= names


def headline_of(page: str) -> str:
    """The heading that a page starts with."""
    heading = re.search("<h1>(.*?)</h1>", page)
    assert heading is not None
    return heading[1]


def test_a_small_demo_ends_with_the_report_and_the_next_command(made: Demo) -> None:
    check_demo(made.folder, made.out)
    assert made.document["sessions"] <= 12  # twice what the demo was given
    assert made.document["diff"] is not None


@pytest.mark.slow
def test_the_demo_starts_a_spark_of_its_own(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "distributary", *DEMO],
        cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    check_demo(tmp_path / "d", ran.stdout)


def check_demo(folder: Path, out: str) -> None:
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert 'href="plan.html"' in page
    plan_page = folder / "plan.html"
    assert (folder / "run/plan/plan.json").is_file()
    heading = headline_of(page)
    assert heading == headline_of(plan_page.read_text(encoding="utf-8"))
    assert re.fullmatch(r"Receivers waste [\d.]+\u202f% less work than with flooding", heading)
    assert heading.replace("\u202f", "") in out.splitlines()
    last = out.strip().splitlines()[-2:]
    assert [line.split(":")[0] for line in last] == ["report", "next"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "place"),
    [
        *((name, "full") for name in ("run", "topics", "stream", "replay")),
        *((name, place) for name in ("run", "stream") for place in ("forbidden", "a file")),
    ],
)
def test_a_place_that_cannot_be_written_is_told_in_one_line(
    made: Demo, tmp_path: Path, name: str, place: str
) -> None:
    folder = made.folder
    outs = {"full": tmp_path / "full" / "out", "forbidden": Path("/proc/nowhere/out")}
    out = outs.get(place, tmp_path / "file" / "out")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    words = {
        "run": (*SUBSCRIPTIONS, *LOGS, *SIZE),
        "topics": (*SUBSCRIPTIONS, *LOGS, "--max-bad", "20%"),
        "stream": ("--subscriptions", "logs", "--publications", "logs", *SIZE, "--until-idle"),
        "replay": ("run/plan", *LOGS, "--interest", "run/interest"),
    }[name]
    # A disk of its own that is full after 4 kB, seen by this one process.
    mount = 'mount -t tmpfs -o size=4k,nr_inodes=20 none "$0" && exec "$@"'
    command = (
        *("unshare", "-rm", "sh", "-c", mount, str(tmp_path / "full")),
        *(sys.executable, "-m", "distributary", "pipeline", name, *words, "--master", "local[2]"),
        *("--conf", "spark.ui.enabled=false", "--out", str(out)),
    )
    ran = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=600, check=False
    )
    assert ran.returncode == 1, ran
    (line,) = ran.stderr.splitlines()
    assert line.startswith(f"error: {out}")
    assert "defect" not in line


def test_a_log_with_too_much_that_is_bad_changes_nothing(made: Demo) -> None:
    folder = made.folder
    before = (folder / "run" / "manifest.json").read_bytes()
    status, _, err = call(
        folder, "pipeline", "run", *SUBSCRIPTIONS, *LOGS, *SIZE,
        "--max-bad", "0.01%", "--out", "run",
    )  # fmt: skip
    assert status == 1
    assert "cannot be used, more than 0.010%" in err
    assert "Traceback" not in err
    assert (folder / "run" / "manifest.json").read_bytes() == before
