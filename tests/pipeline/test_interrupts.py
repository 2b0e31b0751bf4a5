"""Ctrl-C in the pipeline's commands, and what a killed one leaves behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.in_process import call_main
from tests.spark import MASTER, SETTINGS

from .test_command import LOGS, SMALL, SUBSCRIPTIONS

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

    def __init__(self, folder: Path, name: str) -> None:
        self.temporaries = folder / "tmp"
        self.temporaries.mkdir(exist_ok=True)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "distributary", "pipeline", name, *COMMANDS[name], *SPARK],
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


def test_interrupts_are_heard_while_python_waits_for_java(logs: Path, tmp_path: Path) -> None:
    """The small version of the test above: one command, at one moment."""
    test_an_interrupt_is_one_line_and_leaves_nothing(logs, tmp_path, "run", work_is_staged)


def test_folders_of_dead_processes_go_at_the_next_start_and_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    hold = (
        "import sys; from distributary.pipeline.private import private_folder; "
        "print(private_folder(), flush=True); sys.stdin.read()"
    )
    made: list[tuple[subprocess.Popen[str], Path]] = []
    for _ in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", hold],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": str(tmp_path)},
        )
        assert process.stdout is not None
        made.append((process, Path(process.stdout.readline().strip())))
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
