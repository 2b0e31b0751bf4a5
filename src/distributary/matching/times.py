"""Days and points in time as SQL writes them, from one end of Spark's calendar to the other.

Both are whole numbers here, days and microseconds since 1970: Python's own dates end with the years
1 and 9999. The calendar is today's, for all years.
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
_MOST_MINUTES = 18 * 60  # that a time zone may be away from UTC


@dataclass(frozen=True, slots=True)
class DateConstant:
    """A constant of type DATE."""

    days: int


@dataclass(frozen=True, slots=True)
class TimestampConstant:
    """A constant of type TIMESTAMP."""

    microseconds: int


def read_moment(text: str) -> TimestampConstant | None:
    """The point in time that a text reads as, in UTC unless it says how far from it.

    A day alone is its midnight.
    """
    parts = _read(text)
    microseconds = (
        None if parts is None else key_of(Instant(sum(parts), "us"), AttributeKind.TIMESTAMP)
    )
    return None if microseconds is None else TimestampConstant(microseconds)


def read_day(text: str) -> DateConstant | None:
    """The day that a text reads as; a time of that day, or a time zone, makes no difference."""
    parts = _read(text)
    days = None if parts is None else key_of(Instant(parts[0] // DAY, "D"), AttributeKind.DATE)
    return None if days is None else DateConstant(days)


def _read(text: str) -> tuple[int, int] | None:
    """Microseconds until the day begins, and from there on, less those of the time zone."""
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
    """How far a time zone is ahead of UTC; None if there is none such, as beyond 18 hours."""
    if zone is None or zone in ("Z", "UTC"):
        return 0
    hours, minutes = int(zone[1:3]), int(zone[4:6])
    if minutes > 59 or hours * 60 + minutes > _MOST_MINUTES:
        return None
    return (hours * 60 + minutes) * (-1 if zone[0] == "-" else 1)


def print_day(days: int) -> str:
    """What `read_day` reads as that day."""
    return str(np.datetime64(days, "D"))


def print_moment(microseconds: int) -> str:
    """What `read_moment` reads as that point in time."""
    days, rest = divmod(microseconds, DAY)
    seconds, fraction = divmod(rest, 1_000_000)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{print_day(days)} {clock}" + (f".{fraction:06}" if fraction else "")
