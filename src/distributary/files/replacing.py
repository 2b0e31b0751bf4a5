"""Files and folders that appear whole or not at all.

They are written under a temporary name beside the output. Whoever writes holds a lock on that, so
that the next to write the same output can tell what a killed writer left behind, and remove it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from distributary.files.faults import brief, output_fault


@contextmanager
def replaced_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file to write to that takes the place of `path` when the block ends well."""
    target = Path(os.path.realpath(path))
    try:
        if target.is_dir():
            raise output_fault(path, "is a folder", "name a file")
        _remove_abandoned(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        with _locked(target, _create_file) as temporary:
            try:
                with temporary.open("wb") as file:
                    yield file
                temporary.replace(target)
            finally:
                temporary.unlink(missing_ok=True)
    except OSError as error:
        raise _unwritable(path, error) from error


@contextmanager
def replaced_folder(
    path: str | os.PathLike[str], may_replace: Callable[[Path], bool], kind: str
) -> Iterator[Path]:
    """A folder to fill that takes the place of `path` when the block ends well.

    Something at `path` is replaced only if it is an empty folder or `may_replace` says so. The old
    folder is moved aside for the moment between two renames, and moved back if the second fails.
    """
    target = Path(os.path.realpath(path))
    try:
        _remove_abandoned(target)
        _check_replaceable(path, target, may_replace, kind)
        target.parent.mkdir(parents=True, exist_ok=True)
        with _locked(target, _create_folder) as temporary:
            try:
                new = temporary / "new"
                new.mkdir()
                yield new
                _swap(new, target, aside=temporary / "old")
            finally:
                _remove_folder(temporary, target)
    except OSError as error:
        raise _unwritable(path, error) from error


def _check_replaceable(
    path: str | os.PathLike[str], target: Path, may_replace: Callable[[Path], bool], kind: str
) -> None:
    if target.exists() and not target.is_dir():
        raise output_fault(path, "is a file", f"name a folder for the {kind}")
    if target.is_dir() and any(target.iterdir()) and not may_replace(target):
        raise output_fault(
            path, f"is a folder with other things in it, not a {kind}", "name a new or empty folder"
        )


def _swap(new: Path, target: Path, aside: Path) -> None:
    if not target.exists():
        new.rename(target)
        return
    try:
        target.rename(aside)
        new.rename(target)
    except BaseException:
        if aside.exists() and not target.exists():
            aside.rename(target)
        raise


@contextmanager
def _locked(target: Path, create: Callable[[Path], int]) -> Iterator[Path]:
    """Something new beside the target, on the same file system, that no reader looks at."""
    while True:
        temporary = target.parent / f".{_mark(target)}{uuid.uuid4().hex[:16]}.tmp"
        lock = create(temporary)
        try:
            # Somebody who took it for abandoned before it was locked may have removed it.
            if _lock(lock) and _is_at(lock, temporary):
                yield temporary
                return
        finally:
            os.close(lock)


def _remove_abandoned(target: Path) -> None:
    """Remove what a killed writer of the target left behind; an old folder moved aside goes back.

    What cannot be removed, such as another user's, stays.
    """
    for temporary in target.parent.glob(f".{_mark(target)}*.tmp"):
        with suppress(OSError):
            lock = os.open(temporary, os.O_RDONLY)
            try:
                if not _lock(lock, sure=True):
                    continue  # it is being written
                if temporary.is_dir():
                    if not target.exists() and (temporary / "old").exists():
                        (temporary / "old").rename(target)
                    _remove_folder(temporary, target)
                else:
                    temporary.unlink()
            finally:
                os.close(lock)


def _remove_folder(temporary: Path, target: Path) -> None:
    # An old folder is still here only if it could not be moved back: better keep it then.
    if target.exists() or not (temporary / "old").exists():
        shutil.rmtree(temporary, ignore_errors=True)


def _mark(target: Path) -> str:
    """What all temporary names of a target begin with; its own name may be too long for that."""
    return hashlib.sha256(os.fsencode(target.name)).hexdigest()[:16]


def _create_file(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)


def _create_folder(path: Path) -> int:
    path.mkdir()
    return os.open(path, os.O_RDONLY)


def _lock(file: int, *, sure: bool = False) -> bool:
    """Take the lock unless somebody has it.

    Where a file system has no locks, nobody can be `sure` that nobody has it.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return not sure
    return True


def _is_at(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


def _unwritable(path: str | os.PathLike[str], error: OSError) -> Exception:
    return output_fault(
        path, f"cannot be written: {brief(error)}", "check the place, or name another"
    )
