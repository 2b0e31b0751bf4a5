"""Where a log is: files of one format, or a table that Spark knows by name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from distributary.errors import InputError
from distributary.files.csv_records import csv_records
from distributary.pipeline.stores import hadoop_path, is_uri, resolve_place, to_os_error
from distributary.pipeline.versions import Pointers, unreadable_fault

__all__ = [
    "Source",
    "first_record",
    "full_message",
    "plain_path",
    "report_read_faults",
    "resolve_source",
    "sources_of",
]

_BOM = "\ufeff"
_HEADER_LINES = 1_000  # searched for the end of a quoted name, and past blank lines
_UNREADABLE = (
    "FAILED_READ_FILE",
    "CANNOT_READ_FILE_FOOTER",
    "Could not read footer",
    "is not a Parquet file",
    "ZipException",
    "EOFException",
    "Not in GZIP format",
    "incorrect header check",
    "unexpected end of file",
    "UNABLE_TO_INFER_SCHEMA",
)


@dataclass(frozen=True, slots=True)
class Source:
    """Where a log is: files of one format, or a table by name (then `files` is empty).

    Rows that are not read from there are in `lines`: of Kafka, or a sample. Text has the columns
    value and position, as a line of its file; a table has its own.
    """

    path: str
    format: Literal["parquet", "csv", "json", "table"]
    files: tuple[str, ...] = ()
    lines: DataFrame | None = field(default=None, repr=False)


def resolve_source(spark: SparkSession, source: str, pointers: Pointers | None = None) -> Source:
    """Find the files or the table that a path or name stands for."""
    if source.startswith("table:"):
        return _resolve_table(spark, source.removeprefix("table:"), forced=True)
    files = _list_files(spark, source, pointers or Pointers())
    if files is None:
        if re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*|(`[^`]+`\.?)+", source):
            return _resolve_table(spark, source, forced=False)
        raise InputError("no such file or folder", path=source, remedy="check the path")
    if not files:
        raise InputError("the folder holds no files", path=source, remedy="check the path")
    found = sources_of(source, files)
    if len(found) > 1:
        raise InputError(
            f"the folder mixes formats: {', '.join(sorted(str(one.format) for one in found))}",
            path=source,
            remedy="keep one format per folder",
        )
    return found[0]


def sources_of(path: str, files: Sequence[str]) -> list[Source]:
    """The files of a path as sources, one for each format among them."""
    by_format: dict[Any, list[str]] = {}
    for file in files:
        found = _detect_format(file)
        if found is None:
            raise InputError(
                "is neither .parquet, .csv, .jsonl nor .json",
                path=plain_path(file),
                remedy="take it out, or name it by its format",
            )
        by_format.setdefault(found, []).append(file)
    return [Source(path, found, tuple(own)) for found, own in by_format.items()]


@contextmanager
def report_read_faults(path: str) -> Iterator[None]:
    """Turn errors of Spark about a file that it cannot read into an `InputError` with its name."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        text = full_message(error)
        if "ARITHMETIC_OVERFLOW" in text:
            raise InputError(
                "its counts add up to more than 2^63 messages or bytes",
                path=path,
                remedy="mend the column count, or do without it: --column count=",
            ) from error
        file = re.search(
            r"(?:while reading file|Could not read footer for file:?|File) (\S+)", text
        )
        bad = any(sign in text for sign in _UNREADABLE)
        if not bad:
            raise
        named = file[1].rstrip(".,") if file else path
        raise InputError(
            "is damaged or not a file of its format",
            path=plain_path(named),
            remedy="write it again, or take it out",
        ) from error


def first_record(spark: SparkSession, file: str) -> str | None:
    """The first record of a text file that is not blank: the header of a CSV file."""
    jvm: Any = spark.sparkContext._jvm
    path, system = hadoop_path(spark, file)
    stream = system.open(path)
    try:
        factory = jvm.org.apache.hadoop.io.compress.CompressionCodecFactory(system.getConf())
        codec = factory.getCodec(path)
        if codec is not None:
            stream = codec.createInputStream(stream)
        reader = jvm.java.io.BufferedReader(jvm.java.io.InputStreamReader(stream, "UTF-8"))
        lines = (f"{line}\n".removeprefix(_BOM) for line in iter(reader.readLine, None))
        return next(csv_records(islice(lines, _HEADER_LINES)), None)
    except Py4JError as error:
        raise InputError(
            "is damaged or not a file of its format",
            path=plain_path(file),
            remedy="write it again, or take it out",
        ) from error
    finally:
        stream.close()


def plain_path(file: str) -> str:
    """A file's path without Spark's `file:` prefix."""
    return re.sub(r"^file:/*", "/", file)


def full_message(error: BaseException) -> str:
    """The message of an error of Spark and of all its causes."""
    cause: Any = getattr(error, "java_exception", None)
    texts = [str(error)]
    for _ in range(10):
        if cause is None:
            break
        texts.append(str(cause.toString()))
        cause = cause.getCause()
    return "\n".join(texts)


def _resolve_table(spark: SparkSession, name: str, *, forced: bool) -> Source:
    try:
        spark.table(name)
    except AnalysisException as error:
        what = "no such table" if forced else "no such file, folder or table"
        raise InputError(what, path=name, remedy="check the name") from error
    return Source(name, "table")


def _detect_format(file: str) -> Literal["parquet", "csv", "json"] | None:
    name = file.lower().removesuffix(".gz")
    if name.endswith(".parquet") and not file.lower().endswith(".gz"):
        return "parquet"
    if name.endswith(".csv"):
        return "csv"
    return "json" if name.endswith((".jsonl", ".json")) else None


def _list_files(spark: SparkSession, path: str, pointers: Pointers) -> list[str] | None:
    """All files at a path, in a folder or matching a pattern, sorted; None if there is nothing."""
    if not path or (":" in path.split("/")[0] and not is_uri(path)):
        return None
    try:
        place, system = hadoop_path(spark, path)
        matched = [place] if system.exists(place) else None
        if matched is None:
            found = system.globStatus(place)
            matched = [one.getPath() for one in found or ()]
        if not matched:
            asked = resolve_place(spark, path)
            followed = pointers.follow(asked)
            return None if followed == asked else _list_files(spark, str(followed), pointers)
        files = []
        for one in matched:
            listing = system.listFiles(one, True)
            root = one.toString().rstrip("/")
            while listing.hasNext():
                file = listing.next().getPath().toString()
                inner = file.removeprefix(root).strip("/")
                if not any(part.startswith((".", "_")) for part in inner.split("/")):
                    files.append(file)
    except Py4JError as error:
        raise unreadable_fault(path, to_os_error(path, error)) from error
    return sorted(set(files))
