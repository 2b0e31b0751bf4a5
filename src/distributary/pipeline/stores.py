"""Paths on the file systems that Spark knows (`hdfs:`, `s3a:`, `gs:`, `abfs:`, ...).

A `StorePath` offers the few methods of `pathlib.Path` that the pipeline needs, and raises `OSError`
as that does. So a `Place` is either, and most code need not know which.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from distributary.pipeline.private import private_folder
from distributary.pipeline.spark import spark_message

__all__ = [
    "LITERAL_PATHS",
    "Place",
    "StorePath",
    "copy_to_local",
    "hadoop_path",
    "is_uri",
    "path_on_disk",
    "remove_folder",
    "resolve_place",
    "to_os_error",
]

LITERAL_PATHS: Final = {"__globPaths__": "false"}
"""Options of a Spark reader whose path may have brackets and stars, and is no pattern."""

_FILE = re.compile(r"file:(?://(?:localhost)?(?=/)|(?=/(?!/)))", re.IGNORECASE)
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_MISSING = ("FileNotFoundException", "NoSuchFileException")
_DENIED = ("AccessControlException", "AccessDeniedException")


def hadoop_path(spark: SparkSession, path: str) -> tuple[Any, Any]:
    """A path as a Hadoop object, and its file system."""
    jvm: Any = spark.sparkContext._jvm
    place = jvm.org.apache.hadoop.fs.Path(path)
    return place, place.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())


def path_on_disk(text: str) -> Path | None:
    """The path that a plain path or a `file:` URI stands for; None for other URIs."""
    local = _FILE.match(text)
    if local is None and is_uri(text):
        return None
    return Path(text[local.end() :] if local else text)


def is_uri(path: str) -> bool:
    """Whether a path begins with the scheme of a file system, such as `s3a:/`."""
    return _URI.match(path) is not None


@dataclass(frozen=True, slots=True)
class StorePath:
    """A path by its URI; `spark` knows the file system."""

    uri: str
    spark: SparkSession = field(repr=False, compare=False)

    def __str__(self) -> str:
        return self.uri

    def __truediv__(self, name: str) -> StorePath:
        return StorePath(f"{self.uri.rstrip('/')}/{name}", self.spark)

    @property
    def name(self) -> str:
        """The last part of the path; empty for a bucket."""
        return str(self._open()[0].getName())

    @property
    def suffix(self) -> str:
        """The extension of the name, with its dot."""
        return os.path.splitext(self.name)[1]

    @property
    def parent(self) -> StorePath:
        """The folder that the path is in; a bucket is its own."""
        above = self._open()[0].getParent()
        return self if above is None else StorePath(str(above.toString()), self.spark)

    def exists(self) -> bool:
        """Whether there is a file or a folder."""
        return self._status() is not None

    def is_dir(self) -> bool:
        """Whether there is a folder."""
        found = self._status()
        return found is not None and bool(found.isDirectory())

    def is_file(self) -> bool:
        """Whether there is a file."""
        found = self._status()
        return found is not None and bool(found.isFile())

    def iterdir(self) -> Iterator[StorePath]:
        """What is directly in the folder, sorted."""
        with _raise_os_errors(self.uri):
            path, system = self._open()
            found = sorted(str(one.getPath().toString()) for one in system.listStatus(path))
        return (StorePath(uri, self.spark) for uri in found)

    def glob(self, pattern: str) -> Iterator[StorePath]:
        """What is directly in the folder and has a name like this; nothing if there is none."""
        found = self.iterdir() if self.is_dir() else iter(())
        return (one for one in found if fnmatchcase(one.name, pattern))

    def list_files(self) -> list[tuple[StorePath, float]]:
        """All files in the folder and below, with the seconds since 1970 of their last change."""
        with _raise_os_errors(self.uri):
            path, system = self._open()
            listing, found = system.listFiles(path, True), []
            while listing.hasNext():
                one = listing.next()
                place = StorePath(str(one.getPath().toString()), self.spark)
                found.append((place, one.getModificationTime() / 1000))
        return sorted(found, key=lambda pair: pair[0].uri)

    def mkdir(self, parents: bool = True) -> None:
        """Create the folder, and those above it."""
        with _raise_os_errors(self.uri):
            path, system = self._open()
            system.mkdirs(path)

    def read_text(self) -> str:
        """The text of a small file."""
        with _raise_os_errors(self.uri):
            path, system = self._open()
            stream = system.open(path)
            try:
                return bytes(stream.readAllBytes()).decode("utf-8", "replace")
            finally:
                stream.close()

    def write_text(self, text: str) -> None:
        """Write or replace a small file in one go."""
        with _raise_os_errors(self.uri):
            path, system = self._open()
            stream = system.create(path, True)
            stream.write(text.encode("utf-8"))
            stream.close()  # only now an object store has the file: not if anything failed above

    def rename(self, target: StorePath) -> None:
        """Rename a folder or a file; there must be nothing at the target.

        By a `FileContext`, because the rename of a `FileSystem` moves a folder into one that is
        there.
        """
        with _raise_os_errors(self.uri):
            context: Any = self.spark.sparkContext
            fs, conf = context._jvm.org.apache.hadoop.fs, context._jsc.hadoopConfiguration()
            options = context._gateway.new_array(fs.Options.Rename, 0)
            path, goal = fs.Path(self.uri), fs.Path(target.uri)
            fs.FileContext.getFileContext(path.toUri(), conf).rename(path, goal, options)

    def remove(self) -> None:
        """Remove a file, or a folder with all that is in it; nothing happens if it is not there."""
        with _raise_os_errors(self.uri):
            path, system = self._open()
            system.delete(path, True)

    def upload(self, file: Path) -> None:
        """Copy a local file to this path."""
        with _raise_os_errors(self.uri):
            path, system = self._open()
            system.copyFromLocalFile(False, True, _local_path(self.spark, file), path)

    def download(self, file: Path) -> None:
        """Copy the file at this path to a local one."""
        with _raise_os_errors(self.uri):
            path, system = self._open()
            system.copyToLocalFile(False, path, _local_path(self.spark, file), True)

    def _open(self) -> tuple[Any, Any]:
        with _raise_os_errors(self.uri):
            return hadoop_path(self.spark, self.uri)

    def _status(self) -> Any:
        try:
            with _raise_os_errors(self.uri):
                path, system = self._open()
                return system.getFileStatus(path)
        except FileNotFoundError:
            return None


Place = Path | StorePath


def resolve_place(spark: SparkSession, path: str | os.PathLike[str]) -> Place:
    """Where a path or URI is: on this machine's disk, or on another file system of Spark.

    A path without a scheme is on Spark's default file system, as for Spark itself. What is on this
    machine's disk is a `Path`, unless Spark would look elsewhere for it.
    """
    text = os.fspath(path)
    default = str(spark.sparkContext._jsc.hadoopConfiguration().get("fs.defaultFS") or "file:///")
    on_disk = path_on_disk(text) if default.startswith("file:") else None
    if on_disk is not None:
        return on_disk
    with _raise_os_errors(text):
        place, system = hadoop_path(spark, text)
        whole = place.makeQualified(system.getUri(), system.getWorkingDirectory())
        return StorePath(str(whole.toString()), spark)


def remove_folder(place: Place) -> None:
    """Remove a folder with all that is in it, as far as that can be done."""
    if isinstance(place, Path):
        shutil.rmtree(place, ignore_errors=True)
        return
    try:
        place.remove()
    except OSError:
        return


@contextmanager
def copy_to_local(place: Place) -> Iterator[Path]:
    """A folder as this machine's programs can read it: itself, or a copy while the block runs.

    Part files get plain names, and the marks of Spark are left out.
    """
    if isinstance(place, Path):
        yield place
        return
    copy = Path(tempfile.mkdtemp(dir=private_folder()))
    try:
        files = [file for file, _ in place.list_files() if not file.name.startswith(("_", "."))]
        for number, file in enumerate(files):
            inner = file.uri.removeprefix(place.uri).strip("/")
            if file.name.startswith("part-"):
                inner = os.path.join(os.path.dirname(inner), f"part-{number:05d}.parquet")
            (copy / inner).parent.mkdir(parents=True, exist_ok=True)
            file.download(copy / inner)
        yield copy
    finally:
        shutil.rmtree(copy, ignore_errors=True)


def _local_path(spark: SparkSession, file: Path) -> Any:
    jvm: Any = spark.sparkContext._jvm
    return jvm.org.apache.hadoop.fs.Path("file", None, str(file))


@contextmanager
def _raise_os_errors(uri: str) -> Iterator[None]:
    """Raise what Hadoop raises as Python's own `OSError`s."""
    try:
        yield
    except (Py4JError, PySparkException) as error:
        raise to_os_error(uri, error) from error


def to_os_error(uri: str, error: Exception) -> OSError:
    """What Hadoop raised about a path, as Python's own `OSError`."""
    cause = getattr(error, "java_exception", None)
    text = f"{type(error).__name__} {cause.toString() if cause is not None else error}"
    if any(name in text for name in _MISSING):
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), uri)
    if any(name in text for name in _DENIED):
        return PermissionError(errno.EACCES, os.strerror(errno.EACCES), uri)
    return OSError(spark_message(error))
