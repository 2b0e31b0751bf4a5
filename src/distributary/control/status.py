"""What a control plane tells of itself: to `control status`, to the dashboard and to Prometheus.

Rates are messages per second, times seconds since 1970. Everything is JSON; names are as members
gave them.
"""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = [
    "Alarm",
    "AuditEntry",
    "Block",
    "ControlStatus",
    "FlowMove",
    "FlowPath",
    "GroupView",
    "HistoryPoint",
    "PlanView",
    "ProposalStatus",
    "PublisherStatus",
    "ReceiverStatus",
    "ReceiverView",
    "ServiceStatus",
    "SessionView",
    "StreamStatus",
    "VersionStatus",
    "Waste",
]

# Why a version came into force.
Kind = Literal["first", "placed", "planned", "pinned", "limited", "rolled back"]
ApproveMode = Literal["auto", "manual"]
StreamState = Literal["off", "starting", "running", "restarting", "external"]


class Waste(msgspec.Struct, frozen=True):
    """What all receivers get: what they want, and what their two filters drop."""

    wanted: float
    dropped_first: float  # of sessions that they did not subscribe to
    dropped_second: float  # of flows that they do not want


class VersionStatus(msgspec.Struct, frozen=True):
    """A version of the plan. `measured` is None until receivers have reported enough of it."""

    version: int
    kind: Kind
    at: float  # when it came into force
    by: str  # who decided: "control", or the operator's name
    why: str
    flows: int
    sessions: int
    groups: int
    moves: int  # flows that changed their session
    predicted: Waste | None = None
    measured: Waste | None = None


class FlowMove(msgspec.Struct, frozen=True):
    """A flow that a proposal moves; None: it is in no session before, or after."""

    flow: str
    from_session: int | None
    from_group: int | None
    to_session: int | None
    to_group: int | None
    receivers: int  # that want it


class ProposalStatus(msgspec.Struct, frozen=True):
    """A plan that waits for approval."""

    number: int
    at: float
    saves_per_hour: float  # messages that receivers need not drop
    moves: int
    receivers_touched: int
    moved: list[FlowMove]  # the first ones, those wanted most
    before: Waste
    after: Waste
    touched: list[str] = []  # receivers, the first ones by name


class PublisherStatus(msgspec.Struct, frozen=True):
    """A publisher; `flows` is None if it has all flows of the plan."""

    name: str
    alive: bool
    heard_at: float
    where: str
    flows: int | None
    rate: float
    unplanned: int  # messages that nobody wanted, or that no plan carried yet
    plan_version: int
    behind: int  # versions that came into force since the one that it publishes by


class ReceiverStatus(msgspec.Struct, frozen=True):
    """A receiver, as it last reported. Counters are since its start."""

    name: str
    alive: bool
    heard_at: float
    where: str
    wants: int  # flows
    unserved: list[str]  # flows that no plan carries, the first few
    groups: int  # that it has joined
    waste: Waste
    gaps: int
    missing: int  # messages that it reported as missing
    repairs: int  # retransmissions asked for
    cpu_share: float  # of one core


class StreamStatus(msgspec.Struct, frozen=True):
    """The Spark stream that plans. `behind_rows` were written and are not in a batch yet."""

    state: StreamState
    restarts: int = 0
    last_error: str = ""
    batch: int = -1
    batch_at: float | None = None
    batch_seconds: float | None = None
    planning_seconds: float | None = None  # of these
    behind_rows: int = 0
    behind_s: float = 0.0
    rows: dict[str, int] = {}  # read, by log
    quarantined: dict[str, int] = {}  # by reason
    drift: float | None = None
    excess: float | None = None  # Cx/Cf
    refused: str = ""  # why no plan keeps the terms


class Alarm(msgspec.Struct, frozen=True):
    """Something that an operator should look at; it goes when its cause goes."""

    what: str  # such as "publisher gone": the same words for the same cause
    who: str  # a member, or ""
    since: float
    says: str  # one sentence: what, with which value, and what to do


class ServiceStatus(msgspec.Struct, frozen=True):
    """The service that serves, and how many stand by."""

    where: str
    since: float
    stand_bys: int
    cpu_seconds: float


class ControlStatus(msgspec.Struct, frozen=True):
    """A whole control plane, now."""

    prefix: str
    now: float
    service: ServiceStatus
    mode: ApproveMode
    tolerance: float
    group_limit: int
    session_limit: int
    limits: str  # the limits' file, as it is; "" if there are none
    pins: dict[str, int]
    force: VersionStatus | None
    proposal: ProposalStatus | None
    waste: Waste  # measured now
    publishers: list[PublisherStatus]
    receivers: list[ReceiverStatus]
    stream: StreamStatus
    alarms: list[Alarm]
    predicted: Waste | None = None  # by the plan in force, with the interest and rates of now
    kept: list[int] = []  # the earlier versions that can be rolled back to


class HistoryPoint(msgspec.Struct, frozen=True, array_like=True):
    """One moment of the last minutes."""

    at: float
    version: int
    measured: Waste
    predicted: Waste


class AuditEntry(msgspec.Struct, frozen=True):
    """A change: who, what, when, why. What was measured afterwards is in an entry of its own."""

    number: int
    at: float
    who: str
    what: (
        str  # such as "in force", "proposed", "approved", "rejected", "pinned", "limits", "judged"
    )
    why: str
    version: int | None = None
    moves: int = 0
    predicted: Waste | None = None
    measured: Waste | None = None
    lost: int | None = None  # messages that receivers reported as missing while it took over
    kind: Kind | None = None  # of the version of an entry "in force" or "judged"
    plan: str = ""  # the name of the plan's object in the store, of an entry "in force"
    moved: list[FlowMove] = []  # of `moves`, the first ones


class SessionView(msgspec.Struct, frozen=True):
    """A session of the plan in force."""

    session: int
    flows: int
    rate: float
    subscribers: int
    names: list[str] = []  # of flows, the first ones


class GroupView(msgspec.Struct, frozen=True):
    """A group of the plan in force, against the limits that it has (None: no limit)."""

    group: int
    address: str
    flows: int
    rate: float
    members: int
    most_members: int | None
    most_rate: float | None
    sessions: list[SessionView]


class PlanView(msgspec.Struct, frozen=True):
    """The plan of a version: its groups, with their sessions."""

    version: int
    groups: list[GroupView]


class FlowPath(msgspec.Struct, frozen=True):
    """Where one flow travels, who wants it, and who throws it away; names sorted."""

    flow: str
    session: int | None
    group: int | None
    address: str
    rate: float
    wanted_by: list[str]
    dropped_first_by: list[str]
    dropped_second_by: list[str]
    pinned: int | None = None  # the group that an operator keeps it in


class Block(msgspec.Struct, frozen=True):
    """A run of reports of a receiver, for its chart."""

    at: float
    waste: Waste
    groups: int
    gaps: int
    cpu_share: float


class ReceiverView(msgspec.Struct, frozen=True):
    """One receiver with its flows, and its last minutes."""

    status: ReceiverStatus
    flows: list[str]  # the first ones
    joined: list[int]  # groups
    history: list[Block]
