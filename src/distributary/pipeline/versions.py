"""Outputs on stores that cannot rename a folder at once: versions, and a pointer written last.

The pointer (`files.versions`) is one small object, which stores replace at once: readers see the
old version or the new one, and never a part of one. A run that fails or is killed leaves the
pointer as it was.

The version before the one in force is kept for those who still read it; the pointer names it too.
Object stores have no locks, so nobody can tell the remains of a killed run from the beginnings of
one that is alive: a version that the pointer does not name is removed by a later run, a day after
its last file was written. A run that was taken for dead in this way finds its mark gone, and fails.
"""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from distributary.errors import InputError
from distributary.files.faults import input_fault, output_fault, summarize_error
from distributary.files.versions import (
    FORMAT_VERSION,
    POINTER,
    VERSIONS,
    Pointer,
    PointerReader,
    count_files,
    is_version,
    load_pointer,
)
from distributary.pipeline.stores import Place, StorePath, remove_folder

__all__ = [
    "ABANDONED_S",
    "Pointers",
    "begin_version",
    "end_version",
    "is_abandoned",
    "new_run_id",
    "read_pointer",
    "remove_old_versions",
    "unreadable_fault",
]

ABANDONED_S = 24 * 3600.0
_BEGUN = ".begun"


def new_run_id() -> str:
    """A name for a run that no other has; later runs sort after earlier ones."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{uuid.uuid4().hex[:8]}"


def read_pointer(out: Place) -> Pointer | None:
    """The pointer of an output; None if it has none."""
    path = out / POINTER
    try:
        return load_pointer(path) if path.is_file() else None
    except OSError as error:
        raise unreadable_fault(str(path), error) from error


def begin_version(out: StorePath, version: str) -> StorePath:
    """The folder of a new version, with a mark in it for as long as it is being made."""
    folder = out / VERSIONS / version
    (folder / _BEGUN).write_text("")
    return folder


def end_version(out: StorePath, version: str) -> Pointer | None:
    """Put a version in force; return the pointer that was there before."""
    folder = out / VERSIONS / version
    if not (folder / _BEGUN).is_file():
        raise output_fault(
            str(folder),
            "was removed by another run, because nothing was written to it for a day",
            "run again, and let no other run write to this output meanwhile",
        )
    (folder / _BEGUN).remove()
    files, before = len(folder.list_files()), read_pointer(out)
    kept = None if before is None else before.version
    written = datetime.now(UTC).isoformat(timespec="seconds")
    document = {"format": FORMAT_VERSION, **asdict(Pointer(version, files, written, kept))}
    (out / POINTER).write_text(json.dumps(document) + "\n")
    return before


def remove_old_versions(out: StorePath, before: Pointer | None) -> None:
    """Remove the version that the pointer no longer names, and what killed runs left behind.

    What cannot be removed stays: the output is complete all the same.
    """
    try:
        now = read_pointer(out)
        named = set() if now is None else {now.version, now.previous}
        for folder in (out / VERSIONS).glob("*"):
            name = folder.name
            if name in named or not is_version(name):
                continue
            if (before is not None and name == before.previous) or is_abandoned(folder):
                remove_folder(folder)
    except (OSError, InputError):
        return


def is_abandoned(folder: StorePath) -> bool:
    """Whether nobody has written to a folder for a day."""
    latest = max((changed for _, changed in folder.list_files()), default=0.0)
    return latest < time.time() - ABANDONED_S


class Pointers:
    """Follows pointers for one command, so that all its inputs are of one version."""

    def __init__(self) -> None:
        self._reader = PointerReader[Place](_count_files)

    def follow(self, place: Place) -> Place:
        """The place itself, or the same place in the version that is in force."""
        try:
            return self._reader.follow(place)
        except OSError as error:
            raise unreadable_fault(str(place), error) from error


def unreadable_fault(path: str, error: OSError) -> InputError:
    """An `InputError` for a place on a file system that does not answer, or not to us."""
    if isinstance(error, FileNotFoundError):
        return input_fault(path, "no such file or folder", remedy="check the path")
    if isinstance(error, PermissionError):
        remedy = "check the credentials that Spark has for it (--conf), and their rights"
        return input_fault(path, "permission denied", remedy=remedy)
    remedy = "check the path, and that Spark has what this file system needs (--conf)"
    return input_fault(path, f"cannot be read: {summarize_error(error)}", remedy=remedy)


def _count_files(folder: Place) -> int:
    return count_files(folder) if isinstance(folder, Path) else len(folder.list_files())
