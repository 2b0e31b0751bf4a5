"""What the columns of a log hold: for each path, how many rows have a value there, and which.

Rows are plain objects, as JSON has them. Profiles of parts of a log add up to that of the whole, so
that executors can profile theirs. The cost is some 2 microseconds a value.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final

from distributary.pipeline.shapes import Path, quote_path

__all__ = ["ColumnProfile", "Number", "RowProfile", "parse_row"]

KEPT: Final = 1_000  # different values of a column that are kept, the first ones
MOST_PATHS: Final = 200
_LONGEST = 300  # characters of a value that are kept
_DEEPEST = 8
_HASHES = 2_048
_WHOLE = 1 << 64


class Number(str):
    """A number of JSON as it is written."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class ColumnProfile:
    """What the rows hold at one path.

    `present` rows of `rows` have a value; `distinct` of them differ, which is an estimate unless
    `exact`. `values` are the first different ones, with their numbers. `kinds` counts texts,
    numbers, booleans, objects, lists and texts that are JSON.
    """

    steps: Path
    path: str
    rows: int
    present: int
    distinct: int
    exact: bool
    kinds: Mapping[str, int]
    values: Mapping[str, int]
    example: str
    type: str = ""

    @property
    def is_leaf(self) -> bool:
        """Whether most values are not objects or lists, which have paths of their own."""
        nested = sum(self.kinds.get(kind, 0) for kind in ("object", "list", "JSON text"))
        return 2 * nested < self.present


@dataclass(slots=True)
class _Distinct:
    """Estimates how many different texts there are, from the smallest of their hashes."""

    hashes: set[int] = field(default_factory=set)
    limit: int = _WHOLE

    def add(self, text: str) -> None:
        found = int.from_bytes(blake2b(text.encode("utf-8", "replace"), digest_size=8).digest())
        if found < self.limit:
            self.hashes.add(found)
            if len(self.hashes) >= 2 * _HASHES:
                self._keep_smallest()

    def merge(self, other: _Distinct) -> None:
        self.limit = min(self.limit, other.limit)
        self.hashes = {one for one in self.hashes | other.hashes if one < self.limit}
        if len(self.hashes) >= 2 * _HASHES:
            self._keep_smallest()

    def count(self) -> int:
        return round(len(self.hashes) * _WHOLE / self.limit)

    def _keep_smallest(self) -> None:
        smallest = sorted(self.hashes)[: _HASHES + 1]
        self.limit = smallest.pop()
        self.hashes = set(smallest)


@dataclass(slots=True)
class _Tally:
    """What one path held so far."""

    present: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    values: dict[str, int] = field(default_factory=dict)
    distinct: _Distinct = field(default_factory=_Distinct)

    def add(self, kind: str, text: str) -> None:
        self.present += 1
        self.kinds[kind] += 1
        short = text[:_LONGEST]
        if short in self.values and len(text) <= _LONGEST:
            self.values[short] += 1
            return
        self.distinct.add(text)
        if len(self.values) < KEPT:
            self.values[short] = self.values.get(short, 0) + 1

    def merge(self, other: _Tally) -> None:
        self.present += other.present
        self.kinds.update(other.kinds)
        self.distinct.merge(other.distinct)
        for text, number in other.values.items():
            if text in self.values or len(self.values) < KEPT:
                self.values[text] = self.values.get(text, 0) + number


@dataclass(slots=True)
class RowProfile:
    """The profile of some rows; `unread` of them were no objects, `left_out` says if paths were."""

    rows: int = 0
    unread: int = 0
    left_out: bool = False
    _tallies: dict[Path, _Tally] = field(default_factory=dict)

    def add_rows(self, rows: Iterable[Mapping[str, Any] | None]) -> None:
        """Add rows; None is one that could not be read."""
        for row in rows:
            self.rows += 1
            if row is None:
                self.unread += 1
                continue
            for steps, kind, text in _list_values(row):
                tally = self._find_tally(steps)
                if tally is not None:
                    tally.add(kind, text)

    def merge(self, other: RowProfile) -> None:
        """Add the profile of other rows, which come after these."""
        self.rows += other.rows
        self.unread += other.unread
        self.left_out |= other.left_out
        for steps, theirs in other._tallies.items():
            tally = self._find_tally(steps)
            if tally is not None:
                tally.merge(theirs)

    def add_names(self, names: Iterable[str]) -> None:
        """Name columns that the log has, even if no row has a value there."""
        for name in names:
            self._find_tally((name,))

    def list_columns(self, types: Mapping[Path, str] | None = None) -> tuple[ColumnProfile, ...]:
        """The profile of each path, with the types that a table gives them; nested ones follow."""
        top = {str(steps[0]) for steps in self._tallies}
        order = {name: at for at, name in enumerate(dict.fromkeys(s[0] for s in self._tallies))}
        listed = sorted(self._tallies.items(), key=lambda item: order[item[0][0]])
        return tuple(
            ColumnProfile(
                steps,
                _write_path(steps, top),
                self.rows,
                tally.present,
                min(tally.distinct.count(), tally.present),
                tally.distinct.limit == _WHOLE,
                dict(tally.kinds),
                dict(tally.values),
                next(iter(tally.values), ""),
                (types or {}).get(steps, ""),
            )
            for steps, tally in listed
        )

    def _find_tally(self, steps: Path) -> _Tally | None:
        tally = self._tallies.get(steps)
        if tally is None:
            if len(self._tallies) >= MOST_PATHS:
                self.left_out = True
                return None
            tally = self._tallies[steps] = _Tally()
        return tally


def parse_row(text: str) -> dict[str, Any] | None:
    """A JSON object, its numbers as they are written; None if the text is none."""
    found = _parse_json(text)
    return found if isinstance(found, dict) else None


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text, parse_int=Number, parse_float=Number, parse_constant=Number)
    except (ValueError, RecursionError):
        return None


def _list_values(row: Mapping[str, Any]) -> Iterator[tuple[Path, str, str]]:
    """The path, the kind and the text of each value of a row, from outside in."""
    waiting: list[tuple[Path, Any]] = [
        ((name,), value) for name, value in reversed(list(row.items()))
    ]
    while waiting:
        steps, value = waiting.pop()
        if value is None or value == "":
            continue
        if isinstance(value, bool):
            yield steps, "boolean", "true" if value else "false"
            continue
        if isinstance(value, Number):
            yield steps, "number", value
            continue
        kind, inner = "text", None
        if isinstance(value, str):
            if value.lstrip()[:1] in ("{", "["):
                inner = _parse_json(value)
                kind = "JSON text" if isinstance(inner, dict | list) else "text"
        else:
            inner, kind = value, "object" if isinstance(value, dict) else "list"
        yield steps, kind, value if isinstance(value, str) else json.dumps(value)[:_LONGEST]
        if len(steps) >= _DEEPEST:
            continue
        if isinstance(inner, dict):
            waiting += [((*steps, name), one) for name, one in reversed(list(inner.items()))]
        elif isinstance(inner, list) and inner:
            waiting.append(((*steps, 0), inner[0]))


def _write_path(steps: Path, top: set[str]) -> str:
    """A path as `--column` takes it: not one that is also the name of a column."""
    path = quote_path(steps)
    return f"$.{path}" if len(steps) > 1 and path in top else path
