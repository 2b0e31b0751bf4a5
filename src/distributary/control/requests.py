"""What operators ask a control plane for, and what it answers.

A request is JSON with its kind in `type`; the answer to it is the document that its docstring
names, or a `Refusal`. Requests that change something need the operator's credentials, which the
server's permissions on subjects check.
"""

from __future__ import annotations

import msgspec

from distributary.control.status import (
    AuditEntry,
    ControlStatus,
    FlowPath,
    HistoryPoint,
    PlanView,
    ReceiverView,
)

__all__ = [
    "Answer",
    "Approve",
    "Changes",
    "Done",
    "FlowRequest",
    "History",
    "Look",
    "LookRequest",
    "OperatorRequest",
    "Pin",
    "PlanRequest",
    "ReceiverRequest",
    "Refusal",
    "Reject",
    "Rollback",
    "SetLimits",
    "SetMode",
]


class Look(msgspec.Struct, frozen=True, tag="status"):
    """The answer is a `ControlStatus`."""


class History(msgspec.Struct, frozen=True, tag="history"):
    """The answer is a list of `HistoryPoint`, oldest first, after a time."""

    after: float = 0.0


class Changes(msgspec.Struct, frozen=True, tag="changes"):
    """The answer is a list of `AuditEntry`, newest first.

    At most half of them are about flows that were only placed, while there are others.
    """

    most: int = 100


class PlanRequest(msgspec.Struct, frozen=True, tag="plan"):
    """The answer is the `PlanView` of the version in force."""


class FlowRequest(msgspec.Struct, frozen=True, tag="flow"):
    """The answer is the `FlowPath` of a flow."""

    flow: str


class ReceiverRequest(msgspec.Struct, frozen=True, tag="receiver"):
    """The answer is the `ReceiverView` of a receiver."""

    name: str


class Approve(msgspec.Struct, frozen=True, tag="approve"):
    """Put a proposal in force; the answer is `Done`."""

    number: int
    by: str


class Reject(msgspec.Struct, frozen=True, tag="reject"):
    """Drop a proposal; the answer is `Done`."""

    number: int
    by: str
    why: str = ""


class Rollback(msgspec.Struct, frozen=True, tag="rollback"):
    """Put the placements of an earlier version in force as a new one; None: the one before."""

    version: int | None
    by: str


class Pin(msgspec.Struct, frozen=True, tag="pin"):
    """Keep a flow in a group; None lets it go again."""

    flow: str
    group: int | None
    by: str


class SetLimits(msgspec.Struct, frozen=True, tag="limits"):
    """Set the limits of the network: the text of a limits file, or "" for none."""

    text: str
    by: str


class SetMode(msgspec.Struct, frozen=True, tag="mode"):
    """Let proposals take effect by themselves ("auto"), or wait for approval ("manual")."""

    mode: str
    by: str


class Done(msgspec.Struct, frozen=True, tag="done"):
    """It is done; `version` is the one in force now."""

    says: str
    version: int


class Refusal(msgspec.Struct, frozen=True, tag="refused"):
    """It was not done: why, with which value, and what to do."""

    says: str


LookRequest = Look | History | Changes | PlanRequest | FlowRequest | ReceiverRequest
OperatorRequest = Approve | Reject | Rollback | Pin | SetLimits | SetMode
Answer = (
    ControlStatus
    | list[HistoryPoint]
    | list[AuditEntry]
    | PlanView
    | FlowPath
    | ReceiverView
    | Done
    | Refusal
)
