"""A network namespace of the tests' own, and a process in it that runs scenarios by name.

The namespace has a loopback that takes multicast, and for IPv6, which has none there, one end of a
pair of virtual links. Nothing in it can reach the machine's own networks, nor they it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SETUP = """
set -e
ip link set lo up multicast on
ip link add veth0 type veth peer name veth1
ip addr add 10.77.0.1/24 dev veth0
ip -6 addr add fd77::1/64 dev veth0 nodad
ip link set veth0 up
ip link set veth1 up
exec "$@"
"""


def in_namespace(command: list[str]) -> list[str]:
    """The command line that runs a command in a namespace of its own."""
    return ["unshare", "-rn", "sh", "-c", SETUP, "sh", *command]


def why_no_namespace() -> str | None:
    """Why none can be made here, if none can."""
    if sys.platform != "linux" or not shutil.which("unshare") or not shutil.which("ip"):
        return "needs Linux with unshare and ip"
    tried = subprocess.run(in_namespace(["true"]), capture_output=True, text=True)
    return None if tried.returncode == 0 else f"no network namespace: {tried.stderr.strip()}"


class Worker:
    """Runs scenarios, one at a time."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, name: str, *values: object) -> None:
        """Run one; what goes wrong there is an AssertionError here, with its traceback."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([name, *values]) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"the worker ended with {self._process.wait(10)}"
        outcome, said = json.loads(answer)
        if outcome == "skip":
            pytest.skip(said)
        assert outcome == "done", said


def working() -> Iterator[Worker]:
    """A worker in a namespace, or a skip with the reason."""
    reason = why_no_namespace()
    if reason is not None:
        pytest.skip(reason)
    command = [sys.executable, "-W", "error", "-m", "tests.delivery.udp.worker"]
    with subprocess.Popen(
        in_namespace(command),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as process:
        yield Worker(process)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(30) == 0
