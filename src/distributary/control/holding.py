"""How long proposals wait for approval after a version was rolled back.

What made a plan turn out worse than predicted is likely still there, and the stream would propose
much the same again: without a pause, versions would come and go for ever. So after a roll-back
proposals wait for five minutes, and twice as long each time that another one had to be rolled back
by itself. An operator who sets the mode ends the pause. All of it follows from the log of changes,
so another service goes on with it.
"""

from __future__ import annotations

from distributary.control.audit import BY_CONTROL, AuditLog
from distributary.control.status import AuditEntry

__all__ = ["ProposalPause"]

_FIRST, _LONGEST = 300.0, 3600.0  # seconds


class ProposalPause:
    """Reads the log of changes as it grows."""

    def __init__(self, audit: AuditLog) -> None:
        self._audit = audit
        self._read = 0  # number of the last entry
        self._until = 0.0
        self._rollbacks = 0  # by itself, in a row
        self._rolled_back = 0  # the last version that is one

    def until(self) -> float:
        """When proposals take effect by themselves again; in the past if they do."""
        for entry in self._audit.list_after(self._read):
            self._read = entry.number
            self._note(entry)
        return self._until

    def _note(self, entry: AuditEntry) -> None:
        if entry.what == "mode":
            self._until = 0.0
        elif entry.what == "judged" and entry.kind == "planned" and entry.measured is not None:
            if (entry.version or 0) > self._rolled_back:
                self._rollbacks = 0
        elif entry.what == "in force" and entry.kind == "rolled back":
            times = 0
            if entry.who == BY_CONTROL:
                times, self._rollbacks = self._rollbacks, self._rollbacks + 1
            self._rolled_back = entry.version or 0
            self._until = entry.at + min(_FIRST * 2**times, _LONGEST)
