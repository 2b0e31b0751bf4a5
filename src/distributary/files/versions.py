"""Outputs that have versions, and a pointer file that names the one in force.

    OUT/versions/<run>/...      what each run wrote
    OUT/CURRENT                 the version in force: one line of JSON

The pipeline writes its output in this way where a folder cannot be renamed at once
(`pipeline.versions`). Readers follow the pointer, also in a copy on this machine's disk: `OUT` and
`OUT/plan` stand for `OUT/versions/X` and `OUT/versions/X/plan`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, Self, TypeVar

from distributary.files.faults import input_fault, read_fault

__all__ = [
    "POINTER",
    "VERSIONS",
    "Pointer",
    "PointerReader",
    "count_files",
    "find_pointer",
    "follow_pointer",
    "is_version",
    "load_pointer",
]

FORMAT_VERSION = 1
POINTER = "CURRENT"
VERSIONS = "versions"

_RUN_ID = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{8}")


class _AnyPath(Protocol):
    """What is asked of a path, on disk or on another file system."""

    @property
    def name(self) -> str: ...
    @property
    def parent(self) -> Self: ...
    def __truediv__(self, name: str, /) -> Self: ...
    def exists(self) -> bool: ...
    def is_dir(self) -> bool: ...
    def is_file(self) -> bool: ...
    def read_text(self) -> str: ...
    def glob(self, pattern: str, /) -> Iterable[Self]: ...


P = TypeVar("P", bound=_AnyPath)


@dataclass(frozen=True, slots=True)
class Pointer:
    """What the pointer file says: the version in force, its files, and the version before it."""

    version: str
    files: int
    written: str
    previous: str | None = None


def is_version(name: str) -> bool:
    """Whether a folder's name is that of a version."""
    return _RUN_ID.fullmatch(name) is not None


def load_pointer(path: _AnyPath) -> Pointer:
    """Read a pointer file."""
    try:
        document = json.loads(path.read_text())
        known = document.pop("format") == FORMAT_VERSION
        pointer = Pointer(**document)
        known &= all(is_version(name) for name in (pointer.version, pointer.previous) if name)
        if known and pointer.version and pointer.files >= 0:
            return pointer
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    raise input_fault(
        str(path),
        f"is damaged, and does not name the folder in {VERSIONS}/ that is in force",
        remedy="remove it and run the pipeline again, or name the folder of a version yourself",
    )


class PointerReader(Generic[P]):
    """Follows pointers; each is read once, so that all places found are of one version."""

    def __init__(self, count_files: Callable[[P], int]) -> None:
        self._count_files = count_files
        self._known: dict[str, P] = {}

    def follow(self, place: P) -> P:
        """The place itself, or the same place in the version that is in force.

        Only places that do not exist are looked for in the folders above, and a version that is
        named stays the one that is meant.
        """
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
            if above.exists():
                break  # a folder without a pointer: none above it has one for this
        return place

    def _enter(self, out: P) -> P | None:
        """The version in force of an output; None if it has no versions."""
        if str(out) not in self._known:
            path = out / POINTER
            if not path.is_file():
                return None
            self._known[str(out)] = self._find_version(out, load_pointer(path))
        return self._known[str(out)]

    def _find_version(self, out: P, pointer: Pointer) -> P:
        folder = out / VERSIONS / pointer.version
        found = self._count_files(folder) if folder.is_dir() else 0
        if found >= pointer.files:
            return folder
        there = sorted(path.name for path in (out / VERSIONS).glob("*") if is_version(path.name))
        others = [name for name in there if name != pointer.version]
        what = "is gone" if not found else f"has {found:,} of its {pointer.files:,} files"
        other = f", or name {out / VERSIONS / others[-1]} instead" if others else ""
        raise input_fault(
            str(out / POINTER),
            f"names version {pointer.version}, which {what}",
            remedy=f"copy it again, or run the pipeline into this folder again{other}",
        )


def follow_pointer(path: Path) -> Path:
    """Where a path on disk is in the version in force, if it is in an output that has versions."""
    try:
        return PointerReader(count_files).follow(path)
    except OSError as error:
        raise read_fault(path, error) from error


def find_pointer(path: Path) -> Path | None:
    """The pointer file that a missing path would be found by."""
    for above in path.parents:
        if above.exists():
            pointer = above / POINTER
            return pointer if pointer.is_file() else None
    return None


def count_files(folder: Path) -> int:
    """The number of files in a folder and below."""
    return sum(path.is_file() for path in folder.rglob("*"))
