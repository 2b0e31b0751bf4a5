"""How a log is written: the names of its columns, its words for actions, and its times.

A `LogShape` says what differs from the documented columns. A *path* names a column: a name as it
stands in the log, or steps into nested data, `payload.instrument.symbol`, `legs[0].symbol`,
`$.a['b.c']`. A name that the log has as it stands wins over the steps that it could mean.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal, Self
from zoneinfo import ZoneInfo

from distributary.pipeline.schemas import SUBSCRIBE, UNSUBSCRIBE

__all__ = [
    "AS_DOCUMENTED",
    "LOG_COLUMNS",
    "UNITS",
    "LogShape",
    "LogShapes",
    "Path",
    "TimeUnit",
    "parse_path",
    "quote_path",
]

LOG_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "subscriptions": ("ts", "receiver", "flow", "action"),
    "publications": ("ts", "flow", "size", "id", "count"),
    "filters": ("receiver", "filter"),
}
_SPARE: Final = {"subscriptions": ("ts", "action"), "publications": ("size", "id", "count")}

TimeUnit = Literal["auto", "s", "ms", "us", "ns"]
UNITS: Final[Mapping[TimeUnit, int]] = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
"""The units of times that are numbers, and how many of each make a second."""

Path = tuple[str | int, ...]
_QUOTED = r"\['(?P<single>(?:[^'\\]|\\.)*)'\]|\[\"(?P<double>(?:[^\"\\]|\\.)*)\"\]"
_STEP = re.compile(rf"\[(?P<index>\d{{1,9}})\]|{_QUOTED}|(?P<dot>\.)?(?P<name>[^.\[\]]+)")
_OFFSET = re.compile(r"[+-](0\d|1[0-8]):[0-5]\d")


def _check_zone(zone: str) -> None:
    if _OFFSET.fullmatch(zone):
        return
    try:
        ZoneInfo(zone)
    except (KeyError, ValueError, OSError):
        raise ValueError(
            f"{zone!r} is not a time zone: write one such as Europe/Berlin or +01:00"
        ) from None


@dataclass(frozen=True, slots=True)
class LogShape:
    """How one log is written.

    `columns` gives the path of a column, or "" if the log has none. Words of actions count as they
    are written. `time_unit` is the unit of times that are numbers; "auto" takes the one that fits
    the first rows, unless `guess` is false: batches of a stream must not differ. `time_format` is
    a pattern of Spark for times that are text. Times without a zone are in `time_zone`.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    subscribe: tuple[str, ...] = (SUBSCRIBE,)
    unsubscribe: tuple[str, ...] = (UNSUBSCRIBE,)
    time_unit: TimeUnit = "auto"
    time_zone: str = "UTC"
    time_format: str | None = None
    guess: bool = True

    def __post_init__(self) -> None:
        for path in self.columns.values():
            if path:
                parse_path(path)
        both = set(self.subscribe) & set(self.unsubscribe)
        if both:
            raise ValueError(f"{min(both)!r} cannot mean both subscribe and unsubscribe")
        if self.time_unit not in ("auto", *UNITS):
            raise ValueError(f"{self.time_unit!r} is not a unit of time: use auto, s, ms, us or ns")
        if self.time_format is not None and self.time_unit != "auto":
            raise ValueError("a log's times have either a unit or a format")
        _check_zone(self.time_zone)

    def path_of(self, column: str) -> str:
        """The path of a column in the log; "" if the log has no such column."""
        return self.columns.get(column, column)


AS_DOCUMENTED: Final = LogShape()


@dataclass(frozen=True, slots=True)
class LogShapes:
    """How each of a job's logs is written."""

    subscriptions: LogShape = AS_DOCUMENTED
    publications: LogShape = AS_DOCUMENTED
    filters: LogShape = AS_DOCUMENTED

    def __post_init__(self) -> None:
        for log, known in LOG_COLUMNS.items():
            shape: LogShape = getattr(self, log)
            for column, path in shape.columns.items():
                if column not in known:
                    raise ValueError(f"{log} have no column {column!r}, only {', '.join(known)}")
                if not path and column not in _SPARE.get(log, ()):
                    raise ValueError(f"{log} cannot do without {column!r}: name its column")

    def without_guessing(self) -> Self:
        """The same for a stream, whose batches must not differ."""
        return replace(
            self, **{log: replace(getattr(self, log), guess=False) for log in LOG_COLUMNS}
        )


def parse_path(text: str) -> Path:
    """The steps of a path: names, and indexes of arrays. A `ValueError` says what is wrong."""
    rest = text[1:] if text.startswith(("$.", "$[")) else text
    steps: list[str | int] = []
    at = 0
    while at < len(rest):
        found = _STEP.match(rest, at)
        # The first name has no dot before it, unless it follows a dollar; every other name has one.
        dotted = bool(steps) or rest is not text
        if found is None or (found["name"] is not None and (found["dot"] is not None) != dotted):
            raise ValueError(
                f"{text!r} is not a path: write a.b, a[0] or a['b.c'] (not at {rest[at:]!r})"
            )
        steps.append(_read_step(found))
        at = found.end()
    if not steps or isinstance(steps[0], int):
        raise ValueError(f"{text!r} is not a path: it must begin with a column")
    return tuple(steps)


def _read_step(found: re.Match[str]) -> str | int:
    if found["index"] is not None:
        return int(found["index"])
    if found["name"] is not None:
        return found["name"]
    quoted = found["single"] if found["single"] is not None else found["double"]
    return re.sub(r"\\(.)", r"\1", quoted)


def quote_path(steps: Iterable[str | int]) -> str:
    """The text that `parse_path` reads as these steps."""
    text = ""
    for step in steps:
        if isinstance(step, int):
            text += f"[{step}]"
        elif re.fullmatch(r"[^.\[\]'\"$\\]+", step) and step == step.strip():
            text += f".{step}" if text else step
        else:
            escaped = step.replace("\\", "\\\\").replace("'", "\\'")
            text += f"['{escaped}']" if text else f"$['{escaped}']"
    return text
