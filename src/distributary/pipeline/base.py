"""The plan that a stream is to go on from, where somebody else decides what is in force.

The stream looks at the folder before each batch. A plan counts as another one if its fingerprint
differs: it depends on the plan's tables, not on their files nor on what `plan.json` says of costs.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from distributary.errors import DistributaryError
from distributary.files import fingerprint, read_plan
from distributary.files.versions import follow_pointer
from distributary.model import Plan
from distributary.planning import Size

__all__ = ["BasePlan", "BaseWatch"]

_ATTEMPTS = 3
_Stamp = tuple[str, int, int, int]


@dataclass(frozen=True, slots=True, eq=False)
class BasePlan:
    """A plan and its fingerprint."""

    plan: Plan
    fingerprint: str


class BaseWatch:
    """The plan in a folder, read again when its `plan.json` was replaced.

    `fault` says why the plan that is there cannot be taken; None if it can, or if none is there,
    such as while it is being replaced. A plan with a fault is read again each time, because it may
    be in the middle of a copy.
    """

    def __init__(self, folder: Path, size: Size) -> None:
        self.fault: str | None = None
        self._folder, self._size = folder, size
        self._seen: _Stamp | None = None
        self._found: BasePlan | None = None

    @property
    def is_missing(self) -> bool:
        """Whether there is no plan in the folder."""
        return self._read_stamp() is None

    def look(self, taken: str | None) -> BasePlan | None:
        """The plan in the folder; None if its fingerprint is `taken`, or if there is none."""
        self._update()
        if self._found is None or self._found.fingerprint == taken:
            return None
        return self._found

    def _update(self) -> None:
        """Read the plan if it is another one. If it cannot be taken, no former one is either."""
        for _ in range(_ATTEMPTS):
            stamp = self._read_stamp()
            if stamp is None:
                self.fault = None
                return
            if stamp == self._seen and self.fault is None:
                return
            found, fault = self._read()
            if self._read_stamp() == stamp:  # else it was being replaced: read the new one
                self._seen, self._found, self.fault = stamp, found, fault
                return

    def _read(self) -> tuple[BasePlan | None, str | None]:
        """The plan in the folder, or why it cannot be taken."""
        try:
            plan = read_plan(self._folder).plan
        except DistributaryError as error:
            return None, str(error)
        fault = self._find_fault(plan)
        return (BasePlan(plan, fingerprint(plan)), None) if fault is None else (None, fault)

    def _find_fault(self, plan: Plan) -> str | None:
        sessions, size = len(plan.session_group), self._size
        groups = int(plan.session_group.max()) + 1 if sessions else 0
        if sessions <= size.most_sessions and groups <= size.groups:
            return None
        return (
            f"{self._folder}: has {sessions} sessions in {groups} groups, more than the "
            f"{size.most_sessions} in {size.groups} of this stream; allow as many"
        )

    def _read_stamp(self) -> _Stamp | None:
        """The identity of the plan's `plan.json`; None if there is none."""
        try:
            manifest = follow_pointer(self._folder) / "plan.json"
            found = os.stat(manifest)
        except (OSError, DistributaryError):
            return None
        return str(manifest), found.st_mtime_ns, found.st_ino, found.st_size
