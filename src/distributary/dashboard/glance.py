"""What every page shows of a control plane: bounded in size, however many members and pins."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from distributary.control.status import (
    Alarm,
    ApproveMode,
    ControlStatus,
    ProposalStatus,
    PublisherStatus,
    ReceiverStatus,
    ServiceStatus,
    StreamStatus,
    VersionStatus,
    Waste,
)

__all__ = ["ORDERS", "Glance", "ReceiverPage", "list_receivers", "take_glance"]

_MOST_ALARMS = 50
_MOST_PUBLISHERS = 50
_MOST_MOVES = 50
MOST_ROWS = 100


class ReceiverTotals(msgspec.Struct, frozen=True):
    """All receivers together; counters are since their start."""

    known: int
    alive: int
    unserved: int  # that want a flow which no plan carries
    gaps: int
    missing: int
    repairs: int


class Glance(msgspec.Struct, frozen=True):
    """A control plane now, without its list of receivers."""

    prefix: str
    now: float
    service: ServiceStatus
    mode: ApproveMode
    tolerance: float
    group_limit: int
    session_limit: int
    pins: int  # flows that operators keep in their groups
    force: VersionStatus | None
    proposal: ProposalStatus | None
    waste: Waste
    publishers: list[PublisherStatus]  # the first ones, those in trouble before all
    publishers_known: int
    publishers_alive: int
    receivers: ReceiverTotals
    stream: StreamStatus
    alarms: list[Alarm]
    alarms_known: int
    predicted: Waste | None
    kept: list[int]  # versions that can be rolled back to


class ReceiverPage(msgspec.Struct, frozen=True):
    """Some receivers of those that were looked for."""

    found: int
    known: int
    rows: list[ReceiverStatus]


def take_glance(status: ControlStatus) -> Glance:
    """Take what every page shows."""
    proposal = status.proposal
    if proposal is not None and len(proposal.moved) > _MOST_MOVES:
        proposal = msgspec.structs.replace(proposal, moved=proposal.moved[:_MOST_MOVES])
    publishers = sorted(status.publishers, key=lambda each: (each.alive, -each.behind, each.name))
    return Glance(
        prefix=status.prefix,
        now=status.now,
        service=status.service,
        mode=status.mode,
        tolerance=status.tolerance,
        group_limit=status.group_limit,
        session_limit=status.session_limit,
        pins=len(status.pins),
        force=status.force,
        proposal=proposal,
        waste=status.waste,
        publishers=publishers[:_MOST_PUBLISHERS],
        publishers_known=len(publishers),
        publishers_alive=_count_alive(publishers),
        receivers=_add_up(status.receivers),
        stream=status.stream,
        alarms=status.alarms[:_MOST_ALARMS],
        alarms_known=len(status.alarms),
        predicted=status.predicted,
        kept=status.kept,
    )


def list_receivers(
    receivers: Sequence[ReceiverStatus], *, find: str = "", order: str = "worst"
) -> ReceiverPage:
    """List the receivers whose name contains a text, the worst first or by another order."""
    wanted = find.casefold()
    found = [each for each in receivers if wanted in each.name.casefold()]
    found.sort(key=ORDERS[order])
    return ReceiverPage(len(found), len(receivers), found[:MOST_ROWS])


def _dropped(receiver: ReceiverStatus) -> float:
    return receiver.waste.dropped_first + receiver.waste.dropped_second


# Worst: those that lack something before those that only throw much away.
ORDERS = {
    "worst": lambda each: (
        each.alive,
        -each.missing,
        not each.unserved,
        -_dropped(each),
        each.name,
    ),
    "dropped": lambda each: (-_dropped(each), each.name),
    "missing": lambda each: (-each.missing, -each.gaps, each.name),
    "cpu": lambda each: (-each.cpu_share, each.name),
    "wanted": lambda each: (-each.waste.wanted, each.name),
    "name": lambda each: each.name,
}


def _count_alive(members: Iterable[PublisherStatus | ReceiverStatus]) -> int:
    return sum(each.alive for each in members)


def _add_up(receivers: Sequence[ReceiverStatus]) -> ReceiverTotals:
    return ReceiverTotals(
        known=len(receivers),
        alive=_count_alive(receivers),
        unserved=sum(bool(each.unserved) for each in receivers),
        gaps=sum(each.gaps for each in receivers),
        missing=sum(each.missing for each in receivers),
        repairs=sum(each.repairs for each in receivers),
    )
