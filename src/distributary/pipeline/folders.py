"""Folders that a run fills, whole or not at all, and errors about disks that cannot take them.

Spark writes its tables straight to where the folder is made. The driver writes its own files to
this machine's disk, and on another file system they are copied beside the tables at the end. What
happens then depends on the place:

- on disk, and where a folder can be renamed at once, it was made beside its place and is renamed;
  on disk its files are synced before, so that this holds for a loss of power as well;
- on other stores it is a new version, and a pointer is written last (`versions`).
"""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from distributary.files import replace_folder
from distributary.files.faults import output_fault, summarize_error
from distributary.files.versions import POINTER, VERSIONS
from distributary.pipeline.durable import sync_files
from distributary.pipeline.private import private_folder
from distributary.pipeline.sources import full_message
from distributary.pipeline.stores import Place, StorePath, is_uri, remove_folder
from distributary.pipeline.undisturbed import hold_off_interrupts, stay_undisturbed
from distributary.pipeline.versions import (
    begin_version,
    end_version,
    is_abandoned,
    new_run_id,
    read_pointer,
    remove_old_versions,
)

__all__ = ["OutputFolder", "fill_folder", "report_write_faults", "rounds_folder"]

# Where one rename of a folder is one change; all other schemes are taken for object stores.
_RENAMING = ("file", "hdfs", "viewfs")
_ROUNDS = ".rounds"
_UNWRITABLE = re.compile(
    r"No space left on device|Disk quota exceeded|Read-only file system|Permission denied"
    r"|Not a directory|Mkdirs failed to create|Input/output error"
)
_DENIED = re.compile(r"(?:AccessControlException|AccessDeniedException): (\S.*)")
_STORE_FAULT = re.compile(
    r"(?:\w+\.)+\w*(?:IO|Connect|UnknownHost|Socket\w*|Timeout|Remote)Exception: (\S.*)"
)
_REMEDY = (
    "make room or check the place, also Spark's own (--conf spark.local.dir=FOLDER), "
    "or name another"
)
_STORE_REMEDY = "check that it can be reached and has room, and run again"
_RIGHTS = "check the credentials that Spark has for it (--conf), and their rights"
_PAUSE_S, _LONGEST_S = 0.05, 60.0

MayReplace = Callable[[Place], bool]


@dataclass(frozen=True, slots=True)
class OutputFolder:
    """A folder while it is made, by the run of this id.

    The driver writes its files below `local` and Spark its tables below `tables`; on this machine's
    disk both are the same folder. `final` is where all of it will be.
    """

    run: str
    local: Path
    tables: Place
    final: Place

    @property
    def stage(self) -> Place:
        """The folder for tables that are not part of the output."""
        return self.tables / ".work"


@contextmanager
def fill_folder(
    spark: SparkSession, place: Place, may_replace: MayReplace, kind: str
) -> Iterator[OutputFolder]:
    """Make a folder that takes the place when the block ends without an error.

    Something that is there is replaced only if it is an empty folder or `may_replace` returns true
    for it. What was begun is removed only after Spark's tasks end.
    """
    with _begin_folder(place, may_replace, kind) as folder, report_write_faults(str(place)):
        try:
            yield folder
        except BaseException:
            stay_undisturbed()
            _await_tasks(spark)
            raise


def rounds_folder(place: Place, shared: Path | None = None) -> Path | None:
    """The folder of the rounds on executors; a restarted job of the same output resumes there.

    Executors map its files into their memory, so it is a folder of a file system that all machines
    have mounted: in `shared`, or beside an output on disk. None if there is no such folder.
    """
    if shared is not None:
        return shared / f"distributary-{_digest(str(place))}{_ROUNDS}"
    if isinstance(place, Path):
        return place.parent / f".{place.name}{_ROUNDS}"
    return None


@contextmanager
def report_write_faults(path: str | Path) -> Iterator[None]:
    """Turn errors of Spark or the system about a full or forbidden disk into an `OutputError`."""
    try:
        yield
    except OSError as error:
        remedy = _RIGHTS if isinstance(error, PermissionError) and is_uri(str(path)) else _REMEDY
        raise output_fault(path, f"cannot be written: {summarize_error(error)}", remedy) from error
    except (PySparkException, Py4JError) as error:
        if is_uri(str(path)):
            _raise_store_fault(str(path), error)
        found = _UNWRITABLE.search(full_message(error))
        if found is None:
            raise
        raise output_fault(path, f"cannot be written: {found[0].lower()}", _REMEDY) from error


def _raise_store_fault(path: str, error: Exception) -> None:
    """Raise an `OutputError` if a file system failed, or did not let us in."""
    text = full_message(error)
    for pattern, reason, remedy in (
        (_DENIED, "permission denied: ", _RIGHTS),
        (_STORE_FAULT, "", _STORE_REMEDY),
    ):
        found = pattern.search(text)
        if found is not None:
            reason = f"was not written: {reason}{summarize_error(OSError(found[1]))}"
            raise output_fault(path, reason, remedy) from error


@contextmanager
def _begin_folder(place: Place, may_replace: MayReplace, kind: str) -> Iterator[OutputFolder]:
    run = new_run_id()
    if isinstance(place, Path):
        with replace_folder(place, may_replace, kind) as folder:
            yield OutputFolder(run, folder, folder, place)
            sync_files([folder, *folder.rglob("*")])
        sync_files([place.parent])
        return
    replace = _replace_by_rename if _can_rename(place) else _add_version
    local = Path(tempfile.mkdtemp(dir=private_folder()))
    try:
        with report_write_faults(str(place)), replace(place, may_replace, kind, run) as made:
            final = place if _can_rename(place) else made
            yield OutputFolder(run, local, made, final)
            _upload(local, made)
    finally:
        shutil.rmtree(local, ignore_errors=True)


def _can_rename(place: StorePath) -> bool:
    return place.uri.partition(":")[0].lower() in _RENAMING


def _upload(local: Path, made: StorePath) -> None:
    """Copy the driver's files beside Spark's tables."""
    for file in sorted(local.rglob("*")):
        if file.is_file():
            (made / file.relative_to(local).as_posix()).upload(file)


# --- versions and a pointer ----------------------------------------------------------------------


@contextmanager
def _add_version(
    place: StorePath, may_replace: MayReplace, kind: str, run: str
) -> Iterator[StorePath]:
    _check_versions(place, may_replace, kind)
    made = place / VERSIONS / run
    try:
        yield begin_version(place, run)
        with hold_off_interrupts():
            before = end_version(place, run)
    except BaseException:
        stay_undisturbed()
        if not _is_in_force(place, run):
            remove_folder(made)
        raise
    remove_old_versions(place, before)


def _check_versions(place: StorePath, may_replace: MayReplace, kind: str) -> None:
    """Refuse a place that holds anything but the versions of this kind of output."""
    if place.is_file():
        raise output_fault(str(place), "is a file", f"name a folder for the {kind}")
    there = {path.name for path in place.iterdir()} if place.is_dir() else set()
    pointer = read_pointer(place)
    now = None if pointer is None else place / VERSIONS / pointer.version
    if there - {POINTER, VERSIONS} or (now is not None and now.exists() and not may_replace(now)):
        raise _other_things(place, kind)


def _is_in_force(place: StorePath, run: str) -> bool:
    """Whether the pointer names the run; true if in doubt, as nothing is removed then."""
    try:
        pointer = read_pointer(place)
    except Exception:
        return True
    return pointer is not None and pointer.version == run


def _other_things(place: StorePath, kind: str) -> Exception:
    return output_fault(
        str(place),
        f"is a folder with other things in it, not a {kind}",
        "name a new or empty folder",
    )


# --- renaming ------------------------------------------------------------------------------------


@contextmanager
def _replace_by_rename(
    place: StorePath, may_replace: MayReplace, kind: str, run: str
) -> Iterator[StorePath]:
    """Make the folder beside its place; the old one is moved aside between two renames."""
    _restore_or_remove(place)
    if place.is_file():
        raise output_fault(str(place), "is a file", f"name a folder for the {kind}")
    if place.is_dir() and any(place.iterdir()) and not may_replace(place):
        raise _other_things(place, kind)
    temporary = place.parent / f".{_prefix(place)}{run}.tmp"
    new, old = temporary / "new", temporary / "old"
    try:
        new.mkdir()
        yield new
        with hold_off_interrupts():
            _swap(new, place, old)
    except BaseException:
        stay_undisturbed()
        raise
    finally:
        if place.exists() or not old.exists():
            remove_folder(temporary)


def _swap(new: StorePath, place: StorePath, old: StorePath) -> None:
    try:
        if place.exists():
            place.rename(old)
        new.rename(place)
    except BaseException:
        if old.exists() and not place.exists():
            old.rename(place)
        raise


def _restore_or_remove(place: StorePath) -> None:
    """Move back an old folder that a killed run moved aside, and remove what it had begun.

    There is no lock that tells whether the run is alive, so a folder is left alone for a day after
    its last file was written.
    """
    for temporary in place.parent.glob(f".{_prefix(place)}*.tmp"):
        old = temporary / "old"
        if old.exists() and not place.exists():
            old.rename(place)
        if is_abandoned(temporary):
            remove_folder(temporary)


def _prefix(place: StorePath) -> str:
    return _digest(place.name)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _await_tasks(spark: SparkSession) -> None:
    """Cancel Spark's jobs and wait for their tasks: a killed task still writes for a moment."""
    with suppress(Py4JError, PySparkException):
        spark.sparkContext.cancelAllJobs()
        store = spark.sparkContext._jsc.sc().statusStore()
        last = time.monotonic() + _LONGEST_S
        while time.monotonic() < last:
            executors = store.executorList(True)
            if not any(executors.apply(i).activeTasks() for i in range(executors.size())):
                return
            time.sleep(_PAUSE_S)
