"""How `up` ends: Ctrl-C, once and twice, SIGTERM, SIGKILL, and a part that cannot go on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.system.test_running import Seen

PATIENCE = 240.0
ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")


@contextmanager
def begin(folder: Path | str, desks: int = 1) -> Iterator[subprocess.Popen[str]]:
    """`up` in a process group of its own, as a shell starts it."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.system.up_with_fakes", str(folder), str(desks)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def read_document(process: subprocess.Popen[str]) -> dict[str, Any]:
    """What it prints when the pages are there."""
    assert process.stdout is not None
    lines = []
    while (line := process.stdout.readline()) != "}\n":
        assert line, process.communicate(timeout=PATIENCE)[1]
        lines.append(line)
    found: dict[str, Any] = json.loads("".join([*lines, line]))
    return found


def wait_for_members(process: subprocess.Popen[str], seen: Seen) -> None:
    """Wait until everybody has been started."""
    while len(seen.alive()) < 5:
        assert process.poll() is None
        go_on(process)


def go_on(process: subprocess.Popen[str]) -> None:
    """Let it work for a moment; it may end meanwhile."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(0.01)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_everything_in_order(tmp_path: Path, number: signal.Signals) -> None:
    seen = Seen(tmp_path)
    with begin(tmp_path) as process:
        document = read_document(process)
        assert document["control"] == str(tmp_path / "state")
        wait_for_members(process, seen)
        os.killpg(process.pid, number)
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert "error" not in err
    assert seen.alive() == []
    assert [name for name, what, _ in seen.diary() if what == "ended"][-1] == "control"


def test_ctrl_c_while_parts_are_starting_ends_them(tmp_path: Path) -> None:
    (tmp_path / "control.does").write_text("mute")
    seen = Seen(tmp_path)
    with begin(tmp_path) as process:
        while not seen.diary():
            go_on(process)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (0, "")
    assert err == "ending everything; Ctrl-C again does not wait for it\n"
    assert seen.alive() == []


def test_a_second_ctrl_c_does_not_wait_for_a_part_that_does_not_end(tmp_path: Path) -> None:
    (tmp_path / "desk-1.does").write_text("stay")
    seen = Seen(tmp_path)
    with begin(tmp_path) as process:
        read_document(process)
        wait_for_members(process, seen)
        os.killpg(process.pid, signal.SIGINT)
        while "x1" in seen.alive():
            go_on(process)
        assert "desk-1" in seen.alive()
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130  # 0 if it had waited for its parts
    assert "Traceback" not in err
    assert seen.alive() == []


def test_who_is_killed_leaves_no_process_and_no_folder_with_a_token() -> None:
    with begin("-") as process:
        document = read_document(process)
        folder = Path(document["control"]).parent
        seen = Seen(folder)
        wait_for_members(process, seen)
        pids = [pid for _, _, pid in seen.diary()]
        assert (folder / "operator-token").exists()
        process.kill()
        process.communicate(timeout=PATIENCE)
        while folder.exists() or any(Path(f"/proc/{pid}").exists() for pid in pids):
            go_on(process)


def test_a_temporary_folder_is_gone_at_the_end() -> None:
    with begin("-", 0) as process:
        folder = Path(read_document(process)["control"]).parent
        assert folder.is_dir()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert not folder.exists()


def test_a_part_that_cannot_go_on_is_one_line_and_exit_1(tmp_path: Path) -> None:
    (tmp_path / "dashboard.does").write_text("fail")
    with begin(tmp_path) as process:
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (1, "")
    said = "error: dashboard exited with 1: dashboard does not like it here; go elsewhere\n"
    assert err.endswith(said)
    assert Seen(tmp_path).alive() == []
