"""Files and folders that appear whole or not at all."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = _temporary(target)
        try:
            with temporary.open("xb") as file:
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
        _check_replaceable(path, target, may_replace, kind)
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = _temporary(target)
        try:
            new = temporary / "new"
            new.mkdir(parents=True)
            yield new
            _swap(new, target, aside=temporary / "old")
        finally:
            # An old folder is still here only if it could not be moved back: better keep it then.
            if target.exists() or not (temporary / "old").exists():
                shutil.rmtree(temporary, ignore_errors=True)
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


def _temporary(target: Path) -> Path:
    """A name beside the target, on the same file system, that no reader looks at."""
    return target.parent / f".{uuid.uuid4().hex}.tmp"


def _unwritable(path: str | os.PathLike[str], error: OSError) -> Exception:
    return output_fault(
        path, f"cannot be written: {brief(error)}", "check the place, or name another"
    )
