"""The load of each session, group and receiver under a plan: the basis of every cost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from distributary.model import Demand, FloatArray, IndexArray, IntArray, Plan

__all__ = ["Loads", "plan_loads", "sum_by", "unicast_rates"]


@dataclass(frozen=True, slots=True, eq=False)
class Loads:
    """Loads in messages per second, recomputed from the plan and the demand alone.

    Arrays are indexed by session, group or receiver. A receiver *receives* everything that its
    groups carry, *accepts* the sessions it subscribes to and *wants* what it asked for: the first
    filter drops received minus accepted, the second accepted minus wanted. Unicast messages are
    received and accepted, and pass no group and no session.

    `unicast_rate` is what the sender sends by unicast, counting each copy, over `unicast_links`
    pairs; `unicast_extra_rate` is the part beyond the first copy of each flow, which a flow that
    also travels in a session sends there.
    """

    session_rate: FloatArray
    session_flows: IntArray
    session_subscribers: IntArray
    group_rate: FloatArray
    group_flows: IntArray
    group_sessions: IntArray
    group_members: IntArray
    receiver_groups: IntArray
    receiver_sessions: IntArray
    received: FloatArray
    accepted: FloatArray
    wanted: FloatArray
    unicast_rate: float
    unicast_extra_rate: float
    unicast_links: int


def plan_loads(plan: Plan, demand: Demand) -> Loads:
    """Add up the load of each session, group and receiver under the plan."""
    interest = demand.interest
    if plan.receivers != interest.receivers or plan.flows != interest.flows:
        raise ValueError("the plan and the demand must name the same receivers and flows")
    n_receivers, n_sessions, n_groups = len(plan.receivers), plan.n_sessions, plan.n_groups
    session_rate = sum_by(plan.placement_session, demand.rate[plan.placement_flow], n_sessions)
    session_flows = np.bincount(plan.placement_session, minlength=n_sessions)
    group_rate = sum_by(plan.session_group, session_rate, n_groups)
    join_receiver, join_group = plan.group_joins()
    unicast = unicast_rates(plan, demand)
    copies = np.bincount(plan.unicast_flow, minlength=len(plan.flows))
    in_session = np.bincount(plan.placement_flow, minlength=len(plan.flows)) > 0
    return Loads(
        session_rate=session_rate,
        session_flows=session_flows,
        session_subscribers=np.bincount(plan.subscription_session, minlength=n_sessions),
        group_rate=group_rate,
        group_flows=np.bincount(plan.session_group[plan.placement_session], minlength=n_groups),
        group_sessions=np.bincount(plan.session_group, minlength=n_groups),
        group_members=np.bincount(join_group, minlength=n_groups),
        receiver_groups=np.bincount(join_receiver, minlength=n_receivers),
        receiver_sessions=np.bincount(plan.subscription_receiver, minlength=n_receivers),
        received=sum_by(join_receiver, group_rate[join_group], n_receivers) + unicast,
        accepted=sum_by(
            plan.subscription_receiver, session_rate[plan.subscription_session], n_receivers
        )
        + unicast,
        wanted=demand.wanted_rate,
        unicast_rate=float(copies @ demand.rate),
        unicast_extra_rate=float(np.maximum(copies - ~in_session, 0) @ demand.rate),
        unicast_links=len(plan.unicast_flow),
    )


def unicast_rates(plan: Plan, demand: Demand) -> FloatArray:
    """What each receiver gets by unicast, in messages per second."""
    rate = demand.rate[plan.unicast_flow]
    return sum_by(plan.unicast_receiver, rate, len(plan.receivers))


def sum_by(index: IndexArray, values: FloatArray, n: int) -> FloatArray:
    """Add up the values of each index from 0 to n - 1."""
    return np.bincount(index, weights=values, minlength=n).astype(np.float64, copy=False)
