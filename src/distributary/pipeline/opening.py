"""Open a log: its rows as they stand at the source, and the position of each.

Columns are text, or have the types of a table. Rows are not checked here; a line that does not
parse is a row with `corrupt` set. What the first rows tell of a log is settled here: the unit of
its times, and whether its columns are there at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Literal

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    DataType,
    NumericType,
    StringType,
    StructField,
    StructType,
)

from distributary.errors import InputError
from distributary.files.csv_records import csv_cells
from distributary.pipeline.column_faults import check_type, explain_missing
from distributary.pipeline.columns import pick_field, pick_json
from distributary.pipeline.lines import (
    csv_cells_of,
    csv_lines,
    drop_headers,
    has_open_lines,
    text_lines,
)
from distributary.pipeline.moments import Clock, check_clock, choose_unit, guess_unit
from distributary.pipeline.parquet import PLACE, read_parquet
from distributary.pipeline.sampling import sample_source
from distributary.pipeline.schemas import POSITION, quote_name
from distributary.pipeline.shapes import AS_DOCUMENTED, UNITS, LogShape, TimeUnit, parse_path
from distributary.pipeline.sources import (
    Source,
    first_record,
    plain_path,
    report_read_faults,
    resolve_source,
)

__all__ = ["LogColumns", "OpenedLog", "open_log"]

SAMPLED = 1_000  # rows that tell the unit of a log's times
_COSTLY = ("id", "count")  # a shuffle, and longer sums


@dataclass(frozen=True, slots=True)
class LogColumns:
    """The columns of a log: `required` and `optional` ones, and the `attributes` to keep.

    Attributes are given by their types, or as "all" other columns with the types that the source
    has (a table, Parquet) or that Spark infers (text, which costs a pass).
    """

    required: tuple[str, ...]
    optional: tuple[str, ...] = ()
    attributes: StructType | Literal["all"] | None = None

    @property
    def known(self) -> tuple[str, ...]:
        """The columns that have a meaning of their own."""
        return (*self.required, *self.optional)

    def select_attributes(self, schema: StructType) -> tuple[StructField, ...]:
        """The attributes to keep of a source with this schema."""
        if self.attributes is None:
            return ()
        fields = schema.fields if self.attributes == "all" else self.attributes.fields
        return tuple(one for one in fields if one.name not in self.known)


@dataclass(frozen=True, slots=True)
class OpenedLog:
    """A log's `frame`: the wanted columns as they stand, `raw`, `corrupt` (text) and `position`.

    `given` are the columns that the source has, `extra` the attributes, and `lines` the rows as
    they are counted at the source. `clock` reads the times; None if the log has none.
    """

    name: str
    source: Source
    frame: DataFrame
    given: frozenset[str]
    types: Mapping[str, DataType]
    extra: tuple[StructField, ...]
    lines: DataFrame
    shape: LogShape = AS_DOCUMENTED
    clock: Clock | None = None

    @property
    def text(self) -> bool:
        """Whether every column is text, so that rows may be corrupt."""
        return self.source.format in ("csv", "json")


def open_log(
    spark: SparkSession,
    name: str,
    where: str | Source,
    columns: LogColumns,
    shape: LogShape = AS_DOCUMENTED,
    *,
    check: bool = True,
) -> OpenedLog:
    """Open a log with these columns, in whichever format it is.

    JSON lines may lack a column in some rows; `check` refuses those whose first rows all lack it.
    """
    source = where if isinstance(where, Source) else resolve_source(spark, where)
    if shape is not AS_DOCUMENTED:
        check_clock(spark, shape)
    with report_read_faults(source.path):
        log = _open_rows(spark, name, source, columns, shape)
        if check and source.format == "json":
            _check_keys(_open_sample(spark, log, columns), columns)
        if "ts" not in columns.known or not shape.path_of("ts"):
            return log
        return replace(log, clock=_settle_clock(spark, log, columns))


def _open_rows(
    spark: SparkSession, name: str, source: Source, columns: LogColumns, shape: LogShape
) -> OpenedLog:
    if source.format == "csv":
        return _open_csv(spark, name, source, columns, shape)
    if source.format == "json":
        return _open_json(spark, name, source, columns, shape)
    return _open_typed(spark, name, source, columns, shape)


# --- tables --------------------------------------------------------------------------------------


def _open_typed(
    spark: SparkSession, name: str, source: Source, columns: LogColumns, shape: LogShape
) -> OpenedLog:
    table = _read_table(spark, source, columns, shape)
    position = F.struct(*(F.lit(None).cast(f.dataType).alias(f.name) for f in POSITION.fields))
    if PLACE in table.columns:
        position = F.col(PLACE)
    schema = StructType([one for one in table.schema if one.name != PLACE])
    picked: dict[str, Column] = {}
    for column in columns.known:
        found = _pick_typed(source.path, schema, column, columns, shape)
        if found is not None:
            picked[column] = found
    extra = columns.select_attributes(schema)
    picked |= {one.name: F.col(quote_name(one.name)) for one in extra if one.name in schema.names}
    wanted = [*columns.known, *(one.name for one in extra)]
    raw = F.to_json(F.struct(*(F.col(quote_name(column)) for column in schema.names)))
    frame = table.select(
        *(picked.get(column, F.lit(None).cast("string")).alias(column) for column in wanted),
        raw.alias("raw"),
        position.alias("position"),
    )
    types = {one.name: one.dataType for one in frame.schema.fields}
    return OpenedLog(name, source, frame, frozenset(picked), types, extra, table, shape)


def _read_table(
    spark: SparkSession, source: Source, columns: LogColumns, shape: LogShape
) -> DataFrame:
    if source.lines is not None:
        return source.lines
    if source.format == "table":
        return spark.table(source.path)
    path = shape.path_of("ts")
    times = None if columns.attributes else (path, str(parse_path(path)[0])) if path else ()
    return read_parquet(spark, source, times, keep_local=shape.time_zone != "UTC")


def _pick_typed(
    where: str, schema: StructType, column: str, columns: LogColumns, shape: LogShape
) -> Column | None:
    """A column of a table by its path; None if the log has none."""
    path = shape.path_of(column)
    if not path:
        return None
    steps = (path,) if path in schema.names else parse_path(path)
    found = None
    if steps[0] in schema.names:
        head = str(steps[0])
        found = pick_field(F.col(quote_name(head)), schema[head].dataType, steps[1:])
    if found is None:
        if column in columns.required or column in shape.columns:
            raise explain_missing(where, column, schema.names, shape)
        return None
    value, kind = found
    check_type(where, column, kind)
    if column not in ("ts", "size", "id", "count") and not isinstance(kind, StringType):
        return value.cast("string")
    return value


# --- CSV -----------------------------------------------------------------------------------------


def _open_csv(
    spark: SparkSession, name: str, source: Source, columns: LogColumns, shape: LogShape
) -> OpenedLog:
    headers: dict[str, list[str]] = {}
    for file in source.files:
        record = first_record(spark, file)
        if record is not None:
            headers.setdefault(record, []).append(file)
    if not headers:
        raise InputError("holds no header line", path=source.path, remedy="write it again")
    names = {
        header: _parse_header(header, plain_path(files[0])) for header, files in headers.items()
    }
    for header, files in headers.items():
        _check_header(plain_path(files[0]), names[header], columns, shape)
    heads = {
        column: found
        for column in columns.known
        for cells in names.values()
        if (found := _find_cell(cells, shape.path_of(column))) is not None
    }
    for column in shape.columns:
        if column in columns.known and shape.path_of(column) and column not in heads:
            raise explain_missing(source.path, column, next(iter(names.values())), shape)
    joined = source.lines is None and has_open_lines(spark, source.files)
    schema = StructType()
    if columns.attributes == "all":
        inferred = spark.read.options(header=True, inferSchema=True, escape='"', multiLine=joined)
        schema = inferred.csv(list(source.files)).schema
    extra = columns.select_attributes(schema)
    wanted = [*columns.known, *(one.name for one in extra)]
    lines = {
        header: drop_headers(source.lines.where(F.col("position.file").isin(files)), header)
        if source.lines is not None
        else csv_lines(spark, files, header, len(names[header]), joined=joined)
        for header, files in headers.items()
    }
    parts = [_csv_part(lines[header], names[header], wanted, shape) for header in headers]
    others = {one.name for one in extra if any(one.name in found for found in names.values())}
    given = frozenset(heads) | others
    frame = reduce(DataFrame.unionByName, parts)
    types: dict[str, DataType] = {column: StringType() for column in wanted}
    rows = reduce(DataFrame.union, lines.values())
    return OpenedLog(name, source, frame, given, types, extra, rows, shape)


def _csv_part(
    lines: DataFrame, found: Sequence[str], wanted: Sequence[str], shape: LogShape
) -> DataFrame:
    cells = csv_cells_of(F.col("value"), len(found))
    return lines.withColumn("row", F.when(F.is_valid_utf8("value"), cells)).select(
        *(_csv_column(found, shape.path_of(column)).alias(column) for column in wanted),
        F.col("row").isNull().alias("corrupt"),
        F.make_valid_utf8("value").alias("raw"),
        "position",
    )


def _csv_column(found: Sequence[str], path: str) -> Column:
    head = _find_cell(found, path)
    if head is None:
        return F.lit(None).cast("string")
    cell = F.get("row", F.lit(found.index(head)))
    return cell if head == path else pick_json(cell, parse_path(path)[1:])


def _find_cell(found: Sequence[str], path: str) -> str | None:
    """The name of the cell that a path begins with; None if there is none."""
    if not path:
        return None
    if path in found:
        return path
    head = str(parse_path(path)[0])
    return head if head in found else None


def _parse_header(header: str, path: str) -> list[str]:
    cells = csv_cells(header)
    if cells is None:
        raise InputError(
            f"does not parse as CSV: {header!r}",
            path=path,
            remedy="the first line must name the columns",
        )
    return [cell.strip() for cell in cells]


def _check_header(path: str, found: Sequence[str], columns: LogColumns, shape: LogShape) -> None:
    for column in columns.known:
        name = _find_cell(found, shape.path_of(column))
        if name is not None and list(found).count(name) > 1:
            raise InputError(
                f"has the column {name!r} twice",
                path=path,
                value=name,
                remedy="keep one of them",
            )
    for column in columns.required:
        if shape.path_of(column) and _find_cell(found, shape.path_of(column)) is None:
            raise explain_missing(path, column, found, shape)


# --- JSON lines ----------------------------------------------------------------------------------


def _open_json(
    spark: SparkSession, name: str, source: Source, columns: LogColumns, shape: LogShape
) -> OpenedLog:
    schema = StructType()
    if columns.attributes == "all":
        schema = spark.read.json(list(source.files)).schema
    extra = columns.select_attributes(schema)
    lines = _json_lines(spark, source)
    # Missing keys show up row by row. Only some are looked for first, because of what they cost.
    absent = {column for column in columns.known if not shape.path_of(column)}
    unsure = [column for column in columns.optional if column in _COSTLY and column not in absent]
    absent |= _find_absent(lines, unsure, shape)
    wanted = [*columns.known, *(one.name for one in extra)]
    frame = _parse_json(lines, {one: "" if one in absent else shape.path_of(one) for one in wanted})
    types: dict[str, DataType] = {column: StringType() for column in wanted}
    return OpenedLog(name, source, frame, frozenset(wanted) - absent, types, extra, lines, shape)


def _parse_json(lines: DataFrame, paths: Mapping[str, str]) -> DataFrame:
    """Lines as columns by their paths; one without a path is null."""
    heads = dict.fromkeys(head for path in paths.values() for head in _json_heads(path))
    fields = [StructField(head, StringType()) for head in [*heads, "_corrupt"]]
    row = F.from_json(
        F.when(F.is_valid_utf8("value"), F.col("value")),
        StructType(fields),
        {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_corrupt"},
    )
    return lines.withColumn("row", row).select(
        *(_json_column(path).alias(column) for column, path in paths.items()),
        (
            ~F.is_valid_utf8("value")
            | ~F.ltrim("value").startswith("{")
            | F.col("row").isNull()
            | F.col("row._corrupt").isNotNull()
        ).alias("corrupt"),
        F.make_valid_utf8("value").alias("raw"),
        "position",
    )


def _json_heads(path: str) -> tuple[str, ...]:
    """The keys of a line that a path may begin with: the whole path, or its first step."""
    if not path:
        return ()
    steps = parse_path(path)
    return (str(steps[0]),) if len(steps) == 1 else (path, str(steps[0]))


def _json_column(path: str) -> Column:
    """The value at a path of the parsed line."""
    if not path:
        return F.lit(None).cast("string")
    steps = parse_path(path)
    value = pick_json(F.col(f"row.{quote_name(str(steps[0]))}"), steps[1:])
    return value if len(steps) == 1 else F.coalesce(F.col(f"row.{quote_name(path)}"), value)


def _json_lines(spark: SparkSession, source: Source) -> DataFrame:
    if source.lines is not None:
        return source.lines
    return text_lines(spark, source.files).where(F.trim("value") != "")


def _find_absent(lines: DataFrame, columns: Sequence[str], shape: LogShape) -> set[str]:
    """The columns that JSON lines do not have; one that `--column` names is there.

    The first lines tell of a count, and the others are taken to be alike. An id is absent only if
    no line has one, since a message with an id must never count twice.
    """
    asked = [one for one in columns if one not in shape.columns]
    if not asked:
        return set()
    first = _parse_json(lines, {one: one for one in asked}).limit(100)
    found = first.agg(*(F.count(one).alias(one) for one in asked)).collect()[0]
    absent = {one for one in asked if not found[one]}
    return absent - {"id"} if "id" in absent and _has_ids(lines) else absent


def _has_ids(lines: DataFrame) -> bool:
    """Whether any line has an id. Only lines that may name one are parsed."""
    text = F.col("value")
    # A key is in quotes of either kind, and its letters may be written as \u0069 and \u0064.
    named = text.contains('id"') | text.contains("id'") | text.contains("\\u00")
    ids = _parse_json(lines.where(named), {"id": "id"}).where(F.col("id").isNotNull())
    return ids.limit(1).count() > 0  # one job, in which each task ends at its first id


# --- what the first rows tell --------------------------------------------------------------------


def _open_sample(spark: SparkSession, log: OpenedLog, columns: LogColumns) -> OpenedLog:
    """The first rows of an opened log, opened by themselves."""
    few = log.source if log.source.lines is not None else sample_source(spark, log.source, SAMPLED)
    plain = replace(columns, attributes=None)
    return _open_rows(spark, log.name, few, plain, log.shape)


def _check_keys(sample: OpenedLog, columns: LogColumns) -> None:
    """Refuse JSON lines if none of the first has what a required column is named for."""
    shape = sample.shape
    needed = [column for column in columns.required if shape.path_of(column)]
    mapped = [column for column in columns.known if shape.columns.get(column)]
    values = [F.col(column).isNotNull().alias(column) for column in columns.known]
    rows = (
        sample.frame.where(~F.col("corrupt"))
        .select(*values, F.json_object_keys("raw").alias("_keys"))
        .limit(SAMPLED)
        .collect()
    )
    keys = dict.fromkeys(key for row in rows for key in row["_keys"] or ())
    for column in dict.fromkeys([*needed, *mapped]) if rows else ():
        there = any(head in keys for head in _json_heads(shape.path_of(column)))
        deep = column in needed and len(parse_path(shape.path_of(column))) > 1
        if not there or (deep and not any(row[column] for row in rows)):
            raise explain_missing(sample.source.path, column, list(keys), shape)


def _settle_clock(spark: SparkSession, log: OpenedLog, columns: LogColumns) -> Clock:
    """How to read the log's times, with the unit that its first numbers have."""
    shape, kind = log.shape, log.types["ts"]
    clock = Clock(kind, zone=shape.time_zone, pattern=shape.time_format)
    if not isinstance(kind, StringType | NumericType):
        return clock
    if not shape.guess:
        if shape.time_unit == "auto" and isinstance(kind, NumericType):
            raise InputError(
                f"column {shape.path_of('ts')!r} holds {kind.simpleString()} values",
                path=log.source.path,
                remedy="name their unit with --time-unit, as batches of a stream must not differ",
            )
        return clock if shape.time_unit == "auto" else replace(clock, unit=shape.time_unit)
    rows = log if log.source.format == "table" else _open_sample(spark, log, columns)
    if shape.time_format is not None and isinstance(kind, StringType):
        _check_pattern(rows, clock)
        return clock
    looks = rows.frame.select(guess_unit(F.col("ts"), kind).alias("look")).groupBy("look").count()
    votes = Counter({row["look"]: row["count"] for row in looks.collect() if row["look"]})
    return replace(clock, unit=_settle_unit(log, votes))


def _settle_unit(log: OpenedLog, votes: Counter[str]) -> TimeUnit | None:
    """The unit of numbers: as asked for, or what fits most; None if times are text."""
    asked, fitting = log.shape.time_unit, choose_unit(votes)
    numbers = votes["number"] + sum(votes[unit] for unit in UNITS)
    if asked != "auto":
        if votes[asked] * 2 < numbers:
            fits = f"in {fitting} they fit" if fitting else "no unit fits"
            raise InputError(
                f"times in {asked} are outside 1990 to 2100 in most of the first rows; {fits}",
                path=log.source.path,
                value=asked,
                remedy=f"use --time-unit {fitting}" if fitting else "name another column for ts",
            )
        return asked
    if fitting is None and (numbers or isinstance(log.types["ts"], NumericType)):
        if numbers and not votes["iso"] + votes["text"]:
            raise InputError(
                f"column {log.shape.path_of('ts')!r} holds numbers that are times of 1990 to 2100 "
                "in no unit",
                path=log.source.path,
                remedy="name the column of times with --column ts=NAME",
            )
        return "s" if isinstance(log.types["ts"], NumericType) else None
    return fitting


def _check_pattern(rows: OpenedLog, clock: Clock) -> None:
    """Refuse a pattern that reads none of the first times."""
    given = rows.frame.where(F.trim("ts") != "")
    found = given.select(clock.parse(F.col("ts")).isNotNull().alias("good"), "ts").limit(SAMPLED)
    looked: list[Row] = found.collect()
    if looked and not any(row["good"] for row in looked):
        raise InputError(
            f"no time of the first rows is like {clock.pattern!r}, such as {looked[0]['ts']!r}",
            path=rows.source.path,
            value=looked[0]["ts"],
            remedy="mend --time-format, or leave it out for ISO 8601",
        )
