"""A loss of power: names stay as they were given, and of the contents what was synced."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

Synced = dict[int, int]
"""The length of each file when it was synced, by its inode."""


def note_syncs(monkeypatch: pytest.MonkeyPatch) -> Synced:
    """Note from now on what this process syncs."""
    synced: Synced = {}
    sync = os.fsync

    def note(file: int) -> None:
        sync(file)
        found = os.fstat(file)
        synced[found.st_ino] = found.st_size

    monkeypatch.setattr(os, "fsync", note)
    return synced


def lose_power(folder: Path, synced: Synced) -> None:
    """Cut each file to what was synced of it."""
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        kept = synced.get(path.stat().st_ino, 0)
        os.truncate(path, min(kept, path.stat().st_size))
