"""`distributary up --simulate` as it stands, in a network namespace of the tests' own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.delivery.udp.namespace import in_namespace, why_no_namespace

PATIENCE = 300.0  # seconds that nothing here takes, on however slow a machine
DISTRIBUTARY = [sys.executable, "-m", "distributary"]
GET = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1], timeout=60).read().decode())"


class Machine:
    """A namespace whose loopback nobody else has, and the commands that run in it."""

    def __init__(self, holder: subprocess.Popen[str]) -> None:
        self._holder = holder
        self._network = os.readlink(f"/proc/{holder.pid}/ns/net")

    def enter(self, command: list[str]) -> list[str]:
        pid = str(self._holder.pid)
        return ["nsenter", "--preserve-credentials", "-U", "-n", "-t", pid, *command]

    def ask(self, *command: str) -> str:
        """What a command prints that must succeed."""
        ran = subprocess.run(
            self.enter([*command]), capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def list_processes(self) -> list[str]:
        """What still runs in it, but for the process that holds it."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if os.readlink(folder / "ns/net") == self._network:
                    words = (folder / "cmdline").read_text().replace("\0", " ").strip()
                    found.append(f"{folder.name} {words}")
            except OSError:
                continue
        return [each for each in found if each.split()[0] != str(self._holder.pid)]


@pytest.fixture
def machine() -> Iterator[Machine]:
    reason = why_no_namespace()
    if reason is not None:
        pytest.skip(reason)
    with subprocess.Popen(
        in_namespace(["sh", "-c", "echo ready; exec cat"]),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "ready\n"
        yield Machine(holder)
        holder.communicate(timeout=PATIENCE)


class System:
    """One that is up."""

    def __init__(self, machine: Machine, process: subprocess.Popen[str]) -> None:
        self.process, self._machine = process, machine
        assert process.stdout is not None
        lines = []
        while (line := process.stdout.readline()) != "}\n":
            assert line, process.communicate(timeout=PATIENCE)[1]
            lines.append(line)
        self.ways_in: dict[str, str] = json.loads("".join([*lines, line]))

    def fetch(self, path: str) -> str:
        return self._machine.ask(sys.executable, "-c", GET, self.ways_in["page"] + path)

    def control(self, *words: str) -> dict[str, Any]:
        said = self._machine.ask(
            *DISTRIBUTARY, "control", *words, "--control", self.ways_in["control"], "--json"
        )
        found: dict[str, Any] = json.loads(said)
        return found

    def until(self, is_so: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first status of which something is so; each look takes a second or so."""
        while True:
            found = self.control("status")
            if is_so(found):
                return found
            assert self.process.poll() is None, self.process.communicate()[1]

    def end(self) -> str:
        """Press Ctrl-C; returns what was said on stderr."""
        os.killpg(self.process.pid, signal.SIGINT)
        _, err = self.process.communicate(timeout=PATIENCE)
        assert self.process.returncode == 0, err
        return err


@contextmanager
def up(machine: Machine, folder: Path, *options: str) -> Iterator[System]:
    command = [*DISTRIBUTARY, "up", "--simulate", "--json", "--port", "0", *options]
    with subprocess.Popen(
        machine.enter(command),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield System(machine, process)
        finally:
            if process.poll() is None:
                process.kill()


def test_receivers_get_what_they_want_and_nothing_is_left(machine: Machine, tmp_path: Path) -> None:
    with up(machine, tmp_path, "--spark", "off", "--desks", "2") as system:
        folder = Path(system.ways_in["control"]).parent
        assert "<title>" in system.fetch("")
        found = system.until(lambda found: found["waste"]["wanted"] > 50)
        assert [each["name"] for each in found["receivers"]] == ["desk-1", "desk-2"]
        assert all(each["missing"] == 0 for each in found["receivers"])
        assert [each["name"] for each in found["publishers"]] == ["x1", "x2"]
        assert all(each["rate"] > 0 for each in found["publishers"])
        said = system.end()
    assert "control   in force: version 1 (first)" in said
    assert "Traceback" not in said
    assert machine.list_processes() == []
    assert not folder.exists()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_spark_plans_again_as_the_floor_shifts(machine: Machine, tmp_path: Path) -> None:
    options = (
        "--out",
        str(tmp_path / "floor"),
        "--desks",
        "4",
        "--theme",
        "1m",
        "--approve",
        "manual",
    )
    with up(machine, tmp_path, *options) as system:
        proposal = system.until(lambda found: found["proposal"] is not None)["proposal"]
        assert proposal["saves_per_hour"] > 0
        assert 0 < proposal["moves"] <= 30
        version = system.control("approve")["version"]
        found = system.until(lambda found: found["force"]["version"] >= version)
        changes = system.control("changes")["changes"]
        assert {"proposed", "approved", "in force"} <= {each["what"] for each in changes}
        system.control("mode", "auto")
        began = found["force"]["version"]
        system.until(
            lambda found: found["force"]["version"] > began and found["force"]["kind"] == "planned"
        )
        assert "<title>" in system.fetch("changes")
        said = system.end()
    assert "floor     a theme ends" in said
    assert machine.list_processes() == []
    kept = {path.name for path in (tmp_path / "floor").iterdir()}
    assert kept == {"logs", "operator-token", "state", "up.lock"}
