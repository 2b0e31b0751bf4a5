"""What goes into the machine of a control plane, and what it asks its host to do.

The host (`control.nats.service`, or a simulation) hands over what it heard, with the time, and
performs the actions in order. `Decide` is the fence: the host stores the plan, then the decision,
on the condition that nobody else has decided since; if somebody has, the service was replaced and
none of the later actions is performed. `Audit`, `KeepProposal` and `SettingsChanged` are on the
same condition: each entry follows the last, each value replaces the one that this service knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from distributary.control.reports import (
    InterestRecord,
    PublisherRecord,
    PublisherReport,
    ReceiverReport,
)
from distributary.control.requests import Answer, LookRequest, OperatorRequest
from distributary.control.settings import ControlSettings
from distributary.control.status import AuditEntry, Kind, StreamStatus, Waste
from distributary.machines.actions import SetTimer
from distributary.model import Plan

__all__ = [
    "AnswerRequest",
    "Ask",
    "Audit",
    "ConnectionChanged",
    "ControlAction",
    "ControlMessage",
    "Decide",
    "Decision",
    "DropPlan",
    "FetchPlan",
    "ForgetPublisher",
    "ForgetReceiver",
    "HostTrouble",
    "InterestChanged",
    "KeepProposal",
    "PlanFetched",
    "Proposal",
    "Proposed",
    "PublisherChanged",
    "PublisherReported",
    "ReceiverReported",
    "Restored",
    "SetBase",
    "SettingsChanged",
    "StandBysCounted",
    "StreamChanged",
    "WriteCounts",
    "WriteInterest",
]


class Decision(msgspec.Struct, frozen=True):
    """What puts a version in force: the value of the key `force`."""

    version: int
    plan: str  # the name of the plan's object in the store
    kind: Kind
    by: str
    why: str
    at: float
    moves: int
    predicted: Waste | None = None


class Proposal(msgspec.Struct, frozen=True):
    """A plan that waits for approval: the value of the key `proposal`."""

    number: int
    plan: str  # the name of the plan's object in the store
    at: float


# --- in -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class InterestChanged:
    """A receiver wrote down what it wants; None: it ended, or its interest was forgotten."""

    receiver: str
    record: InterestRecord | None


@dataclass(frozen=True, slots=True)
class PublisherChanged:
    """A publisher came, changed its flows, or left (None)."""

    publisher: str
    record: PublisherRecord | None


@dataclass(frozen=True, slots=True)
class PublisherReported:
    """A publisher's report of about a second."""

    publisher: str
    report: PublisherReport


@dataclass(frozen=True, slots=True)
class ReceiverReported:
    """A receiver's report of about a second."""

    receiver: str
    report: ReceiverReport


@dataclass(frozen=True, slots=True, eq=False)
class Proposed:
    """The stream has a plan of its own version, with its line of the history."""

    version: int  # of the stream, not ours
    plan: Plan
    entry: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StreamChanged:
    """The state of the stream, as its supervisor knows it."""

    status: StreamStatus


@dataclass(frozen=True, slots=True)
class StandBysCounted:
    """How many services stand by, and what this one has used of the CPU so far."""

    count: int
    cpu_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class ConnectionChanged:
    """The host lost its server, or has it again.

    Nobody counts as gone for what could not be heard.
    """

    is_connected: bool


@dataclass(frozen=True, slots=True, eq=False)
class PlanFetched:
    """The answer to `FetchPlan`; None if the store has no such plan, or a damaged one."""

    name: str
    plan: Plan | None


@dataclass(frozen=True, slots=True)
class HostTrouble:
    """An alarm of the host's own, such as a full disk or a damaged key; `says` None ends it.

    `what` and `who` are those of the alarm.
    """

    what: str
    who: str
    says: str | None


@dataclass(frozen=True, slots=True)
class Ask:
    """A request; `ticket` goes back with the answer."""

    ticket: int
    request: LookRequest | OperatorRequest


ControlMessage = (
    InterestChanged
    | PublisherChanged
    | PublisherReported
    | ReceiverReported
    | Proposed
    | StreamChanged
    | StandBysCounted
    | ConnectionChanged
    | PlanFetched
    | HostTrouble
    | Ask
)


@dataclass(frozen=True, slots=True, eq=False)
class Restored:
    """What a service finds when it begins to serve; all of it may be empty.

    `plans` has the plans of the decision in force and of the pending proposal, by name of object.
    `audit` is the last entries, oldest first. Interest and reports follow as messages. `most_bytes`
    is how long settings may be, as JSON.
    """

    decision: Decision | None = None
    proposal: Proposal | None = None
    plans: Mapping[str, Plan] = field(default_factory=dict)
    audit: tuple[AuditEntry, ...] = ()
    where: str = ""  # this service, in words
    most_bytes: int = 1 << 20


# --- out ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Decide:
    """Store the plan, unless it is None because it is stored already; then put it in force."""

    decision: Decision
    plan: Plan | None


@dataclass(frozen=True, slots=True, eq=False)
class KeepProposal:
    """Store a proposal and its plan for whoever serves next; None: there is none any more."""

    proposal: Proposal | None
    plan: Plan | None = None


@dataclass(frozen=True, slots=True)
class Audit:
    """Append to the log of changes, on the condition that the entry numbered one less is the last.

    An entry that is there already, with the same number and content, is done. If another is, the
    service was replaced, as with `Decide`.
    """

    entry: AuditEntry


@dataclass(frozen=True, slots=True, eq=False)
class SetBase:
    """Let the stream go on from this plan, which is in force."""

    plan: Plan


@dataclass(frozen=True, slots=True)
class WriteInterest:
    """Write rows for the stream: (receiver, flow, whether it is wanted), all at this time."""

    at: float
    rows: tuple[tuple[str, str, bool], ...]


@dataclass(frozen=True, slots=True)
class WriteCounts:
    """Write rows for the stream: (second since 1970, flow, messages)."""

    rows: tuple[tuple[int, str, int], ...]


@dataclass(frozen=True, slots=True)
class SettingsChanged:
    """Store the settings; the stream starts again where its terms changed."""

    settings: ControlSettings
    restart_stream: bool


@dataclass(frozen=True, slots=True)
class ForgetReceiver:
    """Drop what a receiver wanted that has been gone for long, unless it wrote it anew since."""

    receiver: str
    incarnation: str


@dataclass(frozen=True, slots=True)
class ForgetPublisher:
    """Drop the key of a publisher that has been gone for long, unless it wrote it anew since."""

    publisher: str
    incarnation: str


@dataclass(frozen=True, slots=True)
class FetchPlan:
    """Read a plan of an earlier version, by the name of its object; `PlanFetched` answers."""

    name: str


@dataclass(frozen=True, slots=True)
class DropPlan:
    """Delete the plan of a version that nobody can roll back to any more, if it is there."""

    name: str


@dataclass(frozen=True, slots=True)
class AnswerRequest:
    """Answer a request."""

    ticket: int
    answer: Answer


ControlAction = (
    Decide
    | KeepProposal
    | Audit
    | SetBase
    | WriteInterest
    | WriteCounts
    | SettingsChanged
    | ForgetReceiver
    | ForgetPublisher
    | FetchPlan
    | DropPlan
    | AnswerRequest
    | SetTimer
)
