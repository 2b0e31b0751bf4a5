"""Which of some logs is which, and how each is written, as far as their rows tell.

A proposal has no command line yet: the command line knows its options.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from distributary.errors import InputError
from distributary.pipeline.inspection import LogLook
from distributary.pipeline.roles import LogKind, Roles, find_kind, find_roles
from distributary.pipeline.shapes import LogShape, LogShapes

__all__ = ["Proposal", "ProposedLog", "propose"]


@dataclass(frozen=True, slots=True)
class ProposedLog:
    """A log that was looked at, what it is taken for and why, and how it is written."""

    look: LogLook
    roles: Roles
    why: str
    shape: LogShape

    @property
    def kind(self) -> LogKind:
        """What the log is taken for."""
        return self.roles.kind


@dataclass(frozen=True, slots=True)
class Proposal:
    """The logs of a run, in the order of the command line, and what had to be guessed."""

    logs: tuple[ProposedLog, ...]
    doubts: tuple[str, ...]

    def find(self, kind: LogKind) -> ProposedLog | None:
        """The log of a kind, if there is one."""
        return next((log for log in self.logs if log.kind == kind), None)


def propose(
    looks: Sequence[LogLook], settled: Mapping[LogKind, LogLook], given: LogShapes
) -> Proposal:
    """Say which log is which and how they are written; those of `settled` are named by the user."""
    doubts: list[str] = []
    chosen: dict[LogKind, tuple[LogLook, str]] = {
        kind: (look, "as its option says") for kind, look in settled.items()
    }
    if len(looks) == 1:
        _choose_one(looks[0], given, chosen, doubts)
    elif looks:
        _choose_two(looks, given, chosen, doubts)
    logs = []
    for kind in ("subscriptions", "filters", "publications"):
        if kind in chosen:
            look, why = chosen[kind]
            shape: LogShape = getattr(given, kind)
            roles = find_roles(look.path, kind, look.columns, shape)
            logs.append(ProposedLog(look, roles, why, roles.make_shape(shape)))
            doubts += roles.doubts
    doubts += _list_doubts_of_times(logs)
    return Proposal(tuple(logs), tuple(dict.fromkeys(doubts)))


def _all_columns(given: LogShapes) -> dict[str, str]:
    return {**given.publications.columns, **given.subscriptions.columns}


def _choose_one(
    look: LogLook,
    given: LogShapes,
    chosen: dict[LogKind, tuple[LogLook, str]],
    doubts: list[str],
) -> None:
    kind, why = find_kind(look.columns, _all_columns(given))
    if kind == "both":
        if "publications" in chosen:
            kind = "subscriptions"
        elif chosen:
            kind = "publications"
        else:
            chosen["subscriptions"] = chosen["publications"] = look, why
            doubts.append(
                f"{look.path} has no actions: each row is taken as a message, and as a sign that "
                "its receiver wants the flow"
            )
            return
    if kind in chosen:
        raise InputError(
            f"is taken for {kind}, which --{kind} names already ({why})",
            path=look.path,
            remedy="name both logs with --subscriptions, --filters or --publications",
        )
    chosen[kind] = look, why


def _choose_two(
    looks: Sequence[LogLook],
    given: LogShapes,
    chosen: dict[LogKind, tuple[LogLook, str]],
    doubts: list[str],
) -> None:
    """Take the log that looks more like messages for the publications."""
    kinds = [find_kind(look.columns, _all_columns(given)) for look in looks]
    likeness = {"filters": 0, "subscriptions": 0, "both": 1, "publications": 2}
    ranks = [likeness[kind] for kind, _ in kinds]
    messages = 0 if ranks[0] > ranks[1] else 1
    wants = 1 - messages
    if ranks[0] == ranks[1]:
        doubts.append(
            "the logs look alike, so it cannot be told which is which: the first is taken for the "
            "subscriptions; otherwise use --subscriptions and --publications"
        )
    kind: LogKind = "filters" if kinds[wants][0] == "filters" else "subscriptions"
    chosen[kind] = looks[wants], kinds[wants][1]
    chosen["publications"] = looks[messages], kinds[messages][1]


def _list_doubts_of_times(logs: Sequence[ProposedLog]) -> list[str]:
    doubts, local = [], []
    for log in logs:
        times, shape = log.roles.times, log.shape
        if times is not None and times.doubt and shape.time_format == times.pattern:
            doubts.append(f"it cannot be told {times.doubt}; --time-format says it")
        if times is not None and not times.zoned and shape.time_zone == "UTC":
            local.append(log.kind)
    if local:
        doubts.append(
            f"the times of the {' and '.join(local)} name no zone and are taken as UTC; otherwise "
            "use --time-zone"
        )
    return doubts
