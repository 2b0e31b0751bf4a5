"""The log of changes: each entry has the next number, and follows the one before."""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any

from distributary.control.messages import Audit
from distributary.control.status import AuditEntry

__all__ = ["BY_CONTROL", "AuditLog"]

BY_CONTROL = "control"  # who did what no operator asked for
_KEPT = 1_000  # entries of each of the two histories

_number = attrgetter("number")


class AuditLog:
    """The last entries, and the number of the next one.

    Flows may be placed twice a second, for hours. So the entries about that have a history of their
    own: they push no other entry out.
    """

    def __init__(self, entries: Iterable[AuditEntry] = ()) -> None:
        self._placing: deque[AuditEntry] = deque(maxlen=_KEPT)
        self._others: deque[AuditEntry] = deque(maxlen=_KEPT)
        self._last = 0
        for entry in entries:
            self._append(entry)

    @property
    def entries(self) -> Sequence[AuditEntry]:
        """Those that are known, oldest first."""
        return [*heapq.merge(self._placing, self._others, key=_number)]

    @property
    def next_number(self) -> int:
        """The number of the next entry, from 1 on."""
        return self._last + 1

    def write(self, at: float, who: str, what: str, why: str, **facts: Any) -> Audit:
        """Make the next entry, with any of the other fields of `AuditEntry`."""
        entry = AuditEntry(self.next_number, at, who, what, why, **facts)
        self._append(entry)
        return Audit(entry)

    def newest(self, most: int) -> list[AuditEntry]:
        """The newest entries, newest first: half of them about placing, or what is left.

        So there may be gaps between their numbers.
        """
        placing = min(len(self._placing), max(most // 2, most - len(self._others)))
        parts = (
            itertools.islice(reversed(self._placing), placing),
            itertools.islice(reversed(self._others), most - placing),
        )
        return [*heapq.merge(*parts, key=_number, reverse=True)]

    def list_after(self, number: int) -> list[AuditEntry]:
        """The entries after a number, oldest first."""
        found = itertools.takewhile(lambda entry: entry.number > number, self._walk_back())
        return [*found][::-1]

    def find_last(self, what: str) -> AuditEntry | None:
        """The last entry of a kind."""
        return next((entry for entry in self._walk_back() if entry.what == what), None)

    def find_version(self, version: int) -> AuditEntry | None:
        """When and why a version came into force, if that is known."""
        found = (e for e in self._walk_back() if e.what == "in force")
        return next((entry for entry in found if entry.version == version), None)

    def _append(self, entry: AuditEntry) -> None:
        (self._placing if _is_about_placing(entry) else self._others).append(entry)
        self._last = entry.number

    def _walk_back(self) -> Iterator[AuditEntry]:
        """All entries, newest first."""
        both = reversed(self._placing), reversed(self._others)
        return heapq.merge(*both, key=_number, reverse=True)


def _is_about_placing(entry: AuditEntry) -> bool:
    """Whether an entry is one of those that each change of interest may cause."""
    is_placed = entry.what == "in force" and entry.kind == "placed"
    return is_placed or entry.what == "unserved"
