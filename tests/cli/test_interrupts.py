"""Ctrl-C at any moment: exit 130, no traceback, nothing written, no process left behind."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine

FILES = ("--interest", "w/interest.parquet", "--rates", "w/rates.parquet")


@contextmanager
def running(
    folder: Path, words: Sequence[str], *options: str, stderr: int = subprocess.PIPE
) -> Iterator[subprocess.Popen[bytes]]:
    """A command in a session of its own, as from a terminal; killed if it outlives the test."""
    process = subprocess.Popen(
        [sys.executable, *options, "-m", "distributary", *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=stderr,
        env={**os.environ, "COLUMNS": "120", "TERM": "xterm"},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def interrupt(process: subprocess.Popen[bytes]) -> None:
    """What a terminal does on Ctrl-C."""
    os.killpg(process.pid, signal.SIGINT)


def read_until(word: bytes, terminal: int) -> bytes:
    said = b""
    while word not in said:
        said += os.read(terminal, 1 << 12)
    return said


def contents(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize("library", [b"numpy", b"pyarrow", b"numba", b"typer"])
def test_ctrl_c_while_importing_ends_without_a_word(tmp_path: Path, library: bytes) -> None:
    words = ("plan", *FILES, "--groups", "2", "--out", "plan")
    with running(tmp_path, words, "-X", "importtime") as process:
        assert process.stderr is not None
        while library not in process.stderr.readline():
            assert process.poll() is None
        interrupt(process)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"Traceback" not in err
    assert contents(tmp_path) == []


@pytest.fixture
def workload(cli: CommandLine) -> Path:
    assert cli(
        "generate", "trading-floor", "--symbols", "3000", "--receivers", "200", "--out", "w"
    ).status == 0  # fmt: skip
    return cli.folder


@pytest.mark.parametrize(
    ("words", "stage"),
    [
        (("plan", *FILES, "--groups", "40", "--sessions", "400", "--out", "p", "--budget", "10m"),
         b"annealing"),
        pytest.param(
            ("plan", *FILES, "--groups", "40", "--out", "p", "--budget", "10m", "--group-cap",
             "1e9"),
            b"annealing", marks=pytest.mark.slow),
        pytest.param(
            ("sweep", *FILES, "--groups", "4,40", "--out", "p", "--budget", "10m"), b"best cost",
            marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_ctrl_c_is_answered_long_before_the_budget_ends(
    workload: Path, words: tuple[str, ...], stage: bytes
) -> None:
    before = contents(workload)
    parent, child = pty.openpty()
    with running(workload, words, stderr=child) as process:
        os.close(child)
        said = read_until(stage, parent)
        interrupt(process)
        out, _ = process.communicate(timeout=60)
        said += read_until(b"half-written", parent)
    os.close(parent)
    assert process.returncode == 130
    assert out == b""
    assert b"interrupted: nothing is left half-written" in said
    assert b"Traceback" not in said
    assert contents(workload) == before


@pytest.mark.slow
def test_ctrl_c_ends_a_report_that_compares(cli: CommandLine, workload: Path) -> None:
    plan = ("plan", *FILES, "--groups", "40", "--algorithm", "hash", "--out", "p")
    assert cli(*plan).status == 0
    before = contents(workload)
    parent, child = pty.openpty()
    with running(workload, ("report", "p", *FILES), stderr=child) as process:
        os.close(child)
        read_until(b"comparing", parent)
        interrupt(process)
        process.communicate(timeout=60)
    os.close(parent)
    assert process.returncode == 130
    assert contents(workload) == before


def test_ctrl_c_ends_a_paper_with_the_processes_it_started(tmp_path: Path) -> None:
    words = ("paper", "run", "chen-fig1", "--quick", "--out", "papers")
    with running(tmp_path, words) as process:
        while not spawned_by(process.pid):  # they are importing now, and Ctrl-C reaches them too
            assert process.poll() is None
        interrupt(process)
        _, err = process.communicate(timeout=60)
        while members(process.pid):  # what Python tidies up after it leaves a moment later
            pass
    assert process.returncode == 130
    assert b"Traceback" not in err
    assert contents(tmp_path) == []


def members(group: int) -> list[int]:
    """The processes of a group that still run."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, its_group = path.read_text().rsplit(")", 1)[1].split()[:3]
            if int(its_group) == group and state != "Z":
                found.append(int(path.parent.name))
    return found


def spawned_by(pid: int) -> list[int]:
    """The processes that a pool of this one started."""
    children = [
        int(child)
        for listed in Path(f"/proc/{pid}/task").glob("*/children")
        for child in listed.read_text().split()
    ]
    return [
        child for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]
