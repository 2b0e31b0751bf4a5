"""Where a command's output goes, and the plans that it reads, on any file system of Spark."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from distributary.errors import InputError
from distributary.files import read_previous
from distributary.files.faults import input_fault, output_fault, summarize_error
from distributary.pipeline.stores import Place, copy_to_local, path_on_disk, resolve_place
from distributary.pipeline.versions import Pointers, unreadable_fault

__all__ = [
    "PlanFolder",
    "find_plan_in",
    "open_plan",
    "resolve_base_folder",
    "resolve_output",
    "resolve_stream_folder",
]

_RIGHTS = "check the credentials that Spark has for it (--conf), and their rights"
_REMEDY = "check the URI, and that Spark has what this file system needs (--conf)"


@dataclass(frozen=True, slots=True)
class PlanFolder:
    """A plan where Spark reads it, and where this machine's programs do."""

    place: Place
    local: Path


def resolve_output(spark: SparkSession, path: str | os.PathLike[str]) -> Place:
    """Where an output goes; its file system is known and can be reached."""
    try:
        place = resolve_place(spark, path)
        if not isinstance(place, Path):
            place.exists()
    except PermissionError as error:
        raise output_fault(path, "cannot be written: permission denied", _RIGHTS) from error
    except OSError as error:
        reason = f"cannot be written: {summarize_error(error)}"
        raise output_fault(path, reason, _REMEDY) from error
    return place


def resolve_stream_folder(path: str) -> Path:
    """The folder of a stream, by its path or `file:` URI; others are refused."""
    found = path_on_disk(path)
    if found is None:
        raise output_fault(
            path,
            "a stream keeps its state on a disk, with locks and renames, which this is not",
            "name a folder on a disk that outlasts this machine and copy its plans from there, "
            "or start `pipeline run` at intervals, which can write here",
        )
    return found


def resolve_base_folder(path: str) -> Path:
    """The folder of a stream's base, by its path or `file:` URI; others are refused."""
    found = path_on_disk(path)
    if found is None:
        raise input_fault(
            path,
            "the base of a stream is looked at before each batch, on a disk, which this is not",
            remedy="copy the plan to a disk whenever it changes, and name the copy with --base",
        )
    return found


def find_plan_in(out: Place, *, must: bool) -> Place | None:
    """The plan of an output; None if there is none.

    An output whose pointer leads nowhere has no plan, unless there `must` be one: a new run mends
    it.
    """
    try:
        place = Pointers().follow(out / "plan")
    except InputError:
        if must:
            raise
        return None
    return place if place.is_dir() else None


@contextmanager
def open_plan(
    spark: SparkSession, path: Place | str | os.PathLike[str], pointers: Pointers
) -> Iterator[PlanFolder]:
    """Find a plan, follow a pointer to it, and check it; a folder with a run in it has a plan."""
    try:
        asked = path if not isinstance(path, str | os.PathLike) else resolve_place(spark, path)
        place = pointers.follow(asked)
        if place != asked and not (place / "plan.json").is_file():
            place = place / "plan"  # the folder of a run stands for its plan
        if not isinstance(place, Path) and not place.is_dir():
            raise input_fault(str(path), "no such file or folder", remedy="check the path")
    except OSError as error:
        raise unreadable_fault(str(path), error) from error
    with copy_to_local(place) as local:
        _check_plan(place, local)
        yield PlanFolder(place, local)


def _check_plan(place: Place, local: Path) -> None:
    """Read the plan once; what is wrong with a copy is said of the original."""
    try:
        read_previous(local)
    except InputError as error:
        if place == local or error.path is None:
            raise
        where = error.path.replace(str(local), str(place))
        raise InputError(
            error.reason, path=where, row=error.row, value=error.value, remedy=error.remedy
        ) from error
