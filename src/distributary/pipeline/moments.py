"""The times of a log as Spark expressions: ISO 8601, numbers since 1970, and any pattern.

Numbers are turned into whole microseconds by decimal arithmetic, never by floating point. The years
1990 to 2100 in seconds, milli-, micro- and nanoseconds do not overlap, so the first rows tell the
unit. It is then fixed for the log: a number that gives another year is a fault of its row.

A local time that a clock passes twice is the first of the two; one that it skips is moved forward
by the length of the gap. Java has this rule, and Python for `fold=0`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    DataType,
    DateType,
    DecimalType,
    NumericType,
    StringType,
    TimestampNTZType,
)

from distributary.errors import InputError
from distributary.pipeline.shapes import UNITS, LogShape, TimeUnit

__all__ = [
    "FIRST_SECOND",
    "ISO",
    "LAST_SECOND",
    "NUMBER",
    "Clock",
    "check_clock",
    "choose_unit",
    "guess_unit",
    "is_number",
]

# The years 1990 to 2100: where times as numbers are taken to be.
FIRST_SECOND: Final = 631_152_000
LAST_SECOND: Final = 4_133_980_799

ISO: Final = r"^\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d([.,]\d{1,9})?)?( ?(Z|[+-]\d\d(:?\d\d)?))?)?$"
_ZONED = r":\d\d([.,]\d+)? ?(Z|[+-]\d\d(:?\d\d)?)$"
NUMBER: Final = r"^\s*[+-]?\d{1,40}(\.\d*)?([eE][+-]?\d{1,3})?\s*$"
_ZONE_LETTERS = frozenset("VzOXxZ")
_MOST = DecimalType(38, 18)


@dataclass(frozen=True, slots=True)
class Clock:
    """How to read a column of times: its type and, once settled, the unit of its numbers.

    Text without a pattern is in ISO 8601, or a number if there is a unit.
    """

    kind: DataType
    unit: TimeUnit | None = None
    zone: str = "UTC"
    pattern: str | None = None

    def parse(self, value: Column) -> Column:
        """The value as a time; null if it is none, or a number outside 1990 to 2100."""
        if self.unit is not None:
            number = _parse_number(value, self.kind)
            time = F.when(_is_within(number, self.unit), _count_micros(number, self.unit))
            return F.coalesce(time, self._parse_iso(value)) if self._is_text else time
        if not self._is_text:
            if self.zone != "UTC" and isinstance(self.kind, TimestampNTZType | DateType):
                return F.to_utc_timestamp(value.cast("timestamp"), self.zone)
            return value.cast("timestamp")
        if self.pattern is not None:
            found = F.try_to_timestamp(F.trim(value), F.lit(self.pattern))
            return found if _has_zone(self.pattern) else self._shift(found)
        return self._parse_iso(value)

    def is_outside(self, value: Column) -> Column | None:
        """Whether a value is a number outside 1990 to 2100; None if times are no numbers."""
        if self.unit is None:
            return None
        number = _parse_number(value, self.kind)
        return number.isNotNull() & ~_is_within(number, self.unit)

    def list_others(self, value: Column) -> list[tuple[TimeUnit, Column]]:
        """The units that are not the clock's, and whether a value is of 1990 to 2100 in each."""
        number = _parse_number(value, self.kind)
        return [(unit, _is_within(number, unit)) for unit in UNITS if unit != self.unit]

    @property
    def _is_text(self) -> bool:
        return isinstance(self.kind, StringType)

    def _parse_iso(self, value: Column) -> Column:
        trimmed = F.trim(value)
        zoned = F.regexp_replace(trimmed, r"([+-]\d\d)(\d\d)$", "$1:$2")
        whole = F.when(trimmed.rlike(r":.*[+-]\d{4}$"), zoned).otherwise(trimmed)
        # Spark wants seconds before a zone.
        bare = F.substring(whole, 17, 1).isin("Z", "+", "-", " ")
        whole = F.when(bare, F.overlay(whole, F.lit(":00"), 17, 0)).otherwise(whole)
        found = F.translate(whole, ",", ".").try_cast("timestamp")
        if self.zone != "UTC":
            found = F.when(trimmed.rlike(_ZONED), found).otherwise(self._shift(found))
        return F.when(trimmed.rlike(ISO), found)

    def _shift(self, utc: Column) -> Column:
        return utc if self.zone == "UTC" else F.to_utc_timestamp(utc, self.zone)


def is_number(value: Column, kind: DataType) -> Column:
    """Whether a value is a number, or text that reads as one."""
    return value.rlike(NUMBER) if isinstance(kind, StringType) else value.isNotNull()


def guess_unit(value: Column, kind: DataType) -> Column:
    """What a value looks like: "iso", a unit in which it is of 1990 to 2100, "number" or "text"."""
    number = _parse_number(value, kind)
    found = F.when(F.lit(False), F.lit(""))
    if isinstance(kind, StringType):
        found = F.when(F.trim(value).rlike(ISO), "iso")
    for unit in UNITS:
        found = found.when(_is_within(number, unit), unit)
    return found.when(number.isNotNull(), "number").otherwise(
        F.when(value.isNotNull() & (F.trim(value.cast("string")) != ""), "text")
    )


def choose_unit(votes: Mapping[str, int]) -> TimeUnit | None:
    """The unit that most of the looked-at times have; None if they are text, or nothing at all."""
    best: TimeUnit | None = None
    most = max(votes.get("iso", 0), votes.get("text", 0))
    for unit in UNITS:
        if votes.get(unit, 0) > most:
            best, most = unit, votes[unit]
    return best


def check_clock(spark: SparkSession, shape: LogShape) -> None:
    """Raise an `InputError` if Spark does not know the time zone, or the pattern."""
    if shape.time_zone != "UTC":
        try:
            spark.sparkContext._jvm.java.time.ZoneId.of(shape.time_zone)  # type: ignore[union-attr]
        except Py4JError as error:
            raise InputError(
                f"Spark does not know the time zone {shape.time_zone!r}",
                remedy="write one such as Europe/Berlin or +01:00",
            ) from error
    if shape.time_format is not None:
        try:
            row = F.try_to_timestamp(F.lit("2025"), F.lit(shape.time_format))
            spark.range(1).select(row).collect()
        except (PySparkException, Py4JError) as error:
            raise InputError(
                f"{shape.time_format!r} is not a pattern of times that Spark can read",
                remedy="write --time-format such as 'dd/MMM/yyyy:HH:mm:ss Z'",
            ) from error


def _parse_number(value: Column, kind: DataType) -> Column:
    """A number as a decimal with nine digits after the point, cut; null if it is none."""
    if isinstance(kind, StringType):
        # More digits than a decimal has would be rounded.
        cut = F.regexp_replace(F.trim(value), r"(\.\d{18})\d+", "$1")
        return F.floor(F.when(value.rlike(NUMBER), cut).try_cast(_MOST), F.lit(9))
    if isinstance(kind, NumericType):
        return F.floor(value.try_cast(_MOST), F.lit(9))
    return F.lit(None).cast("decimal(30,9)")


def _is_within(number: Column, unit: TimeUnit) -> Column:
    first, last = (F.lit(second * UNITS[unit]) for second in (FIRST_SECOND, LAST_SECOND + 1))
    return F.coalesce((number >= first) & (number < last), F.lit(False))


def _count_micros(number: Column, unit: TimeUnit) -> Column:
    """The time so many units after 1970 began, cut to microseconds."""
    scale = UNITS[unit]
    small = number.cast("decimal(28,9)")
    if scale <= 10**6:
        micros = F.floor(small * F.lit(10**6 // scale).cast("decimal(7,0)"))
    else:
        micros = F.floor(small / F.lit(scale // 10**6).cast("decimal(4,0)"))
    return F.timestamp_micros(micros.cast("bigint"))


def _has_zone(pattern: str) -> bool:
    """Whether a pattern reads a zone: one of its letters, outside quotes, stands for one."""
    return any(not _ZONE_LETTERS.isdisjoint(part) for part in pattern.split("'")[::2])
