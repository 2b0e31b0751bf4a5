"""Numbers and names that both ends derive from the plan alone.

Flow `k` of the plan is number `k`, its sessions keep their numbers, and what receiver `r` gets by
unicast is session `n_sessions + r`. Two plans are the same if their fingerprints are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from distributary.model import Plan

__all__ = [
    "CONTROL_GROUP",
    "SENDER",
    "FlowRoute",
    "fingerprint_of",
    "flow_routes",
    "group_name",
    "group_number",
    "wanted_flows",
]

CONTROL_GROUP = "group control"
SENDER = "sender"


def group_name(group: int) -> str:
    """The name of a group in actions."""
    return f"group {group}"


def group_number(name: str) -> int:
    """The number of a group by its name in actions."""
    return int(name.removeprefix("group "))


def fingerprint_of(plan: Plan) -> int:
    """A 64-bit hash of a plan: names and numbers."""
    digest = hashlib.blake2b(digest_size=8)
    for names in (plan.receivers, plan.flows):
        for name in names:
            encoded = name.encode()
            digest.update(len(encoded).to_bytes(4, "little") + encoded)
        digest.update(b"\xff" * 4)
    for numbers in (
        plan.placement_flow,
        plan.placement_session,
        plan.session_group,
        plan.subscription_receiver,
        plan.subscription_session,
        plan.unicast_receiver,
        plan.unicast_flow,
    ):
        digest.update(len(numbers).to_bytes(8, "little"))
        digest.update(np.ascontiguousarray(numbers, "<i4").tobytes())
    return int.from_bytes(digest.digest(), "little")


def wanted_flows(plan: Plan, name: str) -> tuple[str, ...]:
    """The flows that a plan carries to a receiver: those of its sessions, and by unicast."""
    if name not in plan.receivers:
        return ()
    me = plan.receivers.index(name)
    sessions = plan.subscription_session[plan.subscription_receiver == me]
    placed = plan.placement_flow[np.isin(plan.placement_session, sessions)]
    alone = plan.unicast_flow[plan.unicast_receiver == me]
    return tuple(plan.flows[flow] for flow in sorted({*placed.tolist(), *alone.tolist()}))


class FlowRoute(NamedTuple):
    """How a receiver gets a flow: its number, session and group; no group for unicast."""

    flow: str
    number: int
    session: int
    group: str | None


def flow_routes(plan: Plan, receiver: str, wanted: Iterable[str]) -> list[FlowRoute]:
    """One route for each wanted flow that the plan has.

    By unicast if the plan says so, else in the first session that the receiver subscribes to, else
    (the plan does not know of the receiver's interest) in the first session there is.
    """
    numbers = {name: number for number, name in enumerate(plan.flows)}
    me = plan.receivers.index(receiver) if receiver in plan.receivers else -1
    alone = set(plan.unicast_flow[plan.unicast_receiver == me].tolist())
    subscribed = set(plan.subscription_session[plan.subscription_receiver == me].tolist())
    bounds = np.searchsorted(plan.placement_flow, np.arange(len(plan.flows) + 1)).tolist()
    routes = []
    for name in wanted:
        number = numbers.get(name)
        if number is None:
            continue
        sessions = plan.placement_session[bounds[number] : bounds[number + 1]].tolist()
        if number in alone:
            routes.append(FlowRoute(name, number, plan.n_sessions + me, None))
        elif sessions:
            session = next((s for s in sessions if s in subscribed), sessions[0])
            group = group_name(int(plan.session_group[session]))
            routes.append(FlowRoute(name, number, session, group))
    return routes
