"""The cost of the processes below this one: CPU seconds, and memory by kind of process."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
KINDS = {
    "CoarseGrainedExecutorBackend": "executor's JVM",
    "pyspark.daemon": "Python worker",
    "pyspark.worker": "Python worker",
    "PythonGatewayServer": "driver's JVM",
    "pyspark-shell": "driver's JVM",
    "SparkSubmit": "driver's JVM",
}


def cpu_seconds() -> float:
    """The CPU seconds of this process and all its descendants, including those that have ended."""
    return cpu_of(os.getpid())


def cpu_of(pid: int) -> float:
    """The CPU seconds of a process and all its descendants, including those that have ended."""
    return sum(_cpu(each) for each in (pid, *_descendants(pid)))


def resident(pid: int) -> int:
    """The resident bytes of a process now."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


@contextmanager
def peaks() -> Iterator[dict[str, float]]:
    """The largest resident memory of a process of each kind, in GiB, while the block runs."""
    found: dict[str, float] = {}
    over = threading.Event()

    def look() -> None:
        for pid in (os.getpid(), *_descendants(os.getpid())):
            kind = "driver's Python" if pid == os.getpid() else _kind(pid)
            found[kind] = max(found.get(kind, 0.0), _peak(pid))

    def watch() -> None:
        while not over.wait(0.25):
            look()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield found
    finally:
        look()
        over.set()
        watcher.join()


def _kind(pid: int) -> str:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return "other"
    return next((kind for sign, kind in KINDS.items() if sign in command), "other")


def _peak(pid: int) -> float:
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 2**20
    except OSError:
        pass
    return 0.0


def _cpu(pid: int) -> float:
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, words[11:15])) / _TICKS


def _descendants(pid: int) -> list[int]:
    try:
        files = Path(f"/proc/{pid}/task").glob("*/children")
        children = [int(child) for file in files for child in file.read_text().split()]
    except OSError:
        return []
    return children + [below for child in children for below in _descendants(child)]
