"""What each process of a soak writes down, line by line, while it runs.

A line is complete in the kernel before the process goes on, so that what a killed process wrote is
there. A line is a JSON list: what happened, when by the clock that all processes of the machine
share, and the facts.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

__all__ = ["Diary", "Line", "name_diary", "read_diary"]

Line = list[Any]

_decoder = msgspec.json.Decoder(Line)
_encoder = msgspec.json.Encoder()


class Diary:
    """The diary of one run of a member."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def write(self, what: str, *facts: Any) -> None:
        """Write a line."""
        os.write(self._file, _encoder.encode([what, time.monotonic(), *facts]) + b"\n")


def name_diary(folder: Path, member: str, run: int) -> Path:
    """Where a run of a member writes."""
    return folder / f"{member}.{run}.jsonl"


def read_diary(path: Path) -> Iterator[Line]:
    """The lines, without one that is being written."""
    if not path.exists():
        return
    for line in path.read_bytes().split(b"\n")[:-1]:
        yield _decoder.decode(line)
