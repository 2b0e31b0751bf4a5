"""Runs documented commands, each once, in a folder that has what it names and nothing else."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import FrameType

import pytest

from tests.delivery.udp.namespace import in_namespace, why_no_namespace
from tests.docs.pages import EXAMPLES, ROOT, Command
from tests.in_process import call_main
from tests.spark import MASTER, SETTINGS
from tests.warm import find_command

PATIENCE = 600  # seconds, for what waits for something that never comes
OURS = [sys.executable, "-m", "distributary"]
# In a namespace of their own.
MULTICAST = ("publish", "receive", "calibrate", "up", "control", "dashboard")
SPARK = ("pipeline", "spark-submit", "demo")  # whose Java keeps to the folder that it began in
SMALL_DAY = "--symbols 200 --receivers 20 --messages 2000"
# Of the brokers on the pages, each with one of this process.
SERVICE_PORTS = (7001, 7002, 7003, 7004, 7401, 7402, 7403)
SMALL_SPARK = f"--master '{MASTER}' " + " ".join(
    f"--conf '{name}={value}'" for name, value in SETTINGS.items()
)


def find_free_ports(count: int) -> list[int]:
    """Ports that nobody uses now."""
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in found:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in found]


@dataclass(frozen=True)
class Substitution:
    """What is run in place of a part of a command, and why."""

    pattern: str
    replacement: str
    reason: str


SUBSTITUTIONS = (
    Substitution(
        r"^make (\w+).*",
        rf"make --dry-run --directory '{ROOT}' \1",
        "would set up an environment, and the tests would run the tests",
    ),
    Substitution(
        r"^distributary (plan|sweep|pipeline run|pipeline stream)(?!.* --budget) ",
        r"distributary \1 --budget 1s ",
        "a second's plan is as good on so few flows",
    ),
    Substitution(
        r"^distributary pipeline (\w+) ",
        rf"distributary pipeline \1 {SMALL_SPARK} ",
        "on so few rows compiling a query takes longer than running it",
    ),
    Substitution(r"--interface eth0", "--interface lo", "the tests' namespace has only a loopback"),
    Substitution(
        r"^distributary calibrate ",
        "distributary calibrate --messages-per-packet 1 --messages-per-packet 8 --rounds 1 "
        "--seconds 20ms ",
        "measures for a minute; here the prices need not be right",
    ),
    Substitution(
        r"^distributary up ",
        "distributary up --spark off --desks 1 --port 0 ",
        "Spark takes long to start, and is tried out elsewhere",
    ),
    Substitution(
        r"^distributary control serve ", "distributary control serve --spark off ", "as up"
    ),
    Substitution(
        r"tls://alpha:4222,tls://beta:4222,tls://gamma:4222",
        "tls://localhost:4222",
        "there is one server, in a namespace of its own",
    ),
    Substitution(
        r"^distributary generate day ",
        f"distributary generate day {SMALL_DAY} ",
        "writes two million messages",
    ),
    Substitution(r" --watch", " --watch --json", "the table is for a terminal"),
    Substitution(r"--master spark://\S+", SMALL_SPARK, "there is no cluster"),
    Substitution(r"--py-files \S+\.whl", "", "the package is installed where its tests run"),
    *(
        Substitution(rf"127\.0\.0\.1:{port}", f"127.0.0.1:{free}", "others may use the port")
        for port, free in zip(SERVICE_PORTS, find_free_ports(len(SERVICE_PORTS)), strict=True)
    ),
)


def substitute(command: Command) -> Command:
    """The command as it is run here."""
    text = command.text
    for each in SUBSTITUTIONS:
        text = re.sub(each.pattern, each.replacement, text)
    return Command(text, command.page, command.line, command.block)


@dataclass(frozen=True)
class Ran:
    """How a command ended, and the folder that it ran in."""

    status: int
    out: str
    err: str
    folder: Path


class Runs:
    """Runs commands; what one of them reads, another has written or `examples/` has."""

    def __init__(self, base: Path, commands: Sequence[Command]) -> None:
        self._base = base
        self._commands = commands
        self._ran: dict[str, Ran] = {}
        self._folders = 0
        self._namespace: subprocess.Popen[str] | None = None

    def run(self, command: Command, *, again: bool = False) -> Ran:
        """Run a command to its end, or say how it ended before."""
        if again or command.text not in self._ran:
            folder, here = self.prepare(command), substitute(command)
            if here.is_ours and not here.name.startswith((*MULTICAST, *SPARK)):
                ran = run_in_process(here, folder)
            else:
                ran = self._run_apart(here, folder)
            self._ran[command.text] = ran
        return self._ran[command.text]

    def prepare(self, command: Command) -> Path:
        """A new folder with all that the command reads."""
        self._folders += 1
        folder = self._base / f"{self._folders:02}"
        folder.mkdir()
        for word in command.inputs:
            if re.fullmatch(r"\w[\w./-]*", word):
                self._fetch(word.rstrip("/"), command, folder)
        return folder

    def _fetch(self, word: str, command: Command, folder: Path) -> None:
        name = PurePosixPath(word).parts[0]
        source = EXAMPLES / name
        if not (EXAMPLES / word).exists():
            maker = self._find_maker(name, command)
            if maker is None:
                return
            source = self.run(maker).folder / name
        if source.is_dir():
            shutil.copytree(source, folder / name, dirs_exist_ok=True)
        elif source.exists():
            shutil.copy2(source, folder / name)

    def _find_maker(self, name: str, command: Command) -> Command | None:
        """The first command that writes something without reading it."""
        for other in self._commands:
            if name in other.outputs and name not in other.inputs and other.text != command.text:
                return other
        return None

    def _run_apart(self, command: Command, folder: Path) -> Ran:
        with self.begin(command, folder) as process:
            out, err = process.communicate(timeout=PATIENCE)
        return Ran(process.returncode, out, err, folder)

    @contextlib.contextmanager
    def begin(self, command: Command, folder: Path) -> Iterator[subprocess.Popen[str]]:
        """A command as a process, which does not outlive the `with`."""
        if command.is_ours:
            words = [*OURS, *command.words[1:]]
            if command.name.startswith(MULTICAST):
                words = [*self.enter_namespace(), *words]
            elif command.name.startswith(("topics", "broker")):
                words = [*find_command(), *command.words[1:]]
        else:
            words = ["sh", "-c", command.text]
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        with subprocess.Popen(
            words,
            cwd=folder,
            env={**os.environ, "PATH": path, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                if process.poll() is None:
                    process.kill()

    # --- a network of our own ---------------------------------------------------------------------

    @property
    def network(self) -> Path:
        """What the kernel tells of the namespace's network."""
        return Path(f"/proc/{self._open_namespace().pid}/net")

    def enter_namespace(self) -> list[str]:
        """What comes before the words of a command that is to run in the namespace."""
        pid = self._open_namespace().pid
        return ["nsenter", "--preserve-credentials", "-U", "-n", "-t", str(pid)]

    def _open_namespace(self) -> subprocess.Popen[str]:
        if self._namespace is None:
            reason = why_no_namespace()
            if reason is None and not shutil.which("nsenter"):
                reason = "needs nsenter"
            if reason is not None:
                pytest.skip(reason)
            self._namespace = subprocess.Popen(
                in_namespace(["sh", "-c", "echo ready; exec cat"]),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            assert self._namespace.stdout is not None
            assert self._namespace.stdout.readline() == "ready\n"
        return self._namespace

    def close(self) -> None:
        """Give the namespace back."""
        if self._namespace is not None:
            self._namespace.communicate(timeout=PATIENCE)


def run_in_process(command: Command, folder: Path) -> Ran:
    """Run a command of ours in this process, which must end in time."""
    with bounded(PATIENCE):
        status, out, err = call_main(command.words, folder)
    return Ran(status, out, err, folder)


@contextlib.contextmanager
def bounded(seconds: int) -> Iterator[None]:
    """Ends what would never end: a command for a terminal that nobody told us of."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"still running after {seconds} s: is it a command that waits?")

    before = signal.signal(signal.SIGALRM, stop)
    left = signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(left)
        signal.signal(signal.SIGALRM, before)
