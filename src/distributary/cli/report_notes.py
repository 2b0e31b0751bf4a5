"""What the reports of a receiver mean to its user, in words."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distributary.delivery.udp import Report

__all__ = ["describe_member_report", "describe_report"]

_NAMED = 10  # flows to name if many are at fault


def describe_report(report: Report, name: str, plan: Path | None, *, by_content: bool) -> str:
    """What the user should know of a report; empty for those that are in the output alone."""
    from distributary.delivery import (
        Back,
        Brought,
        Contested,
        Gone,
        HandedOver,
        Left,
        NeedPlan,
        Rival,
        Unfollowed,
        Unserved,
    )

    match report:
        case Brought(version, ()):
            note = (
                f"version {version} of the sender's plan brings nothing to {name!r}; check --as, "
                "or make a plan that does"
            )
        case Unserved(_, ()):
            note = "all wanted flows are served again"
        case Unserved(version, flows):
            if version or plan is not None:
                which = f"version {version} of the sender's plan" if version else str(plan)
                note = f"{which} does not bring {_name(flows)} to {name!r}; make a plan that does"
            else:
                note = f"no publisher that was heard so far has {_name(flows)}"
        case Rival(publisher, followed, incarnation, address):
            note = (
                f"another sender called {publisher!r}, {incarnation}, answers at {address}; still "
                f"following {followed}"
            )
        case Contested(holder, claimant, flows):
            note = f"{claimant!r} claims {_name(flows)} too; still taken from {holder!r}"
        case HandedOver(old, publisher, flows, anew):
            numbers = "begin anew" if anew else "go on"
            note = f"{_name(flows)} of {old!r} is taken from {publisher!r}; its numbers {numbers}"
        case Gone(publisher, _, flows):
            what = (
                f"messages of {_name(flows)} may be missing" if flows else "it had no wanted flow"
            )
            note = f"publisher {publisher!r} is gone; {what}"
        case Back(publisher, _):
            note = f"publisher {publisher!r} is back"
        case Left(publisher, _):
            note = f"publisher {publisher!r} has left"
        case Unfollowed(publisher):
            note = f"there are too many publishers; {publisher!r} is not followed"
        case NeedPlan():
            note = f"the sender's plan is not the one in {plan}; put the sender's plan there"
            note += ", and its content beside it" if by_content else ""
        case _:
            return ""
    return note


def _name(flows: tuple[str, ...]) -> str:
    """Name flows, the first few if they are many."""
    more = f" and {len(flows) - _NAMED:,} more" if len(flows) > _NAMED else ""
    return ", ".join(repr(flow) for flow in flows[:_NAMED]) + more


def describe_member_report(report: Report) -> str:
    """What a report means to a member of a control plane, where that is something else."""
    from distributary.delivery import Unserved

    match report:
        case Unserved(version, flows) if version and flows:
            return f"no plan carries {_name(flows)} yet; the control plane looks for a place"
    return ""
