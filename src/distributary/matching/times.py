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

__all__ = ["Day", "Moment", "print_day", "print_moment", "read_day", "read_moment"]

_TIME = re.compile(
    r"([+-]?\d{4,7}-\d\d-\d\d)(?:[ T]([01]\d|2[0-3]):([0-5]\d)(?::([0-5]\d)(?:\.(\d{1,6}))?)?)?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Day:
    """A constant of type DATE."""

    days: int


@dataclass(frozen=True, slots=True)
class Moment:
    """A constant of type TIMESTAMP."""

    microseconds: int


def read_moment(text: str) -> Moment | None:
    """The point in time that a text reads as; a day alone is its midnight."""
    parts = _read(text)
    microseconds = (
        None if parts is None else key_of(Instant(sum(parts), "us"), AttributeKind.TIMESTAMP)
    )
    return None if microseconds is None else Moment(microseconds)


def read_day(text: str) -> Day | None:
    """The day that a text reads as; a time of that day makes no difference."""
    parts = _read(text)
    days = None if parts is None else key_of(Instant(parts[0] // DAY, "D"), AttributeKind.DATE)
    return None if days is None else Day(days)


def _read(text: str) -> tuple[int, int] | None:
    """Microseconds until the day begins, and from there on."""
    found = _TIME.fullmatch(text)
    if found is None:
        return None
    try:
        days = int(np.datetime64(found[1], "D").astype(np.int64))
    except ValueError:  # such as a 30th of February
        return None
    hours, minutes, seconds = (int(part or 0) for part in found.group(2, 3, 4))
    fraction = int((found[5] or "").ljust(6, "0"))
    return days * DAY, ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + fraction


def print_day(days: int) -> str:
    """What `read_day` reads as that day."""
    return str(np.datetime64(days, "D"))


def print_moment(microseconds: int) -> str:
    """What `read_moment` reads as that point in time."""
    days, rest = divmod(microseconds, DAY)
    seconds, fraction = divmod(rest, 1_000_000)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{print_day(days)} {clock}" + (f".{fraction:06}" if fraction else "")
