"""Raw logs in; usable rows, bad rows with their reasons, and exact counts out.

Everything is first taken as it stands (text lines, or a table's own columns) and then converted
with expressions that give null instead of failing, so that each bad row has its own exact reason
and never stops a run. A `Log` only describes: nothing is read before somebody asks.

**One pass.** `Log.rows` holds every row, usable or not. The digests of `interest` and `rates`
reduce it in one aggregation which also counts usable rows, duplicates and each reason. The logs
are read again only for what should be rare: to write bad rows out, and to settle ties. All counts
come out of the data flow itself; Spark's accumulators count a task twice that runs again after an
executor was lost. `rows_at_source` counts without parsing (Parquet's footers, or lines of text),
and `check_sum` compares the two.

**Position** says where a row stood, whatever the partitioning: file, then the block of the file
that was read at once, then the line in it. Spark's ids grow within a block; rows of one block stay
in one task. A table read by name has no order.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from functools import reduce
from typing import Any, Literal

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    DataType,
    DateType,
    DecimalType,
    FractionalType,
    IntegralType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)
from pyspark.sql.window import Window as Over

from distributary.errors import DistributaryError, InputError
from distributary.pipeline.schemas import POSITION, SUBSCRIBE, UNSUBSCRIBE
from distributary.pipeline.spark import spark_words

__all__ = [
    "BadRowsError",
    "CountError",
    "Counts",
    "Log",
    "Reason",
    "Source",
    "Window",
    "check_bad",
    "check_sum",
    "read_filters",
    "read_interest",
    "read_publications",
    "read_subscriptions",
    "reading_faults",
    "resolve_source",
    "rows_at_source",
    "sources_of",
]


class Reason(StrEnum):
    """Why a row cannot be used; of several, the first in this order."""

    CORRUPT = "corrupt line"
    NO_RECEIVER = "no receiver"
    NO_FLOW = "no flow"
    NO_FILTER = "no filter"
    ACTION = "unknown action"
    NO_TS = "no ts"
    TS = "ts is not a time"
    OUTSIDE = "ts outside the window"
    SIZE = "size is not a whole number >= 0"
    ATTRIBUTE = "attribute of the wrong type"
    LATE = "late"  # in a stream: older than the watermark


@dataclass(frozen=True, slots=True)
class Window:
    """The time a run is about: from `since` up to but not including `until`; None is open."""

    since: datetime | None = None
    until: datetime | None = None

    def __post_init__(self) -> None:
        if self.since and self.until and _aware(self.since) >= _aware(self.until):
            raise ValueError(f"the window ends at {self.until}, before it begins at {self.since}")


@dataclass(frozen=True, slots=True)
class Source:
    """Where a log is: files of one format, or a table by name (then `files` is empty).

    JSON lines that come from elsewhere are `lines`: value, position.
    """

    path: str
    format: Literal["parquet", "csv", "json", "table"]
    files: tuple[str, ...] = ()
    lines: DataFrame | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Log:
    """A log as it was read: every row with its `reason`, null where the row can be used.

    `rows` has the log's own columns, `reason`, `id` (null where the log has none), `copy` (a row
    whose id came before), `position` and `raw`. `lines` are the rows as they stand at the source.
    """

    name: str
    source: Source
    rows: DataFrame = field(repr=False)
    columns: tuple[str, ...]
    lines: DataFrame = field(repr=False)
    identified: bool = False

    @property
    def valid(self) -> DataFrame:
        """Rows without a fault, duplicates and all: what an aggregation needs that sees to them."""
        return self.rows.where(F.col("reason").isNull() & ~F.col("copy")).select(
            *self.columns, "position"
        )

    @property
    def used(self) -> DataFrame:
        """Rows without a fault, each once."""
        if self.name != "subscriptions":
            return self.valid
        return (
            self.valid.groupBy(*self.columns)
            .agg(F.max("position").alias("position"))
            .select(*self.columns, "position")
        )

    @property
    def quarantined(self) -> DataFrame:
        """Rows that cannot be used: which log and file, why, and what they said."""
        return self.rows.where(F.col("reason").isNotNull()).select(
            F.lit(self.name).alias("log"), F.col("position.file").alias("file"), "reason", "raw"
        )


@dataclass(frozen=True, slots=True)
class Counts:
    """How many rows of a log went where."""

    used: int
    duplicates: int
    reasons: Mapping[str, int]

    @property
    def quarantined(self) -> int:
        """Rows that could not be used."""
        return sum(self.reasons.values())

    @property
    def read(self) -> int:
        """All of them."""
        return self.used + self.duplicates + self.quarantined


class BadRowsError(DistributaryError):
    """More rows of a log are bad than the caller allows."""

    def __init__(self, log: str, counts: Counts, share: float) -> None:
        self.log = log
        self.counts = counts
        self.share = share
        worst = ", ".join(
            f"{number:,} x {reason}" for reason, number in Counter(counts.reasons).most_common(3)
        )
        super().__init__(
            f"{counts.quarantined:,} of {counts.read:,} rows of the {log} cannot be used, more "
            f"than {share:.3%} ({worst}); mend them, or allow more with --max-bad"
        )


class CountError(DistributaryError):
    """Rows were lost or counted twice: what was read is not what was used and put aside."""

    def __init__(self, log: str, read: int, counts: Counts, written: int) -> None:
        self.log = log
        self.read = read
        self.counts = counts
        self.written = written
        super().__init__(
            f"{log}: {read:,} rows at the source, but {counts.used:,} used + "
            f"{counts.duplicates:,} duplicates + {written:,} put aside (of "
            f"{counts.quarantined:,} bad); the files changed during the run: run again"
        )


def read_subscriptions(
    spark: SparkSession, source: str | Source, window: Window | None = None
) -> Log:
    """The subscription log. What was subscribed before the window still stands, so it is used."""
    log = _opened(spark, "subscriptions", source, ("ts", "receiver", "flow", "action"))
    until = Window(until=window.until) if window else Window()
    faults = [
        (log.blank("receiver"), Reason.NO_RECEIVER),
        (log.blank("flow"), Reason.NO_FLOW),
        (
            F.coalesce(~F.col("action").isin(SUBSCRIBE, UNSUBSCRIBE), F.lit(True)),
            Reason.ACTION,
        ),
        *log.time_faults(until),
    ]
    return log.judged(faults, {"ts": log.time(), "receiver": None, "flow": None, "action": None})


def read_publications(
    spark: SparkSession,
    source: str | Source,
    window: Window | None = None,
    attributes: StructType | Literal["all"] | None = None,
) -> Log:
    """The publication log; rows outside the window are bad.

    `attributes` are further columns to keep: their types, or "all" of them with the types that
    the source has (a table, Parquet) or that Spark infers (text, which costs a pass).
    """
    log = _opened(spark, "publications", source, ("ts", "flow"), ("size", "id"), attributes)
    kept = log.attributes()
    wrong = [F.col(f"`{name}`").isNotNull() & value.isNull() for name, value in kept.items()]
    size = log.whole("size")
    faults = [
        (log.blank("flow"), Reason.NO_FLOW),
        *log.time_faults(window or Window()),
        (F.col("size").isNotNull() & size.isNull(), Reason.SIZE),
        *((fault, Reason.ATTRIBUTE) for fault in wrong),
    ]
    columns = {"ts": log.time(), "flow": None, "size": size, **kept}
    return log.judged(faults, columns, identified="id" in log.given)


def read_filters(spark: SparkSession, source: str) -> Log:
    """The filters as text; whether each is one is for `content` to say."""
    log = _opened(spark, "filters", source, ("receiver", "filter"))
    faults = [
        (log.blank("receiver"), Reason.NO_RECEIVER),
        (log.blank("filter"), Reason.NO_FILTER),
    ]
    return log.judged(faults, {"receiver": None, "filter": None})


def read_interest(spark: SparkSession, source: str) -> Log:
    """Interest as a table of its own, from wherever a log could come."""
    log = _opened(spark, "interest", source, ("receiver", "flow"))
    faults = [(log.blank("receiver"), Reason.NO_RECEIVER), (log.blank("flow"), Reason.NO_FLOW)]
    return log.judged(faults, {"receiver": None, "flow": None})


def rows_at_source(log: Log) -> int:
    """How many rows the source holds, counted without looking into them."""
    with reading_faults(log.source.path):
        return log.lines.count()


def check_bad(log: str, counts: Counts, share: float) -> None:
    """Refuse a log with more than a share of bad rows."""
    if counts.quarantined > share * counts.read:
        raise BadRowsError(log, counts, share)


def check_sum(log: str, read: int, counts: Counts, written: int) -> None:
    """Make sure that rows read = used + duplicates + put aside, each counted on its own."""
    if read != counts.used + counts.duplicates + written or written != counts.quarantined:
        raise CountError(log, read, counts, written)


@contextmanager
def reading_faults(path: str) -> Iterator[None]:
    """Turn what Spark raises about a file that it cannot read into an `InputError` naming it."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        text = _whole_story(error)
        file = re.search(
            r"(?:while reading file|Could not read footer for file:?|File) (\S+)", text
        )
        bad = any(sign in text for sign in _UNREADABLE)
        if not bad:
            raise
        named = file[1].rstrip(".,") if file else path
        raise InputError(
            "is damaged or not a file of its format",
            path=_shown_path(named),
            remedy="write it again, or take it out",
        ) from error


# --- opening -----------------------------------------------------------------------------------


def resolve_source(spark: SparkSession, source: str) -> Source:
    """Find out what a path or name stands for."""
    if source.startswith("table:"):
        return _table(spark, source.removeprefix("table:"), forced=True)
    files = _files(spark, source)
    if files is None:
        if re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*|(`[^`]+`\.?)+", source):
            return _table(spark, source, forced=False)
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
    """Files of a path as sources, one for each format among them."""
    by_format: dict[Any, list[str]] = {}
    for file in files:
        found = _format(file)
        if found is None:
            raise InputError(
                "is neither .parquet, .csv, .jsonl nor .json",
                path=_shown_path(file),
                remedy="take it out, or name it by its format",
            )
        by_format.setdefault(found, []).append(file)
    return [Source(path, found, tuple(own)) for found, own in by_format.items()]


@dataclass(frozen=True, slots=True)
class _Opened:
    """A source as a frame: the wanted columns as they stand, `raw`, `corrupt`, and `position`."""

    name: str
    source: Source
    frame: DataFrame
    given: frozenset[str]
    types: Mapping[str, DataType]
    extra: tuple[StructField, ...]
    lines: DataFrame

    @property
    def text(self) -> bool:
        return self.source.format in ("csv", "json")

    def blank(self, name: str) -> Column:
        return F.coalesce(F.col(name) == "", F.lit(True))

    def time(self) -> Column:
        kind = self.types["ts"]
        if isinstance(kind, StringType):
            return _time_of_text(F.col("ts"))
        return F.col("ts").cast("timestamp")

    def time_faults(self, window: Window) -> list[tuple[Column, Reason]]:
        ts = self.time()
        faults = [(F.col("ts").isNull(), Reason.NO_TS)]
        if isinstance(self.types["ts"], StringType):
            faults = [
                (F.coalesce(F.trim("ts") == "", F.lit(True)), Reason.NO_TS),
                (ts.isNull(), Reason.TS),
            ]
        if window.since is not None:
            faults.append((ts < F.lit(_aware(window.since)), Reason.OUTSIDE))
        if window.until is not None:
            faults.append((ts >= F.lit(_aware(window.until)), Reason.OUTSIDE))
        return faults

    def whole(self, name: str) -> Column:
        """A whole number >= 0 as an int, null where it is none."""
        kind, value = self.types[name], F.col(name)
        if isinstance(kind, StringType):
            return F.when(value.rlike(r"^\s*\d{1,10}\s*$"), F.trim(value).try_cast("int"))
        if isinstance(kind, IntegralType):
            return F.when(value >= 0, value.try_cast("int"))
        return F.when((value >= 0) & (value == F.floor(value)), value.try_cast("int"))

    def attributes(self) -> dict[str, Column]:
        return {
            one.name: F.col(f"`{one.name}`").try_cast(one.dataType)
            if self.types[one.name] != one.dataType
            else F.col(f"`{one.name}`")
            for one in self.extra
        }

    def judged(
        self,
        faults: Sequence[tuple[Column, Reason]],
        columns: Mapping[str, Column | None],
        *,
        identified: bool = False,
    ) -> Log:
        """The log with each row's first fault, and its columns in their final types."""
        if self.text:
            faults = [(F.col("corrupt"), Reason.CORRUPT), *faults]
        (fault, why), *others = faults
        reason = F.when(fault, F.lit(str(why)))
        for fault, why in others:
            reason = reason.when(fault, F.lit(str(why)))
        rows = self.frame.select(
            *(
                F.col(f"`{name}`") if value is None else value.alias(name)
                for name, value in columns.items()
            ),
            reason.alias("reason"),
            F.col("id") if identified else F.lit(None).cast("string").alias("id"),
            F.lit(False).alias("copy"),
            "position",
            "raw",
        )
        if identified:
            rows = _copies_marked(rows)
        return Log(self.name, self.source, rows, tuple(columns), self.lines, identified)


def _copies_marked(rows: DataFrame) -> DataFrame:
    """Mark usable rows whose id an earlier row had (by time, then position)."""
    with_id = F.col("reason").isNull() & F.col("id").isNotNull()
    alone = F.when(~with_id, F.monotonically_increasing_id())
    first = Over.partitionBy(F.when(with_id, F.col("id")), "_alone").orderBy("ts", "position")
    return (
        rows.withColumn("_alone", alone)
        .withColumn("copy", F.col("_alone").isNull() & (F.row_number().over(first) > 1))
        .drop("_alone")
    )


def _opened(
    spark: SparkSession,
    name: str,
    where: str | Source,
    required: tuple[str, ...],
    optional: tuple[str, ...] = (),
    attributes: StructType | Literal["all"] | None = None,
) -> _Opened:
    source = where if isinstance(where, Source) else resolve_source(spark, where)
    with reading_faults(source.path):
        if source.format == "csv":
            return _open_csv(spark, name, source, required, optional, attributes)
        if source.format == "json":
            return _open_json(spark, name, source, required, optional, attributes)
        return _open_typed(spark, name, source, required, optional, attributes)


def _open_typed(
    spark: SparkSession,
    name: str,
    source: Source,
    required: tuple[str, ...],
    optional: tuple[str, ...],
    attributes: StructType | Literal["all"] | None,
) -> _Opened:
    if source.format == "table":
        table = spark.table(source.path)
        position = F.struct(*(F.lit(None).cast(f.dataType).alias(f.name) for f in POSITION.fields))
    else:
        table = _parquet(spark, source)
        position = F.struct(
            F.col("_metadata.file_path").alias("file"),
            F.lit(0).cast("bigint").alias("block"),
            F.col("_metadata.row_index").alias("line"),
        )
    known = (*required, *optional)
    _check_columns(source.path, table.columns, required, known)
    for column in known:
        if column in table.columns:
            _check_type(source.path, column, table.schema[column].dataType)
    extra = _attribute_fields(table.schema, known, attributes)
    given = frozenset(table.columns) & {*known, *(one.name for one in extra)}
    raw = F.to_json(F.struct(*(F.col(f"`{column}`") for column in table.columns)))
    wanted = [*known, *(one.name for one in extra)]
    frame = table.select(
        *(
            F.col(f"`{column}`") if column in given else F.lit(None).cast("string").alias(column)
            for column in wanted
        ),
        raw.alias("raw"),
        position.alias("position"),
    )
    types = {one.name: one.dataType for one in frame.schema.fields}
    return _Opened(name, source, frame, given, types, extra, table)


def _parquet(spark: SparkSession, source: Source) -> DataFrame:
    try:
        return spark.read.option("mergeSchema", "true").parquet(*source.files)
    except (PySparkException, Py4JError) as error:
        text = _whole_story(error)
        if "CANNOT_MERGE" not in text:
            raise
        types = re.search(r'data types "([^"]+)" and "([^"]+)"', text)
        which = f", {types[1].lower()} and {types[2].lower()}" if types else ""
        raise InputError(
            f"its files disagree on the type of a column{which}",
            path=source.path,
            remedy="give each column one type",
        ) from error


def _open_csv(
    spark: SparkSession,
    name: str,
    source: Source,
    required: tuple[str, ...],
    optional: tuple[str, ...],
    attributes: StructType | Literal["all"] | None,
) -> _Opened:
    headers: dict[str, list[str]] = {}
    for file in source.files:
        line = _first_line(spark, file)
        if line is not None:
            headers.setdefault(line, []).append(file)
    if not headers:
        raise InputError("holds no header line", path=source.path, remedy="write it again")
    names = {header: [cell.strip() for cell in next(csv.reader([header]))] for header in headers}
    known = (*required, *optional)
    for header, files in headers.items():
        _check_columns(_shown_path(files[0]), names[header], required, known)
    schema = StructType()
    if attributes == "all":
        inferred = spark.read.option("header", "true").option("inferSchema", "true")
        schema = inferred.csv(list(source.files)).schema
    extra = _attribute_fields(schema, known, attributes)
    wanted = [*known, *(one.name for one in extra)]
    parts = [
        _csv_part(_text(spark, files, header), names[header], wanted)
        for header, files in headers.items()
    ]
    lines = [_text(spark, files, header) for header, files in headers.items()]
    given = frozenset(column for found in names.values() for column in found) & set(wanted)
    frame = reduce(DataFrame.unionByName, parts)
    types: dict[str, DataType] = {column: StringType() for column in wanted}
    return _Opened(name, source, frame, given, types, extra, reduce(DataFrame.union, lines))


def _csv_part(lines: DataFrame, found: Sequence[str], wanted: Sequence[str]) -> DataFrame:
    # Columns by number: names of other columns may be anything, even repeated.
    cells = ", ".join(f"_{number} STRING" for number in range(len(found)))
    row = F.from_csv(
        F.when(F.is_valid_utf8("value"), F.col("value")),
        f"{cells}, _corrupt STRING",
        {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_corrupt"},
    )
    return lines.withColumn("row", row).select(
        *(
            F.col(f"row._{found.index(column)}").alias(column)
            if column in found
            else F.lit(None).cast("string").alias(column)
            for column in wanted
        ),
        (
            ~F.is_valid_utf8("value") | F.col("row").isNull() | F.col("row._corrupt").isNotNull()
        ).alias("corrupt"),
        F.make_valid_utf8("value").alias("raw"),
        "position",
    )


def _open_json(
    spark: SparkSession,
    name: str,
    source: Source,
    required: tuple[str, ...],
    optional: tuple[str, ...],
    attributes: StructType | Literal["all"] | None,
) -> _Opened:
    known = (*required, *optional)
    schema = StructType()
    if attributes == "all":
        schema = spark.read.json(list(source.files)).schema
    extra = _attribute_fields(schema, known, attributes)
    wanted = [*known, *(one.name for one in extra)]
    fields = [StructField(column, StringType()) for column in [*wanted, "_corrupt"]]
    row = F.from_json(
        F.when(F.is_valid_utf8("value"), F.col("value")),
        StructType(fields),
        {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_corrupt"},
    )
    lines = _text(spark, source.files) if source.lines is None else source.lines
    frame = lines.withColumn("row", row).select(
        *(F.col(f"row.`{column}`").alias(column) for column in wanted),
        (
            ~F.is_valid_utf8("value")
            | ~F.ltrim("value").startswith("{")
            | F.col("row").isNull()
            | F.col("row._corrupt").isNotNull()
        ).alias("corrupt"),
        F.make_valid_utf8("value").alias("raw"),
        "position",
    )
    types: dict[str, DataType] = {column: StringType() for column in wanted}
    # A key that no line has is found out row by row, except `id`, which would cost a shuffle.
    given = frozenset(wanted) - (set() if _has_id(lines, optional) else {"id"})
    return _Opened(name, source, frame, given, types, extra, lines)


def _has_id(lines: DataFrame, optional: tuple[str, ...]) -> bool:
    """Whether JSON lines carry ids: looked up in the first lines, as a header would say it."""
    if "id" not in optional:
        return False
    first = lines.limit(100).select(F.get_json_object("value", "$.id").alias("id"))
    return first.where(F.col("id").isNotNull()).limit(1).count() > 0


def _text(spark: SparkSession, files: Sequence[str], header: str | None = None) -> DataFrame:
    """Lines of text files with their positions, without blank lines and the header."""
    lines = spark.read.text(list(files)).select(
        "value",
        F.struct(
            F.col("_metadata.file_path").alias("file"),
            F.col("_metadata.file_block_start").alias("block"),
            F.monotonically_increasing_id().alias("line"),
        ).alias("position"),
    )
    kept = F.trim("value") != ""
    if header is not None:
        kept &= F.ltrim(F.rtrim(F.col("value"), F.lit("\r")), F.lit("\ufeff")) != header
    return lines.where(kept)


def _time_of_text(text: Column) -> Column:
    """ISO 8601, as UTC where it names no zone; null where it is nothing of the kind."""
    trimmed = F.trim(text)
    zoned = F.regexp_replace(trimmed, r"([+-]\d\d)(\d\d)$", "$1:$2")
    whole = F.when(trimmed.rlike(r":.*[+-]\d{4}$"), zoned).otherwise(trimmed)
    return F.when(trimmed.rlike(_ISO), whole.try_cast("timestamp"))


_ISO = r"^\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?( ?(Z|[+-]\d\d(:?\d\d)?))?)?$"
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


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _check_columns(
    path: str, found: Sequence[str], required: Sequence[str], known: Sequence[str]
) -> None:
    for column in known:
        if list(found).count(column) > 1:
            raise InputError(
                f"has the column {column!r} twice",
                path=path,
                value=column,
                remedy="keep one of them",
            )
    for column in required:
        if column not in found:
            raise InputError(
                f"has no column {column!r}, only {', '.join(map(repr, found[:10])) or 'none'}",
                path=path,
                value=column,
                remedy="name the columns as documented",
            )


def _check_type(path: str, column: str, kind: DataType) -> None:
    fits: dict[str, tuple[type[DataType], ...]] = {
        "ts": (TimestampType, TimestampNTZType, DateType, StringType),
        "size": (IntegralType, FractionalType, DecimalType, StringType),
        "id": (DataType,),
    }
    if not isinstance(kind, fits.get(column, (StringType,))):
        wanted = {"ts": "times", "size": "whole numbers"}.get(column, "text")
        raise InputError(
            f"column {column!r} holds {kind.simpleString()} values",
            path=path,
            value=kind.simpleString(),
            remedy=f"they must be {wanted}",
        )


def _attribute_fields(
    schema: StructType, known: Sequence[str], attributes: StructType | Literal["all"] | None
) -> tuple[StructField, ...]:
    if attributes is None:
        return ()
    fields = schema.fields if attributes == "all" else attributes.fields
    return tuple(one for one in fields if one.name not in known)


def _table(spark: SparkSession, name: str, *, forced: bool) -> Source:
    try:
        spark.table(name)
    except AnalysisException as error:
        what = "no such table" if forced else "no such file, folder or table"
        raise InputError(what, path=name, remedy="check the name") from error
    return Source(name, "table")


def _format(file: str) -> Literal["parquet", "csv", "json"] | None:
    name = file.lower().removesuffix(".gz")
    if name.endswith(".parquet") and not file.lower().endswith(".gz"):
        return "parquet"
    if name.endswith(".csv"):
        return "csv"
    return "json" if name.endswith((".jsonl", ".json")) else None


def _hadoop(spark: SparkSession, path: str) -> tuple[Any, Any]:
    jvm: Any = spark.sparkContext._jvm
    hadoop_path = jvm.org.apache.hadoop.fs.Path(path)
    return hadoop_path, hadoop_path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())


def _files(spark: SparkSession, path: str) -> list[str] | None:
    """All files at a path, in a folder or of a pattern, sorted; None if there is nothing."""
    if not path or (
        ":" in path.split("/")[0] and "://" not in path and not path.startswith("file:")
    ):
        return None
    try:
        hadoop_path, system = _hadoop(spark, path)
        matched = [hadoop_path] if system.exists(hadoop_path) else None
        if matched is None:
            found = system.globStatus(hadoop_path)
            matched = [one.getPath() for one in found or ()]
            if not matched:
                return None
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
        raise InputError(
            f"cannot be read: {spark_words(error)}", path=path, remedy="check the path"
        ) from error
    return sorted(set(files))


def _first_line(spark: SparkSession, file: str) -> str | None:
    jvm: Any = spark.sparkContext._jvm
    path, system = _hadoop(spark, file)
    stream = system.open(path)
    try:
        factory = jvm.org.apache.hadoop.io.compress.CompressionCodecFactory(system.getConf())
        codec = factory.getCodec(path)
        if codec is not None:
            stream = codec.createInputStream(stream)
        reader = jvm.java.io.BufferedReader(jvm.java.io.InputStreamReader(stream, "UTF-8"))
        line = reader.readLine()
        while line is not None and not line.strip("\ufeff \t"):
            line = reader.readLine()
    except Py4JError as error:
        raise InputError(
            "is damaged or not a file of its format",
            path=_shown_path(file),
            remedy="write it again, or take it out",
        ) from error
    finally:
        stream.close()
    return None if line is None else str(line).removeprefix("\ufeff").rstrip("\r")


def _whole_story(error: BaseException) -> str:
    cause: Any = getattr(error, "java_exception", None)
    texts = [str(error)]
    for _ in range(10):
        if cause is None:
            break
        texts.append(str(cause.toString()))
        cause = cause.getCause()
    return "\n".join(texts)


def _shown_path(file: str) -> str:
    return re.sub(r"^file:/*", "/", file)
