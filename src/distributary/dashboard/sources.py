"""What the dashboard needs of a control plane.

In production this is `control.nats.client.ControlClient`. Every method raises `ControlRefusedError`
if the control plane says no, and another `DistributaryError`, `OSError` or `TimeoutError` if it
does not answer.
"""

from __future__ import annotations

from typing import Protocol

from distributary.control.requests import Done
from distributary.control.status import (
    AuditEntry,
    ControlStatus,
    FlowPath,
    HistoryPoint,
    PlanView,
    ReceiverView,
)

__all__ = ["ControlSource"]


class ControlSource(Protocol):
    """A control plane that can be looked at and operated."""

    async def status(self) -> ControlStatus:
        """All of it, now."""
        ...

    async def history(self, after: float) -> list[HistoryPoint]:
        """The last minutes after a time, oldest first."""
        ...

    async def changes(self, most: int) -> list[AuditEntry]:
        """The last changes, newest first."""
        ...

    async def plan_view(self) -> PlanView:
        """The plan in force."""
        ...

    async def flow(self, name: str) -> FlowPath:
        """Where a flow travels."""
        ...

    async def receiver(self, name: str) -> ReceiverView:
        """One receiver, with its last minutes."""
        ...

    async def approve(self, number: int, by: str) -> Done:
        """Put a proposal in force."""
        ...

    async def reject(self, number: int, why: str, by: str) -> Done:
        """Drop a proposal."""
        ...

    async def rollback(self, version: int | None, by: str) -> Done:
        """Go back to an earlier version; None: to the one before."""
        ...

    async def pin(self, flow: str, group: int | None, by: str) -> Done:
        """Keep a flow in a group; None lets it go again."""
        ...

    async def set_mode(self, mode: str, by: str) -> Done:
        """Let proposals take effect by themselves ("auto"), or wait for approval ("manual")."""
        ...
