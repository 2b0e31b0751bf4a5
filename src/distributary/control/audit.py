"""The log of changes: each entry has the next number, and follows the one before."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from distributary.control.messages import Audit
from distributary.control.status import AuditEntry

__all__ = ["BY_CONTROL", "AuditLog"]

BY_CONTROL = "control"  # who did what no operator asked for
_KEPT = 1_000


class AuditLog:
    """The last entries, and the number of the next one."""

    def __init__(self, entries: Iterable[AuditEntry] = ()) -> None:
        self._entries = deque(entries, maxlen=_KEPT)

    @property
    def entries(self) -> Sequence[AuditEntry]:
        """Those that are known, oldest first."""
        return self._entries

    @property
    def next_number(self) -> int:
        """The number of the next entry, from 1 on."""
        return self._entries[-1].number + 1 if self._entries else 1

    def write(self, at: float, who: str, what: str, why: str, **facts: Any) -> Audit:
        """Make the next entry, with any of the other fields of `AuditEntry`."""
        entry = AuditEntry(self.next_number, at, who, what, why, **facts)
        self._entries.append(entry)
        return Audit(entry)

    def newest(self, most: int) -> list[AuditEntry]:
        """The newest entries, newest first."""
        return list(reversed(self._entries))[:most]

    def list_after(self, number: int) -> list[AuditEntry]:
        """The entries after a number, oldest first."""
        found = itertools.takewhile(lambda entry: entry.number > number, reversed(self._entries))
        return [*found][::-1]

    def find_last(self, what: str) -> AuditEntry | None:
        """The last entry of a kind."""
        return next((entry for entry in reversed(self._entries) if entry.what == what), None)

    def find_version(self, version: int) -> AuditEntry | None:
        """When and why a version came into force, if that is known."""
        found = (e for e in reversed(self._entries) if e.what == "in force")
        return next((entry for entry in found if entry.version == version), None)
