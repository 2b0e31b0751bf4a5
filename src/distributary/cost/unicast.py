"""How much excess the flows sent by unicast save the receivers of a plan."""

from __future__ import annotations

import numpy as np

from distributary.cost.filtering import FilteringPrices
from distributary.cost.loads import plan_loads
from distributary.model import Demand, FloatArray, IndexArray, IntArray, Plan

__all__ = ["least_added_excess", "unicast_saving"]


def unicast_saving(plan: Plan, demand: Demand, prices: FilteringPrices) -> float:
    """The excess that the flows sent by unicast would add in sessions of this plan.

    Each flow is priced by itself, exactly, in the session where it adds least. Placed together they
    would interact, and a new plan would suit them better: this is a close estimate of what unicast
    saves and not the difference to another plan.
    """
    return float(least_added_excess(plan, demand, prices).sum())


def least_added_excess(plan: Plan, demand: Demand, prices: FilteringPrices) -> FloatArray:
    """For each unicast flow, ascending: the excess it would add in its cheapest session."""
    loads = plan_loads(plan, demand)
    sessions = _Listeners(plan.subscription_receiver, plan.subscription_session, plan.n_sessions)
    groups = _Listeners(*plan.group_joins(), plan.n_groups)
    order = np.argsort(plan.unicast_flow, kind="stable")
    flows, first = np.unique(plan.unicast_flow[order], return_index=True)
    audiences = np.split(plan.unicast_receiver[order], first[1:])
    added = np.zeros(len(flows))
    for at, flow in enumerate(flows):
        rate, audience = float(demand.rate[flow]), audiences[at]
        by_session = prices.beta * sessions.added_rates(
            audience, rate, loads.session_rate, loads.session_subscribers
        )
        by_group = prices.alpha * groups.added_rates(
            audience, rate, loads.group_rate, loads.group_members
        )
        added[at] = float((by_session + by_group[plan.session_group]).min())
    return added


class _Listeners:
    """Which channels (sessions or groups) each receiver listens to."""

    def __init__(self, receiver: IndexArray, channel: IndexArray, n_channels: int) -> None:
        self._receiver, self._channel, self._n = receiver, channel, n_channels

    def added_rates(
        self, audience: IndexArray, rate: float, carried: FloatArray, listeners: IntArray
    ) -> FloatArray:
        """For each channel, the unwanted rate that a flow with this audience would add there.

        Members of the audience who do not listen yet would take in what the channel carries;
        listeners outside the audience would take in the flow.
        """
        first = np.searchsorted(self._receiver, audience, "left")
        last = np.searchsorted(self._receiver, audience, "right")
        heard = [self._channel[a:b] for a, b in zip(first, last, strict=True)]
        there = np.bincount(np.concatenate(heard), minlength=self._n)
        return (len(audience) - there) * carried + (listeners - there) * rate
