"""Faults of the environment and numbers beyond reason: one line of error, never "a defect"."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine
from tests.cli.test_bad_input import assert_one_line

NO_NUMBERS = ("nan", "inf", "-inf", "1e400", "9" * 400)
BEYOND = (*NO_NUMBERS, "1e308")
QUICK = ("--groups", "2", "--budget", "0.01s")

# Commands that write, each in turn, in one process: what each said and what was left in the folder.
WRITE_INTO = """
import contextlib, io, json, os, sys
from distributary.cli import main

files = ("--interest", "interest.csv", "--rates", "rates.csv")
quick = ("--groups", "2", "--budget", "0.01s")


def write_into(folder):
    said = []
    for words in (
        *(("plan", *files, *quick, "--out", f"{folder}/plan", "--format", kind)
          for kind in ("parquet", "csv", "jsonl")),
        ("report", "plan", *files, "--no-compare", "--out", f"{folder}/report.html"),
        ("sweep", *files, "--groups", "1,2", "--budget", "0.01s", "--out", folder),
        ("export", "plan", "--format", "csv", "--out", f"{folder}/export"),
        ("generate", "two-class", "--out", folder),
        ("paper", "run", "adler-fig2", "--quick", "--out", folder),
    ):
        sys.argv = ["distributary", *words]
        err = io.StringIO()
        with contextlib.redirect_stderr(err), contextlib.redirect_stdout(io.StringIO()):
            try:
                main()
            except SystemExit as stop:
                said.append((stop.code, err.getvalue()))
    return said, sorted(os.listdir(folder))


print(json.dumps([write_into(folder) for folder in sys.argv[1:]]))
"""
SPOIL = """
mount -t tmpfs -o size=64k tmpfs full
dd if=/dev/zero of=full/filler bs=1k 2>/dev/null
mount -t tmpfs -o size=64k tmpfs kept
touch kept/filler
mount -o remount,ro kept
exec "$@"
"""


def namespaces_work() -> bool:
    tried = subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False)
    return tried.returncode == 0


@pytest.mark.skipif(not namespaces_work(), reason="needs a mount namespace of its own")
def test_a_full_disk_and_a_read_only_folder_are_one_line_and_leave_nothing(
    cli: CommandLine, inputs: tuple[str, ...]
) -> None:
    assert cli("plan", *inputs, *QUICK, "--out", "plan").status == 0
    reasons = {"full": "no space left on device", "kept": "read-only file system"}
    for folder in reasons:
        (cli.folder / folder).mkdir()
    script = cli.write("write_into.py", WRITE_INTO)
    command = ["unshare", "-rm", "sh", "-c", SPOIL, "sh", sys.executable, script, *reasons]
    ran = subprocess.run(command, cwd=cli.folder, capture_output=True, check=False)
    assert ran.stderr == b""
    for (folder, reason), (said, left) in zip(reasons.items(), json.loads(ran.stdout), strict=True):
        assert len(said) == 8
        for status, err in said:
            assert status == 1
            # What was read of the tables may be told before.
            *told, error = err.splitlines()
            assert not any(line.startswith(("error", "Traceback")) for line in told), err
            assert error.startswith(f"error: {folder}")
            assert reason in error
        assert left == ["filler"]


@pytest.mark.parametrize(
    "words",
    [
        ("evaluate", "plan", "--interest", "interest.csv", "--rates", "rates.csv"),
        ("evaluate", "plan", "--interest", "interest.csv", "--rates", "rates.csv", "--json"),
        ("--version",),
    ],
)
def test_results_that_cannot_be_written_are_one_line_of_error(
    cli: CommandLine, inputs: tuple[str, ...], words: tuple[str, ...]
) -> None:
    assert cli("plan", *inputs, *QUICK, "--out", "plan").status == 0
    command = [sys.executable, "-m", "distributary", *words]
    with Path("/dev/full").open("wb") as full:
        ran = subprocess.run(
            command, cwd=cli.folder, stdout=full, stderr=subprocess.PIPE, check=False
        )
    said = ran.stderr.decode()
    assert ran.returncode == 1
    assert said.splitlines()[-1].startswith("error: the output cannot be written: no space left")
    assert "Traceback" not in said
    assert "ignored" not in said


def test_an_error_that_cannot_be_told_is_still_a_failure(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "distributary", "evaluate", "nowhere"]
    files = ("--interest", "nowhere", "--rates", "nowhere")
    with Path("/dev/full").open("wb") as full:
        ran = subprocess.run([*command, *files], cwd=tmp_path, stderr=full, check=False)
    assert ran.returncode == 1


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *product(("--alpha", "--beta", "--max-sent", "--budget"), BEYOND),
        *product(("--group-cap", "--receiver-cap", "--unicast-rate"), NO_NUMBERS),
    ],
)
def test_a_number_beyond_reason_is_wrong_usage_of_plan(
    cli: CommandLine, inputs: tuple[str, ...], option: str, value: str
) -> None:
    more = ("--unicast-receivers", "1") if option == "--unicast-rate" else ()
    ran = cli("plan", *inputs, *QUICK, *more, option, value, "--out", "plan")
    assert ran.status == 2, ran
    assert not (cli.folder / "plan").exists()


@pytest.mark.parametrize("value", BEYOND)
def test_a_price_beyond_reason_is_wrong_usage_of_evaluate_and_sweep(
    cli: CommandLine, inputs: tuple[str, ...], value: str
) -> None:
    assert cli("plan", *inputs, *QUICK, "--out", "plan").status == 0
    assert cli("evaluate", "plan", *inputs, "--alpha", value).status == 2
    assert (
        cli("sweep", *inputs, "--groups", "1,2", "--budget", "0.01s", "--beta", value).status == 2
    )


@pytest.mark.parametrize("alpha", ["1", "1e12"])
@pytest.mark.parametrize("rate", ["1e308", "1e300", "1e288", "5e-324"])
def test_rates_at_the_ends_of_their_type_are_planned_or_refused(
    cli: CommandLine, inputs: tuple[str, ...], rate: str, alpha: str
) -> None:
    cli.write("rates.csv", f"flow,rate\na,{rate}\nb,2\nc,3\nd,{rate}\n")
    ran = cli("plan", *inputs, *QUICK, "--alpha", alpha, "--out", "plan", "--json")
    if float(rate) > 1e290:
        assert_one_line(ran, "rates.csv", "more than a number can hold")
    else:
        assert ran.status == 0, ran
        assert ran.document["valid"]


@pytest.fixture
def brokers(cli: CommandLine) -> tuple[str, ...]:
    cli.write("links.csv", "a,b,delay\nx,y,0.1\ny,z,0.2\n")
    cli.write("filters.csv", "receiver,filter\nann,p > 1\nbob,p > 2\n")
    cli.write("events.csv", "p\n1\n2\n3\n")
    return ("--links", "links.csv", "--filters", "filters.csv", "--events", "events.csv")


@pytest.mark.parametrize("value", BEYOND)
@pytest.mark.parametrize("option", ["--rate", "--within", "--per-message", "--per-box"])
def test_a_number_beyond_reason_is_wrong_usage_of_broker_simulate(
    cli: CommandLine, brokers: tuple[str, ...], option: str, value: str
) -> None:
    ran = cli("broker", "simulate", *brokers, "--leave", "1", option, value)
    assert ran.status == 2, ran


@pytest.mark.parametrize("delay", ["1e308", "1.1e6"])
def test_a_delay_beyond_reason_is_named_with_its_row(
    cli: CommandLine, brokers: tuple[str, ...], delay: str
) -> None:
    cli.write("links.csv", f"a,b,delay\nx,y,0.1\ny,z,{delay}\n")
    assert_one_line(cli("broker", "simulate", *brokers), "links.csv, row 2", "delay")
