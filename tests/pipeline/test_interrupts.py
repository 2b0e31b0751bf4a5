"""Ctrl-C in the pipeline's commands, and what a killed one leaves behind."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.in_process import call_main
from tests.spark import MASTER, SETTINGS

from .test_command import LOGS, SMALL, SUBSCRIPTIONS

EVENTS = "events.jsonl"
HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
SPARK = (
    *("--master", MASTER),
    *(word for name, value in SETTINGS.items() for word in ("--conf", f"{name}={value}")),
)
COMMANDS = {
    "run": (*SUBSCRIPTIONS, *LOGS, "--groups", "3", "--budget", "60s", "--out", "out"),
    "stream": (
        *("--subscriptions", "in/subscriptions", "--publications", "in/publications"),
        *("--groups", "3", "--budget", "60s", "--trigger", "1h", "--out", "out"),
    ),
    "topics": (*SUBSCRIPTIONS, *LOGS, "--max-bad", "20%", "--out", "out"),
}


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("interrupts")
    words = ("distributary", "generate", "day", "--out", "logs", *SMALL)
    assert call_main(words, folder)[0] == 0
    for log in ("subscriptions", "publications"):
        (folder / "in" / log).mkdir(parents=True)
        shutil.copy(folder / "logs" / f"{log}.parquet", folder / "in" / log)
    return folder


class Started:
    """A command in a session of its own, as a terminal starts it, with a folder for temporaries."""

    def __init__(self, folder: Path, name: str, *more: str) -> None:
        self.temporaries = folder / "tmp"
        self.temporaries.mkdir(exist_ok=True)
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "distributary", "pipeline", name, *COMMANDS[name], *SPARK),
                *("--events", str(folder.parent / EVENTS), *more),
            ],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "TMPDIR": str(self.temporaries)},
        )

    def wait_for(self, seen: Callable[[], bool]) -> None:
        while not seen():
            assert self.process.poll() is None, self.process.communicate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(0.05)

    def send(self, number: signal.Signals) -> tuple[int, str, str]:
        """Signal the whole session; its end is the end of all that hold its output, Java too."""
        os.killpg(self.process.pid, number)
        out, err = self.process.communicate(timeout=300)
        return self.process.returncode, out, err


class Terminal:
    """`pipeline run` on a terminal of its own."""

    def __init__(self, folder: Path, width: int, *more: str) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
        command = ["-m", "distributary", "pipeline", "run", *COMMANDS["run"], *SPARK, *more]
        # The terminal becomes that of the new session, so that it passes Ctrl-C on.
        take = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
        become = "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
        self.process = subprocess.Popen(
            [sys.executable, "-c", take + become, *command],
            cwd=folder,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            env={**os.environ, "TERM": "xterm-256color"},
        )
        os.close(slave)

    def read_until(self, seen: Callable[[str], bool]) -> str:
        text = ""
        while not seen(text):
            more = self._read()
            assert more, text
            text += more
        return text

    def read_to_end(self) -> tuple[int, str]:
        text = ""
        while more := self._read():
            text += more
        os.close(self.master)
        return self.process.wait(), text

    def _read(self) -> str:
        try:
            return os.read(self.master, 65_536).decode(errors="replace")
        except OSError:  # the last process that held the terminal is gone
            return ""


def read_events(folder: Path) -> list[dict[str, Any]]:
    """The whole lines of the events, of which the last may be being written."""
    path = folder / EVENTS
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def java_starts(folder: Path) -> bool:
    return any((folder / "tmp").glob("distributary-spark-*/log4j2.properties"))


def work_is_staged(folder: Path) -> bool:
    return any(folder.glob(".*.tmp/new/.work/*")) or any(folder.glob("out/state/*/*"))


@pytest.mark.slow
@pytest.mark.parametrize("moment", [java_starts, work_is_staged])
@pytest.mark.parametrize("name", COMMANDS)
def test_an_interrupt_is_one_line_and_leaves_nothing(
    logs: Path, tmp_path: Path, name: str, moment: Callable[[Path], bool]
) -> None:
    folder = tmp_path / "here"
    shutil.copytree(logs, folder)
    command = Started(folder, name)
    command.wait_for(lambda: moment(folder))
    code, out, err = command.send(signal.SIGINT)
    assert (code, out, err) == (130, "", "interrupted: nothing is left half-written\n")
    assert {path.name for path in folder.iterdir()} - {"out"} == {"logs", "in", "tmp"}
    if (folder / "out").exists():  # a stream's own, which it goes on from
        assert name == "stream"
        assert not (folder / "out" / "plan").exists()
    assert not list(command.temporaries.glob("distributary-spark-*"))
    assert read_events(folder.parent)[-1]["event"] == "interrupted"


@pytest.mark.slow
@pytest.mark.parametrize(
    "step",
    [
        *("opening the logs", "reading the publications", "writing the rates", "planning"),
        *("replaying the log", "writing tables of the plan"),
    ],
)
def test_an_interrupt_in_any_step_leaves_nothing(logs: Path, tmp_path: Path, step: str) -> None:
    folder = tmp_path / "here"
    shutil.copytree(logs, folder)
    budget = "60s" if step == "planning" else "1s"
    command = Started(folder, "run", "--budget", budget)
    command.wait_for(lambda: step in {event.get("step") for event in read_events(tmp_path)})
    code, out, err = command.send(signal.SIGINT)
    assert (code, out, err) == (130, "", "interrupted: nothing is left half-written\n")
    assert {path.name for path in folder.iterdir()} - {"out"} == {"logs", "in", "tmp"}
    if (folder / "out").exists():  # the run was faster
        assert (folder / "out" / "manifest.json").is_file()
    assert not list(command.temporaries.glob("distributary-spark-*"))
    events = read_events(tmp_path)
    assert events[-1]["event"] == "interrupted"
    assert step in {each["step"] for each in events[-1]["stages"]}


@pytest.mark.slow
@pytest.mark.parametrize("width", [40, 100])
def test_a_terminal_shows_a_run_and_ctrl_c_gives_it_back(
    logs: Path, tmp_path: Path, width: int
) -> None:
    folder = tmp_path / "here"
    shutil.copytree(logs, folder)
    terminal = Terminal(folder, width, "--budget", "60s")
    seen = terminal.read_until(lambda text: "annealing" in text)
    assert "reading the publications" in seen
    os.write(terminal.master, b"\x03")  # what Ctrl-C types
    code, rest = terminal.read_to_end()
    assert code == 130
    drawn = seen + rest
    assert drawn.endswith("interrupted: nothing is left half-written\r\n")
    assert drawn.rfind(SHOW_CURSOR) > drawn.rfind(HIDE_CURSOR)
    lines = re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn))
    steps = [line for line in lines if not line.startswith(("Spark's", "interrupted"))]
    assert max(map(len, steps)) <= width
    assert ("rows/s" in drawn) == (width == 100)


def test_interrupts_are_heard_while_python_waits_for_java(logs: Path, tmp_path: Path) -> None:
    """The small version of the test above: one command, at one moment."""
    test_an_interrupt_is_one_line_and_leaves_nothing(logs, tmp_path, "run", work_is_staged)


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_folders_of_dead_processes_go_at_the_next_start_and_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    hold = (
        "import sys; from distributary.pipeline.private import private_folder; "
        "print(private_folder(), flush=True); sys.stdin.read()"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", hold],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": str(tmp_path)},
        )
        for _ in range(3)
    ]
    made = [(process, Path(read_line(process))) for process in processes]
    (tmp_path / "distributary-spark-somebodys").mkdir()
    (killed, left), (stopped, also_left), (alive, kept) = made
    for process, number in ((killed, signal.SIGKILL), (stopped, signal.SIGTERM)):
        process.send_signal(number)
        process.communicate()
    assert left.is_dir()
    assert also_left.is_dir()
    again = subprocess.run(
        [sys.executable, "-c", hold],
        input="",
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert not Path(again.stdout.strip()).exists()  # one that ends by itself takes its own away
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {kept.name, "distributary-spark-somebodys"}
    alive.communicate("")
