"""Names and numbers that both ends know, and what a plan alone says of a receiver."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from dataclasses import replace

import numpy as np

from distributary.model import Plan

__all__ = [
    "CONTROL_GROUP",
    "SENDER",
    "fingerprint_of",
    "group_name",
    "group_number",
    "keep_flows",
    "publisher_number",
    "subscribed_groups",
    "unserved_flows",
    "wanted_flows",
]

CONTROL_GROUP = "group control"
SENDER = "sender"


def publisher_number(name: str) -> int:
    """The number of a publisher in packets; it is never 0."""
    digest = hashlib.blake2b(name.encode(), digest_size=4, person=b"publisher").digest()
    return int.from_bytes(digest, "little") or 1


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


def keep_flows(plan: Plan, flows: Collection[str]) -> Plan:
    """The plan without its other flows; receivers, sessions and groups stay as they are."""
    kept = set(flows)
    keeps = np.array([flow in kept for flow in plan.flows], np.bool_)
    number_of = np.cumsum(keeps, dtype=np.int32) - 1
    placed, alone = keeps[plan.placement_flow], keeps[plan.unicast_flow]
    return replace(
        plan,
        flows=tuple(flow for flow in plan.flows if flow in kept),
        placement_flow=number_of[plan.placement_flow[placed]].astype(np.int32),
        placement_session=plan.placement_session[placed],
        unicast_receiver=plan.unicast_receiver[alone],
        unicast_flow=number_of[plan.unicast_flow[alone]].astype(np.int32),
    )


def wanted_flows(plan: Plan, name: str) -> tuple[str, ...]:
    """The flows that a plan carries to a receiver: those of its sessions, and by unicast."""
    if name not in plan.receivers:
        return ()
    me = plan.receivers.index(name)
    sessions = plan.subscription_session[plan.subscription_receiver == me]
    placed = plan.placement_flow[np.isin(plan.placement_session, sessions)]
    alone = plan.unicast_flow[plan.unicast_receiver == me]
    return tuple(plan.flows[flow] for flow in sorted({*placed.tolist(), *alone.tolist()}))


def subscribed_groups(plan: Plan, name: str) -> frozenset[int]:
    """The groups of the sessions that a plan subscribes a receiver to."""
    if name not in plan.receivers:
        return frozenset()
    me = plan.receivers.index(name)
    sessions = plan.subscription_session[plan.subscription_receiver == me]
    return frozenset(plan.session_group[sessions].tolist())


def unserved_flows(plan: Plan, name: str, flows: Iterable[str]) -> tuple[str, ...]:
    """Those of the flows that a plan does not carry to a receiver."""
    served = {plan.flows[flow] for flow in np.unique(plan.placement_flow).tolist()}
    served.update(wanted_flows(plan, name))
    return tuple(flow for flow in flows if flow not in served)
