"""Parse and print SQL dates and timestamps over the whole range of Spark's calendar.

Dates are days and timestamps microseconds since 1970, as integers, because Python's own types only
reach from the year 1 to 9999. The calendar is the proleptic Gregorian one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from distributary.model import AttributeKind
from distributary.model.event import DAY, Instant, key_of

__all__ = [
    "DateConstant",
    "TimestampConstant",
    "print_day",
    "print_moment",
    "read_day",
    "read_moment",
]

_TIME = re.compile(
    r"([+-]?\d{4,7}-\d\d-\d\d)"
    r"(?:[ T]([01]\d|2[0-3]):([0-5]\d)"
    r"(?::([0-5]\d)(?:\.(\d{1,6}))?(?: ?(Z|UTC|[+-]\d\d:\d\d))?)?)?",
    re.ASCII,
)
_MOST_MINUTES = 18 * 60  # the largest offset of a time zone from UTC


@dataclass(frozen=True, slots=True)
class DateConstant:
    """A constant of type DATE."""

    days: int


@dataclass(frozen=True, slots=True)
class TimestampConstant:
    """A constant of type TIMESTAMP."""

    microseconds: int


def read_moment(text: str) -> TimestampConstant | None:
    """Parse a timestamp, in UTC unless the text has an offset; None if it is none.

    A date alone is its midnight.
    """
    parts = _read(text)
    microseconds = (
        None if parts is None else key_of(Instant(sum(parts), "us"), AttributeKind.TIMESTAMP)
    )
    return None if microseconds is None else TimestampConstant(microseconds)


def read_day(text: str) -> DateConstant | None:
    """Parse a date, ignoring a time and offset after it; None if the text has none."""
    parts = _read(text)
    days = None if parts is None else key_of(Instant(parts[0] // DAY, "D"), AttributeKind.DATE)
    return None if days is None else DateConstant(days)


def _read(text: str) -> tuple[int, int] | None:
    """The microseconds up to the start of the day, and from there, less the offset."""
    found = _TIME.fullmatch(text)
    if found is None:
        return None
    try:
        days = int(np.datetime64(found[1], "D").astype(np.int64))
    except ValueError:  # such as a 30th of February
        return None
    hours, minutes, seconds = (int(part or 0) for part in found.group(2, 3, 4))
    fraction = int((found[5] or "").ljust(6, "0"))
    offset = _minutes_east(found[6])
    if offset is None:
        return None
    time = ((hours * 60 + minutes - offset) * 60 + seconds) * 1_000_000 + fraction
    return days * DAY, time


def _minutes_east(zone: str | None) -> int | None:
    """The minutes by which an offset is ahead of UTC; None if it is beyond 18 hours."""
    if zone is None or zone in ("Z", "UTC"):
        return 0
    hours, minutes = int(zone[1:3]), int(zone[4:6])
    if minutes > 59 or hours * 60 + minutes > _MOST_MINUTES:
        return None
    return (hours * 60 + minutes) * (-1 if zone[0] == "-" else 1)


def print_day(days: int) -> str:
    """Print a date so that `read_day` reads it back."""
    return str(np.datetime64(days, "D"))


def print_moment(microseconds: int) -> str:
    """Print a timestamp so that `read_moment` reads it back."""
    days, rest = divmod(microseconds, DAY)
    seconds, fraction = divmod(rest, 1_000_000)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{print_day(days)} {clock}" + (f".{fraction:06}" if fraction else "")
