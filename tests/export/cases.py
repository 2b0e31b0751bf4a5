"""A plan that is as awkward as plans get: names of all kinds, and flows in several sessions."""

from __future__ import annotations

import csv
import io

import numpy as np

from distributary.model import Plan
from tests.strategies import AWKWARD

HOSTILE = (
    *(
        "IBM",
        "BRK.B",
        "BRK%2EB",
        ".",
        "..",
        "*",
        ">",
        "a.*",
        "a.>",
        "$SYS",
        "$1",
        "{{wildcard(1)}}",
    ),
    *("<&>", "]]>", "-->", "&amp;", "a b", "s0.x", "|alias=x", "?a=b", "#", "//", "☃", "x" * 200),
)
SESSION_GROUP = (0, 1, 1, 2)


def hostile_plan() -> Plan:
    """Each flow in one session, every third also in the next, every sixth in the one after too."""
    flows = tuple(sorted({*AWKWARD, *HOSTILE}))
    placements = sorted(
        {
            (flow, (flow + copy) % len(SESSION_GROUP))
            for flow in range(len(flows))
            for copy in range(1 + (flow % 3 == 0) + (flow % 6 == 0))
        }
    )
    receivers = tuple(sorted(AWKWARD))
    subscriptions = sorted(
        {(r, s) for r in range(len(receivers)) for s in {r % 4, (r * 7 + 1) % 4, (r // 4) % 4}}
    )
    placement, subscription = (np.array(p, np.int32).T for p in (placements, subscriptions))
    return Plan(
        receivers=receivers,
        flows=flows,
        placement_flow=placement[0],
        placement_session=placement[1],
        session_group=np.array(SESSION_GROUP, np.int32),
        subscription_receiver=subscription[0],
        subscription_session=subscription[1],
    )


def placements_of(plan: Plan) -> list[tuple[str, int, int]]:
    """(flow, session, group), copy by copy."""
    return [
        (plan.flows[flow], int(session), int(plan.session_group[session]))
        for flow, session in zip(plan.placement_flow, plan.placement_session, strict=True)
    ]


def subscriptions_of(plan: Plan) -> list[tuple[str, int, int]]:
    """(receiver, session, group)."""
    return [
        (plan.receivers[receiver], int(session), int(plan.session_group[session]))
        for receiver, session in zip(
            plan.subscription_receiver, plan.subscription_session, strict=True
        )
    ]


def csv_rows(content: bytes) -> list[dict[str, str]]:
    """Read by Python's own CSV reader."""
    return list(csv.DictReader(io.StringIO(content.decode("utf-8"), newline="")))
