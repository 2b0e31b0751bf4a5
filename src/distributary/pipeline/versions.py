"""Outputs on stores that cannot rename a folder at once: versions, and a pointer written last.

    OUT/versions/<run>/...      what each run wrote
    OUT/CURRENT                 the version in force: one line of JSON

The pointer is one small object, which stores replace at once: readers see the old version or the
new one, and never a part of one. A run that fails or is killed leaves the pointer as it was.

The version before the one in force is kept for those who still read it; the pointer names it too.
Object stores have no locks, so nobody can tell the remains of a killed run from the beginnings of
one that is alive: a version that the pointer does not name is removed by a later run, a day after
its last file was written.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from distributary.errors import InputError
from distributary.files.faults import input_fault, summarize_error
from distributary.pipeline.stores import Place, StorePath, remove_folder

__all__ = [
    "POINTER",
    "VERSIONS",
    "Pointer",
    "Pointers",
    "new_run_id",
    "read_pointer",
    "remove_old_versions",
    "write_pointer",
]

FORMAT_VERSION = 1
POINTER = "CURRENT"
VERSIONS = "versions"
ABANDONED_S = 24 * 3600.0

_RUN_ID = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{8}")


def new_run_id() -> str:
    """A name for a run that no other has; later runs sort after earlier ones."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{uuid.uuid4().hex[:8]}"


@dataclass(frozen=True, slots=True)
class Pointer:
    """What the pointer file says: the version in force, its files, and the version before it."""

    version: str
    files: int
    written: str
    previous: str | None = None


def read_pointer(out: Place) -> Pointer | None:
    """The pointer of an output; None if it has none."""
    path = out / POINTER
    try:
        if not path.is_file():
            return None
        document = json.loads(path.read_text())
        known = document.pop("format") == FORMAT_VERSION
        pointer = Pointer(**document)
        known &= all(_RUN_ID.fullmatch(v) for v in (pointer.version, pointer.previous) if v)
        if known and pointer.version and pointer.files >= 0:
            return pointer
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    except OSError as error:
        raise _unreadable(str(path), error) from error
    raise input_fault(
        str(path),
        f"is damaged, and does not name the folder in {VERSIONS}/ that is in force",
        remedy="remove it and run the pipeline again, or name the folder of a version yourself",
    )


def write_pointer(out: StorePath, version: str, files: int) -> Pointer | None:
    """Put a version in force; return the pointer that was there before."""
    before = read_pointer(out)
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
            if name in named or not _RUN_ID.fullmatch(name):
                continue
            if (before is not None and name == before.previous) or _is_abandoned(folder):
                remove_folder(folder)
    except (OSError, InputError):
        return


def _is_abandoned(folder: StorePath) -> bool:
    latest = max((changed for _, changed in folder.list_files()), default=0.0)
    return latest < time.time() - ABANDONED_S


class Pointers:
    """Follows pointers for one command: each is read once, so all its inputs are of one version."""

    def __init__(self) -> None:
        self._known: dict[str, Place] = {}

    def follow(self, place: Place) -> Place:
        """The place itself, or the same place in the version that is in force.

        `OUT` and `OUT/plan` stand for `OUT/versions/X` and `OUT/versions/X/plan` if there is a
        pointer in `OUT`. Only places that do not exist are looked for in the folders above, and a
        version that is named stays the one that is meant.
        """
        try:
            if place.exists():
                return self._enter(place) or place
            inner: list[str] = []
            above = place
            while above.parent != above:
                inner, above = [above.name, *inner], above.parent
                version = None if inner[0] == VERSIONS else self._enter(above)
                if version is not None:
                    for name in inner:
                        version = version / name
                    return version
                if above.exists() and not isinstance(above, StorePath):
                    break  # a folder on disk without a pointer: none above it has one for this
        except OSError as error:
            raise _unreadable(str(place), error) from error
        return place

    def _enter(self, out: Place) -> Place | None:
        """The version in force of an output; None if it has no versions."""
        if str(out) not in self._known:
            if not ((out / VERSIONS).is_dir() or (out / POINTER).is_file()):
                return None
            pointer = read_pointer(out)
            if pointer is None:
                return None
            self._known[str(out)] = _find_version(out, pointer)
        return self._known[str(out)]


def _find_version(out: Place, pointer: Pointer) -> Place:
    folder = out / VERSIONS / pointer.version
    found = _count_files(folder)
    if found >= pointer.files:
        return folder
    there = sorted(p.name for p in (out / VERSIONS).glob("*") if _RUN_ID.fullmatch(p.name))
    others = [name for name in there if name != pointer.version]
    what = "is gone" if not found else f"has {found:,} of its {pointer.files:,} files"
    other = f", or name {out / VERSIONS / others[-1]} instead" if others else ""
    raise input_fault(
        str(out / POINTER),
        f"names version {pointer.version}, which {what}",
        remedy=f"run the pipeline into this folder again{other}",
    )


def _count_files(folder: Place) -> int:
    if isinstance(folder, StorePath):
        return len(folder.list_files()) if folder.is_dir() else 0
    return sum(path.is_file() for path in folder.rglob("*"))


def _unreadable(path: str, error: OSError) -> InputError:
    return input_fault(
        path,
        f"cannot be read: {summarize_error(error)}",
        remedy="check the path, and that Spark has what this file system needs (--conf)",
    )
