"""What each command does when all is well, and what other programs read from it."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from distributary import ALGORITHMS
from tests.cli.conftest import CommandLine
from tests.report.cases import HOSTILE
from tests.report.test_page import Outline, without_bundle

KEYS = {"valid", "receivers", "flows", "sessions", "groups", "filtering", "channel"}
FILTERING = {
    "session_cost",
    "flow_cost",
    "work",
    "excess",
    "flooding_excess",
    "relative_excess",
}


def plan_tables(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_plan_writes_a_folder_that_evaluate_prices_the_same(
    cli: CommandLine, inputs: tuple[str, ...]
) -> None:
    planned = cli(
        "plan", *inputs, "--groups", "2", "--sessions", "3", "--out", "plan", "--json",
        "--alpha", "0.5", "--beta", "2",
    )  # fmt: skip
    assert planned.status == 0
    evaluated = cli("evaluate", "plan", *inputs, "--json", "--alpha", "0.5", "--beta", "2")
    assert evaluated.status == 0
    for document in (planned.document, evaluated.document):
        assert set(document) >= KEYS
        assert set(document["filtering"]) >= FILTERING
        assert set(document["channel"]) >= {"cost", "lower_bound"}
    for key in KEYS | {"operating"}:
        assert planned.document[key] == evaluated.document[key]
    assert evaluated.document["valid"] is True
    assert evaluated.document["made_from_these_inputs"] is True


def test_evaluate_reports_every_group_session_and_receiver(
    cli: CommandLine, inputs: tuple[str, ...]
) -> None:
    cli("plan", *inputs, "--groups", "2", "--sessions", "3", "--out", "plan")
    document = cli("evaluate", "plan", *inputs, "--json").document
    assert [row["group"] for row in document["per_group"]] == [0, 1]
    assert [row["session"] for row in document["per_session"]] == [0, 1, 2]
    assert [row["receiver"] for row in document["per_receiver"]] == ["ann", "bob", "cyd"]
    assert sum(row["rate"] for row in document["per_group"]) == pytest.approx(1 + 2 + 3 + 4)
    received = sum(row["received"] for row in document["per_receiver"])
    assert received == pytest.approx(document["filtering"]["session_cost"])
    assert [row["wanted"] for row in document["per_receiver"]] == [3, 5, 7]


@pytest.mark.parametrize("algorithm", [*sorted(set(ALGORITHMS) - {"by-column"}), "FBM", "gf"])
def test_every_algorithm_plans_from_the_command_line(
    cli: CommandLine, inputs: tuple[str, ...], algorithm: str
) -> None:
    ran = cli("plan", *inputs, "--groups", "2", "--algorithm", algorithm, "--out", "p", "--json")
    assert ran.status == 0
    assert ran.document["valid"] is True
    assert ran.document["groups"] <= 2
    if ran.document["algorithm"].startswith("optimal"):
        assert ran.document["proven"] is True


def test_the_same_seed_gives_the_same_bytes(cli: CommandLine, inputs: tuple[str, ...]) -> None:
    for out in ("one", "two"):
        assert cli("plan", *inputs, "--groups", "2", "--seed", "7", "--out", out).status == 0
    assert plan_tables(cli.folder / "one") == plan_tables(cli.folder / "two")


@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl"])
def test_a_generated_workload_goes_through_plan_and_evaluate_in_every_format(
    cli: CommandLine, kind: str
) -> None:
    generated = cli(
        "generate", "trading-floor", "--symbols", "300", "--receivers", "20", "--out", "w",
        "--share-of-market", "0.1", "--format", kind,
    )  # fmt: skip
    assert generated.status == 0
    files = ("--interest", f"w/interest.{kind}", "--rates", f"w/rates.{kind}")
    planned = cli("plan", *files, "--groups", "5", "--out", "plan", "--format", kind, "--json")
    assert planned.status == 0
    assert cli("evaluate", "plan", *files, "--json").document["groups"] == 5


def test_the_two_class_workload_has_as_many_flows_as_asked_for(cli: CommandLine) -> None:
    assert (
        cli("generate", "two-class", "--flows", "12", "--out", "w", "--format", "csv").status == 0
    )
    assert len((cli.folder / "w/rates.csv").read_text().splitlines()) == 1 + 12


def test_repeated_rows_are_counted_and_unwanted_flows_named(
    cli: CommandLine, inputs: tuple[str, ...]
) -> None:
    cli.write("interest.csv", "receiver,flow\nann,a\nann,a\nbob,a\nann,a\n")
    ran = cli("plan", *inputs, "--groups", "1", "--out", "plan")
    assert ran.status == 0
    assert "2 of 4 rows are duplicates" in ran.err
    assert "4 flows that nobody wants" in ran.err


def test_json_is_alone_on_stdout_and_nothing_is_drawn_without_a_terminal(
    cli: CommandLine, inputs: tuple[str, ...]
) -> None:
    ran = cli("plan", *inputs, "--groups", "2", "--out", "plan", "--json")
    json.loads(ran.out)
    assert ran.err == ""


def test_a_report_is_one_page_that_names_the_plan(
    cli: CommandLine, inputs: tuple[str, ...]
) -> None:
    cli("plan", *inputs, "--groups", "2", "--out", "plan")
    assert cli("report", "plan", *inputs, "--out", "page.html").status == 0
    page = (cli.folder / "page.html").read_text(encoding="utf-8")
    assert "The plan in plan" in page
    assert "flow-merge (FBM)" in page


@pytest.mark.parametrize(
    ("name", "compare"),
    [
        (HOSTILE[0], "--compare"),
        *((name, "--no-compare") for name in (*HOSTILE, "", 7, None, [HOSTILE[1]])),
    ],
)
def test_a_report_shows_a_hostile_name_of_an_algorithm_and_never_runs_it(
    cli: CommandLine, inputs: tuple[str, ...], name: object, compare: str
) -> None:
    def report() -> Outline:
        ran = cli("report", "plan", *inputs, compare, "--out", "page.html")
        assert ran.status == 0, ran
        page = (cli.folder / "page.html").read_text(encoding="utf-8")
        return Outline(without_bundle(page))

    cli("plan", *inputs, "--groups", "2", "--algorithm", "hash", "--out", "plan")
    plain = report()
    path = cli.folder / "plan/plan.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "algorithm": name}))
    hostile = report()
    assert not hostile.open
    assert sorted({tag for tag, _ in hostile.elements}) == sorted(
        {tag for tag, _ in plain.elements}
    )
    assert len(hostile.scripts) == len(plain.scripts)
    assert not any(key.startswith("on") for _, attributes in hostile.elements for key in attributes)
    assert f"The {name} plan" in "".join(hostile.words)


def test_version_and_help_exit_with_0(cli: CommandLine) -> None:
    assert cli("--version").out.startswith("distributary ")
    assert cli("plan", "--help").status == 0


def test_progress_shows_on_a_terminal_with_the_best_cost(
    cli: CommandLine, inputs: tuple[str, ...]
) -> None:
    parent, child = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-m", "distributary", "plan", *inputs, "--groups", "2", "--out", "p"],
        cwd=cli.folder,
        stdout=subprocess.DEVNULL,
        stderr=child,
        timeout=60,
        env={**os.environ, "COLUMNS": "120", "TERM": "xterm"},
        check=False,
    )
    os.close(child)
    drawn = _read_all(parent).decode()
    os.close(parent)
    assert done.returncode == 0
    assert "best cost" in drawn


def test_ctrl_c_leaves_the_old_plan_whole_and_nothing_beside_it(cli: CommandLine) -> None:
    cli("generate", "two-class", "--flows", "60", "--receivers", "60", "--out", "w")
    files = ("--interest", "w/interest.parquet", "--rates", "w/rates.parquet")
    assert cli("plan", *files, "--groups", "6", "--out", "plan").status == 0
    before = plan_tables(cli.folder / "plan")
    running = subprocess.Popen(
        [sys.executable, "-m", "distributary", "plan", *files, "--groups", "6", "--out", "plan",
         "--algorithm", "optimal", "--budget", "10m"],
        cwd=cli.folder,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )  # fmt: skip
    # The search is under way when the process has used some time of its own.
    while _cpu_seconds(running.pid) < 3:
        with pytest.raises(subprocess.TimeoutExpired):
            running.wait(timeout=0.05)
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=60)
    assert running.returncode == 130
    assert b"Traceback" not in err
    assert plan_tables(cli.folder / "plan") == before
    assert sorted(path.name for path in cli.folder.iterdir()) == ["plan", "w"]


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _read_all(terminal: int) -> bytes:
    """Everything written to a terminal that nobody writes to any more."""
    chunks = []
    with contextlib.suppress(OSError):  # how a terminal says that its other side is closed
        while chunk := os.read(terminal, 1 << 12):
            chunks.append(chunk)
    return b"".join(chunks)
