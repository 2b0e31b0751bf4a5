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
    "FlowRoutes",
    "fingerprint_of",
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


class FlowRoutes:
    """How one receiver gets the flows of a plan.

    By unicast if the plan says so, else in the first session that the receiver subscribes to, else
    (the plan does not know of the receiver's interest) in the first session there is.
    """

    def __init__(self, plan: Plan, receiver: str) -> None:
        self._plan = plan
        self._numbers = {name: number for number, name in enumerate(plan.flows)}
        self._me = plan.receivers.index(receiver) if receiver in plan.receivers else -1
        self._alone = set(plan.unicast_flow[plan.unicast_receiver == self._me].tolist())
        subscribed = plan.subscription_session[plan.subscription_receiver == self._me]
        self._subscribed = set(subscribed.tolist())

    def find(self, flow: str) -> FlowRoute | None:
        """The route of a flow, or None if the plan does not carry it to this receiver."""
        number = self._numbers.get(flow)
        if number is None:
            return None
        plan = self._plan
        if number in self._alone:
            return FlowRoute(flow, number, plan.n_sessions + self._me, None)
        begin, end = np.searchsorted(plan.placement_flow, [number, number + 1])
        sessions = plan.placement_session[begin:end].tolist()
        if not sessions:
            return None
        session = next((s for s in sessions if s in self._subscribed), sessions[0])
        return FlowRoute(flow, number, session, group_name(int(plan.session_group[session])))

    def find_all(self, flows: Iterable[str]) -> list[FlowRoute]:
        """The routes of those of the flows that the plan carries to this receiver."""
        return [route for flow in flows if (route := self.find(flow)) is not None]
