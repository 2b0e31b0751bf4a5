"""Look at a log: what its rows hold, which columns of ours are there, and its first bad rows.

The rows are those that the pipeline reads, opened by the same functions, and judged by the same
readers: what is found here is what a run finds. Only `all_rows` reads more than the first rows, in
three passes: to profile the columns, to count, and to find the places of bad rows.
"""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, BinaryType, DataType, StructType
from pyspark.sql.window import Window as Over

from distributary.errors import InputError
from distributary.files.csv_records import csv_cells
from distributary.pipeline.content import check_filters
from distributary.pipeline.ingest import (
    Log,
    Reason,
    RowCounts,
    read_filters,
    read_publications,
    read_subscriptions,
)
from distributary.pipeline.interest import subscription_counts, subscription_digest
from distributary.pipeline.opening import LogColumns, OpenedLog, open_log
from distributary.pipeline.parquet import PLACE
from distributary.pipeline.profiles import ColumnProfile, RowProfile, parse_row
from distributary.pipeline.rates import publication_counts, publication_digest
from distributary.pipeline.roles import LogKind
from distributary.pipeline.sampling import draw_sample
from distributary.pipeline.schemas import quote_name
from distributary.pipeline.shapes import LogShape, Path, parse_path
from distributary.pipeline.sources import (
    Source,
    first_record,
    plain_path,
    report_read_faults,
    resolve_source,
)
from distributary.pipeline.steps import say

__all__ = ["BadRow", "CheckedLog", "LogLook", "check_log", "look_at_log"]

SHOWN: Final = 3  # bad rows of each kind
_LONGEST_VALUE = 120


@dataclass(frozen=True, slots=True)
class LogLook:
    """What a log holds: the rows that were looked at, and the profile of each column.

    `source` has these rows alone, unless they are all. `names` are the columns of each CSV file.
    """

    path: str
    format: str
    files: tuple[str, ...]
    rows: int
    whole: bool
    columns: tuple[ColumnProfile, ...]
    left_out: bool
    source: Source
    names: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that cannot be used: where it is, the value at fault, and what to do about it.

    `row` counts from 1, without headers and blank lines; None in a table, which has no order.
    """

    file: str | None
    row: int | None
    value: str


@dataclass(frozen=True, slots=True)
class BadRows:
    """The rows that are bad for one reason: their number, the first ones, and what to do."""

    reason: str
    count: int
    first: tuple[BadRow, ...]
    remedy: str


@dataclass(frozen=True, slots=True)
class CheckedLog:
    """What became of the rows that were looked at, read as a run reads them."""

    counts: RowCounts
    bad: tuple[BadRows, ...]


def look_at_log(
    spark: SparkSession, path: str, *, rows: int, all_rows: bool, keep_local: bool = False
) -> LogLook:
    """Profile the first rows of a log, or all of them."""
    say(spark, "looking at the log")
    found = resolve_source(spark, path)
    with report_read_faults(path):
        names = {file: _read_names(spark, file) for file in _text_files(found)}
        if found.format == "csv" and not any(names.values()):
            raise InputError("holds no header line", path=path, remedy="write it again")
        if found.format == "json":
            _check_objects(spark, found.files[0])
        source, whole = found, True
        if not all_rows:
            asked = rows + (found.format == "csv")  # whose header counts as a row there
            drawn = draw_sample(spark, found, asked, keep_local=keep_local)
            source, whole = drawn.source, drawn.whole
        log = open_log(spark, "log", source, LogColumns(()))
        profile, types = _profile(log, names, on_executors=all_rows)
    look = LogLook(
        path,
        found.format,
        found.files,
        profile.rows,
        whole,
        profile.list_columns(types),
        profile.left_out,
        source,
        names,
    )
    _check_rows(look, profile)
    return look


def check_log(
    spark: SparkSession,
    look: LogLook,
    kind: LogKind,
    shape: LogShape,
    events: Log | None = None,
) -> CheckedLog:
    """Read the rows that were looked at as a run would, and find the first bad rows of each kind.

    Filters are also checked against the attributes of `events`, if there are any.
    """
    say(spark, f"checking the {kind}")
    with report_read_faults(look.path):
        if kind == "filters":
            log = read_filters(spark, look.source, shape=shape)
            rows, counts = _check_filters(log, events)
        elif kind == "subscriptions":
            log = read_subscriptions(spark, look.source, shape=shape)
            rows, counts = log.rows, subscription_counts(subscription_digest(log).cache())
        else:
            log = read_publications(spark, look.source, shape=shape)
            rows, counts = log.rows, publication_counts(publication_digest(log.rows).cache())
        first = _find_first(log, rows) if counts.reasons else {}
    bad = tuple(
        BadRows(
            reason,
            number,
            tuple(_show_row(look, reason, row, shape) for row in first.get(reason, ())),
            _advise(reason, shape),
        )
        for reason, number in counts.reasons.items()
    )
    return CheckedLog(counts, bad)


# --- profiles ------------------------------------------------------------------------------------


def _text_files(source: Source) -> tuple[str, ...]:
    return source.files if source.format == "csv" else ()


def _read_names(spark: SparkSession, file: str) -> tuple[str, ...]:
    header = first_record(spark, file)
    if header is None:
        return ()
    _check_text(header, file)
    cells = csv_cells(header)
    if cells is None:
        raise InputError(
            f"does not parse as CSV: {_shorten(header)!r}",
            path=plain_path(file),
            remedy="the first line must name the columns",
        )
    for mark in (";", "\t", "|"):
        if len(cells) == 1 and mark in header:
            raise InputError(
                f"its columns seem to be separated by {mark!r}: {_shorten(header)!r}",
                path=plain_path(file),
                remedy="write it with commas",
            )
    return tuple(cell.strip() for cell in cells)


def _check_objects(spark: SparkSession, file: str) -> None:
    """Refuse a file of JSON that is one list, or no text."""
    first = first_record(spark, file) or ""
    _check_text(first, file)
    if first.lstrip().startswith("["):
        raise InputError(
            "is one list, not JSON lines",
            path=plain_path(file),
            remedy="write one object a line, such as with: jq -c '.[]'",
        )


def _check_text(line: str, file: str) -> None:
    strange = sum(one == "\ufffd" or (one < " " and one not in "\t\r\n") for one in line)
    if "\0" in line or 10 * strange > len(line):
        raise InputError(
            "is not text",
            path=plain_path(file),
            remedy="check that its name says its format: .parquet, .csv, .jsonl, and .gz if packed",
        )


def _profile(
    log: OpenedLog, names: Mapping[str, tuple[str, ...]], *, on_executors: bool
) -> tuple[RowProfile, dict[Path, str]]:
    """The profile of a log's rows, and the types that a table gives its columns."""
    types: dict[Path, str] = {}
    if log.text:
        rows = log.frame.select("raw", "corrupt", F.col("position.file").alias("file"))
    else:
        schema = StructType([one for one in log.lines.schema if one.name != PLACE])
        types = dict(_list_types((), schema))
        values = [_write_value(one.name, one.dataType) for one in schema]
        row = F.to_json(F.struct(*values)) if values else F.lit("{}")
        rows = log.lines.select(
            row.alias("raw"), F.lit(False).alias("corrupt"), F.lit("").alias("file")
        )
    profile = RowProfile()
    profile.add_names(str(steps[0]) for steps in types if len(steps) == 1)
    profile.add_names(name for each in names.values() for name in each)
    read = partial(_profile_batches, names=names)
    if not on_executors:
        profile.merge(
            pickle.loads(next(iter(read(iter(rows.toArrow().to_batches())))).column(0)[0].as_py())
        )
        return profile, types
    for part in rows.mapInArrow(read, "profile BINARY").collect():
        profile.merge(pickle.loads(bytes(part["profile"])))
    return profile, types


def _profile_batches(
    batches: Iterator[pa.RecordBatch], names: Mapping[str, tuple[str, ...]]
) -> Iterator[pa.RecordBatch]:
    """The profile of one part of a log's rows, pickled."""
    profile = RowProfile()
    for batch in batches:
        profile.add_rows(_parse_rows(batch.to_pylist(), names))
    yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(profile)], pa.binary())], ["profile"])


def _parse_rows(
    rows: Iterable[Mapping[str, Any]], names: Mapping[str, tuple[str, ...]]
) -> Iterator[dict[str, Any] | None]:
    for row in rows:
        if row["corrupt"]:
            yield None
        else:
            yield _parse_raw(row["raw"], names.get(row["file"]))


def _parse_raw(raw: str, names: Sequence[str] | None) -> dict[str, Any] | None:
    """A row as an object: of a record with these names, or of JSON."""
    if names is None:
        return parse_row(raw)
    cells = csv_cells(raw)
    if cells is None or len(cells) != len(names):
        return None
    return dict(zip(names, cells, strict=True))


def _write_value(name: str, kind: DataType) -> Column:
    """A column of a table as it goes into JSON: bytes are text, as for the reader."""
    value = F.col(quote_name(name))
    if isinstance(kind, BinaryType):
        value = F.make_valid_utf8(value.cast("string"))
    return value.alias(name)


def _list_types(steps: Path, kind: DataType) -> Iterator[tuple[Path, str]]:
    if isinstance(kind, StructType):
        for one in kind.fields:
            inner = (*steps, one.name)
            yield inner, one.dataType.simpleString()
            yield from _list_types(inner, one.dataType)
    elif isinstance(kind, ArrayType):
        yield (*steps, 0), kind.elementType.simpleString()
        yield from _list_types((*steps, 0), kind.elementType)


def _check_rows(look: LogLook, profile: RowProfile) -> None:
    """Refuse a log whose rows say nothing, with the likely reason."""
    if not profile.rows:
        raise InputError("has no rows", path=look.path, remedy="check the path")
    if profile.unread == profile.rows:
        if look.format == "csv":
            what, remedy = "no line has as many columns as its header", "check its commas"
        else:
            what, remedy = "no line is a JSON object", "write one object a line"
        raise InputError(what, path=look.path, remedy=remedy)
    top = {str(one.steps[0]): one for one in look.columns if len(one.steps) == 1}
    for file, names in look.names.items():
        known = [one for name in names if (one := top.get(name)) is not None]
        among = sum(name in one.values for name, one in zip(names, known, strict=False))
        if any(_is_value(name) for name in names) or (known and 2 * among >= len(names)):
            raise InputError(
                f"its first line seems to be a row, not the names of the columns: "
                f"{_shorten(','.join(names))!r}",
                path=plain_path(file),
                remedy="put a line with the names of the columns first",
            )


def _is_value(name: str) -> bool:
    """Whether a header's cell is a number or a time, which no column is named."""
    return re.fullmatch(r"-?\d+(\.\d+)?|\d{4}-\d\d-\d\d([T ].*)?", name) is not None


# --- bad rows ------------------------------------------------------------------------------------


def _check_filters(log: Log, events: Log | None) -> tuple[DataFrame, RowCounts]:
    """The rows of filters with their reasons, also those that the language of filters gives."""
    rows = log.rows
    if events is not None:
        refused = (
            check_filters(log.valid, events.valid)
            .quarantine.select(
                F.get_json_object("raw", "$.filter").alias("filter"), F.col("reason").alias("why")
            )
            .distinct()
        )
        rows = (
            rows.join(F.broadcast(refused), "filter", "left")
            .withColumn("reason", F.coalesce("reason", "why"))
            .drop("why")
        )
    counted = {row["reason"]: row["count"] for row in rows.groupBy("reason").count().collect()}
    used = counted.pop(None, 0)
    return rows, RowCounts(used, 0, dict(sorted(counted.items())))


def _find_first(log: Log, rows: DataFrame) -> dict[str, list[dict[str, Any]]]:
    """The first rows of each reason: file, row and raw, in the order of the input."""
    order = Over.partitionBy("reason").orderBy("position")
    found = (
        rows.where(F.col("reason").isNotNull())
        .select("reason", "position", "raw")
        .withColumn("at", F.row_number().over(order))
        .where(F.col("at") <= SHOWN)
        .orderBy("reason", "at")
        .collect()
    )
    places = [row["position"] for row in found]
    numbers = _number_rows(log.lines, places)
    listed: dict[str, list[dict[str, Any]]] = {}
    for row, number in zip(found, numbers, strict=True):
        file = row["position"]["file"]
        listed.setdefault(row["reason"], []).append(
            {"file": file, "row": number, "raw": row["raw"]}
        )
    return listed


def _number_rows(lines: DataFrame, places: Sequence[Any]) -> list[int | None]:
    """Which row of its file is at each place, from 1, in one pass over the log."""
    if not places or places[0]["file"] is None:
        return [None] * len(places)
    position = F.col(PLACE if PLACE in lines.columns else "position")

    def is_until(place: Any) -> Column:
        file: Column = position["file"]
        block: Column = position["block"]
        line: Column = position["line"]
        before = (block < place["block"]) | ((block == place["block"]) & (line <= place["line"]))
        until: Column = (file == place["file"]) & before
        return until

    counts = lines.agg(*(F.count_if(is_until(place)) for place in places)).collect()[0]
    return [int(count) for count in counts]


_AT_FAULT: Final[Mapping[str, str]] = {
    Reason.NO_RECEIVER: "receiver",
    Reason.NO_FLOW: "flow",
    Reason.NO_FILTER: "filter",
    Reason.ACTION: "action",
    Reason.SIZE: "size",
    Reason.COUNT: "count",
    Reason.BYTES: "count",
}


def _column_at_fault(reason: str) -> str | None:
    if reason.startswith(("ts ", "no ts")):
        return "ts"
    return "filter" if reason.startswith("filter:") else _AT_FAULT.get(reason)


def _show_row(look: LogLook, reason: str, row: Mapping[str, Any], shape: LogShape) -> BadRow:
    """A bad row, with the value at fault if one is, or else the row itself."""
    column, value = _column_at_fault(reason), row["raw"]
    parsed = _parse_raw(row["raw"], look.names.get(row["file"]))
    if column is not None and parsed is not None and shape.path_of(column):
        found = _pick(parsed, shape.path_of(column))
        value = found if found is not None else row["raw"]
    file = None if row["file"] is None else plain_path(row["file"])
    return BadRow(file, row["row"], _shorten(value))


def _pick(row: Mapping[str, Any], path: str) -> str | None:
    """The value at a path of a row, as text; None if there is none."""
    value: Any = row
    for step in (path,) if path in row else parse_path(path):
        if isinstance(value, str):
            value = parse_row(value) if isinstance(step, str) else _parse_list(value)
        if isinstance(step, int):
            value = value[step] if isinstance(value, list) and step < len(value) else None
        else:
            value = value.get(step) if isinstance(value, dict) else None
    if value is None or value == "":
        return None
    return value if isinstance(value, str) else json.dumps(value)


def _parse_list(text: str) -> Any:
    wrapped = parse_row(f'{{"list": {text}}}')
    return None if wrapped is None else wrapped["list"]


def _advise(reason: str, shape: LogShape) -> str:
    """What to do about the rows that are bad for a reason."""
    column = _column_at_fault(reason)
    if reason == Reason.CORRUPT:
        return "mend these lines; a run puts them aside"
    if column == "action":
        return "say what it means, with --action subscribe=WORD or unsubscribe=WORD, or mend it"
    if reason in (Reason.NO_RECEIVER, Reason.NO_FLOW, Reason.NO_FILTER, Reason.NO_TS):
        return f"nothing is at {shape.path_of(str(column))!r} there; a run puts these rows aside"
    if "--time-unit" in reason:
        return "one log has one unit: mend these times, or split the log"
    if column == "ts":
        return "mend these times, or say how all are written with --time-format"
    if column == "count":
        return "mend them, or use --column count= to take each row as one message"
    if column == "size":
        return "mend them, or use --column size= to do without sizes"
    return "mend these rows; a run puts them aside"


def _shorten(text: str) -> str:
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 3]}..."
