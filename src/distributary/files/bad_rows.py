"""Rows that cannot be used: reported together, counted by reason, and kept in a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from distributary.errors import InputError
from distributary.files.columns import Fault
from distributary.files.faults import show_path

__all__ = ["BadRow", "BadTablesError", "bad_rows_error", "count_reasons"]

_REMEDY = "mend these rows or take them out"


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that cannot be used: its file, its number in it from 1, the fault, and its text.

    `values` are those of its columns that could be read, by name.
    """

    path: Path
    row: int
    fault: Fault
    raw: str
    values: Mapping[str, Any] = field(default_factory=dict)

    @property
    def reason(self) -> str:
        """The kind of fault, in words that all rows with it share."""
        return self.fault.reason


class BadTablesError(InputError):
    """Tables have too many faults to be used; `bad` holds every row at fault."""

    def __init__(
        self, first: InputError, reason: str, bad: tuple[BadRow, ...], remedy: str
    ) -> None:
        self.bad = bad
        super().__init__(reason, path=first.path, row=first.row, value=first.value, remedy=remedy)


def count_reasons(bad: Sequence[BadRow]) -> dict[str, int]:
    """The number of rows of each kind of fault."""
    return dict(sorted(Counter(row.reason for row in bad).items()))


def bad_rows_error(
    *tables: Sequence[BadRow], more: Sequence[str] = (), remedy: str = _REMEDY
) -> BadTablesError:
    """One error about all bad rows: the first of each kind in each table, then `more`."""
    bad = tuple(row for table in tables for row in table)
    kinds = [*(kind for table in tables for kind in _describe_kinds(table, bad[0])), *more]
    first = bad[0].fault.error
    own = len(kinds) == 1 and remedy == _REMEDY
    return BadTablesError(first, "; ".join(kinds), bad, first.remedy if own else remedy)


def _describe_kinds(bad: Sequence[BadRow], placed: BadRow) -> list[str]:
    """The first row of each kind in words, with its place unless the error names it: `placed`."""
    counts = Counter(row.reason for row in bad)
    first: dict[str, BadRow] = {}
    for row in bad:
        first.setdefault(row.reason, row)
    words = []
    for reason, row in first.items():
        file = "" if row.path == placed.path else f"{show_path(row.path)}, "
        place = "" if row is placed else f"{file}row {row.row}: "
        others = counts[reason] - 1
        like = f" (and {others:,} more {'rows' if others > 1 else 'row'} like it)" if others else ""
        words.append(f"{place}{row.fault.error.reason}{like}")
    return words
