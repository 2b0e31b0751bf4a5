"""Files and folders that appear whole or not at all.

Output is written under a temporary name beside its place and renamed at the end. The writer holds a
lock on the temporary file or folder. The next writer of the same output takes a temporary without a
lock for the remains of a killed one, and removes it.
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

from distributary.files.faults import output_fault, summarize_error


@contextmanager
def replace_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file that takes the place of `path` when the block ends without an error."""
    target = Path(os.path.realpath(path))
    try:
        if target.is_dir():
            raise output_fault(path, "is a folder", "name a file")
        _remove_abandoned(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        with _create_locked(target, _create_file) as temporary:
            try:
                with temporary.open("wb") as file:
                    yield file
                temporary.replace(target)
            finally:
                temporary.unlink(missing_ok=True)
    except OSError as error:
        raise _write_fault(path, error) from error


@contextmanager
def replace_folder(
    path: str | os.PathLike[str], may_replace: Callable[[Path], bool], kind: str
) -> Iterator[Path]:
    """Create a folder that takes the place of `path` when the block ends without an error.

    Something at `path` is replaced only if it is an empty folder or `may_replace` returns true for
    it. The old folder is moved aside between two renames, and moved back if the second one fails.
    """
    target = Path(os.path.realpath(path))
    try:
        _remove_abandoned(target)
        _check_replaceable(path, target, may_replace, kind)
        target.parent.mkdir(parents=True, exist_ok=True)
        with _create_locked(target, _create_folder) as temporary:
            try:
                new = temporary / "new"
                new.mkdir()
                yield new
                _swap(new, target, aside=temporary / "old")
            finally:
                _remove_folder(temporary, target)
    except OSError as error:
        raise _write_fault(path, error) from error


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
def _create_locked(target: Path, create: Callable[[Path], int]) -> Iterator[Path]:
    """Create a locked temporary beside the target, on the same file system, under a hidden name."""
    while True:
        temporary = target.parent / f".{_temporary_prefix(target)}{uuid.uuid4().hex[:16]}.tmp"
        lock = create(temporary)
        try:
            # Another writer may have removed it as abandoned before it was locked.
            if _lock(lock) and _is_at(lock, temporary):
                yield temporary
                return
        finally:
            os.close(lock)


def _remove_abandoned(target: Path) -> None:
    """Remove what killed writers of the target left behind, and move an old folder back.

    What cannot be removed, for example another user's files, stays.
    """
    for temporary in target.parent.glob(f".{_temporary_prefix(target)}*.tmp"):
        with suppress(OSError):
            lock = os.open(temporary, os.O_RDONLY)
            try:
                if not _lock(lock, sure=True):
                    continue  # its writer is alive
                if temporary.is_dir():
                    if not target.exists() and (temporary / "old").exists():
                        (temporary / "old").rename(target)
                    _remove_folder(temporary, target)
                else:
                    temporary.unlink()
            finally:
                os.close(lock)


def _remove_folder(temporary: Path, target: Path) -> None:
    # An old folder is still here only if it could not be moved back: it is kept then.
    if target.exists() or not (temporary / "old").exists():
        shutil.rmtree(temporary, ignore_errors=True)


def _temporary_prefix(target: Path) -> str:
    """The prefix of a target's temporary names: a hash, since its own name may be too long."""
    return hashlib.sha256(os.fsencode(target.name)).hexdigest()[:16]


def _create_file(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)


def _create_folder(path: Path) -> int:
    path.mkdir()
    return os.open(path, os.O_RDONLY)


def _lock(file: int, *, sure: bool = False) -> bool:
    """Take the lock; return false if another process holds it.

    Where the file system has no locks the answer is true, unless the caller must be `sure`.
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


def _write_fault(path: str | os.PathLike[str], error: OSError) -> Exception:
    return output_fault(
        path, f"cannot be written: {summarize_error(error)}", "check the place, or name another"
    )
