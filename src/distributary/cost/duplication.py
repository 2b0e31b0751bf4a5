"""How much excess the flows that travel in several sessions save the receivers of a plan."""

from __future__ import annotations

import numpy as np

from distributary.cost.filtering import FilteringPrices
from distributary.cost.loads import plan_loads
from distributary.model import Demand, FloatArray, IndexArray, Plan

__all__ = ["duplication_saving", "least_excess_of_one_copy"]


def duplication_saving(plan: Plan, demand: Demand, prices: FilteringPrices) -> float:
    """The increase of the excess if every duplicated flow were in one session only.

    Each flow is priced by itself, exactly, in the one of its sessions where it costs least, with
    everybody who gets it in a session subscribing there and nobody unsubscribing. A new plan would
    suit single copies better: this estimates what the copies save and is not the difference to
    another plan.
    """
    return float(least_excess_of_one_copy(plan, demand, prices).sum())


def least_excess_of_one_copy(plan: Plan, demand: Demand, prices: FilteringPrices) -> FloatArray:
    """For each duplicated flow, ascending: the excess that a single copy of it would add."""
    copies = np.bincount(plan.placement_flow, minlength=len(plan.flows))
    flows = np.flatnonzero(copies > 1)
    if len(flows) == 0:
        return np.zeros(0)
    loads, interest = plan_loads(plan, demand), demand.interest
    heard = _members(plan.subscription_receiver, plan.subscription_session, plan.n_sessions)
    joined = _members(*plan.group_joins(), plan.n_groups)
    added = np.zeros(len(flows))
    for at, flow in enumerate(flows):
        rate = float(demand.rate[flow])
        by_unicast = plan.unicast_receiver[plan.unicast_flow == flow]
        audience = np.setdiff1d(interest.receivers_of(int(flow)), by_unicast)
        sessions = plan.placement_session[plan.placement_flow == flow]
        groups = plan.session_group[sessions]
        prices_of = []
        for one, group in zip(sessions, groups, strict=True):
            gone = sessions != one
            carried = loads.group_rate[group] - rate * int((groups[gone] == group).sum())
            accepted = len(np.setdiff1d(audience, heard[one])) * loads.session_rate[one]
            accepted -= rate * loads.session_subscribers[sessions[gone]].sum()
            received = len(np.setdiff1d(audience, joined[group])) * carried
            received -= rate * loads.group_members[groups[gone]].sum()
            prices_of.append(prices.alpha * received + prices.beta * accepted)
        added[at] = min(prices_of)
    return added


def _members(receiver: IndexArray, channel: IndexArray, n_channels: int) -> list[IndexArray]:
    """The receivers of each channel."""
    order = np.argsort(channel, kind="stable")
    ends = np.cumsum(np.bincount(channel, minlength=n_channels))
    return np.split(receiver[order], ends[:-1])
