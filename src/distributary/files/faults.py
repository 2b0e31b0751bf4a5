"""How a bad file, row or value is told: always on one line, always with what to do."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from distributary.errors import InputError, OutputError

LONGEST = 60


def shown(value: object) -> str:
    """The value as Python would write it, on one line and cut where it gets long."""
    text = repr(value)
    if len(text) <= LONGEST:
        return text
    return f"{text[:LONGEST]}… ({len(text):,} characters)"


def listed(names: Iterable[str]) -> str:
    """Names side by side, at most ten of them."""
    names = list(names)
    more = f" and {len(names) - 10:,} more" if len(names) > 10 else ""
    return (", ".join(shown(name) for name in names[:10]) or "none") + more


def told(path: str | os.PathLike[str]) -> str:
    """The path as given, or escaped where it would break the line."""
    text = os.fspath(path)
    return text if text.isprintable() else repr(text)


def brief(error: BaseException) -> str:
    """What a library said, cut to the first part of its first line."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    text = next(iter(str(error).splitlines()), "") or type(error).__name__
    text = "".join(char if char.isprintable() else "?" for char in text)
    return text if len(text) <= 2 * LONGEST else text[: 2 * LONGEST] + "…"


def input_fault(
    path: str | os.PathLike[str],
    reason: str,
    *,
    row: int | None = None,
    value: object = None,
    remedy: str = "",
) -> InputError:
    """An `InputError` at a path."""
    return InputError(reason, path=told(path), row=row, value=value, remedy=remedy)


def output_fault(path: str | os.PathLike[str], reason: str, remedy: str = "") -> OutputError:
    """An `OutputError` at a path."""
    return OutputError(reason, path=told(path), remedy=remedy)


def unreadable(path: str | os.PathLike[str], error: Exception) -> InputError:
    """What to tell when the operating system does not let us read."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return input_fault(path, "no such file or folder", remedy="check the path")
    if isinstance(error, PermissionError):
        return input_fault(path, "permission denied", remedy="make it readable for this user")
    return input_fault(path, f"cannot be read: {brief(error)}", remedy="check the path")


@contextmanager
def arrow_faults(path: str | os.PathLike[str], what: str, remedy: str) -> Iterator[None]:
    """Turn whatever Arrow raises about a file into an `InputError`."""
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeError) as error:
        raise input_fault(path, f"{what}: {brief(error)}", remedy=remedy) from error


def missing_column(path: str | os.PathLike[str], column: str, found: Iterable[str]) -> InputError:
    """A table without one of its columns."""
    return input_fault(
        path,
        f"has no column {shown(column)}, only {listed(found)}",
        value=column,
        remedy="name the columns as documented",
    )


def repeated_column(path: str | os.PathLike[str], column: str) -> InputError:
    """A table with one of its columns twice."""
    return input_fault(
        path, f"has the column {shown(column)} twice", value=column, remedy="keep one of them"
    )


def plain(value: Any) -> Any:
    """An Arrow scalar as a Python value, raw bytes where its text is broken."""
    if isinstance(value, pa.DictionaryScalar):
        value = value.value
    try:
        return value.as_py()
    except UnicodeDecodeError:
        return value.as_buffer().to_pybytes()
