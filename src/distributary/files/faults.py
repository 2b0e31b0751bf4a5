"""Errors about a file, a row or a value: one line each, with what to do about it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from distributary.errors import InputError, OutputError

LONGEST = 60

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


def show_value(value: object) -> str:
    """The value as Python writes it, on one line and cut where it is long."""
    text = repr(value)
    if len(text) <= LONGEST:
        return text
    return f"{text[:LONGEST]}… ({len(text):,} characters)"


def list_names(names: Iterable[str]) -> str:
    """The names separated by commas, at most ten of them."""
    names = list(names)
    more = f" and {len(names) - 10:,} more" if len(names) > 10 else ""
    return (", ".join(show_value(name) for name in names[:10]) or "none") + more


def show_path(path: str | os.PathLike[str]) -> str:
    """The path as given, or escaped where it would break the line."""
    text = os.fspath(path)
    return text if text.isprintable() else repr(text)


def summarize_error(error: BaseException) -> str:
    """The first line of a library's error message, shortened and without unprintable characters."""
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
    return InputError(reason, path=show_path(path), row=row, value=value, remedy=remedy)


def check_format(path: str | os.PathLike[str], version: object, expected: int) -> None:
    """Refuse a document of another format version."""
    if version != expected or isinstance(version, bool):
        raise input_fault(
            path,
            f"has format {show_value(version)}, not {expected}",
            value=version,
            remedy="read it with the version of distributary that wrote it",
        )


def output_fault(path: str | os.PathLike[str], reason: str, remedy: str = "") -> OutputError:
    """An `OutputError` at a path."""
    return OutputError(reason, path=show_path(path), remedy=remedy)


def read_fault(path: str | os.PathLike[str], error: Exception) -> InputError:
    """An `InputError` for a file that the operating system does not let us read."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        if _URI.match(os.fspath(path)):
            reason = "only `pipeline` commands read from other places than this machine's disk"
            return input_fault(path, reason, remedy="copy it to the disk, and name its path there")
        return input_fault(path, "no such file or folder", remedy="check the path")
    if isinstance(error, PermissionError):
        return input_fault(path, "permission denied", remedy="make it readable for this user")
    return input_fault(path, f"cannot be read: {summarize_error(error)}", remedy="check the path")


@contextmanager
def report_arrow_faults(path: str | os.PathLike[str], what: str, remedy: str) -> Iterator[None]:
    """Turn whatever Arrow raises about a file into an `InputError`."""
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeError) as error:
        raise input_fault(path, f"{what}: {summarize_error(error)}", remedy=remedy) from error


def missing_column_fault(
    path: str | os.PathLike[str], column: str, found: Iterable[str]
) -> InputError:
    """An `InputError` for a table that lacks a column."""
    return input_fault(
        path,
        f"has no column {show_value(column)}, only {list_names(found)}",
        value=column,
        remedy="name the columns as documented",
    )


def repeated_column_fault(path: str | os.PathLike[str], column: str) -> InputError:
    """An `InputError` for a table that has a column twice."""
    return input_fault(
        path, f"has the column {show_value(column)} twice", value=column, remedy="keep one of them"
    )


def to_python(value: Any) -> Any:
    """An Arrow scalar as a Python value; bytes where its text is not valid UTF-8."""
    if isinstance(value, pa.DictionaryScalar):
        value = value.value
    try:
        return value.as_py()
    except UnicodeDecodeError:
        return value.as_buffer().to_pybytes()
