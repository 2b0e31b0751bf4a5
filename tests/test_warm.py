"""A command in a process that has all modules imported is like any other to who starts it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.warm import find_warm

COLD = [str(Path(sys.executable).with_name("distributary"))]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs pidfds")


@pytest.mark.parametrize("words", [("--version",), ("nonsense",)])
def test_it_ends_and_says_what_a_cold_one_does(tmp_path: Path, words: tuple[str, ...]) -> None:
    environment = {**os.environ, "COLUMNS": "77"}
    cold, warm = (
        subprocess.run([*each, *words], cwd=tmp_path, env=environment, capture_output=True)
        for each in (COLD, find_warm().command)
    )
    assert (warm.returncode, warm.stdout, warm.stderr) == (
        cold.returncode,
        cold.stdout,
        cold.stderr,
    )


def test_it_runs_in_the_folder_and_the_environment_of_who_started_it(tmp_path: Path) -> None:
    words = ("topics", "status", "--state", "here")
    ran = subprocess.run([*find_warm().command, *words], cwd=tmp_path, capture_output=True)
    assert ran.returncode == 1
    assert b"here" in ran.stderr


def begin(folder: Path) -> tuple[subprocess.Popen[str], int]:
    """A service, and the process that has its folder open."""
    words = [*find_warm().command, "topics", "serve", "--state", str(folder / "state")]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert process.stderr.readline().startswith("serving topics")
    (found,) = (
        pid
        for pid in map(int, filter(str.isdecimal, os.listdir("/proc")))
        if pid != process.pid and is_serving(pid, folder)
    )
    return process, found


def is_serving(pid: int, folder: Path) -> bool:
    try:
        opened = [os.readlink(each) for each in Path(f"/proc/{pid}/fd").iterdir()]
    except OSError:
        return False
    return str(folder / "state/state.db") in opened


def test_signals_reach_it(tmp_path: Path) -> None:
    process, _ = begin(tmp_path)
    process.send_signal(signal.SIGINT)
    assert (process.communicate(timeout=60)[1], process.returncode) == ("", 0)


@pytest.mark.parametrize("killed", [0, 1], ids=["the stand-in", "the command"])
def test_it_is_killed(tmp_path: Path, killed: int) -> None:
    process, pid = begin(tmp_path)
    os.kill((process.pid, pid)[killed], signal.SIGKILL)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    while Path(f"/proc/{pid}").exists():
        time.sleep(0.01)
