"""What a stream writes about its batches, read as it grows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from distributary.errors import DistributaryError
from distributary.files import read_plan
from distributary.model import Plan

__all__ = ["StreamHistory", "read_version"]


class StreamHistory:
    """The lines of a stream's history in its folder `out`, each once."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self._offset = 0
        self._batch = -1

    def read(self) -> list[Mapping[str, Any]]:
        """The lines that were added, one for each batch."""
        entries = []
        with suppress(OSError), (self._out / "drift.jsonl").open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    break  # it is being written
                self._offset += len(line)
                entry = _parse(line)
                if entry is not None and entry["batch"] > self._batch:
                    self._batch = entry["batch"]
                    entries.append(entry)
        return entries

    def read_counts(self) -> tuple[dict[str, int], dict[str, int]]:
        """The rows read so far, by log, and those put aside, by reason; empty if unknown."""
        rows: dict[str, int] = {}
        reasons: dict[str, int] = {}
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            state = json.loads((self._out / "state.json").read_bytes())
            for log, found in state["counts"].items():
                bad = sum(found["reasons"].values())
                rows[log] = found["used"] + found["duplicates"] + bad
                for reason, number in found["reasons"].items():
                    reasons[reason] = reasons.get(reason, 0) + number
        return rows, reasons


def read_version(out: Path, version: int) -> Plan | None:
    """Read a version of the stream's plan; None if it is not there any more, or damaged."""
    for folder in (out / "plans" / f"{version:06d}", out / "plan"):
        with suppress(DistributaryError):
            return read_plan(folder).plan
    return None


def _parse(line: bytes) -> Mapping[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    is_entry = isinstance(found, dict) and {"batch", "files", "version"} <= found.keys()
    return found if is_entry else None
