"""Times as whole microseconds since 1970, which is how Spark holds them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

__all__ = ["to_micros", "to_time"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def to_micros(time: datetime | timedelta) -> int:
    """A duration, or the time since 1970, in whole microseconds."""
    duration = time if isinstance(time, timedelta) else time - _EPOCH
    return duration // timedelta(microseconds=1)


def to_time(micros: int) -> datetime:
    """The time so many microseconds after 1970 began."""
    return _EPOCH + timedelta(microseconds=micros)
